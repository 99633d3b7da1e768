import json

import pytest
import spacy
from conftest import run_spacy
from spacy.cli import app
from spacy.tokens import DocBin
from typer.testing import CliRunner

from spacy_elq.corpora import Report, questions_to_docs, read_questions
from spacy_elq.errors import ELQError
from spacy_elq.evaluation.metrics import evaluate
from spacy_elq.pipeline.settings import update_settings

METRICS = ("weak", "strong", "mentions", "links")


@pytest.fixture
def questions(tmp_path):
    """Makes a .spacy file of marked questions."""

    def make(name, *lines):
        (tmp_path / "marked.txt").write_text("\n".join(lines) + "\n", encoding="utf8")
        marked = read_questions(tmp_path / "marked.txt", format="marked")
        docs = list(questions_to_docs(marked, spacy.blank("en"), Report()))
        DocBin(docs=docs, store_user_data=True).to_disk(tmp_path / name)
        return tmp_path / name

    return make


def prf(metrics, name):
    return tuple(metrics[name][key] for key in "prf")


def test_help():
    result = CliRunner().invoke(app, ["elq", "evaluate", "--help"])
    assert result.exit_code == 0
    assert "weak and strong match, mentions only, links only" in " ".join(result.output.split())


def test_command_writes_metrics_and_linked_docs(trained_path, gold_docs, questions, tmp_path):
    data = tmp_path / "test.spacy"
    DocBin(docs=gold_docs, store_user_data=True).to_disk(data)
    train = questions("train.spacy", "is [paris](E1) old", "what eats a [jaguar](E9)")
    target = tmp_path / "metrics" / "result.json"
    done = run_spacy("elq", "evaluate", trained_path, data, target, "--train", train)
    assert done.returncode == 0, done.stderr
    assert "weak F1 1.0000 on 20 questions" in " ".join(done.stdout.split())

    metrics = json.loads(target.read_text(encoding="utf8"))
    assert metrics["questions"] == 20
    assert metrics["threshold"] == 0.2
    assert metrics["questions_per_second"] > 0
    kinds = {kind: group["questions"] for kind, group in metrics["kinds"].items()}
    assert kinds == {"plain": 10, "nickname": 3, "typo": 2, "several": 3, "none": 2}
    # E1 or E9: two plain questions, one nickname, one typo and all three with several entities
    assert (metrics["seen"]["questions"], metrics["unseen"]["questions"]) == (7, 11)
    for group in (metrics, metrics["seen"], metrics["unseen"], metrics["kinds"]["typo"]):
        for name in METRICS:
            assert prf(group, name) == (1.0, 1.0, 1.0)

    linked = list(DocBin().from_disk(target.with_suffix(".linked.spacy")).get_docs(spacy.blank("en").vocab))
    for doc, gold in zip(linked, gold_docs, strict=True):
        assert doc.text == gold.text
        assert [(e.text, e.kb_id_) for e in doc.ents] == [(e.text, e.kb_id_) for e in gold.ents]
        assert all(ent._.elq_score >= 0.2 and ent._.elq_title for ent in doc.ents)
        # what the transformer said is large and of no use here
        assert not any("trf_data" in key for key in doc.user_data)


def test_metrics_by_hand(trained_path, questions, tmp_path):
    """The pipeline links these as it learned them; gold differs in three of four."""
    data = questions(
        "test.spacy",
        "how big is [new york city](E5)",  # right
        "hotels in the city of [light](E1)",  # found at "city of light": weak only
        "is [mercury](E4) a hot planet",  # found as E3: the mention only
        "[is atlanta](E2) in georgia",  # found elsewhere, at "georgia"
    )
    metrics = evaluate(str(trained_path), data, tmp_path / "out.json")
    assert prf(metrics, "weak") == pytest.approx((2 / 4, 2 / 4, 2 / 4))
    assert prf(metrics, "strong") == pytest.approx((1 / 4, 1 / 4, 1 / 4))
    assert prf(metrics, "mentions") == pytest.approx((3 / 4, 3 / 4, 3 / 4))


def test_links_are_judged_on_gold_mentions(trained_path, questions, tmp_path):
    """At a threshold that nothing reaches there are no links, but gold mentions are still linked."""
    nlp = spacy.load(trained_path)
    update_settings(nlp, "elq_linker", {"decoder.threshold": 0.99999})
    nlp.to_disk(tmp_path / "strict")
    data = questions("test.spacy", "how big is [new york city](E5)", "is [mercury](E4) a hot planet")
    metrics = evaluate(str(tmp_path / "strict"), data, tmp_path / "out.json")
    assert metrics["threshold"] == pytest.approx(0.99999)
    assert prf(metrics, "weak") == (0.0, 0.0, 0.0)
    assert prf(metrics, "links") == pytest.approx((0.5, 0.5, 0.5))


def test_seen_and_unseen_by_hand(trained_path, questions, tmp_path):
    train = questions("train.spacy", "is [paris](E1) old", "how do i boil an egg")
    data = questions(
        "test.spacy",
        "weather in [pariss](E1)",  # seen
        "is [paris](E1) older than [new york city](E5)",  # one of two seen: seen
        "how big is [new york city](E9)",  # unseen, and linked to another entity
        "what time is it",  # neither
    )
    metrics = evaluate(str(trained_path), data, tmp_path / "out.json", train=train)
    assert metrics["questions"] == 4
    assert metrics["seen"]["questions"] == 2
    assert prf(metrics["seen"], "weak") == (1.0, 1.0, 1.0)
    assert metrics["unseen"]["questions"] == 1
    assert prf(metrics["unseen"], "weak") == (0.0, 0.0, 0.0)


