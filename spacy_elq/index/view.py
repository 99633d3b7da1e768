"""One state of an index in memory: vectors of its files, vectors of changes since, and which still count."""

from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Dict, Mapping, Optional, Tuple

import numpy as np

from ..errors import Errors
from ..types import Array
from .backend import FaissBackend
from .connections import Damaged
from .database import Counters, Database, NameFilter, Seen
from .entries import check_entries
from .files import SEARCH, VECTORS, find_files, read_entries
from .milvus import Collection, is_remote
from .sync import open_collection
from .vectors import Vectors


class Base:
    """What the files of an index hold: entities whose vectors stand in rows, in the order of their positions.
    If they are in Milvus instead, rows are those of the names and popularity.

    files (Dict[str, int]): Numbers that change when the files do.
    next (int): Entities from this position on are not in the files.
    gaps (Array): Ascending positions below `next` that were not in use when the files were made.
    names (NameFilter): Knows all names of the index.
    """

    def __init__(self, database: Database, known: Optional[Collection] = None) -> None:
        """Open the files of the state that is read.

        known (Optional[Collection]): The collection of an earlier state.
        """
        self._database = database
        paths = find_files(database)
        settings = database.get_meta("backend")
        if VECTORS not in paths and not is_remote(settings):
            raise Damaged(database.path, "is not complete, or not an index")
        check_entries(database)
        self.files: Dict[str, int] = _numbers(database)
        self.next: int = database.get_meta("base")["next"]
        self.gaps = database.get_array("gaps", "int64")
        self.names = NameFilter(database.get_array("names", "uint8").copy())
        if not len(self.names.bits):
            raise Damaged(database.path, "is not complete")
        self.backend: Optional[FaissBackend] = None
        self.collection: Optional[Collection] = None
        if is_remote(settings):
            self.collection = open_collection(database, known)
            self.width = self.collection.width
            self._seen: int = database.get_meta("synced")["seen"]
            return
        self.vectors = Vectors(paths[VECTORS])
        self.width = int(self.vectors.array.shape[1])
        if len(self.vectors.array) != len(self):
            problem = f"has {len(self.vectors.array)} vectors instead of {len(self)}"
            raise Damaged(paths[VECTORS], problem)
        if settings is not None:
            self.backend = _open_backend(self.vectors.array, paths.get(SEARCH), settings)
        # what searches the vectors themselves has them mapped and read anyway
        self.is_mapped = SEARCH not in paths

    @cached_property
    def log_popularity(self) -> Array:
        """RETURNS (Array): (rows,) the logarithm of 1 + popularity."""
        values = self._database.get_array("popularity", "float32")
        if len(values) != len(self):
            raise Damaged(self._database.path, "is not complete")
        return values

    def take_popularity(self, rows: Array) -> Array:
        """RETURNS (Array): The logarithm of 1 + popularity of rows; any one for -1."""
        return self.log_popularity[rows] if len(self) else np.zeros(rows.shape, dtype="float32")

    def __len__(self) -> int:
        """RETURNS (int): The number of rows."""
        return self.next - len(self.gaps)

    def positions(self, rows: Array) -> Array:
        """RETURNS (Array): The positions of rows; -1 for -1."""
        if not len(self.gaps):
            return rows
        before = np.searchsorted(self.gaps - np.arange(len(self.gaps)), rows, side="right")
        return np.where(rows < 0, -1, rows + before)

    def rows(self, positions: Array) -> Array:
        """RETURNS (Array): The rows of positions below `next`, or -1 where there is none."""
        if not len(self.gaps):
            return positions
        before = np.searchsorted(self.gaps, positions)
        is_gap = self.gaps[np.minimum(before, len(self.gaps) - 1)] == positions
        return np.where(is_gap | (positions < 0), -1, positions - before)

    def take(self, rows: Array) -> Array:
        """RETURNS (Array): (*rows.shape, width) vectors; any one for -1."""
        if not len(self):  # of which not even the last can be taken
            return np.zeros((*rows.shape, self.width), dtype="float32")
        if self.collection is not None:
            return self.collection.take(self.positions(rows), seen=self._seen)
        if not self.is_mapped:
            return self.vectors.take(rows)
        return self.vectors.array[rows].astype("float32", copy=False)


