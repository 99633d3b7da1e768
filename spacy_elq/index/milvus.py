"""The Milvus back end: the vectors of an index in a collection of a server, which finds the candidates. The
one module that imports pymilvus.
"""

import json
import logging
import os
import secrets
import threading
import time
import weakref
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import Any, Callable, Dict, Iterable, List, Mapping, NamedTuple, Optional, Tuple
from urllib.parse import urlsplit

import numpy as np

from ..errors import ELQError, Errors
from ..types import Array, Entity
from .backend import EXACT_UP_TO, HNSW_SETTINGS, IVF_SHARE, LARGE_FROM, RESCORE
from .connections import hold_while_forking

# seconds that Milvus has for one answer, if the user says nothing else
TIMEOUT = 10.0
# the environment variable with the token, or "user:password", of a server: it is stored nowhere
TOKEN = "SPACY_ELQ_MILVUS_TOKEN"
# what the name of a folder of Milvus Lite ends with
LITE = ".db"
# the kinds of index of a collection, by size
EXACT, GRAPH, LISTS = "FLAT", "HNSW", "IVF_FLAT"
KINDS = (EXACT, GRAPH, LISTS, "IVF_SQ8")
# edges of each node of the graph
_EDGES = 16
# lists of an IVF index: so many times the root of the number of entities, as Milvus recommends
_LISTS, _MOST_LISTS = 4, 65_536
# the most that Milvus finds for a query, and answers of more bytes are asked for in parts
MOST, _ANSWER = 16_384, 16_000_000
# the most values of an array field of Milvus
MOST_TAGS = 4096
_STAMP = "spacy_elq"
_NOT_FOUND = 100
_LOOK_AGAIN = 0.2
# the least seconds for Milvus to write down what it was sent, when an index is built
_FLUSH = 600.0
# codes of a server that is starting: not loaded, no replica, channel, segment or node; and what it says where
# it has no code for that
_PASSING = {101, 103, 400, 401, 500, 501, 503, 600, 601, 901, 902, 903, 904}
_PASSING_TEXTS = ("not loaded", "not fully loaded", "not ready", "not available", "no available", "offline")
# what pymilvus says in plain text when there is no answer, without a code of its own
_LOST = ("Fail connecting", "Retry timeout", "Retry run out", "closed channel", "collection timeout")
_collections: "weakref.WeakSet[Collection]" = weakref.WeakSet()
# whoever forks, or makes a collection, holds this
_forking = threading.RLock()
_held: List["Collection"] = []


class Unreachable(ELQError):
    """Milvus does not answer."""


class Hits(NamedTuple):
    """What was found.

    positions (Array): (queries, found), -1 where fewer were found.
    vectors (Array): (queries, found, width) theirs; anything for -1.
    """

    positions: Array
    vectors: Array


def is_remote(settings: Optional[Mapping[str, Any]]) -> bool:
    """RETURNS (bool): Whether the settings of a back end are those of a collection."""
    return settings is not None and "collection" in settings


def default_kind(count: int) -> str:
    """RETURNS (str): The kind of index for a catalogue of this size when the user names none."""
    if count <= EXACT_UP_TO:
        return EXACT
    return GRAPH if count < LARGE_FROM else LISTS


def plan_collection(
    shape: Tuple[int, ...],
    *,
    uri: str,
    kind: Optional[str] = None,
    widths: Optional[Mapping[str, int]] = None,
    timeout: Optional[float] = None,
) -> Dict[str, Any]:
    """Plan a new collection before anything is written.

    shape (Tuple[int, ...]): (entities, width) of the vectors.
    uri (str): Where Milvus is: http://HOST:PORT, or a path for Milvus Lite, which ends in ".db".
    kind (Optional[str]): One of `KINDS`, None for that of this size.
    widths (Optional[Mapping[str, int]]): As `plan_backend` takes them.
    timeout (Optional[float]): Seconds that Milvus has for one answer.
    RETURNS (Dict[str, Any]): The settings of the back end.
    """
    _import()
    check_uri(uri)
    kind = kind or default_kind(shape[0])
    if kind not in KINDS:
        raise ELQError(Errors.E236.format(found=kind, expected=", ".join(KINDS)))
    settings = _settings_of(kind, shape[0])
    for name, value in (widths or {}).items():
        if name not in settings or value < 1:
            known = ", ".join(key for key in settings if key in ("efSearch", "nprobe", "rescore")) or "none"
            raise ELQError(Errors.E081.format(setting=name, value=value, factory=kind, known=known))
    return {
        "factory": kind,
        **settings,
        **(widths or {}),
        "uri": uri,
        "collection": f"spacy_elq_{secrets.token_hex(8)}",
        "width": shape[1],
        "timeout": check_timeout(TIMEOUT if timeout is None else timeout),
    }


