"""The workflow of project.yml itself, on a cut-down copy of the project."""

import json
import re
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest
import srsly
from conftest import PUBLISHED_FILES, PUBLISHED_QUESTIONS, PUBLISHED_TITLES, published_links
from typer.testing import CliRunner
from weasel.util.config import load_project_config

from spacy_elq.cli import spacy_app
from spacy_elq.index import EntityIndex
from spacy_elq.model.recipe import Recipe, write_recipe

ROOT = Path(__file__).parent.parent
# what a tiny encoder of random weights needs to learn twenty questions
TINY = {"initial_rate": 0.002, "layers": 0, "level": 0.0}
# those whose words are the same for BERT and for the tokenizer of `spacy elq convert`
QUESTIONS = [text for text in PUBLISHED_QUESTIONS if "'" not in text]


@pytest.fixture(scope="module")
def project(tmp_path_factory, encoder_path, catalogue_path, questions_path):
    """The real project.yml, configs and scripts, with the tiny encoder, catalogue and questions."""
    folder = tmp_path_factory.mktemp("project")
    for name in ("configs", "scripts"):
        shutil.copytree(ROOT / name, folder / name)
    shutil.copy(ROOT / "project.yml", folder / "project.yml")
    (folder / "assets" / "questions").mkdir(parents=True)
    shutil.copy(catalogue_path, folder / "assets" / "entities.jsonl")
    (folder / "assets" / "nothing.txt").write_text("how do i boil an egg\n", encoding="utf8")
    for part in ("train", "dev", "test"):
        shutil.copy(questions_path, folder / "assets" / "questions" / f"{part}.txt")
    recipe = (folder / "configs" / "elq.cfg").read_text(encoding="utf8")
    for setting, value in TINY.items():
        recipe, count = re.subn(rf"(?m)^{setting} = .*$", f"{setting} = {value}", recipe)
        assert count == 1, setting
    (folder / "configs" / "elq.cfg").write_text(recipe, encoding="utf8")
    return folder


@pytest.fixture(scope="module")
def own_encoder(tmp_path_factory, encoder_path):
    """The tiny encoder with a recipe, as any encoder of one's own."""
    folder = shutil.copytree(encoder_path, tmp_path_factory.mktemp("own") / "encoder")
    write_recipe(folder, Recipe(max_length=48, aliases=True, norm=4.0))
    return folder


def project_words(command, project, variables):
    """The words behind `python -m spacy`."""
    overrides = [word for name, value in variables.items() for word in (f"--vars.{name}", str(value))]
    return ["project", "run", command, str(project), *overrides]


def run(project, own_encoder, command, **variables):
    return run_spacy(project_words(command, project, {"encoder": own_encoder, **variables}))


def run_spacy(words):
    command = [sys.executable, "-m", "spacy", *words]
    return subprocess.run(command, capture_output=True, text=True, timeout=900)


def test_all_runs_to_the_final_table_and_then_skips_everything(project, own_encoder):
    first = run(project, own_encoder, "all")
    assert first.returncode == 0, first.stdout + first.stderr
    metrics = json.loads((project / "metrics" / "test.json").read_text(encoding="utf8"))
    for group in (metrics, metrics["unseen"]):
        for metric in ("weak", "strong", "mentions", "links"):
            assert set(group[metric]) == {"p", "r", "f"}
    assert metrics["questions_per_second"] > 0
    assert metrics["weak"]["f"] > 0.9  # trained on the very questions
    assert "weak F" in first.stdout
    vectors = EntityIndex.open(project / "vectors")
    encoder = vectors.meta["encoder"]
    vectors.close()  # SQLite keeps files beside a database that is open
    assert (encoder["norm"], encoder["aliases"], encoder["max_length"]) == (4.0, True, 48)
    page = (project / "metrics" / "test.html").read_text(encoding="utf8")
    assert ('<span class="badge wrong">wrong entity</span> (0)' in page) or metrics["weak"]["f"] < 1
    second = run(project, own_encoder, "all")
    assert second.returncode == 0
    assert second.stdout.count("nothing changed") == 8

    (project / "index" / "entities.db").touch()  # same content: still nothing to do
    assert run(project, own_encoder, "train").stdout.count("nothing changed") == 1


def test_package_can_be_made_of_the_result(project, own_encoder):
    done = run(project, own_encoder, "package")
    assert done.returncode == 0, done.stdout + done.stderr
    packaged = next((project / "packages").glob("en_*/en_*/en_*"))
    assert (packaged / "elq_linker" / "index" / "entities.db").is_file()
    assert next((project / "packages").glob("en_*/dist/*.tar.gz")).is_file()


