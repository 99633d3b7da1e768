import enum
import json
import sqlite3
import tempfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from index_world import make_entity, vector_of

from spacy_elq.catalogue import entity_to_dict
from spacy_elq.errors import ELQError
from spacy_elq.index import database as module
from spacy_elq.index import open_catalogue
from spacy_elq.index.database import Database, NameFilter, check_database, name_keys
from spacy_elq.types import Entity


class Kind(str, enum.Enum):
    X = "x"


ENTITIES = [
    Entity("E1", "Zürich", "A city.\nIn two lines.", ("Züri",), "GPE", {"wikidata": "Q72"}),
    Entity("E2", "東京"),
    Entity("É", "😀", "A face."),
]


def store(folder, entities):
    database = Database.create(Path(folder) / "entities.db")
    database.fill(entities)
    return database


def add(database, *entities):
    return database.add(entities, np.stack([vector_of(entity) for entity in entities]))


@pytest.fixture
def database(quick_path):
    return store(quick_path, ENTITIES)


@pytest.fixture
def numbers(quick_path):
    return store(quick_path, [make_entity(i) for i in range(6)])


def digest_of(folder, entities):
    with tempfile.TemporaryDirectory(dir=folder) as own:
        return Database.create(Path(own) / "x.db").fill(entities)


# Opening


def test_another_database_is_not_ours(quick_path):
    sqlite3.connect(quick_path / "entities.db").execute("CREATE TABLE counters (x)")
    with pytest.raises(ELQError, match=r"E031.*entities\.db is not a database of spacy-elq"):
        Database.open(quick_path / "entities.db")


@pytest.mark.parametrize("format_", [2, 4])
def test_another_format_is_named(database, format_):
    with sqlite3.connect(database.path) as connection:
        connection.execute(f"PRAGMA user_version = {format_}")
    with pytest.raises(ELQError, match=rf"E170.*has format {format_}, .* reads format 3") as error:
        Database.open(database.path)
    assert str(database.path.parent) in str(error.value)


@pytest.mark.parametrize("statement", ["DELETE FROM counters", "DROP TABLE counters"])
def test_a_database_without_its_counters_is_damaged(database, statement):
    with sqlite3.connect(database.path) as connection:
        connection.execute(statement)
    with pytest.raises(ELQError, match=r"E031.*entities\.db (is not complete|cannot be read)"):
        Database.open(database.path)


def test_every_database_is_another_one(quick_path):
    epochs = {Database.create(quick_path / f"{i}.db").counters().epoch for i in range(5)}
    assert len(epochs) == 5


def test_a_copy_becomes_another_one(database):
    before = database.counters()
    database.renew()
    assert database.counters().epoch != before.epoch
    assert database.counters()[1:] == before[1:]


# Values


def test_values_come_back_and_none_removes_one(database):
    database.set_meta(a={"x": [1, "é"]}, b=2)
    database.set_meta(b=None, c="")
    assert database.get_meta("a") == {"x": [1, "é"]}
    assert database.get_meta("b", "default") == "default"
    assert database.get_meta("b") is None
    assert database.get_meta("c") == ""


def test_a_changed_value_is_damage(database):
    database.set_meta(a="old")
    with database.writing() as connection:
        connection.execute("UPDATE meta SET value = '\"new\"'")
    with pytest.raises(ELQError, match=r"E031.*damaged entry `a`"):
        database.get_meta("a")


def test_arrays_come_back(database):
    database.set_array("a", np.asarray([3, 1], dtype="int64"))
    database.set_array("a", np.asarray([7], dtype="int64"))
    assert database.get_array("a", "int64").tolist() == [7]
    assert database.get_array("b", "float32").shape == (0,)


# Entities


def test_entities_come_back_by_position(database):
    assert len(database) == 3
    assert [database.get(i) for i in range(3)] == ENTITIES
    assert database.get(np.int64(1)) == ENTITIES[1]
    with pytest.raises(IndexError):
        database.get(3)


