import subprocess
import sys

import pytest
from index_world import names
from spacy.cli import app
from typer.testing import CliRunner

import spacy_elq.cli  # noqa: F401 (adds the commands to spaCy's)
from spacy_elq.index import EntityIndex


def invoke(*args):
    """Run `spacy elq index` in this process; gives the exit code and what it printed, as one line."""
    result = CliRunner().invoke(app, ["elq", "index", *map(str, args)])
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result.exit_code, " ".join(result.output.split())


def backend_of(folder):
    return EntityIndex.open(folder).meta["backend"]


def test_help_names_the_defaults():
    code, output = invoke("--help")
    assert code == 0
    assert "--factory" in output
    assert "up to 10,000 entities are searched exactly (Flat)" in output
    assert "HNSW128 (efConstruction 200, efSearch 256)" in output


def test_factory_is_recorded_with_its_settings(vectors_path, tmp_path):
    folder = tmp_path / "index"
    assert invoke(vectors_path, folder, "--factory", "HNSW128")[0] == 0
    assert backend_of(folder) == {"factory": "HNSW128", "efConstruction": 200, "efSearch": 256}
    assert EntityIndex.open(folder).stamp == EntityIndex.open(vectors_path).stamp


def test_an_index_can_be_made_of_an_index_and_takes_its_place(vectors_path, tmp_path):
    folder = tmp_path / "index"
    assert invoke(vectors_path, folder, "--factory", "HNSW8")[0] == 0
    assert list(folder.glob("search-*.faiss"))
    assert invoke(folder, folder)[0] == 0
    assert backend_of(folder)["factory"] == "HNSW8"
    code, output = invoke(folder, folder, "--factory", "Flat")
    assert code == 0
    assert "factory Flat" in output
    assert backend_of(folder) == {"factory": "Flat"}
    assert not list(folder.glob("search-*.faiss"))


def test_vectors_in_16_bits(vectors_path, tmp_path):
    assert invoke(vectors_path, tmp_path / "index", "--dtype", "float16")[0] == 0
    assert EntityIndex.open(tmp_path / "index").vectors.dtype == "float16"


def test_missing_vectors_name_the_command_that_makes_them(tmp_path):
    code, output = invoke(tmp_path / "no", tmp_path / "index")
    assert code == 1
    assert "E030" in output
    assert "spacy elq encode" in output
    assert not (tmp_path / "index").exists()


def test_unknown_factory_leaves_the_old_index(vectors_path, tmp_path):
    folder = tmp_path / "index"
    invoke(vectors_path, folder)
    before = names(folder)
    code, output = invoke(vectors_path, folder, "--factory", "Nonsense9")
    assert code == 1
    assert "E034" in output
    assert "'Nonsense9'" in output
    assert names(folder) == before
    assert len(EntityIndex.open(folder)) == 10


def test_how_wide_a_search_is_can_be_said_and_changed(vectors_path, tmp_path):
    folder = tmp_path / "index"
    assert invoke(vectors_path, folder, "--factory", "HNSW8_SQ8", "--ef-search", 33, "--rescore", 44)[0] == 0
    assert backend_of(folder) == {
        "factory": "HNSW8_SQ8",
        "efConstruction": 200,
        "efSearch": 33,
        "rescore": 44,
    }
    code, output = invoke(folder, folder, "--ef-search", 55)
    assert code == 0
    assert "efSearch 55, rescore 44" in output
    assert backend_of(folder)["efSearch"] == 55


def test_a_setting_that_the_back_end_has_not_is_an_error(vectors_path, tmp_path):
    code, output = invoke(vectors_path, tmp_path / "index", "--nprobe", 3)
    assert code == 1
    assert "E081" in output
    assert not (tmp_path / "index").exists()
    assert invoke(vectors_path, tmp_path / "index", "--rescore", 0)[0] == 2


def test_lists_that_are_too_many_are_said_aloud(vectors_path, tmp_path):
    with pytest.warns(UserWarning, match="W003"):
        assert invoke(vectors_path, tmp_path / "index", "--factory", "IVF2,Flat")[0] == 0
    with pytest.warns(UserWarning, match="W003"):
        code, output = invoke(vectors_path, tmp_path / "other", "--factory", "IVF11,Flat")
    assert code == 1
    assert "E034" in output


# a system whose disk is full
FULL = "import runpy, shutil; shutil.disk_usage = lambda p: shutil._ntuple_diskusage(9, 9, 0); "
FULL += "runpy.run_module('spacy', run_name='__main__', alter_sys=True)"


@pytest.mark.parametrize(
    ("factory", "start", "code", "expected"),
    [
        (
            "Nonsense9",
            ["-m", "spacy"],
            1,
            ["E034", "'Nonsense9'", "10 vectors of width 48", "'Flat' (exact)"],
        ),
        ("PQ8", ["-m", "spacy"], 1, ["E034", "'PQ8'", "10 vectors", "'Flat' (exact)"]),
        ("IVF64,Flat", ["-m", "spacy"], 1, ["W003", "64 lists", "IVF1 would fit", "E034"]),
        ("IVF2,Flat", ["-m", "spacy"], 0, ["W003", "2 lists", "IVF1 would fit", "factory IVF2,Flat"]),
        ("HNSW32", ["-c", FULL], 1, ["E083", "0 KB are free"]),
    ],
    ids=["unknown", "too few to train", "too few for lists", "few for lists", "disk"],
)
def test_what_cannot_be_built_is_said_on_the_command_line(
    vectors_path, tmp_path, factory, start, code, expected
):
    folder = tmp_path / "index"
    command = [sys.executable, *start, "elq", "index", str(vectors_path), str(folder), "--factory", factory]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    output = " ".join((done.stdout + done.stderr).split())
    assert done.returncode == code, output
    assert "Traceback" not in output
    for words in expected:
        assert words in output
    assert folder.exists() == (code == 0)
