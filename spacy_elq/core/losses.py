"""The two losses of the paper: `value, gradient = loss(...)`."""

from dataclasses import dataclass
from typing import Tuple

import numpy as np

from ..errors import check_settings
from ..types import Array

UNMARKED = ("ignore", "unnamed", "proper", "negative")


def mention_loss(scores: Array, targets: Array) -> Tuple[float, Array]:
    """L_MD: binary cross-entropy over all candidate spans, averaged.

    scores (Array): (spans,) mention logits.
    targets (Array): (spans,) 1 for gold mentions, 0 for the rest.
    RETURNS (Tuple[float, Array]): The loss and its gradient (spans,).
    """
    if not len(scores):
        return 0.0, np.zeros_like(scores)
    losses = np.logaddexp(0.0, scores) - targets * scores
    gradient = (_sigmoid(scores) - targets) / len(scores)
    return float(losses.mean()), gradient


def softmax_linking_loss(similarities: Array, targets: Array) -> Tuple[float, Array]:
    """L_ED: minus the log probability of the gold entity under a softmax, averaged over mentions.

    similarities (Array): (mentions, entities), minus infinity where an entity does not compete.
    targets (Array): (mentions,) the column of the gold entity.
    RETURNS (Tuple[float, Array]): The loss and its gradient (mentions, entities).
    """
    n_mentions = len(targets)
    if not n_mentions:
        return 0.0, np.zeros_like(similarities)
    shifted = similarities - similarities.max(axis=1, keepdims=True)
    log_probs = shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True))
    picked = (np.arange(n_mentions), targets)
    gradient = np.exp(log_probs)
    gradient[picked] -= 1.0
    return float(-log_probs[picked].mean()), gradient / n_mentions


def binary_linking_loss(similarities: Array, targets: Array) -> Tuple[float, Array]:
    """The loss of the published code: binary cross-entropy of every competing entity, averaged.

    The arguments and results are those of `softmax_linking_loss`.
    """
    competes = np.isfinite(similarities)
    total = int(competes.sum())
    if not total:
        return 0.0, np.zeros_like(similarities)
    gold = np.zeros_like(similarities)
    gold[np.arange(len(targets)), targets] = 1.0
    logits = np.where(competes, similarities, 0.0)
    losses = np.where(competes, np.logaddexp(0.0, logits) - gold * logits, 0.0)
    gradient = np.where(competes, _sigmoid(logits) - gold, 0.0)
    return float(losses.sum() / total), gradient / total


def absent_linking_loss(
    similarities: Array, none: Array, targets: Array, *, named: Array, linking: str, share: float
) -> Tuple[float, Array, Array]:
    """The linking loss with "none of these" among the entities: gold is right, and if it is taken out, with
    all entities of the same name, none of these is. A name that the catalogue has is evidence of its own.

    similarities (Array): (mentions, entities), minus infinity where an entity does not compete.
    none (Array): (mentions,) the score of "none of these".
    targets (Array): (mentions,) the column of the gold entity.
    named (Array): (mentions, entities) whether the text of the mention is a name of the entity.
    linking (str): A key of `LINKING_LOSSES`.
    share (float): Weight of the case that gold is taken out, from 0 to 1.
    RETURNS (Tuple[float, Array, Array]): The loss, d_similarities and d_none.
    """
    loss_of, n_mentions = LINKING_LOSSES[linking], len(targets)
    columns = np.column_stack([similarities, none])
    last = np.full(n_mentions, columns.shape[1] - 1)
    without = columns.copy()
    without[:, :-1][named] = -np.inf
    without[np.arange(n_mentions), targets] = -np.inf
    present, d_present = loss_of(columns, targets)
    absent, d_absent = loss_of(without, last)
    gradient = (1 - share) * d_present + share * d_absent
    return (1 - share) * present + share * absent, gradient[:, :-1], gradient[:, -1]


LINKING_LOSSES = {"softmax": softmax_linking_loss, "binary": binary_linking_loss}


@dataclass(frozen=True)
class Loss:
    """What training minimizes. The defaults match the paper.

    linking (str): "softmax" over the competing entities, as in the paper, or "binary" cross-entropy per
        entity, as in its published code.
    mention_weight (float): Weight of the mention loss relative to the linking loss, 1 in the paper. The
        mention loss is averaged over all spans, most of which are not mentions; the linking loss over
        mentions.
    absent (float): Weight of the case that the gold entity is not in the catalogue, from 0 to 1: it is taken
        out, and "none of these" is right. Only `spacy-elq.QuestionTower.v2` learns from it.
    unmarked (str): Which unmarked spans are negatives of the mention loss in texts where not every mention is
        marked (`"complete": false`, such as Wikipedia sentences). "ignore": only those that overlap a marked
        mention. "unnamed": also those whose text is not the name of any entity in the index, and lower-case
        spans in a text with capitals. "proper": as "unnamed", and marked mentions in lower case are ignored,
        so that names are learned, not common nouns. "negative": all of them.
    """

    linking: str = "softmax"
    mention_weight: float = 1.0
    absent: float = 0.0
    unmarked: str = "ignore"

    def __post_init__(self) -> None:
        """Check the values."""
        check_settings(
            "loss",
            self,
            {
                "linking": (lambda x: x in LINKING_LOSSES, f"one of {', '.join(LINKING_LOSSES)}"),
                "mention_weight": (lambda x: 0 <= x < np.inf, "a number, at least 0"),
                "absent": (lambda x: 0 <= x <= 1, "a number from 0 to 1"),
                "unmarked": (lambda x: x in UNMARKED, f"one of {', '.join(UNMARKED)}"),
            },
        )


def _sigmoid(X: Array) -> Array:
    return 0.5 * (1.0 + np.tanh(0.5 * X))
