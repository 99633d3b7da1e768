import numpy as np
import pytest
from conftest import ENTITIES
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from index_world import encode

from spacy_elq.catalogue import entity_from_dict
from spacy_elq.core.similarity import Prior
from spacy_elq.errors import ELQError
from spacy_elq.index import EntityIndex, build_index
from spacy_elq.index.backend import FaissBackend
from spacy_elq.index.files import SEARCH, named_files
from spacy_elq.index.search import best_candidates
from spacy_elq.types import Entity

WIDTH = 16


class Numbers:
    """An encoder that needs no model: the id of an entity seeds its vector."""

    width = WIDTH
    fingerprint = "numbers"
    settings = {"name": "numbers"}

    def encode(self, entities, *, batch_size):
        seeds = [np.random.default_rng(int(entity.id)) for entity in entities]
        return np.stack([seed.normal(size=WIDTH).astype("float32") for seed in seeds])


def number(i, popularity=0):
    return Entity(str(i), f"Number {i}", popularity=popularity)


def encode_numbers(folder, count, encoder=None, popularity=lambda i: 0):
    entities = [number(i, popularity(i)) for i in range(count)]
    return encode(folder, entities, encoder or Numbers())


@pytest.fixture(scope="module")
def numbers(tmp_path_factory):
    """The vectors of 300 entities."""
    return encode_numbers(tmp_path_factory.mktemp("numbers"), 300)


@pytest.fixture(scope="module")
def queries():
    return np.random.default_rng(7).normal(size=(50, WIDTH)).astype("float32")


def assert_same_answers(a, b, queries):
    for x, y in zip(a.search(queries, 5), b.search(queries, 5), strict=True):
        np.testing.assert_array_equal(x, y)


# What it finds


def test_vectors_alone_cannot_be_searched(numbers, queries):
    with pytest.raises(ELQError, match=f"elq index {numbers} INDEX"):
        EntityIndex.open(numbers).search(queries, 5)


def test_queries_of_another_width_are_an_error(index):
    with pytest.raises(ELQError, match="Queries of width 3 for an index of width 48"):
        index.search(np.zeros((1, 3), dtype="float32"), 5)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_flat_is_exact(numbers, quick_path, queries, dtype):
    index = build_index(numbers, quick_path / "index", factory="Flat")
    positions, similarities = index.search(queries.astype(dtype), 10)
    scores = queries @ index.vectors.T
    np.testing.assert_array_equal(positions, np.argsort(-scores, axis=1)[:, :10])
    np.testing.assert_allclose(similarities, -np.sort(-scores, axis=1)[:, :10], rtol=1e-5)
    assert similarities.dtype == np.float32


@pytest.mark.parametrize("factory", ["HNSW128", "SQ8", "SQ4", "IVF1,SQ8"])
def test_whatever_finds_the_stored_vectors_score(numbers, quick_path, queries, factory):
    index = build_index(numbers, quick_path / "index", factory=factory)
    positions, similarities = index.search(queries, 10)
    scores = np.take_along_axis(queries @ index.vectors.T, positions, axis=1)
    np.testing.assert_allclose(similarities, scores, rtol=1e-4, atol=1e-5)
    assert (np.diff(similarities, axis=1) <= 0).all()


def found_by_backend(index, queries, k):
    path = named_files(index._database)[SEARCH]
    return FaissBackend(index.vectors, path, index.meta["backend"]).search(queries, k)


def exact(index, queries, k):
    return np.argsort(-(queries @ index.vectors.T), axis=1)[:, :k]


def test_more_candidates_are_scored_than_asked_for(numbers, quick_path, queries):
    index = build_index(numbers, quick_path / "index", factory="SQ4")
    expected = exact(index, queries, 10)
    assert (np.sort(found_by_backend(index, queries, 10)) != np.sort(expected)).any(), "lossy enough"
    np.testing.assert_array_equal(index.search(queries, 10)[0], expected)


