"""Make an index: of encoded vectors, of another index, or of one that an older version wrote."""

import json
import os
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Dict, Iterable, Iterator, Mapping, Optional, Tuple, Union

import numpy as np

from ..catalogue import read_catalogue
from ..errors import ELQError, Errors
from ..types import Array, Encoder, Entity
from .backend import build_backend, default_factory, plan_backend
from .connections import Damaged
from .database import DATABASE, Database
from .entity_index import EntityIndex
from .files import (
    ENCODER,
    OLD_FORMAT,
    OLD_META,
    SEARCH,
    VECTORS,
    WORK,
    bytes_to_copy,
    can_be_read,
    check_disk,
    drop_unused,
    drop_work,
    is_old_name,
    link_or_copy,
    maintaining,
    named_files,
    note_collection,
    publish,
    sum_file,
    sum_folder,
)
from .milvus import (
    TOKEN,
    Collection,
    check_timeout,
    check_uri,
    is_lite,
    is_remote,
    place_uri,
    plan_collection,
)
from .sync import count_expected, drop_collections, fill_collection, read_stamp
from .vectors import DTYPES, Vectors, write_vectors

# how often the files of an index may be replaced while they are copied
_TRIES = 10
# vectors that are stored anew at once
_ROWS = 8192
# the back ends, by the names that people use
FAISS, MILVUS = "faiss", "milvus"


def build_index(
    vectors: Union[str, Path],
    output: Union[str, Path],
    *,
    factory: Optional[str] = None,
    widths: Optional[Mapping[str, int]] = None,
    dtype: Optional[str] = None,
    backend: Optional[str] = None,
    uri: Optional[str] = None,
    timeout: Optional[float] = None,
    progress: bool = False,
) -> EntityIndex:
    """Make encoded vectors searchable.

    vectors (Union[str, Path]): What `encode_catalogue` wrote, or another index, also one that spacy-elq 0.2
        wrote. If the index has this factory string, or none is given, its back end and settings are kept.
    output (Union[str, Path]): Folder of the index; an existing index is replaced at the end.
    factory (Optional[str]): FAISS factory string, or the kind of index of Milvus; None for that of the other
        index, or the default of this size.
    widths (Optional[Mapping[str, int]]): How wide a search is, see `plan_backend`; None for the defaults.
    dtype (Optional[str]): How the vectors are stored, "float32" or "float16", which takes half the space;
        None to keep them as they are.
    backend (Optional[str]): "faiss" or "milvus"; None for that of the other index, or FAISS.
    uri (Optional[str]): Where Milvus is; None for where the other index has it.
    timeout (Optional[float]): Seconds that Milvus has for one answer; None for 10, or as before.
    RETURNS (EntityIndex): The new index.
    """
    if dtype not in (None, *DTYPES):
        expected = " or ".join(DTYPES)
        raise ELQError(Errors.E002.format(setting="dtype", name="index", value=dtype, expected=expected))
    output, folder = Path(output).absolute(), Path(vectors).absolute()
    _check_encoder(folder, output)
    if backend not in (None, FAISS, MILVUS):
        expected = f"{FAISS} or {MILVUS}"
        raise ELQError(Errors.E002.format(setting="backend", name="index", value=backend, expected=expected))
    with making(output) as work_path:
        if _is_old(folder):
            files, known = _convert(folder, work_path)
        else:
            files, known = _copy(EntityIndex.open(folder), work_path)
        work = Database.open(work_path)
        plan = _Plan(folder, output, known, factory, widths or {}, dtype, progress)
        if backend == MILVUS or (backend is None and (uri is not None or is_remote(known))):
            plan.build_collection(work, files, uri=uri, timeout=timeout)
        elif uri is not None or timeout is not None:
            raise ELQError(Errors.E234.format(problem="--backend is not milvus", token=TOKEN))
        else:
            plan.build_files(work, files)
        _copy_encoder(folder, output)
        publish(output, work, files)
    index = EntityIndex.open(output)
    _tidy_collections(index)
    return index


def _tidy_collections(index: EntityIndex) -> None:
    """Send Milvus what the index has not sent yet, and remove collections that are of no use any more."""
    drop_collections(index.path, index._database)
    index._sync()


