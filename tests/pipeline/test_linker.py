"""The component as spaCy users know components: config, training, prediction, serialization."""

import json
import math
import pickle
import shutil
import warnings

import numpy as np
import pytest
import spacy
from conftest import ENTITIES, change, links_of, train
from hypothesis import given
from hypothesis import strategies as st
from spacy.tokens import Doc, DocBin, Span
from spacy.training import Example
from strategies import numeric_gradient, scored_spans

from spacy_elq.corpora.gold import COMPLETE
from spacy_elq.errors import ELQError
from spacy_elq.index import EntityIndex, build_index, encode_catalogue
from spacy_elq.pipeline import stream
from spacy_elq.pipeline.base import bundle_index
from spacy_elq.pipeline.gold import collect_gold

LINKED = "is paris older than new york city"


def examples_of(nlp, docs):
    return [Example(nlp.make_doc(doc.text), doc) for doc in docs]


def alternatives_of(doc):
    return [(ent._.elq_score, ent._.elq_title, list(ent._.elq_alternatives)) for ent in doc.ents]


@pytest.fixture
def loaded(trained_path):
    """A copy of the trained transformer pipeline that a test may change."""
    return spacy.load(trained_path)


@pytest.fixture(scope="module")
def shared_linker(make_pipeline):
    """A linker whose parts may be replaced; nothing of it counts but its settings."""
    return make_pipeline("tok2vec").get_pipe("elq_linker")


POPULARITY = [3.0, 0.0, 50.0, 7.0, 900.0, 2e6, 11.0, 40.0, 0.5, 6.0]


@pytest.fixture(scope="module")
def popular_index(tmp_path_factory, entity_encoder):
    """The same ten entities, with a popularity; Georgia, the country, has by far the highest."""
    folder = tmp_path_factory.mktemp("popular")
    lines = [json.dumps({**entity, "popularity": p}) for entity, p in zip(ENTITIES, POPULARITY, strict=True)]
    (folder / "entities.jsonl").write_text("\n".join(lines), encoding="utf8")
    encode_catalogue(folder / "entities.jsonl", folder / "vectors", entity_encoder)
    return build_index(folder / "vectors", folder / "index")


# ---------------------------------------------------------------------- training


def test_overfits_twenty_questions_to_exact_links(trained, gold_docs):
    for doc in gold_docs:
        assert links_of(trained(doc.text)) == links_of(doc)


@pytest.mark.parametrize("kind", ["transformer", "tok2vec"])
def test_the_encoder_itself_is_trained(make_pipeline, gold_docs, kind):
    nlp = make_pipeline(kind, gold_docs)

    def embeddings():
        if kind == "transformer":
            model = nlp.get_pipe("transformer").model.transformer
            return model.embeddings.word_embeddings.weight.detach().numpy().copy()
        model = nlp.get_pipe("elq_linker").model
        return next(node for node in model.walk() if node.has_param("E")).get_param("E").copy()

    before = embeddings()
    # `nlp.update` steps the transformer before the gradient of the same batch is there
    train(nlp, gold_docs, steps=2, learn_rate=0.01)
    assert not np.array_equal(before, embeddings())


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"linking_loss": "binary"},
        {"mention_weight": 7.0, "name_weight": 3.0, "mention_name_weight": 2.0, "popularity_weight": 0.3},
        {"unmarked": "unnamed"},
        {"model": {"learn_names": True}, "mention_name_weight": 2.0},
        {"model": {"learn_case": True}},
    ],
    ids=["paper", "binary", "weights", "unnamed", "names", "case"],
)
def test_gradient_of_the_whole_loss(make_pipeline, gold_docs, popular_index, settings):
    nlp = make_pipeline("tok2vec", gold_docs, **settings)
    linker = nlp.get_pipe("elq_linker")
    linker.set_index(popular_index)
    examples = examples_of(nlp, [doc.copy() for doc in gold_docs[:4]])
    examples[1].reference.user_data[COMPLETE] = False
    rows, logits = linker.model.predict([example.predicted for example in examples])
    rows = rows.with_vectors(rows.vectors.astype("float64"))
    # every entity competes, so that no step changes who does
    linker.negatives = lambda v, gold, search: (np.arange(10), np.ones((len(gold), 10), bool), gold)
    logits = logits.astype("float64")
    _, (d_vectors, d_logits) = linker.get_loss(examples, (rows, logits))

    def loss(vectors, X):
        return linker.get_loss(examples, (rows.with_vectors(vectors), X))[0]

    np.testing.assert_allclose(d_logits, numeric_gradient(lambda X: loss(rows.vectors, X), logits), atol=1e-6)
    few = slice(0, 3)
    expected = numeric_gradient(
        lambda X: loss(np.concatenate([X, rows.vectors[3:]]), logits), rows.vectors[few]
    )
    np.testing.assert_allclose(d_vectors[few], expected, atol=1e-5)


def test_how_much_a_name_counts_is_learned(make_pipeline, gold_docs):
    nlp = make_pipeline("tok2vec", gold_docs, model={"learn_names": True}, mention_name_weight=1.0)
    train(nlp, gold_docs, steps=30, learn_rate=0.01)
    linker = nlp.get_pipe("elq_linker")
    found = [e for doc in gold_docs for e in linker.explain(nlp(doc.text)) if e.name]
    weights = np.asarray([e.name / min(e.end - e.start, 4) for e in found])
    assert 0.0 < weights.min() < weights.max() <= 2.0
    gold = {ent.text for doc in gold_docs for ent in doc.ents}
    assert np.median(weights[[e.text in gold for e in found]]) > 1.0


def test_hard_negatives_come_from_the_live_index(make_pipeline, gold_docs):
    nlp = make_pipeline("tok2vec", gold_docs)
    linker = nlp.get_pipe("elq_linker")
    asked = []
    search = linker.index.search

    class Watched(EntityIndex):
        def search(self, queries, k, **names):
            asked.append((queries.shape, k))
            return search(queries, k, **names)

    linker.index = Watched.open(linker.index.path)
    for _ in range(2):
        nlp.update(examples_of(nlp, gold_docs))
    n_gold = sum(len(doc.ents) for doc in gold_docs)
    assert asked == [((n_gold, linker.index.width), 11)] * 2


