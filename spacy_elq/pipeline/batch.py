"""Tokens of a batch and of its docs: spans are counted over the whole batch, and belong to a doc."""

from typing import Any, List, Optional, Sequence, Tuple

import numpy as np
from spacy.tokens import Doc, Span, SpanGroup

from ..errors import ELQError, Errors
from ..types import Array


def check_spans(docs: Any, spans: Any) -> None:
    """Check what was given to `link_spans`: a list of docs, and a list of spans for each of them.

    RAISES (ELQError): With what was found.
    """
    if (
        not _is_list_of(docs, Doc)
        or not _has_items(spans)
        or not all(_is_list_of(own, Span) for own in spans)
        or len(docs) != len(spans)
    ):
        raise ELQError(Errors.E180.format(found=f"{_describe(docs)} and {_describe(spans)}"))
    for place, (doc, own) in enumerate(zip(docs, spans, strict=True)):
        for span in own:
            if span.end > len(doc):
                found = f"a span of tokens {span.start} to {span.end} for doc {place}, which has {len(doc)}"
                raise ELQError(Errors.E180.format(found=found))


def check_type(method: str, value: Any, expected: type) -> None:
    """RAISES (ELQError): If a method of the linker got something else than it takes."""
    if not isinstance(value, expected):
        message = Errors.E200.format(method=method, found=_describe(value), expected=expected.__name__)
        raise ELQError(message)


def _is_list_of(value: Any, kind: type) -> bool:
    return _has_items(value) and all(isinstance(item, kind) for item in value)


def _has_items(value: Any) -> bool:
    # docs and spans have items as well: their tokens
    return isinstance(value, (Sequence, SpanGroup)) and not isinstance(value, str)


def _describe(value: Any) -> str:
    """RETURNS (str): The type of a value and of what is in it, such as "list of 2 (Doc, Span)"."""
    name = type(value).__name__
    if not _has_items(value):
        return name
    inside = list(dict.fromkeys(_describe(item) for item in value))
    return f"{name} of {len(value)} ({', '.join(inside)})" if inside else f"empty {name}"


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


def span_texts(docs: Sequence[Doc], spans: Array, texts: Optional[Sequence[str]] = None) -> List[str]:
    """Read the texts of spans of a batch.

    texts (Optional[Sequence[str]]): The texts of the docs with other capitals.
    RETURNS (List[str]): One per span.
    """
    places = to_docs(docs, spans)
    if texts is None:
        return [docs[owner][start:end].text for owner, start, end in places]
    pieces = [(texts[owner], docs[owner][start:end]) for owner, start, end in places]
    return [text[piece.start_char : piece.end_char] for text, piece in pieces]
