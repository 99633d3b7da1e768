"""Encode a catalogue by shards, so that an interrupted run can be resumed."""

import io
import multiprocessing
import re
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, Callable, Dict, Iterator, List, Optional, Tuple, Union

import numpy as np
from tqdm import tqdm

from ..catalogue import read_catalogue
from ..errors import ELQError, Errors
from ..types import Array, Encoder, Entity
from ..util import set_threads
from .build import describe_encoder, fill_database
from .database import DATABASE, Database
from .entity_index import EntityIndex
from .files import SQLITE_ENDS, VECTORS, allocate, check_disk, is_database, maintaining, publish

PARTIAL = "partial"
# says that a folder is one of unfinished work; it goes last
MARK = ".spacy-elq"
_MARK_TEXT = (
    "Unfinished work of `spacy elq encode`: the same command goes on with it and removes it at the end.\n"
)
_WORK_FILES = (DATABASE, *(f"{DATABASE}{end}" for end in SQLITE_ENDS), VECTORS, MARK)
# a part that a worker on another machine has made, and one that is not complete
PART = re.compile(r"part-\d{12}-[0-9a-f]{16}\.(?:npz|jsonl)(\.[0-9a-f]{8})?")
# encodes shards, wherever that is: given all of them and the missing, it says which is done
Spread = Callable[["Shards", List[int]], Iterator[int]]
# what a process of `encode_catalogue(n_process=...)` works on
_own_shards: Optional["Shards"] = None


def encode_catalogue(
    catalogue: Union[str, Path],
    output: Union[str, Path],
    encoder: Encoder,
    *,
    batch_size: int = 64,
    shard_size: int = 2048,
    reuse: Union[str, Path, None] = None,
    n_process: int = 1,
    spread: Optional[Spread] = None,
    progress: bool = False,
) -> EntityIndex:
    """Encode every entity of a catalogue.

    Work in progress is kept in `output/partial`: the entities, the vectors and a list of the shards done.
    Started again with the same catalogue and encoder, only the missing shards are encoded. Existing vectors
    in `output` stay usable until the new ones are complete. A folder with that name that somebody else has
    made, or put files into, is refused.

    catalogue (Union[str, Path]): entities.jsonl.
    output (Union[str, Path]): Folder for the vectors, to be given to `build_index`.
    encoder (Encoder): The entity encoder.
    batch_size (int): Entities in one forward pass.
    shard_size (int): Entities per shard; a run is resumed at the next shard.
    reuse (Union[str, Path, None]): Vectors or an index made with this encoder: entities with the same texts
        are not encoded again.
    n_process (int): Processes with one thread each, which is faster than one process with as many threads.
    spread (Optional[Spread]): What encodes the missing shards, instead of processes of this machine.
    RETURNS (EntityIndex): The encoded catalogue, not searchable yet.
    """
    output = Path(output).absolute()
    known = None
    if reuse is not None:
        known = EntityIndex.open(reuse)
        known.check_encoder(encoder)
    with maintaining(output):
        work = _prepare(Path(catalogue), output / PARTIAL, encoder, shard_size)
        shards = Shards(work.path.parent, encoder, known, batch_size=batch_size, shard_size=shard_size)
        done = set(work.shards())
        missing = [begin for begin in range(0, shards.count, shard_size) if begin not in done]
        first = shards.count - sum(map(shards.size, missing))
        with tqdm(
            total=shards.count, initial=first, desc="Encode", unit=" entities", disable=not progress
        ) as bar:
            for begin in (spread or partial(_encode_all, n_process=n_process))(shards, missing):
                shards.vectors.flush()
                work.add_shard(begin)
                bar.update(shards.size(begin))
        del shards
        publish(output, work, {VECTORS: work.path.parent / VECTORS})
        _remove_work(output / PARTIAL)
    return EntityIndex.open(output)