@dataclass
class _Plan:
    """How an index is built.

    folder, output (Path): Of the other index and of the new one.
    known (Dict[str, Any]): The settings of the back end of the other one.
    factory, widths, dtype (Optional[str], Mapping[str, int], Optional[str]): As in `build_index`.
    """

    folder: Path
    output: Path
    known: Dict[str, Any]
    factory: Optional[str]
    widths: Mapping[str, int]
    dtype: Optional[str]
    progress: bool

    def build_files(self, work: Database, files: Dict[str, Path]) -> None:
        """Make the files of an index with FAISS; `files` gets those that are new."""
        known = {} if is_remote(self.known) else self.known
        if is_remote(self.known):
            files[VECTORS] = self._fetch(work)
            work.set_meta(base={"next": work.get_meta("base")["next"]}, synced=None)
        before = Vectors(files[VECTORS]).array
        shape = before.shape
        if self.dtype not in (None, before.dtype.name):
            check_disk(self.output, before.nbytes)
            files[VECTORS] = self.output / f"{WORK}.{self.dtype}"
            write_vectors(files[VECTORS], shape, _chunks(before), dtype=str(self.dtype))
        factory = self.factory or known.get("factory") or default_factory(*shape)
        settings, bytes_ = plan_backend(shape, factory=factory, widths=self.widths)
        if known.get("factory") == factory:
            settings, bytes_ = {**settings, **known, **self.widths}, 0
        else:
            files.pop(SEARCH, None)
        check_disk(self.output, bytes_ + bytes_to_copy(files.values(), self.output))
        if SEARCH not in files:
            search = self.output / f"{WORK}.faiss"
            vectors = Vectors(files[VECTORS]).array
            build_backend(vectors, search, settings=settings, progress=self.progress)
            if search.exists():
                files[SEARCH] = search
        work.set_meta(backend=settings)

    def build_collection(
        self, work: Database, files: Dict[str, Path], *, uri: Optional[str], timeout: Optional[float]
    ) -> None:
        """Fill a collection of Milvus, or change how it is searched; `files` becomes empty."""
        if self.dtype is not None:
            expected = "none with Milvus, which stores float32"
            raise ELQError(
                Errors.E002.format(setting="dtype", name="index", value=self.dtype, expected=expected)
            )
        place = self._place(uri)
        if self._is_kept(place):
            work.set_meta(backend=self._adjust(timeout))
            return
        if is_remote(self.known):
            files[VECTORS] = self._fetch(work)
        vectors = Vectors(files[VECTORS]).array
        kind = self.factory or (self.known["factory"] if is_remote(self.known) else None)
        timeout = timeout or self.known.get("timeout")
        settings = plan_collection(vectors.shape, uri=place, kind=kind, widths=self.widths, timeout=timeout)
        note_collection(self.output, settings)
        collection = Collection(settings, self.output, read_stamp(work, settings["width"]))
        try:
            fill_collection(work, vectors, collection, progress=self.progress)
        finally:
            collection.close()
        work.set_meta(backend=settings)
        files.clear()

    def _place(self, uri: Optional[str]) -> str:
        """RETURNS (str): Where Milvus is, from the new index."""
        if uri is not None:
            check_uri(uri)
            return place_uri(uri, self.output)
        if not is_remote(self.known):
            raise ELQError(Errors.E234.format(problem="there is no --uri", token=TOKEN))
        before = self.known["uri"]
        return place_uri(os.path.normpath(self.folder / before), self.output) if is_lite(before) else before

    def _is_kept(self, place: str) -> bool:
        """RETURNS (bool): Whether the collection of the other index goes on, under new settings."""
        return (
            is_remote(self.known)
            and _is_same(self.folder, self.output)
            and place == self.known["uri"]
            and self.factory in (None, self.known["factory"])
        )

    def _adjust(self, timeout: Optional[float]) -> Dict[str, Any]:
        """RETURNS (Dict[str, Any]): The settings of the other index with those that are given."""
        shape = (0, self.known["width"])
        plan_collection(shape, uri=self.known["uri"], kind=self.known["factory"], widths=self.widths)
        given = {} if timeout is None else {"timeout": check_timeout(timeout)}
        return {**self.known, **self.widths, **given}

    def _fetch(self, work: Database) -> Path:
        """RETURNS (Path): A file with the vectors that the other index has in Milvus."""
        collection = Collection(self.known, self.folder, read_stamp(work, self.known["width"]))
        base, gaps = work.get_meta("base"), work.get_array("gaps", "int64")
        seen = work.get_meta("synced")["seen"]
        positions = np.setdiff1d(np.arange(base["next"]), gaps, assume_unique=True)
        shape = (len(positions), self.known["width"])
        check_disk(self.output, 4 * shape[0] * shape[1])
        path, (least, most) = self.output / f"{WORK}.vectors", count_expected(work)
        parts = (collection.take(positions[i : i + _ROWS], seen=seen) for i in range(0, shape[0], _ROWS))
        try:
            if not least <= (found := collection.count()) <= most:
                problem = f"{collection.name} has {found} entities instead of {most}"
                raise ELQError(Errors.E233.format(uri=collection.uri, problem=problem))
            write_vectors(path, shape, parts, dtype="float32")
        finally:
            collection.close()
        return path


