import enum
import json
import os
import re
import threading
import unicodedata
import warnings

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spacy_elq.catalogue import (
    check_entities,
    check_entity,
    count_entities,
    entity_from_dict,
    entity_to_dict,
    plain_text,
    read_catalogue,
)
from spacy_elq.errors import ELQError
from spacy_elq.names import entity_names, find_words, normalize_name, skeleton
from spacy_elq.types import Entity

GOOD = '{"id": "E1", "title": "Paris"}'


@pytest.fixture
def write(tmp_path):
    def write_lines(*lines):
        path = tmp_path / "entities.jsonl"
        path.write_bytes(b"\n".join(x if isinstance(x, bytes) else x.encode("utf8") for x in lines))
        return path

    return write_lines


def record(**fields):
    return json.dumps({"id": "E2", "title": "Rome", **fields})


def test_reads_every_field_in_the_order_of_the_file(write):
    full = record(
        description="A city.", aliases=["Roma"], label="GPE", ids={"wikidata": "Q220"}, popularity=12.5
    )
    assert list(read_catalogue(write(full, GOOD))) == [
        Entity("E2", "Rome", "A city.", ("Roma",), "GPE", {"wikidata": "Q220"}, 12.5),
        Entity("E1", "Paris"),
    ]


def test_takes_the_path_as_a_string(write):
    assert [entity.id for entity in read_catalogue(str(write(GOOD)))] == ["E1"]


def test_is_a_stream_that_fails_only_where_it_is_broken(write):
    stream = read_catalogue(write(GOOD, record(), "{", GOOD))
    assert [next(stream).id, next(stream).id] == ["E1", "E2"]
    with pytest.raises(ELQError, match="line 3"):
        next(stream)


@pytest.mark.parametrize(
    ("line", "problem", "found"),
    [
        ("{'id'}", "not valid JSON", "{'id'}"),
        (b'{"id": "E2", "title": "\xff"}', "not valid JSON", '{"id": "E2"'),
        ('["E2", "Rome"]', "expected a JSON object", '["E2", "Rome"]'),
        ('"' + "x" * 500 + '"', "expected a JSON object", "x" * 79 + " …"),
        ('{"title": "Rome"}', "`id` must be a string that is not empty", "None"),
        (record(id=""), "`id` must be", "''"),
        (record(id="  "), "`id` must be", "'  '"),
        (record(id=7), "`id` must be", "7"),
        ('{"id": "E2"}', "`title` must be a string that is not empty", "None"),
        (record(title=""), "`title` must be", "''"),
        (record(title=["Rome"]), "`title` must be", "['Rome']"),
        (record(description=3), "`description` must be a string", "3"),
        (record(description=["a"]), "`description` must be a string", "['a']"),
        (record(label={"a": 1}), "`label` must be a string", "{'a': 1}"),
        (record(aliases="Roma"), "`aliases` must be a list of strings", "'Roma'"),
        (record(aliases=["Roma", 1]), "`aliases` must be a list of strings", "['Roma', 1]"),
        (record(tags="shop-7"), "`tags` must be a list of strings", "'shop-7'"),
        (record(ids=["Q220"]), "`ids` must map names to strings", "['Q220']"),
        (record(ids={"wikidata": 220}), "`ids` must map names to strings", "{'wikidata': 220}"),
        (record(popularity="many"), "`popularity` must be a number, at least 0", "'many'"),
        (record(popularity=[3]), "`popularity` must be a number, at least 0", "[3]"),
        (record(popularity=True), "`popularity` must be a number, at least 0", "True"),
        (record(popularity=-0.5), "`popularity` must be a number, at least 0", "-0.5"),
        (record(popularity=float("nan")), "`popularity` must be a number, at least 0", "nan"),
        (record(popularity=float("inf")), "`popularity` must be a number, at least 0", "inf"),
        (record(id="E1"), "the id was used by an earlier line", "E1"),
        ("[" * 100000, "not valid JSON (too deeply nested)", "[" * 80 + " …"),
        (
            record(description="\ud83d"),
            "text that is not valid Unicode (surrogates not allowed)",
            r"'\ud83d'",
        ),
        (record(aliases=["a", "x\udc00"]), "text that is not valid Unicode", r"'\udc00'"),
        (record(title=["x" * 500]), "`title` must be", "xxx..."),
        ('{"idx": "?curid=7", "title": "Rome", "kb_idx": ["Q220"]}', "`id` must be", "['Q220']"),
    ],
)
def test_says_where_and_what_is_wrong(write, line, problem, found):
    path = write(GOOD, line)
    with pytest.raises(ELQError) as error:
        list(read_catalogue(path))
    text = str(error.value)
    assert f"{path}, line 2: {problem}" in text
    assert found in text.split("Found: ", 1)[1]
    assert len(text) < 500


