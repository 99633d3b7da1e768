"""The component that trains both encoders: config, training, scoring, serialization."""

import json
from pathlib import Path

import numpy as np
import pytest
import spacy
import torch
from conftest import ENTITIES, TRANSFORMER
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from spacy.cli.train import train as train_cli
from spacy.tokens import DocBin, Span
from spacy.training import Example
from strategies import numeric_gradient, row_spans, rows
from thinc.api import fix_random_seed

from spacy_elq.catalogue import entity_from_dict
from spacy_elq.core.spans import to_row_spans
from spacy_elq.errors import ELQError
from spacy_elq.model.entity_encoder import EntityEncoder
from spacy_elq.pipeline.biencoder import _get_loss
from spacy_elq.pipeline.gold import Gold, collect_gold
from spacy_elq.types import Rows

CONFIG = Path(__file__).parents[2] / "configs" / "elq_pairs.cfg"
CATALOGUE = [entity_from_dict(entity) for entity in ENTITIES]
TOK2VEC = {
    "@architectures": "spacy.HashEmbedCNN.v2",
    "pretrained_vectors": None,
    "width": 32,
    "depth": 1,
    "embed_size": 100,
    "window_size": 1,
    "maxout_pieces": 2,
    "subword_features": True,
}


def examples_of(nlp, docs):
    return [Example(nlp.make_doc(doc.text), doc) for doc in docs]


def gold_doc(nlp, text, *links):
    """`links` are (start, end, id) in tokens."""
    doc = nlp.make_doc(text)
    doc.spans["gold_links"] = [Span(doc, s, e, label="X", kb_id=id_) for s, e, id_ in links]
    return doc


@pytest.fixture(scope="module")
def add_pairs(encoder_path):
    """Makes a pipeline that is not initialized yet; `tok2vec` replaces the transformer."""

    def make(tok2vec=None, tower=None, **settings):
        fix_random_seed(0)
        nlp = spacy.blank("en")
        if tok2vec is None:
            transformer = json.loads(json.dumps(TRANSFORMER["config"]))
            transformer["model"]["name"] = str(encoder_path)
            nlp.add_pipe("transformer", config=transformer)
        name = "spacy-elq.EntityTower.v1"
        entity_encoder = {
            "@architectures": name,
            "name": str(encoder_path),
            "max_length": 48,
            **(tower or {}),
        }
        model = {
            "@architectures": "spacy-elq.PairTower.v1",
            "tok2vec": tok2vec or {"@architectures": "spacy-elq.WordPieceListener.v1"},
            "entity_encoder": entity_encoder,
        }
        nlp.add_pipe("elq_pairs", config={"model": model, **settings})
        return nlp

    return make


@pytest.fixture(scope="module")
def make_pairs(add_pairs, catalogue_path, gold_docs):
    """Makes a pipeline that is ready to be trained."""

    def make(catalogue=catalogue_path, index=None, **settings):
        nlp = add_pairs(**settings)
        init = {"catalogue": str(catalogue)}
        if index is not None:
            init["index_loader"] = {"@misc": "spacy-elq.EntityIndexLoader.v1", "path": str(index.path)}
        nlp.config["initialize"]["components"]["elq_pairs"] = init
        nlp.initialize(lambda: examples_of(nlp, gold_docs))
        return nlp

    return make


@pytest.fixture(scope="module")
def learned(make_pairs, gold_docs):
    """A pipeline that learned ten questions by heart, and its losses. Do not change it."""
    nlp = make_pairs()
    optimizer = nlp.create_optimizer()
    optimizer.learn_rate = 0.003
    history = []
    for _ in range(25):
        losses = {}
        nlp.update(examples_of(nlp, gold_docs[:10]), sgd=optimizer, losses=losses)
        history.append(losses["elq_pairs"])
    return nlp, history


@pytest.fixture(scope="module")
def learned_path(learned, tmp_path_factory):
    path = tmp_path_factory.mktemp("pairs") / "pipeline"
    learned[0].to_disk(path)
    return path


def accuracy(nlp, docs):
    return nlp.evaluate(examples_of(nlp, docs))["elq_pairs_acc"]


def entity_transformer(nlp):
    return nlp.get_pipe("elq_pairs").model.layers[2].attrs["encoder"].module.transformer


