"""Frozen word vectors: the mean of a word's pieces in the embedding table of an encoder."""

from typing import Dict, Iterable, List, Tuple

import numpy as np
from tokenizers import Tokenizer

from ...types import Array

# what stands before and behind a text
BEGIN, END = "<", ">"
_KNOWN_WORDS = 100_000


class Words:
    """Word vectors, looked up by word."""

    def __init__(self, table: Array, tokenizer: str) -> None:
        """Make the word vectors.

        table (Array): (pieces, width) the vector of each word piece.
        tokenizer (str): The tokenizer that makes the pieces, in JSON.
        """
        self._table = table
        self._tokenizer = Tokenizer.from_str(tokenizer)
        self._tokenizer.no_padding()
        self._tokenizer.no_truncation()
        self._known: Dict[str, Array] = {}

    @property
    def width(self) -> int:
        """RETURNS (int): The length of a vector."""
        return int(self._table.shape[1])

    def vectors(self, words: Iterable[str]) -> Array:
        """RETURNS (Array): (words, width) float32; zeros for a word without pieces."""
        words = list(words)
        missing = sorted(set(words) - self._known.keys())
        if missing:
            if len(self._known) > _KNOWN_WORDS:
                self._known.clear()
                missing = sorted(set(words))
            self._known.update(zip(missing, self._compute(missing), strict=True))
        found = [self._known[word] for word in words]
        return np.stack(found) if found else np.zeros((0, self.width), dtype="float32")

    def _compute(self, words: List[str]) -> Array:
        pieces = [x.ids for x in self._tokenizer.encode_batch(words, add_special_tokens=False)]
        owners = np.repeat(np.arange(len(words)), [len(own) for own in pieces])
        sums = np.zeros((len(words), self.width), dtype="float32")
        flat = np.asarray([piece for own in pieces for piece in own], dtype="int64")
        np.add.at(sums, owners, self._table[flat].astype("float32"))
        counts = np.bincount(owners, minlength=len(words))
        return sums / np.maximum(counts, 1)[:, None].astype("float32")


def phrase_vectors(words: Words, phrases: List[List[str]], *, longest: int = 5) -> Array:
    """The vectors of short texts: the highest value of each dimension over their words and the marks around
    them, as the published code pools the label of a relation.

    phrases (List[List[str]]): The words of each text.
    longest (int): How many words of it are read, the marks included.
    RETURNS (Array): (phrases, width) float32.
    """
    marked = [[BEGIN, *own, END][:longest] for own in phrases]
    return np.stack([words.vectors(own).max(axis=0) for own in marked])


def mark_texts(texts: List[List[str]]) -> Tuple[List[str], Array]:
    """Put marks around the words of texts.

    RETURNS (Tuple[List[str], Array]): All words in one list, and (texts,) how many each text has.
    """
    marked = [[BEGIN, *own, END] for own in texts]
    return [word for own in marked for word in own], np.asarray([len(own) for own in marked], dtype="int64")
