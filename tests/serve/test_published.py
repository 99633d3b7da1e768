"""`serve.published`: the answer that clients of the published ELQ read."""

import math

import pytest

from spacy_elq.serve.published import to_published
from spacy_elq.types import Entity

TEXT = "when was  jaguar founded"
LINK = {
    "start": 10,
    "end": 16,
    "mention": "jaguar",
    "alternatives": [
        {"id": "E10", "title": "Jaguar Cars", "score": 0.9},
        {"id": "E9", "title": "J", "score": 0.0},
    ],
}
ENTITIES = {"E10": Entity("E10", "Jaguar Cars", ids={"wikidata": "Q26742231", "freebase": "m.0d3mdj"})}


@pytest.mark.parametrize(
    ("ids", "expected"),
    [("id", ["E10", "E9"]), ("wikidata", ["Q26742231", ""]), ("freebase", ["m.0d3mdj", ""])],
)
def test_a_list_for_each_mention_with_an_entry_for_each_candidate(ids, expected):
    answer = to_published(TEXT, [LINK], ENTITIES, ids=ids, positions={"E10": 4})
    (found,) = answer["detection_res"]
    assert found["text"] == TEXT
    assert found["dbpedia_ids"] == [expected]
    assert found["pred_tuples_string"] == [[["Jaguar Cars", "jaguar"], ["J", "jaguar"]]]
    assert found["scores"] == [[pytest.approx(math.log(0.9)), pytest.approx(math.log(1e-12))]]
    assert found["pred_triples"] == [[[4, -1], 2, 3]]
    assert TEXT.split()[2:3] == ["jaguar"]


@pytest.mark.parametrize(("start", "end", "words"), [(0, 4, [0, 1]), (0, 24, [0, 4]), (5, 12, [1, 3])])
def test_words_that_a_mention_touches(start, end, words):
    link = {**LINK, "start": start, "end": end}
    (found,) = to_published(TEXT, [link], ENTITIES, ids="id", positions={})["detection_res"]
    assert found["pred_triples"][0][1:] == words


def test_no_links():
    (found,) = to_published("", [], {}, ids="id", positions={})["detection_res"]
    assert found["dbpedia_ids"] == found["scores"] == []
