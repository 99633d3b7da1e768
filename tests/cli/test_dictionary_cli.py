import pytest
from conftest import run_spacy
from spacy.cli import app
from tagme_world import write_world
from typer.testing import CliRunner

import spacy_elq.cli  # noqa: F401 (adds the commands to spaCy's)
from spacy_elq.baselines.tagme.dictionary import AnchorDictionary


@pytest.fixture
def world(tmp_path):
    """Files that a test may change."""
    return write_world(tmp_path)


def invoke(*args):
    """Run `spacy elq dictionary` in this process; gives the exit code and what it printed, as one line."""
    result = CliRunner().invoke(app, ["elq", "dictionary", *map(str, args)])
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result.exit_code, " ".join(result.output.split())


def test_help_explains_the_input():
    code, output = invoke("--help")
    assert code == 0
    assert "--sentences" in output
    assert "separated by tabs" in output


def test_command_writes_a_dictionary_and_prints_counts(world):
    paths = [str(world / name) for name in ("anchors.tsv", "entities.jsonl", "out")]
    sentences = ["--sentences", str(world / "sentences.jsonl")]
    done = run_spacy("elq", "dictionary", *paths, *sentences, *sentences)
    assert done.returncode == 0, done.stderr
    output = " ".join(done.stdout.split())
    # the seven of the table, mercury planet and mercury element
    assert "out: 9 names of 7 entities" in output
    assert "6 anchors; 18 links in 18 sentences of 8 pages" in output
    assert "not in the catalogue" not in output
    assert "No sentences" not in output
    assert AnchorDictionary.open(world / "out").meta["pages"] == 8


def test_what_is_left_out_is_said(world):
    with (world / "anchors.tsv").open("a", encoding="utf8") as file_:
        file_.write("mars\tQ111\t2\nMars\tQ111\t1\n")
    code, output = invoke(world / "anchors.tsv", world / "entities.jsonl", world / "out")
    assert code == 0
    assert "2 anchors have an entity that is not in the catalogue, such as Q111" in output
    assert "No sentences: every name counts as a link" in output


def test_links_that_lead_out_of_the_catalogue_are_counted(world):
    (world / "more.jsonl").write_text(
        '{"text": "mars", "spans": [{"start": 0, "end": 4, "id": "Q111"}]}\n', encoding="utf8"
    )
    paths = [
        world / "anchors.tsv",
        world / "entities.jsonl",
        world / "out",
        "--sentences",
        world / "more.jsonl",
    ]
    code, output = invoke(*paths)
    assert code == 0
    assert "1 links of the sentences have an entity that is not in the catalogue" in output


def test_an_error_is_its_message_alone(world):
    (world / "anchors.tsv").write_text("sun\tS\tmany\n", encoding="utf8")
    code, output = invoke(world / "anchors.tsv", world / "entities.jsonl", world / "out")
    assert code == 1
    assert "E040" in output
    assert "line 1: the count must be a number above 0: many" in output
    assert not (world / "out" / "meta.json").exists()
