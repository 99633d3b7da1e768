"""The catalogues and question sets of `assets/`: whole, consistent, and apart from what training sees."""

from collections import Counter
from pathlib import Path

import pytest
import spacy

from spacy_elq.catalogue import read_catalogue
from spacy_elq.corpora import Report, questions_to_docs, read_questions

PROJECT = Path(__file__).parents[1]
ASSETS = PROJECT / "assets"
TRAINING = PROJECT.parents[1] / "assets"
DOMAINS = ("shop", "offices", "films")


def questions_of(path):
    return list(read_questions(path, format="marked"))


def texts_of(path):
    return [" ".join(question.text.lower().split()) for question in questions_of(path)]


@pytest.mark.parametrize("domain", DOMAINS)
def test_every_link_fits_the_tokens_and_the_catalogue(domain):
    known = {entity.id for entity in read_catalogue(ASSETS / domain / "entities.jsonl")}
    questions = questions_of(ASSETS / domain / "questions.txt")
    report = Report()
    list(questions_to_docs(questions, spacy.blank("en"), report))
    assert (report.misfits, report.overlapping) == (0, 0)
    assert {span.id for question in questions for span in question.spans} == known


@pytest.mark.parametrize("domain", DOMAINS)
def test_questions_of_kind_none_and_only_they_have_no_entity(domain):
    for question in questions_of(ASSETS / domain / "questions.txt"):
        assert (question.kind == "none") == (not question.spans), question


@pytest.mark.parametrize("part", ["dev", "test"])
def test_texts_about_nothing_have_no_entity(part):
    questions = questions_of(ASSETS / "nothing" / f"{part}.txt")
    assert {question.kind for question in questions} == {"query", "chat", "small talk"}
    assert [question.text for question in questions if question.spans] == []


def test_no_text_stands_there_twice_or_in_training():
    counts = Counter(text for path in ASSETS.rglob("*.txt") for text in texts_of(path))
    assert [text for text, count in counts.items() if count > 1] == []
    training = [TRAINING / "nothing.txt", *(TRAINING / "questions").glob("*.txt")]
    assert counts.keys().isdisjoint(text for path in training for text in texts_of(path))