@pytest.mark.parametrize(
    "fields",
    [
        {"description": 0},
        {"description": []},
        {"label": False},
        {"aliases": 0},
        {"aliases": ""},
        {"ids": []},
        {"popularity": ""},
        {"popularity": []},
        {"popularity": False},
    ],
)
def test_a_falsy_value_of_a_wrong_type_is_wrong_too(write, fields):
    with pytest.raises(ELQError, match="line 1"):
        list(read_catalogue(write(record(**fields))))


def test_blank_lines_count_but_are_no_entities(write):
    assert [entity.id for entity in read_catalogue(write("", GOOD, "  ", record(), ""))] == ["E1", "E2"]
    with pytest.raises(ELQError, match="line 4"):
        list(read_catalogue(write("", GOOD, "  ", "{")))


def test_entities_are_counted_without_a_look_at_them(write):
    assert count_entities(write("{}", "", "no JSON", "  ")) == 2


@pytest.mark.parametrize("lines", [[], ["", " "]])
def test_a_catalogue_without_entities_is_an_error(write, lines):
    path = write(*lines)
    with pytest.raises(ELQError, match="has no entities") as error:
        list(read_catalogue(path))
    assert str(path) in str(error.value)


def test_a_missing_file_is_an_error_that_names_it(tmp_path):
    path = tmp_path / "nowhere.jsonl"
    with pytest.raises(ELQError, match="File not found") as error:
        list(read_catalogue(path))
    assert str(path) in str(error.value)


@pytest.mark.parametrize("use", [count_entities, lambda path: list(read_catalogue(path))])
def test_a_folder_and_a_loop_of_links_are_not_a_catalogue(tmp_path, use):
    with pytest.raises(ELQError, match=r"E140.*expected a file"):
        use(tmp_path)
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    with pytest.raises(OSError, match="loop"):
        use(tmp_path / "loop")


def test_a_pipe_can_be_read_but_not_twice(tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    writer = threading.Thread(target=lambda: pipe.write_text(GOOD))
    writer.start()
    assert [entity.id for entity in read_catalogue(pipe)] == ["E1"]
    writer.join()
    with pytest.raises(ELQError, match=r"E023.*read only once.*Write it to a file"):
        count_entities(pipe)


def test_an_unknown_field_is_ignored_and_named_once(write):
    path = write(GOOD, record(descripton="A city."), record(id="E3", descripton="b", Label="c", zzz=1))
    with pytest.warns(UserWarning, match="W007") as warned:
        assert list(read_catalogue(path)) == [
            Entity("E1", "Paris"),
            Entity("E2", "Rome"),
            Entity("E3", "Rome"),
        ]
    texts = [str(warning.message).split("] ", 1)[1] for warning in warned]
    assert texts == [
        f"{path}, line 2: the field `descripton` is unknown and ignored. Did you mean `description`?",
        f"{path}, line 3: the field `Label` is unknown and ignored. Did you mean `label`?",
        f"{path}, line 3: the field `zzz` is unknown and ignored. Known: id, title, description, "
        "aliases, label, tags, ids, popularity.",
    ]


def test_the_fields_of_the_published_catalogue_are_known(write):
    line = {
        "idx": "https://x.org?curid=7",
        "title": "Rome",
        "text": "A city.",
        "entity": "Rome",
        "stub": False,
    }
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert list(read_catalogue(write(json.dumps(line)))) == [
            Entity("curid:7", "Rome", "A city.", ids={"title": "Rome", "curid": "7"})
        ]


def test_a_dict_is_checked_like_a_line():
    given = {"id": "E1", "title": "Rome", "aliases": ("Roma",), "popularity": np.float32(0.5), "label": None}
    entity = check_entity(given, "entity 1")
    assert entity == Entity("E1", "Rome", aliases=("Roma",), popularity=0.5)
    # can be written again
    assert json.dumps(entity_to_dict(entity))
    whole = check_entity({**given, "popularity": np.int64(3)}, "entity 1").popularity
    assert (whole, type(whole)) == (3, int)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("Rome", "entity 3: expected a dict with the fields of an entity. Found: 'Rome'"),
        (
            {"id": 7, "title": "Rome"},
            "entity 3: `id` must be a string that is not empty. Found: 7",
        ),
        (
            {"id": "E1", "title": "Rome", "ids": {7: "x"}},
            "entity 3: `ids` must map names to strings. Found: {7",
        ),
        ({"id": "E1", "title": "Rome", "popularity": np.bool_(True)}, "`popularity` must be a number"),
        ({"id": "E1", "title": "\ud800"}, "entity 3: text that is not valid Unicode"),
    ],
)
def test_an_error_of_a_dict_says_which_entity(given, message):
    with pytest.raises(ELQError, match="E020") as error:
        check_entity(given, "entity 3")
    assert message in str(error.value)


