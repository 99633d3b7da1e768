import json

import pytest
import spacy
from conftest import run_spacy
from spacy.cli import app
from spacy.tokens import Doc, DocBin, Span
from spacy.training import Example
from typer.testing import CliRunner

from spacy_elq.errors import ELQError
from spacy_elq.evaluation.recall import recall


def save(docs, path):
    DocBin(docs=docs, store_user_data=True).to_disk(path)
    return path


@pytest.fixture(scope="module")
def gold_path(gold_docs, tmp_path_factory):
    return save(gold_docs, tmp_path_factory.mktemp("recall") / "gold.spacy")


@pytest.fixture(scope="module")
def untrained_path(make_pipeline, gold_docs, tmp_path_factory):
    """A pipeline that guesses: what is retrieved first is mostly wrong. It retrieves two, and recall more."""
    path = tmp_path_factory.mktemp("recall") / "untrained"
    make_pipeline("tok2vec", gold_docs, candidates=2).to_disk(path)
    return path


def test_help():
    result = CliRunner().invoke(app, ["elq", "recall", "--help"])
    assert result.exit_code == 0
    assert "among the k that are retrieved for a gold mention" in " ".join(result.output.split())


def test_command_prints_a_table_and_writes_json(trained_path, gold_path, tmp_path):
    target = tmp_path / "recall.json"
    done = run_spacy("elq", "recall", trained_path, gold_path, "-k", 1, "-k", 10, "--output", target)
    assert done.returncode == 0, done.stderr
    output = " ".join(done.stdout.split())
    assert "of 22 mentions" in output
    assert "recall@1 1.0000 recall@10 1.0000" in output
    assert json.loads(target.read_text(encoding="utf8")) == {
        "mentions": 22,
        "unknown": 0,
        "misfits": 0,
        "in_index": 22,
        "recall": {"1": 1.0, "10": 1.0},
    }


def test_recall_grows_with_k_up_to_one(untrained_path, gold_path):
    result = recall(str(untrained_path), gold_path, ks=[10, 1, 2, 3, 5, 8])
    assert list(result["recall"]) == ["1", "2", "3", "5", "8", "10"]
    values = list(result["recall"].values())
    assert values == sorted(values)
    assert values[0] < 0.5 < values[-2] <= 1.0
    assert values[-1] == 1.0


def test_recall_at_1_is_how_often_the_linker_is_right_on_gold_mentions(untrained_path, gold_path, gold_docs):
    nlp = spacy.load(untrained_path)
    examples = [Example(nlp.make_doc(doc.text), doc) for doc in gold_docs]
    links = nlp.get_pipe("elq_linker").link_gold(examples)
    gold = [span.kb_id_ for doc in gold_docs for span in doc.spans["gold_links"]]
    right = sum(link[2] == id_ for link, id_ in zip((x for doc in links for x in doc), gold, strict=True))
    # more candidates are searched than asked for in each row: the first must stay the first
    result = recall(str(untrained_path), gold_path, ks=[1, 7])
    assert result["recall"]["1"] == pytest.approx(right / len(gold))


def test_unknown_entities_and_misfits_are_counted_apart(trained_path, tmp_path):
    vocab = spacy.blank("en").vocab
    known = Doc(vocab, words=["how", "big", "is", "new", "york", "city", "or", "paris"])
    known.spans["gold_links"] = [
        Span(known, 3, 6, label="X", kb_id="E5"),
        Span(known, 7, 8, label="X", kb_id="Q404"),
    ]
    # the pipeline has one token, "newyork"
    split = Doc(vocab, words=["new", "york"], spaces=[False, False])
    split.spans["gold_links"] = [Span(split, 0, 1, label="X", kb_id="E5")]
    result = recall(str(trained_path), save([known, split], tmp_path / "gold.spacy"), ks=[1])
    assert result == {"mentions": 3, "unknown": 1, "misfits": 1, "in_index": 1, "recall": {"1": 1.0}}


def test_questions_without_gold_do_not_count(trained_path, tmp_path):
    nlp = spacy.blank("en")
    doc = nlp("how big is new york city")
    doc.spans["gold_links"] = [Span(doc, 3, 6, label="X", kb_id="E5")]
    data = save([nlp("how do i boil an egg"), doc, nlp("")], tmp_path / "gold.spacy")
    result = recall(str(trained_path), data, ks=[1])
    assert (result["mentions"], result["in_index"], result["recall"]) == (1, 1, {"1": 1.0})


def test_gold_that_the_encoder_does_not_see_is_not_found(trained_path, tmp_path):
    doc = spacy.blank("en")("is   paris old")
    doc.spans["gold_links"] = [
        Span(doc, 1, 2, label="X", kb_id="E1"),
        Span(doc, 2, 3, label="X", kb_id="E1"),
    ]
    result = recall(str(trained_path), save([doc], tmp_path / "gold.spacy"), ks=[10])
    assert (result["misfits"], result["in_index"], result["recall"]) == (0, 2, {"10": 0.5})


def test_missing_data(trained_path, tmp_path):
    with pytest.raises(ELQError, match=r"E022.*no\.spacy\. Make it with: .*spacy elq convert"):
        recall(str(trained_path), tmp_path / "no.spacy", ks=[1])


def test_data_that_is_no_spacy_file(trained_path, questions_path):
    with pytest.raises(ELQError, match=r"not a \.spacy file"):
        recall(str(trained_path), questions_path, ks=[1])


def test_data_without_gold(trained_path, tmp_path):
    data = save([spacy.blank("en")("is paris old")], tmp_path / "bare.spacy")
    with pytest.raises(ELQError, match=r"E041.*bare\.spacy"):
        recall(str(trained_path), data, ks=[1])


def test_pipeline_without_linker(gold_path, tmp_path):
    nlp = spacy.blank("en")
    nlp.add_pipe("sentencizer")
    nlp.to_disk(tmp_path / "other")
    with pytest.raises(ELQError, match=r"E009.*other.*sentencizer"):
        recall(str(tmp_path / "other"), gold_path, ks=[1])


def test_missing_pipeline(gold_path, tmp_path):
    result = CliRunner().invoke(app, ["elq", "recall", str(tmp_path / "nothing"), str(gold_path)])
    assert result.exit_code == 1
    assert "E022" in result.output
