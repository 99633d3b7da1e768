"""Calibration: scores that say how often links are right, and how far they are from it. Arrays only."""

from functools import partial
from typing import Dict, List, Optional, Tuple

import numpy as np

from ..types import Array

# the log probability next to 0: a score of exactly 1 is a rounded one
_HIGHEST = -np.finfo("float64").epsneg
# the logit of that probability; in a fit no score counts as more certain, on either side
_FARTHEST = -float(np.log(-_HIGHEST))
LEAST_SLOPE = 0.01
# steps of Newton's method, and halvings of one step; it converges in a handful
_STEPS, _HALVINGS = 100, 40
# rows of a risk-coverage curve
_ROWS = 100


def fit_calibration(
    log_scores: Array, right: Array, *, weights: Optional[Array] = None, ridge: float = 0.1
) -> Tuple[float, float]:
    """Fit a calibration (Platt scaling): p = σ(slope · logit(score) + bias) with the highest likelihood.

    log_scores (Array): (links,) log joint probabilities, at most 0.
    right (Array): (links,) whether each link is right, 0 or 1.
    weights (Optional[Array]): (links,) how much each link counts; by default all the same.
    ridge (float): Weight of the squared distance to slope 1 and bias 0. With few links it keeps the scores
        near what they were.
    RETURNS (Tuple[float, float]): Slope, at least `LEAST_SLOPE` so that the order of scores never changes,
        and bias.
    """
    logits = np.maximum(_logits(log_scores), -_FARTHEST)
    right = np.asarray(right, dtype="float64")
    ones = np.ones_like(logits)
    counts = ones if weights is None else np.asarray(weights, dtype="float64")
    fit = partial(_newton, right=right, weights=counts, ridge=ridge)
    both = np.stack([logits, ones], axis=1)
    slope, bias = fit(both, offsets=np.zeros_like(logits), centre=np.asarray([1.0, 0.0]))
    if slope >= LEAST_SLOPE:
        return float(slope), float(bias)
    # the likelihood is concave: if a slope is not allowed, the best one is the least that is
    (bias,) = fit(ones[:, None], offsets=LEAST_SLOPE * logits, centre=np.zeros(1))
    return LEAST_SLOPE, float(bias)


def apply_calibration(log_scores: Array, *, slope: float, bias: float) -> Array:
    """Calibrate scores.

    log_scores (Array): Log joint probabilities, at most 0, of any shape.
    slope, bias (float): See `fit_calibration`. Slope 1 and bias 0 change nothing.
    RETURNS (Array): Log probabilities that a link is right, of the same shape and in the same order; minus
        infinity stays minus infinity.
    """
    if slope == 1.0 and bias == 0.0:
        return np.asarray(log_scores)
    return -np.logaddexp(0.0, -(slope * _logits(log_scores) + bias))


def reliability(scores: Array, right: Array, *, bins: int = 10) -> List[Dict[str, float]]:
    """Compare scores with how often links with such scores are right.

    scores (Array): (links,) probabilities.
    right (Array): (links,) whether each link is right, 0 or 1.
    bins (int): Number of bins, equally wide.
    RETURNS (List[Dict[str, float]]): For each bin that has links, ascending: its bounds `low` and `high`, the
        `count` of its links, their mean `score` and the share that is `right`.
    """
    scores, right = np.asarray(scores, dtype="float64"), np.asarray(right, dtype="float64")
    owners = np.clip((scores * bins).astype("int64"), 0, bins - 1)
    counts = np.bincount(owners, minlength=bins)
    sums = [np.bincount(owners, values, minlength=bins) for values in (scores, right)]
    return [
        {
            "low": i / bins,
            "high": (i + 1) / bins,
            "count": float(counts[i]),
            "score": float(sums[0][i] / counts[i]),
            "right": float(sums[1][i] / counts[i]),
        }
        for i in np.flatnonzero(counts).tolist()
    ]


def calibration_error(scores: Array, right: Array, *, bins: int = 10) -> float:
    """RETURNS (float): Expected calibration error: the difference between the mean score of a bin and the
    share of its links that is right, averaged over links. 0 without links; see `reliability`.
    """
    rows = reliability(scores, right, bins=bins)
    gaps = sum(row["count"] * abs(row["score"] - row["right"]) for row in rows)
    return gaps / max(1.0, sum(row["count"] for row in rows))


def risk_coverage(scores: Array, right: Array) -> List[Dict[str, float]]:
    """Say what share of the links a threshold keeps, and what share of these is wrong.

    scores (Array): (links,) probabilities.
    right (Array): (links,) whether each link is right, 0 or 1.
    RETURNS (List[Dict[str, float]]): At most 100 rows by descending `threshold`, each the score of a link:
        `coverage` (share of all links kept), `precision` and `risk` (1 - precision). The last keeps all.
    """
    scores, right = np.asarray(scores, dtype="float64"), np.asarray(right, dtype="float64")
    order = np.argsort(-scores, kind="stable")
    scores, hits = scores[order], np.cumsum(right[order])
    # a threshold keeps all links with equal scores, or none of them
    ends = np.flatnonzero(np.append(scores[1:] < scores[:-1], True)) if len(scores) else np.zeros(0, int)
    if len(ends) > _ROWS:
        ends = ends[np.linspace(0, len(ends) - 1, _ROWS).round().astype(int)]
    precision = hits[ends] / (ends + 1)
    columns = {"threshold": scores[ends], "coverage": (ends + 1) / max(1, len(scores))}
    columns.update(precision=precision, risk=1 - precision)
    return [{name: float(values[i]) for name, values in columns.items()} for i in range(len(ends))]


def _logits(log_scores: Array) -> Array:
    """RETURNS (Array): log(p / (1 - p)) for log p, finite from above."""
    log_scores = np.minimum(np.asarray(log_scores, dtype="float64"), _HIGHEST)
    return log_scores - np.log(-np.expm1(log_scores))


def _newton(
    features: Array, *, right: Array, offsets: Array, centre: Array, weights: Array, ridge: float
) -> Array:
    """Logistic regression with a ridge, by Newton's method; a step that goes too far is halved.

    features (Array): (links, factors).
    offsets (Array): (links,) added to the logits.
    centre (Array): (factors,) what the ridge draws to, and the start.
    weights (Array): (links,) how much each link counts.
    RETURNS (Array): (factors,) those with the least loss.
    """

    def loss(factors: Array) -> float:
        logits = features @ factors + offsets
        losses = weights * (np.logaddexp(0.0, logits) - right * logits)
        return float(losses.sum() + ridge / 2 * np.sum((factors - centre) ** 2))

    factors = centre
    for _ in range(_STEPS):
        probs = np.exp(-np.logaddexp(0.0, -(features @ factors + offsets)))
        gradient = features.T @ (weights * (probs - right)) + ridge * (factors - centre)
        curvature = (features.T * (weights * probs * (1 - probs))) @ features + ridge * np.eye(len(centre))
        step = np.linalg.solve(curvature, gradient)
        before = loss(factors)
        scale = next((0.5**i for i in range(_HALVINGS) if loss(factors - 0.5**i * step) < before), 0.0)
        factors = factors - scale * step
        if np.abs(scale * step).max() < 1e-12:
            break
    return factors
