import json
import os
import pickle
import shutil

import numpy as np
import pytest
from conftest import ENTITIES

from spacy_elq.catalogue import entity_from_dict
from spacy_elq.core.similarity import Prior
from spacy_elq.errors import ELQError
from spacy_elq.index import EntityIndex, build_index, build_index_loader, copy_index, encode_catalogue
from spacy_elq.index.backend import FaissBackend

WIDTH = 16


class Numbers:
    """An encoder that needs no model: the id of an entity seeds its vector."""

    width = WIDTH
    fingerprint = "numbers"
    settings = {"name": "numbers"}

    def encode(self, entities, *, batch_size):
        seeds = [np.random.default_rng(int(entity.id)) for entity in entities]
        return np.stack([seed.normal(size=WIDTH).astype("float32") for seed in seeds])


def encode_numbers(folder, count, encoder=None, popularity=lambda i: 0):
    lines = [
        json.dumps({"id": str(i), "title": f"Number {i}", "popularity": popularity(i)}) for i in range(count)
    ]
    catalogue = folder / "numbers.jsonl"
    catalogue.write_text("\n".join(lines))
    return encode_catalogue(catalogue, folder / "vectors", encoder or Numbers()).path


@pytest.fixture(scope="module")
def numbers(tmp_path_factory):
    """The vectors of 300 entities."""
    return encode_numbers(tmp_path_factory.mktemp("numbers"), 300)


@pytest.fixture(scope="module")
def queries():
    return np.random.default_rng(7).normal(size=(50, WIDTH)).astype("float32")


@pytest.fixture
def hnsw(numbers, tmp_path):
    return build_index(numbers, tmp_path / "index", factory="HNSW128")


def names(folder):
    return {path.name for path in folder.iterdir()}


def names_in_meta(index):
    return {"meta.json", *(entry["name"] for entry in index.meta["files"].values())}


def assert_same_answers(a, b, queries):
    for x, y in zip(a.search(queries, 5), b.search(queries, 5), strict=True):
        np.testing.assert_array_equal(x, y)


# Reading


def test_entities_are_found_by_position_and_by_id(index):
    assert len(index) == len(ENTITIES)
    assert [index.entity(i) for i in range(len(index))] == [entity_from_dict(entity) for entity in ENTITIES]
    assert index.positions(["E3", "E404", "E1"]).tolist() == [2, -1, 0]


def test_the_vectors_are_those_of_the_encoder(index, entity_encoder):
    expected = entity_encoder.encode([entity_from_dict(entity) for entity in ENTITIES], batch_size=1)
    assert index.width == entity_encoder.width
    np.testing.assert_allclose(index.vectors, expected, atol=1e-5)


def test_the_stamp_tells_what_is_in_the_index(index, vectors_path, entity_encoder):
    assert index.stamp == EntityIndex.open(vectors_path).stamp
    assert index.stamp == {
        "catalogue": index.meta["catalogue"],
        "encoder": entity_encoder.fingerprint,
        "count": 10,
        "width": 48,
    }


def test_a_missing_folder_is_an_error_with_the_commands_to_type(tmp_path):
    with pytest.raises(ELQError, match=r"is not an entity index.*elq encode.*elq index") as error:
        EntityIndex.open(tmp_path / "nowhere")
    assert str(tmp_path / "nowhere") in str(error.value)


@pytest.mark.parametrize(
    "role",
    [
        "vectors.npy",
        "records.jsonl",
        "offsets.npy",
        "ids.npy",
        "names.npy",
        "popularity.npy",
        "search.faiss",
    ],
)
@pytest.mark.parametrize("damage", ["is missing", "bytes instead of"])
def test_every_file_is_checked(hnsw, tmp_path, role, damage):
    folder = shutil.copytree(hnsw.path, tmp_path / "copy")
    path = folder / hnsw.meta["files"][role]["name"]
    if damage == "is missing":
        path.unlink()
    else:
        path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(ELQError, match=f"{path.name} .*{damage}.*elq index VECTORS {folder}"):
        EntityIndex.open(folder)


def test_pickle_opens_the_index_again(numbers, tmp_path, queries, monkeypatch):
    build_index(numbers, tmp_path / "index")
    monkeypatch.chdir(tmp_path)
    opened = EntityIndex.open("index")
    data = pickle.dumps(opened)
    assert len(data) < 1000
    monkeypatch.chdir("/")
    assert_same_answers(pickle.loads(data), opened, queries)


def test_the_loader_opens_when_it_is_called(index, tmp_path):
    assert build_index_loader(index.path)().stamp == index.stamp
    loader = build_index_loader(tmp_path / "nowhere")
    with pytest.raises(ELQError, match="nowhere"):
        loader()


