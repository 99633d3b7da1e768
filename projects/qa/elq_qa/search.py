"""BM25 over passages, by bm25s: it scores all passages at once, so that any choice of them can be ranked."""

from pathlib import Path
from typing import Optional

import bm25s
import numpy as np

from .types import Array, QAError
from .words import Words

K1, B = 0.9, 0.4


class Search:
    """BM25 by bm25s: a folder of memory-mapped arrays, over the words of `Words`."""

    def __init__(self, folder: Path, words: Words) -> None:
        """Open a folder that `build_search` wrote.

        words (Words): The words that it was made from.
        """
        if not (folder / "params.index.json").is_file():
            raise QAError(f"{folder} has no search index. Make it: python -m elq_qa search")
        self.words = words
        # with k1, b and the number of passages
        self.stamp = (folder / "params.index.json").read_text(encoding="utf8")
        self._bm25 = bm25s.BM25.load(folder, mmap=True, load_vocab=False, show_progress=False)

    def scores(self, question: str) -> Array:
        """RETURNS (Array): (passages,) the score of each passage; 0 if it has no word of the question."""
        numbers = np.unique(self.words.number(question))
        return self._bm25.get_scores_from_ids(numbers[~self.words.stop_words[numbers]])


def build_search(words: Words, folder: Path, *, k1: float = K1, b: float = B) -> Search:
    """Index passages.

    words (Words): The words of the passages.
    folder (Path): The folder to write.
    k1, b (float): BM25's parameters.
    RETURNS (Search): The index.
    """
    keep = ~words.stop_words
    # one object for each number: a list of its own for each word would take gigabytes
    shared = list(range(len(words.stems))).__getitem__
    corpus = [list(map(shared, own[keep[own]].tolist())) for own in words.of_passages()]
    index = bm25s.BM25(k1=k1, b=b)
    index.index((corpus, words.stems), show_progress=False)
    folder.mkdir(parents=True, exist_ok=True)
    index.save(folder, show_progress=False)
    return Search(folder, words)


def best(scores: Array, count: int, *, among: Optional[Array] = None) -> Array:
    """Find the best passages, or whatever else has scores.

    scores (Array): (passages,) scores.
    count (int): How many at most.
    among (Optional[Array]): Positions to choose from, all of them whatever their score; by default those
        with a score above 0.
    RETURNS (Array): Positions by score; of equal ones the first first.
    """
    positions = np.flatnonzero(scores > 0) if among is None else among
    own = scores[positions]
    if len(own) > count:
        # all that could be among the best, so that equal ones stay in order
        least = -np.partition(-own, count - 1)[count - 1]
        positions, own = positions[own >= least], own[own >= least]
    return positions[np.argsort(-own, kind="stable")][:count]
