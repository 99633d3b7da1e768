"""The Milvus back end, with Milvus Lite."""

import pytest
from index_world import Texts, ask, assert_same, encode, make_entity

pytest.importorskip("pymilvus", reason="needs spacy-elq[milvus]")
pytest.importorskip("milvus_lite", reason="needs spacy-elq[milvus]")

from spacy_elq.index import build_index, check_index

IDS = [f"E{i}" for i in range(20)]
ENTITIES = [make_entity(i) for i in range(10)]


@pytest.fixture
def uri(tmp_path):
    return str(tmp_path / "milvus.db")


def test_answers_like_faiss(quick_path, uri):
    vectors = encode(quick_path, ENTITIES)
    expected = build_index(vectors, quick_path / "faiss")
    found = build_index(vectors, quick_path / "milvus", uri=uri)
    assert_same(ask(found, ids=IDS), ask(expected, ids=IDS))
    for index in (expected, found):
        index.add([make_entity(i, 1) for i in range(7, 13)], Texts())
        index.remove(["E2", "E12"])
    assert_same(ask(found, ids=IDS), ask(expected, ids=IDS))
    assert check_index(found.path) == []
    assert found.compact()
    assert found.changes == 0
    assert_same(ask(found, ids=IDS), ask(expected, ids=IDS))
    assert check_index(found.path) == []
