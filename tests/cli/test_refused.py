"""What people name is not always there, or theirs: every command ends with one message and exit code 1."""

import os
import subprocess
import sys

import pytest
from conftest import PUBLISHED_FILES, run_spacy
from spacy.tokens import DocBin
from typer.main import get_command

from spacy_elq.cli import app
from spacy_elq.cli._util import command
from spacy_elq.index import copy_index

# what each command reads: files and folders; and what it writes
READS = {
    "bench": ["data"],
    "bundle": [],
    "convert": ["questions", "only"],
    "dictionary": ["anchors", "catalogue", "sentences"],
    "add": ["catalogue"],
    "catalogue": ["table"],
    "check": [],
    "compact": [],
    "remove": [],
    "show": [],
    "encode": ["catalogue"],
    "evaluate": ["data", "train"],
    "explain": [],
    "fetch-encoder": [],
    "import": ["checkpoint", "params", "entities", "matrix", "index"],
    "index": [],
    "init-config": [],
    "link": ["questions"],
    "quantize": [],
    "questions": ["catalogue", "templates"],
    "recall": ["data"],
    "relations": ["triples"],
    "report": ["metrics", "data", "training"],
    "serve": [],
    "threshold": ["data"],
}
FOLDERS = {
    "add": ["index_folder"],
    "check": ["index_folder"],
    "compact": ["index_folder"],
    "remove": ["index_folder"],
    "show": ["index_folder"],
    "bench": ["pipeline"],
    "bundle": ["pipeline"],
    "evaluate": ["pipeline"],
    "explain": ["pipeline"],
    "index": ["vectors"],
    "link": ["pipeline"],
    "quantize": ["pipeline"],
    "recall": ["pipeline"],
    "relations": ["index_folder"],
    "serve": ["pipeline"],
    "threshold": ["pipeline"],
}
# these have no output
CHANGES = ["add", "check", "compact", "explain", "remove", "serve", "show"]
WRITES_FILE = [
    "bench",
    "catalogue",
    "convert",
    "evaluate",
    "init-config",
    "link",
    "questions",
    "recall",
    "report",
]
WRITES_FOLDER = [
    "bundle",
    "dictionary",
    "encode",
    "fetch-encoder",
    "import",
    "index",
    "quantize",
    "relations",
    "threshold",
]


@pytest.fixture(scope="module")
def places(
    train_once,
    gold_docs,
    questions_path,
    vectors_path,
    encoder_path,
    world,
    published,
    index,
    tmp_path_factory,
):
    folder = tmp_path_factory.mktemp("given")
    DocBin(docs=gold_docs, store_user_data=True).to_disk(folder / "gold.spacy")
    (folder / "ids").write_text("1\n")
    pipeline = train_once("tok2vec")
    done = run_spacy("elq", "evaluate", pipeline, folder / "gold.spacy", folder / "metrics.json")
    assert done.returncode == 0, done.stderr
    line = '{"step": 1, "losses": {"elq_linker": 1}, "scores": {}, "score": 0.5}'
    (folder / "log.jsonl").write_text(line)
    (folder / "questions.txt").write_text(questions_path.read_text())
    (folder / "templates.txt").write_text("what is {}\n")
    (folder / "triples.tsv").write_text("head\trelation\ttail\nE1\tcapital of\tE2\n")
    (folder / "table.csv").write_text("id,title\nE1,Paris\n")
    copy_index(index, folder / "index")
    return {
        "pipeline": pipeline,
        "data": folder / "gold.spacy",
        "train": folder / "gold.spacy",
        "questions": folder / "questions.txt",
        "templates": folder / "templates.txt",
        "triples": folder / "triples.tsv",
        "only": folder / "ids",
        "metrics": folder / "metrics.json",
        "training": folder / "log.jsonl",
        "catalogue": world / "entities.jsonl",
        "encoder": encoder_path,
        "anchors": world / "anchors.tsv",
        "sentences": world / "sentences.jsonl",
        **{name: published / file for name, file in PUBLISHED_FILES.items() if name != "vectors"},
        "matrix": published / PUBLISHED_FILES["vectors"],
        "vectors": vectors_path,
        "index_folder": folder / "index",
        "table": folder / "table.csv",
    }


def words(name, places, output):
    """RETURNS: The command line of a command."""
    arguments = {
        "add": ["index_folder", "catalogue"],
        "catalogue": ["table", output],
        "check": ["index_folder"],
        "compact": ["index_folder"],
        "remove": ["index_folder", ("E1",)],
        "show": ["index_folder"],
        "bench": ["pipeline", "data", output, "--limit", 1, "--repeats", 1, "--batch-sizes", 1],
        "bundle": ["pipeline", output],
        "convert": ["questions", output, "--format", "marked", "--only", "only"],
        "dictionary": ["anchors", "catalogue", output, "--sentences", "sentences"],
        "encode": ["catalogue", output, "--encoder", "encoder", "--max-length", 48],
        "evaluate": ["pipeline", "data", output, "--train", "train"],
        "explain": ["pipeline", ("is paris old",)],
        "fetch-encoder": [("all-MiniLM-L6-v2",), output],
        "import": [
            *("checkpoint", output, "--params", "params", "--entities", "entities"),
            *("--vectors", "matrix", "--index", "index"),
        ],
        "index": ["vectors", output],
        "init-config": [("elq",), output, "--force"],
        "link": ["pipeline", "questions", output],
        "quantize": ["pipeline", output],
        "questions": ["catalogue", output, "--templates", "templates"],
        "recall": ["pipeline", "data", "--output", output],
        "relations": ["triples", "index_folder", output, "--epochs", 1],
        "report": ["metrics", "data", "--html", output, "--training", "training"],
        "serve": ["pipeline", "--port", 0],
        "threshold": ["pipeline", "data", "--output", output],
    }[name]
    return ["elq", name, *(a[0] if isinstance(a, tuple) else places.get(a, a) for a in arguments)]


