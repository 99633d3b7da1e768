"""The embedded default is a data set to trust: whole, consistent, and hard enough."""

import re
from collections import Counter
from pathlib import Path

import pytest
import spacy

from spacy_elq.catalogue import read_catalogue
from spacy_elq.corpora import Report, questions_to_docs, read_questions

ASSETS = Path(__file__).parent.parent / "assets"
PARTS = ("train", "dev", "test")


@pytest.fixture(scope="module")
def entities():
    return list(read_catalogue(ASSETS / "entities.jsonl"))


@pytest.fixture(scope="module")
def questions():
    return {
        part: list(read_questions(ASSETS / "questions" / f"{part}.txt", format="marked")) for part in PARTS
    }


@pytest.fixture(scope="module")
def nothing():
    return list(read_questions(ASSETS / "nothing.txt", format="marked"))


def ids_of(question):
    return {span.id for span in question.spans}


def test_catalogue_has_enough_entities(entities):
    assert len(entities) >= 800


def test_entities_are_complete(entities):
    for entity in entities:
        assert re.fullmatch(r"Q\d+", entity.id), entity
        assert entity.description.strip(), entity
        assert re.fullmatch(r"[A-Z_]+", entity.label), entity


def test_no_two_entities_read_the_same(entities):
    texts = Counter((entity.title, entity.description) for entity in entities)
    assert [text for text, count in texts.items() if count > 1] == []


def test_there_are_enough_questions(questions):
    assert sum(len(part) for part in questions.values()) >= 1200
    assert all(questions.values())


@pytest.mark.parametrize("part", PARTS)
def test_every_gold_entity_is_in_the_catalogue(entities, questions, part):
    known = {entity.id for entity in entities}
    assert [question.text for question in questions[part] if not ids_of(question) <= known] == []


@pytest.mark.parametrize("part", PARTS)
def test_every_gold_link_fits_the_tokens(questions, part):
    report = Report()
    docs = list(questions_to_docs(questions[part], spacy.blank("en"), report))
    assert report.examples == []
    assert (report.misfits, report.overlapping) == (0, 0)
    assert len(docs) == len(questions[part])


def test_no_question_stands_there_twice(questions, nothing):
    every_part = [*questions.values(), nothing]
    texts = Counter(" ".join(question.text.lower().split()) for part in every_part for question in part)
    assert [text for text, count in texts.items() if count > 1] == []


@pytest.mark.parametrize("part", PARTS)
def test_questions_have_none_to_three_entities(questions, part):
    counts = {len(question.spans) for question in questions[part]}
    assert {0, 1, 2} <= counts <= {0, 1, 2, 3}


@pytest.mark.parametrize("part", PARTS)
def test_every_question_has_one_of_six_kinds(questions, part):
    kinds = {question.kind for question in questions[part]}
    assert len(kinds) >= 6
    assert "" not in kinds


def test_questions_of_kind_none_and_only_they_have_no_entity(questions):
    for part in questions.values():
        for question in part:
            assert (question.kind == "none") == (not question.spans), question


def test_texts_about_nothing_are_many_and_have_no_entity(nothing):
    assert len(nothing) >= 300
    assert {question.kind for question in nothing} == {"query", "chat", "small talk"}
    assert [question.text for question in nothing if question.spans] == []


def test_much_of_the_test_set_is_about_entities_that_training_never_saw(questions):
    seen = {id_ for question in questions["train"] for id_ in ids_of(question)}
    linked = [question for question in questions["test"] if question.spans]
    unseen = [question for question in linked if seen.isdisjoint(ids_of(question))]
    assert len(unseen) >= 0.4 * len(linked)
    assert len(unseen) < len(linked)
