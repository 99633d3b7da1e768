"""How many threads the libraries work in: the one place where that is set.

The rule: torch's number is everyone's. It is what `OMP_NUM_THREADS` says or, without it, the number of
physical cores; a worker of `nlp.pipe(n_process=...)` has one. FAISS and NumPy's BLAS, which would take
all logical cores each, are given the same number, and sessions of ONNX Runtime ask torch for it.
"""

import multiprocessing
import os
import threading
from functools import lru_cache

import torch
from threadpoolctl import ThreadpoolController

# process and number of threads for which a thread was settled: OpenMP counts for each thread by itself
_settled = threading.local()
# the process that was settled last: this one, or one that it was forked from
_process = {"id": 0}


def settle_threads() -> None:
    """Give all libraries the number of threads that torch has, or one in a worker process.

    Whatever computes calls this first. It costs a comparison, unless the process is new or torch's number
    has changed.
    """
    if getattr(_settled, "state", None) == (os.getpid(), torch.get_num_threads()):
        return
    is_new = _process["id"] != os.getpid()
    set_threads(1 if is_new and _is_worker() else torch.get_num_threads())
    if not _process["id"] and hasattr(os, "register_at_fork"):
        # a forked process has the memory of its parent, but not its threads. An OpenMP library that counts on
        # them waits for ever, and the first to use one may be a component that does not call this function
        os.register_at_fork(after_in_child=settle_threads)
    _process["id"] = os.getpid()
    _settled.state = (os.getpid(), torch.get_num_threads())


def set_threads(count: int = 1) -> None:
    """Let torch, FAISS and BLAS work in so many threads."""
    torch.set_num_threads(count)
    _libraries().limit(limits=count)
    if count == 1:
        # tokenizers have threads of their own and count them by themselves: all cores, or none
        os.environ["TOKENIZERS_PARALLELISM"] = "false"


@lru_cache(maxsize=1)
def _libraries() -> ThreadpoolController:
    """RETURNS (ThreadpoolController): The OpenMP and BLAS libraries that are loaded when it is first called;
    NumPy and FAISS are by then.
    """
    return ThreadpoolController()


def _is_worker() -> bool:
    """RETURNS (bool): Whether another process started this one to share its work."""
    return _process["id"] != 0 or multiprocessing.parent_process() is not None
