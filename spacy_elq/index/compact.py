"""Fold the changes of an index into its files."""

import warnings
from pathlib import Path
from typing import Any, Dict, Iterator, Optional, Tuple, Union

import numpy as np

from ..errors import Warnings
from ..types import Array
from .backend import EXACT, EXACT_UP_TO, Unbuildable, build_backend, default_factory, plan_backend
from .connections import Damaged
from .database import DATABASE, Counters, Database, NameFilter
from .entries import check_entries
from .files import (
    SEARCH,
    VECTORS,
    check_disk,
    check_files,
    check_is_index,
    describe_file,
    drop_unused,
    file_path,
    maintaining,
    named_files,
    new_number,
    note_files,
    sync_folder,
)
from .milvus import is_remote
from .sync import open_collection, sync
from .vectors import Vectors, write_vectors

_ROWS = 8192


def compact(database: Database, *, force: bool = False, progress: bool = False) -> bool:
    """Write the vectors of all entities to a new file and build the back end over them. Readers and writers
    go on meanwhile; what they change is kept as a change to the new files.

    force (bool): Also if there are no changes: after damage to the back end.
    RETURNS (bool): Whether there was anything to do.
    """
    if is_remote(database.get_meta("backend")):
        return _compact_collection(database, force=force)
    folder = database.path.parent
    with maintaining(folder):
        drop_unused(folder, database)
        with database.reading():
            plan = _Plan(database)
        if not force and not plan.has_changes:
            return False
        _check_vectors(database)
        try:
            entries, settings = plan.write_files(folder, progress=progress)
            with database.writing():
                database.set_meta(files=entries, backend=settings, base={"next": plan.state.next})
                for key, values in plan.arrays().items():
                    database.set_array(key, values)
                database.forget_changes(plan.state)
        finally:
            drop_unused(folder, database)
    return True


def _compact_collection(database: Database, *, force: bool) -> bool:
    """Send Milvus what it does not have yet, and forget the list of changes.

    force (bool): Send all changes since the last time, whatever is known to be there.
    RETURNS (bool): Whether there was anything to do.
    """
    with maintaining(database.path.parent):
        with database.reading():
            check_entries(database)
            plan, base = _State(database), database.get_meta("base")
            collection = open_collection(database)
        if not force and not plan.has_changes:
            return False
        if not database.are_changes_whole():
            raise Damaged(database.path, "has damaged vectors")
        try:
            sync(database, collection, again=force)
        finally:
            collection.close()
        with database.writing():
            database.set_meta(base={"next": plan.state.next, "folds": base.get("folds", 0) + 1})
            for key, values in plan.arrays().items():
                database.set_array(key, values)
            database.forget_changes(plan.state)
    return True


def _check_vectors(database: Database) -> None:
    """Make sure that damaged vectors do not get into new files, with a sum that fits them.

    RAISES (Damaged): If there are any.
    """
    with database.reading():
        path = named_files(database)[VECTORS]
        problem = dict(check_files(database, [VECTORS])).get(VECTORS)
        if problem is not None:
            raise Damaged(path, "has other bytes than were written")
        if not database.are_changes_whole():
            raise Damaged(database.path, "has damaged vectors")


def compact_index(path: Union[str, Path], *, force: bool = False, progress: bool = False) -> bool:
    """Compact an index that may have a damaged back end; see `compact`.

    path (Union[str, Path]): The folder.
    """
    folder = Path(path).absolute()
    check_is_index(folder)
    database = Database.open(folder / DATABASE)
    try:
        return compact(database, force=force, progress=progress)
    finally:
        database.close()


class _State:
    """One state of the index, read at once, and what the database will keep about it."""

    def __init__(self, database: Database) -> None:
        self.state: Counters = database.counters()
        gaps, old_next = database.get_array("gaps", "int64"), database.get_meta("base")["next"]
        old = np.setdiff1d(np.arange(old_next), gaps, assume_unique=True)
        removed = database.read_removed()
        changed, self._data = database.read_changes(first=old_next)
        self._kept = np.flatnonzero(~np.isin(old, removed))
        self._positions = np.concatenate([old[self._kept], changed])
        popularity = database.get_array("popularity", "float32")[self._kept]
        self._popularity = np.concatenate([popularity, database.popularity(first=old_next)])
        self._names = NameFilter.build(database.name_keys()).bits
        self.has_changes = len(removed) > 0 or len(changed) > 0

    def arrays(self) -> Dict[str, Array]:
        """RETURNS (Dict[str, Array]): What the database keeps about the files."""
        positions = np.arange(self.state.next)
        gaps = np.setdiff1d(positions, self._positions, assume_unique=True)
        return {"gaps": gaps, "popularity": self._popularity, "names": self._names}