def watch(module):
    """RETURNS: A function that gives the names of the parameters that have changed since."""
    before = {name: value.detach().clone() for name, value in module.named_parameters()}
    return lambda: {name for name, value in module.named_parameters() if not torch.equal(value, before[name])}


def entities_asked_for(nlp, docs):
    """The ids of the entities that an update with these docs encodes."""
    encoder = nlp.get_pipe("elq_pairs").model.layers[2].attrs["encoder"]
    word_pieces, asked = encoder.word_pieces, []

    def watched(entities):
        asked.extend(entity.id for entity in entities)
        return word_pieces(entities)

    encoder.word_pieces = watched
    losses = {}
    nlp.update(examples_of(nlp, docs), losses=losses)
    return asked, losses["elq_pairs"]


# ---------------------------------------------------------------------- initialize


def test_no_catalogue_is_an_error_that_names_the_setting(add_pairs):
    nlp = add_pairs()
    with pytest.raises(ELQError, match=r"E047.*\[initialize\.components\.elq_pairs\] catalogue"):
        nlp.initialize(lambda: [Example(nlp.make_doc("a"), nlp.make_doc("a"))])


def test_without_a_catalogue_nothing_is_learned_or_scored(add_pairs, gold_docs):
    pairs = add_pairs().get_pipe("elq_pairs")
    for action in (pairs.update, pairs.score):
        with pytest.raises(ELQError, match="E047"):
            action(examples_of(spacy.blank("en"), gold_docs))


def test_a_missing_catalogue_is_named(make_pairs, tmp_path):
    with pytest.raises(ELQError, match=r"File not found: .*nowhere"):
        make_pairs(catalogue=tmp_path / "nowhere")


def test_the_examples_must_be_given_by_a_function(add_pairs, catalogue_path):
    with pytest.raises(TypeError, match=r"ELQPairs\.initialize"):
        add_pairs().get_pipe("elq_pairs").initialize([], catalogue=catalogue_path)


# ---------------------------------------------------------------------- training


def test_learns_a_handful_of_pairs_by_heart(learned, make_pairs, gold_docs):
    nlp, history = learned
    assert accuracy(make_pairs(), gold_docs[:10]) < 0.5
    assert accuracy(nlp, gold_docs[:10]) == 1.0
    assert history[-1] < history[0] / 10


def test_both_encoders_are_trained(make_pairs, gold_docs):
    nlp = make_pairs(tower={"frozen_layers": 1})
    question, entity = watch(nlp.get_pipe("transformer").model.transformer), watch(entity_transformer(nlp))
    # `nlp.update` steps the transformer before the gradient of the same batch is there
    for _ in range(2):
        nlp.update(examples_of(nlp, gold_docs), sgd=nlp.create_optimizer())
    assert any(name.startswith("encoder.layer.0.") for name in question())
    assert any(name.startswith("encoder.layer.1.") for name in entity())
    assert not any(name.startswith(("embeddings.", "encoder.layer.0.")) for name in entity())


def test_gradients_wait_for_an_optimizer(make_pairs, gold_docs):
    nlp = make_pairs(tok2vec=TOK2VEC)
    pairs, changed = nlp.get_pipe("elq_pairs"), watch(entity_transformer(nlp))
    pairs.update(examples_of(nlp, gold_docs))
    assert not changed()
    pairs.update(examples_of(nlp, gold_docs), sgd=nlp.create_optimizer())
    assert changed()


def test_losses_add_up(make_pairs, gold_docs):
    nlp = make_pairs()
    first = nlp.update(examples_of(nlp, gold_docs), sgd=False)
    losses = {"elq_pairs": 100.0}
    nlp.update(examples_of(nlp, gold_docs), sgd=False, losses=losses)
    assert losses["elq_pairs"] == pytest.approx(100 + first["elq_pairs"])


def test_a_tok2vec_of_another_width_is_projected_and_trained(make_pairs, gold_docs):
    nlp = make_pairs(tok2vec=TOK2VEC)
    optimizer = nlp.create_optimizer()
    optimizer.learn_rate = 0.01
    history = [nlp.update(examples_of(nlp, gold_docs), sgd=optimizer)["elq_pairs"] for _ in range(6)]
    assert history[-1] < history[0]
    assert nlp.get_pipe("elq_pairs").model.layers[1].get_param("W").shape == (48, 32)
    assert 0 <= accuracy(nlp, gold_docs) <= 1


