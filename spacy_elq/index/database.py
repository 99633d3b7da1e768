"""The database of an index: entities, their names and tags, what has changed since the back end was built,
and what describes the whole.

An entity keeps its position as long as it stays as it is. One that is replaced gets a new position, and a
position is never used twice. Every row has a digest, so that `check_database` finds any byte that has
changed.
"""

import hashlib
import json
import secrets
from array import array
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, Callable, Dict, Iterable, Iterator, List, NamedTuple, Optional, Sequence, Tuple

import numpy as np

from ..catalogue import entity_from_dict, entity_to_dict, plain_text
from ..errors import ELQError, Errors
from ..names import entity_names, hash_text, normalize_name, skeleton
from ..types import Array, Entity
from .connections import Connection, Connections, Damaged, create_database

FORMAT = 3
DATABASE = "entities.db"
# how well a text matches an entity in a similar spelling of one of its names; 1 is its very title
SPELLING = 0.5
# of the ways in which a text can match, title, name and spelling, the second and the last
_NAMED, _SPELLED = 1, 2
_KNOWN_TEXTS = 4096
# how many keys of the table of names are remembered
_SEEN_NAMES = 50_000
# keys of the table of names, and the positions of the entities
Seen = Dict[int, Array]
_APPLICATION = 0x454C5133  # "ELQ3", where `file` and others look for it
_ROWS = 10_000
# how many damaged rows of a table are named
_SHOWN = 10
# how many values any version of SQLite takes in one statement, or fewer
_PARAMETERS = 900
# bits of the filter for each name, at least
_BITS_PER_NAME = 8
_SUM = 2**62
# the fields of an entity that have a column of their own
_COLUMNS = {"id", "title", "label", "popularity"}
_to_json = json.JSONEncoder(ensure_ascii=False).encode
# the keys of each entity of `changes` in the table of names, 8 bytes each, so that opening an index need not
# compute them. A database that an earlier version of spacy-elq wrote gets the table with its next change
_CHANGED_NAMES = """
CREATE TABLE IF NOT EXISTS changed_names (
  position INTEGER PRIMARY KEY, keys BLOB NOT NULL, digest INTEGER NOT NULL
)
"""
SCHEMA = f"""
PRAGMA application_id = {_APPLICATION};
PRAGMA user_version = {FORMAT};
CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL, digest INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE arrays (key TEXT PRIMARY KEY, data BLOB NOT NULL, digest INTEGER NOT NULL);
CREATE TABLE counters (
  epoch INTEGER NOT NULL,    -- chosen by chance when the index was built
  version INTEGER NOT NULL,  -- counts the changes since
  next INTEGER NOT NULL,     -- the next free position
  count INTEGER NOT NULL,    -- how many entities there are
  total INTEGER NOT NULL     -- the sum of their digests
);
CREATE TABLE entities (
  position INTEGER PRIMARY KEY, id TEXT NOT NULL, title TEXT NOT NULL, label TEXT NOT NULL,
  popularity REAL NOT NULL, rest TEXT NOT NULL, digest INTEGER NOT NULL
);
CREATE TABLE names (key INTEGER, position INTEGER, PRIMARY KEY (key, position)) WITHOUT ROWID;
CREATE TABLE tags (tag TEXT, position INTEGER, PRIMARY KEY (tag, position)) WITHOUT ROWID;
CREATE TABLE changes (position INTEGER PRIMARY KEY, vector BLOB NOT NULL, digest INTEGER NOT NULL);
CREATE TABLE removed (position INTEGER PRIMARY KEY, version INTEGER NOT NULL);
CREATE TABLE shards (first INTEGER PRIMARY KEY);
{_CHANGED_NAMES};
"""
_INDEXES = """
CREATE UNIQUE INDEX IF NOT EXISTS entity_ids ON entities (id);
CREATE INDEX IF NOT EXISTS entity_labels ON entities (label);
"""


# as SQLite has numbers
_hash = partial(hash_text, signed=True)


_NOBODY = np.zeros(0, dtype="int64")


class Counters(NamedTuple):
    """What tells one state of a database from another; see `SCHEMA`."""

    epoch: int
    version: int
    next: int
    entities: int
    total: int


