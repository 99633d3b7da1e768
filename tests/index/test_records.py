import json
import os
import tempfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spacy_elq.catalogue import entity_to_dict
from spacy_elq.errors import ELQError
from spacy_elq.index import open_catalogue
from spacy_elq.index import records as module
from spacy_elq.index.pieces import Pieces
from spacy_elq.index.records import ROLES, Records, write_records
from spacy_elq.types import Entity

ENTITIES = [
    Entity("E1", "Zürich", "A city.\nIn two lines.", ("Züri",), "GPE", {"wikidata": "Q72"}),
    Entity("E2", "東京"),
    Entity("É", "😀", "A face."),
]


def store(folder, entities):
    write_records(entities, Path(folder))
    return Records(*(Path(folder) / name for name in ROLES))


def digest_of(folder, entities):
    return write_records(entities, folder)[1]


def test_entities_come_back_by_position(tmp_path):
    records = store(tmp_path, ENTITIES)
    assert len(records) == 3
    assert [records.get(i) for i in range(3)] == ENTITIES
    assert records.get(np.int64(1)) == ENTITIES[1]


def test_ids_titles_and_labels_are_read_without_the_rest(tmp_path):
    odd = [
        Entity('a "b" \\', "two\nlines \u0085 \\u0041", "x", label='L"\u00e9'),
        Entity("\t", '"', '"label": "no"', ids={"label": "no"}),
        Entity("c", "c", '"ids": {', aliases=("label", '"ids": {'), label="yes", ids={"label": "no"}),
    ]
    records = store(tmp_path, [*ENTITIES, *odd])
    positions = np.asarray([4, 0, 3, 3, 1, 2, 5])
    assert records.heads(positions) == [(e.id, e.title, e.label) for e in map(records.get, positions)]
    assert records.heads(positions[:0]) == []


def test_a_stream_is_enough(tmp_path):
    assert len(store(tmp_path, iter(ENTITIES))) == 3


@settings(deadline=None)
@given(st.lists(st.text(), unique=True, min_size=1, max_size=20), st.lists(st.text(), max_size=5))
def test_every_id_is_found_and_no_other(ids, others):
    with tempfile.TemporaryDirectory() as folder:
        records = store(folder, [Entity(id_, "title") for id_ in ids])
        assert records.positions(ids).tolist() == list(range(len(ids)))
        assert records.positions(ids[::-1]).tolist() == list(range(len(ids)))[::-1]
        expected = [ids.index(other) if other in ids else -1 for other in others]
        assert records.positions(others).tolist() == expected


def test_ids_are_compared_as_they_are_spelled(tmp_path):
    records = store(tmp_path, ENTITIES)
    assert records.positions(["e1", "E1 ", "E\u0301", "", "E1"]).tolist() == [-1, -1, -1, -1, 0]


def test_ids_with_the_same_hash_are_told_apart(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "hash_text", lambda id_: 7)
    records = store(tmp_path, ENTITIES)
    assert records.positions(["E2", "E1", "É", "E404"]).tolist() == [1, 0, 2, -1]


def test_no_ids_have_no_positions(tmp_path):
    positions = store(tmp_path, ENTITIES).positions([])
    assert positions.shape == (0,)
    assert positions.dtype == np.int64


def test_write_gives_the_count_and_a_digest_that_stays(tmp_path):
    count, digest = write_records(ENTITIES, tmp_path)
    assert count == 3
    assert digest == digest_of(tmp_path, ENTITIES)


@pytest.mark.parametrize(
    "entities",
    [
        ENTITIES[:2],
        ENTITIES[::-1],
        [*ENTITIES[:2], Entity("É", "😀", "A face!")],
        [*ENTITIES[:2], Entity("É", "😀", "A face.", ids={"a": "b"})],
        [*ENTITIES[:2], Entity("É", "😀", "A face.", popularity=1)],
    ],
    ids=["fewer", "other order", "other description", "other ids", "other popularity"],
)
def test_the_digest_tells_catalogues_apart(tmp_path, entities):
    assert digest_of(tmp_path, entities) != digest_of(tmp_path, ENTITIES)


@pytest.mark.parametrize("share", [1.0, 0.75, 0.6])
def test_every_bearer_of_a_name_is_found_and_other_names_count_their_share(tmp_path, share):
    paris = [
        Entity("E1", "Paris"),
        Entity("E2", "Paris, Texas"),
        Entity("E3", "Rome", aliases=("The PARIS",)),
    ]
    found = store(tmp_path, paris).match_names(["rome", "nobody", "", "the Paris"], alias_share=share)
    assert list(zip(*(array.tolist() for array in found), strict=True)) == [
        (0, 2, 1.0),
        (3, 0, 1.0),
        (3, 1, share),
        (3, 2, share),
    ]


