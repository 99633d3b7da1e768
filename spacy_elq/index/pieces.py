"""Pieces of a large file, read where they stand."""

import mmap
import os
import weakref
from pathlib import Path
from typing import Any, Sequence


class Pieces:
    """Reads pieces of a file through the cache of the system, which all processes share.

    A mapping would give the same bytes, but every page that is read through it, and those around it, count as
    memory of the process from then on.
    """

    def __init__(self, path: Path) -> None:
        """Open the file, or map it where the system cannot read at a place."""
        self._data: Any = None
        if hasattr(os, "pread"):
            self._file = os.open(path, os.O_RDONLY)
            weakref.finalize(self, os.close, self._file)
        else:
            with path.open("rb") as file_:
                self._data = mmap.mmap(file_.fileno(), 0, access=mmap.ACCESS_READ)

    def read(self, begin: int, end: int) -> bytes:
        """RETURNS (bytes): What stands there."""
        return self.read_all([begin], end - begin)

    def read_all(self, begins: Sequence[int], size: int) -> bytes:
        """RETURNS (bytes): What stands at several places, each piece of this size, one behind the other."""
        if self._data is not None:
            return b"".join([self._data[begin : begin + size] for begin in begins])
        read, file_ = os.pread, self._file
        return b"".join([read(file_, size, begin) for begin in begins])