class Shards:
    """The entities of a catalogue, their vectors on disk, and what encodes them, shard by shard."""

    def __init__(
        self, work: Path, encoder: Encoder, known: Optional[EntityIndex], *, batch_size: int, shard_size: int
    ) -> None:
        """Open the files.

        work (Path): The folder of unfinished work.
        known (Optional[EntityIndex]): What has vectors already.
        """
        self._arguments = (work, encoder, known)
        self._settings: Dict[str, Any] = {"batch_size": batch_size, "shard_size": shard_size}
        self._database = Database(work / DATABASE)
        self.count = len(self._database)
        self.vectors = _open_vectors(work / VECTORS, (self.count, encoder.width))

    def __reduce__(self) -> Any:
        """Another process opens the same files."""
        return partial(Shards, **self._settings), self._arguments

    def size(self, begin: int) -> int:
        """RETURNS (int): The entities of the shard that begins there."""
        return min(self._settings["shard_size"], self.count - begin)

    def encode(self, begin: int) -> int:
        """Encode a shard. RETURNS (int): Where it begins."""
        _, encoder, _ = self._arguments
        rows, entities = self.take(begin)
        if entities:
            self.put(begin, rows, encoder.encode(entities, batch_size=self._settings["batch_size"]))
        return begin

    def take(self, begin: int) -> Tuple[Array, List[Entity]]:
        """Copy the vectors of a shard that are known.

        RETURNS (Tuple[Array, List[Entity]]): The rows that are to be encoded, and their entities.
        """
        _, _, known = self._arguments
        end = begin + self.size(begin)
        entities = self._database.get_all(range(begin, end))
        fresh = np.ones(len(entities), dtype=bool)
        if known is not None:
            fresh = _copy_known(entities, known, self.vectors[begin:end])
        rows = np.flatnonzero(fresh)
        return rows, [entities[row] for row in rows]

    def put(self, begin: int, rows: Array, vectors: Array) -> None:
        """Store vectors of a shard.

        rows (Array): (entities,) their rows in the shard.
        vectors (Array): (entities, width).
        """
        self.vectors[begin + rows] = vectors

    @property
    def plan(self) -> List[Any]:
        """RETURNS (List[Any]): What decides what is in a shard: entities, encoder and size."""
        return _plan(self._database)


def _encode_all(shards: Shards, begins: List[int], n_process: int) -> Iterator[int]:
    """YIELDS (int): Where the shard begins that was encoded last."""
    if n_process == 1 or len(begins) < 2:
        yield from map(shards.encode, begins)
        return
    with multiprocessing.Pool(n_process, initializer=_begin_work, initargs=(shards,)) as pool:
        yield from pool.imap_unordered(_encode_shard, begins)


def _begin_work(shards: Shards) -> None:
    """Make a process ready for `_encode_shard`."""
    global _own_shards
    set_threads(1)
    _own_shards = shards


def _encode_shard(begin: int) -> int:
    assert _own_shards is not None
    return _own_shards.encode(begin)


def _copy_known(entities: List[Entity], known: EntityIndex, vectors: Array) -> Array:
    """Copy the vectors of entities with the same texts.

    RETURNS (Array): (entities,) those that are still to be encoded.
    """
    with known.reading():
        positions = known.positions([entity.id for entity in entities])
        same = [
            position >= 0 and _texts(known.entity(position)) == _texts(entity)
            for entity, position in zip(entities, positions.tolist(), strict=True)
        ]
        taken = np.asarray(same, dtype=bool)
        vectors[taken] = known.vectors_at(positions[taken])
    return ~taken


def _texts(entity: Entity) -> Tuple[str, str, Tuple[str, ...]]:
    return entity.title, entity.description, entity.aliases