class Database:
    """The entities of an index and all that is known about them, looked up without loading it."""

    def __init__(self, path: Path) -> None:
        """Use `Database.open` or `Database.create`."""
        self.path = path.absolute()  # the current folder may change
        self.keep_alive: Any = None
        self.connections = Connections(self.path)
        self.reading = self.connections.reading
        self.writing = self.connections.writing
        self.filling = self.connections.filling

    @classmethod
    def open(cls, path: Path) -> "Database":
        """RETURNS (Database): The database in a file.
        RAISES (ELQError): If it is none of ours, or of another format.
        """
        database = cls(path)
        with database.reading() as connection:
            application, format_ = (
                connection.execute(f"PRAGMA {name}").fetchone()[0]
                for name in ("application_id", "user_version")
            )
            if application != _APPLICATION:
                raise Damaged(path, "is not a database of spacy-elq")
            if format_ != FORMAT:
                raise ELQError(Errors.E170.format(path=path.parent, found=format_, expected=FORMAT))
            database.counters()
        return database

    @classmethod
    def create(cls, path: Path) -> "Database":
        """RETURNS (Database): A new and empty database."""
        create_database(path, SCHEMA)
        database = cls(path)
        with database.writing() as connection:
            connection.execute("INSERT INTO counters VALUES (?, 0, 0, 0, 0)", [secrets.randbits(62)])
        return database

    def close(self) -> None:
        """Close the connection of this thread."""
        self.connections.close()

    # ------------------------------------------------------------------ the whole

    def counters(self) -> Counters:
        """RETURNS (Counters): The state that is read."""
        rows = self._select("SELECT epoch, version, next, count, total FROM counters")
        if len(rows) != 1:
            raise Damaged(self.path, "is not complete")
        return Counters(*rows[0])

    def get_meta(self, key: str, default: Any = None) -> Any:
        """RETURNS (Any): What `set_meta` stored under a key."""
        with self.reading() as connection:
            row = connection.execute("SELECT value, digest FROM meta WHERE key = ?", [key]).fetchone()
        if row is None:
            return default
        if row[1] != _digest(key, row[0]):
            raise Damaged(self.path, f"has a damaged entry `{key}`")
        return json.loads(row[0])

    def set_meta(self, **values: Any) -> None:
        """Store values in plain types. None removes one."""
        with self.writing() as connection:
            for key, value in values.items():
                text = json.dumps(value, ensure_ascii=False)
                connection.execute("DELETE FROM meta WHERE key = ?", [key])
                if value is not None:
                    row = (key, text, _digest(key, text))
                    connection.execute("INSERT INTO meta VALUES (?, ?, ?)", row)

    def get_array(self, key: str, dtype: str) -> Array:
        """RETURNS (Array): (values,) what `set_array` stored under a key; empty if there is nothing."""
        with self.reading() as connection:
            row = connection.execute("SELECT data FROM arrays WHERE key = ?", [key]).fetchone()
        return np.frombuffer(row[0] if row else b"", dtype=dtype)

    def set_array(self, key: str, values: Array) -> None:
        """Store an array."""
        with self.writing() as connection:
            data = values.tobytes()
            row = (key, data, _digest(key, data))
            connection.execute("INSERT OR REPLACE INTO arrays VALUES (?, ?, ?)", row)

    # ------------------------------------------------------------------ entities

    def __len__(self) -> int:
        """RETURNS (int): The number of entities."""
        return self.counters().entities

    def get(self, position: int) -> Entity:
        """RETURNS (Entity): The entity at a position.
        RAISES (IndexError): If there is none.
        """
        found = self.get_all([position])
        if not found:
            raise IndexError(position)
        return found[0]

    def get_all(self, positions: Sequence[int]) -> List[Entity]:
        """RETURNS (List[Entity]): The entities at positions, in their order, without those that are not
        there.
        """
        with self.reading() as connection:
            rows = connection.execute(
                "SELECT position, entities.id, title, label, popularity, rest, digest FROM json_each(?) "
                "CROSS JOIN entities ON position = value",
                [json.dumps(list(map(int, positions)))],
            ).fetchall()
        by_position = {row[0]: row for row in rows}
        found = [by_position[p] for p in map(int, positions) if p in by_position]
        for row in found:
            if row[-1] != _digest(*row[:-1]):
                raise Damaged(self.path, f"has a damaged entity at position {row[0]}")
        return [_to_entity(*row[1:-1]) for row in found]

    def heads(self, positions: Array) -> List[Tuple[str, str, str]]:
        """RETURNS (List[Tuple[str, str, str]]): Id, title and label of entities, in one statement."""
        wanted = positions.tolist()
        rows = self._select(
            "SELECT position, entities.id, title, label FROM json_each(?) CROSS JOIN entities "
            "ON position = value",
            json.dumps(wanted),
        )
        found = {row[0]: row[1:] for row in rows}
        return [found[position] for position in wanted]

    def positions(self, ids: Sequence[str]) -> Array:
        """RETURNS (Array): (ids,) the position of each id, or -1."""
        texts = [plain_text(id_) for id_ in ids]
        with self.reading() as connection:
            statement = "SELECT id, position FROM entities WHERE id IN ({})"
            found = dict(row for part in _in_parts(connection, statement, texts) for row in part)
        return np.asarray([found.get(text, -1) for text in texts], dtype="int64")

    def all_positions(self, *, first: int = 0) -> Array:
        """RETURNS (Array): Ascending positions of the entities, from `first` on."""
        return self._column("SELECT position FROM entities WHERE position >= ? ORDER BY position", [first])

    def positions_of_labels(self, labels: Iterable[str], *, first: int = 0) -> Array:
        """RETURNS (Array): Ascending positions of the entities with one of these labels."""
        return self._having("SELECT position FROM entities WHERE label IN ({})", labels, first)

    def labels(self) -> List[Tuple[str, int]]:
        """RETURNS (List[Tuple[str, int]]): The labels, and how many entities have each."""
        with self.reading() as connection:
            return connection.execute("SELECT label, count(*) FROM entities GROUP BY label").fetchall()

    def positions_of_tags(self, tags: Iterable[str], *, first: int = 0) -> Array:
        """RETURNS (Array): Ascending positions of the entities with one of these tags."""
        return self._having("SELECT position FROM tags WHERE tag IN ({})", tags, first)

    def popularity(self, *, first: int = 0) -> Array:
        """RETURNS (Array): (entities,) the logarithm of 1 + popularity of the entities at `all_positions`."""
        with self.reading() as connection:
            rows = connection.execute(
                "SELECT popularity FROM entities WHERE position >= ? ORDER BY position", [first]
            )
            values = np.fromiter((row[0] for row in rows), dtype="float64")
        return np.log1p(values).astype("float32")

    def ids(self) -> Tuple[List[str], Array]:
        """RETURNS (Tuple[List[str], Array]): The ids of all entities, and their positions, ascending."""
        with self.reading() as connection:
            rows = connection.execute("SELECT id, position FROM entities ORDER BY position").fetchall()
        return [row[0] for row in rows], np.asarray([row[1] for row in rows], dtype="int64")

    def _having(self, statement: str, texts: Iterable[str], first: int) -> Array:
        """RETURNS (Array): Ascending positions, from `first` on, of what has one of these texts."""
        with self.reading() as connection:
            parts = _in_parts(connection, f"{statement} AND position >= {int(first)}", sorted(set(texts)))
            found = np.fromiter((row[0] for part in parts for row in part), dtype="int64")
        return np.unique(found)

    def _select(self, statement: str, *values: Any) -> List[Tuple]:
        """RETURNS (List[Tuple]): The rows that a statement finds in the state that is read."""
        current = self.connections.current  # most calls are made inside of a block that was begun earlier
        if current is not None:
            return current.execute(statement, values).fetchall()
        with self.reading() as connection:
            return connection.execute(statement, values).fetchall()

    def _column(self, statement: str, values: Sequence[Any]) -> Array:
        with self.reading() as connection:
            rows = connection.execute(statement, values)
            return np.fromiter((row[0] for row in rows), dtype="int64")

    # ------------------------------------------------------------------ names

    def are_names(
        self, texts: Sequence[str], known: Optional["NameFilter"] = None, seen: Optional[Seen] = None
    ) -> Array:
        """RETURNS (Array): (texts,) whether the text is a name of any entity, as written or as a title."""
        hashes = [_name_hashes(text) for text in texts]
        keys = _unique([own[_NAMED] for own in hashes if own], known)
        found = {key for key, bearers in self._find_bearers(keys, seen).items() if len(bearers)}
        return np.asarray([bool(own) and own[_NAMED] in found for own in hashes], dtype=bool)

    def match_names(
        self,
        texts: Sequence[str],
        known: Optional["NameFilter"] = None,
        seen: Optional[Seen] = None,
        *,
        alias_share: float = 1.0,
        are_inside: Optional[Callable[[Array], Array]] = None,
    ) -> Tuple[Array, Array, Array]:
        """Find the entities with a name or, if there are none, those with a similar spelling.

        texts (Sequence[str]): Names as people write them.
        known (Optional[NameFilter]): Spares most look-ups of what is no name.
        seen (Optional[Seen]): What was looked up in this state before; more is added.
        alias_share (float): How well a text matches a name other than the title.
        are_inside (Optional[Callable[[Array], Array]]): Whether the entities at positions count.
        RETURNS (Tuple[Array, Array, Array]): (matches,) the position of the text, ascending, the position
            of the entity, and how well they match: 1, `alias_share` or 0.5 for a similar spelling.
        """
        hashes = [_name_hashes(text) for text in texts]
        owners = np.repeat(np.arange(len(hashes)), [len(own) for own in hashes])
        ways = np.asarray([way for own in hashes for way in range(len(own))], dtype="int64")
        flat = [key for own in hashes for key in own]
        wanted = np.asarray(flat, dtype="int64")
        table = self._find_bearers(_unique(flat, known), seen)
        bearers = np.concatenate([_NOBODY, *table.values()])
        keys = np.repeat(np.asarray(list(table), dtype="int64"), [len(own) for own in table.values()])
        if are_inside is not None:
            inside = are_inside(bearers)
            keys, bearers = keys[inside], bearers[inside]
        begins, ends = (np.searchsorted(keys, wanted, side=side) for side in ("left", "right"))
        counts = ends - begins
        # a spelling is doubted only where it is nobody's name
        named = np.zeros(len(hashes), dtype=bool)
        named[owners[(counts > 0) & (ways < _SPELLED)]] = True
        counts[named[owners] & (ways == _SPELLED)] = 0
        entities = bearers[_ranges(begins, counts)]
        owners, ways = np.repeat(owners, counts), np.repeat(ways, counts)
        # who matches in several ways counts once, by the best one
        order = np.lexsort((ways, entities, owners))
        owners, entities, ways = owners[order], entities[order], ways[order]
        new = np.ones(len(owners), dtype=bool)
        new[1:] = (owners[1:] != owners[:-1]) | (entities[1:] != entities[:-1])
        degrees = np.asarray([1.0, alias_share, SPELLING])[ways]
        return owners[new], entities[new], degrees[new]

    def _find_bearers(self, keys: List[int], seen: Optional[Seen]) -> Seen:
        """RETURNS (Seen): Keys of the table of names, in the order given, and the entities that they lead to;
        read in one statement.
        """
        seen = {} if seen is None else seen
        if len(seen) > _SEEN_NAMES:
            seen.clear()
        known = {key: seen[key] for key in keys if key in seen}
        missing = [key for key in keys if key not in known]
        if missing:
            read: Dict[int, List[int]] = {key: [] for key in missing}
            for key, position in self._select(
                "SELECT value, position FROM json_each(?) CROSS JOIN names ON names.key = value",
                json.dumps(missing),
            ):
                read[key].append(position)
            known.update({key: np.asarray(own, dtype="int64") for key, own in read.items()})
            seen.update({key: known[key] for key in missing})
        return {key: known[key] for key in keys}

    def name_keys(self) -> Array:
        """RETURNS (Array): Every key of the table of names, ascending."""
        return self._column("SELECT key FROM names", [])

    # ------------------------------------------------------------------ writing

    def fill(self, entities: Iterable[Entity]) -> str:
        """Write the entities of an empty database, at positions from 0 on.

        RETURNS (str): A digest of the catalogue.
        """
        digest = hashlib.sha256()
        keys, bearers = array("q"), array("q")
        tags: List[Tuple[str, int]] = []
        total = count = 0

        def rows() -> Iterator[Tuple]:
            nonlocal total, count
            for position, entity in enumerate(entities):
                line, rest = _to_texts(entity_to_dict(entity))
                digest.update(line.encode("utf8") + b"\n")
                own = _name_table_keys(entity)
                keys.extend(own)
                bearers.extend([position] * len(own))
                tags.extend((tag, position) for tag in set(entity.tags))
                row = _to_row(position, entity, rest)
                total, count = (total + row[-1]) % _SUM, position + 1
                yield row

        with self.writing() as connection:
            connection.executemany("INSERT INTO entities VALUES (?, ?, ?, ?, ?, ?, ?)", rows())
            order = np.lexsort((np.asarray(bearers), np.asarray(keys)))
            sorted_keys, sorted_bearers = np.asarray(keys)[order], np.asarray(bearers)[order]
            for begin in range(0, len(order), _ROWS):
                part = slice(begin, begin + _ROWS)
                pairs = zip(sorted_keys[part].tolist(), sorted_bearers[part].tolist(), strict=True)
                connection.executemany("INSERT INTO names VALUES (?, ?)", pairs)
            connection.executemany("INSERT INTO tags VALUES (?, ?)", sorted(tags))
            for statement in _INDEXES.split(";"):
                connection.execute(statement)
            connection.execute("UPDATE counters SET next = ?, count = ?, total = ?", [count, count, total])
            self.set_array("names", NameFilter.build(np.asarray(keys)).bits)
        return digest.hexdigest()[:16]

    def add(self, entities: Sequence[Entity], vectors: Array) -> int:
        """Add entities, or replace those whose ids are there: in one transaction.

        vectors (Array): (entities, width) float32.
        RETURNS (int): How many took the place of others.
        """
        with self.writing() as connection:
            state = self.counters()
            replaced = self.remove([entity.id for entity in entities])
            after = self.counters()
            rows = [
                _to_row(state.next + i, x, _to_texts(entity_to_dict(x))[1]) for i, x in enumerate(entities)
            ]
            connection.executemany("INSERT INTO entities VALUES (?, ?, ?, ?, ?, ?, ?)", rows)
            data = [np.ascontiguousarray(vector, dtype="float32").tobytes() for vector in vectors]
            changes = [(r[0], own, _digest(r[0], own)) for r, own in zip(rows, data, strict=True)]
            connection.executemany("INSERT INTO changes VALUES (?, ?, ?)", changes)
            for row, entity in zip(rows, entities, strict=True):
                keys = name_keys(entity)
                names = [(key, row[0]) for key in keys.tolist()]
                connection.executemany("INSERT INTO names VALUES (?, ?)", names)
                changed = (row[0], keys.tobytes(), _digest(row[0], keys.tobytes()))
                connection.execute("INSERT INTO changed_names VALUES (?, ?, ?)", changed)
                connection.executemany(
                    "INSERT INTO tags VALUES (?, ?)", [(tag, row[0]) for tag in sorted(set(entity.tags))]
                )
            connection.execute(
                "UPDATE counters SET version = ?, next = ?, count = ?, total = ?",
                [
                    state.version + 1,
                    state.next + len(rows),
                    after.entities + len(rows),
                    (after.total + sum(row[-1] for row in rows)) % _SUM,
                ],
            )
        return replaced

    def remove(self, ids: Sequence[str]) -> int:
        """Remove the entities with these ids, those that are there.

        RETURNS (int): How many there were.
        """
        with self.writing() as connection:
            connection.execute(_CHANGED_NAMES)
            state = self.counters()
            positions = self.positions(list(dict.fromkeys(ids)))
            positions = positions[positions >= 0].tolist()
            entities = self.get_all(positions)
            wanted = [json.dumps(positions)]
            inside = "position IN (SELECT value FROM json_each(?))"
            sums = connection.execute(f"SELECT digest FROM entities WHERE {inside}", wanted).fetchall()
            connection.execute(f"DELETE FROM entities WHERE {inside}", wanted)
            connection.execute(f"DELETE FROM changes WHERE {inside}", wanted)
            connection.execute(f"DELETE FROM changed_names WHERE {inside}", wanted)
            for position, entity in zip(positions, entities, strict=True):
                names = [(key, position) for key in _name_table_keys(entity)]
                connection.executemany("DELETE FROM names WHERE key = ? AND position = ?", names)
                tags = [(tag, position) for tag in set(entity.tags)]
                connection.executemany("DELETE FROM tags WHERE tag = ? AND position = ?", tags)
            version = state.version + bool(positions)
            connection.executemany("INSERT INTO removed VALUES (?, ?)", [(p, version) for p in positions])
            total = (state.total - sum(row[0] for row in sums)) % _SUM
            connection.execute(
                "UPDATE counters SET version = ?, count = ?, total = ?",
                [version, state.entities - len(positions), total],
            )
        return len(positions)

    def read_changes(self, *, first: int) -> Tuple[Array, bytes]:
        """RETURNS (Tuple[Array, bytes]): Ascending positions from `first` on of entities that were added, and
        their vectors, one behind the other.
        """
        with self.reading() as connection:
            rows = connection.execute(
                "SELECT position, vector FROM changes WHERE position >= ? ORDER BY position", [first]
            ).fetchall()
        positions = np.asarray([row[0] for row in rows], dtype="int64")
        return positions, b"".join(row[1] for row in rows)

    def read_changed_names(self, positions: Sequence[int], *, first: int) -> Array:
        """RETURNS (Array): What the table of names has for entities that were added, which `read_changes`
        returned. It is computed for those that an earlier version of spacy-elq has added.
        """
        rows: List[Tuple[int, bytes]] = []
        with self.reading() as connection:
            if _has_changed_names(connection):
                statement = "SELECT position, keys FROM changed_names WHERE position >= ?"
                rows = connection.execute(statement, [first]).fetchall()
            missing = sorted(set(positions) - {row[0] for row in rows})
            keys = b"".join(row[1] for row in rows)
            if len(keys) % 8:
                raise Damaged(self.path, "has changes that do not fit its entities")
            computed = [name_keys(entity) for entity in self.get_all(missing)]
        return np.concatenate([np.frombuffer(keys, dtype="int64"), *computed])

    def are_changes_whole(self) -> bool:
        """RETURNS (bool): Whether the vectors of changes are what was written."""
        with self.reading() as connection:
            return not _check_rows(connection, "changes", "position, vector")

    def read_removed(self, *, after: int = -1) -> Array:
        """RETURNS (Array): Ascending positions of the entities that were removed after a version."""
        return self._column("SELECT position FROM removed WHERE version > ? ORDER BY position", [after])

    def forget_changes(self, state: Counters) -> None:
        """Drop the list of changes up to a state: files now have them."""
        with self.writing() as connection:
            connection.execute(_CHANGED_NAMES)
            for table in ("changes", "changed_names"):
                connection.execute(f"DELETE FROM {table} WHERE position < ?", [state.next])
            connection.execute("DELETE FROM removed WHERE version <= ?", [state.version])
            connection.execute("UPDATE counters SET version = version + 1")

    def note_sync(self, next_: int, version: int, seen: int) -> None:
        """Note how much of what was added and removed another place has as well.

        next_, version (int): Entities before this position, and what was removed up to this version.
        seen (int): See `Collection.upsert`.
        """
        with self.writing() as connection:
            self.set_meta(synced={"next": next_, "version": version, "seen": seen})
            connection.execute("UPDATE counters SET version = version + 1")

    def renew(self) -> None:
        """Make this database one that no reader takes for another, after it was copied."""
        with self.writing() as connection:
            connection.execute("UPDATE counters SET epoch = ?", [secrets.randbits(62)])

    def shards(self) -> List[int]:
        """RETURNS (List[int]): Where the shards begin whose vectors are complete."""
        return self._column("SELECT first FROM shards", []).tolist()

    def add_shard(self, first: int) -> None:
        """Note that the vectors of a shard are complete."""
        with self.writing() as connection:
            connection.execute("INSERT OR IGNORE INTO shards VALUES (?)", [first])