def check_timeout(value: float) -> float:
    """RETURNS (float): The same.
    RAISES (ELQError): If it is no time to wait.
    """
    if not 0 < value <= 3600:
        expected = "seconds, more than 0 and at most 3600"
        raise ELQError(Errors.E002.format(setting="timeout", name="index", value=value, expected=expected))
    return value


def check_uri(uri: str) -> None:
    """Check where Milvus is said to be.

    RAISES (ELQError): If it is no address, or has a password, which would be stored in the index.
    """
    parts = urlsplit(uri)
    if parts.username:
        raise ELQError(Errors.E234.format(problem="there is a password in the address", token=TOKEN))
    is_server = parts.scheme in ("http", "https", "tcp") and bool(parts.hostname)
    if not is_server and (parts.scheme or not is_lite(uri)):
        raise ELQError(Errors.E234.format(problem=f"{uri!r} is none", token=TOKEN))


def is_lite(uri: str) -> bool:
    """RETURNS (bool): Whether an address is a folder of Milvus Lite."""
    return uri.endswith(LITE)


def place_uri(uri: str, folder: Path) -> str:
    """RETURNS (str): What an index in a folder keeps of an address: where a folder of Milvus Lite is from
    there, so that both can be moved together.
    """
    return os.path.relpath(uri, folder) if is_lite(uri) else uri