def test_rescore_says_how_many(numbers, quick_path, queries):
    index = build_index(numbers, quick_path / "index", factory="SQ4", widths={"rescore": 12})
    found = found_by_backend(index, queries, 12)
    positions, _ = index.search(queries, 10)
    assert all(set(a) <= set(b) for a, b in zip(positions.tolist(), found.tolist(), strict=True))
    assert (positions != exact(index, queries, 10)).any()


def test_vectors_of_candidates_are_read_from_the_file(numbers, quick_path, queries):
    """Not through the mapping, whose pages would count as memory."""
    index = build_index(numbers, quick_path / "index", factory="SQ8")
    settings = {"names": ["number 7"] * 50, "prior": Prior(name_weight=1.0)}
    expected = index.search(queries, 10, **settings)
    with index.reading() as view:
        view.base.vectors.array = np.full_like(view.base.vectors.array, np.nan)
    for a, b in zip(index.search(queries, 10, **settings), expected, strict=True):
        np.testing.assert_array_equal(a, b)


def test_equal_similarities_are_ordered_by_position(quick_path):
    class Same(Numbers):
        def encode(self, entities, *, batch_size):
            return np.ones((len(entities), WIDTH), dtype="float32")

    index = build_index(encode_numbers(quick_path, 50, Same()), quick_path / "index", factory="HNSW32")
    positions, _ = index.search(np.ones((1, WIDTH)), 50)
    assert positions.tolist() == [sorted(positions[0].tolist())]


@pytest.mark.parametrize("popularity_weight", [0.0, 1.0])
def test_what_was_not_found_stands_last(numbers, quick_path, queries, popularity_weight):
    index = build_index(numbers, quick_path / "index", factory="IVF7,Flat")
    positions, similarities = index.search(queries, 300, prior=Prior(popularity_weight=popularity_weight))
    np.testing.assert_array_equal(positions == -1, np.isneginf(similarities))
    assert (positions[:, 0] >= 0).all()
    assert (positions[:, -1] == -1).all()


def test_k_is_at_most_the_size_of_the_catalogue(index):
    positions, similarities = index.search(np.asarray(index.vectors[:3]), 99)
    assert positions.shape == similarities.shape == (3, 10)
    assert [sorted(row) for row in positions.tolist()] == [list(range(10))] * 3


@pytest.mark.parametrize("factory", ["Flat", "HNSW128"])
def test_a_catalogue_of_one_entity(quick_path, factory):
    index = build_index(encode_numbers(quick_path, 1), quick_path / "index", factory=factory)
    positions, similarities = index.search(np.asarray(index.vectors), 10)
    assert positions.tolist() == [[0]]
    np.testing.assert_allclose(similarities, [[np.square(index.vectors).sum()]], rtol=1e-5)


@pytest.mark.parametrize("factory", ["Flat", "HNSW8"])
def test_a_catalogue_that_has_become_empty(quick_path, queries, factory):
    index = build_index(encode_numbers(quick_path, 3), quick_path / "index", factory=factory)
    index.remove(["0", "1", "2"])
    settings = {"names": ["number 1"] * 50, "prior": Prior(name_weight=1.0, popularity_weight=1.0)}
    for _ in range(2):
        positions, similarities = index.search(queries, 4, **settings)
        assert positions.tolist() == [[-1]] * 50
        assert np.isneginf(similarities).all()
        assert len(index) == 0
        assert index.find("number 1") == []
        index.compact()
    index.add([number(1)], Numbers())
    for _ in range(2):
        positions, _ = index.search(queries, 4, **settings)
        assert positions.tolist() == [[3]] * 50
        index.compact()


def test_no_queries_have_no_candidates(index):
    positions, similarities = index.search(np.zeros((0, 48), dtype="float32"), 4)
    assert positions.shape == similarities.shape == (0, 4)
    assert (positions.dtype, similarities.dtype) == (np.int64, np.float32)