def check_database(database: Database) -> List[str]:
    """Read every row and compare it with its digest.

    RETURNS (List[str]): What is wrong.
    """
    problems: List[str] = []
    with database.reading() as connection:
        for (text,) in connection.execute("PRAGMA integrity_check(10)"):
            if text != "ok":
                problems.append(text)
        problems += _check_rows(connection, "meta", "key, value")
        problems += _check_rows(connection, "arrays", "key, data")
        problems += _check_rows(connection, "changes", "position, vector")
        if _has_changed_names(connection):
            problems += _check_rows(connection, "changed_names", "position, keys")
        problems += _check_entities(database, connection)
        problems += _check_changes(database, connection) if not problems else []
    return problems


def _check_rows(connection: Connection, table: str, columns: str) -> List[str]:
    rows = connection.execute(f"SELECT digest, {columns} FROM {table}")
    return _cut([f"{table} {row[1]!r} is damaged" for row in rows if row[0] != _digest(*row[1:])])


def _cut(problems: List[str]) -> List[str]:
    """RETURNS (List[str]): The first of many problems, and how many others there are."""
    others = len(problems) - _SHOWN
    return problems if others < 1 else [*problems[:_SHOWN], f"{others} more of this kind"]


def _check_changes(database: Database, connection: Connection) -> List[str]:
    """RETURNS (List[str]): Whether what is in the files, added and removed does not make up the entities, or
    the counters do not fit.
    """
    state, base = database.counters(), database.get_meta("base", {"next": -1})["next"]
    gaps, (changed, _) = database.get_array("gaps", "int64"), database.read_changes(first=0)
    filed = np.setdiff1d(np.arange(base), gaps)
    removed = connection.execute("SELECT position, version FROM removed").fetchall()
    problems = []
    known = np.concatenate([filed, changed])
    left = np.setdiff1d(known, [row[0] for row in removed])
    if base >= 0 and not np.array_equal(left, database.all_positions()):
        problems.append("what was added and removed does not fit the entities")
    highest = max([base - 1, *known.tolist(), *(row[0] for row in removed)], default=-1)
    are_numbers = all(isinstance(value, int) for value in state)
    if not are_numbers or state.next <= highest or not all(0 < row[1] <= state.version for row in removed):
        problems.append("the counters do not fit the entities")
    return problems