def _settings_of(kind: str, count: int) -> Dict[str, int]:
    """RETURNS (Dict[str, int]): How a kind of index is built and searched."""
    if kind == EXACT:
        return {}
    if kind == GRAPH:
        return {"M": _EDGES, **HNSW_SETTINGS}
    lists = int(min(_MOST_LISTS, max(1, round(_LISTS * count**0.5))))
    settings = {"nlist": lists, "nprobe": max(1, lists // IVF_SHARE)}
    return settings if kind == LISTS else {**settings, "rescore": RESCORE}


def describe_filter(chosen: Mapping[str, Iterable[int]]) -> str:
    """Say in the language of Milvus which entities count. Labels and tags are numbers there: any text can be
    one.

    chosen (Mapping[str, Iterable[int]]): Hashes of "labels" and "tags", positions of "ids".
    """
    templates = {
        "ids": "id in {}",
        "labels": "label in {}",
        "tags": "array_contains_any(tags, {})",
    }
    return " and ".join(templates[kind].format(list(values)) for kind, values in sorted(chosen.items()))


class Collection:
    """The vectors of an index in Milvus, each at the position of its entity.

    width (int): The length of a vector.
    rescore (int): At least so many are found for each query.
    """

    def __init__(self, settings: Mapping[str, Any], folder: Path, stamp: Mapping[str, Any]) -> None:
        """Nothing is connected yet.

        settings (Mapping[str, Any]): What `plan_collection` returned.
        folder (Path): The index.
        stamp (Mapping[str, Any]): What the collection must have been made from.
        """
        uri = settings["uri"]
        self.uri = os.path.normpath(folder.absolute() / uri) if is_lite(uri) else uri
        self.name: str = settings["collection"]
        self.width: int = settings["width"]
        self.rescore = int(settings.get("rescore", 0))
        self._settings, self._folder, self._stamp = dict(settings), folder, dict(stamp)
        self._timeout = float(settings["timeout"])
        self._client: Any = None
        # one that is being made, or removed, is not
        self._is_checked = False
        self.lock = threading.RLock()
        _watch()
        with _forking:
            _collections.add(self)

    def is_same(self, other: "Collection") -> bool:
        """RETURNS (bool): Whether another one has the same settings."""
        return (self._settings, self._folder, self._stamp) == (other._settings, other._folder, other._stamp)

    def __del__(self) -> None:
        """Nobody uses the connection any more; pymilvus would keep it."""
        if getattr(self, "_client", None) is not None:
            self.close()

    # ------------------------------------------------------------------ search

    def search(self, queries: Array, k: int, *, chosen: Mapping[str, Iterable[int]], seen: int) -> Hits:
        """Find the `k` nearest entities of each query; the caller scores them by their vectors.

        queries (Array): (queries, width) float32.
        chosen (Mapping[str, Iterable[int]]): Which entities count, see `describe_filter`; empty for all.
        seen (int): What was written until then must be seen, see `upsert`.
        """
        k = min(k, MOST)
        at_once = max(1, _ANSWER // (k * (4 * self.width + 16)))
        ids = np.full((len(queries), k), -1, dtype="int64")
        vectors = np.zeros((len(queries), k, self.width), dtype="float32")
        for begin in range(0, len(queries), at_once):
            found = self._ask(
                "search",
                data=list(np.ascontiguousarray(queries[begin : begin + at_once], dtype="float32")),
                anns_field="vector",
                limit=k,
                filter=describe_filter(chosen),
                search_params={"metric_type": "IP", "params": self._search_params(k)},
                output_fields=["vector"],
                **_consistency(seen),
            )
            for row, hits in enumerate(found, start=begin):
                ids[row, : len(hits)] = [hit["id"] for hit in hits]
                if hits:
                    vectors[row, : len(hits)] = [hit["entity"]["vector"] for hit in hits]
        return Hits(ids, vectors)

    def _search_params(self, k: int) -> Dict[str, int]:
        """RETURNS (Dict[str, int]): How wide a search is: a graph keeps at least what is asked for."""
        params = {}
        if "efSearch" in self._settings:
            params["ef"] = max(k, self._settings["efSearch"])
        if "nprobe" in self._settings:
            params["nprobe"] = self._settings["nprobe"]
        return params

    def take(self, positions: Array, *, seen: int) -> Array:
        """RETURNS (Array): (*positions.shape, width) the vectors at positions; zeros where there is none."""
        wanted, places = np.unique(positions, return_inverse=True)
        vectors = np.zeros((len(wanted), self.width), dtype="float32")
        at_once = max(1, min(MOST, _ANSWER // (4 * self.width + 16)))
        for begin in range(0, len(wanted), at_once):
            part = wanted[begin : begin + at_once]
            found = self._ask(
                "query",
                filter=f"id in {part.tolist()}",
                output_fields=["id", "vector"],
                **_consistency(seen),
            )
            if found:
                rows = begin + np.searchsorted(part, [record["id"] for record in found])
                vectors[rows] = [record["vector"] for record in found]
        return vectors[places.reshape(positions.shape)]

    # ------------------------------------------------------------------ changes

    def upsert(self, positions: Array, vectors: Array, labels: List[int], tags: List[List[int]]) -> int:
        """Write entities; it makes no difference how often.

        positions, vectors (Array): (entities,) and (entities, width).
        labels, tags (List[int], List[List[int]]): Their hashes.
        RETURNS (int): What a search must name to see them, 0 where every search sees everything.
        """
        at_once = max(1, _ANSWER // (4 * self.width + 64))
        columns = (positions.tolist(), np.asarray(vectors, dtype="float32"), labels, tags)
        rows = [
            {"id": id_, "vector": vector, "label": label, "tags": own}
            for id_, vector, label, own in zip(*columns, strict=True)
        ]
        for begin in range(0, len(rows), at_once):
            self._ask("upsert", data=rows[begin : begin + at_once])
        return self._written()

    def delete(self, positions: Array) -> int:
        """Delete entities, those that are there.

        RETURNS (int): As `upsert`.
        """
        for begin in range(0, len(positions), MOST):
            self._ask("delete", filter=f"id in {positions[begin : begin + MOST].tolist()}")
        return self._written()

    def _written(self) -> int:
        """RETURNS (int): When the last change was made, on the clock of the server, as pymilvus remembers it;
        0 for Milvus Lite, which has no such clock.
        """
        with self.lock:
            client = self._connect()
            place = client._get_connection().server_address, client._config.db_name
        return int(_import().client.ts_utils.get_collection_ts(self.name, *place) or 0)

    def count(self) -> int:
        """RETURNS (int): How many entities the collection has at this moment."""
        counts = self._ask("query", filter="", output_fields=["count(*)"], consistency_level="Strong")
        return int(counts[0]["count(*)"])

    # ------------------------------------------------------------------ the whole

    def create(self) -> None:
        """Make the collection, empty."""
        milvus = _import()
        kinds = milvus.DataType
        schema = milvus.MilvusClient.create_schema(
            auto_id=False, enable_dynamic_field=False, description=f"The vectors of {self._folder.name}"
        )
        schema.add_field("id", kinds.INT64, is_primary=True)
        schema.add_field("vector", kinds.FLOAT_VECTOR, dim=self.width)
        schema.add_field("label", kinds.INT64)
        schema.add_field("tags", kinds.ARRAY, element_type=kinds.INT64, max_capacity=MOST_TAGS)
        self._is_checked = True
        self._ask(
            "create_collection",
            schema=schema,
            properties={_STAMP: json.dumps(self._stamp, sort_keys=True)},
            consistency_level="Strong",
        )

    def finish(self) -> None:
        """Build the index of a collection that was filled, and make it ready for searches. That takes as long
        as it takes; but each question how far it is gets an answer in time.
        """
        settings = self._settings
        index = _import().MilvusClient.prepare_index_params()
        params = {key: settings[key] for key in ("M", "efConstruction", "nlist") if key in settings}
        index.add_index("vector", index_type=settings["factory"], metric_type="IP", params=params)
        self._ask("flush", timeout=max(self._timeout, _FLUSH))
        self._ask("create_index", index_params=index, sync=False)
        self._wait(self._is_built)
        self._ask("load_collection", _async=True)
        self._wait(self._is_loaded)
        # Milvus Lite says so before it is
        self._wait(self._is_built)

    def drop(self) -> None:
        """Remove the collection, if it is there."""
        self._is_checked = True
        if self._ask("has_collection"):
            self._ask("drop_collection")

    def _is_built(self) -> bool:
        state = self._ask("describe_index", index_name="vector") or {}
        if state.get("state") == "Failed":
            problem = state.get("index_state_fail_reason") or "the index could not be built"
            raise ELQError(Errors.E233.format(uri=self.uri, problem=problem))
        return not int(state.get("pending_index_rows") or 0) and state.get("state") != "InProgress"

    def _is_loaded(self) -> bool:
        return self._ask("get_load_state")["state"].name == "Loaded"

    def _wait(self, is_ready: Callable[[], bool]) -> None:
        while not is_ready():
            time.sleep(_LOOK_AGAIN)

    # ------------------------------------------------------------------ connections

    def close(self) -> None:
        """End the connection. The next use makes another one."""
        with self.lock:
            client, self._client = self._client, None
            if client is not None:
                with suppress(Exception):
                    client.close()

    def _ask(self, what: str, **arguments: Any) -> Any:
        """Ask Milvus something about the collection; again, for as long as it has to answer, while it says
        that it is starting.

        what (str): A method of its client.
        RAISES (ELQError): With what to do about it. After that, a new connection is made: the server may be
            another one.
        """
        end = time.monotonic() + self._timeout
        while True:
            try:
                with self.lock:
                    client = self._connect()
                    return getattr(client, what)(self.name, **{"timeout": self._timeout, **arguments})
            except ELQError:
                self.close()
                raise
            except Exception as err:
                self.close()
                if not _is_passing(err) or time.monotonic() > end:
                    raise self._explain(err) from None
            time.sleep(_LOOK_AGAIN)

    def _connect(self) -> Any:
        """RETURNS (Any): The client of this process. A collection is checked when it is first used: it must
        be there, and be that of the index.
        """
        if self._client is None:
            if is_lite(self.uri) and not Path(self.uri).parent.is_dir():
                raise ELQError(Errors.E234.format(problem=f"there is no folder for {self.uri}", token=TOKEN))
            token = os.environ.get(TOKEN, "")
            client = _import().MilvusClient
            self._client = client(self.uri, token=token, timeout=self._timeout, dedicated=True)
            if not self._is_checked:
                self._check()
        return self._client

    def _check(self) -> None:
        """Compare the collection with the index, and see to it that it can be searched."""
        found = self._client.describe_collection(self.name, timeout=self._timeout)
        width = next((x["params"]["dim"] for x in found["fields"] if x["name"] == "vector"), 0)
        places = {"name": self.name, "uri": self.uri, "path": self._folder}
        if int(width) != self.width:
            raise ELQError(Errors.E231.format(found=width, expected=self.width, **places))
        stamp = _read_stamp(found.get("properties") or {})
        if stamp != self._stamp:
            differing = [key for key in self._stamp if stamp.get(key) != self._stamp[key]]
            shown = "; ".join(f"{x}: {stamp.get(x)} there, {self._stamp[x]} expected" for x in differing)
            raise ELQError(Errors.E232.format(difference=shown, **places))
        state = self._client.get_load_state(self.name, timeout=self._timeout)["state"]
        if state.name != "Loaded":
            self._client.load_collection(self.name, timeout=self._timeout)

    def _explain(self, err: Exception) -> Exception:
        """RETURNS (Exception): What to tell the user instead of what pymilvus raised."""
        milvus, problem = _import(), _first_line(err)
        code = getattr(err, "code", None)
        if isinstance(err, milvus.exceptions.ConnectionConfigException) and is_lite(self.uri):
            return ELQError(Errors.E235.format(uri=self.uri, path=self._folder))
        if code == _NOT_FOUND:
            return ELQError(Errors.E230.format(name=self.name, uri=self.uri, path=self._folder))
        # what comes from gRPC has a method, or a status, where Milvus has a number
        if not isinstance(code, int) or _is_passing(err) or any(text in problem for text in _LOST):
            return err if code is None else self._unreachable(problem)
        return ELQError(Errors.E233.format(uri=self.uri, problem=problem))

    def _unreachable(self, problem: str) -> Unreachable:
        places = {"uri": self.uri, "path": self._folder, "timeout": self._timeout}
        return Unreachable(Errors.E228.format(problem=problem, **places))


def _is_passing(err: Exception) -> bool:
    """RETURNS (bool): Whether Milvus says that it cannot answer yet."""
    code = getattr(err, "code", None)
    if not isinstance(code, int) or code == _NOT_FOUND:
        return False
    return code in _PASSING or any(text in str(err) for text in _PASSING_TEXTS)


def check_tags(entities: Iterable[Entity]) -> None:
    """Check that Milvus can store the tags of entities.

    RAISES (ELQError): If one of them has too many.
    """
    for entity in entities:
        if len(set(entity.tags)) > MOST_TAGS:
            found = len(set(entity.tags))
            raise ELQError(Errors.E237.format(id=repr(entity.id), found=found, most=MOST_TAGS))


def _consistency(seen: int) -> Dict[str, Any]:
    """RETURNS (Dict[str, Any]): What makes a search wait until it sees what was written, and no longer. A
    search that asks for everything waits for the clock of the server, each time.
    """
    if not seen:
        return {"consistency_level": "Strong"}
    return {"consistency_level": "Customized", "guarantee_timestamp": seen}


def _read_stamp(properties: Mapping[str, Any]) -> Dict[str, Any]:
    try:
        stamp = json.loads(properties.get(_STAMP, "{}"))
    except ValueError:
        stamp = {}
    return stamp if isinstance(stamp, dict) else {}


def _first_line(err: Exception) -> str:
    """RETURNS (str): What went wrong, in at most a line."""
    text = str(getattr(err, "message", "") or getattr(err, "details", lambda: "")() or err)
    return (text.splitlines() or [type(err).__name__])[0][:300]


@lru_cache(maxsize=1)
def _import() -> Any:
    """RETURNS (Any): pymilvus. It writes what it raises to the log as well, with the trace of the program."""
    try:
        import pymilvus
        import pymilvus.client.ts_utils
        import pymilvus.exceptions
    except ImportError:
        raise ELQError(Errors.E229) from None
    for name in ("pymilvus", "milvus_lite"):
        logging.getLogger(name).setLevel(logging.CRITICAL)
    return pymilvus


def _hold_all() -> None:
    """End all connections: a process that forks must not have any."""
    _forking.acquire()
    for collection in list(_collections):
        collection.lock.acquire()
        _held.append(collection)
        collection.close()


def _release_all() -> None:
    while _held:
        _held.pop().lock.release()
    _forking.release()


@lru_cache(maxsize=1)
def _watch() -> None:
    hold_while_forking(_hold_all, _release_all)
