"""Encode a catalogue by shards, so that an interrupted run can be resumed."""

import json
import multiprocessing
import shutil
from functools import partial
from pathlib import Path
from typing import Any, Dict, Iterator, List, Optional, Tuple, Union

import numpy as np
from tqdm import tqdm

from ..catalogue import count_entities, read_catalogue
from ..errors import ELQError, Errors, describe_difference
from ..types import Array, Encoder, Entity
from ..util import set_threads
from .entity_index import VECTORS, EntityIndex
from .records import ROLES, Records, write_records
from .store import META, check_disk, commit, write_json

DONE = "done.json"
# what a process of `encode_catalogue(n_process=...)` works on
_own_shards: Optional["_Shards"] = None


def encode_catalogue(
    catalogue: Union[str, Path],
    output: Union[str, Path],
    encoder: Encoder,
    *,
    batch_size: int = 64,
    shard_size: int = 2048,
    reuse: Union[str, Path, None] = None,
    n_process: int = 1,
    progress: bool = False,
) -> EntityIndex:
    """Encode every entity of a catalogue.

    Work in progress is kept in `output/partial`: the entities, the vectors and a list of the shards done.
    Started again with the same catalogue and encoder, only the missing shards are encoded. Existing vectors
    in `output` stay usable until the new ones are complete.

    catalogue (Union[str, Path]): entities.jsonl.
    output (Union[str, Path]): Folder for the vectors, to be given to `build_index`.
    encoder (Encoder): The entity encoder.
    batch_size (int): Entities in one forward pass.
    shard_size (int): Entities per shard; a run is resumed at the next shard.
    reuse (Union[str, Path, None]): Vectors or an index made with this encoder: entities with the same texts
        are not encoded again.
    n_process (int): Processes with one thread each, which is faster than one process with as many threads.
    RETURNS (EntityIndex): The encoded catalogue, not searchable yet.
    """
    output = Path(output)
    work = output / "partial"
    stamp = {
        "encoder": {**encoder.settings, "fingerprint": encoder.fingerprint},
        "width": encoder.width,
        "shard_size": shard_size,
    }
    known = None if reuse is None else _open_known(reuse, encoder)
    if not work.exists():
        needed = 4 * encoder.width * count_entities(catalogue) + Path(catalogue).stat().st_size
        check_disk(output, needed)
    catalogue_digest, done = _prepare(Path(catalogue), work, stamp)
    shards = _Shards(work, encoder, known, batch_size=batch_size, shard_size=shard_size)
    missing = [begin for begin in range(0, shards.count, shard_size) if begin not in done]
    first = shards.count - sum(map(shards.size, missing))
    with tqdm(
        total=shards.count, initial=first, desc="Encode", unit=" entities", disable=not progress
    ) as bar:
        for begin in _encode_all(shards, missing, n_process):
            shards.vectors.flush()
            done.append(begin)
            write_json(work / DONE, done)
            bar.update(shards.size(begin))
    meta = {"catalogue": catalogue_digest, "encoder": stamp["encoder"]}
    commit(output, work, meta, [VECTORS, *ROLES])
    return EntityIndex.open(output)


class _Shards:
    """The entities of a catalogue, their vectors on disk, and what encodes them, shard by shard."""

    def __init__(
        self, work: Path, encoder: Encoder, known: Optional[EntityIndex], *, batch_size: int, shard_size: int
    ) -> None:
        self._arguments = (work, encoder, known)
        self._settings: Dict[str, Any] = {"batch_size": batch_size, "shard_size": shard_size}
        self._records = Records(*(work / role for role in ROLES))
        self.count = len(self._records)
        self.vectors = _open_vectors(work / VECTORS, (self.count, encoder.width))

    def __reduce__(self) -> Any:
        """Another process opens the same files."""
        return partial(_Shards, **self._settings), self._arguments

    def size(self, begin: int) -> int:
        """RETURNS (int): The entities of the shard that begins there."""
        return min(self._settings["shard_size"], self.count - begin)

    def encode(self, begin: int) -> int:
        """Encode a shard. RETURNS (int): Where it begins."""
        _, encoder, known = self._arguments
        end = begin + self.size(begin)
        entities = [self._records.get(position) for position in range(begin, end)]
        fresh = np.ones(len(entities), dtype=bool)
        if known is not None:
            fresh = _copy_known(entities, known, self.vectors[begin:end])
        changed = [entity for entity, is_fresh in zip(entities, fresh, strict=True) if is_fresh]
        if changed:
            encoded = encoder.encode(changed, batch_size=self._settings["batch_size"])
            self.vectors[begin:end][fresh] = encoded
        return begin


