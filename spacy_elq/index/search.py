"""Candidates for mentions: the back end finds them, the stored vectors score them; changes are scored one by
one.
"""

from typing import Callable, Optional, Protocol, Tuple

import numpy as np

from ..core.similarity import Prior, add_prior
from ..types import Array
from .backend import scan
from .milvus import MOST
from .view import View
from .within import Subset

# with popularity, this many times the candidates are retrieved
_WIDER = 5

Candidates = Tuple[Array, Array]
Matches = Tuple[Array, Array, Array]


class Finder(Protocol):
    """What a back end does for a search: find the best of the entities that it has and that count."""

    def __call__(self, view: View, queries: Array, k: int, subset: Optional[Subset]) -> Candidates:
        """RETURNS (Candidates): (queries, found) positions and exact similarities, the best k of each query
        and others, in any order; -1 and minus infinity where there are fewer.
        """


def search_view(view: View, queries: Array, k: int, *, prior: Prior, subset: Optional[Subset]) -> Candidates:
    """Find the candidates of queries in a state of an index.

    queries (Array): (queries, width) float32.
    subset (Optional[Subset]): The entities that count, or None for all.
    RETURNS (Candidates): (queries, k) positions and similarities, best first; -1 and minus infinity where
        there are fewer.
    """
    wider = _WIDER * k if prior.popularity_weight else k
    find: Finder = search_files if view.base.collection is None else search_collection
    positions, similarities = find(view, queries, wider, subset)
    if len(view.changed) > view.sent:
        changed = _search_changes(view, queries, wider, subset)
        positions = np.concatenate([positions, changed[0]], axis=1)
        similarities = np.concatenate([similarities, changed[1]], axis=1)
    if prior.popularity_weight:
        _drop_beyond(similarities, wider)
        similarities = add_prior(similarities, prior, log_popularity=view.take_popularity(positions))
    return best_candidates(positions, similarities, k)


def search_files(view: View, queries: Array, k: int, subset: Optional[Subset]) -> Candidates:
    """Find entities by FAISS; see `Finder`."""
    rows = _find_rows(view, queries, k, subset)
    similarities = np.matmul(view.base.take(rows), queries[:, :, None])[:, :, 0]
    similarities[rows < 0] = -np.inf
    return view.base.positions(rows), similarities


def search_collection(
    view: View, queries: Array, k: int, subset: Optional[Subset], *, asked: int = 0
) -> Candidates:
    """Find entities in Milvus; see `Finder`. What it found and this state of the index does not have, or has
    not any more, is left out.

    asked (int): How many are asked for, if more than usual.
    """
    collection = view.base.collection
    assert collection is not None
    total = _count_sent(view, subset)
    if not total:
        return np.full((len(queries), 1), -1), np.full((len(queries), 1), -np.inf, dtype="float32")
    asked = min(asked or max(k, collection.rescore), MOST)
    chosen = {} if subset is None else subset.chosen
    found, vectors = collection.search(queries, asked, chosen=chosen, seen=view.written)
    are_known = (found >= 0) & (found < view.first_unsent) & view.are_live(found)
    similarities = np.matmul(vectors, queries[:, :, None])[:, :, 0]
    candidates = best_candidates(found, np.where(are_known, similarities, -np.inf), k)
    # something better may stand behind what was left out
    lacking = (are_known.sum(axis=1) < min(k, total)) & (found >= 0).all(axis=1)
    if asked < MOST:
        for row in np.flatnonzero(lacking):  # one by one, as all that is found is in memory at once
            wider = search_collection(view, queries[row : row + 1], k, subset, asked=4 * asked)
            candidates[0][row], candidates[1][row] = wider[0][0], wider[1][0]
    return candidates


def _count_sent(view: View, subset: Optional[Subset]) -> int:
    """RETURNS (int): How many entities Milvus has that count, and perhaps more that were removed just now."""
    if subset is None:
        return len(view.base) + view.sent
    return len(subset.among) + int(subset.is_inside[: view.sent].sum())