def test_weights_change_the_loss_as_they_say(make_pipeline, gold_docs):
    def loss(**settings):
        linker = make_pipeline("tok2vec", gold_docs).get_pipe("elq_linker")
        change(linker, **settings)
        examples = examples_of(spacy.blank("en"), gold_docs)
        return linker.get_loss(examples, linker.model.predict([eg.predicted for eg in examples]))[0]

    linking = loss(mention_weight=0.0)
    mentions = loss() - linking
    assert loss(mention_weight=5.0) == pytest.approx(linking + 5 * mentions)
    # gold bears its name in most questions, so that a weight on names makes it likelier
    assert loss(mention_weight=0.0, name_weight=2.0) < linking


def test_a_name_weight_brings_in_the_bearers_of_a_name(make_pipeline):
    linker = make_pipeline("tok2vec").get_pipe("elq_linker")
    nlp = spacy.blank("en")
    doc = nlp.make_doc("is the city of light near Georgia")
    spans = [doc[2:5], doc[6:7]]
    linker.name_weight = 1000.0
    light, georgia = linker.link_spans([doc], [spans])[0]
    assert (light.entity_id, light.score) == ("E1", pytest.approx(1.0))
    assert {alternative.id for alternative in georgia.alternatives[:2]} == {"E6", "E7"}


def test_a_mention_name_weight_makes_names_likelier_mentions(make_pipeline):
    linker = make_pipeline("tok2vec", spans_key="mentions", threshold=1e-9).get_pipe("elq_linker")
    doc = spacy.blank("en").make_doc("the City of Light at night")

    def best_scores():
        return {(link.start, link.end): link.score for link in linker.predict([doc])[0]}

    before = best_scores()
    linker.mention_name_weight = 0.5
    after = best_scores()
    explained = {(e.start, e.end): e for e in linker.explain(doc)}
    named = {(0, 4): 4, (1, 4): 3}  # an article in front does not matter
    assert {span for span in after if after[span] > before[span]} == set(named)
    assert {span for span, explanation in explained.items() if explanation.name} == set(named)
    for span, tokens in named.items():
        assert explained[span].name == 0.5 * tokens
        odds = explained[span].mention + explained[span].name
        assert explained[span].mention_probability == pytest.approx(1 / (1 + np.exp(-odds)))


def test_a_mention_name_weight_counts_in_training(make_pipeline):
    linker = make_pipeline("tok2vec").get_pipe("elq_linker")
    doc = spacy.blank("en").make_doc("the City of Light at night")
    example = Example(doc, doc)
    output = linker.model.predict([doc])
    without = linker.get_loss([example], output)[0]
    linker.mention_name_weight = 50.0
    assert linker.get_loss([example], output)[0] > without + 1  # nothing is gold here


def probabilities(links):
    return {a.id: a.score for a in links[0][0].alternatives}


def test_a_popularity_weight_changes_the_odds_of_candidates(make_pipeline, popular_index):
    linker = make_pipeline("tok2vec").get_pipe("elq_linker")
    linker.set_index(popular_index)
    doc = spacy.blank("en").make_doc("is georgia big")
    before = probabilities(linker.link_spans([doc], [[doc[1:2]]]))
    linker.popularity_weight = 0.5
    after = probabilities(linker.link_spans([doc], [[doc[1:2]]]))
    popularity = {entity["id"]: np.log1p(p) for entity, p in zip(ENTITIES, POPULARITY, strict=True)}
    assert set(after) == set(before) == set(popularity)
    for id_ in popularity:
        gained = np.log(after[id_] / after["E2"]) - np.log(before[id_] / before["E2"])
        assert gained == pytest.approx(0.5 * popularity[id_], abs=1e-3)


def test_a_temperature_brings_the_odds_of_candidates_closer(make_pipeline):
    linker = make_pipeline("tok2vec").get_pipe("elq_linker")
    doc = spacy.blank("en").make_doc("is georgia big")
    before = probabilities(linker.link_spans([doc], [[doc[1:2]]]))
    linker.temperature = 2.0
    after = probabilities(linker.link_spans([doc], [[doc[1:2]]]))
    assert len(set(before.values())) > 1
    for id_ in before:
        odds = [np.log(probs[id_] / probs["E2"]) for probs in (before, after)]
        assert odds[1] == pytest.approx(odds[0] / 2, abs=1e-6)


def test_a_high_popularity_weight_decides(make_pipeline, popular_index):
    nlp = make_pipeline("tok2vec", spans_key="mentions", popularity_weight=1000.0)
    nlp.get_pipe("elq_linker").set_index(popular_index)
    doc = nlp("paris or mercury")
    assert {span.kb_id_ for span in doc.spans["mentions"]} == {"E6"}


def test_a_popularity_weight_is_in_the_similarities_of_the_loss(make_pipeline, popular_index, gold_docs):
    linker = make_pipeline("tok2vec", gold_docs, mention_weight=0.0).get_pipe("elq_linker")
    linker.set_index(popular_index)
    linker.popularity_weight = 0.5
    doc = gold_docs[1]
    (gold,) = doc.ents
    rows, logits = linker.model.predict([doc])
    similarities = rows.vectors[gold.start : gold.end].mean(axis=0) @ np.asarray(popular_index.vectors).T
    similarities += 0.5 * np.log1p(POPULARITY)
    none = logits[gold.start : gold.end, 3].mean()
    expected = np.logaddexp.reduce([*similarities, none]) - similarities[4]
    assert linker.get_loss([Example(doc, doc)], (rows, logits))[0] == pytest.approx(expected, rel=1e-5)


def test_popular_entities_are_the_hard_negatives(make_pipeline, popular_index, gold_docs):
    linker = make_pipeline("tok2vec", gold_docs, popularity_weight=1000.0).get_pipe("elq_linker")
    linker.set_index(popular_index)
    found = []
    choose = linker.negatives

    def watched(vectors, gold, search):
        found.extend(search(vectors, 1)[0][:, 0].tolist())
        return choose(vectors, gold, search)

    linker.negatives = watched
    doc = gold_docs[15]
    linker.get_loss([Example(doc, doc)], linker.model.predict([doc]))
    assert found == [5, 5]


PARTLY = "is the jaguar older than new york city hall"


