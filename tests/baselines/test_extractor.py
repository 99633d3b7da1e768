import numpy as np
import pytest
import spacy
from conftest import change, train
from spacy.training import Example
from strategies import numeric_gradient

from spacy_elq.errors import ELQError

QUESTION = "is mercury a hot planet"


def examples_of(nlp, docs):
    return [Example(nlp.make_doc(doc.text), doc) for doc in docs]


def suggestions(nlp, text):
    """RETURNS: From the token ranges that are suggested to their scores."""
    doc = nlp(text)
    group = doc.spans["mentions"]
    scores = group.attrs["scores"].tolist()
    return {(span.start, span.end): score for span, score in zip(group, scores, strict=True)}


@pytest.fixture
def make_extractor(gold_docs):
    """Makes a pipeline with the extractor alone, over tokens."""

    def make(**settings):
        nlp = spacy.blank("en")
        nlp.add_pipe("elq_span_extractor", config=settings)
        nlp.initialize(lambda: examples_of(nlp, gold_docs))
        return nlp

    return make


def test_overfits_questions_to_exact_boundaries(make_extractor, gold_docs):
    # three mentions have three starts and three ends, which make six spans
    nlp = make_extractor(top_k=6)
    train(nlp, gold_docs, steps=40, learn_rate=0.01)
    for gold in gold_docs:
        found = suggestions(nlp, gold.text)
        wanted = {(ent.start, ent.end) for ent in gold.ents}
        assert wanted <= set(found)
        if len(wanted) == 1:
            assert {max(found, key=found.get)} == wanted
    scores = nlp.evaluate(examples_of(nlp, gold_docs))
    assert scores["elq_spans_r"] == 1.0
    assert 0.1 < scores["elq_spans_p"] < 0.5


def test_suggestions_are_the_best_of_all_spans(make_extractor):
    nlp = make_extractor(top_k=1000)
    found = suggestions(nlp, QUESTION)
    assert len(found) == 15
    # a softmax of starts and one of ends: with the reversed pairs, the products would sum to one
    assert 0 < sum(found.values()) < 1
    ranked = sorted(found, key=found.get, reverse=True)
    change(nlp.get_pipe("elq_span_extractor"), top_k=3)
    assert set(suggestions(nlp, QUESTION)) == set(ranked[:3])
    between = (found[ranked[0]] + found[ranked[1]]) / 2
    change(nlp.get_pipe("elq_span_extractor"), threshold=between)
    assert list(suggestions(nlp, QUESTION)) == ranked[:1]


def test_label_and_span_group(make_extractor):
    doc = make_extractor(label="X", spans_key="all")(QUESTION)
    assert {span.label_ for span in doc.spans["all"]} == {"X"}
    assert "mentions" not in doc.spans


def test_longest_mention(make_extractor):
    nlp = make_extractor(top_k=1000, max_length=2)
    assert {end - start for start, end in suggestions(nlp, QUESTION)} == {1, 2}


def test_docs_without_tokens(make_extractor):
    nlp = make_extractor()
    docs = list(nlp.pipe(["", "is mercury hot", ""]))
    assert [len(doc.spans["mentions"]) for doc in docs] == [0, 5, 0]
    assert suggestions(nlp, "") == {}
    assert nlp.update(examples_of(nlp, [nlp.make_doc("")])) == {"elq_span_extractor": 0.0}


def test_gradient_of_the_loss(make_extractor, gold_docs):
    nlp = make_extractor()
    extractor = nlp.get_pipe("elq_span_extractor")
    examples = examples_of(nlp, gold_docs[14:19])
    rows, logits = extractor.model.predict([example.predicted for example in examples])
    logits = logits.astype("float64")
    _, gradient = extractor.get_loss(examples, (rows, logits))
    expected = numeric_gradient(lambda X: extractor.get_loss(examples, (rows, X))[0], logits)
    np.testing.assert_allclose(gradient, expected, atol=1e-6)


@pytest.mark.parametrize("through", ["disk", "bytes"])
def test_round_trip_by_predictions(make_extractor, gold_docs, tmp_path, through):
    nlp = make_extractor(top_k=3)
    train(nlp, gold_docs, steps=3, learn_rate=0.01)
    if through == "disk":
        nlp.to_disk(tmp_path / "pipeline")
        other = spacy.load(tmp_path / "pipeline")
    else:
        other = make_extractor(top_k=3).from_bytes(nlp.to_bytes())
    for gold in gold_docs:
        assert suggestions(nlp, gold.text) == suggestions(other, gold.text)


@pytest.mark.parametrize(
    "settings", [{"top_k": 0}, {"threshold": 1.1}, {"max_length": 0}, {"spans_key": ""}], ids=str
)
def test_bad_settings_are_named(settings):
    with pytest.raises(ELQError, match=f"E002.*{next(iter(settings))}"):
        spacy.blank("en").add_pipe("elq_span_extractor", config=settings)


def test_no_labels_to_add(make_extractor):
    with pytest.raises(ELQError, match="E008"):
        make_extractor().get_pipe("elq_span_extractor").add_label("X")
