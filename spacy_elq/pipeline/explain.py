"""Why a doc has the links it has: the parts of the scores of its mentions and their candidates."""

from dataclasses import asdict, dataclass, replace
from typing import Any, Dict, List, Optional, Sequence

import numpy as np

from ..core.similarity import Prior, name_degrees
from ..index import AnyIndex
from ..types import Array

# mentions that are explained: those that are likelier, and no more than so many
_LEAST_LOGIT = -4.6
_MOST = 12


@dataclass(frozen=True)
class Part:
    """A candidate of a mention, and what its similarity is made of.

    id, title, label (str): The entity.
    vector (float): Inner product of the vectors.
    name, popularity (float): What the prior adds for its names and its popularity.
    probability (float): That it is the entity of the mention, if it is one.
    """

    id: str
    title: str
    label: str
    vector: float
    name: float
    popularity: float
    probability: float = 0.0

    @property
    def similarity(self) -> float:
        """RETURNS (float): The sum of the parts."""
        return self.vector + self.name + self.popularity


@dataclass(frozen=True)
class Explanation:
    """Why a mention is a link or not.

    start, end (int): Half-open token range.
    text (str): The mention.
    mention, name (float): Its mention score: what the model says, and what is added because it is a name.
    mention_probability (float): The probability of both that it is a mention.
    joint (float): The joint probability of the mention and its best candidate.
    score (float): The same, calibrated: what is compared with the threshold.
    threshold (float): The least score of a link.
    is_link (bool): Whether it is a link. One that reaches the threshold may overlap with a better one.
    candidates (List[Part]): The best candidates.
    none (Optional[float]): The probability of "none of these"; None if the model does not know it.
    """

    start: int
    end: int
    text: str
    mention: float
    name: float
    mention_probability: float
    joint: float
    score: float
    threshold: float
    is_link: bool
    candidates: List[Part]
    none: Optional[float] = None

    def to_dict(self) -> Dict[str, Any]:
        """RETURNS (Dict[str, Any]): The same in plain types."""
        values = asdict(self)
        values["parts"] = {name: values.pop(name) for name in ("mention", "name")}
        values["candidates"] = [{**asdict(part), "similarity": part.similarity} for part in self.candidates]
        return values


def most_likely(logits: Array) -> Array:
    """RETURNS (Array): Ascending positions of the mention scores that are worth a look, at least one."""
    best = np.argsort(-logits, kind="stable")[:_MOST]
    return np.sort(best[(logits[best] >= _LEAST_LOGIT) | (np.arange(len(best)) == 0)])


def explain_candidates(
    index: AnyIndex, names: Sequence[str], vectors: Array, positions: Array, *, prior: Prior
) -> List[List[Part]]:
    """Take the similarities of candidates apart.

    names (Sequence[str]): The texts of the mentions.
    vectors (Array): (mentions, width).
    positions (Array): (mentions, candidates), -1 where there are fewer.
    RETURNS (List[List[Part]]): Of each mention, without probabilities.
    """
    pool, columns = np.unique(positions[positions >= 0], return_inverse=True)
    owners = np.nonzero(positions >= 0)[0]
    matches = index.match_names(names, alias_share=prior.alias_share)
    degrees = name_degrees(*matches, pool=pool, mentions=len(names)) if len(pool) else np.zeros((0, 0))
    dense = vectors @ index.vectors_at(pool).T
    popularity = prior.popularity_weight * index.popularity_at(pool)
    heads = index.heads(pool)
    parts: List[List[Part]] = [[] for _ in names]
    for owner, column in zip(owners.tolist(), columns.tolist(), strict=True):
        named = prior.name_weight * float(degrees[owner, column])
        id_, title, label = heads[column]
        vector, popular = float(dense[owner, column]), float(popularity[column])
        parts[owner].append(Part(id_, title, label, vector=vector, name=named, popularity=popular))
    return parts


def with_probabilities(parts: Sequence[Part], probabilities: Array) -> List[Part]:
    """RETURNS (List[Part]): Candidates with their probabilities, of which there may be more."""
    pairs = zip(parts, probabilities.tolist(), strict=False)
    return [replace(part, probability=probability) for part, probability in pairs]