def test_several_entities_come_back_in_the_order_asked_for(database):
    assert database.get_all([2, 7, 0, 2]) == [ENTITIES[2], ENTITIES[0], ENTITIES[2]]
    assert database.get_all([]) == []


def test_a_damaged_entity_is_not_handed_out(database):
    with database.writing() as connection:
        connection.execute("UPDATE entities SET title = 'x' WHERE position = 1")
    assert database.get(0) == ENTITIES[0]
    with pytest.raises(ELQError, match=r"E031.*damaged entity at position 1"):
        database.get_all([0, 1])


def test_every_field_comes_back(numbers):
    assert numbers.get_all(range(6)) == [make_entity(i) for i in range(6)]
    assert numbers.ids()[0] == [f"E{i}" for i in range(6)]
    assert numbers.ids()[1].tolist() == list(range(6))


def test_ids_titles_and_labels_are_read_without_the_rest(quick_path):
    odd = [
        Entity('a "b" \\', "two\nlines \u0085 \\u0041", "x", label='L"\u00e9'),
        Entity("\t", '"', '"label": "no"', ids={"label": "no"}),
        Entity("c", "c", '"ids": {', aliases=("label", '"ids": {'), label="yes", ids={"label": "no"}),
    ]
    database = store(quick_path, [*ENTITIES, *odd])
    positions = np.asarray([4, 0, 3, 3, 1, 2, 5])
    assert database.heads(positions) == [(e.id, e.title, e.label) for e in map(database.get, positions)]
    assert database.heads(positions[:0]) == []


def test_a_stream_is_enough(quick_path):
    assert len(store(quick_path, iter(ENTITIES))) == 3


@settings(deadline=None, max_examples=50)
@given(st.lists(st.text(), unique=True, min_size=1, max_size=20), st.lists(st.text(), max_size=5))
def test_every_id_is_found_and_no_other(ids, others):
    with tempfile.TemporaryDirectory(dir="/dev/shm" if Path("/dev/shm").is_dir() else None) as folder:
        database = store(folder, [Entity(id_, "title") for id_ in ids])
        assert database.positions(ids).tolist() == list(range(len(ids)))
        assert database.positions(ids[::-1]).tolist() == list(range(len(ids)))[::-1]
        expected = [ids.index(other) if other in ids else -1 for other in others]
        assert database.positions(others).tolist() == expected


def test_ids_are_compared_as_they_are_spelled(database):
    assert database.positions(["e1", "E1 ", "E\u0301", "", "E1"]).tolist() == [-1, -1, -1, -1, 0]


def test_more_texts_than_a_statement_takes(quick_path, monkeypatch):
    monkeypatch.setattr(module, "_PARAMETERS", 2)
    entities = [Entity(str(i), "x", label=f"L{i}", tags=(f"t{i}", "t")) for i in range(7)]
    database = store(quick_path, entities)
    assert database.positions([str(i) for i in range(8)]).tolist() == [*range(7), -1]
    assert database.positions_of_labels([f"L{i}" for i in range(5)]).tolist() == [0, 1, 2, 3, 4]
    tags = [f"t{i}" for i in range(5)]
    assert database.positions_of_tags([*tags, "t"]).tolist() == list(range(7))


def test_texts_with_a_null_character_are_found(quick_path):
    database = store(quick_path, [Entity("a\0b", "x", label="L\0", tags=("t\0x",)), Entity("a", "y")])
    assert database.positions(["a\0b", "a", "a\0"]).tolist() == [0, 1, -1]
    assert database.positions_of_labels(["L\0"]).tolist() == [0]
    assert database.positions_of_tags(["t\0x"]).tolist() == [0]
    add(database, Entity("a\0b", "z"))
    assert database.positions(["a\0b"]).tolist() == [2]


def test_no_ids_have_no_positions(database):
    positions = database.positions([])
    assert positions.shape == (0,)
    assert positions.dtype == np.int64


