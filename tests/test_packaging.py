"""What is in the wheel and in the sdist, and that the wheel works where there is no checkout."""

import email
import os
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import venv
import zipfile
from pathlib import Path

import pytest
import spacy
import srsly

from spacy_elq import __version__
from spacy_elq.pipeline.configs import find_configs

ROOT = Path(__file__).parent.parent
# for those who develop, not for those who test a release
NOT_IN_SDIST = {".gitignore", ".ci/run"}


def run(command, **kwargs):
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, timeout=600, **kwargs)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    return done.stdout


@pytest.fixture(scope="module")
def tracked():
    """The files of the repository, without what is made in it."""
    if not (ROOT / ".git").exists():
        pytest.skip("not a git checkout")
    # also what will be committed next
    listed = run(["git", "ls-files", "--cached", "--others", "--exclude-standard"], cwd=ROOT).splitlines()
    return {name for name in listed if (ROOT / name).is_file()}


@pytest.fixture(scope="module")
def built(tmp_path_factory, tracked):
    """A folder with the sdist and the wheel built from it. Building writes into its source: a copy."""
    folder = tmp_path_factory.mktemp("packaging")
    for name in tracked:
        (folder / "source" / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, folder / "source" / name)
    run([sys.executable, "-m", "build", "--no-isolation", "--outdir", folder / "dist", folder / "source"])
    return folder / "dist"


@pytest.fixture(scope="module")
def wheel(built):
    return next(built.glob("*.whl"))


def test_sdist_has_everything_that_the_tests_need(built, tracked):
    path = next(built.glob("*.tar.gz"))
    assert path.name == f"spacy_elq-{__version__}.tar.gz"
    with tarfile.open(path) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert tracked - names == NOT_IN_SDIST


def test_wheel_has_package_types_and_configs_alone(wheel, tracked):
    names = {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}
    package = {name for name in tracked if name.startswith("spacy_elq/")}
    configs = {f"spacy_elq/configs/{name}.cfg" for name in find_configs()}
    assert {"spacy_elq/py.typed", "spacy_elq/cli/__init__.py"} <= package
    assert names == package | configs


def test_citation_has_the_same_version():
    assert srsly.read_yaml(ROOT / "CITATION.cff")["version"] == __version__
    assert f"## {__version__}" in (ROOT / "CHANGELOG.md").read_text(encoding="utf8")


def test_metadata(wheel):
    with zipfile.ZipFile(wheel) as archive:
        folder = f"spacy_elq-{__version__}.dist-info"
        metadata = email.message_from_bytes(archive.read(f"{folder}/METADATA"))
        entry_points = archive.read(f"{folder}/entry_points.txt").decode("utf8")
        assert any(name.endswith("/LICENSE") for name in archive.namelist())
    # the licence as an expression; the classifiers for it are deprecated
    assert metadata["License-Expression"] == "MIT"
    assert "Programming Language :: Python :: 3.12" in metadata.get_all("Classifier")
    assert "entity-linking" in metadata["Keywords"]
    assert {"onnx", "dev"} <= set(metadata.get_all("Provides-Extra"))
    # there is no address to name
    assert metadata.get_all("Project-URL", []) == []
    assert metadata["Home-page"] is None
    assert "elq = spacy_elq.cli:app" in entry_points


@pytest.fixture(scope="module")
def environment(wheel, tmp_path_factory):
    """The Python of an environment with the wheel; its dependencies are those that the tests run with."""
    folder = tmp_path_factory.mktemp("environment")
    venv.create(folder, with_pip=False, symlinks=os.name != "nt")
    scheme = sysconfig.get_preferred_scheme("prefix")
    site = Path(sysconfig.get_path("purelib", scheme, {"base": str(folder), "platbase": str(folder)}))
    # a folder of links without our own package, whose editable install must not be seen
    others = folder / "others"
    others.mkdir()
    for path in Path(sysconfig.get_path("purelib")).iterdir():
        if "spacy_elq" not in path.name and path.suffix != ".pth":
            (others / path.name).symlink_to(path)
    (site / "others.pth").write_text(f"{others}\n", encoding="utf8")
    python = folder / ("Scripts" if os.name == "nt" else "bin") / "python"
    install(python, wheel)
    return python


def clean(folder):
    """RETURNS: How to start a process that sees no checkout."""
    hidden = ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV")
    return {"cwd": folder, "env": {key: value for key, value in os.environ.items() if key not in hidden}}


def install(python, path):
    pip = [sys.executable, "-m", "pip", "--python", python, "install", "--quiet", "--no-deps", "--no-index"]
    run([*pip, "--no-build-isolation", path], **clean(Path(path).parent))


TEN_LINES = """
import spacy
import spacy_elq
from pathlib import Path

assert Path(spacy_elq.__file__).is_relative_to(Path({prefix!r})), spacy_elq.__file__
nlp = spacy.load("en_elq_test")
doc = nlp({text!r})
for ent in doc.ents:
    print(ent.text, ent.kb_id_, ent._.elq_title, round(ent._.elq_score, 2))
"""


def test_wheel_links_a_text_with_a_packaged_pipeline(environment, trained_path, encoder_path, tmp_path):
    def spacy_command(*words):
        return run([environment, "-m", "spacy", *words], **clean(tmp_path))

    spacy_command("elq", "init-config", "elq", "config.cfg", "--encoder", encoder_path)
    assert (tmp_path / "config.cfg").read_text(encoding="utf8").count(str(encoder_path)) == 1
    spacy_command("elq", "bundle", trained_path, "bundle")
    (tmp_path / "packages").mkdir()
    words = ["package", "bundle", "packages", "--name", "elq_test", "--version", "1.0.0", "--build", "none"]
    spacy_command(*words)
    install(environment, tmp_path / "packages" / "en_elq_test-1.0.0")
    text = "is paris older than new york city"
    code = TEN_LINES.format(prefix=str(environment.parent.parent), text=text)
    lines = run([environment, "-c", code], **clean(tmp_path)).splitlines()
    nlp = spacy.load(trained_path)
    expected = [(ent.text, ent.kb_id_, ent._.elq_title) for ent in nlp(text).ents]
    assert len(expected) == 2
    assert [line.rsplit(" ", 1)[0] for line in lines] == [" ".join(link) for link in expected]