def _check_entities(database: Database, connection: Connection) -> List[str]:
    """RETURNS (List[str]): Damaged entities, and names, tags and counters that do not fit them."""
    problems: List[str] = []
    total = count = 0
    names, tags = 0, 0
    for row in connection.execute(
        "SELECT position, id, title, label, popularity, rest, digest FROM entities ORDER BY position"
    ):
        if row[-1] != _digest(*row[:-1]):
            problems.append(f"the entity at position {row[0]} is damaged")
            continue
        entity = _to_entity(*row[1:-1])
        total, count = (total + row[-1]) % _SUM, count + 1
        names = (names + sum(_digest(key, row[0]) for key in _name_table_keys(entity))) % _SUM
        tags = (tags + sum(_digest(tag, row[0]) for tag in set(entity.tags))) % _SUM
    problems = _cut(problems)
    state = database.counters()
    if not problems and (total, count) != (state.total, state.entities):
        problems.append(
            f"there are {count} entities instead of {state.entities}, or others than were written"
        )
    for table, column, expected in (("names", "key", names), ("tags", "tag", tags)):
        found = sum(_digest(*row) for row in connection.execute(f"SELECT {column}, position FROM {table}"))
        if not problems and found % _SUM != expected:
            problems.append(f"the table of {table} does not fit the entities")
    return problems


