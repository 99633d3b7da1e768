"""A process that ends at its n-th file operation, as if it were killed there."""

import os
import shutil
import sqlite3
from pathlib import Path
from typing import Any, Callable

import faiss
import numpy as np

from spacy_elq.index import compact as compact_module

KILLED = 9


class _Counter:
    def __init__(self, last: int) -> None:
        self.left = last

    def tick(self, *_: Any) -> None:
        self.left -= 1
        if self.left == 0:
            os._exit(KILLED)


def run_until(work: Callable[[], Any], operation: int) -> bool:
    """Run something in a forked process that is ended at an operation.

    RETURNS (bool): Whether it came to its end before.
    """
    child = os.fork()
    if not child:
        code = 1
        try:
            _watch(_Counter(operation))
            work()
            code = 0
        except BaseException as err:
            import traceback

            traceback.print_exception(err)
        finally:
            os._exit(code)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    assert code in (0, KILLED), code
    return code == 0


def _watch(counter: _Counter) -> None:
    """Count the operations of this process, before and after each. It is never undone: the process ends."""
    for owner, name in (
        (os, "replace"),
        (os, "link"),
        (os, "fsync"),
        (os, "rename"),
        (os, "posix_fallocate"),
        (Path, "unlink"),
        (Path, "rename"),
        (np.memmap, "flush"),
        (shutil, "copyfile"),
    ):
        setattr(owner, name, _around(getattr(owner, name), counter))
    shutil.rmtree = _torn_rmtree(shutil.rmtree, counter)  # type: ignore[assignment]
    faiss.write_index = _torn_write(faiss.write_index, counter)
    compact_module.write_vectors = _torn_vectors(compact_module.write_vectors, counter)  # type: ignore[assignment]
    sqlite3.connect = _connect(sqlite3.connect, counter)  # type: ignore[assignment]


def _around(function: Callable[..., Any], counter: _Counter) -> Callable[..., Any]:
    def watched(*args: Any, **kwargs: Any) -> Any:
        counter.tick()
        result = function(*args, **kwargs)
        counter.tick()
        return result

    return watched


def _torn_rmtree(function: Callable[..., Any], counter: _Counter) -> Callable[..., Any]:
    def watched(path: Any, **kwargs: Any) -> None:
        for file_ in sorted(Path(path).rglob("*")):
            os.remove(file_)
            counter.tick()
        function(path, **kwargs)
        counter.tick()

    return watched


def _torn_write(function: Callable[..., Any], counter: _Counter) -> Callable[..., Any]:
    def watched(index: Any, path: str) -> None:
        Path(path).write_bytes(b"half")
        counter.tick()
        function(index, path)
        counter.tick()

    return watched


def _torn_vectors(function: Callable[..., Any], counter: _Counter) -> Callable[..., Any]:
    def watched(path: Path, shape: Any, chunks: Any, **kwargs: Any) -> None:
        path.write_bytes(b"half")
        counter.tick()
        function(path, shape, chunks, **kwargs)
        counter.tick()

    return watched


def _connect(function: Callable[..., Any], counter: _Counter) -> Callable[..., Any]:
    class Watched(sqlite3.Connection):
        def execute(self, statement: str, *args: Any) -> Any:
            is_turn = statement.startswith(("COMMIT", "PRAGMA wal_checkpoint", "PRAGMA journal_mode"))
            if is_turn:
                counter.tick()
            result = super().execute(statement, *args)
            if is_turn:
                counter.tick()
            return result

        def backup(self, *args: Any, **kwargs: Any) -> None:
            counter.tick()
            super().backup(*args, **kwargs, pages=2, progress=counter.tick)
            counter.tick()

    def watched(*args: Any, **kwargs: Any) -> Any:
        return function(*args, **kwargs, factory=Watched)

    return watched
