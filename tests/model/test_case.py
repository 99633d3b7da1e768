"""Capitals as features of rows."""

import numpy as np
import pytest
import spacy

from spacy_elq.model.case import row_case
from spacy_elq.types import Rows

NLP = spacy.blank("en")


def rows_of(docs, counts=None):
    """Rows of tokens, or of word pieces: `counts` per token."""
    counts = np.ones(sum(map(len, docs)), dtype="int64") if counts is None else np.asarray(counts)
    ends = np.cumsum(counts)
    flags = np.ones(len(counts), dtype=bool)
    lengths = np.asarray([len(doc) for doc in docs])
    return Rows(np.zeros((counts.sum(), 4), "f"), ends - counts, ends, flags, ~flags, lengths)


def kinds_of(text):
    """A letter per token: C for a capital, s for none, - where neither says anything."""
    doc = NLP.make_doc(text)
    features = row_case([doc], rows_of([doc]))
    return "".join("C" if capital else "s" if small else "-" for capital, small in features)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("is paris older than rome", "-----"),
        ("Is Paris older than Rome", "-CssC"),
        ("is Paris older than rome", "-Csss"),
        ("Who wrote it", "-ss"),
        ("IS PARIS OLDER", "---"),
        ("Is Paris Older", "---"),
        ("where is my iPhone", "-ssC"),
        ("I agree. Paris is nice", "-s--ss"),
        ("Is it ... ? Rome", "-s---"),
        ("meet me at 5 in Paris", "-ss-sC"),
        ("\U0001f600 Paris is nice", "--ss"),
        ("", ""),
    ],
)
def test_capitals_count_where_they_say_something(text, expected):
    assert kinds_of(text) == expected


def test_each_row_has_what_its_token_has():
    docs = [NLP.make_doc(text) for text in ("Is Paris old", "", "is it")]
    features = row_case(docs, rows_of(docs, [1, 3, 2, 1, 0]))
    capital, small, nothing = [10, 0], [0, 10], [0, 0]
    expected = [nothing, capital, capital, capital, small, small, nothing]
    np.testing.assert_array_equal(features, expected)


def test_tokens_without_rows_are_passed_over():
    docs = [NLP.make_doc("Is Paris old")]
    np.testing.assert_array_equal(row_case(docs, rows_of(docs, [0, 0, 1])), [[0, 10]])
