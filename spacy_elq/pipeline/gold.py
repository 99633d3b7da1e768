"""Gold links: from a reference doc to spans of the predicted doc, with positions in the index."""

from dataclasses import dataclass, field
from typing import Callable, Iterable, List, Optional, Sequence, Tuple

import numpy as np
from spacy.tokens import Span
from spacy.training import Example

from ..corpora.gold import COMPLETE, gold_spans
from ..types import Array


@dataclass(frozen=True)
class Gold:
    """The gold mentions of a batch that align with the tokens of the predicted docs.

    spans (Array): (mentions, 2) half-open token ranges, counted over the whole batch.
    positions (Array): (mentions,) of the entity in the index, -1 for an unknown one.
    misfits (int): How many mentions were left out because they do not fit.
    ids (List[str]): The entity ids of the mentions.
    complete (Array): (docs,) whether every mention of the doc is marked.
    texts (List[str]): The text of each doc with the capitals that gold has.
    """

    spans: Array
    positions: Array
    misfits: int
    ids: List[str]
    complete: Array
    texts: List[str] = field(default_factory=list)


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
) -> Gold:
    """Gather the gold links of a batch.

    find_positions (Callable): From entity ids to positions in the index.
    RETURNS (Gold): What fits.
    """
    spans, ids, complete, texts, misfits, offset = [], [], [], [], 0, 0
    for example in examples:
        texts.append(_as_written(example))
        complete.append(bool(example.reference.user_data.get(COMPLETE, True)))
        for span in gold_spans(example.reference):
            aligned = align_span(example, span)
            if aligned is None:
                misfits += 1
            else:
                spans.append((offset + aligned[0], offset + aligned[1]))
                ids.append(span.kb_id_)
        offset += len(example.predicted)
    positions = find_positions(ids) if ids else np.zeros(0, dtype="int64")
    array = np.asarray(spans, dtype="int64").reshape(-1, 2)
    return Gold(array, positions, misfits, ids, np.asarray(complete, dtype=bool), texts)


def _as_written(example: Example) -> str:
    """RETURNS (str): The text of the reference if it differs in its capitals only, else the one predicted."""
    texts = example.reference.text, example.predicted.text
    is_same = len(texts[0]) == len(texts[1]) and texts[0].lower() == texts[1].lower()
    return texts[0] if is_same else texts[1]