def _encode_all(shards: _Shards, begins: List[int], n_process: int) -> Iterator[int]:
    """YIELDS (int): Where the shard begins that was encoded last."""
    if n_process == 1 or len(begins) < 2:
        yield from map(shards.encode, begins)
        return
    with multiprocessing.Pool(n_process, initializer=_begin_work, initargs=(shards,)) as pool:
        yield from pool.imap_unordered(_encode_shard, begins)


def _begin_work(shards: _Shards) -> None:
    """Make a process ready for `_encode_shard`."""
    global _own_shards
    set_threads(1)
    _own_shards = shards


def _encode_shard(begin: int) -> int:
    assert _own_shards is not None
    return _own_shards.encode(begin)


def _open_known(path: Union[str, Path], encoder: Encoder) -> EntityIndex:
    known = EntityIndex.open(path)
    found = known.stamp["encoder"]
    if found != encoder.fingerprint:
        wanted = {**encoder.settings, "fingerprint": encoder.fingerprint}
        difference = describe_difference(known.meta["encoder"], wanted)
        raise ELQError(Errors.E038.format(path=known.path, difference=difference))
    return known


def _copy_known(entities: List[Entity], known: EntityIndex, vectors: Array) -> Array:
    """Copy the vectors of entities with the same texts.

    RETURNS (Array): (entities,) those that are still to be encoded.
    """
    positions = known.positions([entity.id for entity in entities])
    same = [
        position >= 0 and _texts(known.entity(position)) == _texts(entity)
        for entity, position in zip(entities, positions.tolist(), strict=True)
    ]
    taken = np.asarray(same, dtype=bool)
    vectors[taken] = known.vectors[positions[taken]]
    return ~taken


def _texts(entity: Entity) -> Tuple[str, str, Tuple[str, ...]]:
    return entity.title, entity.description, entity.aliases


def _prepare(catalogue: Path, work: Path, stamp: Dict[str, Any]) -> Tuple[str, List[int]]:
    """Write the records; keep the vectors of an earlier run if it had the same catalogue and encoder.

    RETURNS (Tuple[str, List[int]]): The digest of the catalogue and where the shards done begin.
    """
    fresh = work.with_name("partial-new")
    shutil.rmtree(fresh, ignore_errors=True)
    fresh.mkdir(parents=True)
    try:
        count, digest = write_records(read_catalogue(catalogue), fresh)
    except ELQError:
        shutil.rmtree(fresh)
        raise
    stamp = {**stamp, "catalogue": digest, "count": count}
    if (work / VECTORS).exists() and _read_json(work / META) == stamp:
        for role in ROLES:
            (fresh / role).replace(work / role)
        shutil.rmtree(fresh)
        return digest, _read_json(work / DONE) or []
    shutil.rmtree(work, ignore_errors=True)
    fresh.rename(work)
    write_json(work / META, stamp)
    return digest, []


def _open_vectors(path: Path, shape: Tuple[int, int]) -> np.memmap:
    mode = "r+" if path.exists() else "w+"
    return np.lib.format.open_memmap(path, mode=mode, dtype="float32", shape=shape)


def _read_json(path: Path) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf8"))
    except (OSError, ValueError):
        return None
