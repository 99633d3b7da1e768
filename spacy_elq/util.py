"""How many threads the libraries work in: the one place where that is set.

The rule: torch's number is everyone's. It is what `OMP_NUM_THREADS` says or, without it, the number of
physical cores; a worker of `nlp.pipe(n_process=...)` has one. FAISS and NumPy's BLAS, which would take
all logical cores each, are given the same number, and sessions of ONNX Runtime ask torch for it.
"""

import ctypes
import multiprocessing
import os
import sys
from functools import lru_cache
from pathlib import Path
from typing import Any, List

_SETTERS = {"torch": "set_num_threads", "faiss": "omp_set_num_threads"}
_BLAS_SETTERS = (
    "scipy_openblas_set_num_threads64_",
    "scipy_openblas_set_num_threads",
    "openblas_set_num_threads64_",
    "openblas_set_num_threads",
)


def set_threads(count: int = 1) -> None:
    """Let torch, FAISS and BLAS work in so many threads, as far as they are loaded."""
    for name, setter in _SETTERS.items():
        if name in sys.modules:
            getattr(sys.modules[name], setter)(count)
    for set_blas_threads in _find_blas():
        set_blas_threads(count)
    if count == 1:
        # tokenizers have threads of their own and count them by themselves: all cores, or none
        os.environ["TOKENIZERS_PARALLELISM"] = "false"


def install() -> None:
    """Give all libraries the number of torch, and processes that are started from this one a single thread.

    The workers of `nlp.pipe(n_process=...)` share the cores anyway. Where they are forked, they have the
    memory of their parent, but not its threads: an OpenMP library that counts on them would wait for ever.
    """
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=set_threads)
    if _is_worker():
        set_threads(1)
    elif "torch" in sys.modules:
        set_threads(sys.modules["torch"].get_num_threads())


def _is_worker() -> bool:
    """RETURNS (bool): Whether this process was started by another of multiprocessing. A spawned one knows its
    parent only after it has read what it was given, and that is when this module is imported there.
    """
    process = multiprocessing.current_process()
    return multiprocessing.parent_process() is not None or getattr(process, "_inheriting", False)


@lru_cache(maxsize=1)
def _find_blas() -> List[Any]:
    """RETURNS (List[Any]): What sets the threads of each OpenBLAS that is loaded, NumPy's and FAISS's, where
    the system says which are (Linux).
    """
    maps = Path("/proc/self/maps")
    lines = maps.read_text(encoding="utf8").splitlines() if maps.is_file() else []
    paths = {line.split(maxsplit=5)[-1] for line in lines if "openblas" in line}
    libraries = [ctypes.CDLL(path) for path in sorted(paths)]
    return [getattr(lib, name) for lib in libraries for name in _BLAS_SETTERS if hasattr(lib, name)]
