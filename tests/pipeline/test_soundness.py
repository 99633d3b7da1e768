"""What the linker refuses, and why: "none of these", NIL, names, boundaries, explanations."""

import json

import numpy as np
import pytest
import spacy
from conftest import change, run_spacy
from spacy.tokens import Doc
from spacy.training import Example

from spacy_elq import Entity, EntityIndex
from spacy_elq.catalogue import entity_to_dict
from spacy_elq.core.decode import NIL_POSITION
from spacy_elq.errors import ELQError
from spacy_elq.index import build_index, encode_catalogue
from spacy_elq.pipeline.explain import most_likely

QUESTION = "what is the capital of france"


class Tower:
    """A model with known scores: every token is a mention of its own, and "none of these" has a score."""

    def __init__(self, model, none):
        self.model, self.none = model, none

    def __getattr__(self, name):
        return getattr(self.model, name)

    def predict(self, docs):
        rows, logits = self.model.predict(docs)
        fixed = np.tile(np.asarray([3.0, 3.0, -3.0, self.none], dtype="f"), (len(logits), 1))
        return rows, fixed


@pytest.fixture
def linker(make_pipeline):
    """Every token is a mention, and nothing in the catalogue comes near "none of these"."""
    made = make_pipeline("tok2vec").get_pipe("elq_linker")
    made.model = Tower(made.model, none=1000.0)
    return made


@pytest.fixture
def doc(linker):
    return Doc(linker.vocab, words=QUESTION.split())


def test_what_is_far_from_all_candidates_gets_no_link(linker, doc):
    assert linker.predict([doc]) == [[]]
    linker.model.none = -1000.0
    assert len(linker.predict([doc])[0]) == len(doc)


def test_without_the_score_one_of_the_candidates_is_right(linker, doc):
    model = linker.model
    linker.model = type(
        "Paper", (), {"attrs": {}, "predict": lambda self, docs: _without_none(model.predict(docs))}
    )()
    assert len(linker.predict([doc])[0]) == len(doc)
    assert {explanation.none for explanation in linker.explain(doc)} == {None}


def _without_none(output):
    return output[0], output[1][:, :3]


def test_nil_is_written_where_none_of_these_is_the_best(linker, doc):
    linker.nil = True
    linker.set_annotations([doc], linker.predict([doc]))
    assert {ent.kb_id_ for ent in doc.ents} == {"NIL"}
    assert len(doc.ents) == len(doc)
    assert {ent.label_ for ent in doc.ents} == {"ENTITY"}
    assert all(ent._.elq_score > 0.9 for ent in doc.ents)
    # the candidates can still be read
    assert all(len(ent._.elq_alternatives) == 10 for ent in doc.ents)
    assert all(max(a["score"] for a in ent._.elq_alternatives) < 0.1 for ent in doc.ents)


def test_nil_changes_nothing_where_a_candidate_is_better(linker, doc):
    linker.model.none = -1000.0
    expected = linker.predict([doc])
    linker.nil = True
    found = linker.predict([doc])
    assert [[link.entity_id for link in links] for links in found] == [
        [link.entity_id for link in links] for links in expected
    ]
    assert found[0][0].alternatives[0].score == pytest.approx(expected[0][0].alternatives[0].score)
    assert len(found[0][0].alternatives) == len(expected[0][0].alternatives)


def test_the_score_is_learned(make_pipeline, gold_docs):
    """Gold is taken out in training, so "none of these" comes to lie between gold and the others."""
    nlp = make_pipeline("tok2vec", gold_docs)
    linker, optimizer = nlp.get_pipe("elq_linker"), nlp.create_optimizer()
    linker.absent = 0.5
    optimizer.learn_rate = 0.01
    for _ in range(60):
        nlp.update([Example(nlp.make_doc(doc.text), doc) for doc in gold_docs], sgd=optimizer)
    doc = gold_docs[1]
    (gold,) = doc.ents
    (present,) = [e for e in linker.explain(nlp(doc.text)) if e.start == gold.start and e.end == gold.end]
    assert present.none < 0.1
    with linker.within(ids=[entity.id for entity in linker.index if entity.id != gold.kb_id_]):
        (absent,) = [e for e in linker.explain(nlp(doc.text)) if e.start == gold.start and e.end == gold.end]
    assert absent.none > 0.5