def partly_marked(nlp, *texts, marked=True):
    """Examples of docs of which not every mention is marked, "new york city" at most."""
    examples = []
    for text in texts:
        doc = nlp.make_doc(text)
        doc.ents = [Span(doc, 5, 8, label="X", kb_id="E5")] if marked else []
        doc.user_data[COMPLETE] = False
        examples.append(Example(nlp.make_doc(text), doc))
    return examples


def known_spans(linker, examples):
    """The spans of which gold says whether they are mentions, and the others."""
    docs = [example.predicted for example in examples]
    tokens = [(i, token.i) for i, doc in enumerate(docs) for token in doc]
    spans, places = [], []
    for first, (owner, start) in enumerate(tokens):
        for end in range(start + 1, len(docs[owner]) + 1):
            spans.append(docs[owner][start:end])
            places.append([first, first + end - start])
    gold = collect_gold(examples, linker.index.positions)
    known = linker._is_known(linker.index, docs, np.asarray(places), gold)
    pairs = list(zip(spans, known, strict=True))
    return [span for span, is_known in pairs if is_known], [span for span, is_known in pairs if not is_known]


def test_text_without_a_mark_is_unknown_where_not_every_mention_is_marked(make_pipeline):
    nlp = make_pipeline("tok2vec")
    known, unknown = known_spans(nlp.get_pipe("elq_linker"), partly_marked(nlp, PARTLY))
    assert known
    assert all(span.start < 8 and span.end > 5 for span in known)
    assert unknown
    assert all(span.end <= 5 or span.start >= 8 for span in unknown)


def test_unnamed_text_can_count_as_no_mention(make_pipeline):
    nlp = make_pipeline("tok2vec", unmarked="unnamed")
    known, unknown = known_spans(nlp.get_pipe("elq_linker"), partly_marked(nlp, PARTLY))
    assert {span.text for span in unknown} == {"the jaguar", "jaguar"}
    assert {"older", "hall", "new york city"} <= {span.text for span in known}


def test_small_letters_in_a_text_with_capitals_are_no_name(make_pipeline):
    nlp = make_pipeline("tok2vec", unmarked="unnamed")
    text = "Is the jaguar older than new york city or Paris"
    _, unknown = known_spans(nlp.get_pipe("elq_linker"), partly_marked(nlp, text))
    assert {span.text for span in unknown} == {"Paris"}


def test_marked_mentions_in_small_letters_can_be_left_open(make_pipeline):
    nlp = make_pipeline("tok2vec", unmarked="proper")
    linker = nlp.get_pipe("elq_linker")
    texts = ["Is the jaguar older than new york city or Paris", "is the Jaguar older than New York City"]
    known, unknown = known_spans(linker, partly_marked(nlp, *texts))
    assert {span.text for span in unknown} == {"Paris", "new york city", "the Jaguar", "Jaguar"}
    assert {"new york", "jaguar", "New York City"} <= {span.text for span in known}
    _, unknown = known_spans(linker, partly_marked(nlp, PARTLY))
    assert {span.text for span in unknown} == {"the jaguar", "jaguar"}


def test_capitals_count_as_gold_has_them(make_pipeline):
    nlp = make_pipeline("tok2vec", unmarked="proper")
    text = "Is the jaguar older than new york city or Paris"
    (written,) = partly_marked(nlp, text)
    lowered = Example(nlp.make_doc(text.lower()), written.reference)
    for example in (written, lowered):
        _, unknown = known_spans(nlp.get_pipe("elq_linker"), [example])
        assert {span.text.lower() for span in unknown} == {"paris", "new york city"}
    # other texts than gold has are taken as they are
    other = Example(nlp.make_doc(text.replace("jaguar", "Jaguar ")), written.reference)
    assert {"the Jaguar", "Jaguar"} <= {
        span.text for span in known_spans(nlp.get_pipe("elq_linker"), [other])[1]
    }


def test_all_unmarked_text_can_count_as_no_mention(make_pipeline):
    nlp = make_pipeline("tok2vec", unmarked="negative")
    assert known_spans(nlp.get_pipe("elq_linker"), partly_marked(nlp, PARTLY))[1] == []


@pytest.mark.parametrize("unmarked", ["ignore", "unnamed", "proper", "negative"])
def test_everything_is_known_where_every_mention_is_marked(make_pipeline, gold_docs, unmarked):
    nlp = make_pipeline("tok2vec", unmarked=unmarked)
    assert known_spans(nlp.get_pipe("elq_linker"), examples_of(nlp, gold_docs[:3]))[1] == []


def test_each_doc_of_a_batch_says_for_itself_whether_it_is_complete(make_pipeline, gold_docs):
    nlp = make_pipeline("tok2vec")
    empty = Example(nlp.make_doc(""), nlp.make_doc(""))
    complete = examples_of(nlp, gold_docs[:1])
    partly = partly_marked(nlp, PARTLY)
    known, unknown = known_spans(nlp.get_pipe("elq_linker"), [*complete, empty, *partly, *complete])
    assert {span.doc.text for span in unknown} == {PARTLY}
    n_tokens = len(gold_docs[0])
    assert sum(span.doc.text == gold_docs[0].text for span in known) == n_tokens * (n_tokens + 1)


def test_unknown_spans_are_not_in_the_mention_loss(make_pipeline):
    nlp = make_pipeline("tok2vec")
    linker = nlp.get_pipe("elq_linker")
    examples = partly_marked(nlp, "the jaguar", marked=False)
    rows, logits = linker.model.predict([examples[0].predicted])

    def loss(unmarked):
        linker.unmarked = unmarked
        value, (_, d_logits) = linker.get_loss(examples, (rows, logits))
        return value, d_logits.any()

    scores = [logits[s, 0] + logits[e - 1, 1] + logits[s:e, 2].sum() for s, e in [(0, 1), (0, 2), (1, 2)]]
    assert loss("ignore") == (0.0, False)
    assert loss("unnamed") == (pytest.approx(np.logaddexp(0, scores[0]), rel=1e-5), True)
    assert loss("negative") == (pytest.approx(np.logaddexp(0, scores).mean(), rel=1e-5), True)


