import random

import pytest
import spacy
from hypothesis import given
from hypothesis import strategies as st
from spacy.tokens import Span
from spacy.training import Example
from thinc.api import fix_random_seed

from spacy_elq.corpora.augment import add_typo, build_clip_augmenter, build_typo_augmenter
from spacy_elq.corpora.gold import COMPLETE, LOST, gold_spans

BLANK = spacy.blank("en")


@pytest.fixture
def nlp():
    fix_random_seed(0)
    return spacy.blank("en")


def example_of(nlp, text, *ranges, ids=("E0", "E1")):
    doc = nlp.make_doc(text)
    doc.spans["gold_links"] = [Span(doc, *r, label="X", kb_id=i) for r, i in zip(ranges, ids, strict=False)]
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


def test_a_generator_of_ones_own_chooses_the_typo():
    random.seed(0)
    before = random.getstate()
    typos = [add_typo("barcelona", random.Random(seed)) for seed in range(20)]
    assert typos == [add_typo("barcelona", random.Random(seed)) for seed in range(20)]
    assert len(set(typos)) > 5
    assert random.getstate() == before


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


@given(st.data())
def test_a_piece_holds_whole_links_and_is_as_long_as_a_question(data):
    nlp = BLANK
    words = [f"w{i}" for i in range(data.draw(st.integers(1, 30)))]
    edges = sorted(data.draw(st.sets(st.integers(0, len(words)), min_size=2, max_size=6)))
    ranges = [(a, b) for a, b in zip(edges[::2], edges[1::2], strict=False)]
    example = example_of(nlp, " ".join(words), *ranges, ids=[f"E{i}" for i in range(9)])
    (piece,) = build_clip_augmenter(shortest=3, longest=6)(nlp, example)
    assert piece.text in example.text
    assert piece.predicted.text == piece.reference.text
    gold = {span.kb_id_: span.text for span in gold_spans(example.reference)}
    kept = {span.kb_id_: span.text for span in gold_spans(piece.reference)}
    assert kept
    assert kept.items() <= gold.items()
    # what is not kept is not there at all
    assert not {w for id_ in gold.keys() - kept.keys() for w in gold[id_].split()} & set(piece.text.split())
    assert min(3, len(words)) <= len(piece.reference) <= 6 + sum(b - a - 1 for a, b in ranges)


def test_every_piece_around_a_link_comes_up(nlp):
    example = example_of(nlp, "a b c d e", (2, 3))
    example.reference.user_data[COMPLETE] = False
    augment = build_clip_augmenter(shortest=2, longest=2)
    pieces = [next(augment(nlp, example)) for _ in range(40)]
    assert {piece.text for piece in pieces} == {"b c", "c d"}
    assert pieces[0].reference.user_data == {COMPLETE: False}


@pytest.mark.parametrize("ranges", [[], [(0, 1)]], ids=["no gold", "short"])
def test_what_cannot_be_cut_stays(nlp, ranges):
    example = example_of(nlp, "a b c", *ranges)
    assert next(build_clip_augmenter(shortest=3, longest=3)(nlp, example)) is example


def test_a_share_of_the_pieces_is_read_in_lower_case(nlp):
    example = example_of(nlp, "Old Valencia is nice", (1, 2))
    pieces = [next(build_clip_augmenter(lower=0.25)(nlp, example)) for _ in range(400)]
    lowered = [piece for piece in pieces if piece.text == "old valencia is nice"]
    assert 60 < len(lowered) < 140
    assert {piece.text for piece in pieces} == {"Old Valencia is nice", "old valencia is nice"}
    # gold keeps its capitals, and still fits
    (span,) = gold_spans(lowered[0].reference)
    assert span.text == "Valencia"
    assert lowered[0].get_aligned_spans_y2x([span])[0].text == "valencia"


def test_letters_that_grow_in_lower_case_stay(nlp):
    example = example_of(nlp, "\u0130zmir is nice", (0, 1))
    assert next(build_clip_augmenter(lower=1.0)(nlp, example)).text == "\u0130zmir is nice"
