import numpy as np
import pytest
import spacy
from thinc.api import Model, fix_random_seed

from spacy_elq.model.towers import build_pair_tower, build_question_tower, build_question_tower_v2


def known_tok2vec(X):
    def forward(model, docs, is_train):
        def backprop(d_outputs):
            model.attrs["gradient"] = np.concatenate(d_outputs)
            return docs

        return [model.attrs["X"]], backprop

    return Model("known", forward, dims={"nO": X.shape[1]}, attrs={"X": X, "gradient": None})


def build_tower(X, width, build=build_question_tower):
    fix_random_seed(0)
    tower = build(known_tok2vec(X))
    tower.set_dim("nO", width)
    tower.initialize()
    return tower


@pytest.fixture
def docs():
    return [spacy.blank("en").make_doc("a B c")]


@pytest.fixture
def X():
    return np.random.default_rng(0).normal(size=(3, 4)).astype("f")


def test_vectors_stay_as_they_are_where_the_widths_agree(X, docs):
    tower = build_tower(X, 4)
    rows, logits = tower.predict(docs)
    np.testing.assert_array_equal(rows.vectors, X)
    assert logits.shape == (3, 3)
    assert not tower.layers[1].has_param("W")


def test_vectors_are_projected_where_the_widths_differ(X, docs):
    tower = build_tower(X, 6)
    rows, _ = tower.predict(docs)
    project = tower.layers[1]
    np.testing.assert_allclose(rows.vectors, X @ project.get_param("W").T, atol=1e-5)


def build_with_names(tok2vec):
    return build_question_tower(tok2vec, learn_names=True)


def build_with_case(tok2vec):
    return build_question_tower_v2(tok2vec, learn_case=True)


@pytest.mark.parametrize(
    ("build", "columns"),
    [
        (build_question_tower, 3),
        (build_question_tower_v2, 4),
        (build_with_names, 4),
        (build_with_case, 4),
    ],
)
@pytest.mark.parametrize("width", [4, 6])
def test_gradient_of_the_input_and_of_the_parameters(X, docs, width, build, columns):
    tower = build_tower(X, width, build)
    rng = np.random.default_rng(1)
    d_vectors = rng.normal(size=(3, width)).astype("f")
    d_logits = rng.normal(size=(3, columns)).astype("f")
    source, linear = tower.layers[0].layers[0], tower.layers[2]

    def objective():
        rows, logits = tower.predict(docs)
        return float((rows.vectors * d_vectors).sum() + (logits * d_logits).sum())

    def numeric(array, eps=1e-2):
        result = np.zeros_like(array)
        for i in np.ndindex(*array.shape):
            before = array[i]
            array[i] = before + eps
            plus = objective()
            array[i] = before - eps
            result[i] = (plus - objective()) / (2 * eps)
            array[i] = before
        return result

    _, backprop = tower(docs, is_train=True)
    backprop((d_vectors, d_logits))
    np.testing.assert_allclose(source.attrs["gradient"], numeric(source.attrs["X"]), atol=2e-3)
    parameters = [(linear, "W"), (linear, "b")]
    if width != 4:
        parameters += [(tower.layers[1], "W"), (tower.layers[1], "b")]
    for layer, name in parameters:
        values = layer.get_param(name)
        found = layer.get_grad(name)
        np.testing.assert_allclose(found, numeric(values), atol=2e-3, err_msg=f"{layer.name} {name}")


def test_names_count_as_before_at_first(X, docs):
    assert not build_tower(X, 4, build_with_names).predict(docs)[1][:, -1].any()


