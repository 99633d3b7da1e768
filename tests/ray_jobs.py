"""Jobs on a cluster that go wrong: `python ray_jobs.py ADDRESS KIND`."""

import os
import sys
from typing import Any, Callable, NamedTuple

from spacy_elq.distributed import cluster
from spacy_elq.distributed.cluster import connected
from spacy_elq.errors import ELQError


class Job(NamedTuple):
    """A job. Its number says what becomes of it."""

    number: int


def make(kind: str) -> Callable[[Any], Any]:
    """RETURNS (Callable[[Any], Any]): A worker to which something happens at job 2."""
    if kind == "no":
        raise ModuleNotFoundError("No module named 'spacy_elq'")

    def work(job: Job) -> int:
        if job.number == 2 and kind == "die":
            os._exit(1)
        if job.number == 2 and kind == "fail":
            raise ZeroDivisionError
        if job.number == 2 and kind == "refuse":
            raise ELQError("E000 refused")
        return job.number

    return work


def main(address: str, kind: str) -> None:
    """Run the jobs."""
    from functools import partial

    import ray_jobs

    jobs = [ray_jobs.Job(i) for i in range(5)]
    with connected(address, 2) as own:
        if kind == "crowd":
            crowd(own, jobs)
        list(own.run(partial(ray_jobs.make, kind), jobs))


def crowd(own: Any, jobs: Any) -> None:
    """Take all CPUs, then ask for more."""
    from functools import partial

    import ray_jobs

    cluster.PATIENCE = 5.0
    first = own.run(partial(ray_jobs.make, "none"), iter([jobs[0], *jobs]))
    next(first)
    second = own.run(partial(ray_jobs.make, "none"), jobs)
    list(second)


if __name__ == "__main__":
    main(*sys.argv[1:])
