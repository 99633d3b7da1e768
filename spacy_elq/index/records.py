"""The catalogue inside an index: looked up by position or by id without loading it."""

import hashlib
import json
import tempfile
from array import array
from functools import lru_cache
from json.decoder import scanstring  # type: ignore[attr-defined]
from pathlib import Path
from typing import Any, Iterable, List, Sequence, Tuple

import numpy as np

from ..catalogue import entity_from_dict, entity_to_dict, read_catalogue
from ..names import entity_names, normalize_name, skeleton
from ..types import Array, Entity
from .pieces import Pieces

RECORDS, OFFSETS, IDS, NAMES = "records.jsonl", "offsets.npy", "ids.npy", "names.npy"
POPULARITY = "popularity.npy"
# how well a text matches an entity in a similar spelling of one of its names; 1 is its very title
SPELLING = 0.5
# of the ways in which a text can match, title, name and spelling, the second and the last
_NAMED, _SPELLED = 1, 2
ROLES = (RECORDS, OFFSETS, IDS, NAMES, POPULARITY)
_KNOWN_TEXTS = 4096


def write_records(entities: Iterable[Entity], folder: Path) -> Tuple[int, str]:
    """Write the entities, where each begins, tables from ids and from names to positions, and how popular
    each is.

    RETURNS (Tuple[int, str]): The number of entities and the digest of the catalogue.
    """
    digest = hashlib.sha256()
    offsets, ids, names, named = array("Q", [0]), array("Q"), array("Q"), array("Q")
    popularity = array("d")
    with (folder / RECORDS).open("wb") as file_:
        for entity in entities:
            line = json.dumps(entity_to_dict(entity), ensure_ascii=False).encode("utf8") + b"\n"
            file_.write(line)
            digest.update(line)
            offsets.append(offsets[-1] + len(line))
            keys = {key for name in entity_names(entity) for key in _name_keys(name)[1:]}
            keys.update(_name_keys(normalize_name(entity.title))[:1])
            names.extend(hash_text(key) for key in sorted(keys))
            named.extend([len(ids)] * len(keys))
            ids.append(hash_text(entity.id))
            popularity.append(entity.popularity)
    np.save(folder / OFFSETS, np.asarray(offsets, dtype="int64"))
    np.save(folder / IDS, _table(ids, range(len(ids))))
    np.save(folder / NAMES, _table(names, named))
    np.save(folder / POPULARITY, np.log1p(np.asarray(popularity)).astype("float32"))
    return len(ids), digest.hexdigest()[:16]


def open_catalogue(catalogue: Path) -> "Records":
    """RETURNS (Records): The entities of a catalogue, in temporary files that go with the process."""
    folder = tempfile.TemporaryDirectory(prefix="spacy-elq-")
    write_records(read_catalogue(catalogue), Path(folder.name))
    records = Records(*(Path(folder.name) / role for role in ROLES))
    records.keep_alive = folder
    return records


def _table(keys: Sequence[int], positions: Sequence[int]) -> Array:
    """RETURNS (Array): (2, keys) the keys in ascending order, and the position of each."""
    values = np.asarray(keys, dtype="uint64")
    order = np.argsort(values, kind="stable")
    return np.stack([values[order], np.asarray(positions, dtype="uint64")[order]])


