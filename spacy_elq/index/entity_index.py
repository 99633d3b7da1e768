"""EntityIndex: the entity side of the linker, opened from a folder."""

import threading
import warnings
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import (
    Any,
    Callable,
    Dict,
    Iterable,
    Iterator,
    List,
    Mapping,
    NamedTuple,
    Optional,
    Sequence,
    Tuple,
    Union,
)

import numpy as np

from ..catalogue import check_entities
from ..core.similarity import Prior
from ..errors import ELQError, Errors, Warnings, describe_difference
from ..types import Array, Encoder, Entity
from .backend import Among
from .compact import compact
from .connections import Busy, Damaged
from .database import DATABASE, Database
from .milvus import Collection, check_tags
from .search import add_named, search_view
from .sync import sync
from .view import View, load_view, without
from .within import Subset, Within, find_among, find_subset

# the vectors of all their candidates are in memory at once
_QUERIES_AT_ONCE = 128
# changes are folded into the files when they are more than this share of the entities, and this many
COMPACT_SHARE, COMPACT_FROM = 0.02, 1000
_TRIES = 100
_KNOWN_SUBSETS = 64
Record = Union[Entity, Mapping[str, Any]]


class Added(NamedTuple):
    """What became of entities that were added.

    new (int): How many have ids that were not there.
    replaced (int): How many took the place of others.
    """

    new: int
    replaced: int