def test_dropout_is_set(make_pairs, gold_docs):
    nlp = make_pairs(tok2vec=TOK2VEC)
    nlp.update(examples_of(nlp, gold_docs), drop=0.3)
    layers = nlp.get_pipe("elq_pairs").model.walk()
    assert {x.attrs["dropout_rate"] for x in layers if "dropout_rate" in x.attrs} == {0.3}


def test_only_examples_can_be_learned_from(make_pairs):
    nlp = make_pairs(tok2vec=TOK2VEC)
    with pytest.raises(TypeError, match=r"ELQPairs\.update"):
        nlp.get_pipe("elq_pairs").update([nlp.make_doc("paris")])


def test_the_gold_entities_of_a_batch_are_encoded_once_each(make_pairs, gold_docs):
    asked, loss = entities_asked_for(make_pairs(same_name=0), gold_docs[15:17])
    assert asked == ["E1", "E5", "E9", "E10"]
    assert loss > 0


@pytest.mark.parametrize(("same_name", "expected"), [(0, ["E3"]), (1, ["E3", "E4"])])
def test_a_wrong_entity_of_the_same_name_joins_the_negatives(make_pairs, gold_docs, same_name, expected):
    asked, loss = entities_asked_for(make_pairs(same_name=same_name), gold_docs[5:6])
    assert asked == expected
    assert (loss > 0) == (len(expected) > 1)


@pytest.mark.parametrize("kind", ["transformer", "tok2vec"])
def test_the_nearest_wrong_entities_join_the_negatives(make_pairs, gold_docs, index, kind):
    tok2vec = TOK2VEC if kind == "tok2vec" else None

    def asked_for(hard):
        nlp = make_pairs(tok2vec=tok2vec, index=index, hard=hard, same_name=0)
        return entities_asked_for(nlp, gold_docs[5:6])[0]

    few = asked_for(1)
    assert len(few) == 2
    assert "E3" in few
    # one mention, nine wrong entities in the index: all of them are among the nearest
    assert asked_for(9) == [entity.id for entity in CATALOGUE]


def test_hard_negatives_are_drawn_from_the_nearest(make_pairs, gold_docs, index):
    nlp = make_pairs(tok2vec=TOK2VEC, index=index, hard=1, same_name=0)
    pairs = nlp.get_pipe("elq_pairs")
    example = Example(nlp.make_doc(gold_docs[5].text), gold_docs[5])
    gold = collect_gold([example], pairs._records.positions)
    rows = pairs.model.layers[0].predict([example.predicted])
    mention = pairs._project(rows).vectors[gold.spans[0, 0] : gold.spans[0, 1]].mean(axis=0)
    nearest = index.search(mention[None].astype("float32"), 5)[0][0]
    drawn = {int(p) for _ in range(60) for p in pairs._similar(pairs._records, [example.predicted], gold)}
    assert drawn == {int(p) for p in nearest} - {int(gold.positions[0])}


def test_what_the_catalogue_of_training_lacks_is_no_hard_negative(make_pairs, gold_docs, index, tmp_path):
    few = tmp_path / "few.jsonl"
    few.write_text("".join(json.dumps(entity) + "\n" for entity in ENTITIES[:4]), encoding="utf8")
    nlp = make_pairs(catalogue=few, tok2vec=TOK2VEC, index=index, hard=9, same_name=0)
    assert entities_asked_for(nlp, gold_docs[5:6])[0] == ["E1", "E2", "E3", "E4"]


def test_hard_negatives_need_an_index(make_pairs):
    with pytest.raises(ELQError, match=r"E244.*index_loader"):
        make_pairs(tok2vec=TOK2VEC, hard=2)


@pytest.mark.parametrize(("title_only", "least", "most"), [(0.0, 0, 0), (0.5, 25, 75), (1.0, 100, 100)])
def test_some_entities_are_learnt_by_their_title_alone(make_pairs, title_only, least, most):
    pairs = make_pairs(tok2vec=TOK2VEC, title_only=title_only).get_pipe("elq_pairs")
    pool = np.arange(10).repeat(10)
    drawn = pairs._draw_texts(pairs._records, pool)
    assert [entity.id for entity in drawn] == [CATALOGUE[p].id for p in pool]
    assert all(
        entity.description in ("", CATALOGUE[p].description) for entity, p in zip(drawn, pool, strict=True)
    )
    assert least <= sum(not entity.description for entity in drawn) <= most