def test_many_queries_are_answered_as_one_by_one(index):
    queries = np.random.default_rng(0).normal(size=(700, 48)).astype("float32")
    positions, similarities = index.search(queries, 3)
    assert len(positions) == 700
    chosen = [0, 1, 127, 128, 129, 255, 256, 699]
    single = [index.search(queries[i : i + 1], 3) for i in chosen]
    np.testing.assert_array_equal(positions[chosen], np.concatenate([x[0] for x in single]))
    np.testing.assert_allclose(similarities[chosen], np.concatenate([x[1] for x in single]), rtol=1e-5)


# Changes


@pytest.mark.parametrize("factory", ["Flat", "HNSW16", "SQ8"])
def test_as_many_are_found_although_the_best_were_removed(numbers, quick_path, queries, factory):
    """So many of them that the back end has to be asked again, and more than once."""
    index = build_index(numbers, quick_path / "index", factory=factory, widths=None)
    gone = {str(i) for i in exact(index, queries[:1], 260)[0]}
    index.remove(gone)
    left = np.asarray([i for i in range(300) if str(i) not in gone])
    positions, similarities = index.search(queries[:3], 5)
    scores = queries[:3] @ EntityIndex.open(numbers).vectors[left].T
    np.testing.assert_array_equal(positions, left[np.argsort(-scores, axis=1)[:, :5]])
    assert not np.isinf(similarities).any()


def test_other_lists_are_looked_into_where_all_of_the_nearest_were_removed(numbers, quick_path, queries):
    index = build_index(numbers, quick_path / "index", factory="IVF7,SQ8", widths={"nprobe": 1})
    near = found_by_backend(index, queries[:1], 300)[0]
    near = near[near >= 0]
    assert len(near) < 100
    index.remove([str(i) for i in near])
    left = np.setdiff1d(np.arange(300), near)
    positions, _ = index.search(queries[:1], 5)
    scores = queries[:1] @ EntityIndex.open(numbers).vectors[left].T
    np.testing.assert_array_equal(positions, left[np.argsort(-scores, axis=1)[:, :5]])


def test_only_queries_that_lack_candidates_are_asked_again(numbers, quick_path, queries, monkeypatch):
    index = build_index(numbers, quick_path / "index", factory="HNSW32")
    index.remove([str(i) for i in exact(index, queries[:1], 30)[0]])
    asked, search = [], FaissBackend.search

    def watched(self, queries, k, **settings):
        asked.append(len(queries))
        return search(self, queries, k, **settings)

    monkeypatch.setattr(FaissBackend, "search", watched)
    index.search(queries, 5)
    assert asked[0] == 50
    assert 1 <= asked[1] < 50


@pytest.mark.parametrize("k", [1, 5, 40])
def test_the_best_of_many_changes_are_found(numbers, quick_path, queries, k):
    index = build_index(numbers, quick_path / "index", factory="SQ8")
    index.add([number(i) for i in range(290, 330)], Numbers())
    positions, similarities = index.search(queries, k)
    expected = queries @ index.vectors.T
    heads = [[head[0] for head in index.heads(row)] for row in positions]
    order = np.argsort(-expected, axis=1)[:, :k]
    ids = np.asarray([entity.id for entity in index])
    assert heads == ids[order].tolist()
    np.testing.assert_allclose(similarities, np.take_along_axis(expected, order, axis=1), rtol=1e-5)


# Names


def named_search(index, queries, texts, k, weight, popularity=0.0):
    """What a plain loop finds: every entity, its similarity plus `popularity`, plus the weight if it bears
    the name.
    """
    similarities = queries @ np.asarray(index.vectors).T + popularity
    for row, text in enumerate(texts):
        digits = text.removeprefix("number ")
        if digits.isdigit():
            similarities[row, int(digits)] += weight
    return np.argsort(-similarities, axis=1)[:, :k], -np.sort(-similarities, axis=1)[:, :k]