def _open_backend(vectors: Array, path: Optional[Path], settings: Mapping[str, Any]) -> FaissBackend:
    try:
        return FaissBackend(vectors, path, settings)
    except RuntimeError:
        assert path is not None
        path.stat()  # of one that was replaced just now, FAISS says the same
        raise Damaged(path, "is not a file that FAISS has written", Errors.E164) from None


class _Buffer:
    """Vectors that become more. What was handed out stays as it is."""

    def __init__(self, width: int) -> None:
        self._data = np.zeros((0, width), dtype="float32")
        self._used = 0

    def append(self, vectors: Array) -> Array:
        """RETURNS (Array): All vectors so far."""
        used = self._used + len(vectors)
        if used > len(self._data):
            grown = np.zeros((max(used, 2 * len(self._data), 64), self._data.shape[1]), dtype="float32")
            grown[: self._used] = self._data[: self._used]
            self._data = grown
        self._data[self._used : used] = vectors
        self._used = used
        return self._data[:used]


@dataclass(frozen=True)
class View:
    """A state of an index.

    counters (Counters): Which one.
    base (Base): Its files.
    is_dead (Optional[Array]): (rows,) bool, rows of the files whose entities were removed; None if there is
        none.
    changed (Array): (changes,) ascending positions of the entities that were added since.
    is_live (Array): (changes,) bool, those that were not removed again.
    vectors, log_popularity (Array): (changes, width) and (changes,) theirs.
    seen (Seen): Names that were looked up in this state.
    sent (int): How many of the changes are in Milvus, too; the others are compared with every query.
    written (int): What a search in Milvus must see, see `Collection.upsert`.
    """

    counters: Counters
    base: Base
    is_dead: Optional[Array]
    changed: Array
    is_live: Array
    vectors: Array
    log_popularity: Array
    _buffer: _Buffer
    seen: Seen = field(default_factory=dict)
    sent: int = 0
    written: int = 0

    @property
    def width(self) -> int:
        """RETURNS (int): The length of a vector."""
        return self.base.width

    @cached_property
    def dead(self) -> int:
        """RETURNS (int): How many entities of the files were removed."""
        return 0 if self.is_dead is None else int(self.is_dead.sum())

    @property
    def count(self) -> int:
        """RETURNS (int): The number of entities."""
        return len(self.base) - self.dead + int(self.is_live.sum())

    @property
    def changes(self) -> int:
        """RETURNS (int): How many entities were added, or removed from the files."""
        return self.dead + len(self.changed)

    @property
    def first_unsent(self) -> int:
        """RETURNS (int): The position from which on Milvus has nothing of this state."""
        return int(self.changed[self.sent]) if self.sent < len(self.changed) else self.counters.next

    def live_positions(self) -> Array:
        """RETURNS (Array): Ascending positions of the entities."""
        rows = np.arange(len(self.base))
        kept = rows if self.is_dead is None else rows[~self.is_dead]
        return np.concatenate([self.base.positions(kept), self.changed[self.is_live]])

    def find(self, positions: Array) -> Tuple[Array, Array]:
        """RETURNS (Tuple[Array, Array]): For each position, the row of the files and the number of the
        change; -1 where it has none.
        """
        is_old = positions < self.base.next
        rows = np.where(is_old, self.base.rows(np.where(is_old, positions, -1)), -1)
        changes = np.full(positions.shape, -1, dtype="int64")
        if len(self.changed) and not is_old.all():
            places = np.minimum(np.searchsorted(self.changed, positions), len(self.changed) - 1)
            changes = np.where(self.changed[places] == positions, places, -1)
        return rows, changes

    def are_live(self, positions: Array) -> Array:
        """RETURNS (Array): Whether there is an entity at each position."""
        rows, changes = self.find(positions)
        live = rows >= 0
        if self.is_dead is not None:
            live &= ~self.is_dead[rows]
        if len(self.changed):
            live |= (changes >= 0) & self.is_live[changes]
        return live

    def take(self, positions: Array) -> Array:
        """RETURNS (Array): (*positions.shape, width) the vectors at positions; anything where none is."""
        rows, changes = self.find(positions)
        if not len(self.changed) or (changes < 0).all():
            return self.base.take(rows)
        vectors = np.zeros((*positions.shape, self.width), dtype="float32")
        is_new = changes >= 0
        vectors[~is_new] = self.base.take(rows[~is_new])
        vectors[is_new] = self.vectors[changes[is_new]]
        return vectors

    def take_popularity(self, positions: Array) -> Array:
        """RETURNS (Array): The logarithm of 1 + popularity at positions; any where there is no entity."""
        rows, changes = self.find(positions)
        popularity = self.base.take_popularity(rows)
        if not len(self.changed):
            return popularity
        return np.where(changes >= 0, self.log_popularity[changes], popularity)


