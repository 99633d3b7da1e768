"""The files of an index beside its database. We name them by what they hold and a number; their sizes and
sums are in the database. The folder may have files of other people, too, whatever their names are: we remove
only those that the database names, or a note that was written before they were made.
"""

import errno
import hashlib
import json
import math
import os
import re
import secrets
import shutil
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import (
    Any,
    Callable,
    Collection,
    Dict,
    Iterable,
    Iterator,
    List,
    Mapping,
    Optional,
    Sequence,
    Set,
    Tuple,
)

from filelock import FileLock, Timeout

from ..errors import ELQError, Errors
from .connections import LOG, TEMPORARY, Busy, Damaged
from .database import DATABASE, Database
from .milvus import is_remote

VECTORS, SEARCH = "vectors.npy", "search.faiss"
# what the files of an index hold, and those of a dictionary of anchors
_OF_ANCHORS = ("anchors", "counts", "begins", "senses", "weights", "inlinks")
# and those of relations
_OF_RELATIONS = (
    *("keys", "exact", "labels", "entities", "degrees", "edges", "firsts", "signatures"),
    *("kinds", "phrases", "pieces"),
)
_ROLES = {VECTORS, SEARCH, *(f"{stem}.npy" for stem in (*_OF_ANCHORS, *_OF_RELATIONS))}
# where an entity encoder that travels with an index is
ENCODER = "encoder"
LOCK, WORK = ".lock", f"{TEMPORARY}work.db"
# the names of files that are being made, or are about to be replaced, one per line
NOTES = f"{TEMPORARY}files"
# settings of back ends whose collections are of no use any more, one per line
COLLECTIONS = f"{TEMPORARY}collections"
# what describes an index, and a dictionary of anchors, in the format of spacy-elq 0.2
OLD_META = "meta.json"
OLD_FORMAT = 2
_OLD_FORMATS = (OLD_FORMAT, "dictionary 1")
_NUMBERED = re.compile(r"[a-z]+-[0-9a-f]{8}\.(npy|faiss)")
_OLD_ROLE = re.compile(r"[a-z]+\.(npy|faiss|jsonl)")
# what SQLite puts beside a database
SQLITE_ENDS = (LOG, "-shm", "-journal")
# where SQLite keeps the number of an application, and ours
_APPLICATION_AT, _APPLICATION = 68, b"ELQ3"
_CHUNK = 1 << 20
# no space, no permission, something else where a file or a folder is expected
_FAILED_WRITES = {
    getattr(errno, name, None)
    for name in [
        "ENOSPC",
        "EDQUOT",
        "EFBIG",
        "EIO",
        "EROFS",
        "EACCES",
        "EPERM",
        "ENOTDIR",
        "EISDIR",
        "EEXIST",
    ]
}


def file_path(folder: Path, role: str, number: int) -> Path:
    """RETURNS (Path): Where a file of an index is.

    role (str): What it holds, such as "vectors.npy".
    """
    stem, _, suffix = role.rpartition(".")
    return folder / f"{stem}-{number:08x}.{suffix}"


def check_is_index(folder: Path) -> None:
    """Check that a folder has an index.

    RAISES (ELQError): If it has none, or one in the old format.
    """
    if not (folder / DATABASE).is_file():
        message = Errors.E032 if (folder / OLD_META).is_file() else Errors.E030
        raise ELQError(message.format(path=folder))


def new_number(folder: Path) -> int:
    """RETURNS (int): A number that no file of the folder has."""
    while True:
        number = secrets.randbits(32)
        if not any(f"{number:08x}" in path.name for path in folder.iterdir()):
            return number


def describe_file(path: Path, number: int) -> Dict[str, Any]:
    """RETURNS (Dict[str, Any]): What the database keeps about a file: number, size and sum. The file is
    on the disk afterwards.
    """
    with path.open("rb") as file_:
        os.fsync(file_.fileno())
    return {"number": number, "bytes": path.stat().st_size, "sum": sum_file(path)}


def sum_file(path: Path) -> str:
    """RETURNS (str): A digest of a file."""
    digest = hashlib.blake2b(digest_size=16)
    with path.open("rb") as file_:
        while chunk := file_.read(_CHUNK):
            digest.update(chunk)
    return digest.hexdigest()