def _prepare(catalogue: Path, work: Path, encoder: Encoder, shard_size: int) -> Database:
    """Write the entities to a database and make room for their vectors; keep the vectors of an earlier run if
    it had the same catalogue and encoder.

    RETURNS (Database): Its shards are those that are done.
    """
    fresh = work.with_name(f"{PARTIAL}-new")
    for folder in (work, fresh):
        _check_work(folder)
    _mark(work)
    _remove_work(fresh)
    fresh.mkdir(parents=True)
    _mark(fresh)
    try:
        # the entities, their names and indexes take about twice as much as the catalogue
        check_disk(fresh, 3 * catalogue.stat().st_size if catalogue.is_file() else 0)
        stamp = describe_encoder(encoder, work.parent)
        database = fill_database(fresh / DATABASE, read_catalogue(catalogue), stamp)
        size = _vectors_size((len(database), encoder.width))
        database.set_meta(work={"shard_size": shard_size, "bytes": size})
        database.close()
    except BaseException:
        _remove_work(fresh)
        raise
    earlier = _open_earlier(work)
    if earlier is None or _plan(earlier) != _plan(database):
        _remove_work(work)
        fresh.rename(work)
    else:
        _remove_work(fresh)
    allocate(work / VECTORS, size)
    return Database.open(work / DATABASE)


def _check_work(folder: Path) -> None:
    """Check that a folder, if it is there, has unfinished work of ours and nothing else: it will be removed.
    Earlier versions did not mark theirs, but a database of ours was in it.

    RAISES (ELQError): If it is somebody else's.
    """
    if folder.is_symlink() or folder.is_file():
        raise ELQError(Errors.E191.format(path=folder, problem="is a link or a file, expected a folder"))
    found = sorted(folder.iterdir()) if folder.exists() else []
    others = [path.name for path in found if not _is_own(path)]
    if others:
        problem = f"has other files than an unfinished encoding ({', '.join(others[:3])})"
        raise ELQError(Errors.E191.format(path=folder, problem=problem))
    if found and not (folder / MARK).exists() and not is_database(folder / DATABASE):
        problem = f"is not marked as an unfinished encoding (no file {MARK})"
        raise ELQError(Errors.E191.format(path=folder, problem=problem))


def _mark(folder: Path) -> None:
    """Note that a folder is one of unfinished work, if it is there."""
    if folder.exists():
        (folder / MARK).write_text(_MARK_TEXT, encoding="utf8")


def _is_own(path: Path) -> bool:
    """RETURNS (bool): Whether a file of unfinished work can be ours."""
    is_plain = path.is_file() and not path.is_symlink()
    return is_plain and (path.name in _WORK_FILES or bool(PART.fullmatch(path.name)))


def _remove_work(folder: Path) -> None:
    """Remove a folder of unfinished work. Files that somebody has put into it meanwhile stay."""
    parts = sorted(path.name for path in folder.glob("part-*") if PART.fullmatch(path.name))
    for name in (*parts, *_WORK_FILES):
        if (folder / name).exists():
            (folder / name).unlink()
    with suppress(OSError):
        folder.rmdir()


def _plan(database: Database) -> List[Any]:
    """RETURNS (List[Any]): What must be equal for a run to go on with the work of another."""
    keys = ("catalogue", "encoder", "work")
    plan = [database.get_meta(key) for key in keys]
    database.close()
    return plan


def _open_earlier(work: Path) -> Optional[Database]:
    """RETURNS (Optional[Database]): That of an earlier run, if there is one that can be read."""
    if not (work / VECTORS).exists() or not (work / DATABASE).exists():
        return None
    try:
        return Database.open(work / DATABASE)
    except ELQError:
        return None


def _vectors_size(shape: Tuple[int, int]) -> int:
    """RETURNS (int): How many bytes a file of vectors has."""
    return len(_header(shape)) + 4 * shape[0] * shape[1]


def _header(shape: Tuple[int, int]) -> bytes:
    buffer = io.BytesIO()
    header = {"descr": "<f4", "fortran_order": False, "shape": shape}
    np.lib.format.write_array_header_1_0(buffer, header)
    return buffer.getvalue()


def _open_vectors(path: Path, shape: Tuple[int, int]) -> np.memmap:
    with path.open("r+b") as file_:
        file_.write(_header(shape))
    return np.lib.format.open_memmap(path, mode="r+")
