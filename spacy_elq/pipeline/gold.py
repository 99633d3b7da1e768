"""Gold links: from a reference doc to spans of the predicted doc, with positions in the index."""

from dataclasses import dataclass
from typing import Callable, Iterable, List, Optional, Sequence, Tuple

import numpy as np
from spacy.tokens import Doc, Span
from spacy.training import Example

from ..types import Array

GOLD_KEY = "gold_links"
# keys of `user_data` of reference docs: whether every mention is marked, and how many gold links were lost
COMPLETE = "complete"
LOST = "lost"


@dataclass(frozen=True)
class Gold:
    """The gold mentions of a batch, as far as they fit the tokens of the predicted docs.

    spans (Array): (mentions, 2) half-open token ranges, counted over the whole batch.
    positions (Array): (mentions,) of the entity in the index, -1 for an unknown one.
    misfits (int): How many mentions were left out because they do not fit.
    ids (List[str]): The entity ids of the mentions.
    complete (Array): (docs,) whether every mention of the doc is marked.
    """

    spans: Array
    positions: Array
    misfits: int
    ids: List[str]
    complete: Array


def gold_spans(reference: Doc, *, key: str = GOLD_KEY) -> List[Span]:
    """The gold links of a doc: the span group where there is one (nothing is lost there, mentions may
    overlap), else the entities that have a kb_id.

    RETURNS (List[Span]): Spans with `kb_id_`.
    """
    spans = reference.spans.get(key, reference.ents)
    return [span for span in spans if span.kb_id_]


def align_span(example: Example, span: Span) -> Optional[Tuple[int, int]]:
    """Find the tokens of the predicted doc that make up exactly a span of the reference.

    RETURNS (Optional[Tuple[int, int]]): A half-open token range, or None where no tokens fit.
    """
    indices = example.alignment.y2x[span.start : span.end]
    if not len(indices):
        return None
    start, end = int(indices.min()), int(indices.max()) + 1
    back = example.alignment.x2y[start:end]
    fits = back.min() == span.start and back.max() == span.end - 1
    return (start, end) if fits else None


def collect_gold(
    examples: Iterable[Example],
    find_positions: Callable[[Sequence[str]], Array],
    *,
    key: str = GOLD_KEY,
) -> Gold:
    """Gather the gold links of a batch.

    find_positions (Callable): From entity ids to positions in the index.
    RETURNS (Gold): What fits.
    """
    spans, ids, complete, misfits, offset = [], [], [], 0, 0
    for example in examples:
        complete.append(bool(example.reference.user_data.get(COMPLETE, True)))
        for span in gold_spans(example.reference, key=key):
            aligned = align_span(example, span)
            if aligned is None:
                misfits += 1
            else:
                spans.append((offset + aligned[0], offset + aligned[1]))
                ids.append(span.kb_id_)
        offset += len(example.predicted)
    positions = find_positions(ids) if ids else np.zeros(0, dtype="int64")
    array = np.asarray(spans, dtype="int64").reshape(-1, 2)
    return Gold(array, positions, misfits, ids, np.asarray(complete, dtype=bool))


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