def test_bearers_of_a_name_come_in_with_their_weight(numbers, quick_path, queries):
    index = build_index(numbers, quick_path / "index")
    texts = [f"number {i}" if i % 2 else "nobody" for i in range(len(queries))]
    positions, similarities = index.search(queries, 5, names=texts, prior=Prior(name_weight=100.0))
    expected, scores = named_search(index, queries, texts, 5, 100.0)
    np.testing.assert_array_equal(positions, expected)
    np.testing.assert_allclose(similarities, scores, rtol=1e-5)
    assert positions[1, 0] == 1
    assert all(len(set(row)) == 5 for row in positions.tolist())


def test_a_small_weight_changes_the_order_only_a_little(numbers, quick_path, queries):
    index = build_index(numbers, quick_path / "index")
    best = index.search(queries, 1)[0][:, 0]
    texts = [f"number {position}" for position in best]
    positions, similarities = index.search(queries, 3, names=texts, prior=Prior(name_weight=0.5))
    plain, before = index.search(queries, 3)
    np.testing.assert_array_equal(positions, plain)
    np.testing.assert_allclose(similarities[:, 0], before[:, 0] + 0.5, rtol=1e-5)


def test_names_without_bearers_change_nothing(numbers, quick_path, queries):
    index = build_index(numbers, quick_path / "index")
    found = index.search(queries, 5, names=["nobody"] * len(queries), prior=Prior(name_weight=9.0))
    for a, b in zip(found, index.search(queries, 5), strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize(
    ("text", "gained"),
    [
        ("Paris", {0: 8.0, 1: 6.0}),
        ("city of light", {0: 6.0}),
        ("pariss", {0: 4.0, 1: 4.0}),
    ],
)
def test_a_title_gets_the_whole_weight_and_other_names_less(index, text, gained):
    query = np.asarray(index.vectors[2:3])
    prior = Prior(name_weight=8.0, alias_share=0.75)
    (positions,), (similarities,) = index.search(query, 10, names=[text], prior=prior)
    more = similarities - (index.vectors @ query[0])[positions]
    expected = [gained.get(position, 0.0) for position in positions.tolist()]
    np.testing.assert_allclose(more, expected, atol=1e-3)


# Popularity


def popularity_of(i):
    return (i * 37) % 1000


LOG_POPULARITY = np.log1p([popularity_of(i) for i in range(300)])


@pytest.fixture(scope="module")
def popular(tmp_path_factory):
    """The same 300 entities, each of another popularity."""
    folder = tmp_path_factory.mktemp("popular")
    return build_index(encode_numbers(folder, 300, popularity=popularity_of), folder / "index")


def test_the_popularity_of_entities_is_in_the_index(popular, numbers):
    np.testing.assert_allclose(popular.popularity_at(np.arange(300)), LOG_POPULARITY, rtol=1e-6)
    assert not EntityIndex.open(numbers).popularity_at(np.arange(300)).any()


def test_popularity_is_added_with_its_weight(popular, queries):
    positions, similarities = popular.search(queries, 60, prior=Prior(popularity_weight=0.7))
    expected, scores = named_search(popular, queries, [], 60, 0.0, 0.7 * LOG_POPULARITY)
    np.testing.assert_array_equal(positions, expected)
    np.testing.assert_allclose(similarities, scores, rtol=1e-4)


def test_popularity_counts_for_nothing_unless_asked_for(popular, numbers, quick_path, queries):
    assert_same_answers(popular, build_index(numbers, quick_path / "index"), queries)


def test_a_popular_entity_comes_in_from_beyond_the_nearest(popular, queries):
    nearest = popular.search(queries, 25)[0]
    positions, _ = popular.search(queries, 5, prior=Prior(popularity_weight=1e5))
    best = LOG_POPULARITY[nearest].argmax(axis=1)
    assert (best >= 5).any()
    np.testing.assert_array_equal(positions[:, 0], np.take_along_axis(nearest, best[:, None], axis=1)[:, 0])


def test_popularity_counts_among_the_nearest_only_however_many_are_scored(popular, quick_path, queries):
    compressed = build_index(popular.path, quick_path / "index", factory="SQ8", widths={"rescore": 300})
    for weight in (0.7, 1e5):
        expected = popular.search(queries, 5, prior=Prior(popularity_weight=weight))
        found = compressed.search(queries, 5, prior=Prior(popularity_weight=weight))
        np.testing.assert_array_equal(found[0], expected[0])
        np.testing.assert_allclose(found[1], expected[1], rtol=1e-5)


def test_names_and_popularity_add_up(popular, queries):
    texts = [f"number {i}" if i % 2 else "nobody" for i in range(len(queries))]
    positions, similarities = popular.search(
        queries, 60, names=texts, prior=Prior(name_weight=4.0, popularity_weight=0.7)
    )
    expected, scores = named_search(popular, queries, texts, 60, 4.0, 0.7 * LOG_POPULARITY)
    np.testing.assert_array_equal(positions, expected)
    np.testing.assert_allclose(similarities, scores, rtol=1e-4)


# Choosing


@settings(deadline=None, max_examples=60)
@given(
    hnp.arrays(
        "float32", st.tuples(st.integers(1, 3), st.integers(1, 6)), elements=st.sampled_from([0, 1, 2])
    ),
    st.integers(1, 8),
    st.data(),
)
def test_the_best_are_chosen_and_the_rest_is_filled(similarities, k, data):
    missing = data.draw(hnp.arrays(bool, similarities.shape))
    similarities = np.where(missing, -np.inf, similarities)
    positions = np.tile(np.arange(similarities.shape[1])[::-1], (len(similarities), 1))
    found, scores = best_candidates(positions, similarities, k)
    assert found.shape == scores.shape == (len(similarities), k)
    for row in range(len(similarities)):
        pairs = zip((-similarities[row]).tolist(), positions[row].tolist(), strict=True)
        expected = sorted(pair for pair in pairs if pair[0] < np.inf)[:k]
        expected += [(np.inf, -1)] * (k - len(expected))
        assert list(zip((-scores[row]).tolist(), found[row].tolist(), strict=True)) == expected


# Reading


def test_entities_are_found_by_position_and_by_id(index):
    assert len(index) == len(ENTITIES)
    expected = [entity_from_dict(entity) for entity in ENTITIES]
    assert [index.entity(i) for i in range(len(index))] == expected
    assert list(index) == expected
    assert index.positions(["E3", "E404", "E1"]).tolist() == [2, -1, 0]
    assert index["E3"] == expected[2]
    assert "E3" in index
    assert "E404" not in index
    assert 3 not in index
    with pytest.raises(KeyError, match="E404"):
        index["E404"]
    with pytest.raises(IndexError):
        index.entity(99)


def test_the_vectors_are_those_of_the_encoder(index, entity_encoder):
    expected = entity_encoder.encode([entity_from_dict(entity) for entity in ENTITIES], batch_size=1)
    assert index.width == entity_encoder.width
    np.testing.assert_allclose(index.vectors, expected, atol=1e-5)
    np.testing.assert_array_equal(index.vectors_at(np.asarray([[3, 1]])), index.vectors[[[3, 1]]])


def test_entities_with_a_name_come_most_popular_first(quick_path):
    entities = [
        Entity("a", "Rome", popularity=3),
        Entity("b", "Bern", aliases=("Rome",), popularity=99),
        Entity("c", "Rome, Georgia", popularity=7),
        Entity("d", "Rome", popularity=9),
        Entity("e", "Roma"),
    ]
    index = build_index(encode(quick_path, entities), quick_path / "index")
    assert [entity.id for entity in index.find("rome")] == ["b", "d", "c", "a"]
    assert [entity.id for entity in index.find("rome", within={"ids": ["a", "d"]})] == ["d", "a"]
    assert index.find("nobody") == []