def test_labels_and_tags_are_found_from_a_position_on(numbers):
    labels = [make_entity(i).label for i in range(6)]
    expected = [i for i, label in enumerate(labels) if label in ("GPE", "")]
    assert numbers.positions_of_labels(["GPE", "", "GPE"]).tolist() == expected
    assert numbers.positions_of_labels(["GPE", ""], first=3).tolist() == [i for i in expected if i >= 3]
    assert numbers.positions_of_labels([]).tolist() == []
    tagged = [i for i in range(6) if {"tag-0", "tag-1"} & set(make_entity(i).tags)]
    assert numbers.positions_of_tags(["tag-0", "tag-1"]).tolist() == tagged
    assert numbers.positions_of_tags(["tag-0", "tag-1"], first=3).tolist() == [i for i in tagged if i >= 3]
    assert numbers.all_positions(first=4).tolist() == [4, 5]


@settings(deadline=None, max_examples=30)
@given(st.lists(st.floats(0, 1e14), min_size=1, max_size=10))
def test_popularity_is_given_as_a_logarithm(popularity):
    with tempfile.TemporaryDirectory(dir="/dev/shm" if Path("/dev/shm").is_dir() else None) as folder:
        entities = [Entity(str(i), "title", popularity=value) for i, value in enumerate(popularity)]
        found = store(folder, entities).popularity()
        np.testing.assert_allclose(found, np.log1p(popularity), rtol=1e-6, atol=1e-30)
        assert found.dtype == np.float32


def test_nobody_is_popular_unless_the_catalogue_says_so(database):
    assert database.popularity().tolist() == [0.0, 0.0, 0.0]
    assert database.popularity(first=2).tolist() == [0.0]


# The digest of a catalogue


def test_the_digest_of_a_catalogue_stays(quick_path):
    assert digest_of(quick_path, ENTITIES) == digest_of(quick_path, ENTITIES)


@pytest.mark.parametrize(
    "entities",
    [
        ENTITIES[:2],
        ENTITIES[::-1],
        [*ENTITIES[:2], Entity("É", "😀", "A face!")],
        [*ENTITIES[:2], Entity("É", "😀", "A face.", ids={"a": "b"})],
        [*ENTITIES[:2], Entity("É", "😀", "A face.", popularity=1)],
        [*ENTITIES[:2], Entity("É", "😀", "A face.", tags=("t",))],
    ],
    ids=["fewer", "other order", "other description", "other ids", "other popularity", "other tags"],
)
def test_the_digest_tells_catalogues_apart(quick_path, entities):
    assert digest_of(quick_path, entities) != digest_of(quick_path, ENTITIES)


# Names


@pytest.mark.parametrize("share", [1.0, 0.75, 0.6])
def test_every_bearer_of_a_name_is_found_and_other_names_count_their_share(quick_path, share):
    paris = [
        Entity("E1", "Paris"),
        Entity("E2", "Paris, Texas"),
        Entity("E3", "Rome", aliases=("The PARIS",)),
    ]
    found = store(quick_path, paris).match_names(["rome", "nobody", "", "the Paris"], alias_share=share)
    assert list(zip(*(array.tolist() for array in found), strict=True)) == [
        (0, 2, 1.0),
        (3, 0, 1.0),
        (3, 1, share),
        (3, 2, share),
    ]


@pytest.mark.parametrize("share", [1.0, 0.5])
def test_a_similar_spelling_of_what_is_nobodys_name_counts_half(quick_path, share):
    people = [
        Entity("E1", "Frida Kahlo"),
        Entity("E2", "Frieda Kalo", aliases=("La Kalo",)),
        Entity("E3", "Fred Cole"),
    ]
    texts = ["frida kahlo", "fridda kalo", "la kalo", "la kallo"]
    owners, positions, degrees = store(quick_path, people).match_names(texts, alias_share=share)
    assert owners.tolist() == [0, 1, 1, 2, 3]
    assert positions.tolist() == [0, 0, 1, 1, 1]
    assert degrees.tolist() == [1.0, 0.5, 0.5, share, 0.5]