def test_gold_of_unknown_entities_trains_mention_detection_only(make_pipeline):
    nlp = make_pipeline("tok2vec")
    linker = nlp.get_pipe("elq_linker")
    doc = nlp.make_doc("where is atlantis now")
    doc.ents = [Span(doc, 2, 3, label="GPE", kb_id="E999")]
    example = Example(nlp.make_doc(doc.text), doc)
    output = linker.model.predict([example.predicted])
    loss, (d_vectors, d_logits) = linker.get_loss([example], output)
    assert loss > 0
    assert not d_vectors.any()
    assert d_logits[2, 0] < 0 < d_logits[0, 0]  # more of a start here, less there


def test_gold_that_does_not_fit_is_left_out(make_pipeline):
    nlp = make_pipeline("tok2vec")
    linker = nlp.get_pipe("elq_linker")
    reference = Doc(nlp.vocab, words=["in", "par", "is"], spaces=[True, False, False])
    reference.ents = [Span(reference, 1, 2, label="GPE", kb_id="E1")]
    example = Example(nlp.make_doc("in paris"), reference)
    _, (d_vectors, d_logits) = linker.get_loss([example], linker.model.predict([example.predicted]))
    assert not d_vectors.any()
    assert (d_logits >= 0).all()


def test_initialize_says_what_gold_cannot_be_used(make_pipeline):
    nlp = make_pipeline("tok2vec")
    doc = Doc(nlp.vocab, words=["in", "par", "is", "atlantis"], spaces=[True, False, True, False])
    doc.spans["gold_links"] = [
        Span(doc, 1, 2, label="X", kb_id="E1"),
        Span(doc, 3, 4, label="X", kb_id="E999"),
        Span(doc, 1, 3, label="X", kb_id="E1"),
    ]
    with pytest.warns(UserWarning, match="spacy-elq") as caught:
        nlp.initialize(lambda: [Example(nlp.make_doc(doc.text), doc)])
    messages = [str(warning.message) for warning in caught]
    assert any("W001" in message and "1 of 3" in message for message in messages)
    assert any("W002" in message and "1 of 3" in message and "E999" in message for message in messages)


def test_no_warning_where_all_gold_can_be_used(make_pipeline, gold_docs):
    with warnings.catch_warnings():
        warnings.filterwarnings("error", message=".*spacy-elq")
        make_pipeline("tok2vec", gold_docs)


@pytest.mark.parametrize("kind", ["transformer", "tok2vec"])
@pytest.mark.parametrize("texts", [[], [""], ["", "  "], ["no gold here"], ["", "no gold", ""]])
def test_batches_with_nothing_to_learn_are_fine(make_pipeline, kind, texts):
    nlp = make_pipeline(kind)
    losses = {}
    docs = [nlp.make_doc(text) for text in texts]
    nlp.update(
        [Example(nlp.make_doc(doc.text), doc) for doc in docs], losses=losses, sgd=nlp.create_optimizer()
    )
    assert np.isfinite(losses.get("elq_linker", 0.0))


def test_a_frozen_transformer_does_not_change_and_the_linker_learns(make_pipeline, gold_docs):
    nlp = make_pipeline("transformer", gold_docs)
    before = nlp.get_pipe("transformer").to_bytes()
    optimizer = nlp.create_optimizer()
    optimizer.learn_rate = 0.01
    history = []
    for _ in range(20):
        losses = {}
        nlp.update(
            examples_of(nlp, gold_docs),
            sgd=optimizer,
            losses=losses,
            exclude=["transformer"],
            annotates=["transformer"],
        )
        history.append(losses["elq_linker"])
    assert history[-1] < history[0]
    assert nlp.get_pipe("transformer").to_bytes() == before


def test_rehearse_and_add_label_are_refused(make_pipeline):
    nlp = make_pipeline("tok2vec")
    doc = nlp.make_doc("paris")
    with pytest.raises(ELQError, match="E007"):
        nlp.rehearse([Example(doc, doc)])
    with pytest.raises(ELQError, match="E008"):
        nlp.get_pipe("elq_linker").add_label("GPE")


# ---------------------------------------------------------------------- prediction


def test_no_index_is_an_error_that_names_setting_and_command():
    nlp = spacy.blank("en")
    nlp.add_pipe("elq_linker")
    for action in (nlp.initialize, lambda: nlp("paris")):
        with pytest.raises(ELQError) as err:
            action()
        assert "index_loader" in str(err.value)
        assert "python -m spacy elq index" in str(err.value)


def test_predict_decides_and_set_annotations_writes(trained):
    linker = trained.get_pipe("elq_linker")
    with trained.select_pipes(disable=["elq_linker"]):
        doc = trained(LINKED)
    links = linker.predict([doc])
    assert not doc.ents
    assert not doc.user_data.get(("._.", "elq_score", 3, 8))
    linker.set_annotations([doc], links)
    assert links_of(doc) == [(3, 8, "E1"), (20, 33, "E5")]


def test_what_can_be_read_on_an_entity(trained):
    ent = trained(LINKED).ents[0]
    assert ent.kb_id_ == "E1"
    assert ent.label_ == "GPE"  # the entity's own
    assert ent._.elq_title == "Paris"
    assert 0.2 <= ent._.elq_score <= 1.0
    assert len(ent._.elq_alternatives) == 10
    first = ent._.elq_alternatives[0]
    assert first == {"id": "E1", "title": "Paris", "label": "GPE", "score": ent._.elq_score}
    assert ent._.elq_catalogue == str(trained.get_pipe("elq_linker").index.path)
    scores = [alternative["score"] for alternative in ent._.elq_alternatives]
    assert scores == sorted(scores, reverse=True)
    assert sum(scores) <= 1.0 + 1e-6  # a softmax times the probability of the mention


def test_an_entity_without_label_gets_the_setting(loaded):
    loaded.get_pipe("elq_linker").label = "THING"
    assert [ent.label_ for ent in loaded(LINKED).ents] == ["GPE", "THING"]


def test_one_search_for_a_batch(loaded, gold_docs):
    linker = loaded.get_pipe("elq_linker")
    calls = []

    class Watched(EntityIndex):
        def search(self, queries, k, **names):
            calls.append(len(queries))
            return super().search(queries, k, **names)

    linker.index = Watched.open(linker.index.path)
    docs = list(loaded.pipe(doc.text for doc in gold_docs))
    assert len(calls) == 1
    assert sum(len(doc.ents) for doc in docs) <= calls[0]


