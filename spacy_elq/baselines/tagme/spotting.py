"""Spots: the runs of words of a text that are names in a dictionary.

A name is looked up by a number made of its words, so that the numbers of all runs of words of a batch are a
few operations on arrays.
"""

from functools import lru_cache
from typing import Callable, List, Sequence, Tuple

import numpy as np
from spacy.attrs import IDX
from spacy.tokens import Doc

from ...names import find_words, hash_text, normalize_name
from ...types import Array

_FACTOR = 0x9E3779B97F4A7C15
_hash_word = lru_cache(maxsize=1 << 17)(hash_text)


def name_key(name: str) -> int:
    """RETURNS (int): What a name is found by, whatever its case, accents, punctuation and article; 0 if it
    has no words.
    """
    key = 0
    for word in normalize_name(name).split():
        key = (key * _FACTOR + _hash_word(word)) % (1 << 64)
    return key


def hash_words(texts: Sequence[str]) -> Tuple[Array, Array, Array]:
    """Find the words of texts.

    RETURNS (Tuple[Array, Array, Array]): (words,) what each is looked up by, (words,) the text it is in, and
        (words, 2) its half-open range of characters there.
    """
    found = [find_words(text) for text in texts]
    words = [word for own in found for word in own]
    hashes = np.fromiter((_hash_word(word) for word, _, _ in words), dtype="uint64", count=len(words))
    places = np.asarray([word[1:] for word in words], dtype="int64").reshape(-1, 2)
    sizes = np.asarray([len(own) for own in found], dtype="int64")
    return hashes, np.repeat(np.arange(len(texts)), sizes), places


def enumerate_runs(hashes: Array, texts: Array, *, max_length: int) -> Tuple[Array, Array]:
    """List every run of at most `max_length` words.

    hashes, texts (Array): (words,) as `hash_words` returns them.
    RETURNS (Tuple[Array, Array]): (runs, 2) half-open ranges of words, by length, then by start, and (runs,)
        the key of each; that of a name is the same, see `name_key`.
    """
    starts = np.arange(len(hashes))
    keys = np.zeros(len(hashes), dtype="uint64")
    runs: List[Array] = [np.zeros((0, 2), dtype="int64")]
    all_keys = [keys[:0]]
    for length in range(1, max_length + 1):
        last = np.minimum(starts + length, len(hashes)) - 1
        fits = (starts + length <= len(hashes)) & (texts[last] == texts[starts])
        starts, last = starts[fits], last[fits]
        keys = keys[fits] * np.uint64(_FACTOR) + hashes[last]
        runs.append(np.stack([starts, last + 1], axis=1))
        all_keys.append(keys)
    return np.concatenate(runs), np.concatenate(all_keys)


def find_spots(
    docs: Sequence[Doc], find: Callable[[Array], Array], *, max_length: int
) -> Tuple[Array, Array]:
    """Find the runs of words of a batch that are names.

    find (Callable[[Array], Array]): From keys to names, -1 where there is none.
    max_length (int): Longest name, in words.
    RETURNS (Tuple[Array, Array]): (spots, 2) half-open token ranges, counted over the whole batch, by start,
        then by end, and (spots,) the name of each.
    """
    texts = [doc.text for doc in docs]
    hashes, owners, places = hash_words(texts)
    runs, keys = enumerate_runs(hashes, owners, max_length=max_length)
    first, last = tokens_of_words(docs, texts, owners, places)
    # between two words of one token no name begins or ends
    apart = last[:-1] < first[1:]
    opens, closes = np.append(True, apart), np.append(apart, True)
    names = find(keys)
    is_spot = (names >= 0) & opens[runs[:, 0]] & closes[runs[:, 1] - 1]
    runs, names = runs[is_spot], names[is_spot]
    spans = np.stack([first[runs[:, 0]], last[runs[:, 1] - 1] + 1], axis=1)
    order = np.lexsort((spans[:, 1], spans[:, 0]))
    return spans[order], names[order]


def tokens_of_words(
    docs: Sequence[Doc], texts: Sequence[str], owners: Array, places: Array
) -> Tuple[Array, Array]:
    """RETURNS (Tuple[Array, Array]): (words,) the first and the last token of each word, counted over the
    whole batch.
    """
    lengths = np.asarray([len(text) for text in texts], dtype="int64")
    offsets = np.cumsum(lengths) - lengths
    starts = [doc.to_array(IDX).astype("int64") + offset for doc, offset in zip(docs, offsets, strict=True)]
    token_starts = np.concatenate([np.zeros(0, dtype="int64"), *starts])
    characters = places + offsets[owners, None] - [0, 1]
    first, last = (np.searchsorted(token_starts, characters, side="right") - 1).T
    return first, last