def _chunks(vectors: Array) -> Iterator[Array]:
    for begin in range(0, len(vectors), _ROWS):
        yield vectors[begin : begin + _ROWS]


def describe_encoder(encoder: Encoder, folder: Path) -> Dict[str, Any]:
    """RETURNS (Dict[str, Any]): What an index keeps about its encoder: settings, fingerprint and, for a local
    folder, where it is from the index, so that both can be moved together.
    """
    stamp = {**encoder.settings, "fingerprint": encoder.fingerprint}
    if Path(str(stamp.get("name"))).is_dir():
        stamp["paths"] = [os.path.relpath(stamp["name"], folder)]
    return stamp


def fill_database(path: Path, entities: Iterable[Entity], encoder: Mapping[str, Any]) -> Database:
    """RETURNS (Database): A new database with entities; their vectors will be a file of as many rows."""
    database = Database.create(path)
    with database.filling():
        catalogue = database.fill(entities)
        database.set_meta(catalogue=catalogue, encoder=dict(encoder), base={"next": database.counters().next})
        database.set_array("popularity", database.popularity())
    return database


def open_catalogue(catalogue: Path) -> Database:
    """RETURNS (Database): The entities of a catalogue, in a temporary file that goes with the process."""
    folder = tempfile.TemporaryDirectory(prefix="spacy-elq-")
    database = Database.create(Path(folder.name) / DATABASE)
    with database.filling():
        database.fill(read_catalogue(catalogue))
    database.keep_alive = folder
    return database


def copy_index(index: EntityIndex, folder: Path) -> None:
    """Put a copy of an index into another folder; its files are hard links where that is possible."""
    if folder.exists() and index.path.samefile(folder):
        return
    if is_remote(index.meta.get("backend")):
        build_index(index.path, folder).close()
        return
    _check_encoder(index.path, folder)
    with making(folder) as work_path:
        files, _ = _copy(index, work_path)
        _copy_encoder(index.path, folder)
        publish(folder, Database.open(work_path), files)


def _check_encoder(source: Path, folder: Path) -> None:
    """Check that there are no links in the entity encoder of an index that is copied: a copy would have what
    they lead to, which may be anything.

    RAISES (ELQError): If there is one.
    """
    if _is_same(source, folder):
        return
    encoder = source / ENCODER
    link = next((path for path in (encoder, *encoder.rglob("*")) if path.is_symlink()), None)
    if link is not None:
        raise ELQError(Errors.E193.format(path=link))


def _copy_encoder(source: Path, folder: Path) -> None:
    """Put the entity encoder that travels with an index into the folder of its copy, if there is one."""
    if not (source / ENCODER).is_dir() or _is_same(source, folder):
        return
    # files that are there may be those of another index under a second name: they are never changed
    shutil.rmtree(folder / ENCODER, ignore_errors=True)
    shutil.copytree(source / ENCODER, folder / ENCODER)


def _is_same(source: Path, folder: Path) -> bool:
    return source.exists() and folder.exists() and source.samefile(folder)


def register_encoder(folder: Path) -> None:
    """Note the sums of the entity encoder that was put into the folder of an index, for `check_index`."""
    database = Database.open(folder / DATABASE)
    database.set_meta(encoder_files=sum_folder(folder / ENCODER))
    database.close()


