import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies import numeric_gradient, row_spans, rows

from spacy_elq.core.spans import (
    are_inside_any,
    average_spans,
    enumerate_spans,
    overlap_any,
    pool_spans,
    score_spans,
    to_row_spans,
)
from spacy_elq.types import Rows


def simple_rows(*lengths: int) -> Rows:
    positions = np.arange(sum(lengths))
    flags = np.ones(len(positions), dtype=bool)
    return Rows(positions[:, None], positions, positions + 1, flags, ~flags, np.asarray(lengths))


def naive_spans(rows: Rows, max_length: int):
    offset = 0
    for length in rows.lengths:
        for start in range(offset, offset + length):
            for end in range(start + 1, offset + length + 1):
                fits = rows.ends[end - 1] - rows.starts[start] <= max_length
                if fits and rows.bounds[start] and rows.bounds[end - 1] and not rows.blocks[start:end].any():
                    yield [start, end]
        offset += length


def test_every_span_up_to_the_longest_in_order_of_reading():
    spans = enumerate_spans(simple_rows(3, 0, 2), max_length=2)
    assert spans.tolist() == [[0, 1], [0, 2], [1, 2], [1, 3], [2, 3], [3, 4], [3, 5], [4, 5]]


@pytest.mark.parametrize(("n", "longest"), [(12, 10), (10, 10), (4, 10)])
def test_the_number_of_spans_is_the_papers(n, longest):
    expected = longest * (longest + 1) // 2 + (n - longest) * longest if n >= longest else n * (n + 1) // 2
    assert len(enumerate_spans(simple_rows(n), max_length=longest)) == expected


@given(rows(), st.integers(1, 8))
def test_spans_are_what_a_plain_loop_finds(rows, max_length):
    assert enumerate_spans(rows, max_length=max_length).tolist() == list(naive_spans(rows, max_length))


def test_no_tokens_no_spans():
    assert enumerate_spans(simple_rows(0, 0), max_length=10).shape == (0, 2)


@given(rows(), st.integers(1, 8))
def test_row_spans_begin_with_the_first_row_and_end_with_the_last(rows, max_length):
    spans = enumerate_spans(rows, max_length=max_length)
    for (start, end), (first, last) in zip(spans, to_row_spans(rows, spans), strict=True):
        assert first == rows.starts[start]
        assert last == rows.ends[end - 1]
        assert 1 <= last - first <= max_length


@given(st.data(), st.integers(1, 9))
def test_score_is_start_plus_end_plus_inside(data, n_rows):
    spans = data.draw(row_spans(n_rows))
    logits = np.random.default_rng(n_rows).normal(size=(n_rows, 3))
    scores, _ = score_spans(logits, spans)
    expected = [logits[s, 0] + logits[e - 1, 1] + logits[s:e, 2].sum() for s, e in spans]
    np.testing.assert_allclose(scores, expected, atol=1e-9)


def test_scores_keep_their_digits_in_a_long_batch():
    logits = np.full((200_000, 3), 0.1, dtype="float32")
    scores, _ = score_spans(logits, np.asarray([[199_990, 200_000]]))
    np.testing.assert_allclose(scores, [1.2], atol=1e-6)


@given(st.data(), st.integers(1, 6))
def test_score_gradient(data, n_rows):
    spans = data.draw(row_spans(n_rows))
    rng = np.random.default_rng(n_rows)
    logits, d_scores = rng.normal(size=(n_rows, 3)), rng.normal(size=len(spans))
    _, backprop = score_spans(logits, spans)
    expected = numeric_gradient(lambda X: (score_spans(X, spans)[0] * d_scores).sum(), logits)
    np.testing.assert_allclose(backprop(d_scores), expected, atol=1e-6)


@given(st.data(), st.integers(1, 9))
def test_pool_is_the_mean_of_the_rows(data, n_rows):
    spans = data.draw(row_spans(n_rows))
    vectors = np.random.default_rng(n_rows).normal(size=(n_rows, 4))
    means, _ = pool_spans(vectors, spans)
    assert means.shape == (len(spans), 4)
    for mean, (start, end) in zip(means, spans, strict=True):
        np.testing.assert_allclose(mean, vectors[start:end].mean(axis=0), atol=1e-9)


@given(st.data(), st.integers(1, 5))
def test_pool_gradient(data, n_rows):
    spans = data.draw(row_spans(n_rows))
    rng = np.random.default_rng(n_rows)
    vectors, d_means = rng.normal(size=(n_rows, 2)), rng.normal(size=(len(spans), 2))
    _, backprop = pool_spans(vectors, spans)
    expected = numeric_gradient(lambda X: (pool_spans(X, spans)[0] * d_means).sum(), vectors)
    np.testing.assert_allclose(backprop(d_means), expected, atol=1e-6)


def test_pool_keeps_the_type_of_the_vectors():
    means, backprop = pool_spans(np.ones((3, 2), dtype="float32"), np.asarray([[0, 3]]))
    assert means.dtype == backprop(means).dtype == np.float32


@given(row_spans(12, max_spans=10), row_spans(12, max_spans=5))
def test_overlap_is_what_a_plain_loop_finds(spans, others):
    expected = [any(start < e and s < end for s, e in others) for start, end in spans]
    assert overlap_any(spans, others).tolist() == expected


def test_neighbours_do_not_overlap():
    others = np.asarray([[2, 4], [2, 3]])
    assert overlap_any(np.asarray([[0, 2], [4, 6], [3, 4], [0, 9]]), others).tolist() == [
        False,
        False,
        True,
        True,
    ]


SPANS = st.lists(
    st.tuples(st.integers(0, 8), st.integers(1, 4)).map(lambda x: (x[0], x[0] + x[1])), max_size=8
)


@given(SPANS, SPANS)
def test_parts_of_longer_spans_as_by_a_loop(spans, others):
    found = are_inside_any(
        np.asarray(spans, dtype="int64").reshape(-1, 2), np.asarray(others, dtype="int64").reshape(-1, 2)
    )
    expected = [
        any(begin <= start and end <= stop and (begin, stop) != (start, end) for begin, stop in others)
        for start, end in spans
    ]
    assert found.tolist() == expected


def test_columns_beside_the_mention_scores_get_no_gradient_from_them():
    logits = np.random.default_rng(0).normal(size=(4, 4))
    scores, backprop = score_spans(logits, np.asarray([[0, 2], [1, 4]]))
    np.testing.assert_array_equal(scores, score_spans(logits[:, :3], np.asarray([[0, 2], [1, 4]]))[0])
    d_logits = backprop(np.ones(2))
    assert d_logits.shape == (4, 4)
    assert not d_logits[:, 3].any()


@given(row_spans(n_rows=8), st.integers(0, 2**31))
def test_averages_and_their_gradient_are_those_of_pooling(spans, seed):
    rng = np.random.default_rng(seed)
    values = rng.normal(size=8)
    d_means = rng.normal(size=len(spans))
    means, backprop = average_spans(values, spans)
    expected, bp_expected = pool_spans(values[:, None], spans)
    np.testing.assert_allclose(means, expected[:, 0], atol=1e-9)
    np.testing.assert_allclose(backprop(d_means), bp_expected(d_means[:, None])[:, 0], atol=1e-9)
