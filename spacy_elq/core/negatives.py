"""Which entities the gold entity of a mention competes with in training."""

from typing import Callable, Tuple

import numpy as np

from ..types import Array

Search = Callable[[Array, int], Tuple[Array, Array]]
# from mention vectors, gold positions and a search to the pool, who competes, and the gold columns
Negatives = Callable[[Array, Array, Search], Tuple[Array, Array, Array]]


def build_hard_negatives(hard: int = 10, in_batch: bool = True) -> Negatives:
    """Build the paper's choice of negatives.

    hard (int): How many of the most similar wrong entities of the index each mention gets.
    in_batch (bool): Whether the gold entities of the other mentions of the batch compete too.
    RETURNS (Negatives): From (mentions, width) vectors, (mentions,) gold positions and the index's
        search to: (pool,) positions, (mentions, pool) whether an entity competes for a mention, and
        (mentions,) the column of the gold entity.
    """

    def choose(vectors: Array, gold: Array, search: Search) -> Tuple[Array, Array, Array]:
        found = search(vectors, hard + 1)[0] if hard else np.zeros((len(gold), 0), dtype="int64")
        wrong = (found != gold[:, None]) & (found >= 0)
        # where gold itself was not found, one too many is left: drop the last
        wrong &= np.cumsum(wrong, axis=1) <= hard
        pool, columns = np.unique(np.concatenate([gold, found[wrong]]), return_inverse=True)
        targets, hard_columns = columns[: len(gold)], columns[len(gold) :]
        competes = np.zeros((len(gold), len(pool)), dtype=bool)
        competes[np.nonzero(wrong)[0], hard_columns] = True
        if in_batch:
            competes[:, targets] = True
        competes[np.arange(len(gold)), targets] = True
        return pool, competes, targets

    return choose
