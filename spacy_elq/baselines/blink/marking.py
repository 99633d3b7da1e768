"""Mentions in their texts for an encoder: `[CLS] left [Ms] mention [Me] right [SEP]` as an array of word
pieces, for all mentions of a batch at once.
"""

from dataclasses import dataclass
from itertools import chain
from typing import Any, Sequence, Tuple

import numpy as np
from spacy.attrs import IDX, LENGTH
from spacy.tokens import Doc

from ...core.spans import ranges
from ...types import Array


@dataclass(frozen=True)
class Pieces:
    """The word pieces of a batch of texts, one text after the other.

    ids (Array): (pieces,) their numbers in the vocabulary.
    characters (Array): (pieces, 2) half-open ranges, counted over the whole batch.
    begins (Array): (docs + 1,) where the pieces of each doc begin, and the end of all.
    """

    ids: Array
    characters: Array
    begins: Array


@dataclass(frozen=True)
class Marks:
    """The word pieces that a mention and its text are put between."""

    cls: int
    sep: int
    start: int
    end: int
    pad: int


def cut_pieces(docs: Sequence[Doc], tokenizer: Any) -> Pieces:
    """Cut every doc into word pieces, once, however many mentions it has.

    tokenizer (Any): A fast tokenizer of transformers.
    RETURNS (Pieces): The pieces.
    """
    encoded = tokenizer(
        [doc.text for doc in docs],
        add_special_tokens=False,
        return_offsets_mapping=True,
        return_attention_mask=False,
        return_token_type_ids=False,
        verbose=False,
    )
    sizes = np.asarray([len(own) for own in encoded["input_ids"]], dtype="int64")
    ids = np.fromiter(chain.from_iterable(encoded["input_ids"]), dtype="int64", count=sizes.sum())
    places = np.asarray(list(chain.from_iterable(encoded["offset_mapping"])), dtype="int64").reshape(-1, 2)
    offsets = np.repeat(_text_offsets(docs), sizes)
    return Pieces(ids, places + offsets[:, None], np.append(0, np.cumsum(sizes)))


def find_pieces(docs: Sequence[Doc], spans: Array, pieces: Pieces) -> Tuple[Array, Array]:
    """Find the pieces of mentions: all that share a character with them.

    spans (Array): (mentions, 2) half-open token ranges, counted over the whole batch.
    RETURNS (Tuple[Array, Array]): (mentions,) the doc of each, and (mentions, 2) half-open ranges of pieces.
    """
    lengths = np.asarray([len(doc) for doc in docs], dtype="int64")
    tokens = np.concatenate([doc.to_array([IDX, LENGTH]).reshape(-1, 2) for doc in docs]).astype("int64")
    tokens[:, 0] += np.repeat(_text_offsets(docs), lengths)
    owners = np.searchsorted(np.cumsum(lengths), spans[:, 0], side="right")
    starts, ends = tokens[spans[:, 0], 0], tokens[spans[:, 1] - 1].sum(axis=1)
    first = np.searchsorted(pieces.characters[:, 1], starts, side="right")
    last = np.searchsorted(pieces.characters[:, 0], ends, side="left")
    return owners, np.stack([first, np.maximum(first, last)], axis=1)


def mark_mentions(
    pieces: Pieces, docs: Array, mentions: Array, *, marks: Marks, max_length: int
) -> Tuple[Array, Array]:
    """Put the marks around mentions and cut what is too long, on both sides alike where there is enough.

    docs, mentions (Array): (mentions,) and (mentions, 2) as `find_pieces` returns them.
    max_length (int): Word pieces in all, the marks included, at least 5.
    RETURNS (Tuple[Array, Array]): (mentions, longest) ids, filled with `marks.pad`, and (mentions,) how many
        of each are real.
    """
    room = max_length - 4
    start, end = mentions[:, 0], np.minimum(mentions[:, 1], mentions[:, 0] + room)
    rest = room - (end - start)
    before, after = start - pieces.begins[docs], pieces.begins[docs + 1] - mentions[:, 1]
    # a mention that was cut has nothing after it
    after = np.where(end < mentions[:, 1], 0, after)
    low = start - np.minimum(before, np.maximum(rest // 2, rest - after))
    high = end + np.minimum(after, rest - (start - low))
    lengths = high - low + 4
    ids = np.full((len(docs), int(lengths.max(initial=0))), marks.pad, dtype="int64")
    members = ranges(low, high - low)
    owners = np.repeat(np.arange(len(docs)), high - low)
    passed = (members >= start[owners]).astype("int64") + (members >= end[owners])
    ids[owners, 1 + members - low[owners] + passed] = pieces.ids[members]
    each = np.arange(len(docs))
    ids[:, :1] = marks.cls
    ids[each, 1 + start - low] = marks.start
    ids[each, 2 + end - low] = marks.end
    ids[each, lengths - 1] = marks.sep
    return ids, lengths


def _text_offsets(docs: Sequence[Doc]) -> Array:
    """RETURNS (Array): (docs,) where each text begins if they stand one after the other, a blank between."""
    sizes = np.asarray([len(doc.text) + 1 for doc in docs], dtype="int64")
    return np.cumsum(sizes) - sizes
