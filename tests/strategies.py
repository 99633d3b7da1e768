"""Hypothesis strategies for rows, spans and scores."""

from typing import Any

import numpy as np
from hypothesis import strategies as st

from spacy_elq.types import Rows


@st.composite
def rows(draw: Any, width: int = 3, max_docs: int = 4, max_tokens: int = 8) -> Rows:
    """Rows of a batch: tokens with 0 to 3 rows, some shared with the token before, some blank."""
    lengths = draw(st.lists(st.integers(0, max_tokens), min_size=1, max_size=max_docs))
    starts, ends, bounds, blocks, n_rows = [], [], [], [], 0
    for length in lengths:
        for i in range(length):
            count = draw(st.integers(0, 3))
            is_space = draw(st.booleans()) and draw(st.booleans())
            shared = bool(i and count and ends[-1] > starts[-1] and draw(st.booleans()))
            starts.append(n_rows - 1 if shared else n_rows)
            n_rows = starts[-1] + count if count else n_rows
            starts[-1] = n_rows if not count else starts[-1]
            ends.append(n_rows)
            bounds.append(count > 0 and not is_space)
            blocks.append(count == 0 and not is_space)
    vectors = np.random.default_rng(n_rows).normal(size=(n_rows, width))
    return Rows(
        vectors=vectors,
        starts=np.asarray(starts, dtype="int64"),
        ends=np.asarray(ends, dtype="int64"),
        bounds=np.asarray(bounds, dtype=bool),
        blocks=np.asarray(blocks, dtype=bool),
        lengths=np.asarray(lengths, dtype="int64"),
    )


@st.composite
def row_spans(draw: Any, n_rows: int, max_spans: int = 6) -> np.ndarray:
    """Half-open ranges of rows, none empty, in any order, possibly repeated."""
    pairs = st.tuples(st.integers(0, n_rows - 1), st.integers(1, n_rows)).filter(lambda p: p[0] < p[1])
    return np.asarray(draw(st.lists(pairs, max_size=max_spans)), dtype="int64").reshape(-1, 2)


@st.composite
def scored_spans(draw: Any, n_tokens: int = 12, max_spans: int = 15) -> Any:
    """Distinct token spans and scores with ties."""
    pairs = st.tuples(st.integers(0, n_tokens - 1), st.integers(1, n_tokens)).filter(lambda p: p[0] < p[1])
    spans = draw(st.lists(pairs, max_size=max_spans, unique=True))
    scores = draw(st.lists(st.integers(-6, 0), min_size=len(spans), max_size=len(spans)))
    return np.asarray(spans, dtype="int64").reshape(-1, 2), np.asarray(scores, dtype="float64")


def numeric_gradient(function: Any, X: np.ndarray, eps: float = 1e-6) -> np.ndarray:
    """Central finite differences of a scalar function."""
    gradient = np.zeros_like(X)
    for i in np.ndindex(*X.shape):
        step = np.zeros_like(X)
        step[i] = eps
        gradient[i] = (function(X + step) - function(X - step)) / (2 * eps)
    return gradient
