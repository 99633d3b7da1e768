import numpy as np
import pytest
import spacy
from hypothesis import given
from hypothesis import strategies as st
from spacy.tokens import Doc

from spacy_elq.baselines.tagme.spotting import enumerate_runs, find_spots, hash_words, name_key
from spacy_elq.names import normalize_name

NLP = spacy.blank("en")


def finder(names):
    """A dictionary that knows only whether something is a name: its position in the list."""
    places = {name_key(name): i for i, name in enumerate(names)}
    return lambda keys: np.asarray([places.get(int(key), -1) for key in keys], dtype="int64")


def spots_of(text, *names, max_length=6):
    spans, _ = find_spots([NLP(text)], finder(names), max_length=max_length)
    return [NLP(text)[start:end].text for start, end in spans]


def test_a_name_has_one_key_however_it_is_written():
    assert name_key("The Côte-d'Or") == name_key("cote d or")
    assert name_key("new york") != name_key("york new")
    assert name_key("?!") == 0


def test_runs_have_the_keys_of_the_names_they_are():
    hashes, texts, places = hash_words(["Is New-York", "", "big, Zoë?"])
    assert texts.tolist() == [0, 0, 0, 2, 2]
    assert places.tolist() == [[0, 2], [3, 6], [7, 11], [0, 3], [5, 8]]
    runs, keys = enumerate_runs(hashes, texts, max_length=2)
    assert runs.tolist() == [[0, 1], [1, 2], [2, 3], [3, 4], [4, 5], [0, 2], [1, 3], [3, 5]]
    names = ["is", "new", "york", "big", "zoe", "is new", "new york", "big zoe"]
    assert keys.tolist() == [name_key(name) for name in names]


@pytest.mark.parametrize(
    ("text", "name", "spots"),
    [
        ("is NEW York, big", "new york", ["NEW York"]),
        ("the new-york times", "New York", ["new-york"]),
        ("in the sun", "The Sun", ["sun"]),
        ("who wrote don't stop", "Don't Stop", ["don't stop"]),
        ("i cannot wait", "can", []),
        ("is o'neal tall", "neal", []),
        ("is o'neal tall", "O’Neal", ["o'neal"]),
        ("ZOË and zoe\u0308 and zoe", "Zoe", ["ZOË", "zoe\u0308", "zoe"]),
        ("(paris) \n paris", "Paris", ["paris", "paris"]),
        ("İzmir", "i\u0307zmir", ["İzmir"]),
        ("", "x", []),
        ("?", "x", []),
    ],
)
def test_spots_are_whole_tokens_whatever_the_spelling(text, name, spots):
    assert spots_of(text, name) == spots


def test_longest_name_is_a_setting():
    assert spots_of("a b c", "b c", "b", max_length=1) == ["b"]
    assert spots_of("a b c", "b c", "b", max_length=2) == ["b", "b c"]


def test_a_batch_gives_what_its_docs_give():
    docs = [NLP(text) for text in ["new york", "", "york", "new"]]
    spans, names = find_spots(docs, finder(["york", "new york"]), max_length=2)
    # no name reaches from one doc into the next: york, new is none
    assert spans.tolist() == [[0, 2], [1, 2], [2, 3]]
    assert names.tolist() == [1, 0, 0]


def test_no_docs():
    spans, names = find_spots([], finder(["x"]), max_length=2)
    assert spans.shape == (0, 2)
    assert names.shape == (0,)


TOKENS = ["new", "York", "the", "a", "Côte", "o'neal", "o'", "sun", ",", "-", "?"]
NAMES = ["new", "new york", "york the new", "york", "a", "cote", "o neal", "o", "neal sun", "sun o", "cote o"]


@st.composite
def docs(draw):
    words = draw(st.lists(st.sampled_from(TOKENS), max_size=8))
    spaces = draw(st.lists(st.booleans(), min_size=len(words), max_size=len(words)))
    # two words without a space between them would be one word
    glued = [i for i in range(len(words) - 1) if words[i][-1].isalnum() and words[i + 1][0].isalnum()]
    return Doc(NLP.vocab, words, [space or i in glued for i, space in enumerate(spaces)])


def naive_spots(doc, names, max_length):
    found = []
    for start in range(len(doc)):
        for end in range(start + 1, len(doc) + 1):
            name = normalize_name(doc[start:end].text)
            shorter = [doc[start + 1 : end], doc[start : end - 1]] if end > start + 1 else []
            is_shortest = all(normalize_name(span.text) != name for span in shorter)
            if name in names and len(name.split()) <= max_length and is_shortest:
                found.append((start, end, name))
    return found


@given(st.lists(docs(), max_size=3), st.sets(st.sampled_from(NAMES)), st.integers(1, 4))
def test_spots_are_what_a_plain_loop_finds(batch, names, max_length):
    known = sorted(names)
    spans, found = find_spots(batch, finder(known), max_length=max_length)
    expected, offset = [], 0
    for doc in batch:
        naive = naive_spots(doc, names, max_length)
        expected += [(offset + start, offset + end, name) for start, end, name in naive]
        offset += len(doc)
    assert [(*span, known[i]) for span, i in zip(spans.tolist(), found, strict=True)] == expected