def load_view(database: Database, before: Optional[View]) -> View:
    """Load the state of a database that is read, or what is new in it.

    before (Optional[View]): A state that was loaded earlier.
    """
    counters = database.counters()
    if before is not None and before.counters == counters:
        return before
    if before is None or before.counters.epoch != counters.epoch or before.base.files != _numbers(database):
        before = _load_base(database, None if before is None else before.base.collection)
    return _load_changes(database, counters, before)


def _numbers(database: Database) -> Dict[str, int]:
    numbers = {role: entry["number"] for role, entry in read_entries(database).items()}
    # where vectors are not in files, compacting counts
    folds = (database.get_meta("base") or {}).get("folds", 0)
    return {**numbers, "folds": folds} if folds else numbers


def _load_base(database: Database, known: Optional[Collection]) -> View:
    if database.get_meta("base") is None or database.get_meta("files") is None:
        raise Damaged(database.path, "is not complete, or not an index")
    base = Base(database, known)
    width = base.width
    counters = database.counters()._replace(next=base.next, version=-1)
    none = np.zeros(0, dtype="int64")
    empty = np.zeros((0, width), dtype="float32")
    return View(counters, base, None, none, none.astype(bool), empty, empty[:, 0], _Buffer(width))


def _load_changes(database: Database, counters: Counters, before: View) -> View:
    first = before.counters.next
    positions, data = database.read_changes(first=first)
    popularity = database.popularity(first=first)
    if len(popularity) != len(positions) or len(data) != 4 * before.width * len(positions):
        raise Damaged(database.path, "has changes that do not fit its entities")
    added = np.frombuffer(data, dtype="float32").reshape(-1, before.width)
    removed = database.read_removed(after=before.counters.version)
    if len(positions):
        before.base.names.add(database.read_changed_names(positions.tolist(), first=first))
        before = replace(
            before,
            changed=np.concatenate([before.changed, positions]),
            is_live=np.concatenate([before.is_live, np.ones(len(positions), dtype=bool)]),
            vectors=before._buffer.append(added),
            log_popularity=np.concatenate([before.log_popularity, popularity]),
        )
    if len(removed):
        before = without(before, removed)
    sent = written = 0
    if before.base.collection is not None:
        synced = database.get_meta("synced")
        sent, written = int(np.searchsorted(before.changed, synced["next"])), synced["seen"]
    return replace(before, counters=counters, seen={}, sent=sent, written=written)


def without(view: View, removed: Array) -> View:
    """RETURNS (View): The same without the entities at these positions."""
    rows, changes = view.find(removed)
    is_live = view.is_live.copy()
    is_live[changes[changes >= 0]] = False
    is_dead = view.is_dead
    if (rows >= 0).any():
        is_dead = np.zeros(len(view.base), dtype=bool) if is_dead is None else is_dead.copy()
        is_dead[rows[rows >= 0]] = True
    return replace(view, is_dead=is_dead, is_live=is_live)
