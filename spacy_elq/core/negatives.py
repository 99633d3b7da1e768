"""Which entities the gold entity of a mention competes with in training."""

from dataclasses import dataclass
from typing import Callable, Tuple

import numpy as np

from ..errors import check_settings, whole_number
from ..types import Array

Search = Callable[[Array, int], Tuple[Array, Array]]
# from mention vectors, gold positions and a search to the pool, who competes, and the gold columns
Negatives = Callable[[Array, Array, Search], Tuple[Array, Array, Array]]


@dataclass(frozen=True)
class HardNegatives:
    """The entities that compete with the gold entity in training. Hard negatives are searched in the live
    index, in every batch, as in the paper.

    hard (int): Hard negatives per mention: the most similar wrong entities in the index.
    in_batch (bool): Whether the gold entities of the other mentions in the batch compete too.
    """

    hard: int = 10
    in_batch: bool = True

    def __post_init__(self) -> None:
        """Check the values."""
        check_settings("negatives", self, {"hard": whole_number(0)})

    def __call__(self, vectors: Array, gold: Array, search: Search) -> Tuple[Array, Array, Array]:
        """Choose the negatives of a batch.

        vectors (Array): (mentions, width).
        gold (Array): (mentions,) positions of the gold entities.
        search (Search): The index's search.
        RETURNS (Tuple[Array, Array, Array]): (pool,) positions, (mentions, pool) whether an entity competes
            for a mention, and (mentions,) the column of the gold entity.
        """
        found = search(vectors, self.hard + 1)[0] if self.hard else np.zeros((len(gold), 0), dtype="int64")
        wrong = (found != gold[:, None]) & (found >= 0)
        # where gold itself was not found, one too many is left: drop the last
        wrong &= np.cumsum(wrong, axis=1) <= self.hard
        pool, columns = np.unique(np.concatenate([gold, found[wrong]]), return_inverse=True)
        targets, hard_columns = columns[: len(gold)], columns[len(gold) :]
        competes = np.zeros((len(gold), len(pool)), dtype=bool)
        competes[np.nonzero(wrong)[0], hard_columns] = True
        if self.in_batch:
            competes[:, targets] = True
        competes[np.arange(len(gold)), targets] = True
        return pool, competes, targets