# Searching


def test_vectors_alone_cannot_be_searched(numbers, queries):
    with pytest.raises(ELQError, match=f"elq index {numbers} INDEX"):
        EntityIndex.open(numbers).search(queries, 5)


def test_queries_of_another_width_are_an_error(index):
    with pytest.raises(ELQError, match="Queries of width 3 for an index of width 48"):
        index.search(np.zeros((1, 3), dtype="float32"), 5)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_flat_is_exact(numbers, tmp_path, queries, dtype):
    index = build_index(numbers, tmp_path / "index", factory="Flat")
    positions, similarities = index.search(queries.astype(dtype), 10)
    scores = queries @ index.vectors.T
    np.testing.assert_array_equal(positions, np.argsort(-scores, axis=1)[:, :10])
    np.testing.assert_allclose(similarities, -np.sort(-scores, axis=1)[:, :10], rtol=1e-5)
    assert similarities.dtype == np.float32


@pytest.mark.parametrize("factory", ["HNSW128", "SQ8", "SQ4", "IVF1,SQ8"])
def test_whatever_finds_the_stored_vectors_score(numbers, tmp_path, queries, factory):
    index = build_index(numbers, tmp_path / "index", factory=factory)
    positions, similarities = index.search(queries, 10)
    scores = np.take_along_axis(queries @ index.vectors.T, positions, axis=1)
    np.testing.assert_allclose(similarities, scores, rtol=1e-4, atol=1e-5)
    assert (np.diff(similarities, axis=1) <= 0).all()


def found_by_backend(index, queries, k):
    path = index.path / index.meta["files"]["search.faiss"]["name"]
    return FaissBackend(index.vectors, path, index.meta["backend"]).search(queries, k)


def exact(index, queries, k):
    return np.argsort(-(queries @ index.vectors.T), axis=1)[:, :k]


def test_more_candidates_are_scored_than_asked_for(numbers, tmp_path, queries):
    index = build_index(numbers, tmp_path / "index", factory="SQ4")
    expected = exact(index, queries, 10)
    assert (np.sort(found_by_backend(index, queries, 10)) != np.sort(expected)).any(), "lossy enough"
    np.testing.assert_array_equal(index.search(queries, 10)[0], expected)


def test_rescore_says_how_many(numbers, tmp_path, queries):
    index = build_index(numbers, tmp_path / "index", factory="SQ4", widths={"rescore": 12})
    found = found_by_backend(index, queries, 12)
    positions, _ = index.search(queries, 10)
    assert all(set(a) <= set(b) for a, b in zip(positions.tolist(), found.tolist(), strict=True))
    assert (positions != exact(index, queries, 10)).any()


def test_popularity_counts_among_the_nearest_only_however_many_are_scored(popular, tmp_path, queries):
    compressed = build_index(popular.path, tmp_path / "index", factory="SQ8", widths={"rescore": 300})
    for weight in (0.7, 1e5):
        expected = popular.search(queries, 5, prior=Prior(popularity_weight=weight))
        found = compressed.search(queries, 5, prior=Prior(popularity_weight=weight))
        np.testing.assert_array_equal(found[0], expected[0])
        np.testing.assert_allclose(found[1], expected[1], rtol=1e-5)


def test_vectors_of_candidates_are_read_from_the_file(numbers, tmp_path, queries):
    """Not through the mapping, whose pages would count as memory."""
    index = build_index(numbers, tmp_path / "index", factory="SQ8")
    expected = index.search(queries, 10, names=["number 7"] * 50, prior=Prior(name_weight=1.0))
    index.vectors = np.full_like(index.vectors, np.nan)
    found = index.search(queries, 10, names=["number 7"] * 50, prior=Prior(name_weight=1.0))
    for a, b in zip(found, expected, strict=True):
        np.testing.assert_array_equal(a, b)


def test_without_reading_at_a_place_everything_is_mapped(numbers, tmp_path, queries, monkeypatch):
    texts = ["number 7"] * len(queries)
    expected = build_index(numbers, tmp_path / "index", factory="SQ8").search(
        queries, 5, names=texts, prior=Prior(name_weight=1.0)
    )
    monkeypatch.delattr(os, "pread")
    index = EntityIndex.open(tmp_path / "index")
    for a, b in zip(
        index.search(queries, 5, names=texts, prior=Prior(name_weight=1.0)), expected, strict=True
    ):
        np.testing.assert_array_equal(a, b)
    assert index.entity(7).title == "Number 7"


