import json
import subprocess
import sys

import numpy as np
import pytest
import spacy
from conftest import change, links_of, train
from spacy.tokens import DocBin
from spacy.training import Example
from strategies import numeric_gradient

from spacy_elq.errors import ELQError
from spacy_elq.evaluation import thresholds
from spacy_elq.evaluation.thresholds import choose_thresholds
from spacy_elq.index import EntityIndex
from spacy_elq.pipeline.callbacks import build_freeze_layers

QUESTION = "is atlanta in georgia"


def examples_of(nlp, docs):
    return [Example(nlp.make_doc(doc.text), doc) for doc in docs]


@pytest.fixture(scope="module")
def blink(blink_path):
    """The trained pipeline. Do not change it: load a copy."""
    return spacy.load(blink_path)


@pytest.fixture
def loaded(blink_path):
    return spacy.load(blink_path)


def test_overfits_questions_to_exact_links(blink, single_docs):
    for doc in single_docs:
        assert links_of(blink(doc.text)) == links_of(doc)


def test_batches_and_processes_give_the_same(blink, single_docs):
    texts = [doc.text for doc in single_docs] + [""]
    alone = [links_of(blink(text)) for text in texts]
    assert [links_of(doc) for doc in blink.pipe(texts, batch_size=4)] == alone
    assert [links_of(doc) for doc in blink.pipe(texts, batch_size=4, n_process=2)] == alone


def test_score_is_that_of_the_mention_times_that_of_the_entity(blink):
    doc = blink(QUESTION)
    (ent,) = doc.ents
    group = doc.spans["mentions"]
    place = [(s.start, s.end) for s in group].index((ent.start, ent.end))
    link = blink.get_pipe("elq_blink").link_spans([doc], [[ent]])[0][0]
    assert ent._.elq_score == pytest.approx(link.score * group.attrs["scores"][place], rel=1e-4)
    assert [a["id"] for a in ent._.elq_alternatives] == [a.id for a in link.alternatives]
    assert (ent.kb_id_, ent._.elq_title, ent.label_) == ("E7", "Georgia (U.S. state)", "ENTITY")


def test_given_spans_of_another_shape(blink):
    doc = blink(QUESTION)
    with pytest.raises(ELQError, match="E180"):
        blink.get_pipe("elq_blink").link_spans(doc, list(doc.ents))


def test_threshold_is_chosen(blink_path, single_docs, tmp_path, monkeypatch):
    monkeypatch.setattr(thresholds, "ENOUGH", 1)
    DocBin(docs=single_docs).to_disk(tmp_path / "gold.spacy")
    chosen = choose_thresholds(str(blink_path), tmp_path / "gold.spacy", output=tmp_path / "tuned")
    assert chosen["f"] == 1.0
    tuned = spacy.load(tmp_path / "tuned").get_pipe("elq_blink")
    assert tuned.threshold == pytest.approx(chosen["threshold"])


@pytest.mark.parametrize("settings", [{"max_length": 1}, {"mention_limit": 1}], ids=str)
def test_limits_of_the_decoder_count_for_suggestions(loaded, settings):
    blink = loaded.get_pipe("elq_blink")
    doc = loaded.make_doc("from new york city to georgia")
    doc.spans["mentions"] = [doc[1:4], doc[5:6]]
    doc.spans["mentions"].attrs["scores"] = [0.9, 0.95]
    blink.threshold = 0.001
    assert [(link.start, link.end) for link in blink.predict([doc])[0]] == [(1, 4), (5, 6)]
    change(blink, **settings)
    assert [(link.start, link.end) for link in blink.predict([doc])[0]] == [(5, 6)]


def test_mentions_without_scores_are_certain(loaded):
    loaded.disable_pipe("elq_span_extractor")
    doc = loaded.make_doc(QUESTION)
    doc.spans["mentions"] = [doc[3:4]]
    (ent,) = loaded(doc).ents
    assert (ent.text, ent.kb_id_) == ("georgia", "E7")
    assert ent._.elq_score > 0.9


def test_without_suggestions_it_says_what_to_add(loaded):
    loaded.disable_pipe("elq_span_extractor")
    with pytest.raises(ELQError, match=r"E078.*elq_span_extractor"):
        loaded(QUESTION)
    assert loaded("").ents == ()


def test_without_an_index_it_says_how_to_get_one():
    nlp = spacy.blank("en")
    blink = nlp.add_pipe("elq_blink")
    with pytest.raises(ELQError, match="E001"):
        blink.predict([nlp.make_doc("x")])


