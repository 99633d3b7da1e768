"""OpenMP threads in worker processes."""

import os
import sys

_SETTERS = {"torch": "set_num_threads", "faiss": "omp_set_num_threads"}


def set_threads(count: int = 1) -> None:
    """Let torch and FAISS work in so many threads, as far as they are loaded."""
    for name, setter in _SETTERS.items():
        if name in sys.modules:
            getattr(sys.modules[name], setter)(count)


def install() -> None:
    """Make `nlp.pipe(n_process=...)` safe where processes are forked.

    A process that was forked has the memory of its parent, but not its threads: an OpenMP library that
    counts on them waits for ever. The workers share the cores anyway, so each of them uses one thread.
    """
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=set_threads)