def test_a_dict_with_an_unknown_field_warns_once_for_all():
    warned = set()
    with pytest.warns(
        UserWarning, match="entity 1: the field `alias` is unknown and ignored. Did you mean `aliases`"
    ):
        check_entity({"id": "E1", "title": "Rome", "alias": object()}, "entity 1", warned=warned)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check_entity({"id": "E2", "title": "Roma", "alias": object()}, "entity 2", warned=warned)


def test_a_field_that_is_unknown_in_many_records_is_named_once():
    given = [{"id": f"E{i}", "title": "Rome", "descripton": "A city."} for i in range(5)]
    with pytest.warns(UserWarning, match="W007.*entity 1.*Did you mean `description`") as warned:
        assert [entity.id for entity in check_entities(given)] == ["E0", "E1", "E2", "E3", "E4"]
    assert len(warned) == 1


class Kind(str, enum.Enum):
    PRODUCT = "PRODUCT"


@pytest.mark.parametrize("as_entity", [False, True])
def test_an_entity_has_built_in_types_only(as_entity):
    given = {
        "id": np.str_("E1"),
        "title": np.str_("Rome"),
        "description": np.str_("A city."),
        "aliases": [np.str_("Roma")],
        "label": Kind.PRODUCT,
        "tags": (Kind.PRODUCT,),
        "ids": {np.str_("wikidata"): np.str_("Q220")},
        "popularity": np.float64(2.5),
    }
    found = check_entity(Entity(**given) if as_entity else given, "entity 1")
    expected = Entity("E1", "Rome", "A city.", ("Roma",), "PRODUCT", {"wikidata": "Q220"}, 2.5, ("PRODUCT",))
    assert repr(found) == repr(expected)
    types = {type(text) for text in [found.id, found.label, *found.aliases, *found.tags, *found.ids]}
    assert (types, type(found.popularity)) == ({str}, float)


def test_what_is_no_text_stays_as_it_is():
    assert [plain_text(value) for value in (None, 7, b"x")] == [None, 7, b"x"]


def test_minus_zero_is_zero():
    assert str(check_entity({"id": "E1", "title": "Rome", "popularity": -0.0}, "").popularity) == "0.0"


@pytest.mark.parametrize(
    ("entity", "message"),
    [
        (Entity(5, "Rome"), "`id` must be a string that is not empty. Found: 5"),
        (Entity("", "Rome"), "`id` must be"),
        (Entity("E1", ""), "`title` must be"),
        (Entity("E1", None), "`title` must be"),
        (Entity("E1", "Rome", 7), "`description` must be a string"),
        (Entity("E1", "Rome", aliases="abc"), "`aliases` must be a list of strings. Found: 'abc'"),
        (Entity("E1", "Rome", ids={"a": 1}), "`ids` must map names to strings"),
        (Entity("E1", "Rome", popularity=float("inf")), "`popularity` must be a number"),
        (Entity("E1", "Rome", popularity=float("nan")), "`popularity` must be a number"),
        (Entity("E1", "Rome", popularity=-5), "`popularity` must be a number"),
        (Entity("E1", "Rome \ud800"), "text that is not valid Unicode"),
    ],
)
def test_an_entity_is_checked_like_a_dict(entity, message):
    with pytest.raises(ELQError, match=r"E020.*entity 2: ") as error:
        check_entities([Entity("E0", "Paris"), entity])
    assert message in str(error.value)


