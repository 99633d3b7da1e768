"""From scores to decisions: joint scores, threshold, fallback, overlap removal. Arrays only."""

import math
from dataclasses import dataclass
from typing import Callable, Dict, List, Optional, Tuple

import numpy as np

from ..errors import Rule, check_settings, whole_number
from ..types import Array
from .calibration import apply_calibration

_LEAST, _SMALLEST = np.finfo("float64").min, np.finfo("float64").tiny
# the position of what is not in the catalogue
NIL_POSITION = -2
_STRINGS: Rule = (
    lambda x: x is None or (isinstance(x, list) and all(isinstance(item, str) for item in x)),
    "null, or a list of strings",
)


@dataclass(frozen=True)
class Decoder:
    """Which mentions become links, and how many mentions and candidates are considered.

    threshold (float): Minimum score of a link, from 0 to 1. The score is the joint probability of mention and
        entity; the paper's γ is the logarithm of this threshold. `spacy elq threshold` chooses it.
    first_threshold (Optional[float]): A lower threshold for the best link of a doc, for texts that nearly
        always mention an entity, such as questions. null uses `threshold` for every link, which matches the
        paper.
    candidates (int): Entities retrieved per mention. Choose the threshold again after changing it.
    max_length (int): Longest mention: in rows (word pieces or tokens) for `elq_linker`, in tokens for
        `elq_blink`, in words for `elq_tagme`.
    mention_limit (int): Maximum number of mentions per doc that are looked up, best first, before overlaps
        are removed. 0 means no limit, which matches the paper; its published code uses 50.
    word_edges (bool): Whether mentions begin and end with a word and have no address in them, unless the
        catalogue has a name that is written like that, such as "Yahoo!".
    slope, bias (float): Calibration: the score of a link is σ(slope · logit(joint probability) + bias). With
        1 and 0, it is the joint probability itself, which matches the paper. `spacy elq threshold` fits both,
        so that the score is the probability that the link is right.
    entity_threshold (float): Minimum probability of the best entity among the candidates of a mention, from 0
        to 0.5. Below it none stands out, so "none of these" is right. With 0, which matches the paper, the
        best is always taken. Only models with `spacy-elq.QuestionTower.v2` use it.
    nil (bool): Whether mentions whose entity is not in the catalogue become entities with the id "NIL".
    only_labels, only_tags, only_ids (Optional[List[str]]): Link only to entities with one of these labels,
        one of these tags, one of these ids. All that are given must hold. null for the whole catalogue.
    """

    threshold: float = 0.2
    first_threshold: Optional[float] = None
    candidates: int = 10
    max_length: int = 10
    mention_limit: int = 0
    word_edges: bool = True
    slope: float = 1.0
    bias: float = 0.0
    entity_threshold: float = 0.0
    nil: bool = False
    only_labels: Optional[List[str]] = None
    only_tags: Optional[List[str]] = None
    only_ids: Optional[List[str]] = None

    def __post_init__(self) -> None:
        """Check the values."""
        check_settings(
            "decoder",
            self,
            {
                "threshold": (lambda x: 0.0 <= x <= 1.0, "a number from 0 to 1"),
                "first_threshold": (lambda x: x is None or 0.0 <= x <= 1.0, "null, or a number from 0 to 1"),
                "candidates": whole_number(1),
                "max_length": whole_number(1),
                "mention_limit": whole_number(0),
                "slope": (lambda x: 0 < x < np.inf, "a number above 0"),
                "bias": (lambda x: -np.inf < x < np.inf, "a number"),
                "entity_threshold": (lambda x: 0.0 <= x <= 0.5, "a number from 0 to 0.5"),
                "only_labels": _STRINGS,
                "only_tags": _STRINGS,
                "only_ids": _STRINGS,
            },
        )

    @property
    def within(self) -> Dict[str, Optional[List[str]]]:
        """RETURNS (Dict[str, Optional[List[str]]]): The part of the catalogue that counts."""
        return {"labels": self.only_labels, "tags": self.only_tags, "ids": self.only_ids}

    @property
    def log_threshold(self) -> float:
        """RETURNS (float): The log joint probability whose score is the threshold."""
        return self._log_joint(self.threshold)

    @property
    def log_least(self) -> float:
        """RETURNS (float): The log joint probability below which nothing becomes a link."""
        first = self.threshold if self.first_threshold is None else self.first_threshold
        return self._log_joint(min(first, self.threshold))

    def calibrate(self, log_joint: Array) -> Array:
        """Turn joint probabilities into scores. That of the best candidate is calibrated; the others share
        what is left in the same proportion as before, so that all are probabilities of one distribution.

        log_joint (Array): (mentions, candidates) log joint probabilities, best first.
        RETURNS (Array): (mentions, candidates).
        """
        joint = np.exp(log_joint)
        if (self.slope, self.bias) == (1.0, 0.0) or not log_joint.size:
            return joint
        best = np.exp(apply_calibration(log_joint[:, :1], slope=self.slope, bias=self.bias))
        left = (1.0 - best) / np.maximum(1.0 - joint[:, :1], _SMALLEST)
        return np.hstack([best, np.minimum(joint[:, 1:] * left, best)])

    def _log_joint(self, score: float) -> float:
        """RETURNS (float): The log joint probability that has a score."""
        if score in (0.0, 1.0) or (self.slope, self.bias) == (1.0, 0.0):
            return math.log(score) if score > 0 else -math.inf
        logit = (math.log(score) - math.log1p(-score) - self.bias) / self.slope
        return float(log_sigmoid(np.asarray(logit)))


