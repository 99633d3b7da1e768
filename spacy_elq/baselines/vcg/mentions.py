"""N-grams that may be mentions, and the entities whose names have them."""

from dataclasses import dataclass
from typing import Sequence

import numpy as np
from spacy.attrs import IS_STOP
from spacy.symbols import AUX, VERB
from spacy.tokens import Doc

from ...core.spans import ranges
from ...pipeline.batch import find_owners
from ...types import Array
from ..tagme.spotting import find_spots
from .relations import Relations


@dataclass(frozen=True)
class Ngrams:
    """The n-grams of a batch and their candidates.

    spans (Array): (n-grams, 2) half-open token ranges, counted over the whole batch, by position.
    docs (Array): (n-grams,) the doc of each.
    sizes (Array): (n-grams,) how many candidates each has, at least one.
    entities (Array): (candidates,) positions, those of each n-gram together.
    """

    spans: Array
    docs: Array
    sizes: Array
    entities: Array

    @property
    def owners(self) -> Array:
        """RETURNS (Array): (candidates,) the n-gram of each."""
        return np.repeat(np.arange(len(self.sizes)), self.sizes)


def find_ngrams(
    docs: Sequence[Doc], relations: Relations, *, longest: int, candidates: int, block: bool
) -> Ngrams:
    """Find the n-grams of docs that are names, or parts of names.

    longest (int): Most words of an n-gram.
    candidates (int): Most candidates of an n-gram.
    block (bool): Whether the whole name of an entity keeps shorter n-grams from its tokens.
    RETURNS (Ngrams): The n-grams.
    """
    spans, names = find_spots(docs, relations.find, max_length=longest)
    kept = may_be_mentions(docs, spans)
    spans, names = spans[kept], names[kept]
    if block:
        kept = are_not_blocked(spans, relations.are_names(names))
        spans, names = spans[kept], names[kept]
    return to_ngrams(docs, relations, spans, names, candidates=candidates)


def to_ngrams(
    docs: Sequence[Doc], relations: Relations, spans: Array, names: Array, *, candidates: int
) -> Ngrams:
    """RETURNS (Ngrams): Spans, given by token ranges and what `Relations.find` returned, with candidates."""
    owners, _ = find_owners(docs, spans)
    sizes, entities = relations.candidates(names, limit=candidates)
    return Ngrams(spans, owners, sizes, entities)


def may_be_mentions(docs: Sequence[Doc], spans: Array) -> Array:
    """Sort out what begins or ends with a function word, or begins with the verb that a text begins with.

    spans (Array): (n-grams, 2) half-open token ranges, counted over the batch.
    RETURNS (Array): (n-grams,) bool.
    """
    is_function = are_function_words(docs)
    begins = is_function.copy()
    offset = 0
    for doc in docs:
        # only known behind a tagger
        begins[offset : offset + 1] |= len(doc) > 0 and doc[0].pos in (VERB, AUX)
        offset += len(doc)
    return ~(begins[spans[:, 0]] | is_function[spans[:, 1] - 1])


def are_function_words(docs: Sequence[Doc]) -> Array:
    """RETURNS (Array): (tokens,) whether each is one of the language's stop words."""
    flags = [doc.to_array(IS_STOP).astype(bool) for doc in docs]
    return np.concatenate([np.zeros(0, dtype=bool), *flags])


def are_not_blocked(spans: Array, are_names: Array) -> Array:
    """Find the n-grams that share no token with a longer one that is a whole name and not blocked itself.

    spans (Array): (n-grams, 2) half-open token ranges.
    are_names (Array): (n-grams,) whether each is the whole name of an entity.
    RETURNS (Array): (n-grams,) bool.
    """
    lengths = spans[:, 1] - spans[:, 0]
    taken = np.zeros(int(spans[:, 1].max(initial=0)) + 1, dtype=bool)
    free = np.zeros(len(spans), dtype=bool)
    for length in np.unique(lengths)[::-1].tolist():
        own = np.flatnonzero(lengths == length)
        tokens = spans[own, 0][:, None] + np.arange(length)
        free[own] = ~taken[tokens].any(axis=1)
        names = own[free[own] & are_names[own]]
        taken[ranges(spans[names, 0], lengths[names])] = True
    return free