@pytest.fixture
def published_project(tmp_path, published):
    """The real project.yml, with addresses that are files; gold is what the formulas of the paper find."""
    downloads = tmp_path / "downloads"
    shutil.copytree(published, downloads, ignore=lambda *_: ["bert"])
    shutil.copy(downloads / PUBLISHED_FILES["checkpoint"], downloads / "elq_wiki_large.bin")
    for name, gamma in (("WebQSP_EL", -1.5), ("graphquestions_EL", -0.9)):
        folder = tmp_path / "EL4QA_data" / name / "tokenized"
        folder.mkdir(parents=True)
        records = [tokenized(text, published_links(published, text, gamma)) for text in QUESTIONS]
        assert any(record["entity"] for record in records)
        srsly.write_jsonl(folder / "test.jsonl", records)
    with tarfile.open(downloads / "EL4QA_data.tar.gz", "w:gz") as archive:
        archive.add(tmp_path / "EL4QA_data", "EL4QA_data")
    text = (ROOT / "project.yml").read_text(encoding="utf8")
    text, count = re.subn(r"https://dl\.fbaipublicfiles\.com/(elq|BLINK)", str(downloads), text)
    assert count == 7
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "project.yml").write_text(text, encoding="utf8")
    return folder


def tokenized(text, links):
    """A line of the published question sets."""
    return {
        "id": "WebQTest-0",
        "text": text,
        "mentions": [[start, end] for start, end, _ in links],
        "label_id": [row for *_, row in links],
        "entity": [PUBLISHED_TITLES[row] for *_, row in links],
    }


def run_here(command, **_):
    """Run a command of the project in this process: to start another takes longer than the work."""
    if command[1:3] == ["-m", "spacy"]:
        result = CliRunner().invoke(spacy_app, command[3:])
        assert result.exit_code == 0, result.output
    else:
        subprocess.run(command, check=True)


@pytest.mark.parametrize("is_quick", [True, pytest.param(False, marks=pytest.mark.slow)])
def test_published_models_are_fetched_imported_and_evaluated(
    published_project, encoder_path, is_quick, monkeypatch
):
    if is_quick:
        monkeypatch.setattr("weasel.cli.run.run_command", run_here)
    for number in range(2):
        words = project_words("published", published_project, {"bert": encoder_path})
        if is_quick:
            result = CliRunner().invoke(spacy_app, words)
            code, output = result.exit_code, result.output
        else:
            done = run_spacy(words)
            code, output = done.returncode, done.stdout + done.stderr
        assert code == 0, output
        assert output.count("nothing changed") == 4 * number
    for name, threshold in (("webqsp_el", 0.22313), ("graphquestions_el", 0.40657)):
        metrics = srsly.read_json(published_project / "metrics" / f"published_{name}.json")
        assert metrics["threshold"] == pytest.approx(threshold)
        assert metrics["questions"] == len(QUESTIONS)
        assert metrics["strong"]["f"] == 1.0


def test_no_large_file_is_read_into_memory_to_see_whether_it_changed():
    commands = srsly.read_yaml(ROOT / "project.yml")["commands"]
    watched = [
        path
        for command in commands
        if command["name"].startswith("published")
        for key in ("deps", "outputs", "outputs_no_cache")
        for path in command.get(key, [])
    ]
    large = [*PUBLISHED_FILES.values(), "published"]
    large.remove(PUBLISHED_FILES["params"])
    assert watched
    assert [path for path in watched if Path(path).name in large and path != "corpus/published"] == []


@pytest.mark.parametrize("folder", [".", "projects/benchmark", "projects/paper", "projects/qa"])
def test_lists_stay_lists(folder):
    """spaCy makes one string of some lists of two items that begin with a variable."""
    given = srsly.read_yaml(ROOT / folder / "project.yml")["commands"]
    for own, read in zip(given, load_project_config(ROOT / folder)["commands"], strict=True):
        for key in ("script", "deps", "outputs", "outputs_no_cache"):
            assert len(read.get(key, [])) == len(own.get(key, [])), (own["name"], key)


def test_the_file_stays_short():
    assert len((ROOT / "project.yml").read_text(encoding="utf8").splitlines()) < 200


def test_assets_come_over_https_and_those_without_checksum_are_said_to_be_unverified():
    project = srsly.read_yaml(ROOT / "project.yml")
    assert all(asset["url"].startswith("https://") for asset in project["assets"])
    unverified = [asset for asset in project["assets"] if not asset.get("checksum")]
    (help_text,) = [x["help"] for x in project["commands"] if x["name"] == "published-assets"]
    assert not unverified or "not verified" in help_text
    # fetched only by the command that says so
    assert all(asset["extra"] for asset in unverified)
