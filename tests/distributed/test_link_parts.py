import io
import json
import sys

import fsspec
import pytest
from conftest import run_spacy

from spacy_elq.distributed import link as module
from spacy_elq.distributed.link import link_parts, split_lines
from spacy_elq.distributed.parts import Parts
from spacy_elq.errors import ELQError

TEXTS = ["is paris big", "", "how big is new york city", "what time is it", "hotels in the city of light"]


@pytest.fixture
def memory():
    yield fsspec.filesystem("memory")
    fsspec.filesystem("memory").store.clear()


@pytest.fixture
def questions(tmp_path):
    path = tmp_path / "questions.txt"
    path.write_text("\n".join(TEXTS) + "\n")
    return path


@pytest.fixture
def alone(trained_path, questions, tmp_path):
    """What one process writes."""
    done = run_spacy("elq", "link", trained_path, questions, tmp_path / "alone.jsonl", "--batch-size", 2)
    assert done.returncode == 0, done.stderr
    return (tmp_path / "alone.jsonl").read_bytes()


@pytest.fixture
def link(trained_path, monkeypatch):
    """Links by parts of two questions; gives the numbers of the parts that were linked."""
    numbers = []
    do = module.LineLinker.__call__

    def note(self, job):
        numbers.append(job.number)
        if len(numbers) > note.stop_after:
            raise KeyboardInterrupt
        return do(self, job)

    def run(source, output, *, stop_after=99, **settings):
        numbers.clear()
        note.stop_after = stop_after
        form = {"is_jsonl": False, "batch_size": 2, "part_size": 2, **settings}
        try:
            link_parts(str(trained_path), str(source), str(output), **form)
        except KeyboardInterrupt:
            numbers.pop()
        return list(numbers)

    monkeypatch.setattr(module.LineLinker, "__call__", note)
    return run


def test_parts_make_what_one_process_writes(link, questions, alone, memory, tmp_path):
    memory.pipe_file("/in/questions.txt", questions.read_bytes())
    assert link("memory://in/questions.txt", "memory://out/links.jsonl") == [0, 1, 2]
    assert memory.cat_file("/out/links.jsonl") == alone
    assert not memory.exists("/out/links.jsonl.parts")
    assert link(questions, tmp_path / "links.jsonl") == [0, 1, 2]
    assert (tmp_path / "links.jsonl").read_bytes() == alone
    assert not (tmp_path / "links.jsonl.parts").exists()


def test_a_stopped_run_goes_on_where_it_was(link, questions, alone, tmp_path):
    output = tmp_path / "links.jsonl"
    output.write_text("old")
    assert link(questions, output, stop_after=2) == [0, 1]
    assert output.read_text() == "old"
    assert link(questions, output) == [2]
    assert output.read_bytes() == alone


def test_parts_of_other_questions_or_settings_do_not_count(link, questions, tmp_path):
    output = tmp_path / "links.jsonl"
    link(questions, output, stop_after=2)
    assert link(questions, output, alternatives=0, stop_after=1) == [0]
    assert link(questions, output, threshold=0.9, stop_after=1) == [0]
    questions.write_text("\n".join(["is paris old", *TEXTS[1:]]) + "\n")
    assert link(questions, output) == [0, 2]
    assert json.loads(output.read_text().splitlines()[0])["text"] == "is paris old"


def test_a_bad_line_loses_nothing(link, tmp_path, monkeypatch):
    source, output = tmp_path / "in.jsonl", tmp_path / "links.jsonl"
    lines = [json.dumps({"text": text}) for text in TEXTS]
    source.write_text("\n".join([*lines[:4], "5"]))
    with pytest.raises(ELQError, match=r"E142.*links.jsonl.parts\n.*E040.*in.jsonl, line 5"):
        link(source, output, is_jsonl=True)
    assert len(Parts(f"{output}.parts").names()) == 2
    source.write_text("\n".join(lines))
    assert link(source, output, is_jsonl=True) == [2]
    # from stdin, the name of the input is another, and nothing else
    stdin = io.TextIOWrapper(io.BytesIO(source.read_bytes()))
    monkeypatch.setattr(sys, "stdin", stdin)
    link("-", tmp_path / "again.jsonl", is_jsonl=True)
    assert (tmp_path / "again.jsonl").read_bytes() == output.read_bytes()


def test_parts_have_whole_batches_of_questions():
    lines = [b"a\n", b"\n", b"b\n", b"c\n"]
    jsonl = list(split_lines(lines, "x", 2, is_jsonl=True))
    assert [(part.number, part.first, part.lines) for part in jsonl] == [(0, 1, lines[:3]), (1, 4, lines[3:])]
    text = list(split_lines(lines, "x", 2, is_jsonl=False))
    assert [part.lines for part in text] == [lines[:2], lines[2:]]
    assert list(split_lines([], "x", 2, is_jsonl=False)) == []
    assert len({part.name for part in [*jsonl, *text, *split_lines(lines, "y", 2, is_jsonl=False)]}) == 6


def test_parts_have_names_of_their_own_place():
    # the same lines at another place are other parts: messages name lines
    first, second = split_lines([b"a\n", b"a\n"], "x", 1, is_jsonl=False)
    assert first.name.rpartition("-")[2] != second.name.rpartition("-")[2]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["-"], "E227"),
        (["OUTPUT", "--n-process", 2], "--ray local -p 2"),
        (["INPUT"], "E045"),
    ],
)
def test_what_is_refused(trained_path, questions, words, message, memory, tmp_path):
    source = f"file://{questions}" if "--n-process" in words else questions
    ray = [] if "--n-process" in words else ["--ray", "local"]
    places = {"OUTPUT": tmp_path / "out.jsonl", "INPUT": questions}
    words = [places.get(word, word) for word in words]
    done = run_spacy("elq", "link", trained_path, source, *words, *ray)
    assert done.returncode == 1
    assert message in done.stderr


def test_ray_is_not_installed(trained_path, questions, tmp_path, monkeypatch):
    monkeypatch.setattr("spacy_elq.distributed.cluster.find_spec", lambda name: None)
    done = run_spacy("elq", "link", trained_path, questions, tmp_path / "out.jsonl", "--ray", "local")
    assert done.returncode == 1
    assert "E220] Ray is not installed" in done.stderr
    assert "pip install 'spacy-elq[ray]'" in done.stderr


@pytest.mark.parametrize("address", ["127.0.0.1:1", "nonsense", "ray://127.0.0.1:1", "127.0.0.1:99999"])
def test_no_cluster_is_there(trained_path, questions, tmp_path, address, monkeypatch):
    monkeypatch.setattr("spacy_elq.distributed.cluster.find_spec", lambda name: True)
    done = run_spacy("elq", "link", trained_path, questions, tmp_path / "out.jsonl", "--ray", address)
    assert done.returncode == 1
    assert f"E221] No Ray cluster at {address}" in done.stderr
