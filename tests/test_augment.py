import random

import pytest
import spacy
from hypothesis import given
from hypothesis import strategies as st
from spacy.tokens import Span
from spacy.training import Example
from thinc.api import fix_random_seed

from spacy_elq.augment import add_typo, build_typo_augmenter
from spacy_elq.gold import COMPLETE, LOST, gold_spans


@pytest.fixture
def nlp():
    fix_random_seed(0)
    return spacy.blank("en")


def example_of(nlp, text, *ranges):
    doc = nlp.make_doc(text)
    doc.spans["gold_links"] = [Span(doc, *r, label="X", kb_id=f"E{i}") for i, r in enumerate(ranges)]
    return Example(nlp.make_doc(text), doc)


@given(st.text(min_size=4, max_size=12), st.integers(0, 99))
def test_a_typo_keeps_the_ends_and_changes_the_length_by_one_at_most(text, seed):
    random.seed(seed)
    typed = add_typo(text)
    assert (typed[0], typed[-1]) == (text[0], text[-1]) or len(typed) < 4 or typed[-2:] == text[:-3:-1]
    assert abs(len(typed) - len(text)) <= 1


@pytest.mark.parametrize("text", ["", "o", "usa"])
def test_short_names_stay(text):
    assert add_typo(text) == text


def test_mentions_are_misspelled_and_still_marked(nlp):
    example = example_of(nlp, "is barcelona older than valencia ?", (1, 2), (4, 5))
    (augmented,) = build_typo_augmenter(level=1.0)(nlp, example)
    assert augmented.predicted.text == augmented.reference.text != example.text
    first, second = gold_spans(augmented.reference)
    assert [first.kb_id_, second.kb_id_] == ["E0", "E1"]
    assert first.text != "barcelona"
    assert second.text != "valencia"
    assert augmented.text.startswith("is b")
    assert augmented.text.endswith("a ?")


def test_what_is_known_of_a_question_stays_known(nlp):
    example = example_of(nlp, "is barcelona older than valencia ?", (1, 2))
    example.reference.user_data.update({COMPLETE: False, LOST: 2, "kind": "plain"})
    example.reference.user_data["._.", "trf_data", None, None] = "of the very text"
    (augmented,) = build_typo_augmenter(level=1.0)(nlp, example)
    assert augmented.text != example.text
    assert augmented.reference.user_data == {COMPLETE: False, LOST: 2, "kind": "plain"}


@pytest.mark.parametrize("ranges", [[], [(0, 2), (1, 3)]], ids=["no gold", "overlap"])
def test_nothing_is_done_where_it_could_go_wrong(nlp, ranges):
    example = example_of(nlp, "university of valencia", *ranges)
    assert list(build_typo_augmenter(level=1.0)(nlp, example)) == [example]


def test_level_is_the_share_of_questions(nlp):
    example = example_of(nlp, "where is valencia", (2, 3))
    augment = build_typo_augmenter(level=0.25)
    changed = sum(next(augment(nlp, example)) is not example for _ in range(400))
    assert 60 < changed < 140
    assert next(build_typo_augmenter(level=0.0)(nlp, example)) is example
