import json

import pytest

from spacy_elq.corpora import (
    Question,
    QuestionSpan,
    Report,
    choose_questions,
    read_ids,
    read_translation,
    translate_ids,
)
from spacy_elq.errors import ELQError


@pytest.fixture
def write(tmp_path):
    def write_text(text):
        path = tmp_path / "ids"
        path.write_text(text, encoding="utf8")
        return path

    return write_text


@pytest.fixture
def catalogue(tmp_path):
    path = tmp_path / "entities.jsonl"
    entities = [
        {"id": "E1", "title": "Paris", "ids": {"wikidata": "Q90", "freebase": "m.05qtj"}},
        {"id": "E2", "title": "Rome", "ids": {"wikidata": "Q220"}},
        {"id": "E3", "title": "Nowhere"},
    ]
    path.write_text("".join(json.dumps(entity) + "\n" for entity in entities), encoding="utf8")
    return path


# Which questions


@pytest.mark.parametrize(
    "text",
    [
        '["W-1", "W-2", 3]',
        "\ufeffW-1\nW-2\n3",
        '\n [\n"W-1",\n"W-2",\n"3"]',
        "W-1\nW-2\n3\n",
        " W-1 \r\n\n  W-2\n3",
    ],
    ids=["list", "byte order mark", "list over lines", "lines", "lines with blanks"],
)
def test_ids_are_a_json_list_or_one_a_line(write, text):
    assert read_ids(write(text)) == {"W-1", "W-2", "3"}


@pytest.mark.parametrize("text", ["", "[]"])
def test_no_ids_are_no_ids(write, text):
    assert read_ids(write(text)) == set()


def test_a_broken_list_of_ids_is_an_error_that_shows_it(write):
    with pytest.raises(ELQError, match=r'E040.*ids, line 1: not valid JSON .*: \["W-1", "W-'):
        read_ids(write('["W-1", "W-'))


def test_ids_in_another_encoding_are_an_error(tmp_path):
    (tmp_path / "ids").write_bytes("Zürich".encode("latin1"))
    with pytest.raises(ELQError, match=r"E040.*ids, line 1: not UTF-8"):
        read_ids(tmp_path / "ids")


def test_a_missing_list_of_ids_is_an_error_that_names_it(tmp_path):
    with pytest.raises(ELQError, match=r"File not found: .*nowhere.*Expected a list of question ids"):
        read_ids(tmp_path / "nowhere")


@pytest.mark.parametrize(
    ("chosen", "expected"),
    [
        ({}, ["a", "b", "c", ""]),
        ({"only": {"b", "c", "z"}}, ["b", "c"]),
        ({"without": {"b", "z"}}, ["a", "c", ""]),
        ({"only": {"b", "c"}, "without": {"b"}}, ["c"]),
        ({"only": set()}, []),
        ({"without": set()}, ["a", "b", "c", ""]),
    ],
    ids=["all", "only", "without", "both", "only none", "without none"],
)
def test_questions_are_chosen_by_id_and_the_others_counted(chosen, expected):
    report = Report()
    questions = [Question("text", [], id=id_) for id_ in ("a", "b", "c", "")]
    assert [question.id for question in choose_questions(questions, report, **chosen)] == expected
    assert report.left_out == 4 - len(expected)


# By which ids they speak


@pytest.mark.parametrize(
    ("system", "expected"),
    [("wikidata", {"Q90": "E1", "Q220": "E2"}), ("freebase", {"m.05qtj": "E1"})],
)
def test_a_catalogue_translates_ids_of_other_systems(catalogue, system, expected):
    assert read_translation(catalogue, system) == expected


def test_a_system_that_the_catalogue_does_not_have_is_an_error(catalogue):
    with pytest.raises(ELQError, match=r"E048.*entities\.jsonl.*'imdb'.*--ids"):
        read_translation(catalogue, "imdb")


def test_gold_links_get_the_ids_of_the_catalogue_where_it_knows_them():
    report = Report()
    spans = [QuestionSpan(0, 1, "Q90"), QuestionSpan(2, 3, "Q404"), QuestionSpan(2, 5, "Q220")]
    given = [Question("a b c", spans, "typo", "W-1", False), Question("d", [])]
    assert list(translate_ids(given, {"Q90": "E1", "Q220": "E2"}, report)) == [
        Question(
            "a b c",
            [QuestionSpan(0, 1, "E1"), QuestionSpan(2, 3, "Q404"), QuestionSpan(2, 5, "E2")],
            "typo",
            "W-1",
            False,
        ),
        Question("d", []),
    ]
    assert report.unknown == 1