class NameFilter:
    """Says of most keys of the table of names whether they are there, without a look at the table: a Bloom
    filter. It never denies one that is there.
    """

    def __init__(self, bits: Array) -> None:
        """Make the filter.

        bits (Array): (bytes,) uint8, a power of two of them.
        """
        self.bits = bits

    @classmethod
    def build(cls, keys: Array) -> "NameFilter":
        """RETURNS (NameFilter): The filter of keys."""
        size = 2 ** max(10, int(np.ceil(np.log2(max(1, len(keys) * _BITS_PER_NAME)))) - 3)
        built = cls(np.zeros(size, dtype="uint8"))
        built.add(keys)
        return built

    def add(self, keys: Array) -> None:
        """Add keys. Whoever looks into the filter meanwhile finds what was there before."""
        for places in self._places(keys):
            np.bitwise_or.at(self.bits, places >> 3, (1 << (places & 7)).astype("uint8"))

    def may_have(self, keys: Array) -> Array:
        """RETURNS (Array): (keys,) False for keys that are not there."""
        places = self._places(keys)
        return (self.bits[places >> 3] >> (places & 7) & 1).all(axis=0)

    def _places(self, keys: Array) -> Array:
        """RETURNS (Array): (2, keys) the bits that stand for each key."""
        return np.stack([keys, keys >> 31]) & (8 * len(self.bits) - 1)