def test_capitals_count_once_that_is_learned(X, docs):
    tower, without = build_tower(X, 4, build_with_case), build_tower(X, 4, build_question_tower_v2)
    small = [spacy.blank("en").make_doc("a b c")]
    np.testing.assert_array_equal(tower.predict(docs)[1], tower.predict(small)[1])
    tower.layers[2].get_param("W")[0, -2:] = [0.5, -0.5]
    gain = tower.predict(docs)[1] - tower.predict(small)[1]
    np.testing.assert_allclose(gain, [[0, 0, 0, 0], [5, 0, 0, 0], [-5, 0, 0, 0]], atol=1e-5)
    np.testing.assert_array_equal(without.predict(docs)[1], without.predict(small)[1])


@pytest.mark.parametrize("build", [build_question_tower, build_with_names, build_with_case])
@pytest.mark.parametrize("width", [4, 6])
def test_bytes_round_trip(X, docs, width, build):
    tower = build_tower(X, width, build)
    copy = build(known_tok2vec(X)).from_bytes(tower.to_bytes())
    (rows, logits), (rows_copy, logits_copy) = tower.predict(docs), copy.predict(docs)
    np.testing.assert_array_equal(rows.vectors, rows_copy.vectors)
    np.testing.assert_array_equal(logits, logits_copy)


# The pair tower

ENTITIES = ["paris", "rome"]


def known_entities(E):
    """An entity encoder that ignores the entities and gives `E`."""

    def forward(model, entities, is_train):
        def backprop(d_entities):
            model.attrs["gradient"] = d_entities
            return []

        model.attrs["asked"] = entities
        return model.attrs["E"], backprop

    return Model("entities", forward, dims={"nO": E.shape[1]}, attrs={"E": E, "gradient": None})


def build_pairs(X, width):
    fix_random_seed(0)
    E = np.random.default_rng(2).normal(size=(2, width)).astype("f")
    tower = build_pair_tower(known_tok2vec(X), known_entities(E))
    tower.initialize()
    return tower


@pytest.mark.parametrize("width", [4, 6])
def test_a_pair_tower_gives_rows_and_entities_of_one_width(X, docs, width):
    tower = build_pairs(X, width)
    rows, entities = tower.predict((docs, ENTITIES))
    project, encoder = tower.layers[1:]
    assert encoder.attrs["asked"] == ENTITIES
    np.testing.assert_array_equal(entities, encoder.attrs["E"])
    assert bool(project.has_param("W")) == (width != 4)
    expected = X if width == 4 else X @ project.get_param("W").T
    np.testing.assert_allclose(rows.vectors, expected, atol=1e-5)
    assert isinstance(rows.vectors, np.ndarray)
    assert isinstance(entities, np.ndarray)


@pytest.mark.parametrize("width", [4, 6])
def test_gradients_go_back_into_both_encoders(X, docs, width):
    tower = build_pairs(X, width)
    rng = np.random.default_rng(1)
    d_vectors, d_entities = rng.normal(size=(3, width)), rng.normal(size=(2, width))
    _, backprop = tower((docs, ENTITIES), is_train=True)
    backprop((d_vectors, d_entities))
    rows, project, encoder = tower.layers
    np.testing.assert_allclose(encoder.attrs["gradient"], d_entities, rtol=1e-6)
    assert encoder.attrs["gradient"].dtype == np.float32
    expected = d_vectors if width == 4 else d_vectors @ project.get_param("W")
    np.testing.assert_allclose(rows.layers[0].attrs["gradient"], expected, atol=1e-5)
    if width != 4:
        np.testing.assert_allclose(project.get_grad("W"), d_vectors.T @ X, atol=1e-5)
        np.testing.assert_allclose(project.get_grad("b"), d_vectors.sum(axis=0), atol=1e-5)


def test_bytes_round_trip_of_a_pair_tower(X, docs):
    tower = build_pairs(X, 6)
    copy = build_pairs(X, 6)
    copy.layers[1].set_param("W", np.zeros((6, 4), dtype="f"))
    copy.from_bytes(tower.to_bytes())
    expected = tower.predict((docs, ENTITIES))[0].vectors
    np.testing.assert_array_equal(copy.predict((docs, ENTITIES))[0].vectors, expected)
