"""Make an index: of encoded vectors, of another index, or of one that an older version wrote."""

import json
import os
import shutil
import tempfile
from pathlib import Path
from typing import Any, Dict, Iterable, Iterator, Mapping, Optional, Tuple, Union

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
    publish,
    sum_file,
    sum_folder,
)
from .vectors import DTYPES, Vectors, write_vectors

# how often the files of an index may be replaced while they are copied
_TRIES = 10
# vectors that are stored anew at once
_ROWS = 8192


def build_index(
    vectors: Union[str, Path],
    output: Union[str, Path],
    *,
    factory: Optional[str] = None,
    widths: Optional[Mapping[str, int]] = None,
    dtype: Optional[str] = None,
    progress: bool = False,
) -> EntityIndex:
    """Make encoded vectors searchable.

    vectors (Union[str, Path]): What `encode_catalogue` wrote, or another index, also one that spacy-elq 0.2
        wrote. If the index has this factory string, or none is given, its back end and settings are kept.
    output (Union[str, Path]): Folder of the index; an existing index is replaced at the end.
    factory (Optional[str]): FAISS factory string, or None for that of the other index, or the default of
        this size.
    widths (Optional[Mapping[str, int]]): How wide a search is, see `plan_backend`; None for the defaults.
    dtype (Optional[str]): How the vectors are stored, "float32" or "float16", which takes half the space;
        None to keep them as they are.
    RETURNS (EntityIndex): The new index.
    """
    if dtype not in (None, *DTYPES):
        expected = " or ".join(DTYPES)
        raise ELQError(Errors.E002.format(setting="dtype", name="index", value=dtype, expected=expected))
    output, folder = Path(output).absolute(), Path(vectors).absolute()
    _check_encoder(folder, output)
    with making(output) as work_path:
        if _is_old(folder):
            files, known = _convert(folder, work_path)
        else:
            files, known = _copy(EntityIndex.open(folder), work_path)
        work = Database.open(work_path)
        before = Vectors(files[VECTORS]).array
        shape = before.shape
        if dtype not in (None, before.dtype.name):
            check_disk(output, before.nbytes)
            files[VECTORS] = output / f"{WORK}.{dtype}"
            write_vectors(files[VECTORS], shape, _chunks(before), dtype=str(dtype))
        factory = factory or known.get("factory") or default_factory(*shape)
        settings, bytes_ = plan_backend(shape, factory=factory, widths=widths)
        if known.get("factory") == factory:
            settings, bytes_ = {**settings, **known, **(widths or {})}, 0
        else:
            files.pop(SEARCH, None)
        check_disk(output, bytes_ + bytes_to_copy(files.values(), output))
        if SEARCH not in files:
            search = output / f"{WORK}.faiss"
            build_backend(Vectors(files[VECTORS]).array, search, settings=settings, progress=progress)
            if search.exists():
                files[SEARCH] = search
        work.set_meta(backend=settings)
        _copy_encoder(folder, output)
        publish(output, work, files)
    return EntityIndex.open(output)


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
