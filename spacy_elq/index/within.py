"""Only some of a catalogue: what a search is restricted to."""

from dataclasses import dataclass, field
from typing import Any, Dict, List, Optional, Tuple

import numpy as np

from ..catalogue import Conditions, check_conditions
from ..names import hash_text
from ..types import Array
from .backend import Among
from .database import Database
from .view import View


@dataclass(frozen=True)
class Within:
    """Entities that count. Every condition must hold; of one, any of its values.

    conditions (Conditions): "labels", "tags" or "ids", and what an entity must have one of.
    """

    conditions: Conditions

    @classmethod
    def make(cls, conditions: Any) -> Optional["Within"]:
        """Check conditions as users write them.

        conditions (Any): None, or lists of strings by name: {"labels": ["PERSON"], "tags": ["shop-7"]}.
        RETURNS (Optional[Within]): The same, or None if there is no condition.
        """
        if conditions is None or isinstance(conditions, Within):
            return conditions
        made = check_conditions(conditions)
        return cls(made) if made else None

    def __and__(self, other: "Within") -> "Within":
        """RETURNS (Within): What all conditions of both hold for."""
        return Within(tuple(sorted({*self.conditions, *other.conditions})))


@dataclass(frozen=True)
class Subset:
    """The entities of a state that count.

    among (Among): Rows of the files.
    is_inside (Array): (changes,) bool.
    chosen (Dict[str, List[int]]): The same for Milvus, see `describe_filter`.
    """

    among: Among
    is_inside: Array
    chosen: Dict[str, List[int]] = field(default_factory=dict)

    def has(self, view: View, positions: Array) -> Array:
        """RETURNS (Array): (positions,) whether they are inside."""
        rows, changes = view.find(positions)
        inside = self.among.has(rows, len(view.base))
        if len(self.is_inside):
            inside = inside | (changes >= 0) & self.is_inside[changes]
        return inside


def find_among(database: Database, view: View, within: Within) -> Among:
    """RETURNS (Among): Rows of the files for which conditions hold. They hold for ever: an entity
    that changes gets another position.
    """
    found = _find(database, within, first=0)
    rows = view.base.rows(found[found < view.base.next])
    return Among(rows[rows >= 0])


def find_subset(database: Database, view: View, within: Within, among: Among) -> Subset:
    """RETURNS (Subset): The entities of a state for which conditions hold.

    among (Among): What `find_among` returned.
    """
    is_inside = view.is_live.copy()
    if len(view.changed):
        is_inside &= np.isin(view.changed, _find(database, within, first=view.base.next))
    if view.is_dead is not None and view.is_dead[among.rows].any():
        among = Among(among.rows[~view.is_dead[among.rows]])
    chosen = {} if view.base.collection is None else _choose(database, within)
    return Subset(among, is_inside, chosen)


def _choose(database: Database, within: Within) -> Dict[str, List[int]]:
    """RETURNS (Dict[str, List[int]]): Hashes of labels and tags, and positions of ids."""
    chosen = {
        kind: [hash_text(value, signed=True) for value in values]
        for kind, values in within.conditions
        if kind != "ids"
    }
    for kind, values in within.conditions:
        if kind == "ids":
            positions = database.positions(values)
            chosen[kind] = positions[positions >= 0].tolist()
    return chosen


def _find(database: Database, within: Within, *, first: int) -> Array:
    """RETURNS (Array): Ascending positions from `first` on for which all conditions hold."""
    parts = [_find_one(database, kind, values, first) for kind, values in within.conditions]
    found = parts[0]
    for part in parts[1:]:
        found = np.intersect1d(found, part, assume_unique=True)
    return found


def _find_one(database: Database, kind: str, values: Tuple[str, ...], first: int) -> Array:
    if kind == "labels":
        return database.positions_of_labels(values, first=first)
    if kind == "tags":
        return database.positions_of_tags(values, first=first)
    positions = np.unique(database.positions(values))
    return positions[positions >= first]