def test_the_descriptions_that_are_left_out_are_not_encoded(make_pairs, gold_docs):
    nlp = make_pairs(tok2vec=TOK2VEC, title_only=1.0)
    seen = []
    tower = nlp.get_pipe("elq_pairs").model.layers[2]
    forward = tower._func
    tower._func = lambda model, entities, is_train: (
        seen.extend(entities) or forward(model, entities, is_train)
    )
    nlp.update(examples_of(nlp, gold_docs[:4]))
    assert seen
    assert not any(entity.description for entity in seen)


@pytest.fixture(scope="module")
def namesakes(make_pairs, tmp_path_factory):
    """A component whose catalogue has six entities of one name, and one of another."""
    path = tmp_path_factory.mktemp("namesakes") / "entities.jsonl"
    entities = [{"id": f"E{i}", "title": f"Paris ({i})"} for i in range(6)] + [{"id": "E6", "title": "Rome"}]
    path.write_text("".join(json.dumps(entity) + "\n" for entity in entities), encoding="utf8")
    return make_pairs(catalogue=path, tok2vec=TOK2VEC, same_name=2)


def draw_namesakes(nlp, *links):
    """What is drawn for "paris rome paris" with gold links (start, end, id)."""
    pairs = nlp.get_pipe("elq_pairs")
    example = Example(nlp.make_doc("paris rome paris"), gold_doc(nlp, "paris rome paris", *links))
    gold = collect_gold([example], pairs._records.positions)
    texts = [example.predicted[s:e].text for s, e in gold.spans]
    return pairs._same_name(pairs._records, texts, gold).tolist()


def test_so_many_namesakes_are_drawn_for_each_mention(namesakes):
    drawn = [draw_namesakes(namesakes, (0, 1, "E3"), (1, 2, "E6"), (2, 3, "E0")) for _ in range(40)]
    assert all(len(positions) == 4 for positions in drawn)
    firsts, seconds = [positions[:2] for positions in drawn], [positions[2:] for positions in drawn]
    assert all(len(set(pair)) == 2 for pair in firsts + seconds)
    assert {p for pair in firsts for p in pair} == {0, 1, 2, 4, 5}
    assert {p for pair in seconds for p in pair} == {1, 2, 3, 4, 5}


def test_no_namesakes_are_drawn_for_an_unknown_entity(namesakes):
    assert draw_namesakes(namesakes, (0, 1, "E404"), (1, 2, "E6")) == []


@pytest.mark.parametrize("kind", ["transformer", "tok2vec"])
@pytest.mark.parametrize(
    "links",
    [[], [("", ())], [("", ()), ("  ", ())], [("no gold", ())], [("atlantis", (0, 1, "E404"))]],
    ids=str,
)
def test_batches_with_nothing_to_learn_are_fine(make_pairs, kind, links):
    nlp = make_pairs(tok2vec=TOK2VEC if kind == "tok2vec" else None)
    before = nlp.get_pipe("elq_pairs").model.to_bytes()
    docs = [gold_doc(nlp, text, *([link] if link else [])) for text, link in links]
    losses = nlp.update(examples_of(nlp, docs), sgd=nlp.create_optimizer())
    assert losses.get("elq_pairs", 0.0) == 0.0
    assert nlp.get_pipe("elq_pairs").model.to_bytes() == before
    assert accuracy(nlp, docs) is None


def test_what_cannot_be_learned_does_not_disturb_the_rest(make_pairs, gold_docs):
    nlp = make_pairs()
    odd = [
        gold_doc(nlp, ""),
        gold_doc(nlp, "no gold here"),
        gold_doc(nlp, "where is atlantis", (2, 3, "E404")),
    ]
    good = gold_docs[:3]
    expected = nlp.update(examples_of(nlp, good), sgd=False)["elq_pairs"]
    mixed = [odd[0], good[0], odd[1], odd[2], *good[1:], odd[0]]
    losses = nlp.update(examples_of(nlp, mixed), sgd=False)
    assert losses["elq_pairs"] == pytest.approx(expected, rel=1e-4)