def test_unknown_gold_teaches_none_of_these_nothing_without_the_score(make_pipeline, gold_docs):
    linker = make_pipeline("tok2vec", gold_docs).get_pipe("elq_linker")
    rows, logits = linker.model.predict(gold_docs)
    examples = [Example(doc, doc) for doc in gold_docs]
    _, (_, d_logits) = linker.get_loss(examples, (rows, logits))
    assert d_logits.shape == logits.shape
    assert d_logits[:, 3].any()
    _, (_, d_paper) = linker.get_loss(examples, (rows, logits[:, :3]))
    np.testing.assert_allclose(d_paper, d_logits[:, :3])


def test_none_of_these_counts_less_for_names(make_pipeline):
    linker = make_pipeline("tok2vec").get_pipe("elq_linker")
    logits, row_spans = np.full((2, 4), 3.0), np.asarray([[0, 1], [0, 2]])
    assert linker._score_none(logits, row_spans, np.asarray([False, True])).tolist() == [3.0, -1.0]
    assert linker._score_none(logits[:, :3], row_spans, False) is None


# ---------------------------------------------------------------------- names and boundaries


@pytest.fixture(scope="module")
def shop(entity_encoder, tmp_path_factory):
    folder = tmp_path_factory.mktemp("shop")
    names = ["Orbita", "Orbita Air", "Fizz!", "Apple", "Click & Collect", "The Hotel"]
    entities = [Entity(f"P{i}", name, description=f"thing {i}") for i, name in enumerate(names)]
    lines = "".join(json.dumps(entity_to_dict(entity)) + "\n" for entity in entities)
    (folder / "entities.jsonl").write_text(lines, encoding="utf8")
    encode_catalogue(folder / "entities.jsonl", folder / "vectors", entity_encoder)
    build_index(folder / "vectors", folder / "index")
    return EntityIndex.open(folder / "index")


@pytest.fixture
def clerk(make_pipeline, shop):
    """A linker for which only names are mentions."""
    nlp = make_pipeline("tok2vec", name_weight=1000.0, mention_name_weight=4.0)
    linker = nlp.get_pipe("elq_linker")
    change(linker, phrase_weight=30.0, text_weight=30.0)
    linker.set_index(shop)
    linker.model = Tower(linker.model, none=100.0)
    model = linker.model.model
    linker.model.predict = lambda docs: _unlikely(model.predict(docs))
    return nlp


def _unlikely(output):
    return output[0], np.tile(np.asarray([-10.0, -10.0, 0.0, 100.0], dtype="f"), (len(output[1]), 1))


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("orbita", ["orbita"]),
        ("orbita air", ["orbita air"]),
        ("price of orbita air", ["orbita air"]),
        ("price of orbita", []),  # one word, in a context that says no
        ("apple!", ["apple"]),
        ("fizz!", ["fizz!"]),
        ("click & collect opening hours", ["click & collect"]),
        ("(orbita air)", ["orbita air"]),
        ("orbita air \U0001f642", ["orbita air"]),
        ("orbita air's price", ["orbita air"]),
    ],
)
def test_exact_names_are_found(clerk, text, found):
    assert [ent.text for ent in clerk(text).ents] == found


def test_any_boundary_without_the_rule(clerk):
    clerk.get_pipe("elq_linker").word_edges = False
    clerk.get_pipe("elq_linker").phrase_weight = 0.0
    clerk.get_pipe("elq_linker").mention_name_weight = 40.0
    spans = {(e.start, e.end) for e in clerk.get_pipe("elq_linker").explain(clerk.make_doc("orbita air !"))}
    assert (0, 3) in spans


# ---------------------------------------------------------------------- explanations


def test_explained_parts_add_up(trained_path):
    nlp = spacy.load(trained_path)
    linker = nlp.get_pipe("elq_linker")
    linker.name_weight, linker.popularity_weight, linker.mention_name_weight = 2.0, 0.5, 0.5
    doc = nlp("is paris older than new york city")
    explained = linker.explain(doc)
    assert [(e.start, e.end) for e in explained if e.is_link] == [(ent.start, ent.end) for ent in doc.ents]
    for e in explained:
        assert e.mention_probability == pytest.approx(1 / (1 + np.exp(-(e.mention + e.name))))
        shares = np.asarray([part.probability for part in e.candidates])
        assert shares.sum() + (e.none or 0.0) == pytest.approx(1.0)
        assert e.joint == pytest.approx(e.mention_probability * shares[0])
        odds = np.asarray([part.similarity for part in e.candidates]) / linker.temperature
        np.testing.assert_allclose(np.log(shares / shares[0]), odds - odds[0], atol=1e-3)
    by_place = {(e.start, e.end): e for e in explained}
    for ent in doc.ents:
        own = by_place[ent.start, ent.end]
        assert own.score == pytest.approx(ent._.elq_score)
        assert [part.id for part in own.candidates] == [a["id"] for a in ent._.elq_alternatives]
        assert own.candidates[0].name == 2.0