def test_a_spelling_is_doubted_where_its_bearers_do_not_count(quick_path):
    database = store(quick_path, [Entity("E1", "Frida Kahlo"), Entity("E2", "Frieda Kalo")])
    found = database.match_names(["frida kahlo"], are_inside=lambda positions: positions == 1)
    assert [array.tolist() for array in found] == [[0], [1], [0.5]]


def test_a_name_of_many_is_found_for_all_of_them(quick_path):
    database = store(quick_path, [Entity(str(i), "Rome" if i % 2 else "Bern") for i in range(40)])
    owners, positions, _ = database.match_names(["bern", "nobody", "rome", "bern"])
    assert owners.tolist() == [0] * 20 + [2] * 20 + [3] * 20
    evens, odds = list(range(0, 40, 2)), list(range(1, 40, 2))
    assert positions.tolist() == evens + odds + evens


def test_no_texts_have_no_bearers(database):
    assert [len(array) for array in database.match_names([])] == [0, 0, 0]
    assert database.are_names([]).tolist() == []


def test_half_of_a_surrogate_pair_is_nowhere(database):
    half = "\udcff"
    assert database.positions([half, "E1", f"E{half}", "東京"]).tolist() == [-1, 0, -1, -1]
    assert database.positions_of_labels([half, "GPE"]).tolist() == [0]
    assert database.positions_of_tags([half]).tolist() == []
    assert database.are_names([half, f"Zürich{half}"]).tolist() == [False, True]
    assert database.remove([half]) == 0


def test_what_is_no_text_is_no_id(database):
    assert database.positions([None, 7, "E1"]).tolist() == [-1, -1, 0]


@settings(deadline=None, max_examples=30)
@given(
    st.lists(
        st.sampled_from(["Paris", "paris!", "The", "", "!", "Pariss", "city of light", "x", "Citty of light"])
    )
)
def test_what_is_a_name_is_what_matches_as_one(texts):
    with tempfile.TemporaryDirectory(dir="/dev/shm" if Path("/dev/shm").is_dir() else None) as folder:
        entities = [Entity("a", "Paris", aliases=("City of Light",)), Entity("b", "The")]
        database = store(folder, entities)
        known = NameFilter.build(np.concatenate([name_keys(entity) for entity in entities]))
        owners, _, degrees = database.match_names(texts)
        expected = np.isin(np.arange(len(texts)), owners[degrees == 1.0])
        assert database.are_names(texts).tolist() == expected.tolist()
        assert database.are_names(texts, known).tolist() == expected.tolist()
        for a, b in zip(database.match_names(texts, known), database.match_names(texts), strict=True):
            np.testing.assert_array_equal(a, b)
        assert database.are_names(["Paris", "City of Light", "x"]).tolist() == [True, True, False]


@settings(deadline=None, max_examples=50)
@given(
    st.lists(st.integers(-(2**63), 2**63 - 1), max_size=300),
    st.lists(st.integers(-(2**63), 2**63 - 1), max_size=20),
)
def test_the_filter_never_denies_a_name(keys, later):
    known = NameFilter.build(np.asarray(keys, dtype="int64"))
    known.add(np.asarray(later, dtype="int64"))
    assert known.may_have(np.asarray([*keys, *later], dtype="int64")).all()


def test_the_filter_spares_nearly_all_other_look_ups():
    rng = np.random.default_rng(0)
    keys, others = rng.integers(-(2**63), 2**63 - 1, size=(2, 20_000))
    known = NameFilter.build(keys)
    assert known.may_have(others).mean() < 0.1
    assert len(known.bits) <= 2 * len(keys)


def test_what_the_filter_denies_is_not_looked_up(database):
    nobody = NameFilter.build(np.zeros(0, dtype="int64"))
    assert database.are_names(["Zürich"], nobody).tolist() == [False]
    assert len(database.match_names(["Zürich"], nobody)[0]) == 0


