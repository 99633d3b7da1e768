from itertools import combinations, pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spacy_elq.baselines.vcg.decode import (
    best_candidates,
    best_groups,
    choose_group,
    order_candidates,
    shares,
)
from spacy_elq.core.decode import Decoder

# two docs of five and three tokens
SPANS = np.asarray([(0, 2), (0, 4), (1, 2), (2, 4), (5, 6), (5, 8), (6, 8)])
DOCS = np.asarray([0, 0, 0, 0, 1, 1, 1])


def to_logits(*probabilities):
    p = np.asarray(probabilities, dtype="float64")
    return np.log(p) - np.log1p(-p)


def choose(*probabilities, **settings):
    decoder = Decoder(**{"threshold": 0.5, **settings})
    return choose_group(SPANS, to_logits(*probabilities), DOCS, decoder).tolist()


def test_two_that_fit_are_better_than_one_that_covers_both():
    # (1 - 0.6) (1 - 0.7) = 0.12 is less than 1 - 0.85, and 1 - 0.9 less than both
    assert choose(0.6, 0.85, 0.1, 0.7, 0.1, 0.1, 0.1) == [0, 3]
    assert choose(0.6, 0.9, 0.1, 0.7, 0.1, 0.1, 0.1) == [1]


def test_greedy_would_choose_another_group():
    # the best by itself, (0, 4), keeps two others away
    spans, docs = np.asarray([(0, 2), (1, 4), (3, 5)]), np.zeros(3, dtype="int64")
    logits = to_logits(0.8, 0.85, 0.8)
    assert choose_group(spans, logits, docs, Decoder(threshold=0.5)).tolist() == [0, 2]


def test_each_doc_has_a_group_of_its_own():
    assert choose(0.1, 0.1, 0.7, 0.6, 0.8, 0.99, 0.8) == [2, 3, 5]


def test_below_the_threshold_nothing_is_a_link():
    assert choose(0.6, 0.49, 0.1, 0.4, 0.1, 0.1, 0.1) == [0]
    assert choose(0.6, 0.49, 0.1, 0.4, 0.1, 0.1, 0.1, threshold=0.3) == [0, 3]


def test_the_best_of_a_doc_can_have_a_lower_threshold():
    assert choose(0.3, 0.1, 0.1, 0.2, 0.1, 0.1, 0.4, first_threshold=0.3) == [0, 6]


def test_few_of_a_doc_are_considered():
    assert choose(0.6, 0.85, 0.1, 0.7, 0.1, 0.1, 0.1, mention_limit=1) == [1]


def test_no_ngrams():
    empty = np.zeros(0)
    assert choose_group(np.zeros((0, 2), dtype="int64"), empty, empty, Decoder()).tolist() == []
    assert best_candidates(empty, empty.astype("int64")).tolist() == []
    assert shares(empty, empty.astype("int64")).tolist() == []


@st.composite
def marked_docs(draw):
    spans, docs, offset = [], [], 0
    for doc in range(draw(st.integers(1, 3))):
        length = draw(st.integers(1, 6))
        every = list(combinations(range(length + 1), 2))
        for start, end in sorted(draw(st.sets(st.sampled_from(every), max_size=7))):
            spans.append((offset + start, offset + end))
            docs.append(doc)
        offset += length
    gains = draw(st.lists(st.floats(0.01, 3.0), min_size=len(spans), max_size=len(spans)))
    return np.asarray(spans, dtype="int64").reshape(-1, 2), np.asarray(gains), np.asarray(docs, dtype="int64")


@given(marked_docs())
def test_groups_are_the_best_of_all(world):
    spans, gains, docs = world
    found = best_groups(spans, gains, docs)
    assert found.tolist() == sorted(set(found.tolist()))
    assert is_free(spans[found])
    best = max(
        sum(gains[list(group)])
        for size in range(len(spans) + 1)
        for group in combinations(range(len(spans)), size)
        if is_free(spans[list(group)])
    )
    assert sum(gains[found]) == pytest.approx(best)


def is_free(spans):
    ordered = sorted(map(tuple, spans.tolist()))
    return all(before[1] <= after[0] for before, after in pairwise(ordered))


def test_the_first_of_the_best_candidates_is_taken():
    scores, sizes = np.asarray([0.1, 0.4, 0.4, -2.0, -3.0]), np.asarray([3, 2])
    assert best_candidates(scores, sizes).tolist() == [1, 3]


def test_candidates_in_order():
    scores, sizes = np.asarray([0.1, 0.4, 0.4, -2.0, 3.0, 1.0]), np.asarray([3, 2, 1])
    assert order_candidates(scores, sizes, np.asarray([1, 0])).tolist() == [4, 3, 1, 2, 0]


def test_shares_sum_to_one():
    found = shares(np.asarray([0.0, np.log(3), 1000.0, 999.0]), np.asarray([2, 2]))
    np.testing.assert_allclose(found[:2], [0.25, 0.75])
    assert found[2:].sum() == pytest.approx(1.0)
