"""Mentions by their boundaries, as in Appendix B of the paper: a softmax over the tokens of a text says where
a mention starts, another where one ends. Arrays only; what has a gradient returns it or a callback.
"""

from typing import Callable, Tuple

import numpy as np

from ...types import Array, Rows


def boundary_log_probs(logits: Array, rows: Rows) -> Tuple[Array, Callable[[Array], Array]]:
    """Log probability of every token to be the first, and the last, of a mention of its doc.

    logits (Array): (rows, 2) start and end score of each row. A token starts with its first row and ends with
        its last.
    RETURNS: (tokens, 2) float64, minus infinity where no mention may start or end, and a callback from
        d_log_probs to d_logits.
    """
    tokens = np.flatnonzero(rows.bounds)
    docs = np.repeat(np.arange(len(rows.lengths)), rows.lengths)[tokens]
    first, last = rows.starts[tokens], rows.ends[tokens] - 1
    scores = np.stack([logits[first, 0], logits[last, 1]], axis=1).astype("float64")
    peaks = np.full((len(rows.lengths), 2), -np.inf)
    np.maximum.at(peaks, docs, scores)
    shifted = scores - peaks[docs]
    log_probs = shifted - np.log(_sum_by_doc(np.exp(shifted), docs, len(peaks)))[docs]
    full = np.full((len(rows.starts), 2), -np.inf)
    full[tokens] = log_probs

    def backprop(d_full: Array) -> Array:
        d_log_probs = d_full[tokens]
        d_scores = d_log_probs - np.exp(log_probs) * _sum_by_doc(d_log_probs, docs, len(peaks))[docs]
        d_logits = np.stack(
            [
                np.bincount(first, d_scores[:, 0], minlength=len(logits)),
                np.bincount(last, d_scores[:, 1], minlength=len(logits)),
            ],
            axis=1,
        )
        return d_logits.astype(logits.dtype)

    return full, backprop


def _sum_by_doc(values: Array, docs: Array, n_docs: int) -> Array:
    """RETURNS (Array): (docs, 2); 1 for docs of which there is nothing to add up."""
    sums = np.stack([np.bincount(docs, column, minlength=n_docs) for column in values.T], axis=1)
    sums[np.bincount(docs, minlength=n_docs) == 0] = 1.0
    return sums


def score_boundaries(log_probs: Array, spans: Array) -> Array:
    """RETURNS (Array): (spans,) log p_start + log p_end, from (tokens, 2) and (spans, 2) token ranges."""
    return log_probs[spans[:, 0], 0] + log_probs[spans[:, 1] - 1, 1]


def boundary_loss(log_probs: Array, gold: Array) -> Tuple[float, Array]:
    """Minus the log likelihood of the gold mentions, averaged over them.

    log_probs (Array): (tokens, 2) as `boundary_log_probs` gives them.
    gold (Array): (mentions, 2) token ranges. Those that may not start or end where they do are left out.
    RETURNS (Tuple[float, Array]): The loss, and its gradient (tokens, 2).
    """
    scores = score_boundaries(log_probs, gold)
    gold = gold[np.isfinite(scores)]
    if not len(gold):
        return 0.0, np.zeros(log_probs.shape)
    edges = (gold[:, 0], gold[:, 1] - 1)
    counts = np.stack([np.bincount(edge, minlength=len(log_probs)) for edge in edges], axis=1)
    return float(-scores[np.isfinite(scores)].mean()), -counts / len(gold)