@st.composite
def batches(draw):
    """Rows, entities and gold: mentions of known and unknown entities, some without any row."""
    given_rows = draw(rows(max_docs=2, max_tokens=4))
    assume(len(given_rows.starts))
    spans = draw(row_spans(len(given_rows.starts), max_spans=4))
    pool = np.asarray([2, 5, 9])
    positions = draw(
        st.lists(st.sampled_from([-1, *pool.tolist()]), min_size=len(spans), max_size=len(spans))
    )
    gold = Gold(spans, np.asarray(positions, dtype="int64"), 0, [], np.ones(2, dtype=bool))
    return given_rows, np.random.default_rng(len(spans)).normal(size=(3, 3)), gold, pool


def naive_loss(rows, entities, gold, pool):
    losses = []
    for (start, end), position in zip(to_row_spans(rows, gold.spans), gold.positions, strict=True):
        if position >= 0 and end > start:
            similarities = entities @ rows.vectors[start:end].mean(axis=0)
            gold_column = pool.tolist().index(position)
            losses.append(np.logaddexp.reduce(similarities) - similarities[gold_column])
    return np.mean(losses) if losses else 0.0


@settings(max_examples=40)
@given(batches())
def test_loss_and_gradient(batch):
    rows, entities, gold, pool = batch
    loss, (d_vectors, d_entities) = _get_loss((rows, entities), gold, pool)
    assert loss == pytest.approx(naive_loss(rows, entities, gold, pool), abs=1e-9)

    def of_vectors(X):
        return _get_loss((rows.with_vectors(X), entities), gold, pool)[0]

    def of_entities(X):
        return _get_loss((rows, X), gold, pool)[0]

    np.testing.assert_allclose(d_vectors, numeric_gradient(of_vectors, rows.vectors), atol=1e-6)
    np.testing.assert_allclose(d_entities, numeric_gradient(of_entities, entities), atol=1e-6)


def test_gradients_have_the_type_of_what_they_are_of():
    vectors, entities = (np.ones((2, 3), dtype="float32") for _ in range(2))
    positions = np.arange(2)
    flags = np.ones(2, dtype=bool)
    rows = Rows(vectors, positions, positions + 1, flags, ~flags, np.asarray([2]))
    gold = Gold(np.asarray([[0, 1]]), np.asarray([0]), 0, ["E1"], flags[:1])
    _, gradients = _get_loss((rows, entities), gold, np.asarray([0, 1]))
    assert [gradient.dtype for gradient in gradients] == [np.float32, np.float32]


# ---------------------------------------------------------------------- prediction and scoring


def test_docs_are_not_annotated(learned, gold_docs):
    docs = list(learned[0].pipe([gold_docs[0].text, ""]))
    assert not any(doc.ents or doc.spans for doc in docs)


def test_a_mention_must_win_among_all_gold_entities_of_the_examples(learned, gold_docs):
    nlp, _ = learned
    doc = gold_doc(nlp, gold_docs[0].text, (7, 8, "E2"))
    assert gold_docs[0].ents[0].start == 7
    assert accuracy(nlp, [doc]) == 1.0  # against nobody
    assert accuracy(nlp, [doc, gold_docs[0]]) == 0.5


def test_the_score_counts_mentions(learned, gold_docs):
    nlp, _ = learned
    wrong = gold_doc(nlp, gold_docs[1].text, (3, 6, "E1"))
    odd = [gold_doc(nlp, ""), gold_doc(nlp, "no gold"), gold_doc(nlp, "atlantis", (0, 1, "E404"))]
    assert accuracy(nlp, [*gold_docs[:3], wrong, *odd]) == 0.75


def test_many_examples_are_scored_as_few(learned, gold_docs):
    nlp, _ = learned
    wrong = gold_doc(nlp, gold_docs[1].text, (3, 6, "E1"))
    docs = [*gold_docs[:9], wrong]
    assert accuracy(nlp, docs) == pytest.approx(0.9)
    assert accuracy(nlp, docs * 14) == pytest.approx(0.9)


def test_entities_are_encoded_in_batches(learned):
    pairs = learned[0].get_pipe("elq_pairs")
    pool = np.asarray([9, 0, 4, 3, 7])
    together = pairs.model.layers[2].predict([CATALOGUE[p] for p in pool])
    np.testing.assert_allclose(pairs._encode(pairs._records, pool, batch_size=2), together, atol=1e-5)


