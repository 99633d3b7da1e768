import faiss
import numpy as np
import pytest

from spacy_elq.errors import ELQError
from spacy_elq.index.backend import EXACT_UP_TO, FaissBackend, build_backend, default_factory


@pytest.fixture(scope="module")
def vectors():
    return np.random.default_rng(0).normal(size=(300, 16)).astype("float32")


@pytest.fixture(scope="module")
def queries():
    return np.random.default_rng(1).normal(size=(20, 16)).astype("float32")


def build(vectors, path, factory):
    return build_backend(vectors, path, factory=factory, progress=False)


def best(queries, vectors, k):
    return np.argsort(-(queries @ vectors.T), axis=1)[:, :k]


@pytest.mark.parametrize(
    ("count", "factory"), [(1, "Flat"), (EXACT_UP_TO, "Flat"), (EXACT_UP_TO + 1, "HNSW128")]
)
def test_small_catalogues_are_searched_exactly(count, factory):
    assert default_factory(count) == factory


def test_flat_needs_no_file(vectors, queries, tmp_path):
    assert build(vectors, tmp_path / "x", "Flat") == {"factory": "Flat"}
    assert list(tmp_path.iterdir()) == []
    np.testing.assert_array_equal(FaissBackend(vectors, None).search(queries, 7), best(queries, vectors, 7))


@pytest.mark.parametrize("factory", ["HNSW128", "IVF1,Flat", "RR16,Flat"])
def test_any_factory_string_searches_by_inner_product(vectors, queries, tmp_path, factory):
    build(vectors, tmp_path / "x", factory)
    found = FaissBackend(vectors, tmp_path / "x").search(queries, 7)
    np.testing.assert_array_equal(found, best(queries, vectors, 7))


def test_hnsw_has_the_settings_of_the_paper(vectors, tmp_path):
    settings = build(vectors, tmp_path / "x", "HNSW128")
    assert settings == {"factory": "HNSW128", "efConstruction": 200, "efSearch": 256}
    hnsw = faiss.downcast_index(faiss.read_index(str(tmp_path / "x"))).hnsw
    assert (hnsw.efConstruction, hnsw.efSearch) == (200, 256)


def test_other_back_ends_have_no_hnsw_settings(vectors, tmp_path):
    assert build(vectors, tmp_path / "x", "SQ8") == {"factory": "SQ8"}


def test_the_same_vectors_give_the_same_file(vectors, tmp_path, monkeypatch):
    monkeypatch.setattr("spacy_elq.index.backend._TRAINING_VECTORS", 200)
    for name in "ab":
        build(vectors, tmp_path / name, "IVF4,SQ8")
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


def test_more_vectors_than_one_chunk_are_all_added(tmp_path, monkeypatch, vectors, queries):
    monkeypatch.setattr("spacy_elq.index.backend._CHUNK", 64)
    build(vectors, tmp_path / "x", "HNSW32")
    assert faiss.read_index(str(tmp_path / "x")).ntotal == 300
    found = FaissBackend(vectors, tmp_path / "x").search(queries, 3)
    np.testing.assert_array_equal(found, best(queries, vectors, 3))


def test_queries_of_any_layout_and_type(vectors, queries):
    backend = FaissBackend(vectors, None)
    expected = backend.search(queries, 5)
    np.testing.assert_array_equal(backend.search(np.asfortranarray(queries.astype("float64")), 5), expected)


def test_fewer_are_found_where_only_a_part_is_searched(vectors, queries, tmp_path):
    build(vectors, tmp_path / "x", "IVF8,Flat")
    found = FaissBackend(vectors, tmp_path / "x").search(queries, 300)
    assert (found[:, 0] >= 0).all()
    assert (found[:, -1] == -1).all()


@pytest.mark.parametrize(
    ("factory", "problem"),
    [
        ("Nonsense", "could not parse index string Nonsense"),
        ("PQ5", "multiple"),
        ("IVF301,Flat", "Number of training points"),
    ],
)
def test_what_faiss_does_not_take_is_said_with_a_way_out(vectors, tmp_path, factory, problem):
    with pytest.raises(ELQError, match=problem) as error:
        build(vectors, tmp_path / "x", factory)
    text = str(error.value)
    assert f"'{factory}' for 300 vectors of width 16" in text
    assert "'Flat' (exact) always works" in text
    assert "\n" not in text
    assert not (tmp_path / "x").exists()


def test_what_faiss_takes_only_at_first_is_said_too(vectors, tmp_path):
    with pytest.raises(ELQError, match="add_with_ids"):
        build(vectors, tmp_path / "x", "IDMap,Flat")


@pytest.mark.parametrize("factory", ["PQ5", "IVF301,Flat", "Nonsense"])
def test_the_text_of_faiss_has_no_c_plus_plus(vectors, tmp_path, factory):
    with pytest.raises(ELQError) as error:
        build(vectors, tmp_path / "x", factory)
    assert "::" not in str(error.value)
