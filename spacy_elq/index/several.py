"""Several indexes of one encoder as one catalogue."""

import functools
import logging
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Dict, Iterable, Iterator, List, Sequence, Tuple, Union

import numpy as np

from ..core.similarity import Prior
from ..errors import ELQError, Errors, describe_difference
from ..types import Array, Encoder, Entity
from .database import SPELLING
from .entity_index import Added, EntityIndex, Record, check_name
from .search import add_named, best_candidates

logger = logging.getLogger("spacy")
# a position is that of the entity in its index, plus this many times the number of the index
_STRIDE = 1 << 40
# how well a text matches a name other than the title, so that all ways to match can be told apart
_NAMED = 0.75


class EntityIndexes:
    """Several indexes as one: an entity of a later index takes the place of one with the same id in an
    earlier one. Has the methods of `EntityIndex`.
    """

    def __init__(self, indexes: Sequence[EntityIndex]) -> None:
        """Indexes (Sequence[EntityIndex]): Made with the same encoder; nobody else uses these objects."""
        first = indexes[0]
        for index in indexes[1:]:
            if index.stamp["encoder"] != first.stamp["encoder"]:
                difference = describe_difference(index.meta["encoder"], first.meta["encoder"])
                places = {"first": first.path, "second": index.path}
                raise ELQError(Errors.E167.format(difference=difference, **places))
        self._indexes = list(indexes)
        for i, index in enumerate(self._indexes):
            index._later = self._indexes[i + 1 :]

    def __reduce__(self) -> Any:
        """Pickle the paths, not the data."""
        return (open_index, ([str(index.path) for index in self._indexes],))

    @property
    def path(self) -> Path:
        """RETURNS (Path): The folder of the last index, which gets the changes."""
        return self._indexes[-1].path

    @property
    def paths(self) -> List[Path]:
        """RETURNS (List[Path]): The folders of the indexes."""
        return [index.path for index in self._indexes]

    @contextmanager
    def reading(self) -> Iterator[None]:
        """Read one state of all indexes, whatever other threads and processes change meanwhile."""
        with ExitStack() as stack:
            for index in reversed(self._indexes):
                stack.enter_context(index.reading())
            yield

    def close(self) -> None:
        """Close the databases."""
        for index in self._indexes:
            index.close()

    def __len__(self) -> int:
        """RETURNS (int): The number of entities."""
        with self.reading():
            return sum(map(len, self._indexes))

    @property
    def width(self) -> int:
        """RETURNS (int): The length of an entity vector."""
        return self._indexes[0].width

    @property
    def meta(self) -> Dict[str, Any]:
        """RETURNS (Dict[str, Any]): That of the last index."""
        return self._indexes[-1].meta

    @property
    def stamp(self) -> Dict[str, Any]:
        """RETURNS (Dict[str, Any]): What identifies the indexes together."""
        stamps = [index.stamp for index in self._indexes]
        return {**stamps[0], "catalogue": "+".join(stamp["catalogue"] for stamp in stamps)}

    @property
    def changes(self) -> int:
        """RETURNS (int): How many entities were added or removed since the back ends were built."""
        return sum(index.changes for index in self._indexes)

    @property
    def vectors(self) -> Array:
        """RETURNS (Array): (entities, width) a copy of the vectors of all entities."""
        with self.reading():
            return self.vectors_at(self.all_positions())

    def vectors_at(self, positions: Array) -> Array:
        """RETURNS (Array): (*positions.shape, width) the vectors of the entities at positions."""
        vectors = np.zeros((*positions.shape, self.width), dtype="float32")
        for index, own, local in self._split(positions):
            vectors[own] = index.vectors_at(local)
        return vectors

    def popularity_at(self, positions: Array) -> Array:
        """RETURNS (Array): (*positions.shape,) the logarithm of 1 + popularity at positions."""
        values = np.zeros(positions.shape, dtype="float32")
        for index, own, local in self._split(positions):
            values[own] = index.popularity_at(local)
        return values

    def __getitem__(self, id_: str) -> Entity:
        """RETURNS (Entity): The entity with an id.
        RAISES (KeyError): If there is none.
        """
        for index in reversed(self._indexes):
            if id_ in index:
                return index[id_]
        raise KeyError(id_)

    def __contains__(self, id_: object) -> bool:
        """RETURNS (bool): Whether there is an entity with an id."""
        return any(id_ in index for index in self._indexes)

    def __iter__(self) -> Iterator[Entity]:
        """YIELDS (Entity): The entities, in the order of their positions."""
        with self.reading():
            for index in self._indexes:
                yield from (index.entity(int(position)) for position in index.all_positions())

    def find(self, name: str, *, within: Any = None) -> List[Entity]:
        """RETURNS (List[Entity]): The entities with a name, those of the last index first."""
        check_name(name)
        with self.reading():
            _, positions, degrees = self.match_names([name], within=within)
            order = np.lexsort((positions, -self.popularity_at(positions), -degrees, -(positions // _STRIDE)))
            return [self.entity(position) for position in positions[order].tolist()]

    def entity(self, position: int) -> Entity:
        """RETURNS (Entity): The entity at a position."""
        return self._indexes[position // _STRIDE].entity(position % _STRIDE)

    def heads(self, positions: Array) -> List[Tuple[str, str, str]]:
        """RETURNS (List[Tuple[str, str, str]]): Id, title and label of entities."""
        found = np.empty(len(positions), dtype=object)
        for index, own, local in self._split(positions):
            for place, head in zip(np.flatnonzero(own), index.heads(local), strict=True):
                found[place] = head
        return found.tolist()

    def sources(self, positions: Array) -> List[str]:
        """RETURNS (List[str]): Where the entities at positions come from: the folders of the indexes."""
        return [str(self._indexes[place].path) for place in (positions // _STRIDE).tolist()]

    def labels(self) -> List[str]:
        """RETURNS (List[str]): The labels of the entities, those of the last index first."""
        return list(dict.fromkeys(label for index in reversed(self._indexes) for label in index.labels()))

    def positions(self, ids: Sequence[str]) -> Array:
        """RETURNS (Array): (ids,) the position of each id, or -1 for an unknown one."""
        with self.reading():
            found = np.full(len(ids), -1, dtype="int64")
            for i, index in enumerate(self._indexes):
                local = index.positions(ids)
                found[local >= 0] = local[local >= 0] + i * _STRIDE
            return found

    def all_positions(self) -> Array:
        """RETURNS (Array): Ascending positions of all entities."""
        with self.reading():
            return np.concatenate([x.all_positions() + i * _STRIDE for i, x in enumerate(self._indexes)])

    def are_names(self, texts: Sequence[str], *, within: Any = None) -> Array:
        """RETURNS (Array): (texts,) whether the text is a name of any entity, as written or as a title."""
        found = [index.are_names(texts, within=within) for index in self._indexes]
        return functools.reduce(np.logical_or, found)

    def match_names(
        self, texts: Sequence[str], *, alias_share: float = 1.0, within: Any = None
    ) -> Tuple[Array, Array, Array]:
        """RETURNS (Tuple[Array, Array, Array]): (matches,) as `EntityIndex.match_names`."""
        with self.reading():
            parts = [x.match_names(texts, alias_share=_NAMED, within=within) for x in self._indexes]
        owners, entities, degrees = (np.concatenate(arrays) for arrays in zip(*parts, strict=True))
        numbers = np.repeat(np.arange(len(parts)), [len(part[0]) for part in parts])
        entities = entities + numbers * _STRIDE
        # a spelling is doubted only where it is nobody's name, in any of the indexes
        kept = (degrees > SPELLING) | ~np.isin(owners, owners[degrees > SPELLING])
        order = np.lexsort((entities, owners))
        order = order[kept[order]]
        return owners[order], entities[order], np.where(degrees == _NAMED, alias_share, degrees)[order]

    def search(
        self,
        queries: Array,
        k: int,
        *,
        names: Sequence[str] = (),
        prior: Prior = Prior(),  # noqa: B008  (frozen)
        within: Any = None,
    ) -> Tuple[Array, Array]:
        """Find candidates in all indexes; see `EntityIndex.search`.

        RETURNS (Tuple[Array, Array]): (queries, k) positions and similarities, best first.
        """
        unnamed = replace(prior, name_weight=0.0)
        with self.reading():
            parts = [x.search(queries, k, prior=unnamed, within=within) for x in self._indexes]
            shifted = [np.where(p >= 0, p + i * _STRIDE, -1) for i, (p, _) in enumerate(parts)]
            similarities = np.concatenate([part[1] for part in parts], axis=1)
            positions = np.concatenate(shifted, axis=1)
            candidates = best_candidates(positions, similarities, max(1, min(k, len(self))))
            if not prior.name_weight:
                return candidates
            return add_named(
                queries,
                self.match_names(names, alias_share=prior.alias_share, within=within),
                candidates,
                prior=prior,
                vectors_at=self.vectors_at,
                popularity_at=self.popularity_at,
            )

    def add(self, entities: Iterable[Record], encoder: Encoder, *, batch_size: int = 64) -> int:
        """Add entities to the last index; see `EntityIndex.add`."""
        return self._indexes[-1].add(entities, encoder, batch_size=batch_size)

    def put(self, entities: Iterable[Record], encoder: Encoder, *, batch_size: int = 64) -> Added:
        """Add entities to the last index; see `EntityIndex.put`."""
        return self._indexes[-1].put(entities, encoder, batch_size=batch_size)

    def remove(self, ids: Iterable[str]) -> int:
        """Remove entities from every index that has them: none comes back that was hidden. The other indexes
        are not changed, and may be read-only.

        It is one transaction per index, from the first to the last. If one fails, such as for a full disk,
        the later ones are not changed, and so what they have is still there: remove the same ids again.

        ids (Iterable[str]): Their ids; unknown ones are ignored.
        RETURNS (int): How many entities there are less.
        RAISES (ELQError): If one of the indexes that have them is read-only. Nothing is removed then.
        """
        ids = list(dict.fromkeys(ids))
        with self.reading():
            # also of those that a later index hides
            have = np.asarray([index._database.positions(ids) >= 0 for index in self._indexes])
        for index, has in zip(self._indexes, have, strict=True):
            if has.any() and index.is_read_only:
                found = repr(ids[int(has.argmax())])
                raise ELQError(Errors.E183.format(found=found, path=index.path))
        for index, has in zip(self._indexes, have, strict=True):
            if has.any():
                index.remove(ids)
        return int(have.any(axis=0).sum())

    def compact(self, *, force: bool = False, progress: bool = False) -> bool:
        """Fold changes into the files of each index that is not read-only; see `EntityIndex.compact`."""
        done = []
        for index in self._indexes:
            if index.is_read_only:
                logger.info("%s is read-only and was not compacted", index.path)
            else:
                done.append(index.compact(force=force, progress=progress))
        return any(done)

    def check_encoder(self, encoder: Encoder) -> None:
        """Check that an encoder is the one that made the vectors."""
        self._indexes[0].check_encoder(encoder)

    def _split(self, positions: Array) -> Iterator[Tuple[EntityIndex, Array, Array]]:
        """YIELDS (Tuple[EntityIndex, Array, Array]): An index, the positions that are in it, and what they
        are there.
        """
        numbers = positions // _STRIDE
        for i, index in enumerate(self._indexes):
            own = numbers == i
            if own.any():
                yield index, own, positions[own] % _STRIDE


AnyIndex = Union[EntityIndex, EntityIndexes]


def open_index(paths: Union[str, Path, Sequence[Union[str, Path]]]) -> AnyIndex:
    """Open an index, or several as one.

    paths (Union[str, Path, Sequence[Union[str, Path]]]): A folder, or several: a later one hides entities of
        an earlier one that have the same ids.
    RETURNS (AnyIndex): The index.
    """
    if isinstance(paths, (str, Path)):
        return EntityIndex.open(paths)
    opened = [EntityIndex.open(path) for path in paths]
    return opened[0] if len(opened) == 1 else EntityIndexes(opened)