def test_equal_similarities_are_ordered_by_position(tmp_path):
    class Same(Numbers):
        def encode(self, entities, *, batch_size):
            return np.ones((len(entities), WIDTH), dtype="float32")

    index = build_index(encode_numbers(tmp_path, 50, Same()), tmp_path / "index", factory="HNSW32")
    positions, _ = index.search(np.ones((1, WIDTH)), 50)
    assert positions.tolist() == [sorted(positions[0].tolist())]


@pytest.mark.parametrize("popularity_weight", [0.0, 1.0])
def test_what_was_not_found_stands_last(numbers, tmp_path, queries, popularity_weight):
    index = build_index(numbers, tmp_path / "index", factory="IVF7,Flat")
    positions, similarities = index.search(queries, 300, prior=Prior(popularity_weight=popularity_weight))
    np.testing.assert_array_equal(positions == -1, np.isneginf(similarities))
    assert (positions[:, 0] >= 0).all()
    assert (positions[:, -1] == -1).all()


def test_k_is_at_most_the_size_of_the_catalogue(index):
    positions, similarities = index.search(np.asarray(index.vectors[:3]), 99)
    assert positions.shape == similarities.shape == (3, 10)
    assert [sorted(row) for row in positions.tolist()] == [list(range(10))] * 3


@pytest.mark.parametrize("factory", ["Flat", "HNSW128"])
def test_a_catalogue_of_one_entity(tmp_path, factory):
    index = build_index(encode_numbers(tmp_path, 1), tmp_path / "index", factory=factory)
    positions, similarities = index.search(np.asarray(index.vectors), 10)
    assert positions.tolist() == [[0]]
    np.testing.assert_allclose(similarities, [[np.square(index.vectors).sum()]], rtol=1e-5)


def test_no_queries_have_no_candidates(index):
    positions, similarities = index.search(np.zeros((0, 48), dtype="float32"), 4)
    assert positions.shape == similarities.shape == (0, 4)
    assert (positions.dtype, similarities.dtype) == (np.int64, np.float32)


def test_many_queries_are_answered_as_one_by_one(index):
    queries = np.random.default_rng(0).normal(size=(2500, 48)).astype("float32")
    positions, similarities = index.search(queries, 3)
    assert len(positions) == 2500
    chosen = [0, 1, 1023, 1024, 1025, 2047, 2048, 2499]
    single = [index.search(queries[i : i + 1], 3) for i in chosen]
    np.testing.assert_array_equal(positions[chosen], np.concatenate([x[0] for x in single]))
    np.testing.assert_allclose(similarities[chosen], np.concatenate([x[1] for x in single]), rtol=1e-5)


# Building


def test_meta_says_how_it_is_searched(hnsw, numbers, tmp_path):
    assert hnsw.meta["backend"] == {"factory": "HNSW128", "efConstruction": 200, "efSearch": 256}
    assert build_index(numbers, tmp_path / "default").meta["backend"] == {"factory": "Flat"}
    assert "backend" not in EntityIndex.open(numbers).meta


def test_the_vectors_stay_usable(numbers, hnsw, queries):
    vectors = EntityIndex.open(numbers)
    assert vectors.stamp == hnsw.stamp
    np.testing.assert_array_equal(vectors.vectors, hnsw.vectors)


def test_an_index_can_be_built_from_another(hnsw, tmp_path, queries):
    flat = build_index(hnsw.path, tmp_path / "flat", factory="Flat")
    assert flat.meta["backend"] == {"factory": "Flat"}
    assert flat.stamp == hnsw.stamp
    assert_same_answers(flat, hnsw, queries)


def test_an_index_can_be_rebuilt_from_itself(hnsw, queries):
    assert_same_answers(build_index(hnsw.path, hnsw.path, factory="Flat"), hnsw, queries)


def test_an_open_index_survives_its_replacement(hnsw, numbers, queries, tmp_path):
    before, old = hnsw.search(queries, 5), names(hnsw.path)
    smaller = encode_numbers(tmp_path, 20)
    new = build_index(smaller, hnsw.path, factory="Flat")
    assert (len(new), len(hnsw)) == (20, 300)
    np.testing.assert_array_equal(hnsw.search(queries, 5), before)
    assert hnsw.entity(299).title == "Number 299"
    assert hnsw.positions(["299"]).tolist() == [299]
    assert names(hnsw.path) == names_in_meta(new)
    assert names(hnsw.path) & old == {"meta.json"}


@pytest.mark.parametrize("factory", ["Nonsense", "IVF1000,Flat"])
def test_a_failed_build_leaves_the_old_index(hnsw, numbers, queries, factory):
    with pytest.raises(ELQError, match=factory):
        build_index(numbers, hnsw.path, factory=factory)
    assert_same_answers(EntityIndex.open(hnsw.path), hnsw, queries)
    assert names(hnsw.path) == names_in_meta(hnsw)