@given(st.data())
def test_mentions_that_cannot_become_links_are_not_looked_up(shared_linker, data):
    """The links are those that come of looking up all, whatever the candidates of the others are."""
    linker, docs = shared_linker, [Doc(shared_linker.vocab, words=["w"] * 6) for _ in range(2)]
    spans, log_probs = data.draw(scored_spans(n_tokens=6))
    numbers = st.lists(st.integers(0, 4), min_size=len(spans), max_size=len(spans))
    spans = spans + 6 * (np.asarray(data.draw(numbers), dtype="int64").reshape(-1, 1) % 2)
    order = np.lexsort((spans[:, 1], spans[:, 0]))
    spans, log_probs, losses = spans[order], log_probs[order], np.asarray(data.draw(numbers))
    asked = []

    def link(index, docs, spans, vectors, log_probs, none):
        asked.extend(vectors.ravel().tolist())
        joint = np.full((len(spans), 10), -100.0)
        joint[:, 0] = log_probs - losses[vectors.ravel()]
        return np.repeat(np.arange(10)[None], len(spans), axis=0), joint

    linker._link = link
    first = math.exp(data.draw(st.sampled_from([-4, -2])))
    change(linker, threshold=math.exp(-2), first_threshold=first, spans_key=None)
    arguments = (linker.index, docs, spans, np.arange(len(spans)).reshape(-1, 1), log_probs)
    found = linker._link_best(*arguments)
    assert len(set(asked)) == len(asked)
    linker.spans_key = "all"
    everything = linker._link_best(*arguments)
    assert sum(map(len, everything)) == len(spans)
    assert found == [[own for own in links if own.accepted] for links in everything]


def test_what_overlaps_with_a_better_link_is_not_looked_up(loaded):
    linker = loaded.get_pipe("elq_linker")
    links, asked = links_of(loaded(LINKED)), []
    linker.threshold = 1e-9
    link = linker._link
    linker._link = lambda *args: asked.append(len(args[2])) or link(*args)
    linker.spans_key = "mentions"
    loaded(LINKED)
    everything = asked.pop()
    linker.spans_key = None
    assert set(links) <= set(links_of(loaded(LINKED)))
    assert 0 < sum(asked) < everything


def test_a_higher_threshold_takes_links_away(loaded, gold_docs):
    linker = loaded.get_pipe("elq_linker")
    counts = []
    for threshold in (0.001, 0.5, 1.0):
        linker.threshold = threshold
        docs = list(loaded.pipe(doc.text for doc in gold_docs))
        assert all(ent._.elq_score >= threshold for doc in docs for ent in doc.ents)
        counts.append(sum(len(doc.ents) for doc in docs))
    assert counts == sorted(counts, reverse=True)
    assert counts[-1] < counts[0]


def test_the_best_link_of_a_doc_can_have_a_lower_threshold(loaded):
    linker = loaded.get_pipe("elq_linker")
    both = list(loaded(LINKED).ents)
    low, high = sorted(ent._.elq_score for ent in both)
    assert low < high
    best = [ent.text for ent in both if ent._.elq_score == high]
    for first, expected in ((high + 1e-6, []), (high - 1e-6, best), (low / 2, best)):
        change(linker, threshold=1.0, first_threshold=first)
        assert [ent.text for ent in loaded(LINKED).ents] == expected
    change(linker, threshold=(low + high) / 2, first_threshold=low / 2)
    docs = list(loaded.pipe([LINKED, "is it old", LINKED], batch_size=3))
    assert [[ent.text for ent in doc.ents] for doc in docs[::2]] == [best, best]
    change(linker, threshold=low - 1e-6)
    assert len(loaded(LINKED).ents) == 2


def test_mentions_are_at_most_max_length_rows(loaded):
    assert [ent.text for ent in loaded("how big is new york city").ents] == ["new york city"]
    loaded.get_pipe("elq_linker").max_length = 2
    loaded.get_pipe("elq_linker").threshold = 0.001
    assert all(len(ent) <= 2 for ent in loaded("how big is new york city").ents)


def test_number_of_candidates(loaded):
    loaded.get_pipe("elq_linker").candidates = 3
    assert len(loaded(LINKED).ents[0]._.elq_alternatives) == 3


def test_every_scored_mention_in_a_span_group(loaded):
    linker = loaded.get_pipe("elq_linker")
    expected = links_of(loaded(LINKED))
    linker.spans_key = "mentions"
    doc = loaded(LINKED)
    group = doc.spans["mentions"]
    assert links_of(doc) == expected
    assert {(ent.start, ent.end) for ent in doc.ents} <= {(span.start, span.end) for span in group}
    assert len(group.attrs["scores"]) == len(group)
    for span, score in zip(group, group.attrs["scores"], strict=True):
        assert span.kb_id_
        assert span._.elq_score == pytest.approx(float(score), abs=1e-6)


def test_where_no_mention_reaches_the_threshold_the_best_are_shown_but_not_linked(loaded):
    linker = loaded.get_pipe("elq_linker")
    change(linker, threshold=1.0, spans_key="mentions")
    doc = loaded(LINKED)
    assert not doc.ents
    # all of the spans that could be one: there are fewer than fifty
    assert len(doc.spans["mentions"]) > 10
    linker.spans_key = None
    assert "mentions" not in loaded(LINKED).spans


@pytest.mark.parametrize(
    ("existing_ents", "expected"),
    [
        ("overwrite", [("is", ""), ("paris", "E1"), ("new york city", "E5")]),
        ("keep", [("is", ""), ("paris", "E1"), ("york", "")]),
        ("replace", [("paris", "E1"), ("new york city", "E5")]),
    ],
)
def test_entities_of_earlier_components(loaded, existing_ents, expected):
    loaded.get_pipe("elq_linker").existing_ents = existing_ents
    ruler = loaded.add_pipe("entity_ruler", first=True)
    ruler.add_patterns([{"label": "A", "pattern": "is"}, {"label": "B", "pattern": "york"}])
    assert [(ent.text, ent.kb_id_) for ent in loaded(LINKED).ents] == expected


