"""The vectors of an index, mapped from their file."""

import os
import weakref
from pathlib import Path
from typing import Any, Iterable, Tuple

import numpy as np

from ..types import Array
from .connections import Damaged

# how a file may store its vectors: float16 takes half the space
DTYPES = ("float32", "float16")


class Vectors:
    """(entities, width) float32 or float16, the same pages for all processes.

    array (Array): All of them, mapped, as they are stored.
    """

    def __init__(self, path: Path) -> None:
        """Map a file and check its header."""
        try:
            mapped: Any = np.lib.format.open_memmap(path, mode="r")
        except OSError:
            raise
        except Exception:  # a header that is none is parsed as Python, which may fail in any way
            mapped = np.zeros(0)
        is_fitting = mapped.ndim == 2 and mapped.dtype in DTYPES and mapped.flags.c_contiguous
        if not is_fitting or mapped.offset + mapped.nbytes != path.stat().st_size:
            raise Damaged(path, "does not begin as a file of vectors does")
        self.array: Array = mapped.view(np.ndarray)  # quicker than a `memmap`
        self._first = mapped.offset
        self._file = -1
        if hasattr(os, "pread"):
            self._file = os.open(path, os.O_RDONLY)
            weakref.finalize(self, os.close, self._file)

    def take(self, rows: Array) -> Array:
        """Read a few vectors through the cache of the system, which all processes share. Every page that is
        read through the mapping, and those around it, would count as memory of the process from then on.

        RETURNS (Array): (*rows.shape, width) float32, the vectors of rows; any one for -1.
        """
        if self._file < 0:
            return self.array[rows].astype("float32", copy=False)
        size = self.array.itemsize * self.array.shape[1]
        begins = (self._first + size * np.maximum(rows, 0).ravel()).tolist()
        read, file_ = os.pread, self._file
        data = b"".join([read(file_, size, begin) for begin in begins])
        vectors = np.frombuffer(data, dtype=self.array.dtype).reshape(*rows.shape, self.array.shape[1])
        return vectors.astype("float32", copy=False)


def write_vectors(path: Path, shape: Tuple[int, int], chunks: Iterable[Array], *, dtype: str) -> None:
    """Write vectors piece by piece: those of large catalogues are more than fits into memory."""
    stored = np.dtype(dtype).newbyteorder("<")
    with path.open("wb") as file_:
        header = {"descr": stored.str, "fortran_order": False, "shape": shape}
        np.lib.format.write_array_header_1_0(file_, header)
        for chunk in chunks:
            file_.write(np.ascontiguousarray(chunk, dtype=stored).data)