# Changes


def test_what_is_added_gets_the_next_positions(numbers):
    before = numbers.counters()
    add(numbers, make_entity(10), make_entity(11))
    assert numbers.positions(["E10", "E11"]).tolist() == [6, 7]
    assert numbers.get(6) == make_entity(10)
    assert numbers.counters()[:4] == (before.epoch, before.version + 1, 8, 8)
    positions, data = numbers.read_changes(first=6)
    assert positions.tolist() == [6, 7]
    vectors = np.frombuffer(data, dtype="float32").reshape(2, -1)
    np.testing.assert_array_equal(vectors, [vector_of(make_entity(10)), vector_of(make_entity(11))])
    assert numbers.read_changes(first=7)[0].tolist() == [7]


def test_what_is_replaced_gets_another_position(numbers):
    add(numbers, make_entity(2, 1))
    assert numbers.positions(["E2"]).tolist() == [6]
    assert numbers.get_all([2]) == []
    assert numbers.read_removed().tolist() == [2]
    assert len(numbers) == 6
    assert 2 not in numbers.match_names(["alias 2"])[1]
    assert numbers.match_names(["alias 2"])[1].tolist() == [6]
    tags = make_entity(2).tags
    assert 2 not in numbers.positions_of_tags(tags)


def test_what_is_removed_is_gone_and_its_position_is_not_used_again(numbers):
    assert numbers.remove(["E5", "E404", "E5"]) == 1
    assert numbers.positions(["E5"]).tolist() == [-1]
    assert numbers.match_names(["alias 5"])[1].tolist() == []
    assert numbers.positions_of_tags(make_entity(5).tags).tolist() == [1, 3, 4]
    add(numbers, make_entity(5))
    assert numbers.positions(["E5"]).tolist() == [6]
    assert numbers.remove(["E5"]) == 1
    assert numbers.read_changes(first=0)[0].tolist() == []
    assert numbers.read_removed().tolist() == [5, 6]
    add(numbers, make_entity(5))
    assert numbers.positions(["E5"]).tolist() == [7]


def test_removing_nobody_changes_nothing(numbers):
    before = numbers.counters()
    assert numbers.remove(["E404"]) == numbers.remove([]) == 0
    assert numbers.counters() == before


def test_what_was_removed_after_a_version(numbers):
    numbers.remove(["E1"])
    version = numbers.counters().version
    add(numbers, make_entity(0, 1))
    numbers.remove(["E3"])
    assert numbers.read_removed().tolist() == [0, 1, 3]
    assert numbers.read_removed(after=version).tolist() == [0, 3]
    assert numbers.read_removed(after=version + 1).tolist() == [3]


def test_changes_up_to_a_state_are_forgotten_and_later_ones_kept(numbers):
    add(numbers, make_entity(10))
    numbers.remove(["E1"])
    state = numbers.counters()
    add(numbers, make_entity(11))
    numbers.remove(["E2", "E10"])
    numbers.forget_changes(state)
    assert numbers.read_changes(first=0)[0].tolist() == [7]
    assert numbers.read_removed().tolist() == [2, 6]
    assert numbers.counters().version == state.version + 3
    assert check_database(numbers) == []


@pytest.mark.parametrize("text", [np.str_("x"), Kind.X])
def test_a_kind_of_text_is_written_as_it_is_read(numbers, text):
    add(numbers, Entity(text, text, label=text, tags=(text,)))
    assert numbers.positions(["x", text]).tolist() == [6, 6]
    assert numbers.get(6) == Entity("x", "x", label="x", tags=("x",))
    assert check_database(numbers) == []


def test_minus_zero_is_read_as_zero(numbers):
    add(numbers, Entity("x", "x", popularity=-0.0))
    assert numbers.get(6) == Entity("x", "x")


