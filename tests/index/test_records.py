import tempfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spacy_elq.index import records as module
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
    monkeypatch.setattr(module, "_hash", lambda id_: 7)
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
    ],
    ids=["fewer", "other order", "other description", "other ids"],
)
def test_the_digest_tells_catalogues_apart(tmp_path, entities):
    assert digest_of(tmp_path, entities) != digest_of(tmp_path, ENTITIES)


def test_every_bearer_of_a_name_is_found(tmp_path):
    paris = [
        Entity("E1", "Paris"),
        Entity("E2", "Paris, Texas"),
        Entity("E3", "Rome", aliases=("The PARIS",)),
    ]
    found = store(tmp_path, paris).match_names(["rome", "nobody", "", "the Paris"])
    assert list(zip(*(array.tolist() for array in found), strict=True)) == [
        (0, 2, 1.0),
        (3, 0, 1.0),
        (3, 1, 1.0),
        (3, 2, 1.0),
    ]


def test_a_similar_spelling_counts_half(tmp_path):
    people = [Entity("E1", "Frida Kahlo"), Entity("E2", "Frieda Kalo"), Entity("E3", "Fred Cole")]
    owners, positions, degrees = store(tmp_path, people).match_names(["frida kahlo", "fridda kalo"])
    assert owners.tolist() == [0, 0, 1, 1]
    assert positions.tolist() == [0, 1, 0, 1]
    assert degrees.tolist() == [1.0, 0.5, 0.5, 0.5]


def test_no_texts_have_no_bearers(tmp_path):
    assert [len(array) for array in store(tmp_path, ENTITIES).match_names([])] == [0, 0, 0]
