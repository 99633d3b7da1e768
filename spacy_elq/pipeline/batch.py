"""Tokens of a batch and of its docs: spans are counted over the whole batch, and belong to a doc."""

from typing import List, Sequence, Tuple

import numpy as np
from spacy.tokens import Doc, Span

from ..types import Array


def to_docs(docs: Sequence[Doc], spans: Array) -> List[Tuple[int, int, int]]:
    """RETURNS (List[Tuple[int, int, int]]): The doc of each span of a batch, and its range in that doc."""
    owners, offsets = find_owners(docs, spans)
    return list(zip(owners.tolist(), *(spans - offsets[owners, None]).T.tolist(), strict=True))


def find_owners(docs: Sequence[Doc], spans: Array) -> Tuple[Array, Array]:
    """RETURNS (Tuple[Array, Array]): (spans,) the doc of each span of a batch, and (docs,) the place of the
    first token of each doc.
    """
    lengths = np.asarray([len(doc) for doc in docs])
    ends = np.cumsum(lengths)
    return np.searchsorted(ends, spans[:, 0], side="right"), ends - lengths


def to_batch(docs: Sequence[Doc], spans: Sequence[Sequence[Span]]) -> Array:
    """RETURNS (Array): (spans, 2) token ranges of the spans of each doc, counted over the whole batch."""
    lengths = np.asarray([len(doc) for doc in docs], dtype="int64")
    offsets = np.cumsum(lengths) - lengths
    places = [
        (offset + span.start, offset + span.end)
        for offset, own in zip(offsets, spans, strict=True)
        for span in own
    ]
    return np.asarray(places, dtype="int64").reshape(-1, 2)


def span_texts(docs: Sequence[Doc], spans: Array) -> List[str]:
    """RETURNS (List[str]): The texts of spans of a batch."""
    return [docs[owner][start:end].text for owner, start, end in to_docs(docs, spans)]