def _has_changed_names(connection: Connection) -> bool:
    """RETURNS (bool): Whether a database has the table of what names its changes have."""
    statement = "SELECT count(*) FROM sqlite_master WHERE type = 'table' AND name = 'changed_names'"
    return bool(connection.execute(statement).fetchone()[0])


def _in_parts(connection: Connection, statement: str, texts: Sequence[str]) -> Iterator[List[Tuple]]:
    """YIELDS (List[Tuple]): The rows of a statement with `IN ({})`, for a part of the texts at a time. They
    are not passed as JSON, which loses what is behind a null character.
    """
    for begin in range(0, len(texts), _PARAMETERS):
        # what cannot be stored is nowhere
        part = [text for text in texts[begin : begin + _PARAMETERS] if _can_be_stored(text)]
        yield connection.execute(statement.format(", ".join("?" * len(part))), part).fetchall()


def _can_be_stored(text: Any) -> bool:
    """RETURNS (bool): Whether there is UTF-8 for a text: not for half of a surrogate pair."""
    try:
        return not isinstance(text, str) or text.isascii() or bool(text.encode("utf8"))
    except UnicodeEncodeError:
        return False


def name_keys(entity: Entity) -> Array:
    """RETURNS (Array): What the table of names has for an entity."""
    return np.asarray(_name_table_keys(entity), dtype="int64")


