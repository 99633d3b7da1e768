"""Answer recall and exact match, with bootstrap intervals."""

from typing import Dict, Mapping, Sequence, Tuple

import numpy as np

from .types import Array, Row

CUTS = (5, 20, 40, 80)
_SAMPLES = 2000


def recall(firsts: Array, cuts: Sequence[int] = CUTS) -> Dict[str, float]:
    """Answer recall: the share of questions with an answer in the first passages.

    firsts (Array): (questions,) how many passages are before the first with an answer.
    RETURNS (Dict[str, float]): By the number of passages.
    """
    return {str(cut): round(float(np.mean(firsts < cut)), 4) for cut in cuts}


def paired_interval(ours: Array, theirs: Array, *, samples: int = _SAMPLES) -> Tuple[float, float]:
    """A 95 % interval of the difference of two means over the same questions, by the paired bootstrap.

    ours, theirs (Array): (questions,) a figure for each question.
    RETURNS (Tuple[float, float]): Its ends.
    """
    differences = np.asarray(ours, dtype="float64") - np.asarray(theirs, dtype="float64")
    random = np.random.default_rng(0)
    means = [
        differences[random.integers(len(differences), size=len(differences))].mean() for _ in range(samples)
    ]
    low, high = np.percentile(means, [2.5, 97.5])
    return round(float(low), 4), round(float(high), 4)


def compare(
    figures: Mapping[str, Array], pairs: Sequence[Tuple[str, str]], *, samples: int = _SAMPLES
) -> Sequence[Row]:
    """RETURNS (Sequence[Row]): For each pair of systems that have figures: `system`, `than`, `difference`,
    `low` and `high`.
    """
    rows = []
    for system, than in pairs:
        if system in figures and than in figures:
            ours, theirs = figures[system], figures[than]
            low, high = paired_interval(ours, theirs, samples=samples)
            difference = round(float(np.mean(ours) - np.mean(theirs)), 4)
            rows.append({"system": system, "than": than, "difference": difference, "low": low, "high": high})
    return rows