class _Plan(_State):
    """What the new files will hold."""

    def __init__(self, database: Database) -> None:
        self.vectors = _open_vectors(database)
        super().__init__(database)
        self._before = list(named_files(database).values())
        self._settings: Optional[Dict[str, Any]] = database.get_meta("backend")
        self._added = np.frombuffer(self._data, dtype="float32").reshape(-1, self.vectors.array.shape[1])

    @property
    def shape(self) -> Tuple[int, int]:
        """RETURNS (Tuple[int, int]): Of the vectors."""
        return len(self._positions), int(self.vectors.array.shape[1])

    def write_files(self, folder: Path, *, progress: bool) -> Tuple[Dict[str, Any], Optional[Dict[str, Any]]]:
        """RETURNS (Tuple[Dict[str, Any], Optional[Dict[str, Any]]]): What the database keeps about the new
        files, and the settings of the back end.
        """
        settings, bytes_ = self._plan_backend()
        check_disk(folder, bytes_ + self.vectors.array.itemsize * self.shape[0] * self.shape[1])
        number = new_number(folder)
        path, search = (file_path(folder, role, number) for role in (VECTORS, SEARCH))
        note_files(folder, [path, search, *self._before])
        write_vectors(path, self.shape, self._chunks(), dtype=self.vectors.array.dtype.name)
        if settings is not None:
            settings = self._build(Vectors(path).array, search, settings, progress=progress)
        made = {VECTORS: path, SEARCH: search}
        entries = {role: describe_file(own, number) for role, own in made.items() if own.exists()}
        sync_folder(folder)
        return entries, settings

    def _build(
        self, vectors: Array, path: Path, settings: Dict[str, Any], *, progress: bool
    ) -> Dict[str, Any]:
        """Build the back end or, if there are too few vectors for FAISS to learn it from, none: few vectors
        are searched one by one.

        RETURNS (Dict[str, Any]): The settings of the one that there is.
        """
        try:
            build_backend(vectors, path, settings=settings, progress=progress)
        except Unbuildable:
            if len(vectors) > EXACT_UP_TO:
                raise
            folder, factory = path.parent, settings["factory"]
            message = Warnings.W090.format(factory=factory, count=len(vectors), path=folder, exact=EXACT)
            warnings.warn(message, stacklevel=2)
            return {"factory": EXACT}
        return settings

    def _plan_backend(self) -> Tuple[Optional[Dict[str, Any]], int]:
        """RETURNS (Tuple[Optional[Dict[str, Any]], int]): The settings of before, or those of this size if
        the default of the size before was used; about how many bytes its file will have.
        """
        if self._settings is None:
            return None, 0
        factory = self._settings["factory"]
        settings, bytes_ = self._settings, plan_backend(self.shape, factory=factory)[1]
        if factory == default_factory(*self.vectors.array.shape) != default_factory(*self.shape):
            settings, bytes_ = plan_backend(self.shape, factory=default_factory(*self.shape))
        return settings, bytes_

    def _chunks(self) -> Iterator[Array]:
        for begin in range(0, len(self._kept), _ROWS):
            yield self.vectors.array[self._kept[begin : begin + _ROWS]]
        yield self._added


def _open_vectors(database: Database) -> Vectors:
    """RETURNS (Vectors): Those of the files, which must be whole; the back end need not be."""
    path = named_files(database).get(VECTORS)
    if path is None:
        raise Damaged(database.path, "is not complete, or not an index")
    check_entries(database)
    if not path.is_file():
        raise Damaged(path, "is missing")
    vectors = Vectors(path)
    expected = database.get_meta("base")["next"] - len(database.get_array("gaps", "int64"))
    if len(vectors.array) != expected:
        raise Damaged(path, f"has {len(vectors.array)} vectors instead of {expected}")
    return vectors
