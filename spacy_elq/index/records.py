"""The catalogue inside an index: looked up by position or by id without loading it."""

import hashlib
import json
import mmap
from array import array
from pathlib import Path
from typing import Iterable, List, Sequence, Tuple

import numpy as np

from ..catalogue import entity_from_dict, entity_names, entity_to_dict, normalize_name, skeleton
from ..types import Array, Entity

RECORDS, OFFSETS, IDS, NAMES = "records.jsonl", "offsets.npy", "ids.npy", "names.npy"
ROLES = (RECORDS, OFFSETS, IDS, NAMES)


def write_records(entities: Iterable[Entity], folder: Path) -> Tuple[int, str]:
    """Write the entities, where each begins, and tables from ids and from names to positions.

    RETURNS (Tuple[int, str]): The number of entities and the digest of the catalogue.
    """
    digest = hashlib.sha256()
    offsets, ids, names, named = [0], array("Q"), array("Q"), array("Q")
    with (folder / RECORDS).open("wb") as file_:
        for entity in entities:
            line = json.dumps(entity_to_dict(entity), ensure_ascii=False).encode("utf8") + b"\n"
            file_.write(line)
            digest.update(line)
            offsets.append(offsets[-1] + len(line))
            keys = {key for name in entity_names(entity) for key in _name_keys(name)}
            names.extend(_hash(key) for key in sorted(keys))
            named.extend([len(ids)] * len(keys))
            ids.append(_hash(entity.id))
    np.save(folder / OFFSETS, np.asarray(offsets, dtype="int64"))
    np.save(folder / IDS, _table(ids, range(len(ids))))
    np.save(folder / NAMES, _table(names, named))
    return len(ids), digest.hexdigest()[:16]


def _table(keys: Sequence[int], positions: Sequence[int]) -> Array:
    """RETURNS (Array): (2, keys) the keys in ascending order, and the position of each."""
    values = np.asarray(keys, dtype="uint64")
    order = np.argsort(values, kind="stable")
    return np.stack([values[order], np.asarray(positions, dtype="uint64")[order]])


class Records:
    """Read access to what `write_records` wrote."""

    def __init__(self, records: Path, offsets: Path, ids: Path, names: Path) -> None:
        """Map the four files."""
        with records.open("rb") as file_:
            self._data = mmap.mmap(file_.fileno(), 0, access=mmap.ACCESS_READ)
        self._offsets = np.load(offsets, mmap_mode="r")
        self._ids = np.load(ids, mmap_mode="r")
        self._names = np.load(names, mmap_mode="r")

    def __len__(self) -> int:
        """RETURNS (int): The number of entities."""
        return len(self._offsets) - 1

    def get(self, position: int) -> Entity:
        """RETURNS (Entity): The entity at a position."""
        begin, end = self._offsets[position : position + 2]
        return entity_from_dict(json.loads(self._data[begin:end]))

    def positions(self, ids: Sequence[str]) -> Array:
        """RETURNS (Array): (ids,) the position of each id, or -1."""
        wanted = np.asarray([_hash(id_) for id_ in ids], dtype="uint64")
        begins = np.searchsorted(self._ids[0], wanted, side="left")
        ends = np.searchsorted(self._ids[0], wanted, side="right")
        return np.asarray(
            [self._find(id_, self._ids[1, b:e]) for id_, b, e in zip(ids, begins, ends, strict=True)],
            dtype="int64",
        )

    def match_names(self, texts: Sequence[str]) -> Tuple[Array, Array, Array]:
        """Find the entities that bear a name, or one that is spelled much like it.

        texts (Sequence[str]): Names as people write them.
        RETURNS (Tuple[Array, Array, Array]): (matches,) the position of the text, ascending, the position
            of the entity, and how well they match: 1, or 0.5 for a similar spelling.
        """
        keys = [_name_keys(normalize_name(text)) for text in texts]
        owners = np.repeat(np.arange(len(keys)), [len(own) for own in keys])
        degrees = np.asarray([1.0 - 0.5 * i for own in keys for i in range(len(own))])
        wanted = np.asarray([_hash(key) for own in keys for key in own], dtype="uint64")
        begins = np.searchsorted(self._names[0], wanted, side="left")
        counts = np.searchsorted(self._names[0], wanted, side="right") - begins
        first = np.cumsum(counts) - counts
        places = np.arange(counts.sum()) + np.repeat(begins - first, counts)
        entities = self._names[1, places].astype("int64")
        owners, degrees = np.repeat(owners, counts), np.repeat(degrees, counts)
        # who matches in both ways counts once, by the better one
        order = np.lexsort((-degrees, entities, owners))
        owners, entities, degrees = owners[order], entities[order], degrees[order]
        new = np.ones(len(owners), dtype=bool)
        new[1:] = (np.diff(owners) != 0) | (np.diff(entities) != 0)
        return owners[new], entities[new], degrees[new]

    def _find(self, id_: str, positions: Array) -> int:
        found: List[int] = [int(p) for p in positions if self.get(int(p)).id == id_]
        return found[0] if found else -1


def _name_keys(name: str) -> List[str]:
    """RETURNS (List[str]): What a normalized name is found by: itself and its skeleton."""
    return [key for key in (name, "~" + skeleton(name)) if len(key) > 1 or key == name != ""]


def _hash(id_: str) -> int:
    return int.from_bytes(hashlib.blake2b(id_.encode("utf8"), digest_size=8).digest(), "little")
