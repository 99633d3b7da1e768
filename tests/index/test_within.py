import threading

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from index_world import QUERIES, Texts, make_entity, make_index

from spacy_elq.core.similarity import Prior
from spacy_elq.errors import ELQError
from spacy_elq.index import EntityIndex, Within
from spacy_elq.index import entity_index as module

COUNT = 20


@pytest.fixture
def index(quick_path):
    return make_index(quick_path, [make_entity(i) for i in range(COUNT)])


def ids_of(index, within, k=COUNT):
    positions, similarities = index.search(QUERIES[:1], k, within=within)
    found = positions[0][positions[0] >= 0]
    assert (np.isfinite(similarities[0]) == (positions[0] >= 0)).all()
    return {head[0] for head in index.heads(found)}


def expected_ids(condition, numbers=range(COUNT), version=0):
    return {f"E{i}" for i in numbers if condition(make_entity(i, version))}


# What users write


def test_no_condition_is_none():
    assert Within.make(None) is None
    assert Within.make({}) is None
    assert Within.make({"labels": None, "tags": None}) is None


def test_conditions_are_in_order_and_each_once():
    made = Within.make({"labels": ["b", "a", "b"], "ids": {"y"}, "tags": ()})
    assert made == Within((("ids", ("y",)), ("labels", ("a", "b")), ("tags", ())))
    assert Within.make(made) is made


def test_kinds_of_text_become_texts():
    assert repr(Within.make({"ids": [np.str_("E1")]})) == repr(Within((("ids", ("E1",)),)))


@pytest.mark.parametrize("kind", ["labels", "tags", "ids"])
def test_half_of_a_surrogate_pair_is_nobody(index, kind):
    assert ids_of(index, {kind: ["\udcff"]}) == set()


@pytest.mark.parametrize(
    "found",
    [["a"], "a", 7, {"label": ["a"]}, {"labels": "a"}, {"labels": [1]}, {"tags": {"a": "b"}}, {"ids": 7}],
)
def test_other_things_are_an_error(index, found):
    with pytest.raises(ELQError, match="E165") as error:
        Within.make(found)
    assert repr(found) in str(error.value)
    with pytest.raises(ELQError, match="E165"):
        index.search(QUERIES, 3, within=found)
    with pytest.raises(ELQError, match="E165"):
        index.match_names(["x"], within=found)


LISTS = st.dictionaries(
    st.sampled_from(["labels", "tags", "ids"]),
    st.lists(st.sampled_from(["GPE", "", "tag-0", "tag-1", "E1", "E2"])),
)


@settings(deadline=None, max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(LISTS, LISTS)
def test_both_conditions_hold_at_once(index, first, second):
    a, b = Within.make(first), Within.make(second)
    if a is not None and b is not None:
        assert a & b == b & a
        assert ids_of(index, a & b) == ids_of(index, a) & ids_of(index, b)


# What counts


@pytest.mark.parametrize("weight", [0.0, 2.0])
def test_every_condition_holds_for_one_of_its_values(index, weight):
    def is_fitting(entity):
        return entity.label in ("GPE", "") and {"tag-0", "tag-2"} & set(entity.tags)

    within = {"labels": ["GPE", ""], "tags": ["tag-0", "tag-2"]}
    assert ids_of(index, within) == expected_ids(is_fitting)
    assert ids_of(index, {**within, "ids": ["E1", "E2", "E3"]}) == expected_ids(is_fitting, range(1, 4))
    prior = Prior(name_weight=weight, popularity_weight=weight)
    positions, _ = index.search(QUERIES, COUNT, names=["title 1"] * len(QUERIES), prior=prior, within=within)
    assert {h[0] for h in index.heads(np.unique(positions[positions >= 0]))} == expected_ids(is_fitting)


def test_an_empty_list_means_nobody(index):
    for key in ("labels", "tags", "ids"):
        assert ids_of(index, {key: []}) == set()
        assert index.find("title 1", within={key: []}) == []


def test_changes_count_too(index):
    index.add([make_entity(i, 1) for i in range(5, 25)], Texts())
    index.remove(["E1", "E20"])
    index.add([make_entity(1, 2)], Texts())

    def is_fitting(entity):
        return "tag-1" in entity.tags

    expected = expected_ids(is_fitting, [0, 2, 3, 4]) | expected_ids(is_fitting, [1], 2)
    expected |= expected_ids(is_fitting, [i for i in range(5, 25) if i != 20], 1)
    within = {"tags": ["tag-1"]}
    assert ids_of(index, within, k=99) == expected
    named = index.match_names([f"alias {i}" for i in range(25)], within=within)
    assert {head[0] for head in index.heads(named[1])} == expected
    assert index.are_names([f"alias {i}" for i in range(25)], within=within).sum() == len(expected)
    index.compact()
    assert ids_of(index, within, k=99) == expected


def test_the_back_end_is_asked_for_as_many_as_there_are(quick_path):
    index = make_index(quick_path, [make_entity(i) for i in range(COUNT)], factory="SQ8")
    assert ids_of(index, {"ids": ["E3", "E7"]}) == {"E3", "E7"}
    assert len(ids_of(index, {"labels": ["GPE", "PERSON", ""]}, k=3)) == 3


# What is remembered


def test_what_counts_is_looked_up_once_for_each_state(index, monkeypatch):
    calls = []
    find = module.find_among
    monkeypatch.setattr(module, "find_among", lambda *args: calls.append(args[2]) or find(*args))
    within = {"tags": ["tag-1"]}
    before = ids_of(index, within)
    assert ids_of(index, within) == before
    assert len(calls) == 1
    index.remove([next(iter(before))])
    assert len(ids_of(index, within)) == len(before) - 1
    assert len(calls) == 1, "the rows of the files hold for ever"
    index.compact()
    ids_of(index, within)
    assert len(calls) == 2


def test_ids_are_looked_up_for_each_state(index):
    within = {"ids": ["E1", "E99"]}
    assert ids_of(index, within) == {"E1"}
    index.add([make_entity(99)], Texts())
    assert ids_of(index, within) == {"E1", "E99"}
    index.remove(["E1"])
    assert ids_of(index, within) == {"E99"}
    index.add([make_entity(1)], Texts())
    assert ids_of(index, within) == {"E1", "E99"}


def test_only_a_few_conditions_are_remembered(index, monkeypatch):
    monkeypatch.setattr(module, "_KNOWN_SUBSETS", 3)
    for i in range(6):
        ids_of(index, {"tags": ["tag-1", f"x{i}"]})
    assert len(index._subsets) == len(index._among) == 3
    assert any("x5" in dict(key[-1].conditions)["tags"] for key in index._subsets)


def test_an_earlier_state_does_not_use_what_a_later_one_has_found(index):
    within, found = {"tags": ["tag-1"]}, []
    before = ids_of(EntityIndex.open(index.path), within)

    def change():
        index.remove(["E2", "E3"])
        found.append(ids_of(index, within))

    with index.reading():
        thread = threading.Thread(target=change)
        thread.start()
        thread.join()
        assert found == [before - {"E2", "E3"}]
        assert ids_of(index, within) == before
    assert ids_of(index, within) == before - {"E2", "E3"}