def test_nothing_to_score_is_no_score(learned):
    nlp, _ = learned
    assert nlp.get_pipe("elq_pairs").score([]) == {"elq_pairs_acc": None}
    for links in ([], [(0, 1, "E404")]):
        assert accuracy(nlp, [gold_doc(nlp, "atlantis", *links)]) is None


# ---------------------------------------------------------------------- on disk


def test_disk_round_trip(learned, learned_path, gold_docs, catalogue_path):
    nlp, _ = learned
    copy = spacy.load(learned_path)
    pairs, loaded = nlp.get_pipe("elq_pairs"), copy.get_pipe("elq_pairs")
    assert loaded.settings == pairs.settings
    vectors = pairs.model.layers[2].predict(CATALOGUE)
    np.testing.assert_allclose(loaded.model.layers[2].predict(CATALOGUE), vectors, atol=1e-6)
    texts = [doc.text for doc in gold_docs]
    rows, copied = (
        pipe.model.layers[0].predict(list(pipeline.pipe(texts))).vectors
        for pipeline, pipe in ((nlp, pairs), (copy, loaded))
    )
    np.testing.assert_allclose(copied, rows, atol=1e-5)
    with pytest.raises(ELQError, match="E047"):
        accuracy(copy, gold_docs)
    loaded.initialize(lambda: examples_of(copy, gold_docs), catalogue=catalogue_path)
    assert accuracy(copy, gold_docs[:10]) == 1.0


def test_the_trained_entity_encoder_can_be_loaded_alone(learned, learned_path, entity_encoder):
    encoder = EntityEncoder(str(learned_path / "elq_pairs" / "encoder"))
    vectors = encoder.encode(CATALOGUE, batch_size=4)
    trained = learned[0].get_pipe("elq_pairs").model.layers[2].predict(CATALOGUE)
    np.testing.assert_allclose(vectors, trained, atol=1e-5)
    assert np.abs(vectors - entity_encoder.encode(CATALOGUE, batch_size=4)).max() > 0.1


@pytest.mark.parametrize("excluded", ["model", "encoder"])
def test_exclude(learned, add_pairs, tmp_path, excluded):
    pairs = learned[0].get_pipe("elq_pairs")
    pairs.to_disk(tmp_path / "part", exclude=["vocab", excluded])
    assert {path.name for path in (tmp_path / "part").iterdir()} == {"model", "encoder"} - {excluded}
    fresh = add_pairs().get_pipe("elq_pairs")
    fresh.from_disk(tmp_path / "part", exclude=["vocab", excluded])
    fresh_vectors, vectors = (pipe.model.layers[2].predict(CATALOGUE) for pipe in (fresh, pairs))
    assert np.allclose(fresh_vectors, vectors, atol=1e-5) == (excluded != "model")


def test_spacy_train_with_the_config_of_this_stage(gold_docs, catalogue_path, encoder_path, tmp_path):
    DocBin(docs=gold_docs, store_user_data=True).to_disk(tmp_path / "corpus.spacy")
    overrides = {
        "paths.train": str(tmp_path / "corpus.spacy"),
        "paths.dev": str(tmp_path / "corpus.spacy"),
        "paths.entities": str(catalogue_path),
        "paths.encoder": str(encoder_path),
        "components.elq_pairs.model.entity_encoder.norm": 3.0,
        "components.elq_pairs.model.entity_encoder.frozen_layers": 1,
        "initialize.after_init.layers": 1,
        "training.max_steps": 2,
        "training.eval_frequency": 1,
    }
    train_cli(CONFIG, tmp_path / "output", overrides=overrides)
    nlp = spacy.load(tmp_path / "output" / "model-last")
    assert nlp.pipe_names == ["transformer", "elq_pairs"]
    assert 0 <= nlp.meta["performance"]["elq_pairs_acc"] <= 1
    encoder = EntityEncoder(str(tmp_path / "output" / "model-last" / "elq_pairs" / "encoder"))
    assert encoder.settings["norm"] == 3.0
    expected = nlp.get_pipe("elq_pairs").model.layers[2].predict(CATALOGUE)
    np.testing.assert_allclose(encoder.encode(CATALOGUE, batch_size=4), expected, atol=1e-5)