@pytest.mark.parametrize("through", ["disk", "bytes"])
def test_round_trip_by_predictions(blink, make_blink, single_docs, tmp_path, through):
    if through == "disk":
        blink.to_disk(tmp_path / "pipeline")
        other = spacy.load(tmp_path / "pipeline")
    else:
        other = make_blink().from_bytes(blink.to_bytes())
    for doc in single_docs:
        (a,), (b,) = blink(doc.text).ents, other(doc.text).ents
        assert (a.kb_id_, a._.elq_alternatives) == (b.kb_id_, b._.elq_alternatives)


def test_a_saved_pipeline_points_to_its_index(blink_path, index):
    record = json.loads((blink_path / "elq_blink" / "index.json").read_text(encoding="utf8"))
    assert record["stamp"] == index.stamp
    assert str(index.path) in record["paths"]


def test_index_of_another_encoder_is_refused(loaded, index, tmp_path):
    class Other(EntityIndex):
        meta = {**index.meta, "encoder": {**index.meta["encoder"], "fingerprint": "another"}}

    with pytest.raises(ELQError, match="E004"):
        loaded.get_pipe("elq_blink").set_index(Other.open(index.path))


@pytest.mark.parametrize(
    "settings", [{}, {"name_weight": 3.0, "popularity_weight": 0.3, "linking_loss": "binary"}], ids=str
)
def test_gradient_of_the_linking_loss(make_blink, single_docs, settings):
    nlp = make_blink(single_docs, **settings)
    blink = nlp.get_pipe("elq_blink")
    # every entity competes, so that no step changes who does
    blink.negatives = lambda v, gold, search: (np.arange(10), np.ones((len(gold), 10), bool), gold)
    docs, spans = single_docs[:2], np.asarray([[7, 8], [11, 14]])
    vectors, gold = np.random.default_rng(0).normal(size=(2, 48)), np.asarray([0, 4])

    def loss(X):
        return blink._linking_loss(blink.index, docs, spans, X, gold, np.zeros((2, 0)))

    _, gradient, _ = loss(vectors)
    expected = numeric_gradient(lambda X: loss(X)[0], vectors)
    np.testing.assert_allclose(gradient, expected, atol=1e-5)


def test_hard_negatives_come_from_the_live_index(make_blink, single_docs):
    nlp = make_blink(single_docs)
    blink = nlp.get_pipe("elq_blink")
    asked, search = [], blink.index.search

    class Watched(EntityIndex):
        def search(self, queries, k, **names):
            asked.append((queries.shape, k))
            return search(queries, k, **names)

    blink.index = Watched.open(blink.index.path)
    train(nlp, single_docs, steps=1, learn_rate=0.001)
    assert asked == [((len(single_docs), 48), 11)]


def test_only_known_entities_are_learnt(make_blink, gold_docs):
    nlp = make_blink(gold_docs)
    without = [doc for doc in gold_docs if not doc.ents]
    assert nlp.get_pipe("elq_blink").update(examples_of(nlp, without)) == {"elq_blink": 0.0}


def test_frozen_layers_of_both_encoders_stay(make_blink, single_docs):
    nlp = make_blink(single_docs)
    build_freeze_layers(["transformer", "elq_blink"], layers=1)(nlp)
    encoders = [nlp.get_pipe("transformer").model, nlp.get_pipe("elq_blink").model.layers[0]]
    before = [{k: v.detach().clone() for k, v in e.transformer.named_parameters()} for e in encoders]
    train(nlp, single_docs, steps=2, learn_rate=0.01)
    for encoder, old in zip(encoders, before, strict=True):
        changed = {k for k, v in encoder.transformer.named_parameters() if not v.equal(old[k])}
        assert not any(name.startswith(("embeddings.", "encoder.layer.0.")) for name in changed)
        assert any(name.startswith("encoder.layer.1.") for name in changed)


def test_evaluate_in_a_process_of_its_own(blink_path, single_docs, tmp_path):
    DocBin(docs=single_docs).to_disk(tmp_path / "gold.spacy")
    args = ["evaluate", blink_path, tmp_path / "gold.spacy", tmp_path / "metrics.json"]
    command = [sys.executable, "-m", "spacy", "elq", *map(str, args)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    metrics = json.loads((tmp_path / "metrics.json").read_text(encoding="utf8"))
    assert metrics["weak"]["f"] == metrics["links"]["f"] == 1.0