def assert_refused(done, path):
    assert done.returncode == 1, done.stdout + done.stderr
    assert "Traceback" not in done.stderr, done.stderr
    assert done.stderr.count("✘ [spacy-elq E") == 1
    assert str(path) in done.stderr


def test_every_command_is_tried():
    assert set(get_command(app).commands) == set(READS) == {*WRITES_FILE, *WRITES_FOLDER, *CHANGES}


each_input = pytest.mark.parametrize(
    ("name", "place"), [(name, place) for name, own in READS.items() for place in own]
)
each_folder = pytest.mark.parametrize(
    ("name", "place"), [(name, place) for name, own in FOLDERS.items() for place in own]
)


@each_input
def test_a_folder_where_a_file_is_expected(name, place, places, tmp_path):
    folder = tmp_path / ("folder.csv" if place == "table" else "folder.jsonl")
    folder.mkdir()
    done = run_spacy(*words(name, {**places, place: folder}, tmp_path / "output"))
    assert_refused(done, folder)


@pytest.mark.parametrize(
    ("name", "place"),
    [(name, place) for group in (READS, FOLDERS) for name, own in group.items() for place in own],
)
def test_links_that_point_to_each_other(name, place, places, tmp_path):
    loop = tmp_path / ("loop.csv" if place == "table" else "loop.jsonl")
    loop.symlink_to(loop)
    done = run_spacy(*words(name, {**places, place: loop}, tmp_path / "output"))
    assert_refused(done, loop)


@pytest.mark.parametrize(
    ("name", "place"),
    [(name, place) for group in (READS, FOLDERS) for name, own in group.items() for place in own],
)
def test_what_may_not_be_read(name, place, places, tmp_path, nobody):
    mine = tmp_path / ("mine.csv" if place == "table" else "mine.jsonl")
    mine.touch() if place in READS[name] else mine.mkdir()
    mine.chmod(0)
    arguments = words(name, {**places, place: mine}, tmp_path / "output")
    mine.chmod(0)
    tmp_path.chmod(0o777)
    with nobody():
        done = run_spacy(*arguments)
    if done.returncode == 2:  # typer looks first
        assert f"path '{mine}' is not readable" in done.stderr
    else:
        assert_refused(done, mine)


@each_folder
def test_a_file_where_a_folder_is_expected(name, place, places, tmp_path):
    (tmp_path / "file").write_text("x")
    done = run_spacy(*words(name, {**places, place: tmp_path / "file"}, tmp_path / "output"))
    assert_refused(done, tmp_path / "file")


@pytest.mark.parametrize("name", [*WRITES_FILE, *WRITES_FOLDER])
def test_the_parent_of_the_output_is_a_file(name, places, tmp_path):
    (tmp_path / "file").write_text("old")
    done = run_spacy(*words(name, places, tmp_path / "file" / "output"))
    assert_refused(done, tmp_path / "file")
    assert (tmp_path / "file").read_text() == "old"
    assert os.listdir(tmp_path) == ["file"]


@pytest.mark.parametrize("name", WRITES_FILE)
def test_the_output_is_a_folder(name, places, tmp_path):
    (tmp_path / "output").mkdir()
    done = run_spacy(*words(name, places, tmp_path / "output"))
    assert_refused(done, tmp_path / "output")
    assert os.listdir(tmp_path) == ["output"]


@pytest.mark.parametrize("name", WRITES_FOLDER)
def test_the_output_is_a_file(name, places, tmp_path):
    (tmp_path / "output").write_text("old")
    done = run_spacy(*words(name, places, tmp_path / "output"))
    assert_refused(done, tmp_path / "output")
    assert (tmp_path / "output").read_text() == "old"
    assert os.listdir(tmp_path) == ["output"]


@pytest.mark.parametrize("name", [*WRITES_FILE, *WRITES_FOLDER])
def test_the_output_may_not_be_written(name, places, tmp_path, nobody):
    (tmp_path / "theirs").mkdir(mode=0o755)
    (tmp_path / "theirs").chmod(0o555)
    with nobody():
        done = run_spacy(*words(name, places, tmp_path / "theirs" / "output"))
    assert_refused(done, tmp_path / "theirs")
    assert os.listdir(tmp_path / "theirs") == []


@pytest.mark.parametrize("name", WRITES_FILE)
def test_a_loop_is_no_output(name, places, tmp_path):
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    done = run_spacy(*words(name, places, tmp_path / "loop"))
    assert_refused(done, tmp_path / "loop")
    assert (tmp_path / "loop").is_symlink()


@pytest.mark.parametrize("error", [KeyError("x"), RuntimeError("x"), RecursionError("x"), ValueError("x")])
def test_errors_of_ours_are_not_hidden(error, monkeypatch):
    def fail():
        raise error

    monkeypatch.setattr(app, "registered_commands", [])
    command("fails")(fail)
    with pytest.raises(type(error)):
        app.registered_commands[0].callback()


def test_no_reader_is_no_error(places):
    code = "import sys; from spacy.cli import setup_cli; setup_cli()"
    arguments = [sys.executable, "-c", code, "elq", "link", places["pipeline"], places["questions"]]
    with subprocess.Popen(arguments, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        process.stdout.close()
        assert process.wait(timeout=600) == 1
        assert process.stderr.read() == ""
