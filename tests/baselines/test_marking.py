import numpy as np
import pytest
import spacy
from transformers import AutoTokenizer

from spacy_elq.baselines.blink.marking import Marks, Pieces, cut_pieces, find_pieces, mark_mentions

MARKS = Marks(cls=1, sep=2, start=3, end=4, pad=0)


def mark(sizes, docs, mentions, max_length=64):
    """The pieces of each doc are numbered from 10, 20, ... on."""
    ids = np.concatenate([10 * (i + 1) + np.arange(size) for i, size in enumerate(sizes)])
    pieces = Pieces(ids, np.zeros((len(ids), 2)), np.append(0, np.cumsum(sizes)))
    given = np.asarray(mentions).reshape(-1, 2)
    ids, lengths = mark_mentions(pieces, np.asarray(docs), given, marks=MARKS, max_length=max_length)
    assert all((row[length:] == 0).all() for row, length in zip(ids, lengths, strict=True))
    return [row[:length].tolist() for row, length in zip(ids, lengths, strict=True)]


def test_marks_stand_around_the_mention():
    assert mark([3, 2], [0, 0, 1], [(1, 2), (0, 3), (4, 5)]) == [
        [1, 10, 3, 11, 4, 12, 2],
        [1, 3, 10, 11, 12, 4, 2],
        [1, 20, 3, 21, 4, 2],
    ]


@pytest.mark.parametrize(
    ("mention", "expected"),
    [
        ((4, 5), [1, 13, 3, 14, 4, 15, 2]),
        ((0, 1), [1, 3, 10, 4, 11, 12, 2]),
        ((8, 9), [1, 16, 17, 3, 18, 4, 2]),
        ((2, 5), [1, 3, 12, 13, 14, 4, 2]),
        ((2, 8), [1, 3, 12, 13, 14, 4, 2]),
    ],
    ids=["middle", "begin", "end", "as long as there is room", "longer"],
)
def test_what_is_too_long_is_cut_around_the_mention(mention, expected):
    assert mark([9], [0], [mention], max_length=7) == [expected]


def test_no_mentions():
    assert mark([3], np.zeros(0, dtype="int64"), np.zeros((0, 2), dtype="int64")) == []


def test_pieces_of_tokens(encoder_path):
    nlp = spacy.blank("en")
    docs = [nlp("what's new york city?"), nlp(""), nlp("zz paris")]
    tokenizer = AutoTokenizer.from_pretrained(encoder_path)
    pieces = cut_pieces(docs, tokenizer)
    # "what", "'s", "new", "york", "city", "?" and "zz", "paris"
    owners, places = find_pieces(docs, np.asarray([[2, 5], [0, 1], [1, 2], [6, 7], [7, 8]]), pieces)
    assert owners.tolist() == [0, 0, 0, 2, 2]
    texts = [tokenizer.convert_ids_to_tokens(pieces.ids[a:b]) for a, b in places]
    assert texts == [["new", "york", "city"], ["what"], ["'", "s"], ["z", "##z"], ["paris"]]
    assert pieces.begins.tolist() == [0, 7, 7, 10]


def test_a_token_inside_of_a_word_takes_the_pieces_it_shares(encoder_path):
    nlp = spacy.blank("en")
    doc = nlp("cannot paris")  # "can", "not", "paris"
    pieces = cut_pieces([doc], AutoTokenizer.from_pretrained(encoder_path))
    _, places = find_pieces([doc], np.asarray([[0, 1], [1, 2], [2, 3]]), pieces)
    assert places.tolist() == [[0, 3], [3, 6], [6, 7]]
