"""Vectors with fewer dimensions."""

import numpy as np

from ..types import Array

_ROWS = 50_000


def reduce_width(vectors: Array, width: int, *, sample: int = 20000) -> Array:
    """Reduce vectors to the directions in which they differ most.

    vectors (Array): (entities, any width).
    sample (int): How many of them, evenly spread, say which directions these are.
    RETURNS (Array): (entities, width) float32; zeros are added where the vectors are not as wide.
    """
    some = np.asarray(vectors[:: max(len(vectors) // sample, 1)], dtype="float64")
    mean = some.mean(axis=0)
    _, _, directions = np.linalg.svd(some - mean, full_matrices=False)
    kept = directions[:width].T.astype("float32")
    reduced = np.zeros((len(vectors), width), dtype="float32")
    # all of them at once may be more than memory holds
    for begin in range(0, len(vectors), _ROWS):
        part = slice(begin, begin + _ROWS)
        reduced[part, : kept.shape[1]] = (vectors[part] - mean.astype("float32")) @ kept
    return reduced


def scale_to_width(vectors: Array) -> Array:
    """RETURNS (Array): The vectors, all multiplied by one number, so that a value is 1 in the mean square."""
    spread = float(np.sqrt(np.mean(np.square(vectors, dtype="float64")))) if vectors.size else 0.0
    return (vectors / spread if spread else vectors).astype("float32")