def test_a_failed_build_leaves_no_folder(numbers, tmp_path):
    with pytest.raises(ELQError, match="E034"), pytest.warns(UserWarning, match="W003"):
        build_index(numbers, tmp_path / "index", factory="IVF1000,Flat")
    assert not (tmp_path / "index").exists()


def test_a_killed_build_leaves_the_old_index(hnsw, numbers, queries, monkeypatch):
    def killed(*args, **kwargs):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("spacy_elq.index.entity_index.commit", killed)
        with pytest.raises(KeyboardInterrupt):
            build_index(numbers, hnsw.path, factory="Flat")
    assert_same_answers(EntityIndex.open(hnsw.path), hnsw, queries)


def test_missing_vectors_make_no_index_folder(tmp_path):
    with pytest.raises(ELQError, match="nowhere"):
        build_index(tmp_path / "nowhere", tmp_path / "index")
    assert not (tmp_path / "index").exists()


@pytest.mark.parametrize("factory", ["HNSW16_SQ8", None])
def test_an_index_of_the_same_kind_is_searched_otherwise_without_building_it(
    numbers, tmp_path, monkeypatch, factory
):
    def refuse(*args, **kwargs):
        raise AssertionError

    first = build_index(numbers, tmp_path / "index", factory="HNSW16_SQ8", widths={"rescore": 50})
    monkeypatch.setattr("spacy_elq.index.entity_index.build_backend", refuse)
    build_index(first.path, first.path, factory=factory, widths={"efSearch": 9})
    expected = {"factory": "HNSW16_SQ8", "efConstruction": 200, "efSearch": 9, "rescore": 50}
    assert EntityIndex.open(first.path).meta["backend"] == expected


def test_an_index_of_another_kind_is_built_anew(hnsw, tmp_path, queries):
    index = build_index(hnsw.path, tmp_path / "other", factory="HNSW16_SQ8")
    assert found_by_backend(index, queries, 5).shape == (50, 5)
    names = [meta["files"]["search.faiss"]["bytes"] for meta in (index.meta, hnsw.meta)]
    assert names[0] < names[1]


def test_no_room_on_the_disk_is_said_before_anything_is_written(numbers, tmp_path, monkeypatch):
    monkeypatch.setattr(shutil, "disk_usage", lambda path: shutil._ntuple_diskusage(10**9, 10**9, 10_000))
    with pytest.raises(ELQError, match=r"E083.*new/index.*about 0 MB are needed, 0 MB are free"):
        build_index(numbers, tmp_path / "new" / "index", factory="HNSW128")
    assert not (tmp_path / "new").exists()
    assert len(build_index(numbers, tmp_path / "new" / "index", factory="Flat")) == 300, "needs no room"


def test_the_room_for_vectors_counts_where_they_have_to_be_copied(numbers, tmp_path, monkeypatch):
    monkeypatch.setattr(shutil, "disk_usage", lambda path: shutil._ntuple_diskusage(10**9, 10**9, 10_000))
    monkeypatch.setattr("spacy_elq.index.store._device", lambda path: str(path).startswith(str(tmp_path)))
    with pytest.raises(ELQError, match="E083"):
        build_index(numbers, tmp_path / "index", factory="Flat")


# Copying


@pytest.mark.parametrize("links", [True, False])
def test_a_copy_is_equal_and_stands_alone(hnsw, tmp_path, queries, monkeypatch, links):
    def refuse(*args):
        raise OSError

    if not links:
        monkeypatch.setattr(os, "link", refuse)
    copy_index(hnsw, tmp_path / "a" / "copy")
    shutil.rmtree(hnsw.path)
    copied = EntityIndex.open(tmp_path / "a" / "copy")
    assert copied.meta == hnsw.meta
    assert_same_answers(copied, hnsw, queries)


def test_a_copy_takes_no_space_where_links_are_possible(hnsw, tmp_path):
    copy_index(hnsw, tmp_path / "copy")
    name = hnsw.meta["files"]["vectors.npy"]["name"]
    assert (tmp_path / "copy" / name).samefile(hnsw.path / name)


def test_copying_again_or_onto_itself_changes_nothing(hnsw, tmp_path, queries):
    for folder in (hnsw.path, tmp_path / "copy", tmp_path / "copy"):
        copy_index(hnsw, folder)
        assert names(folder) == names_in_meta(hnsw)
        assert_same_answers(EntityIndex.open(folder), hnsw, queries)