def test_fields_of_an_entity_that_are_none_have_their_defaults():
    given = Entity("E1", "Rome", None, None, None, None, None, None)
    assert check_entity(given, "entity 1") == Entity("E1", "Rome")


def test_null_is_the_same_as_absent(write):
    line = record(description=None, aliases=None, label=None, ids=None, popularity=None)
    assert list(read_catalogue(write(line))) == [Entity("E2", "Rome")]


def test_a_byte_order_mark_is_no_problem(write):
    assert list(read_catalogue(write(b"\xef\xbb\xbf" + GOOD.encode("utf8")))) == [Entity("E1", "Paris")]


def test_a_record_has_no_empty_fields():
    assert entity_to_dict(Entity("E1", "Paris")) == {"id": "E1", "title": "Paris"}


@pytest.mark.parametrize("ensure_ascii", [True, False])
def test_a_title_in_any_script_is_read_as_it_is(write, ensure_ascii):
    title = "Zürich 東京 😀 e\u0301"
    path = write(json.dumps({"id": "E1", "title": title}, ensure_ascii=ensure_ascii))
    assert [entity.title for entity in read_catalogue(path)] == [title]


texts = st.text()


@given(
    st.builds(
        Entity,
        id=texts,
        title=texts,
        description=texts,
        aliases=st.lists(texts, max_size=3).map(tuple),
        tags=st.lists(texts, max_size=3).map(tuple),
        label=texts,
        ids=st.dictionaries(texts, texts, max_size=3),
        popularity=st.floats(0, 1e14) | st.integers(0, 10**14),
    )
)
def test_an_entity_survives_the_way_to_json_and_back(entity):
    line = json.dumps(entity_to_dict(entity), ensure_ascii=False)
    assert entity_from_dict(json.loads(line)) == entity


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("Shaquille O'Neal", "shaquille o neal"),
        ("  The Beatles ", "beatles"),
        ("the", "the"),
        ("São Paulo", "sao paulo"),
        ("M*A*S*H", "m a s h"),
        ("?!", ""),
        ("日本", "日本"),
    ],
)
def test_names_are_compared_as_people_type_them(text, name):
    assert normalize_name(text) == name


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("Is Jay-Z rich?", [("is", "Is"), ("jay", "Jay"), ("z", "Z"), ("rich", "rich")]),
        ("zoe\u0308 ÆTNA", [("zoe", "zoe"), ("ætna", "ÆTNA")]),
        ("œ ﬁn ½", [("œ", "œ"), ("fin", "ﬁn"), ("1", "½"), ("2", "½")]),
        ("İzmir Åre", [("izmir", "İzmir"), ("are", "Åre")]),
        ("東京 😀 100°", [("東京", "東京"), ("100", "100")]),
        ("ΟΔΟΣ", [("οδος", "ΟΔΟΣ")]),
        ("", []),
    ],
)
def test_words_know_where_they_stand(text, words):
    assert [(word, text[start:end]) for word, start, end in find_words(text)] == words


@given(st.text().filter(lambda text: "İ" not in text))
def test_words_are_those_of_the_whole_text(text):
    found = [word for word, _, _ in find_words(text)]
    decomposed = unicodedata.normalize("NFKD", text.lower())
    assert found == re.findall(r"\w+", "".join(c for c in decomposed if not unicodedata.combining(c)))


def test_names_of_an_entity():
    names = entity_names(Entity("E1", "Paris, Texas (city)", aliases=("Paris TX", "!")))
    assert names == {"paris texas city", "paris texas", "paris", "paris tx"}


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("marylin monro", "marilyn monroe"),
        ("fellow ship of the ring", "fellowship of the ring"),
        ("missisipi", "mississippi"),
        ("effel tower", "eiffel tower"),
    ],
)
def test_most_typos_leave_the_skeleton(typed, meant):
    assert skeleton(typed) == skeleton(meant) != ""


@pytest.mark.parametrize(("one", "other"), [("paris", "porto"), ("georgia", "georgetown"), ("ali", "eli")])
def test_other_names_have_other_skeletons(one, other):
    assert skeleton(one) != skeleton(other) or skeleton(one) == ""


@pytest.mark.parametrize("name", ["", "it", "ali", "oahu"])
def test_short_skeletons_tell_nothing(name):
    assert skeleton(name) == ""
