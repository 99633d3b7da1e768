import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from index_world import Texts, make_entity, make_index

from spacy_elq.errors import ELQError
from spacy_elq.index import EntityIndex, check_index, database
from spacy_elq.index.view import Base, _Buffer, load_view


@pytest.fixture
def index(quick_path):
    return make_index(quick_path, [make_entity(i) for i in range(10)])


@settings(deadline=None)
@given(st.integers(1, 12), st.sets(st.integers(0, 11)))
def test_rows_and_positions_belong_together(count, gaps):
    base = Base.__new__(Base)
    base.next, base.gaps = count, np.asarray(sorted(gap for gap in gaps if gap < count), dtype="int64")
    used = [position for position in range(count) if position not in gaps]
    rows = np.arange(len(used))
    assert base.positions(rows).tolist() == used
    assert base.positions(np.asarray([-1])).tolist() == [-1]
    found = base.rows(np.asarray([-1, *range(count)]))
    assert found.tolist() == [-1, *(used.index(p) if p in used else -1 for p in range(count))]


def test_vectors_become_more_and_those_handed_out_stay():
    buffer, handed = _Buffer(2), []
    for i in range(1, 90):
        handed.append(buffer.append(np.full((i % 3, 2), i, dtype="float32")))
    expected = [i for i in range(1, 90) for _ in range(i % 3)]
    assert handed[-1][:, 0].tolist() == expected
    assert all(part[:, 0].tolist() == expected[: len(part)] for part in handed)


def test_only_what_is_new_is_loaded(index):
    index.add([make_entity(20)], Texts())
    with index.reading() as before:
        assert load_view(index._database, before) is before
    index.remove(["E1"])
    with index.reading() as after:
        assert after.base is before.base
        assert after.vectors.base is before.vectors.base
        assert (before.count, after.count) == (11, 10)
    index.compact()
    with index.reading() as compacted:
        assert compacted.base is not before.base


def test_changes_that_do_not_fit_the_entities_are_damage(index):
    index.add([make_entity(20), make_entity(21)], Texts())
    with index._database.writing() as connection:
        connection.execute("DELETE FROM changes WHERE position = 10")
    with pytest.raises(ELQError, match=r"E031.*changes that do not fit"):
        EntityIndex.open(index.path)
    index.add([make_entity(20)], Texts())
    with index._database.writing() as connection:
        connection.execute("UPDATE changes SET vector = x'00'")
    with pytest.raises(ELQError, match=r"E031.*changes that do not fit"):
        EntityIndex.open(index.path)


@pytest.mark.parametrize("is_running", [True, False])
def test_names_of_changes_are_known(index, is_running):
    if not is_running:
        index.add([make_entity(20)], Texts())
    other = EntityIndex.open(index.path)
    assert other.are_names(["alias 20"]).tolist() == [not is_running]
    index.add([make_entity(20), make_entity(21)], Texts())
    assert other.are_names(["alias 20", "alias 21", "alias 22"]).tolist() == [True, True, False]


def test_an_index_of_an_earlier_version_is_read_and_changed(index):
    index.add([make_entity(20)], Texts())
    with index._database.writing() as connection:
        connection.execute("DROP TABLE changed_names")
    index.close()
    opened = EntityIndex.open(index.path)
    assert opened.are_names(["alias 20"]).tolist() == [True]
    opened.add([make_entity(21)], Texts())
    for own in (opened, EntityIndex.open(index.path)):
        assert own.are_names(["alias 20", "alias 21"]).tolist() == [True, True]
    opened.compact()
    assert opened.are_names(["alias 20", "alias 21"]).tolist() == [True, True]
    assert check_index(index.path) == []


def test_opening_computes_no_names(index, monkeypatch):
    index.add([make_entity(20)], Texts())
    monkeypatch.setattr(database, "name_keys", lambda entity: pytest.fail("computed"))
    assert EntityIndex.open(index.path).are_names(["alias 20"]).tolist() == [True]


def test_what_was_handed_out_stays_as_it_is(index):
    index.add([make_entity(20)], Texts())
    with index.reading() as view:
        vectors, before = view.vectors, view.vectors.copy()
        assert index.vectors is not view.base.vectors.array
    index.add([make_entity(i) for i in range(21, 190)], Texts())
    len(index)
    np.testing.assert_array_equal(vectors, before)


def test_without_changes_the_vectors_are_those_of_the_file(index):
    with index.reading() as view:
        assert index.vectors is view.base.vectors.array


def test_positions_that_are_not_there(index):
    index.add([make_entity(3, 1), make_entity(30)], Texts())
    index.remove(["E30", "E5"])
    for _ in range(2):
        with index.reading() as view:
            asked = np.asarray([-1, 0, 3, 5, 10, 11, 12])
            assert view.are_live(asked).tolist() == [False, True, False, False, True, False, False]
            assert view.take(asked).shape == (7, 8)
            assert view.take_popularity(asked).shape == (7,)
        index.compact()