def test_copying_again_mends_a_copy_that_was_killed(hnsw, tmp_path):
    copy = tmp_path / "copy"
    copy.mkdir()
    (copy / hnsw.meta["files"]["vectors.npy"]["name"]).write_bytes(b"half")
    copy_index(hnsw, copy)
    EntityIndex.open(copy)


def test_a_copy_replaces_the_index_that_was_there(hnsw, numbers, tmp_path):
    copy_index(build_index(numbers, tmp_path / "flat"), tmp_path / "copy")
    copy_index(hnsw, tmp_path / "copy")
    assert names(tmp_path / "copy") == names_in_meta(hnsw)


def named_search(index, queries, texts, k, weight, popularity=0.0):
    """What a plain loop finds: every entity, its similarity plus `popularity`, plus the weight if it bears
    the name.
    """
    similarities = queries @ np.asarray(index.vectors).T + popularity
    for row, text in enumerate(texts):
        number = text.removeprefix("number ")
        if number.isdigit():
            similarities[row, int(number)] += weight
    return np.argsort(-similarities, axis=1)[:, :k], -np.sort(-similarities, axis=1)[:, :k]


def test_bearers_of_a_name_come_in_with_their_weight(numbers, tmp_path, queries):
    index = build_index(numbers, tmp_path / "index")
    texts = [f"number {i}" if i % 2 else "nobody" for i in range(len(queries))]
    positions, similarities = index.search(queries, 5, names=texts, prior=Prior(name_weight=100.0))
    expected, scores = named_search(index, queries, texts, 5, 100.0)
    np.testing.assert_array_equal(positions, expected)
    np.testing.assert_allclose(similarities, scores, rtol=1e-5)
    assert positions[1, 0] == 1
    assert all(len(set(row)) == 5 for row in positions.tolist())


def test_a_small_weight_changes_the_order_only_a_little(numbers, tmp_path, queries):
    index = build_index(numbers, tmp_path / "index")
    best = index.search(queries, 1)[0][:, 0]
    texts = [f"number {position}" for position in best]
    positions, similarities = index.search(queries, 3, names=texts, prior=Prior(name_weight=0.5))
    plain, before = index.search(queries, 3)
    np.testing.assert_array_equal(positions, plain)
    np.testing.assert_allclose(similarities[:, 0], before[:, 0] + 0.5, rtol=1e-5)


def test_names_without_bearers_change_nothing(numbers, tmp_path, queries):
    index = build_index(numbers, tmp_path / "index")
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
    np.testing.assert_allclose(popular.log_popularity, LOG_POPULARITY, rtol=1e-6)
    assert not EntityIndex.open(numbers).log_popularity.any()


def test_popularity_is_added_with_its_weight(popular, queries):
    positions, similarities = popular.search(queries, 60, prior=Prior(popularity_weight=0.7))
    expected, scores = named_search(popular, queries, [], 60, 0.0, 0.7 * LOG_POPULARITY)
    np.testing.assert_array_equal(positions, expected)
    np.testing.assert_allclose(similarities, scores, rtol=1e-4)


def test_popularity_counts_for_nothing_unless_asked_for(popular, numbers, tmp_path, queries):
    assert_same_answers(popular, build_index(numbers, tmp_path / "index"), queries)


def test_a_popular_entity_comes_in_from_beyond_the_nearest(popular, queries):
    nearest = popular.search(queries, 25)[0]
    positions, _ = popular.search(queries, 5, prior=Prior(popularity_weight=1e5))
    best = LOG_POPULARITY[nearest].argmax(axis=1)
    assert (best >= 5).any()
    np.testing.assert_array_equal(positions[:, 0], np.take_along_axis(nearest, best[:, None], axis=1)[:, 0])


def test_names_and_popularity_add_up(popular, queries):
    texts = [f"number {i}" if i % 2 else "nobody" for i in range(len(queries))]
    positions, similarities = popular.search(
        queries, 60, names=texts, prior=Prior(name_weight=4.0, popularity_weight=0.7)
    )
    expected, scores = named_search(popular, queries, texts, 60, 4.0, 0.7 * LOG_POPULARITY)
    np.testing.assert_array_equal(positions, expected)
    np.testing.assert_allclose(similarities, scores, rtol=1e-4)


def test_vectors_of_the_format_before_popularity_are_refused(popular, tmp_path):
    folder = shutil.copytree(popular.path, tmp_path / "copy")
    meta = json.loads((folder / "meta.json").read_text())
    assert meta["format"] == 2
    (folder / "meta.json").write_text(json.dumps({**meta, "format": 1}))
    with pytest.raises(ELQError, match=r"has format 1, .* reads format 2"):
        EntityIndex.open(folder)