@pytest.mark.parametrize("share", [1.0, 0.5])
def test_a_similar_spelling_of_what_is_nobodys_name_counts_half(tmp_path, share):
    people = [
        Entity("E1", "Frida Kahlo"),
        Entity("E2", "Frieda Kalo", aliases=("La Kalo",)),
        Entity("E3", "Fred Cole"),
    ]
    texts = ["frida kahlo", "fridda kalo", "la kalo", "la kallo"]
    owners, positions, degrees = store(tmp_path, people).match_names(texts, alias_share=share)
    assert owners.tolist() == [0, 1, 1, 2, 3]
    assert positions.tolist() == [0, 0, 1, 1, 1]
    assert degrees.tolist() == [1.0, 0.5, 0.5, share, 0.5]


def test_keys_are_found_as_often_as_they_are_there():
    table = np.asarray([1, 3, 3, 7], dtype="uint64")
    begins, counts = module._find_all(table, np.asarray([3, 0, 7, 8, 2, 1], dtype="uint64"))
    assert counts.tolist() == [2, 0, 1, 0, 0, 1]
    assert begins[counts > 0].tolist() == [1, 3, 0]


def test_a_name_of_many_is_found_for_all_of_them(tmp_path):
    records = store(tmp_path, [Entity(str(i), "Rome" if i % 2 else "Bern") for i in range(40)])
    owners, positions, _ = records.match_names(["bern", "nobody", "rome", "bern"])
    assert owners.tolist() == [0] * 20 + [2] * 20 + [3] * 20
    evens, odds = list(range(0, 40, 2)), list(range(1, 40, 2))
    assert positions.tolist() == evens + odds + evens


@pytest.mark.parametrize("can_read_at_a_place", [True, False])
def test_pieces_of_a_file(tmp_path, monkeypatch, can_read_at_a_place):
    (tmp_path / "file").write_bytes(b"0123456789")
    if not can_read_at_a_place:
        monkeypatch.delattr("os.pread")
    pieces = Pieces(tmp_path / "file")
    (tmp_path / "file").unlink()
    assert pieces.read(3, 5) == b"34"
    assert pieces.read_all([8, 0, 8], 2) == b"890189"


def test_a_file_is_closed_when_its_pieces_are_not_used_any_more(tmp_path):
    (tmp_path / "file").write_bytes(b"x")
    pieces = Pieces(tmp_path / "file")
    number = pieces._file
    os.fstat(number)
    del pieces
    with pytest.raises(OSError, match="Bad file"):
        os.fstat(number)


def test_no_texts_have_no_bearers(tmp_path):
    assert [len(array) for array in store(tmp_path, ENTITIES).match_names([])] == [0, 0, 0]


@settings(deadline=None)
@given(st.lists(st.floats(0, 1e14), min_size=1, max_size=10))
def test_popularity_is_kept_as_a_logarithm(popularity):
    with tempfile.TemporaryDirectory() as folder:
        entities = [Entity(str(i), "title", popularity=value) for i, value in enumerate(popularity)]
        found = store(folder, entities).log_popularity
        np.testing.assert_allclose(found, np.log1p(popularity), rtol=1e-6, atol=1e-30)
        assert found.dtype == np.float32


def test_nobody_is_popular_unless_the_catalogue_says_so(tmp_path):
    assert store(tmp_path, ENTITIES).log_popularity.tolist() == [0.0, 0.0, 0.0]


@pytest.fixture
def catalogue(tmp_path):
    path = tmp_path / "entities.jsonl"
    lines = [json.dumps(entity_to_dict(entity)) for entity in [*ENTITIES, Entity("E4", "Rome", popularity=7)]]
    path.write_text("\n".join(lines), encoding="utf8")
    return path


def test_a_catalogue_can_be_looked_up_without_an_index(catalogue):
    records = open_catalogue(catalogue)
    assert len(records) == 4
    assert [records.get(i) for i in range(3)] == ENTITIES
    assert records.positions(["E4", "E404", "E1"]).tolist() == [3, -1, 0]
    assert records.match_names(["rome"])[1].tolist() == [3]
    np.testing.assert_allclose(records.log_popularity, [0, 0, 0, np.log(8)], rtol=1e-6)


def test_the_files_of_a_catalogue_last_as_long_as_it_is_used(catalogue, tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    used = [open_catalogue(catalogue)]
    (folder,) = tmp_path.glob("spacy-elq-*")
    assert {path.name for path in folder.iterdir()} == set(ROLES)
    with pytest.warns(ResourceWarning):
        used.clear()
    assert not folder.exists()


def test_a_broken_catalogue_is_an_error_with_its_line(catalogue):
    with catalogue.open("a") as file_:
        file_.write("\n{")
    with pytest.raises(ELQError, match="line 5"):
        open_catalogue(catalogue)


@settings(deadline=None)
@given(
    st.lists(
        st.sampled_from(["Paris", "paris!", "The", "", "!", "Pariss", "city of light", "x", "Citty of light"])
    )
)
def test_what_is_a_name_is_what_matches_as_one(texts):
    with tempfile.TemporaryDirectory() as folder:
        records = store(folder, [Entity("a", "Paris", aliases=("City of Light",)), Entity("b", "The")])
        owners, _, degrees = records.match_names(texts)
        expected = np.isin(np.arange(len(texts)), owners[degrees == 1.0])
        assert records.are_names(texts).tolist() == expected.tolist()
        assert records.are_names(["Paris", "City of Light", "x"]).tolist() == [True, True, False]