def test_explanations_are_plain_data(trained_path):
    nlp = spacy.load(trained_path)
    (record, *_) = [e.to_dict() for e in nlp.get_pipe("elq_linker").explain(nlp("is paris old"))]
    assert {"parts", "candidates", "score", "threshold", "is_link", "none"} <= set(record)
    assert set(record["parts"]) == {"mention", "name"}
    assert "similarity" in record["candidates"][0]
    assert json.loads(json.dumps(record)) == record


def test_nothing_to_explain(trained_path):
    nlp = spacy.load(trained_path)
    assert nlp.get_pipe("elq_linker").explain(nlp("")) == []


def test_only_likely_mentions_are_explained():
    assert most_likely(np.asarray([-9.0, -8.0, 2.0, -1.0])).tolist() == [2, 3]
    assert most_likely(np.asarray([-9.0, -8.0])).tolist() == [1]
    assert len(most_likely(np.arange(100.0))) == 12
    assert most_likely(np.zeros(0)).tolist() == []


def test_candidates_of_a_span(trained_path):
    nlp = spacy.load(trained_path)
    doc = nlp("is paris older than new york city")
    linker = nlp.get_pipe("elq_linker")
    assert linker.candidates(doc[1:2]) == linker.link_spans([doc], [[doc[1:2]]])[0][0].alternatives
    assert linker.candidates(doc[1:2])[0].id == "E1"


@pytest.mark.parametrize("none", [2.0, 30.0, 1000.0])
@pytest.mark.parametrize("entity_threshold", [0.0, 0.5])
def test_candidates_have_the_probabilities_that_are_explained(clerk, none, entity_threshold):
    linker = clerk.get_pipe("elq_linker")
    change(linker, name_weight=3.0, entity_threshold=entity_threshold)
    clerk_says = linker.model.model.predict
    linker.model.predict = lambda docs: (clerk_says(docs)[0], clerk_says(docs)[1] * [1, 1, 1, none / 100])
    doc = clerk("is orbita good, or narnia")  # no name inside of another
    for explained in linker.explain(doc):
        own = linker.candidates(doc[explained.start : explained.end])
        shares = {candidate.id: candidate.probability for candidate in explained.candidates}
        assert shares
        assert {x.id: x.score for x in own if x.id in shares} == pytest.approx(shares, abs=1e-6)


@pytest.mark.parametrize("value", ["shaq", ["shaq"], None])
def test_what_is_no_span_or_doc_is_said(trained_path, value):
    linker = spacy.load(trained_path).get_pipe("elq_linker")
    with pytest.raises(ELQError, match=r"E200.*`candidates`.*Span"):
        linker.candidates(value)
    with pytest.raises(ELQError, match=r"E200.*`explain`.*Doc"):
        linker.explain(value)


def test_command_explains(trained_path):
    done = run_spacy("elq", "explain", trained_path, "is paris older than new york city", "-n", "2")
    output = " ".join(done.stdout.split())
    assert done.returncode == 0, done.stderr
    assert "Linked: score" in output
    assert "by the model" in output
    assert "similarity" in output
    empty = run_spacy("elq", "explain", trained_path, "  ")
    assert "nothing in this text" in " ".join(empty.stdout.split())


def test_other_linkers_cannot_explain(make_tagme, tmp_path):
    make_tagme().to_disk(tmp_path / "tagme")
    done = run_spacy("elq", "explain", tmp_path / "tagme", "paris")
    assert done.returncode == 1
    assert "E190" in done.stdout + done.stderr


def test_parts_of_what_the_catalogue_lacks_get_no_link_either(linker):
    """The whole span is likelier, and its entity is none of the candidates."""
    doc = Doc(linker.vocab, words=["orbita", "mini"])

    def link(index, docs, spans, vectors, log_probs, none):
        whole = spans[:, 1] - spans[:, 0] > 1
        positions = np.where(whole, NIL_POSITION, 3)[:, None]
        return positions, np.where(whole, -0.1, -0.5)[:, None]

    linker._link = link
    arguments = ([doc], np.asarray([[0, 1], [0, 2]]), np.zeros((2, 1)), np.full(2, -0.05), np.zeros(2))
    assert linker._link_best(linker.index, *arguments) == [[]]
    linker.nil = True
    ((nil,),) = linker._link_best(linker.index, *arguments)
    assert (nil.start, nil.end, nil.entity_id) == (0, 2, "NIL")