def _unique(keys: List[int], known: Optional[NameFilter]) -> List[int]:
    """RETURNS (List[int]): The keys that may be in the table of names, each once, ascending."""
    if known is not None and keys:
        may = known.may_have(np.asarray(keys, dtype="int64")).tolist()
        keys = [key for key, is_possible in zip(keys, may, strict=True) if is_possible]
    return sorted(set(keys))


def _ranges(begins: Array, counts: Array) -> Array:
    """RETURNS (Array): The numbers from each begin on, as many as its count, one behind the other."""
    return np.arange(counts.sum()) + np.repeat(begins - (np.cumsum(counts) - counts), counts)


def _to_texts(record: Dict[str, Any]) -> Tuple[str, str]:
    """RETURNS (Tuple[str, str]): A record in JSON, and those of its fields that have no column. Each value is
    encoded once: descriptions are long.
    """
    fields = {key: f'"{key}": {_to_json(value)}' for key, value in record.items()}
    rest = [text for key, text in fields.items() if key not in _COLUMNS]
    return f"{{{', '.join(fields.values())}}}", f"{{{', '.join(rest)}}}"


def _to_row(position: int, entity: Entity, rest: str) -> Tuple:
    """RETURNS (Tuple): The row of an entity, of which `rest` has the fields without a column.

    RAISES (TypeError): If a text is something else: it would be read back as another value than was written.
    """
    texts = (str.__str__(text) for text in (entity.id, entity.title, entity.label))
    row = (position, *texts, float(entity.popularity) + 0.0, rest)
    return (*row, _digest(*row))


def _to_entity(id_: str, title: str, label: str, popularity: float, rest: str) -> Entity:
    own = {"id": id_, "title": title, "label": label, "popularity": popularity}
    return entity_from_dict({**own, **json.loads(rest)})


def _digest(*values: Any) -> int:
    """RETURNS (int): 62 bits that depend on every bit of the values."""
    data = b"".join(x if isinstance(x, bytes) else repr(x).encode("utf8", "surrogatepass") for x in values)
    return int.from_bytes(hashlib.blake2b(data, digest_size=8).digest(), "little") % _SUM


def _name_table_keys(entity: Entity) -> List[int]:
    """RETURNS (List[int]): The keys by which an entity is found in the table of names."""
    keys = {key for name in entity_names(entity) for key in _name_keys(name)[1:]}
    keys.update(_name_keys(normalize_name(entity.title))[:1])
    return sorted(_hash(key) for key in keys)


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
    return tuple(_hash(key) for key in _name_keys(normalize_name(text)))