@pytest.mark.parametrize("spans_key", [None, "mentions"])
def test_an_entity_that_is_kept_does_not_get_the_score_of_a_link(loaded, spans_key):
    change(loaded.get_pipe("elq_linker"), existing_ents="keep", spans_key=spans_key)
    ruler = loaded.add_pipe("entity_ruler", first=True)
    ruler.add_patterns([{"label": "A", "pattern": "paris"}])
    paris, city = loaded(LINKED).ents
    assert (paris.label_, paris.kb_id_) == ("A", "")
    assert (paris._.elq_score, paris._.elq_title, paris._.elq_alternatives) == (None, None, None)
    assert (city.kb_id_, city._.elq_title) == ("E5", "New York City")
    # so that commands do not take it for a link
    (result,) = stream.link(loaded, [{"text": LINKED}])
    assert [found["id"] for found in result["links"]] == ["E5"]


def test_a_mention_that_is_only_shown_does_not_change_an_entity_that_stays(loaded):
    change(loaded.get_pipe("elq_linker"), threshold=1.0, spans_key="mentions")
    ruler = loaded.add_pipe("entity_ruler", first=True)
    ruler.add_patterns([{"label": "A", "pattern": "paris"}])
    doc = loaded(LINKED)
    assert [(ent.label_, ent._.elq_score) for ent in doc.ents] == [("A", None)]
    assert "paris" in [span.text for span in doc.spans["mentions"]]


def test_two_linkers_in_one_pipeline(loaded, trained_path):
    """The second links what the first has left, and leaves the rest alone."""
    loaded.get_pipe("elq_linker").mention_limit = 1
    loaded.add_pipe("elq_linker", name="second", source=spacy.load(trained_path))
    change(loaded.get_pipe("second"), existing_ents="keep", temperature=50.0, threshold=0.0)
    first = loaded.get_pipe("elq_linker")
    with loaded.select_pipes(disable="second"):
        (alone,) = loaded(LINKED).ents
    found = {ent.text: ent for ent in loaded(LINKED).ents}
    assert len(found) > 1
    assert found[alone.text]._.elq_score == pytest.approx(alone._.elq_score)
    assert first.temperature == 1.0


def test_links_on_given_spans(trained):
    linker = trained.get_pipe("elq_linker")
    docs = list(trained.pipe([LINKED, "", "did shaq play in the nba"]))
    spans = [[docs[0][4:7], docs[0][1:2], docs[0][1:3]], [], [docs[2][1:2]]]
    links = linker.link_spans(docs, spans)
    assert [[(link.start, link.end) for link in doc_links] for doc_links in links] == [
        [(4, 7), (1, 2), (1, 3)],
        [],
        [(1, 2)],
    ]
    assert [links[0][0].entity_id, links[0][1].entity_id, links[2][0].entity_id] == ["E5", "E1", "E8"]
    for link in links[0]:
        assert sum(alternative.score for alternative in link.alternatives) == pytest.approx(1.0)


def test_given_spans_of_another_shape(trained):
    doc = trained(LINKED)
    with pytest.raises(ELQError, match="E180"):
        trained.get_pipe("elq_linker").link_spans(doc, [doc[1:2]])


def test_given_spans_that_the_encoder_did_not_see_get_no_link(loaded):
    doc = loaded(" ".join(["mars"] * 24))
    links = loaded.get_pipe("elq_linker").link_spans([doc], [[doc[0:1], doc[22:23]]])
    assert [(link.start, link.end) for link in links[0]] == [(0, 1)]


@pytest.mark.parametrize(
    "text",
    [
        "",
        " ",
        "\n\t  ",
        "🦊🦊 paris 🦊",
        "Pari\u0301s e\u0301te\u0301",
        "париж と paris في",
        "\u200b",
        "a" * 500,
        "[CLS] [SEP] paris",
    ],
)
def test_odd_texts_give_sensible_links_or_none(trained, text):
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        doc = trained(text)
    assert doc.text == text
    for ent in doc.ents:
        assert text[ent.start_char : ent.end_char] == ent.text
        assert ent.text.strip() == ent.text != ""


