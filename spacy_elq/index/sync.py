"""What an index keeps in Milvus: sent again until it is known to be there. The database of the index is the
truth: a change is made there first, and then sent; a search adds what has not been sent yet.
"""

import json
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Dict, Iterator, List, Mapping, Optional, Tuple

import numpy as np
from filelock import FileLock, Timeout
from tqdm import tqdm

from ..errors import ELQError, Errors
from ..names import hash_text
from ..types import Array
from .connections import Busy
from .database import Database
from .files import COLLECTIONS, can_be_read
from .milvus import Collection, is_remote

LOCK = ".lock-milvus"
# how long whoever sends changes waits for another one, in seconds
PATIENCE = 60.0
_ROWS = 2048


def open_collection(database: Database, known: Optional[Collection] = None) -> Collection:
    """RETURNS (Collection): That of the state of a database that is read, or the one that is known, if it is
    the same.
    """
    settings = database.get_meta("backend")
    opened = Collection(settings, database.path.parent, read_stamp(database, settings["width"]))
    return known if known is not None and known.is_same(opened) else opened


def read_stamp(database: Database, width: int) -> Dict[str, Any]:
    """RETURNS (Dict[str, Any]): What the collection of an index must have been made from."""
    encoder = database.get_meta("encoder")
    catalogue = database.get_meta("catalogue")
    return {"catalogue": catalogue, "encoder": encoder["fingerprint"], "width": width}


def fill_collection(database: Database, vectors: Array, collection: Collection, *, progress: bool) -> None:
    """Make a collection and send it the entities of a database whose vectors are in a file.

    vectors (Array): (rows, width) those of the file.
    """
    state = database.counters()
    base, gaps = database.get_meta("base"), database.get_array("gaps", "int64")
    positions = np.setdiff1d(np.arange(base["next"]), gaps, assume_unique=True)
    collection.create()
    seen = 0
    with tqdm(total=len(positions), desc="Milvus", unit=" entities", disable=not progress) as bar:
        for begin in range(0, len(positions), _ROWS):
            part = slice(begin, begin + _ROWS)
            seen = send(database, collection, positions[part], vectors[part]) or seen
            bar.update(len(positions[part]))
    collection.finish()
    database.set_meta(base={"next": base["next"], "folds": base.get("folds", 0) + 1})
    database.note_sync(base["next"], state.version, seen)


def send(database: Database, collection: Collection, positions: Array, vectors: Array) -> int:
    """Send entities that are in the database to a collection; those that are not there any more are left out.

    RETURNS (int): What a search must name to see them.
    """
    with database.reading():
        found = database.get_all(positions.tolist())
        are_there = np.isin(positions, database.positions([entity.id for entity in found]))
    if not found:
        return 0
    labels = [hash_text(entity.label, signed=True) for entity in found]
    tags = [[hash_text(tag, signed=True) for tag in sorted(set(entity.tags))] for entity in found]
    return collection.upsert(positions[are_there], vectors[are_there], labels, tags)


def sync(database: Database, collection: Collection, *, again: bool = False) -> None:
    """Send a collection what was added and removed since the last time. Whoever is killed in between leaves
    the note of how far it came as it was: the next one sends the same once more, which changes nothing.

    again (bool): Send everything since the index was compacted, whatever the note says.
    RAISES (ELQError): If Milvus does not answer. Nothing is lost.
    """
    with _taking_turns(database.path.parent):
        with database.reading():
            state, synced = database.counters(), database.get_meta("synced")
            if again:
                synced = {**synced, "next": database.get_meta("base")["next"], "version": -1}
            removed = database.read_removed(after=synced["version"])
            positions, data = database.read_changes(first=synced["next"])
        if not len(removed) and not len(positions):
            return
        vectors = np.frombuffer(data, dtype="float32").reshape(len(positions), collection.width)
        seen = synced["seen"]
        for begin in range(0, len(positions), _ROWS):
            part = slice(begin, begin + _ROWS)
            seen = max(seen, send(database, collection, positions[part], vectors[part]))
        if len(removed):
            seen = max(seen, collection.delete(removed))
        database.note_sync(state.next, state.version, seen)


@contextmanager
def _taking_turns(folder: Path) -> Iterator[None]:
    """Let nobody else send meanwhile: what was removed by then would come back.

    RAISES (Busy): If another process takes too long.
    """
    try:
        with FileLock(folder / LOCK, timeout=PATIENCE):
            yield
    except Timeout:
        raise Busy(Errors.E163.format(path=folder)) from None


def drop_collections(folder: Path, database: Optional[Database]) -> None:
    """Remove the collections that were noted and that the database does not name: those of an earlier index,
    or of a process that was killed. Those of a server that does not answer stay noted.
    """
    notes = folder / COLLECTIONS
    if not notes.exists():
        return
    used = None
    if database is not None and can_be_read(database):
        used = (database.get_meta("backend") or {}).get("collection")
    left = [x for x in _read_notes(notes) if x["collection"] != used and not _is_dropped(x, folder)]
    notes.unlink()
    if left:
        notes.write_text("".join(json.dumps(settings) + "\n" for settings in left), encoding="utf8")


def _read_notes(notes: Path) -> List[Dict[str, Any]]:
    """RETURNS (List[Dict[str, Any]]): The settings that were noted, without a line that is not complete."""
    found = []
    for line in notes.read_text(encoding="utf8", errors="replace").splitlines():
        with suppress(ValueError):
            settings = json.loads(line)
            if isinstance(settings, dict) and is_remote(settings):
                found.append(settings)
    return found


def _is_dropped(settings: Mapping[str, Any], folder: Path) -> bool:
    collection = Collection(settings, folder, {})
    try:
        collection.drop()
    except (ELQError, KeyError):
        return False
    finally:
        collection.close()
    return True


def count_expected(database: Database) -> Tuple[int, int]:
    """RETURNS (Tuple[int, int]): How many entities the collection of an index has at least and at most, in
    the state that is read: whoever sends changes may have been killed before that was noted.
    """
    synced, live = database.get_meta("synced"), database.all_positions()
    least = int((live < synced["next"]).sum())
    unsent = len(live) - least + len(database.read_removed(after=synced["version"]))
    return least, least + unsent
