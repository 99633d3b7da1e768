"""The commands take a pipeline with `elq_tagme` as they take one with `elq_linker`."""

import json

import pytest
import spacy
from spacy.cli import app
from typer.testing import CliRunner

import spacy_elq.cli  # noqa: F401 (adds the commands to spaCy's)
from spacy_elq.corpora.convert import convert
from spacy_elq.evaluation import thresholds

QUESTIONS = """\
is [mercury](P) closer to the [sun](S) than [venus](V)
how hot is [mercury](E)
who feeds a [venus flytrap](F)
what is [jupiter](J)
"""


@pytest.fixture
def pipeline(make_tagme, tmp_path):
    make_tagme(threshold=0.1).to_disk(tmp_path / "pipeline")
    return tmp_path / "pipeline"


@pytest.fixture
def gold(tmp_path):
    (tmp_path / "questions.txt").write_text(QUESTIONS, encoding="utf8")
    convert(tmp_path / "questions.txt", tmp_path / "questions.spacy")
    return tmp_path / "questions.spacy"


def invoke(*args, code=0, **kwargs):
    result = CliRunner().invoke(app, ["elq", *map(str, args)], **kwargs)
    assert result.exit_code == code, (result.output, result.exception)
    return " ".join(result.output.split())


def test_evaluate(pipeline, gold, tmp_path):
    invoke("evaluate", pipeline, gold, tmp_path / "metrics.json")
    metrics = json.loads((tmp_path / "metrics.json").read_text(encoding="utf8"))
    # of six gold links four are found, with the planet for the element a wrong one
    assert (metrics["gold"], metrics["found"], metrics["weak"]["p"]) == (6, 5, 0.8)
    # the element is among the candidates, and jupiter in no catalogue
    assert metrics["candidates_recall"] == 1.0
    assert metrics["entities"] == 7
    assert [error["found"] for error in metrics["errors"]["wrong"]] == ["Mercury (planet)"]


def test_threshold_is_chosen_and_saved(pipeline, gold, monkeypatch):
    monkeypatch.setattr(thresholds, "ENOUGH", 1)
    output = invoke("threshold", pipeline, gold, "--no-first")
    assert "weak F1" in output
    linker = spacy.load(pipeline).get_pipe("elq_tagme")
    # mercury alone has 0.25 and is wrong, the flytrap has 0.5, what is related more
    assert 0.25 < linker.threshold < 0.5
    assert linker.first_threshold is None


def test_link(pipeline):
    record = json.loads(invoke("link", pipeline, input="is venus hot\n"))
    link = record["links"][0]
    assert (link["start"], link["end"], link["id"], link["score"]) == (3, 8, "V", 0.25)


def test_recall(pipeline, gold):
    # of the five mentions whose entity is known, mercury has the element in the second place
    output = invoke("recall", pipeline, gold, "--k", 1, "--k", 2)
    assert "recall@1 0.8000" in output
    assert "recall@2 1.0000" in output


def test_bench(pipeline, gold, tmp_path):
    invoke("bench", pipeline, gold, tmp_path / "bench.json", "--batch-sizes", "2", "--repeats", 1)
    run = json.loads((tmp_path / "bench.json").read_text(encoding="utf8"))["runs"][0]
    assert run["seconds"]["search"] > 0


@pytest.mark.parametrize("args", [["bundle"], ["threshold", "--index", "index"]])
def test_what_is_about_an_index_is_refused(pipeline, gold, tmp_path, args):
    target = tmp_path / "bundled" if args[0] == "bundle" else gold
    output = invoke(args[0], pipeline, target, *args[1:], code=1)
    assert "E077" in output
    assert "'elq_tagme' has no setting" in output
    assert not (tmp_path / "bundled").exists()
