"""Who does the work: this process, or actors on Ray. Both take the same jobs and give the same results."""

from contextlib import contextmanager
from typing import Any, Callable, Iterable, Iterator, Optional

from ..errors import ELQError, Errors
from .cluster import connected

# does a job; made where the work is done
Worker = Callable[[Any], Any]
# makes a worker and gives it jobs; yields the results, in any order
Run = Callable[[Callable[[], Worker], Iterable[Any]], Iterator[Any]]


def run_here(make_worker: Callable[[], Worker], jobs: Iterable[Any]) -> Iterator[Any]:
    """Do jobs in this process.

    YIELDS (Any): What the worker returned for each.
    """
    yield from map(make_worker(), jobs)


@contextmanager
def workers(address: Optional[str], count: Optional[int], *, output: str) -> Iterator[Run]:
    """Have workers for a while.

    address (Optional[str]): Of a Ray cluster, "local" for one on this machine, or None for this process.
    count (Optional[int]): Actors; None for as many as the cluster has CPUs.
    output (str): What they write, for messages.
    YIELDS (Run): What gives them jobs.
    RAISES (ELQError): For several without Ray: processes write to local folders, by another way.
    """
    if address is None:
        if (count or 1) > 1:
            problem = f"several processes write to local folders only, use --ray local -p {count}"
            raise ELQError(Errors.E227.format(path=output, problem=problem))
        yield run_here
        return
    with connected(address, count) as cluster:
        yield cluster.run