def log_sigmoid(X: Array) -> Array:
    """RETURNS (Array): log σ(X), without overflow."""
    return -np.logaddexp(0.0, -X)


def keep_mentions(
    log_probs: Array, docs: Array, *, log_threshold: float, max_mentions: int, limit: int = 0
) -> Array:
    """Choose the spans that are worth a search: all that reach the threshold, or the best `limit` of them if
    it is not 0; in a doc where none does, the best `max_mentions`.

    log_probs (Array): (spans,) log mention probabilities.
    docs (Array): (spans,) the doc of each span, ascending.
    RETURNS (Array): Ascending positions of the spans kept.
    """
    reached = log_probs >= log_threshold
    if (max_mentions == 0 and limit == 0) or not len(docs):
        return np.flatnonzero(reached)
    n_docs = int(docs[-1]) + 1
    without = np.bincount(docs, reached, minlength=n_docs) == 0
    order = np.lexsort((-log_probs, docs))
    sizes = np.bincount(docs, minlength=n_docs)
    ranks = np.empty(len(docs), dtype="int64")
    ranks[order] = np.arange(len(docs)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    if limit:
        reached &= ranks < limit
    return np.flatnonzero(reached | (without[docs] & (ranks < max_mentions)))


def joint_scores(log_probs: Array, similarities: Array, none: Optional[Array] = None) -> Array:
    """Log joint probability of mention and entity: that of the mention + log softmax over the candidates.

    log_probs (Array): (mentions,) log mention probabilities.
    similarities (Array): (mentions, candidates), minus infinity where there is no candidate.
    none (Optional[Array]): (mentions,) the score of "none of these", which competes with the candidates.
        Without it, one of them is right, which matches the paper.
    RETURNS (Array): (mentions, candidates), minus infinity where there is none.
    """
    if none is not None:
        return joint_scores(log_probs, np.column_stack([similarities, none]))[:, :-1]
    if not len(similarities):
        return np.zeros(similarities.shape)
    # of a mention without any candidate nothing is finite
    shifted = similarities - np.maximum(similarities.max(axis=1, keepdims=True), _LEAST)
    sums = np.maximum(np.exp(shifted).sum(axis=1, keepdims=True), _SMALLEST)
    return log_probs[:, None] + (shifted - np.log(sums))


def doubt_candidates(similarities: Array, none: Array, *, least: float) -> Array:
    """Where no candidate stands out, let "none of these" have the probability of all but the best.

    similarities (Array): (mentions, candidates), best first, as the softmax sees them.
    none (Array): (mentions,) the score of "none of these".
    least (float): The probability by which the best stands out, at most 0.5.
    RETURNS (Array): (mentions,) the score of "none of these", higher where no candidate stands out.
    """
    best = np.exp(joint_scores(np.zeros(len(none)), similarities, none)[:, 0])
    doubtful = (best > 0) & (best < least)
    raised = none.copy()
    raised[doubtful] = similarities[doubtful, 0] + np.log1p(-best[doubtful]) - np.log(best[doubtful])
    return raised


def add_nil(positions: Array, similarities: Array, none: Array) -> Tuple[Array, Array]:
    """Put "none of these" among the candidates: first where it is the best of them, otherwise last.

    positions, similarities (Array): (mentions, candidates), best first, as the softmax sees them.
    none (Array): (mentions,) the score of "none of these".
    RETURNS (Tuple[Array, Array]): Both with one more candidate, whose position is `NIL_POSITION`.
    """
    is_best = none >= similarities[:, 0]
    nil = np.full((len(none), 1), NIL_POSITION)
    widened = []
    for candidates, own in ((positions, nil), (similarities, none[:, None])):
        last, first = np.hstack([candidates, own]), np.hstack([own, candidates])
        widened.append(np.where(is_best[:, None], first, last))
    return widened[0], widened[1]


def choose_mentions(spans: Array, scores: Array, *, log_threshold: float) -> Array:
    """Greedy, best first, without overlap, among the spans that reach the threshold.

    A span is taken when it is the best of all that are left on each of its tokens; what overlaps with
    it goes. Repeated until nothing is left, that is the greedy choice, for all docs at once.

    spans (Array): (mentions, 2) half-open token ranges; tokens of different docs differ.
    scores (Array): (mentions,) log joint probabilities. Ties go to the earlier, then shorter span.
    RETURNS (Array): Ascending positions of the mentions chosen.
    """
    left = np.flatnonzero(scores >= log_threshold)
    if len(left) < 2:
        return left
    left = left[np.lexsort((spans[left, 1], spans[left, 0], -scores[left]))]
    rank_of = np.empty(len(spans), dtype="int64")
    rank_of[left] = np.arange(len(left))
    chosen = []
    while len(left):
        lengths = spans[left, 1] - spans[left, 0]
        offsets = np.cumsum(lengths) - lengths
        tokens = np.arange(lengths.sum()) - np.repeat(offsets - spans[left, 0], lengths)
        best = np.full(int(spans[left, 1].max()), len(spans), dtype="int64")
        np.minimum.at(best, tokens, np.repeat(rank_of[left], lengths))
        wins = np.minimum.reduceat(best[tokens], offsets) == rank_of[left]
        taken = np.zeros(len(best), dtype=bool)
        taken[tokens[np.repeat(wins, lengths)]] = True
        chosen.append(left[wins])
        left = left[~np.logical_or.reduceat(taken[tokens], offsets)]
    return np.sort(np.concatenate(chosen))


def accept_mentions(spans: Array, scores: Array, docs: Array, decoder: Decoder) -> Array:
    """Decide which mentions become links: as `choose_mentions` does, with a lower threshold for the best
    mention of a doc.

    docs (Array): (mentions,) the doc of each mention.
    RETURNS (Array): (mentions,) bool.
    """
    accepted = np.zeros(len(spans), dtype=bool)
    accepted[choose_mentions(spans, scores, log_threshold=decoder.log_least)] = True
    return accepted & ((scores >= decoder.log_threshold) | is_first(scores, docs))


def link_mentions(
    spans: Array,
    log_probs: Array,
    docs: Array,
    look_up: Callable[[Array], Tuple[Array, Array]],
    *,
    decoder: Decoder,
    look_up_all: bool = False,
) -> Tuple[Array, Array, Array]:
    """Link mentions: those that reach the threshold become links, best first, without overlap.

    The joint probability of a mention is at most its own. Those that would be links if it were just that are
    looked up; if they are not good enough then, those that would be links instead, and so on. The links are
    the same as if all had been looked up.

    spans (Array): (mentions, 2) half-open token ranges, by position; tokens of different docs differ.
    log_probs (Array): (mentions,) log mention probabilities.
    docs (Array): (mentions,) the doc of each mention.
    look_up (Callable[[Array], Tuple[Array, Array]]): From mentions, (asked,), to the positions of their
        candidates and log joint probabilities, (asked, candidates), best first.
    look_up_all (bool): Whether to look up every mention, also those that cannot become links.
    RETURNS (Tuple[Array, Array, Array]): (mentions, candidates) positions and log joint probabilities of
        those that were looked up, and (mentions,) whether each is a link.
    """
    is_known = np.zeros(len(spans), dtype=bool)
    positions, joint = np.full((len(spans), 1), -1), log_probs[:, None].astype("float64")
    is_link = accept_mentions(spans, joint[:, 0], docs, decoder)
    asked = np.arange(len(spans)) if look_up_all else np.flatnonzero(is_link)
    while len(asked):
        found, scores = look_up(asked)
        positions, joint = _widen(positions, found.shape[1], -1), _widen(joint, found.shape[1], -np.inf)
        positions[asked], joint[asked] = found, scores
        is_known[asked] = True
        is_link = accept_mentions(spans, joint[:, 0], docs, decoder)
        asked = np.flatnonzero(is_link & ~is_known)
    return positions, joint, is_link


def _widen(array: Array, width: int, fill: float) -> Array:
    """RETURNS (Array): (rows, width), the same if it is as wide already."""
    if array.shape[1] >= width:
        return array
    wide = np.full((len(array), width), fill, dtype=array.dtype)
    wide[:, : array.shape[1]] = array
    return wide


def is_first(scores: Array, docs: Array) -> Array:
    """RETURNS (Array): (mentions,) whether a mention is the best of its doc; the earliest of equals."""
    order = np.lexsort((-scores, docs))
    ordered = docs[order]
    first = np.ones(len(scores), dtype=bool)
    first[order[1:]] = ordered[1:] != ordered[:-1]
    return first
