"""The loss of VCG, of a mention and of its candidates: `value, gradients = loss(...)`."""

from typing import Tuple

import numpy as np

from ...types import Array


def weighted_mention_loss(
    logits: Array, are_mentions: Array, *, negative_weight: float
) -> Tuple[float, Array]:
    """Binary cross-entropy over n-grams, summed, where those that are no mentions count less.

    logits (Array): (n-grams,) mention logits.
    are_mentions (Array): (n-grams,) bool.
    RETURNS (Tuple[float, Array]): The loss, and d_logits.
    """
    weights = np.where(are_mentions, 1.0, negative_weight)
    loss = np.logaddexp(0.0, np.where(are_mentions, -logits, logits))
    probabilities = np.exp(-np.logaddexp(0.0, -logits))
    return float((weights * loss).sum()), weights * (probabilities - are_mentions)


def candidate_margin_loss(
    scores: Array, sizes: Array, targets: Array, *, margin: float
) -> Tuple[float, Array]:
    """The multi-class margin loss, summed over the n-grams that have a target: how far the other candidates
    come near it, up to the margin, on average over all candidates.

    scores (Array): (candidates,) those of each n-gram together.
    sizes (Array): (n-grams,) how many candidates each has.
    targets (Array): (n-grams,) the right candidate of each, counted over all candidates, or -1.
    RETURNS (Tuple[float, Array]): The loss, and d_scores.
    """
    owners = np.repeat(np.arange(len(sizes)), sizes)
    right = targets[owners]
    places = np.flatnonzero(right >= 0)
    right, share = right[places], 1.0 / sizes[owners[places]]
    losses = margin - scores[right] + scores[places]
    counts = (losses > 0) & (right != places)
    right, share = right[counts], share[counts]
    d_scores = np.zeros(len(scores))
    d_scores[places[counts]] = share
    d_scores -= np.bincount(right, share, minlength=len(scores))
    return float((losses[counts] * share).sum()), d_scores


def ramp(step: int, steps: int) -> float:
    """RETURNS (float): How much of the weight of negatives counts at a step: from nearly nothing to all,
    along a sigmoid, as in the published code; all of it from `steps` on.
    """
    return 1.0 if step >= steps else float(1 / (1 + np.exp(5 - 10 * step / steps)))
