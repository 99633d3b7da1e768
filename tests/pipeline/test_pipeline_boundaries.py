import numpy as np
import pytest
import spacy
from hypothesis import given
from hypothesis import strategies as st

from spacy_elq.pipeline.boundaries import (
    are_sound,
    are_texts,
    are_written_so,
    begin_with_article,
    count_words,
    token_kinds,
)
from spacy_elq.types import Entity


def parts(nlp, *texts):
    docs = [nlp.make_doc(text) for text in texts]
    return docs, token_kinds(docs), np.asarray([len(doc) for doc in docs])


@pytest.fixture(scope="module")
def nlp():
    return spacy.blank("en")


@pytest.mark.parametrize(
    ("text", "sound"),
    [
        ("paris", True),
        ("( paris", False),
        ("paris .", False),
        ("paris —", False),
        ("\u201c paris", False),
        ("paris \U0001f642", False),
        ("obama 's", False),
        ("obama \u2019s", False),
        ("rock - n - roll", True),
        ("AC / DC", True),
        ("C++", True),
        ("3 M", True),
        ("https://example.com/paris", False),
        ("paris https://example.com/paris hotels", False),
        ("me@example.com", False),
    ],
)
def test_mentions_begin_and_end_with_a_word_and_have_no_address(nlp, text, sound):
    docs, kinds, _ = parts(nlp, text)
    assert are_sound(kinds, np.asarray([[0, len(docs[0])]])).tolist() == [sound]


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("see <a href = 'x/paris'> paris </a> now", ["see", "paris", "now"]),
        ("<!-- no <b> paris --> paris <br/>", ["paris"]),
        ("paris < rome and 3 > 2", ["paris", "rome", "and", "3", "2"]),
        ("paris", ["paris"]),
    ],
)
def test_tags_and_comments_are_no_part_of_a_mention(nlp, text, found):
    docs, kinds, _ = parts(nlp, text, "")
    spans = np.asarray([[i, i + 1] for i in range(len(docs[0]))])
    sound = are_sound(kinds, spans)
    assert [token.text for token, is_sound in zip(docs[0], sound, strict=True) if is_sound] == found


def test_what_is_inside_of_tags_is_no_word_of_the_text(nlp):
    docs, kinds, lengths = parts(nlp, "<p> new york </p>")
    at = [token.text for token in docs[0]].index("new")
    assert are_texts(kinds, np.asarray([[at, at + 2], [at, at + 1]]), lengths).tolist() == [True, False]


def test_a_mention_does_not_reach_over_a_tag(nlp):
    _, kinds, _ = parts(nlp, "new <b> york </b>")
    assert are_sound(kinds, np.asarray([[0, 5], [0, 1]])).tolist() == [False, True]


def test_words_are_counted_without_punctuation(nlp):
    _, kinds, lengths = parts(nlp, "click & collect !", "who ? paris")
    spans = np.asarray([[0, 3], [0, 4], [0, 1], [4, 7], [6, 7]])
    assert count_words(kinds, spans).tolist() == [2, 2, 1, 2, 1]
    assert are_texts(kinds, spans, lengths).tolist() == [True, True, False, True, False]


def test_an_article_in_front_is_no_word_of_a_name(nlp):
    _, kinds, lengths = parts(nlp, "The Louvre", "law of the sea")
    spans = np.asarray([[0, 2], [1, 2], [2, 6], [4, 6]])
    assert count_words(kinds, spans).tolist() == [1, 1, 4, 1]
    assert begin_with_article(kinds, spans).tolist() == [True, False, False, True]
    assert are_texts(kinds, spans, lengths).tolist() == [True, True, True, False]


def test_docs_without_tokens_do_no_harm(nlp):
    _, kinds, lengths = parts(nlp, "", "paris", "")
    assert are_texts(kinds, np.asarray([[0, 1]]), lengths).tolist() == [True]


@given(
    st.lists(st.text(max_size=12), min_size=1, max_size=4).filter(lambda texts: any(t.strip() for t in texts))
)
def test_any_text_has_kinds_for_all_its_tokens(texts):
    _, kinds, lengths = parts(spacy.blank("en"), *texts)
    assert len(kinds) == lengths.sum()


class Catalogue:
    """What `are_written_so` asks of an index."""

    def __init__(self, *entities):
        self.entities = entities

    def match_names(self, texts):
        pairs = [(i, j) for i in range(len(texts)) for j in range(len(self.entities))]
        owners, positions = np.asarray(pairs).reshape(-1, 2).T
        return owners, positions, np.ones(len(owners))

    def entity(self, position):
        return self.entities[position]


def test_names_are_compared_to_the_letter_but_for_case_and_spaces():
    catalogue = Catalogue(Entity("1", "Yahoo!"), Entity("2", "Macy\u2019s", aliases=("the store",)))
    texts = ["yahoo !", "yahoo", "macy 's", "The Store", "store"]
    assert are_written_so(catalogue, texts).tolist() == [True, False, True, True, False]
