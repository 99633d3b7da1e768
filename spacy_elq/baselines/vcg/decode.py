"""From the probabilities of n-grams to mentions: the best group of those that do not overlap. Arrays only."""

import numpy as np

from ...core.decode import Decoder, is_first, keep_mentions
from ...core.spans import ranges
from ...types import Array


def choose_group(spans: Array, logits: Array, docs: Array, decoder: Decoder) -> Array:
    """Choose the mentions of docs: of those that reach the threshold, the group without overlap of which it
    is least likely that none is one, ∏(1 - P).

    spans (Array): (n-grams, 2) half-open token ranges, counted over the batch, by position.
    logits (Array): (n-grams,) mention logits.
    docs (Array): (n-grams,) the doc of each.
    RETURNS (Array): Ascending positions of the n-grams chosen.
    """
    log_probs = -np.logaddexp(0.0, -logits)
    kept = keep_mentions(
        log_probs, docs, log_threshold=decoder.log_least, max_mentions=0, limit=decoder.mention_limit
    )
    reaches = (log_probs[kept] >= decoder.log_threshold) | is_first(log_probs[kept], docs[kept])
    kept = kept[reaches]
    return kept[best_groups(spans[kept], np.logaddexp(0.0, logits[kept]), docs[kept])]


def best_groups(spans: Array, gains: Array, docs: Array) -> Array:
    """Find the spans of each doc that do not overlap and have the highest sum. It is computed for all docs
    at once, along their tokens: the best up to a token either ends with a span or is that up to the token
    before.

    spans (Array): (spans, 2) half-open token ranges, counted over the batch, each once.
    gains (Array): (spans,) above 0.
    docs (Array): (spans,) the doc of each, ascending.
    RETURNS (Array): Ascending positions of the spans found.
    """
    if len(spans) < 2:
        return np.arange(len(spans))
    rows = np.unique(docs, return_inverse=True)[1]
    firsts = np.minimum.reduceat(spans[:, 0], np.flatnonzero(np.append(True, np.diff(rows))))
    starts, ends = (spans - firsts[rows, None]).T
    lengths, last = ends - starts, int(ends.max())
    # which span ends with a token and has a length, and what it gains
    table = np.full((last + 1, int(lengths.max()) + 1, len(firsts)), -1)
    table[ends, lengths, rows] = np.arange(len(spans))
    added = np.where(table >= 0, gains[table], -np.inf)
    added[:, 0] = 0.0
    sums, choices = np.zeros((last + 1, len(firsts))), np.zeros((last + 1, len(firsts)), dtype="int64")
    for token in range(1, last + 1):
        # no span, of length 0, goes on from the token before
        before = [token - max(length, 1) for length in range(min(token, table.shape[1] - 1) + 1)]
        options = sums[before] + added[token, : len(before)]
        choices[token] = options.argmax(axis=0)
        sums[token] = options.max(axis=0)
    return _trace(table, choices)


def _trace(table: Array, choices: Array) -> Array:
    """RETURNS (Array): Ascending numbers of the spans that the choices lead through, from the last token."""
    at = np.full(choices.shape[1], len(choices) - 1)
    columns = np.arange(len(at))
    found = [columns[:0]]
    while at.any():
        lengths = choices[at, columns]
        found.append(table[at, lengths, columns][lengths > 0])
        at = np.maximum(at - np.maximum(lengths, 1), 0)
    return np.sort(np.concatenate(found))


def best_candidates(scores: Array, sizes: Array) -> Array:
    """RETURNS (Array): (n-grams,) the candidate with the highest score, the first of equals, counted over all
    candidates. Every n-gram has one.
    """
    if not len(sizes):
        return np.zeros(0, dtype="int64")
    begins = np.cumsum(sizes) - sizes
    highest = np.repeat(np.maximum.reduceat(scores, begins), sizes)
    places = np.where(scores == highest, np.arange(len(scores)), len(scores))
    return np.minimum.reduceat(places, begins)


def shares(scores: Array, sizes: Array) -> Array:
    """RETURNS (Array): (candidates,) softmax of the scores over the candidates of each n-gram."""
    if not len(sizes):
        return np.zeros(0)
    begins = np.cumsum(sizes) - sizes
    values = np.exp(scores - np.repeat(np.maximum.reduceat(scores, begins), sizes))
    return values / np.repeat(np.add.reduceat(values, begins), sizes)


def order_candidates(scores: Array, sizes: Array, chosen: Array) -> Array:
    """RETURNS (Array): The candidates of some n-grams, best first, those of each together, counted over all.

    sizes (Array): (n-grams,) how many candidates each has.
    chosen (Array): (chosen,) the n-grams.
    """
    begins = (np.cumsum(sizes) - sizes)[chosen]
    places = ranges(begins, sizes[chosen])
    owners = np.repeat(np.arange(len(chosen)), sizes[chosen])
    return places[np.lexsort((-scores[places], owners))]