class Records:
    """Read access to what `write_records` wrote."""

    def __init__(self, records: Path, offsets: Path, ids: Path, names: Path, popularity: Path) -> None:
        """Open the files; the tables are mapped.

        popularity (Path): The logarithm of 1 + popularity.
        """
        self.keep_alive: Any = None
        self._data = Pieces(records)
        self._offsets, self._ids, (self._names, bearers) = map(map_array, (offsets, ids, names))
        self._bearers, self._first_bearer = Pieces(names), names.stat().st_size - bearers.nbytes
        self.log_popularity: Array = map_array(popularity)

    def __len__(self) -> int:
        """RETURNS (int): The number of entities."""
        return len(self._offsets) - 1

    def get(self, position: int) -> Entity:
        """RETURNS (Entity): The entity at a position."""
        begin, end = self._offsets[position : position + 2].tolist()
        return entity_from_dict(json.loads(self._data.read(begin, end)))

    def heads(self, positions: Array) -> List[Tuple[str, str, str]]:
        """RETURNS (List[Tuple[str, str, str]]): Id, title and label of entities, the rest left unread."""
        begins, ends = self._offsets[positions].tolist(), self._offsets[positions + 1].tolist()
        return [_read_head(self._data.read(b, e)) for b, e in zip(begins, ends, strict=True)]

    def positions(self, ids: Sequence[str]) -> Array:
        """RETURNS (Array): (ids,) the position of each id, or -1."""
        wanted = np.asarray([hash_text(id_) for id_ in ids], dtype="uint64")
        begins = np.searchsorted(self._ids[0], wanted, side="left")
        ends = np.searchsorted(self._ids[0], wanted, side="right")
        return np.asarray(
            [self._find(id_, self._ids[1, b:e]) for id_, b, e in zip(ids, begins, ends, strict=True)],
            dtype="int64",
        )

    def are_names(self, texts: Sequence[str]) -> Array:
        """RETURNS (Array): (texts,) whether the text is a name of any entity."""
        hashes = [_name_hashes(text) for text in texts]
        found = np.asarray([bool(own) for own in hashes], dtype=bool)
        wanted = np.asarray([own[_NAMED] for own in hashes if own], dtype="uint64")
        found[found] = _find_all(self._names, wanted)[1] > 0
        return found

    def match_names(self, texts: Sequence[str], *, alias_share: float = 1.0) -> Tuple[Array, Array, Array]:
        """Find the entities with a name or, if there are none, those with a similar spelling.

        texts (Sequence[str]): Names as people write them.
        alias_share (float): How well a text matches a name other than the title.
        RETURNS (Tuple[Array, Array, Array]): (matches,) the position of the text, ascending, the position
            of the entity, and how well they match: 1, `alias_share` or 0.5 for a similar spelling.
        """
        hashes = [_name_hashes(text) for text in texts]
        owners = np.repeat(np.arange(len(hashes)), [len(own) for own in hashes])
        ways = np.asarray([way for own in hashes for way in range(len(own))], dtype="int64")
        wanted = np.asarray([key for own in hashes for key in own], dtype="uint64")
        begins, counts = _find_all(self._names, wanted)
        # a spelling is doubted only where it is nobody's name
        known = np.zeros(len(hashes), dtype=bool)
        known[owners[(counts > 0) & (ways < _SPELLED)]] = True
        counts[known[owners] & (ways == _SPELLED)] = 0
        entities = self._read_bearers(begins, counts)
        owners, ways = np.repeat(owners, counts), np.repeat(ways, counts)
        # who matches in several ways counts once, by the best one
        order = np.lexsort((ways, entities, owners))
        owners, entities, ways = owners[order], entities[order], ways[order]
        new = np.ones(len(owners), dtype=bool)
        new[1:] = (owners[1:] != owners[:-1]) | (entities[1:] != entities[:-1])
        degrees = np.asarray([1.0, alias_share, SPELLING])[ways]
        return owners[new], entities[new], degrees[new]

    def _read_bearers(self, begins: Array, counts: Array) -> Array:
        """RETURNS (Array): The positions in the table of names from each place on, as many as it has."""
        found = np.flatnonzero(counts)
        places = (self._first_bearer + 8 * begins[found]).tolist()
        sizes = (8 * counts[found]).tolist()
        data = [self._bearers.read(place, place + size) for place, size in zip(places, sizes, strict=True)]
        return np.frombuffer(b"".join(data), dtype="uint64").astype("int64")

    def _find(self, id_: str, positions: Array) -> int:
        found: List[int] = [int(p) for p in positions if self.get(int(p)).id == id_]
        return found[0] if found else -1


def _read_head(line: bytes) -> Tuple[str, str, str]:
    """RETURNS (Tuple[str, str, str]): The fields with which a record begins, and its label, if any."""
    text = line.decode("utf8")
    id_, end = scanstring(text, len('{"id": "'))
    title, end = scanstring(text, end + len(', "title": "'))
    # quotes inside texts are escaped, so that this is the name of a field, or of one of the ids behind it
    place = text.find('"label": "', end, text.find('"ids": {', end))
    return id_, title, scanstring(text, place + len('"label": "'))[0] if place >= 0 else ""


def map_array(path: Path) -> Array:
    """RETURNS (Array): An array of a file, mapped; not a `memmap`, which takes longer to look into."""
    return np.load(path, mmap_mode="r").view(np.ndarray)


def _find_all(table: Array, wanted: Array) -> Tuple[Array, Array]:
    """Find keys that may stand several times in a table.

    table (Array): (keys,) in ascending order.
    RETURNS (Tuple[Array, Array]): (wanted,) where each key would stand first, and how often it is there.
    """
    begins = np.searchsorted(table, wanted, side="left")
    counts = np.zeros(len(wanted), dtype="int64")
    found = np.flatnonzero(begins < len(table))
    found = found[table[begins[found]] == wanted[found]]
    # most keys are nobody's name: the second search is only for those that are
    counts[found] = np.searchsorted(table, wanted[found], side="right") - begins[found]
    return begins, counts


def _name_keys(name: str) -> List[str]:
    """RETURNS (List[str]): What a normalized name is found by: as a title, as a name, and its skeleton where
    it has one.
    """
    keys = ["=" + name, name] if name else []
    bones = skeleton(name)
    return [*keys, "~" + bones] if bones else keys


@lru_cache(maxsize=_KNOWN_TEXTS)
def _name_hashes(text: str) -> Tuple[int, ...]:
    """RETURNS (Tuple[int, ...]): The hashes by which the entities with a name are found.

    Cached: a mention is looked up more than once, and people ask about the same things.
    """
    return tuple(hash_text(key) for key in _name_keys(normalize_name(text)))


def hash_text(text: str) -> int:
    """RETURNS (int): 64 bits by which a text is looked up in a table."""
    return int.from_bytes(hashlib.blake2b(text.encode("utf8"), digest_size=8).digest(), "little")