class making:
    """Keeps others from a folder while an index is made there; gives the path of a database to work in."""

    def __init__(self, output: Path) -> None:
        """Nothing is locked yet."""
        self._output = output
        self._lock = maintaining(output)

    def __enter__(self) -> Path:
        """RETURNS (Path): Where the database can be, until it is published."""
        self._lock.__enter__()
        target = Database(self._output / DATABASE)
        drop_work(self._output)
        # what is damaged stays as it is until there is something to replace it
        if can_be_read(target) or not target.path.exists():
            drop_unused(self._output, target if target.path.exists() else None)
        target.close()
        return self._output / WORK

    def __exit__(self, *error: Any) -> None:
        """Remove what was not published."""
        drop_work(self._output)
        if error[0] is not None and not (self._output / DATABASE).exists():
            drop_unused(self._output, None)
        self._lock.__exit__(*error)


def _copy(index: EntityIndex, work_path: Path) -> Tuple[Dict[str, Path], Dict[str, Any]]:
    """Copy the database of an index, and give its files a second name: if the index is compacted meanwhile,
    the first goes.

    RETURNS (Tuple[Dict[str, Path], Dict[str, Any]]): The files, and the settings of the back end.
    """
    source, work = index._database, Database(work_path)
    for last in range(_TRIES, -1, -1):
        with index.reading():
            files = named_files(source)
            try:
                check_disk(work_path.parent, bytes_to_copy(files.values(), work_path.parent))
                held = {role: work_path.with_name(f"{WORK}.{role}") for role in files}
                for role, path in files.items():
                    link_or_copy(path, held[role])
            except FileNotFoundError as err:
                if not last:
                    raise Damaged(Path(str(err.filename)), "is missing") from None
                continue
            sums = {role: entry["sum"] for role, entry in source.get_meta("files").items()}
            for role, path in held.items():
                if sum_file(path) != sums[role]:  # a copy must not get a sum that fits its damage
                    message = Errors.E164 if role == SEARCH else Errors.E031
                    raise Damaged(files[role], "has other bytes than were written", message)
            work.connections.replace_by(source.connections)
            _move_encoder(Database.open(work_path), index.path)
            return held, source.get_meta("backend") or {}
    raise AssertionError("the last try returns or raises")


def _move_encoder(database: Database, before: Path) -> None:
    """Note where the entity encoder is from the folder of a database that was copied from another folder."""
    stamp = database.get_meta("encoder")
    if stamp and "paths" in stamp:
        places = [os.path.normpath(before / path) for path in stamp["paths"]]
        stamp["paths"] = [os.path.relpath(place, database.path.parent) for place in places]
        database.set_meta(encoder=stamp)
    database.close()


def _is_old(folder: Path) -> bool:
    return (folder / OLD_META).is_file() and not (folder / DATABASE).exists()


def _convert(folder: Path, work_path: Path) -> Tuple[Dict[str, Path], Dict[str, Any]]:
    """Fill a database from an index in the format of spacy-elq 0.2.

    RETURNS (Tuple[Dict[str, Path], Dict[str, Any]]): The files that go on, and the settings of its back end.
    """
    meta = _read_old_meta(folder)
    files = {role: folder / entry["name"] for role, entry in meta["files"].items()}
    work = fill_database(work_path, read_catalogue(files["records.jsonl"]), meta["encoder"])
    entities, vectors = len(work), len(Vectors(files[VECTORS]).array)
    work.close()
    if entities != vectors:
        raise ELQError(Errors.E051.format(vectors=vectors, entities=entities))
    known = meta.get("backend", {})
    return {role: path for role, path in files.items() if role in (VECTORS, SEARCH)}, known


def _read_old_meta(folder: Path) -> Dict[str, Any]:
    def damaged(file: str, problem: str) -> ELQError:
        return Damaged(folder / file, problem)

    try:
        meta = json.loads((folder / OLD_META).read_text(encoding="utf8"))
        if meta["format"] != OLD_FORMAT:
            raise damaged(OLD_META, f"has the format {meta['format']}, expected {OLD_FORMAT}")
        for role, entry in meta["files"].items():
            path = folder / entry["name"]
            if not is_old_name(role, entry["name"]) or not path.is_file():
                raise damaged(OLD_META, f"names {entry['name']!r}, which is not a file of the index")
            if path.stat().st_size != entry["bytes"]:
                raise damaged(path.name, f"has {path.stat().st_size} bytes instead of {entry['bytes']}")
        meta["encoder"]["fingerprint"], meta["files"]["records.jsonl"], meta["files"][VECTORS]
    except (ValueError, KeyError, TypeError, RecursionError) as err:
        if isinstance(err, ELQError):
            raise
        raise damaged(OLD_META, "cannot be read") from None
    return meta