def test_a_text_of_ten_thousand_tokens(trained):
    doc = trained(" ".join(["is paris older than new york city ?"] * 1250))
    assert len(doc) == 10_000
    found = {ent.text for ent in doc.ents if ent.kb_id_ == "E1"}
    assert "paris" in found
    tenths = {ent.start // 1000 for ent in doc.ents}
    assert tenths == set(range(10))  # all over the text, not only in its first window


def test_a_disabled_transformer_is_an_error_not_garbage(loaded):
    with loaded.select_pipes(disable=["transformer"]), pytest.raises(ELQError, match="E011"):
        loaded(LINKED)
    assert loaded(LINKED).ents


# ---------------------------------------------------------------------- batches and processes


def test_a_batch_gives_what_one_by_one_gives(trained, gold_docs):
    texts = [doc.text for doc in gold_docs] + [""]
    together = list(trained.pipe(texts, batch_size=len(texts)))
    for doc, text in zip(together, texts, strict=True):
        alone = trained(text)
        assert links_of(doc) == links_of(alone)
        for (a, _, _), (b, _, _) in zip(alternatives_of(doc), alternatives_of(alone), strict=True):
            assert a == pytest.approx(b, abs=1e-4)


def test_two_processes_give_what_one_gives(trained, gold_docs):
    texts = [doc.text for doc in gold_docs] * 2
    one = list(trained.pipe(texts, batch_size=10))
    two = list(trained.pipe(texts, batch_size=10, n_process=2))
    assert [links_of(doc) for doc in one] == [links_of(doc) for doc in two]
    for a, b in zip(one, two, strict=True):
        for (score, *rest), (score2, *rest2) in zip(alternatives_of(a), alternatives_of(b), strict=True):
            assert score == pytest.approx(score2, abs=1e-4)
            assert rest[0] == rest2[0]


def test_scores_survive_serialization_of_the_doc(trained):
    doc = trained(LINKED)
    for key in [k for k in doc.user_data if "trf_data" in k]:
        del doc.user_data[key]
    expected = alternatives_of(doc)
    assert expected[0][0]
    assert alternatives_of(Doc(trained.vocab).from_bytes(doc.to_bytes())) == expected
    stored = DocBin(store_user_data=True, docs=[doc]).to_bytes()
    (copy,) = DocBin().from_bytes(stored).get_docs(trained.vocab)
    assert links_of(copy) == links_of(doc)
    assert alternatives_of(copy) == expected


# ---------------------------------------------------------------------- scoring


def test_evaluate_gives_all_four_metrics(trained, gold_docs):
    scores = trained.evaluate(examples_of(trained, gold_docs))
    for metric in ("weak", "strong", "mentions", "links"):
        assert scores[f"elq_{metric}_f"] == 1.0
    assert set(scores["spans_sc_per_type"]) == {"weak", "strong", "mentions", "links"}


def test_links_only_is_given_the_gold_mentions(loaded, gold_docs):
    loaded.get_pipe("elq_linker").threshold = 1.0  # finds nothing by itself
    scores = loaded.evaluate(examples_of(loaded, gold_docs))
    assert scores["elq_weak_f"] == 0.0
    assert scores["elq_links_f"] == 1.0


def test_without_scorer_no_scores(make_pipeline, gold_docs):
    nlp = make_pipeline("tok2vec", gold_docs)
    nlp.get_pipe("elq_linker").scorer = None
    assert "elq_weak_f" not in nlp.evaluate(examples_of(nlp, gold_docs))


# ---------------------------------------------------------------------- on disk


def test_disk_round_trip(trained, gold_docs, tmp_path):
    trained.to_disk(tmp_path / "pipeline")
    copy = spacy.load(tmp_path / "pipeline")
    assert copy.get_pipe("elq_linker").settings == trained.get_pipe("elq_linker").settings
    for doc in gold_docs:
        before, after = trained(doc.text), copy(doc.text)
        assert links_of(before) == links_of(after) == links_of(doc)
        assert alternatives_of(before) == alternatives_of(after)


def test_bytes_round_trip(trained, gold_docs):
    config = trained.config
    copy = spacy.util.load_model_from_config(config, auto_fill=False).from_bytes(trained.to_bytes())
    for doc in gold_docs:
        assert alternatives_of(trained(doc.text)) == alternatives_of(copy(doc.text))


def test_the_index_is_not_in_the_pipeline_but_its_place_is(trained, tmp_path, index):
    trained.to_disk(tmp_path / "pipeline")
    files = {path.name for path in (tmp_path / "pipeline" / "elq_linker").iterdir()}
    assert files == {"index.json", "model"}
    assert str(index.path) in (tmp_path / "pipeline" / "elq_linker" / "index.json").read_text()


@pytest.mark.parametrize("excluded", ["model", "index"])
def test_exclude(trained, tmp_path, excluded):
    linker = trained.get_pipe("elq_linker")
    linker.to_disk(tmp_path / "component", exclude=["vocab", excluded])
    name = {"index": "index.json"}.get(excluded, excluded)
    assert not (tmp_path / "component" / name).exists()
    linker.to_disk(tmp_path / "whole", exclude=["vocab"])
    fresh = spacy.util.load_model_from_config(trained.config, auto_fill=False).get_pipe("elq_linker")
    fresh.from_disk(tmp_path / "whole", exclude=["vocab", excluded])
    assert (fresh.index is None) == (excluded == "index")
    fresh.from_bytes(linker.to_bytes(exclude=["vocab"]), exclude=["vocab", excluded])


def move_together(trained_path, index, tmp_path):
    """A pipeline and its index in one folder, as a project has them."""
    nlp = spacy.load(trained_path)
    shutil.copytree(index.path, tmp_path / "project" / "index")
    nlp.get_pipe("elq_linker").set_index(EntityIndex.open(tmp_path / "project" / "index"))
    nlp.to_disk(tmp_path / "project" / "pipeline")
    return tmp_path / "project"


def test_pipeline_and_index_can_be_moved_together(trained_path, index, tmp_path):
    project = move_together(trained_path, index, tmp_path)
    project.rename(tmp_path / "moved")
    assert spacy.load(tmp_path / "moved" / "pipeline")(LINKED).ents


def test_the_pipeline_can_be_moved_alone(trained_path, index, tmp_path):
    project = move_together(trained_path, index, tmp_path)
    (project / "pipeline").rename(tmp_path / "alone")
    assert spacy.load(tmp_path / "alone")(LINKED).ents


def test_a_missing_index_is_an_error_that_says_where_it_was(trained_path, index, tmp_path):
    project = move_together(trained_path, index, tmp_path)
    shutil.rmtree(project / "index")
    with pytest.raises(ELQError, match="E006") as err:
        spacy.load(project / "pipeline")
    assert str(project / "index") in str(err.value)
    override = {"components.elq_linker.index_path": str(index.path)}
    assert spacy.load(project / "pipeline", config=override)(LINKED).ents


def test_bundled_index_comes_along(trained_path, index, tmp_path):
    project = move_together(trained_path, index, tmp_path)
    nlp = spacy.load(project / "pipeline")
    bundle_index(nlp, "elq_linker")
    nlp.to_disk(project / "bundled")
    expected = alternatives_of(nlp(LINKED))
    shutil.rmtree(project / "index")
    (project / "bundled").rename(tmp_path / "elsewhere")
    assert alternatives_of(spacy.load(tmp_path / "elsewhere")(LINKED)) == expected


def other_index(tmp_path, catalogue_path, encoder, *, drop_last=False, factory=None):
    lines = catalogue_path.read_text(encoding="utf8").splitlines(keepends=True)
    (tmp_path / "other.jsonl").write_text("".join(lines[:-1] if drop_last else lines), encoding="utf8")
    encode_catalogue(tmp_path / "other.jsonl", tmp_path / "other_vectors", encoder)
    return build_index(tmp_path / "other_vectors", tmp_path / "other_index", factory=factory)


def test_an_index_of_another_encoder_is_refused(loaded, trained_path, tmp_path, catalogue_path, encoder_path):
    from spacy_elq.model.entity_encoder import EntityEncoder

    other = other_index(
        tmp_path, catalogue_path, EntityEncoder(str(encoder_path), pooling="cls", max_length=48)
    )
    with pytest.raises(ELQError, match="E004"):
        loaded.get_pipe("elq_linker").set_index(other)
    with pytest.raises(ELQError, match="E004"):
        spacy.load(trained_path, config={"components.elq_linker.index_path": str(other.path)})


def test_an_index_of_another_width_is_refused(loaded, index, tmp_path, catalogue_path):
    class Narrow:
        width, fingerprint, settings = 8, index.stamp["encoder"], {}

        def encode(self, entities, *, batch_size):
            return np.ones((len(entities), 8), dtype="float32")

    with pytest.raises(ELQError, match=r"E003.*width 8.*width 48"):
        loaded.get_pipe("elq_linker").set_index(other_index(tmp_path, catalogue_path, Narrow()))


@pytest.mark.filterwarnings("ignore:.*W003")
def test_a_mention_for_which_nothing_is_found_has_no_link(loaded, index, tmp_path, catalogue_path):
    class Equal:
        width, fingerprint, settings = 48, index.stamp["encoder"], {}

        def encode(self, entities, *, batch_size):
            return np.ones((len(entities), 48), dtype="float32")

    linker = loaded.get_pipe("elq_linker")
    # all in one list, and the others are looked at
    linker.set_index(other_index(tmp_path, catalogue_path, Equal(), factory="IVF4,Flat"))
    assert (linker.index.search(np.asarray(index.vectors), 3)[0] == -1).all()
    for spans_key in (None, "scored"):
        linker.spans_key = spans_key
        doc = loaded("what is the capital of georgia")
        assert doc.ents == ()
        assert not doc.spans.get("scored")
    assert linker.link_spans([doc], [[doc[5:6]]]) == [[]]


def test_another_catalogue_is_refused_unless_asked_for(
    trained_path, index, tmp_path, catalogue_path, entity_encoder
):
    project = move_together(trained_path, index, tmp_path)
    other = other_index(tmp_path, catalogue_path, entity_encoder, drop_last=True)
    shutil.rmtree(project / "index")
    shutil.copytree(other.path, project / "index")
    with pytest.raises(ELQError, match=r"E005.*holds a different catalogue"):
        spacy.load(project / "pipeline")
    nlp = spacy.load(
        project / "pipeline", config={"components.elq_linker.index_path": str(project / "index")}
    )
    assert len(nlp.get_pipe("elq_linker").index) == 9
    assert links_of(nlp(LINKED)) == [(3, 8, "E1"), (20, 33, "E5")]


def test_another_catalogue_of_the_same_encoder_can_be_attached(
    loaded, tmp_path, catalogue_path, entity_encoder
):
    loaded.get_pipe("elq_linker").set_index(
        other_index(tmp_path, catalogue_path, entity_encoder, drop_last=True)
    )
    assert len(loaded(LINKED).ents[0]._.elq_alternatives) == 9


def test_sourcing_from_another_pipeline(trained, gold_docs):
    nlp = spacy.blank("en")
    for name in trained.pipe_names:
        nlp.add_pipe(name, source=trained)
    for doc in gold_docs[:5]:
        assert links_of(nlp(doc.text)) == links_of(doc)


def test_replace_listeners_makes_the_linker_stand_alone(loaded, gold_docs, tmp_path):
    loaded.replace_listeners("transformer", "elq_linker", ["model.tok2vec"])
    loaded.remove_pipe("transformer")
    for doc in gold_docs:
        assert links_of(loaded(doc.text)) == links_of(doc)
    loaded.to_disk(tmp_path / "alone")
    copy = spacy.load(tmp_path / "alone")
    assert copy.pipe_names == ["elq_linker"]
    for doc in gold_docs:
        assert links_of(copy(doc.text)) == links_of(doc)


def test_a_shared_tok2vec_component_can_be_listened_to(index, gold_docs):
    nlp = spacy.blank("en")
    nlp.add_pipe("tok2vec")
    listener = {"@architectures": "spacy.Tok2VecListener.v1", "width": 96, "upstream": "*"}
    model = {"@architectures": "spacy-elq.QuestionTower.v1", "tok2vec": listener}
    nlp.add_pipe("elq_linker", config={"model": model}).set_index(index)
    nlp.initialize(lambda: examples_of(nlp, gold_docs))
    history = train(nlp, gold_docs, steps=30, learn_rate=0.005)
    assert history[-1] < history[0] / 2
    assert len(list(nlp.pipe(["is paris big", ""]))) == 2


def test_pooled_tokens_of_a_transformer_can_be_rows(make_pipeline, encoder_path, index, gold_docs):
    nlp = make_pipeline("transformer")
    nlp.remove_pipe("elq_linker")
    listener = {
        "@architectures": "spacy-transformers.TransformerListener.v1",
        "grad_factor": 1.0,
        "pooling": {"@layers": "reduce_mean.v1"},
    }
    model = {"@architectures": "spacy-elq.QuestionTower.v1", "tok2vec": listener}
    nlp.add_pipe("elq_linker", config={"model": model}).set_index(index)
    nlp.initialize(lambda: examples_of(nlp, gold_docs))
    history = train(nlp, gold_docs, steps=20, learn_rate=0.002)
    assert history[-1] < history[0] / 2


def test_a_component_can_be_pickled_with_its_index(trained):
    linker = trained.get_pipe("elq_linker")
    index = pickle.loads(pickle.dumps(linker.index))
    assert index.stamp == linker.index.stamp


def test_an_alias_gets_its_share_of_the_name_weight(make_pipeline, gold_docs):
    nlp = make_pipeline("tok2vec", name_weight=1.0)
    linker = nlp.get_pipe("elq_linker")
    doc = gold_docs[11]  # hotels in the city of light
    scores = []
    for share in (1.0, 0.75, 0.5):
        linker.alias_share = share
        (link,) = linker.link_spans([nlp(doc.text)], [[doc[3:6]]])[0]
        scores.append({other.id: other.score for other in link.alternatives}["E1"])
    odds = [score / (1 - score) for score in scores]
    assert odds[0] / odds[1] == pytest.approx(math.exp(0.25), rel=1e-4)
    assert odds[1] / odds[2] == pytest.approx(math.exp(0.25), rel=1e-4)
    with pytest.raises(ELQError, match=r"alias_share.*from 0.5 to 1"):
        make_pipeline("tok2vec", alias_share=0.4)
