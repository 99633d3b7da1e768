"""Finished parts of a result: files in a folder that all workers see, local or of any file system of fsspec.

A part has its name from what it was made of, and gets it when it is complete. Whoever is killed leaves parts
that are as good as any, and files without such a name, which nobody reads.
"""

import hashlib
import json
import secrets
import shutil
import socket
import tempfile
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Collection, Iterator, Set, Tuple

import fsspec
from fsspec.core import url_to_fs

from ..errors import ELQError, Errors
from ..files import describe
from ..index.encode import MARK, PART

_MARK_TEXT = b"Unfinished work of `spacy elq`: the same command goes on with it and removes it at the end.\n"


def is_url(path: str) -> bool:
    """RETURNS (bool): Whether a path is one of fsspec, such as s3://bucket/folder; local paths are not."""
    return "://" in path


def open_files(path: str) -> Tuple[fsspec.AbstractFileSystem, str]:
    """RETURNS (Tuple[fsspec.AbstractFileSystem, str]): The file system of a path, and the path in it.
    RAISES (ELQError): If there is none, or its driver is not installed.
    """
    try:
        return url_to_fs(path)
    except (ImportError, ValueError) as err:
        raise ELQError(Errors.E227.format(path=path, problem=describe(err))) from None


@contextmanager
def fetched(path: str) -> Iterator[Path]:
    """Have a file on this machine for a while.

    path (str): Local, or a URL, of which a copy is made that goes in the end.
    YIELDS (Path): Where it is.
    """
    if not is_url(path):
        yield Path(path)
        return
    files, place = open_files(path)
    with tempfile.TemporaryDirectory(prefix="spacy-elq-") as folder, reaching(path):
        local = Path(folder) / place.rpartition("/")[2]
        with files.open(place, "rb") as source, local.open("wb") as target:
            shutil.copyfileobj(source, target)
        yield local


@contextmanager
def reaching(path: str) -> Iterator[None]:
    """Say which path could not be read or written, where a file system raises what it likes.

    RAISES (ELQError): For anything but an error of ours.
    """
    try:
        yield
    except ELQError:
        raise
    except Exception as err:  # of whichever library talks to the store
        raise ELQError(Errors.E227.format(path=path, problem=describe(err))) from err


@contextmanager
def replacing(path: str) -> Iterator[Any]:
    """Write a file of any file system, which takes the place of another only when it is complete.

    YIELDS (IO[bytes]): What to write to.
    """
    files, place = open_files(path)
    new = f"{place}.{secrets.token_hex(4)}"
    with reaching(path):
        files.makedirs(files._parent(place), exist_ok=True)
        try:
            with files.open(new, "wb") as file_:
                yield file_
            files.mv(new, place)
        except BaseException:
            with suppress(Exception):  # it may not be there
                files.rm_file(new)
            raise


def upload(folder: Path, url: str, *, last: str) -> None:
    """Copy the files of a folder to another file system.

    last (str): The name of the file that says what the others are: whoever sees it finds them.
    """
    names = sorted(path.name for path in folder.iterdir() if path.is_file() and path.name[0] != ".")
    for name in [*(name for name in names if name != last), last]:
        with (folder / name).open("rb") as source, replacing(f"{url}/{name}") as target:
            shutil.copyfileobj(source, target)


def digest(*values: Any) -> str:
    """RETURNS (str): 16 hexadecimal digits that depend on all of the values, which are plain."""
    text = json.dumps(values, sort_keys=True, default=str)
    return hashlib.blake2b(text.encode("utf8"), digest_size=8).hexdigest()


def part_name(number: int, stamp: str, suffix: str) -> str:
    """RETURNS (str): The name of a part.

    number (int): Its place among the others.
    stamp (str): What `digest` says of all that it is made of.
    """
    return f"part-{number:012d}-{stamp}.{suffix}"


class Parts:
    """The parts of one result, in a folder of their own."""

    def __init__(self, url: str) -> None:
        """Nothing is made yet.

        url (str): The folder, local or of fsspec.
        """
        self.url = url
        self._files, self._root = open_files(url)

    def __reduce__(self) -> Any:
        """A worker opens the same folder."""
        return Parts, (self.url,)

    def claim(self) -> None:
        """Make the folder and mark it as one of unfinished work, unless it is.

        RAISES (ELQError): If somebody else's files are in it.
        """
        with reaching(self.url):
            self._files.makedirs(self._root, exist_ok=True)
            found = self._list()
            if MARK not in found:
                if found:
                    problem = f"it has other files than unfinished work ({sorted(found)[0]})"
                    raise ELQError(Errors.E227.format(path=self.url, problem=problem))
                self._files.pipe_file(self._path(MARK), _MARK_TEXT)

    def check(self) -> None:
        """Check, in a worker, that the folder is the one that the command has claimed.

        RAISES (ELQError): If it is not visible from here.
        """
        with reaching(self.url):
            if not self._files.exists(self._path(MARK)):
                raise not_visible(self.url)

    def names(self) -> Set[str]:
        """RETURNS (Set[str]): The complete parts."""
        with reaching(self.url):
            return {name for name in self._list() if (match := PART.fullmatch(name)) and not match[1]}

    def read(self, name: str) -> bytes:
        """RETURNS (bytes): What is in a part."""
        with reaching(f"{self.url}/{name}"):
            return bytes(self._files.cat_file(self._path(name)))

    def write(self, name: str, data: bytes) -> None:
        """Write a part under another name, and give it its own when it is complete."""
        with replacing(f"{self.url}/{name}") as file_:
            file_.write(data)

    def remove(self, names: Collection[str]) -> None:
        """Remove parts that are not needed any more."""
        with reaching(self.url):
            for name in names:
                self._files.rm_file(self._path(name))

    def drop(self) -> None:
        """Remove all parts, complete or not, and the folder if nothing else is in it."""
        with reaching(self.url):
            found = self._list()
            self.remove([name for name in found if PART.fullmatch(name)])
            if all(name == MARK or PART.fullmatch(name) for name in found):
                self._files.rm(self._root, recursive=True)

    def _list(self) -> Set[str]:
        self._files.invalidate_cache()
        entries = self._files.ls(self._root, detail=False)
        return {str(entry).rstrip("/").rpartition("/")[2] for entry in entries}

    def _path(self, name: str) -> str:
        return f"{self._root}/{name}"


def not_visible(path: str) -> ELQError:
    """RETURNS (ELQError): That a worker does not see a path."""
    return ELQError(Errors.E223.format(path=path, host=socket.gethostname()))


def check_visible(*paths: str) -> None:
    """Check, in a worker, that local files and folders of the command are there as well.

    RAISES (ELQError): If one is not.
    """
    for path in paths:
        if not Path(path).exists():
            raise not_visible(path)
