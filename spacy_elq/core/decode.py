"""From scores to decisions: joint scores, threshold, fallback, overlap removal. Arrays only."""

import numpy as np

from ..types import Array

_LEAST, _SMALLEST = np.finfo("float64").min, np.finfo("float64").tiny


def log_sigmoid(X: Array) -> Array:
    """RETURNS (Array): log σ(X), without overflow."""
    return -np.logaddexp(0.0, -X)


def keep_mentions(
    log_probs: Array, docs: Array, *, log_threshold: float, max_mentions: int, limit: int = 0
) -> Array:
    """Choose the spans that are worth a search: all that reach the threshold, or the best `limit` of them if
    it is not 0; in a doc where none does, the best `max_mentions`.

    log_probs (Array): (spans,) log mention probabilities.
    docs (Array): (spans,) the doc of each span, ascending.
    RETURNS (Array): Ascending positions of the spans kept.
    """
    reached = log_probs >= log_threshold
    if (max_mentions == 0 and limit == 0) or not len(docs):
        return np.flatnonzero(reached)
    n_docs = int(docs[-1]) + 1
    without = np.bincount(docs, reached, minlength=n_docs) == 0
    order = np.lexsort((-log_probs, docs))
    sizes = np.bincount(docs, minlength=n_docs)
    ranks = np.empty(len(docs), dtype="int64")
    ranks[order] = np.arange(len(docs)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    if limit:
        reached &= ranks < limit
    return np.flatnonzero(reached | (without[docs] & (ranks < max_mentions)))


def joint_scores(log_probs: Array, similarities: Array) -> Array:
    """Log joint probability of mention and entity: that of the mention + log softmax over the candidates.

    log_probs (Array): (mentions,) log mention probabilities.
    similarities (Array): (mentions, candidates), minus infinity where there is no candidate.
    RETURNS (Array): (mentions, candidates), minus infinity where there is none.
    """
    if not len(similarities):
        return np.zeros(similarities.shape)
    # of a mention without any candidate nothing is finite
    shifted = similarities - np.maximum(similarities.max(axis=1, keepdims=True), _LEAST)
    sums = np.maximum(np.exp(shifted).sum(axis=1, keepdims=True), _SMALLEST)
    return log_probs[:, None] + (shifted - np.log(sums))


def choose_mentions(spans: Array, scores: Array, *, log_threshold: float) -> Array:
    """Greedy, best first, without overlap, among the spans that reach the threshold.

    A span is taken when it is the best of all that are left on each of its tokens; what overlaps with
    it goes. Repeated until nothing is left, that is the greedy choice, for all docs at once.

    spans (Array): (mentions, 2) half-open token ranges; tokens of different docs differ.
    scores (Array): (mentions,) log joint probabilities. Ties go to the earlier, then shorter span.
    RETURNS (Array): Ascending positions of the mentions chosen.
    """
    left = np.flatnonzero(scores >= log_threshold)
    if len(left) < 2:
        return left
    left = left[np.lexsort((spans[left, 1], spans[left, 0], -scores[left]))]
    rank_of = np.empty(len(spans), dtype="int64")
    rank_of[left] = np.arange(len(left))
    chosen = []
    while len(left):
        lengths = spans[left, 1] - spans[left, 0]
        offsets = np.cumsum(lengths) - lengths
        tokens = np.arange(lengths.sum()) - np.repeat(offsets - spans[left, 0], lengths)
        best = np.full(int(spans[left, 1].max()), len(spans), dtype="int64")
        np.minimum.at(best, tokens, np.repeat(rank_of[left], lengths))
        wins = np.minimum.reduceat(best[tokens], offsets) == rank_of[left]
        taken = np.zeros(len(best), dtype=bool)
        taken[tokens[np.repeat(wins, lengths)]] = True
        chosen.append(left[wins])
        left = left[~np.logical_or.reduceat(taken[tokens], offsets)]
    return np.sort(np.concatenate(chosen))


def accept_mentions(
    spans: Array, scores: Array, docs: Array, *, log_threshold: float, log_first: float
) -> Array:
    """Decide which mentions become links: as `choose_mentions` does, with a lower threshold for the best
    mention of a doc.

    docs (Array): (mentions,) the doc of each mention.
    log_first (float): The threshold for the best mention of a doc.
    RETURNS (Array): (mentions,) bool.
    """
    accepted = np.zeros(len(spans), dtype=bool)
    accepted[choose_mentions(spans, scores, log_threshold=log_first)] = True
    return accepted & ((scores >= log_threshold) | is_first(scores, docs))


def is_first(scores: Array, docs: Array) -> Array:
    """RETURNS (Array): (mentions,) whether a mention is the best of its doc; the earliest of equals."""
    order = np.lexsort((-scores, docs))
    ordered = docs[order]
    first = np.ones(len(scores), dtype=bool)
    first[order[1:]] = ordered[1:] != ordered[:-1]
    return first
