"""How similar a mention and an entity are: the inner product of their vectors, plus names and popularity.
Search and loss both use it.
"""

from dataclasses import dataclass
from typing import Tuple, Union

import numpy as np

from ..errors import check_settings
from ..types import Array

Term = Union[Array, float]
# a longer name is no stronger evidence of a mention
_MOST_WORDS = 4


@dataclass(frozen=True)
class Prior:
    """What an entity's names and popularity add to the similarity of its vector, and the temperature. With
    the defaults only the vector counts, which matches the paper.

    name_weight (float): Added to the similarity of entities whose title equals the mention text (ignoring
        case, accents and punctuation); half of it for a similar spelling. In training and prediction.
    alias_share (float): Share of `name_weight` for names other than the title, from 0.5 to 1. Below 1 it
        prefers the entity whose title is the plain name, in Wikipedia the best known one.
    popularity_weight (float): Weight of log(1 + popularity), which is added to the similarity of an entity.
        In training and prediction.
    mention_name_weight (float): Added to the mention score of a span whose text is a name of any entity, once
        per word, up to four: a longer name is less likely to occur by chance. In training and prediction.
    phrase_weight (float): Added once to the mention score of such a span if it has two or more words. Above
        0, names inside a longer name do not count. At prediction only.
    text_weight (float): Added once to the mention score of such a span if it is the whole text. At prediction
        only.
    temperature (float): Divides similarities at prediction, before they become probabilities. Above 1,
        probabilities are less extreme, and ambiguous mentions score lower.
    """

    name_weight: float = 0.0
    alias_share: float = 1.0
    popularity_weight: float = 0.0
    mention_name_weight: float = 0.0
    phrase_weight: float = 0.0
    text_weight: float = 0.0
    temperature: float = 1.0

    def __post_init__(self) -> None:
        """Check the values."""
        positive = (lambda x: 0 <= x < np.inf, "a number, at least 0")
        check_settings(
            "prior",
            self,
            {
                "name_weight": positive,
                "alias_share": (lambda x: 0.5 <= x <= 1, "a number from 0.5 to 1"),
                "popularity_weight": positive,
                "mention_name_weight": positive,
                "phrase_weight": positive,
                "text_weight": positive,
                "temperature": (lambda x: 0 < x < np.inf, "a number above 0"),
            },
        )


def add_prior(dense: Array, prior: Prior, *, degrees: Term = 0.0, log_popularity: Term = 0.0) -> Array:
    """Similarities of mentions and entities.

    dense (Array): Inner products of their vectors, of any shape.
    degrees (Term): How well the text of the mention matches a name of the entity, 0 to 1, of the same shape.
    log_popularity (Term): The logarithm of 1 + popularity of the entity.
    RETURNS (Array): The similarities.
    """
    return dense + prior.name_weight * degrees + prior.popularity_weight * log_popularity


def name_degrees(owners: Array, entities: Array, degrees: Array, *, pool: Array, mentions: int) -> Array:
    """Lay out name matches for a pool of entities.

    owners, entities, degrees (Array): (matches,) the mention, the entity and how well they match.
    pool (Array): (pool,) entities, ascending.
    RETURNS (Array): (mentions, pool) how well the text of a mention matches a name of an entity.
    """
    laid_out = np.zeros((mentions, len(pool)))
    columns = np.minimum(np.searchsorted(pool, entities), len(pool) - 1)
    inside = pool[columns] == entities
    laid_out[owners[inside], columns[inside]] = degrees[inside]
    return laid_out


def mention_bonus(prior: Prior, lengths: Array, words: Array, are_texts: Array, shares: Term = 1.0) -> Array:
    """What is added to the mention score of spans if they are names.

    lengths, words (Array): (spans,) the number of tokens of each span, and of words, without an article.
    are_texts (Array): (spans,) whether a span is the whole text.
    shares (Term): (spans,) what part of `mention_name_weight` counts.
    RETURNS (Array): (spans,).
    """
    bonus = prior.mention_name_weight * np.minimum(lengths, _MOST_WORDS) * shares
    return bonus + prior.phrase_weight * (words > 1) + prior.text_weight * are_texts


def name_shares(scores: Array) -> Tuple[Array, Array]:
    """What part of `mention_name_weight` counts, from what was learned: 1 for a score of 0, at most 2.

    scores (Array): (spans,).
    RETURNS (Tuple[Array, Array]): (spans,) the parts, and their derivatives.
    """
    halves = np.exp(-np.logaddexp(0.0, -scores))
    return 2.0 * halves, 2.0 * halves * (1.0 - halves)