def test_what_would_be_read_as_something_else_is_not_written(numbers):
    before = numbers.counters()
    with pytest.raises(TypeError):
        add(numbers, Entity(5, "a"))
    assert numbers.counters() == before


def test_how_many_took_the_place_of_others(numbers):
    assert add(numbers, make_entity(0, 1), make_entity(9)) == 1
    assert add(numbers, make_entity(9)) == 1
    assert add(numbers, make_entity(10)) == 0


# What names the changes have


def read_names(database, positions, first=0):
    return sorted(database.read_changed_names(positions, first=first).tolist())


def keys_of(*entities):
    return sorted(np.concatenate([name_keys(entity) for entity in entities]).tolist())


def test_names_of_changes_are_kept(numbers, monkeypatch):
    added = [make_entity(i) for i in (10, 11, 12)]
    add(numbers, *added)
    monkeypatch.setattr(numbers, "get_all", lambda positions: [] if not positions else pytest.fail("read"))
    assert read_names(numbers, [6, 7, 8]) == keys_of(*added)
    assert read_names(numbers, [7, 8], first=7) == keys_of(*added[1:])
    assert read_names(numbers, []) == keys_of(*added)


def test_names_of_changes_go_with_them(numbers):
    add(numbers, make_entity(10), make_entity(11))
    numbers.remove(["E10"])
    assert read_names(numbers, [7]) == keys_of(make_entity(11))
    state = numbers.counters()
    add(numbers, make_entity(12))
    numbers.forget_changes(state)
    assert read_names(numbers, [8]) == keys_of(make_entity(12))


def drop_table(database):
    """As an earlier version of spacy-elq has written it."""
    with database.writing() as connection:
        connection.execute("DROP TABLE changed_names")


def test_names_that_an_earlier_version_did_not_keep_are_computed(numbers):
    add(numbers, make_entity(10))
    drop_table(numbers)
    assert read_names(numbers, [6]) == keys_of(make_entity(10))
    assert check_database(numbers) == []
    add(numbers, make_entity(11))
    assert read_names(numbers, [6, 7]) == keys_of(make_entity(10), make_entity(11))


@pytest.mark.parametrize("change", ["remove", "forget"])
def test_a_database_of_an_earlier_version_is_changed(numbers, change):
    add(numbers, make_entity(10))
    drop_table(numbers)
    if change == "remove":
        assert numbers.remove(["E10"]) == 1
    else:
        numbers.forget_changes(numbers.counters())
    assert numbers.read_changes(first=0)[0].tolist() == []
    assert check_database(numbers) == []


def test_names_of_changes_that_are_cut_are_damage(numbers):
    add(numbers, make_entity(10))
    with numbers.writing() as connection:
        connection.execute("UPDATE changed_names SET keys = x'00'")
    with pytest.raises(ELQError, match=r"E031.*changes that do not fit"):
        read_names(numbers, [6])


def test_a_change_that_fails_is_none(numbers):
    before = numbers.counters(), numbers.get_all(range(99))
    with pytest.raises(ValueError, match="zip"):
        numbers.add([make_entity(0, 1), make_entity(9)], np.zeros((1, 8)))
    assert (numbers.counters(), numbers.get_all(range(99))) == before
    assert check_database(numbers) == []


def test_shards_are_noted_once(database):
    for first in (4, 0, 4):
        database.add_shard(first)
    assert sorted(database.shards()) == [0, 4]


# Looking for damage