def _find_rows(view: View, queries: Array, k: int, subset: Optional[Subset]) -> Array:
    """RETURNS (Array): (queries, found) rows of the files, the best k and others; -1 if there are fewer."""
    backend = view.base.backend
    assert backend is not None
    total = len(view.base) if subset is None else len(subset.among)
    if not total:
        return np.full((len(queries), 1), -1, dtype="int64")
    if subset is not None:
        return backend.search_among(queries, k, subset.among)
    # a few more, in case that some of the best were removed
    first = asked = min(max(k + min(k, view.dead), backend.rescore), total)
    rows = backend.search(queries, asked)
    while view.is_dead is not None:
        rows = np.where((rows >= 0) & view.is_dead[rows], -1, rows)
        lacking = (rows >= 0).sum(axis=1) < min(k, total - view.dead)
        if asked == total or not lacking.any():
            break
        asked = min(4 * asked, total)
        # if all are asked for, they may be in any list
        found = backend.search(queries[lacking], asked, wider=asked // first if asked < total else total)
        wider = np.full((len(queries), asked), -1, dtype="int64")
        wider[:, : rows.shape[1]] = rows
        wider[lacking] = found
        rows = wider
    return rows


def _search_changes(view: View, queries: Array, k: int, subset: Optional[Subset]) -> Candidates:
    """RETURNS (Candidates): (queries, found) the best k of the entities that were added since, and that no
    back end has.
    """
    counts = (view.is_live if subset is None else subset.is_inside)[view.sent :]
    surplus = len(counts) - int(counts.sum())
    similarities, rows = scan(queries, view.vectors[view.sent :], min(k + surplus, len(counts)))
    return view.changed[view.sent :][rows], np.where(counts[rows], similarities, -np.inf)


def add_named(
    queries: Array,
    matches: Matches,
    candidates: Candidates,
    *,
    prior: Prior,
    vectors_at: Callable[[Array], Array],
    popularity_at: Callable[[Array], Array],
) -> Candidates:
    """Put the entities with the names of the queries among the candidates, as many as there were.

    matches (Matches): What `match_names` returned for the names.
    vectors_at, popularity_at (Callable[[Array], Array]): Vectors and log popularity of positions.
    """
    owners, entities, degrees = matches
    positions, similarities = candidates
    if not len(owners):
        return candidates
    counts = np.bincount(owners, minlength=len(queries))
    columns = np.arange(len(owners)) - np.repeat(np.cumsum(counts) - counts, counts)
    named = np.full((len(queries), int(counts.max())), -1, dtype="int64")
    scores = np.full(named.shape, -np.inf, dtype="float32")
    named[owners, columns] = entities
    exact = np.einsum("qw,qw->q", queries[owners], vectors_at(entities))
    popularity = popularity_at(entities) if prior.popularity_weight else 0.0
    scores[owners, columns] = add_prior(exact, prior, degrees=degrees, log_popularity=popularity)
    twice = (positions[:, :, None] == named[:, None, :]).any(axis=2)
    return best_candidates(
        np.concatenate([np.where(twice, -1, positions), named], axis=1),
        np.concatenate([np.where(twice, -np.inf, similarities), scores], axis=1),
        positions.shape[1],
    )


def _drop_beyond(similarities: Array, k: int) -> None:
    """Keep the `k` best of each query, in place; the others become minus infinity."""
    if similarities.shape[1] > k:
        least = -np.partition(-similarities, k - 1, axis=1)[:, k - 1 : k]
        similarities[similarities < least] = -np.inf


def best_candidates(positions: Array, similarities: Array, k: int) -> Candidates:
    """RETURNS (Candidates): The `k` best candidates of each query, best first."""
    positions = np.where(similarities > -np.inf, positions, -1)
    order = np.lexsort((positions, -similarities), axis=1)[:, :k]
    queries = np.arange(len(order))[:, None]
    found = positions[queries, order], similarities[queries, order]
    missing = k - order.shape[1]
    if missing <= 0:
        return found
    sides = ((0, 0), (0, missing))
    return np.pad(found[0], sides, constant_values=-1), np.pad(found[1], sides, constant_values=-np.inf)