def find_files(database: Database) -> Dict[str, Path]:
    """Find the files that belong to the state of a database that is read.

    RETURNS (Dict[str, Path]): Where they are, by role.
    RAISES (FileNotFoundError): If one is missing, or was replaced just now.
    RAISES (ELQError): If one has another size.
    """
    folder = database.path.parent
    paths = {}
    for role, entry in read_entries(database).items():
        path = paths[role] = file_path(folder, role, entry["number"])
        if path.stat().st_size != entry["bytes"]:
            problem = f"has {path.stat().st_size} bytes instead of {entry['bytes']}"
            raise Damaged(path, problem, Errors.E164 if role == SEARCH else Errors.E031)
    return paths


@contextmanager
def maintaining(folder: Path) -> Iterator[None]:
    """Keep others from making files in a folder meanwhile; a process that is killed keeps nobody.

    RAISES (Busy): If another process does it already.
    RAISES (ELQError): If the folder cannot be written.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with FileLock(folder / LOCK, timeout=0):
            try:
                yield
            except BaseException:
                _remove_if_empty(folder)
                raise
    except Timeout:
        raise Busy(Errors.E163.format(path=folder)) from None
    except OSError as err:
        is_ours = err.filename is None or Path(str(err.filename)).is_relative_to(folder)
        if is_ours and err.errno in _FAILED_WRITES:
            raise ELQError(Errors.E162.format(path=folder, problem=err.strerror)) from None
        raise


def _remove_if_empty(folder: Path) -> None:
    """Remove a folder with nothing in it but the lock that is held."""
    if [path.name for path in folder.iterdir()] == [LOCK]:
        with suppress(OSError):
            (folder / LOCK).unlink()
            folder.rmdir()


def note_files(folder: Path, paths: Iterable[Path]) -> None:
    """Note files that are about to be made, or that the database will not name any more: if this process is
    killed, `drop_unused` knows that they are ours.
    """
    notes = folder / NOTES
    if notes.is_symlink():  # to a file that is none of ours
        notes.unlink()
    with notes.open("a", encoding="utf8") as file_:
        file_.writelines(f"{path.name}\n" for path in paths)


def drop_unused(folder: Path, database: Optional[Database]) -> None:
    """Remove the files that belong to no state of the database any more: those of an earlier one, of an index
    in the old format that it has replaced, or of a process that was killed. Others are not touched.
    """
    used = set() if database is None else {path.name for path in named_files(database).values()}
    old = set() if database is None else _read_old_names(folder)
    for name in sorted((_read_notes(folder) | old) - used):
        (folder / name).unlink(missing_ok=True)
    if old:
        (folder / OLD_META).unlink()
    drop_work(folder)
    (folder / NOTES).unlink(missing_ok=True)


def drop_work(folder: Path) -> None:
    """Remove the databases that are not complete; of a link, only the link goes."""
    for pattern in (f"{WORK}*", f"{TEMPORARY}{DATABASE}*"):
        for path in folder.glob(pattern):
            path.unlink(missing_ok=True)


def _read_notes(folder: Path) -> Set[str]:
    """RETURNS (Set[str]): The names that were noted; the last one may be incomplete and does not count."""
    try:
        lines = (folder / NOTES).read_text(encoding="utf8", errors="replace").splitlines()
    except FileNotFoundError:
        return set()
    return {line for line in lines if _NUMBERED.fullmatch(line)}


def _read_old_names(folder: Path) -> Set[str]:
    """RETURNS (Set[str]): The files that an index or a dictionary in the old format has; none if there is
    only a file of somebody else with the name of its description.
    """
    try:
        meta = json.loads((folder / OLD_META).read_bytes())
        names = {role: entry["name"] for role, entry in meta["files"].items()}
        is_old = meta["format"] in _OLD_FORMATS and isinstance(meta["catalogue"], str)
        is_old = is_old and all(is_old_name(role, name) for role, name in names.items())
    except (OSError, ValueError, LookupError, TypeError, AttributeError, RecursionError):
        return set()
    return set(names.values()) if is_old else set()


def is_old_name(role: str, name: str) -> bool:
    """RETURNS (bool): Whether a file can have this name in the old format."""
    stem, _, suffix = role.rpartition(".")
    return bool(_OLD_ROLE.fullmatch(role) and re.fullmatch(rf"{stem}-[0-9a-f]{{8}}\.{suffix}", name))


def named_files(database: Database) -> Dict[str, Path]:
    """RETURNS (Dict[str, Path]): Where the files of a database should be, by role."""
    files = read_entries(database)
    return {role: file_path(database.path.parent, role, x["number"]) for role, x in files.items()}


def note_collection(folder: Path, settings: Optional[Mapping[str, Any]]) -> None:
    """Note a collection of Milvus that is about to be made, or that the database will not name any more: if
    this process is killed, whoever makes an index here next knows that it is ours.

    settings (Optional[Mapping[str, Any]]): Those of any back end.
    """
    if is_remote(settings):
        with (folder / COLLECTIONS).open("a", encoding="utf8") as file_:
            file_.write(json.dumps(settings) + "\n")


def read_entries(database: Database) -> Dict[str, Dict[str, Any]]:
    """RETURNS (Dict[str, Dict[str, Any]]): What the database says about its files, by role. A database may
    come from anywhere: it must not lead us to other files.
    """
    entries = database.get_meta("files", {})
    if not isinstance(entries, dict):
        raise Damaged(database.path, "has a list of files that is none")
    for role, entry in entries.items():
        if role not in _ROLES or not _is_entry(entry):
            raise Damaged(database.path, f"names a file that is none of ours ({role!r})")
    return entries


def _is_entry(entry: Any) -> bool:
    """RETURNS (bool): Whether it is what `describe_file` returns."""
    if not isinstance(entry, dict) or not isinstance(entry.get("sum"), str):
        return False
    number, size = entry.get("number"), entry.get("bytes")
    return type(number) is int and type(size) is int and 0 <= number < 2**32 and size >= 0


def publish(folder: Path, work: Database, files: Mapping[str, Path]) -> None:
    """Make a database and files that belong together the content of a folder, at once: a reader sees all of
    the old or all of the new, and whoever is killed leaves one of both.

    folder (Path): One that this process is `maintaining`.
    work (Database): A database of its own; whoever made it removes it.
    files (Mapping[str, Path]): By role; they get a second name, or are in the folder under `file_path`.
    """
    target = Database(folder / DATABASE)
    if target.path.is_dir():
        raise ELQError(Errors.E162.format(path=folder, problem=f"{target.path.name} is a folder"))
    is_kept = can_be_read(target) and not target.path.is_symlink()
    number = new_number(folder)
    paths = {role: file_path(folder, role, number) for role in files}
    note_files(folder, [*paths.values(), *(named_files(target).values() if is_kept else ())])
    if is_kept and (before := target.get_meta("backend")) != work.get_meta("backend"):
        note_collection(folder, before)
    for role, path in files.items():
        link_or_copy(path, paths[role])
    work.set_meta(files={role: describe_file(path, number) for role, path in paths.items()})
    work.renew()
    if not is_kept:
        # of a link, only the link goes: where it leads to is another folder
        for end in ("", *SQLITE_ENDS):
            target.path.with_name(f"{DATABASE}{end}").unlink(missing_ok=True)
    target.connections.replace_by(work.connections)
    work.close()
    sync_folder(folder)
    drop_unused(folder, target)
    target.close()


def can_be_read(database: Database) -> bool:
    """RETURNS (bool): Whether a database is one of an index; False if it is damaged, or missing."""
    try:
        named_files(Database.open(database.path))
    except Damaged:
        return False
    finally:
        database.close()
    return True


def is_database(path: Path) -> bool:
    """RETURNS (bool): Whether a file begins as our databases do, even if it is damaged further on."""
    if not path.is_file():
        return False
    with path.open("rb") as file_:
        file_.seek(_APPLICATION_AT)
        return file_.read(len(_APPLICATION)) == _APPLICATION


def sync_folder(folder: Path) -> None:
    """See to it that the names in a folder are on the disk."""
    if hasattr(os, "O_DIRECTORY"):
        handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def allocate(path: Path, size: int) -> None:
    """Make a file as large as it will be, on the disk: writing to it later cannot fail for lack of space.

    RAISES (ELQError): If there is not enough.
    """
    try:
        with path.open("r+b" if path.exists() else "w+b") as file_:
            if hasattr(os, "posix_fallocate"):
                os.posix_fallocate(file_.fileno(), 0, size)
                return
            file_.seek(0, os.SEEK_END)
            while (missing := size - file_.tell()) > 0:
                file_.write(bytes(min(missing, _CHUNK)))
    except OSError as err:
        check_disk(path.parent, size)
        raise ELQError(Errors.E162.format(path=path.parent, problem=err.strerror)) from None


def link_or_copy(source: Path, target: Path) -> None:
    """Give a file a second name, or copy it where the file system has no hard links. Of a link to a file, the
    file gets the name.

    Files of an index are never changed in place, so that both names are safe to use.
    """
    target.unlink(missing_ok=True)
    try:
        os.link(os.path.realpath(source), target)
    except OSError:
        shutil.copyfile(source, target)


def record_place(path: Path, folder: Optional[Path]) -> List[str]:
    """RETURNS (List[str]): Where an index is, from `folder`, so that both can be moved together, and from
    the root.
    """
    here = [] if folder is None else [os.path.relpath(path, folder.absolute())]
    return [*here, str(path)]


def find_place(paths: Sequence[str], folder: Optional[Path], *, message: str, name: str) -> Path:
    """Find an index again.

    paths (Sequence[str]): What `record_place` returned.
    folder (Optional[Path]): Where the folder is now.
    message (str): Template of the error if it is nowhere, with `paths` and the `name` of the component.
    RETURNS (Path): The first of the paths that exists.
    """
    places = [(folder or Path()) / path for path in paths]
    found = next((place for place in places if place.exists()), None)
    if found is None:
        looked = ", ".join(str(place.resolve()) for place in places)
        raise ELQError(message.format(paths=looked, name=name))
    return found.resolve()


def check_disk(folder: Path, needed: int) -> None:
    """Check that there is enough disk space where a folder is, or will be.

    RAISES (ELQError): If there is not.
    """
    free = shutil.disk_usage(_nearest(folder)).free
    if free < needed:
        sizes = {"needed": _in_units(needed, math.ceil), "free": _in_units(free, math.floor)}
        raise ELQError(Errors.E083.format(path=folder, **sizes))


def bytes_to_copy(files: Iterable[Path], folder: Path) -> int:
    """RETURNS (int): How many bytes `link_or_copy` would write to put files into a folder."""
    device = _device(_nearest(folder))
    return sum(path.stat().st_size for path in files if _device(path) != device)


def check_files(database: Database, roles: Optional[Collection[str]] = None) -> List[Tuple[str, str]]:
    """Compare the files of an index with their sums, once more if they were replaced meanwhile.

    roles (Optional[Collection[str]]): Which ones; None for all.
    RETURNS (List[Tuple[str, str]]): The roles of damaged files and what is wrong.
    """
    while True:
        entries = read_entries(database)
        paths = {
            role: file_path(database.path.parent, role, x["number"])
            for role, x in entries.items()
            if roles is None or role in roles
        }
        problems = {role: _find_problem(path, entries[role]) for role, path in paths.items()}
        if not any(problems.values()) or read_entries(database) == entries:
            return [(role, f"{paths[role].name} {x}") for role, x in problems.items() if x is not None]


def _find_problem(path: Path, entry: Mapping[str, Any]) -> Optional[str]:
    """RETURNS (Optional[str]): What is wrong with a file."""
    try:
        size = path.stat().st_size
        if size != entry["bytes"]:
            return f"has {size} bytes instead of {entry['bytes']}"
        return None if sum_file(path) == entry["sum"] else "has other bytes than were written"
    except FileNotFoundError:
        return "is missing"


def sum_folder(folder: Path) -> Dict[str, str]:
    """RETURNS (Dict[str, str]): The digests of the files of a folder, by their relative names."""
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return {path.relative_to(folder).as_posix(): sum_file(path) for path in files}


def _device(path: Path) -> int:
    return path.stat().st_dev


def _nearest(folder: Path) -> Path:
    """RETURNS (Path): The folder, or the first above it that exists."""
    return next(path for path in (folder.absolute(), *folder.absolute().parents) if path.exists())


def _in_units(bytes_: int, rounded: Callable[[float], int]) -> str:
    """RETURNS (str): A size in words, rounded up or down: what is needed never looks like what is free."""
    unit, size = ("MB", 1e6) if bytes_ >= 1e6 else ("KB", 1e3)
    return f"{rounded(bytes_ / size):,} {unit}"
