"""Spans as arrays: enumerate, score, pool. Functions with a gradient return `(Y, backprop)`.

A span is a half-open range of the batch's tokens; `row_spans` are the same in rows.
"""

from typing import Callable, Tuple

import numpy as np

from ..types import Array, Rows


def enumerate_spans(rows: Rows, *, max_length: int) -> Array:
    """List every token span of at most `max_length` rows that a mention could be.

    RETURNS (Array): (spans, 2) half-open token ranges, by start, then by end.
    """
    starts = np.flatnonzero(rows.bounds)
    doc_ends = np.repeat(np.cumsum(rows.lengths), rows.lengths)
    reach = np.searchsorted(rows.ends, rows.starts[starts] + max_length, side="right")
    limits = np.minimum(reach, doc_ends[starts])
    if rows.blocks.any():
        blocked = np.append(np.flatnonzero(rows.blocks), len(rows.starts))
        limits = np.minimum(limits, blocked[np.searchsorted(blocked, starts)])
    counts = np.maximum(limits - starts, 0)
    first = np.repeat(np.cumsum(counts) - counts, counts)
    begins = np.repeat(starts, counts)
    ends = begins + 1 + (np.arange(len(begins)) - first)
    keep = rows.bounds[ends - 1] if len(ends) else np.zeros(0, dtype=bool)
    return _pair(begins[keep], ends[keep])


def overlap_any(spans: Array, others: Array) -> Array:
    """RETURNS (Array): (spans,) whether a span shares a token with any of the others, (others, 2)."""
    size = int(max(spans.max(initial=0), others.max(initial=0))) + 1
    edges = np.bincount(others[:, 0], minlength=size) - np.bincount(others[:, 1], minlength=size)
    covered = np.concatenate([[0], np.cumsum(np.cumsum(edges) > 0)])
    return covered[spans[:, 1]] > covered[spans[:, 0]]


def are_inside_any(spans: Array, others: Array) -> Array:
    """RETURNS (Array): (spans,) whether a span is a part of a longer one of the others, (others, 2)."""
    if not len(others):
        return np.zeros(len(spans), dtype=bool)
    # how far the others reach that begin at a token or before it, and at an earlier token
    size = int(max(spans.max(initial=0), others.max())) + 1
    reach = np.zeros(size, dtype="int64")
    np.maximum.at(reach, others[:, 0], others[:, 1])
    reach = np.maximum.accumulate(reach)
    earlier = np.concatenate([[0], reach[:-1]])
    return (reach[spans[:, 0]] > spans[:, 1]) | (earlier[spans[:, 0]] >= spans[:, 1])


def to_row_spans(rows: Rows, spans: Array) -> Array:
    """The one place where token spans become row spans.

    spans (Array): (spans, 2) half-open token ranges.
    RETURNS (Array): (spans, 2) half-open row ranges.
    """
    return _pair(rows.starts[spans[:, 0]], rows.ends[spans[:, 1] - 1])


def _pair(begins: Array, ends: Array) -> Array:
    """RETURNS (Array): (ranges, 2); `np.stack` takes several times as long for a few."""
    ranges = np.empty((len(begins), 2), dtype="int64")
    ranges[:, 0], ranges[:, 1] = begins, ends
    return ranges


def score_spans(logits: Array, row_spans: Array) -> Tuple[Array, Callable[[Array], Array]]:
    """Mention logit of every span: start + end + the sum over the inside.

    logits (Array): (rows, 3 or more) start, end and inside score of each row.
    row_spans (Array): (spans, 2).
    RETURNS: (spans,) float64, and a callback from d_scores to d_logits.
    """
    first, last = row_spans[:, 0], row_spans[:, 1] - 1
    # float64: a prefix sum over a long batch loses digits in float32
    inside = np.concatenate([[0.0], np.cumsum(logits[:, 2], dtype="float64")])
    scores = logits[first, 0] + logits[last, 1] + (inside[last + 1] - inside[first])

    def backprop(d_scores: Array) -> Array:
        n_rows = len(logits)
        d_logits = np.zeros(logits.shape, dtype="float64")
        d_logits[:, 0] = np.bincount(first, d_scores, minlength=n_rows)
        d_logits[:, 1] = np.bincount(last, d_scores, minlength=n_rows)
        opened = d_logits[:, 0]
        closed = np.bincount(last + 1, d_scores, minlength=n_rows + 1)[:n_rows]
        d_logits[:, 2] = np.cumsum(opened - closed)
        return d_logits.astype(logits.dtype)

    return scores, backprop


def pool_spans(vectors: Array, row_spans: Array) -> Tuple[Array, Callable[[Array], Array]]:
    """Mean of the rows of every span.

    vectors (Array): (rows, width).
    row_spans (Array): (spans, 2), none empty.
    RETURNS: (spans, width), and a callback from d_means to d_vectors.
    """
    lengths = row_spans[:, 1] - row_spans[:, 0]
    offsets = np.cumsum(lengths) - lengths
    members = np.arange(lengths.sum()) - np.repeat(offsets - row_spans[:, 0], lengths)
    if len(row_spans):
        means = np.add.reduceat(vectors[members], offsets, axis=0) / lengths[:, None]
    else:
        means = np.zeros((0, vectors.shape[1]))

    def backprop(d_means: Array) -> Array:
        d_vectors = np.zeros_like(vectors)
        np.add.at(d_vectors, members, np.repeat(d_means / lengths[:, None], lengths, axis=0))
        return d_vectors

    return means.astype(vectors.dtype), backprop


def average_spans(values: Array, row_spans: Array) -> Tuple[Array, Callable[[Array], Array]]:
    """Mean of one value of the rows of every span, for many spans that overlap.

    values (Array): (rows,).
    row_spans (Array): (spans, 2), none empty.
    RETURNS: (spans,) float64, and a callback from d_means to d_values.
    """
    first, end = row_spans[:, 0], row_spans[:, 1]
    sums = np.concatenate([[0.0], np.cumsum(values, dtype="float64")])

    def backprop(d_means: Array) -> Array:
        share, size = d_means / (end - first), len(values) + 1
        opened, closed = (np.bincount(edge, share, minlength=size) for edge in (first, end))
        return np.cumsum(opened - closed)[:-1].astype(values.dtype)

    return (sums[end] - sums[first]) / (end - first), backprop


def ranges(begins: Array, sizes: Array) -> Array:
    """RETURNS (Array): The numbers from each begin on, as many as its size says, one after the other."""
    first = np.cumsum(sizes) - sizes
    return np.arange(sizes.sum()) + np.repeat(begins - first, sizes)