class EntityIndex:
    """Ids, records and vectors of the entities, and the search over them. They are read from disk as they are
    needed, and may change meanwhile: each call sees the state of that moment, and `reading` keeps one state
    for several calls.
    """

    def __init__(self, path: Path, database: Database) -> None:
        """Use `EntityIndex.open`."""
        self.path = path
        self._database = database
        self._view: Optional[View] = None
        self._lock = threading.Lock()
        self._local = threading.local()
        # later indexes, whose entities take the place of those here with the same ids
        self._later: List[EntityIndex] = []
        self._visible: Dict[Any, View] = {}
        self._among: Dict[Any, Tuple[int, Among]] = {}
        self._subsets: Dict[Any, Subset] = {}

    @classmethod
    def open(cls, path: Union[str, Path]) -> "EntityIndex":
        """Open an index, or the vectors of a catalogue that has no back end yet.

        path (Union[str, Path]): The folder.
        RETURNS (EntityIndex): The index.
        RAISES (ELQError): If it is missing, damaged or of another format.
        """
        path = Path(path).absolute()
        if not (path / DATABASE).is_file():
            with suppress(FileNotFoundError, NotADirectoryError):
                path.stat()  # of links that point to each other, it says so
            message = Errors.E032 if (path / "meta.json").is_file() else Errors.E030
            raise ELQError(message.format(path=path))
        index = cls(path, Database.open(path / DATABASE))
        with index.reading():
            return index

    def __reduce__(self) -> Any:
        """Pickle the path, not the data: another process maps the same pages."""
        return (EntityIndex.open, (self.path,))

    def close(self) -> None:
        """Close the database, and the connection to Milvus. The index can be used again afterwards."""
        self._database.close()
        if self._view is not None and self._view.base.collection is not None:
            self._view.base.collection.close()

    # ------------------------------------------------------------------ states

    @contextmanager
    def reading(self) -> Iterator[View]:
        """Read one state of the index, whatever other threads and processes change meanwhile.

        YIELDS (View): The state.
        """
        own = getattr(self._local, "view", None)
        if own is not None:
            yield own
            return
        for last in range(_TRIES, -1, -1):
            with self._database.reading():
                view = self._load(is_last=last == 0)
                if view is None:
                    continue
                self._local.view, self._local.whole = (self._hide(view) if self._later else view), view
                try:
                    yield self._local.view
                finally:
                    self._local.view = self._local.whole = None
                return

    def _load(self, *, is_last: bool) -> Optional[View]:
        """RETURNS (Optional[View]): The state that is read, or None if it is gone already: its files are, or
        another thread has gone on to the next.
        """
        with self._lock:
            before, now = self._view, self._database.counters()
            if before is not None and before.counters == now:
                return before
            is_old = before is not None and before.counters[:2] > now[:2] and before.counters[0] == now[0]
            if is_old and not is_last:
                return None
            try:
                self._view = load_view(self._database, None if is_old else before)
            except FileNotFoundError as err:
                if not is_last:
                    return None
                missing = Path(str(err.filename))
                message = Errors.E164 if missing.suffix == ".faiss" else Errors.E031
                raise Damaged(missing, "is missing", message) from None
            return self._view

    def _hide(self, view: View) -> View:
        """RETURNS (View): The state without the entities whose ids later indexes have, too."""
        with ExitStack() as stack:
            later = [stack.enter_context(index.reading()) for index in self._later]
            key = (view.counters, *(state.counters for state in later))
            visible = self._visible.get(key)
            if visible is None:
                hidden = [_find_shared(self._database, index._database) for index in self._later]
                visible = without(view, np.unique(np.concatenate(hidden)))
                self._visible = {key: visible}
            return visible

    def _subset(self, view: View, within: Optional[Within]) -> Optional[Subset]:
        """RETURNS (Optional[Subset]): The entities that count, looked up once for each state."""
        if within is None:
            return None
        key = (view.counters, within)
        subset = self._subsets.get(key) if not self._later else None
        if subset is None:
            files = (view.counters.epoch, *view.base.files.values(), within)
            # what a later state lacks an earlier one may have
            known = self._among.get(files)
            if known is None or known[0] > view.counters.version:
                known = (view.counters.version, find_among(self._database, view, within))
                self._remember(self._among, files, known)
            subset = find_subset(self._database, view, within, known[1])
            self._remember(self._subsets, key, subset)
        return subset

    def _remember(self, known: Dict[Any, Any], key: Any, value: Any) -> None:
        """Put a value into a small cache; the oldest goes."""
        with self._lock:
            known[key] = value
            while len(known) > _KNOWN_SUBSETS:
                known.pop(next(iter(known)))

    # ------------------------------------------------------------------ what it is

    def __len__(self) -> int:
        """RETURNS (int): The number of entities."""
        with self.reading() as view:
            return view.count

    @property
    def paths(self) -> List[Path]:
        """RETURNS (List[Path]): The folder of the index, in a list: several indexes have several."""
        return [self.path]

    @property
    def is_read_only(self) -> bool:
        """RETURNS (bool): Whether it cannot be changed, because its folder is not writable."""
        return self._database.connections.is_read_only

    @property
    def width(self) -> int:
        """RETURNS (int): The length of an entity vector."""
        with self.reading() as view:
            return view.width

    @property
    def meta(self) -> Dict[str, Any]:
        """RETURNS (Dict[str, Any]): A digest of the catalogue that it was built from, the "encoder" that made
        the vectors, the settings of the "backend" if it can be searched, and sizes and sums of its "files".
        """
        with self._database.reading():
            values = {
                key: self._database.get_meta(key) for key in ("catalogue", "encoder", "backend", "files")
            }
        return {key: value for key, value in values.items() if value is not None}

    @property
    def stamp(self) -> Dict[str, Any]:
        """RETURNS (Dict[str, Any]): What identifies the index: the catalogue that it was built from, encoder,
        width. It stays the same when entities are added or removed.
        """
        with self.reading() as view:
            meta = self.meta
            return {
                "catalogue": meta["catalogue"],
                "encoder": meta["encoder"]["fingerprint"],
                "width": view.width,
            }

    @property
    def changes(self) -> int:
        """RETURNS (int): How many entities were added or removed since the back end was built."""
        with self.reading():
            return self._local.whole.changes

    @property
    def vectors(self) -> Array:
        """RETURNS (Array): (entities, width) the vectors of all entities, by position: mapped as they are
        stored, or a copy if there are changes.
        """
        with self.reading() as view:
            is_whole = not view.changes and view.base.collection is None
            return view.base.vectors.array if is_whole else view.take(self.all_positions())

    def vectors_at(self, positions: Array) -> Array:
        """RETURNS (Array): (*positions.shape, width) the vectors of the entities at positions."""
        with self.reading() as view:
            return view.take(positions)

    def popularity_at(self, positions: Array) -> Array:
        """RETURNS (Array): (*positions.shape,) the logarithm of 1 + popularity at positions."""
        with self.reading() as view:
            return view.take_popularity(positions)

    # ------------------------------------------------------------------ entities

    def __getitem__(self, id_: str) -> Entity:
        """RETURNS (Entity): The entity with an id.
        RAISES (KeyError): If there is none.
        """
        with self.reading():
            position = int(self.positions([id_])[0])
            if position < 0:
                raise KeyError(id_)
            return self.entity(position)

    def __contains__(self, id_: object) -> bool:
        """RETURNS (bool): Whether there is an entity with an id."""
        return isinstance(id_, str) and int(self.positions([id_])[0]) >= 0

    def __iter__(self) -> Iterator[Entity]:
        """YIELDS (Entity): The entities, in the order of their positions."""
        with self.reading() as view:
            for positions in np.array_split(view.live_positions(), max(1, view.count // 1000)):
                yield from self._database.get_all(positions.tolist())

    def find(self, name: str, *, within: Any = None) -> List[Entity]:
        """RETURNS (List[Entity]): The entities with a name, or with a similar spelling if there is none, most
        popular first.
        """
        check_name(name)
        with self.reading() as view:
            _, positions, degrees = self.match_names([name], within=within)
            order = np.lexsort((positions, -view.take_popularity(positions), -degrees))
            return self._database.get_all(positions[order].tolist())

    def entity(self, position: int) -> Entity:
        """RETURNS (Entity): The entity at a position."""
        return self._database.get(position)

    def heads(self, positions: Array) -> List[Tuple[str, str, str]]:
        """RETURNS (List[Tuple[str, str, str]]): Id, title and label of entities, quicker than `entity`."""
        return self._database.heads(positions)

    def positions(self, ids: Sequence[str]) -> Array:
        """RETURNS (Array): (ids,) the position of each id, or -1 for an unknown one."""
        with self.reading() as view:
            positions = self._database.positions(ids)
            return np.where(view.are_live(positions), positions, -1) if self._later else positions

    def all_positions(self) -> Array:
        """RETURNS (Array): Ascending positions of all entities."""
        with self.reading() as view:
            return view.live_positions()

    def sources(self, positions: Array) -> List[str]:
        """RETURNS (List[str]): Where the entities at positions come from: the folder of the index."""
        return [str(self.path)] * len(positions)

    def labels(self) -> List[str]:
        """RETURNS (List[str]): The labels of the entities, the most frequent first."""
        with self.reading():
            counts = self._database.labels()
        return [label for label, _ in sorted(counts, key=lambda item: (-item[1], item[0])) if label]

    # ------------------------------------------------------------------ names

    def are_names(self, texts: Sequence[str], *, within: Any = None) -> Array:
        """RETURNS (Array): (texts,) whether the text is a name of any entity, as written or as a title."""
        with self.reading() as view:
            if within is None and not self._later:
                return self._database.are_names(texts, view.base.names, view.seen)
            owners, _, degrees = self.match_names(texts, within=within)
            found = np.zeros(len(texts), dtype=bool)
            found[owners[degrees == 1.0]] = True
            return found

    def match_names(
        self, texts: Sequence[str], *, alias_share: float = 1.0, within: Any = None
    ) -> Tuple[Array, Array, Array]:
        """RETURNS (Tuple[Array, Array, Array]): (matches,) the position of the text, ascending, the position
        of an entity with that name, and how well they match: 1 for its title, `alias_share` for another
        name, 0.5 for a similar spelling.
        """
        with self.reading() as view:
            subset = self._subset(view, Within.make(within))
            are_inside: Optional[Callable[[Array], Array]] = None
            if subset is not None:
                are_inside = partial(subset.has, view)
            elif self._later:
                are_inside = view.are_live
            return self._database.match_names(
                texts, view.base.names, view.seen, alias_share=alias_share, are_inside=are_inside
            )

    # ------------------------------------------------------------------ search

    def search(
        self,
        queries: Array,
        k: int,
        *,
        names: Sequence[str] = (),
        prior: Prior = Prior(),  # noqa: B008  (frozen)
        within: Any = None,
    ) -> Tuple[Array, Array]:
        """Find candidates: the back end finds them, the stored vectors score them.

        queries (Array): (queries, width).
        k (int): Candidates per query; fewer where the catalogue is smaller.
        names (Sequence[str]): The text of each query, where the prior weighs names.
        prior (Prior): Names and popularity. Entities whose name equals the text of a query become
            candidates even if their vectors are far away.
        within (Any): Which entities count, such as {"labels": ["PERSON"]}; see `Within`. None for all.
        RETURNS (Tuple[Array, Array]): (queries, k) positions and similarities, exact inner products and what
            the prior adds, best first; -1 and minus infinity where there are fewer.
        """
        with self.reading() as view:
            if view.base.backend is None and view.base.collection is None:
                raise ELQError(Errors.E033.format(path=self.path))
            if queries.shape[1] != view.width:
                raise ELQError(
                    Errors.E035.format(found=queries.shape[1], expected=view.width, path=self.path)
                )
            k = max(1, min(k, view.count))
            if not len(queries):
                return np.zeros((0, k), dtype="int64"), np.zeros((0, k), dtype="float32")
            queries = np.ascontiguousarray(queries, dtype="float32")
            subset = self._subset(view, Within.make(within))
            chunks = [
                search_view(view, queries[begin : begin + _QUERIES_AT_ONCE], k, prior=prior, subset=subset)
                for begin in range(0, len(queries), _QUERIES_AT_ONCE)
            ]
            candidates = tuple(np.concatenate(arrays) for arrays in zip(*chunks, strict=True))
            if not prior.name_weight:
                return candidates[0], candidates[1]
            matches = self.match_names(names, alias_share=prior.alias_share, within=within)
            return add_named(
                queries,
                matches,
                (candidates[0], candidates[1]),
                prior=prior,
                vectors_at=view.take,
                popularity_at=view.take_popularity,
            )

    # ------------------------------------------------------------------ changes

    def add(self, entities: Iterable[Record], encoder: Encoder, *, batch_size: int = 64) -> int:
        """Add entities, or replace those whose ids are there. All of them are there when this returns, for
        every process that has the index open, or none is.

        entities (Iterable[Record]): Entities, or records of a catalogue; each id once.
        encoder (Encoder): The encoder of the index.
        RETURNS (int): How many there are.
        """
        return sum(self.put(entities, encoder, batch_size=batch_size))

    def put(self, entities: Iterable[Record], encoder: Encoder, *, batch_size: int = 64) -> Added:
        """Add or replace entities, see `add`.

        RETURNS (Added): How many are new, and how many took the place of others.
        """
        checked = check_entities(entities)
        if not checked:
            return Added(0, 0)
        ids = [entity.id for entity in checked]
        if len(set(ids)) < len(ids):
            twice = next(id_ for id_ in ids if ids.count(id_) > 1)
            raise ELQError(Errors.E166.format(found=repr(twice)))
        self.check_encoder(encoder)
        if self._collection() is not None:
            check_tags(checked)
        replaced = self._database.add(checked, encoder.encode(checked, batch_size=batch_size))
        self._sync()
        self._compact_if_due()
        return Added(len(checked) - replaced, replaced)

    def remove(self, ids: Iterable[str]) -> int:
        """Remove entities, in one transaction.

        ids (Iterable[str]): Their ids; unknown ones are ignored.
        RETURNS (int): How many there were.
        """
        count = self._database.remove(list(ids))
        self._sync()
        self._compact_if_due()
        return count

    def compact(self, *, force: bool = False, progress: bool = False) -> bool:
        """Fold changes into the files and build the back end anew; others can read and write meanwhile.

        force (bool): Also if there are no changes.
        RETURNS (bool): Whether there was anything to do.
        """
        return compact(self._database, force=force, progress=progress)

    def check_encoder(self, encoder: Encoder) -> None:
        """Check that an encoder is the one that made the vectors.

        RAISES (ELQError): If it is another one.
        """
        found = self.meta["encoder"]
        if found["fingerprint"] != encoder.fingerprint:
            expected = {**encoder.settings, "fingerprint": encoder.fingerprint}
            difference = describe_difference(found, expected)
            raise ELQError(Errors.E038.format(path=self.path, difference=difference))

    def _collection(self) -> Optional[Collection]:
        """RETURNS (Optional[Collection]): Where the vectors are, if they are in Milvus."""
        with self.reading():
            return self._local.whole.base.collection

    def _sync(self) -> None:
        """Send Milvus what has changed. It is safe already: nothing that happens here is an error, and what
        could not be sent is found all the same.
        """
        collection = self._collection()
        if collection is None:
            return
        try:
            sync(self._database, collection)
        except ELQError as err:
            warnings.warn(Warnings.W014.format(path=self.path, problem=err), stacklevel=3)

    def _compact_if_due(self) -> None:
        """Compact if there are many changes. They are safe already: nothing that happens here is an error."""
        with self.reading():
            # what a later index hides is no change
            whole = self._local.whole
            is_due = whole.changes > max(COMPACT_FROM, COMPACT_SHARE * whole.count)
        if not is_due:
            return
        try:
            self.compact()
        except Busy:
            pass  # another process does it
        except ELQError as err:
            warnings.warn(Warnings.W009.format(path=self.path, problem=err), stacklevel=3)


def check_name(name: Any) -> None:
    """RAISES (ELQError): If a name to look for is no text."""
    if not isinstance(name, str):
        raise ELQError(Errors.E182.format(found=repr(name)))


def _find_shared(database: Database, other: Database) -> Array:
    """RETURNS (Array): Positions of the entities whose ids another database has, too."""
    if len(other) <= len(database):
        found = database.positions(other.ids()[0])
        return found[found >= 0]
    ids, positions = database.ids()
    return positions[other.positions(ids) >= 0]


def build_index_loader(path: Path) -> Callable[[], EntityIndex]:
    """Open an index when training starts: for `[initialize.components.NAME.index_loader]`.

    path (Path): Folder of the index, made by `spacy elq index`.
    RETURNS (Callable[[], EntityIndex]): Opens the index.
    """
    return partial(EntityIndex.open, path)