def test_without_train_and_kinds_there_are_no_such_groups(trained_path, questions, tmp_path):
    data = questions("test.spacy", "how big is [new york city](E5)")
    metrics = evaluate(str(trained_path), data, tmp_path / "out.json")
    assert "seen" not in metrics
    assert "unseen" not in metrics
    assert metrics["kinds"] == {}


def test_gold_without_span_group_is_read_from_the_entities(trained_path, questions, tmp_path):
    data = questions("test.spacy", "how big is [new york city](E5)")
    docs = list(DocBin().from_disk(data).get_docs(spacy.blank("en").vocab))
    for doc in docs:
        del doc.spans["gold_links"]
    DocBin(docs=docs).to_disk(data)
    assert prf(evaluate(str(trained_path), data, tmp_path / "out.json"), "weak") == (1.0, 1.0, 1.0)


def test_metrics_beside_the_gold_leave_it_alone(trained_path, questions, tmp_path):
    data = questions("test.spacy", "how big is [new york city](E9)")
    before = data.read_bytes()
    evaluate(str(trained_path), data, tmp_path / "test.json")
    assert data.read_bytes() == before
    assert (tmp_path / "test.linked.spacy").is_file()


def test_missing_data(trained_path, tmp_path):
    with pytest.raises(ELQError, match=r"E022.*no\.spacy"):
        evaluate(str(trained_path), tmp_path / "no.spacy", tmp_path / "out.json")


def test_missing_training_data(trained_path, questions, tmp_path):
    data = questions("test.spacy", "how big is [new york city](E5)")
    with pytest.raises(ELQError, match=r"E022.*no\.spacy"):
        evaluate(str(trained_path), data, tmp_path / "out.json", train=tmp_path / "no.spacy")
    assert not (tmp_path / "out.json").exists()


def test_data_without_gold(trained_path, questions, tmp_path):
    data = questions("bare.spacy", "how big is new york city")
    with pytest.raises(ELQError, match=r"E041.*bare\.spacy"):
        evaluate(str(trained_path), data, tmp_path / "out.json")


def test_pipeline_without_linker(questions, tmp_path):
    spacy.blank("en").to_disk(tmp_path / "other")
    data = questions("test.spacy", "how big is [new york city](E5)")
    args = ["elq", "evaluate", str(tmp_path / "other"), str(data), str(tmp_path / "out.json")]
    result = CliRunner().invoke(app, args)
    assert result.exit_code == 1
    assert "E009" in result.output


def test_errors_are_told_apart(trained_path, questions, tmp_path):
    data = questions(
        "test.spacy",
        "what is the capital of france near [paris](E2)",  # the title of one contains that of the other
        "how big is [new york city](E9)",
        "is atlanta in georgia",
        "where do jaguar [cats](E9) sleep",
        "how do i [boil](E404) an egg",
        "is [mercury](E3) a hot planet",
    )
    metrics = evaluate(str(trained_path), data, tmp_path / "metrics.json")
    errors = metrics["errors"]
    assert errors["specific"] == [
        {
            "text": "what is the capital of france near paris",
            "mention": "paris",
            "gold": "Paris, Texas",
            "found": "Paris",
        }
    ]
    assert [(e["mention"], e["gold"], e["found"]) for e in errors["wrong"]] == [
        ("new york city", "Jaguar", "New York City")
    ]
    assert [(e["mention"], e["gold"]) for e in errors["missed"]] == [("cats", "Jaguar"), ("boil", "E404")]
    assert [(e["mention"], e["found"]) for e in errors["extra"]] == [
        ("georgia", "Georgia (U.S. state)"),
        ("jaguar", "Jaguar"),
    ]
    assert metrics["entities"] == 10


def test_candidates_recall_counts_the_entities_that_the_index_has(trained_path, questions, tmp_path):
    data = questions("test.spacy", "is [paris](E1) old", "is [paris](E404) old")
    metrics = evaluate(str(trained_path), data, tmp_path / "metrics.json")
    assert metrics["candidates_recall"] == 1.0
    nlp = spacy.load(trained_path)
    update_settings(nlp, "elq_linker", {"decoder.candidates": 1})
    nlp.to_disk(tmp_path / "one")
    text = "what is the capital of france near [paris]({})"
    data = questions("test.spacy", text.format("E1"), text.format("E9"))
    assert evaluate(str(tmp_path / "one"), data, tmp_path / "metrics.json")["candidates_recall"] == 0.5


def test_questions_about_described_entities_are_a_group_of_their_own(trained_path, questions, tmp_path):
    data = questions("test.spacy", "is [paris](E1) old", "what time is it")
    assert "described" not in evaluate(str(trained_path), data, tmp_path / "metrics.json")
    data = questions("test.spacy", "is [paris](E1) old", "is [paris](E404) old")
    assert evaluate(str(trained_path), data, tmp_path / "metrics.json")["described"]["questions"] == 1


def test_another_threshold_can_be_tried(trained_path, questions, tmp_path):
    data = questions("test.spacy", "what is the capital of france near [paris](E1)")
    metrics = evaluate(str(trained_path), data, tmp_path / "metrics.json", threshold=1.0)
    assert (metrics["found"], metrics["threshold"]) == (0, 1.0)
    with pytest.raises(ELQError, match="expected a number from 0 to 1"):
        evaluate(str(trained_path), data, tmp_path / "metrics.json", threshold=2.0)