DAMAGES = {
    "UPDATE meta SET value = '7'": "meta 'a' is damaged",
    "UPDATE arrays SET data = x'00'": "arrays 'names' is damaged",
    "UPDATE changes SET vector = zeroblob(32)": "changes 6 is damaged",
    "UPDATE changed_names SET keys = zeroblob(8)": "changed_names 6 is damaged",
    "UPDATE entities SET title = 'x' WHERE position = 3": "entity at position 3 is damaged",
    "UPDATE entities SET popularity = 9 WHERE position = 3": "entity at position 3 is damaged",
    "DELETE FROM entities WHERE position = 3": "there are 5 entities instead of 6",
    "UPDATE counters SET total = total + 1": "others than were written",
    "UPDATE counters SET count = 9": "there are 6 entities instead of 9",
    "UPDATE counters SET next = 6": "the counters do not fit",
    "DELETE FROM names WHERE position = 3": "table of names does not fit",
    "INSERT INTO names VALUES (1, 2)": "table of names does not fit",
    "DELETE FROM tags WHERE position = 3": "table of tags does not fit",
    "UPDATE tags SET tag = 'x' WHERE position = 3 AND tag = 'tag-0'": "table of tags does not fit",
    "DELETE FROM removed": "added and removed does not fit",
    "UPDATE removed SET position = 3": "added and removed does not fit",
    "INSERT INTO removed VALUES (4, 1)": "added and removed does not fit",
    "INSERT INTO removed VALUES (6, 1)": "added and removed does not fit",
    "UPDATE removed SET version = -1": "the counters do not fit",
    "UPDATE removed SET version = 99": "the counters do not fit",
    "DELETE FROM changes": "added and removed does not fit",
}


@pytest.mark.parametrize("statement", DAMAGES)
def test_damage_is_found(numbers, statement):
    numbers.set_meta(a=1, base={"next": 6})
    add(numbers, make_entity(9))
    numbers.remove(["E1"])
    assert check_database(numbers) == []
    with numbers.writing() as connection:
        connection.execute(statement)
    problems = check_database(numbers)
    assert any(DAMAGES[statement] in problem for problem in problems), problems


def test_only_the_first_of_many_problems_of_a_kind_are_listed(quick_path):
    database = store(quick_path, [make_entity(i) for i in range(30)])
    with database.writing() as connection:
        connection.execute("UPDATE entities SET title = 'x'")
    problems = check_database(database)
    assert problems[0] == "the entity at position 0 is damaged"
    assert problems[module._SHOWN] == f"{30 - module._SHOWN} more of this kind"
    assert len(problems) == module._SHOWN + 1


def test_damage_to_the_structure_is_found(numbers):
    numbers.close()
    with sqlite3.connect(numbers.path) as connection:
        connection.execute("PRAGMA writable_schema = ON")
        connection.execute("UPDATE sqlite_master SET rootpage = 2 WHERE name = 'entity_labels'")
    connection.close()
    problems = check_database(Database.open(numbers.path))
    assert any("entity_labels" in problem for problem in problems), problems


# A catalogue without an index


@pytest.fixture
def catalogue(tmp_path):
    path = tmp_path / "entities.jsonl"
    lines = [json.dumps(entity_to_dict(entity)) for entity in [*ENTITIES, Entity("E4", "Rome", popularity=7)]]
    path.write_text("\n".join(lines), encoding="utf8")
    return path


def test_a_catalogue_can_be_looked_up_without_an_index(catalogue):
    database = open_catalogue(catalogue)
    assert len(database) == 4
    assert [database.get(i) for i in range(3)] == ENTITIES
    assert database.positions(["E4", "E404", "E1"]).tolist() == [3, -1, 0]
    assert database.match_names(["rome"])[1].tolist() == [3]
    np.testing.assert_allclose(database.popularity(), [0, 0, 0, np.log(8)], rtol=1e-6)


def test_the_files_of_a_catalogue_last_as_long_as_it_is_used(catalogue, tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    used = [open_catalogue(catalogue)]
    (folder,) = tmp_path.glob("spacy-elq-*")
    assert (folder / "entities.db").exists()
    with pytest.warns(ResourceWarning):
        used.clear()
    assert not folder.exists()


def test_a_broken_catalogue_is_an_error_with_its_line(catalogue):
    with catalogue.open("a") as file_:
        file_.write("\n{")
    with pytest.raises(ELQError, match="line 5"):
        open_catalogue(catalogue)
