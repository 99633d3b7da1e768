"""Actors on a Ray cluster: the one place that knows Ray.

Jobs are given out one at a time, to whoever is free: an actor that ends, with its node or by itself, takes
nothing along but its job, which another gets. Ray Data would bind jobs to actors, and wait for ever for the
room of a node that does not come back.
"""

import os
import secrets
import socket
import time
from collections import deque
from contextlib import contextmanager, nullcontext, suppress
from importlib.util import find_spec
from typing import Any, Callable, Deque, Dict, Iterable, Iterator, List, NamedTuple, Optional

from ..errors import ELQError, Errors
from ..files import describe
from ..util import set_threads

LOCAL, AUTO = "local", "auto"
_TOKEN, _MODE = "RAY_AUTH_TOKEN", "RAY_AUTH_MODE"
# whether other machines may join; without, Ray listens to this machine only
_OTHERS = "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"
# bytes for what is on its way between processes, on a cluster of our own
_STORE = 200_000_000
# seconds: for an answer of the cluster, between two looks at it, and without any actor that works
_ANSWER, _LOOK, PATIENCE = 10.0, 1.0, 120.0
# how many workers may end over one job
TRIES = 3
# what an actor does before its first job
_HELLO, _PREPARE = object(), object()
_NOTHING = object()


class Actor:
    """What runs on the cluster: a worker, one thread, one job at a time."""

    def __init__(self) -> None:
        """There is no worker yet: what goes wrong when it is made is told by `prepare`."""
        self._worker: Optional[Callable[[Any], Any]] = None

    def hello(self) -> int:
        """RETURNS (int): The process: there was room for it."""
        return os.getpid()

    def prepare(self, make_worker: Callable[[], Callable[[Any], Any]]) -> None:
        """Make the worker."""
        set_threads(1)
        self._worker = make_worker()

    def work(self, job: Any) -> Any:
        """RETURNS (Any): What the worker says about a job."""
        assert self._worker is not None
        return self._worker(job)


class _Task(NamedTuple):
    """What an actor is doing: a job, or getting ready for one."""

    actor: Any
    job: Any

    @property
    def is_job(self) -> bool:
        """RETURNS (bool): Whether it is a job."""
        return self.job is not _HELLO and self.job is not _PREPARE


@contextmanager
def connected(address: str, count: Optional[int] = None) -> Iterator["Cluster"]:
    """Be connected to a cluster for a while.

    address (str): "host:port", "auto" for the cluster that this machine is a node of, or "local" for one that
        is started on this machine and ends with the work.
    count (Optional[int]): Actors, each with one CPU; None for all CPUs.
    YIELDS (Cluster): The cluster.
    RAISES (ELQError): If Ray is not installed, the cluster cannot be reached, or has fewer CPUs.
    """
    if find_spec("ray") is None:
        raise ELQError(Errors.E220)
    if address not in (LOCAL, AUTO):
        _check_address(address)
    with _own_environment() if address == LOCAL else nullcontext():
        import ray

        try:
            ray.init(**_options(address))
        except Exception as err:  # Ray and its transport raise anything
            raise ELQError(Errors.E221.format(address=address, problem=describe(err))) from err
        try:
            yield Cluster(count)
        finally:
            ray.shutdown()


def _options(address: str) -> Dict[str, Any]:
    """RETURNS (Dict[str, Any]): The arguments of `ray.init`."""
    options: Dict[str, Any] = {"address": address, "log_to_driver": False, "logging_level": "ERROR"}
    if address == LOCAL:
        options.update(include_dashboard=False, object_store_memory=_STORE)
    return options


def _check_address(address: str) -> None:
    """Check that somebody listens: Ray would try for minutes.

    RAISES (ELQError): If nobody does.
    """
    host, _, port = address.rpartition("://")[2].rpartition(":")
    try:
        socket.create_connection((host, int(port)), timeout=_ANSWER).close()
    except (OSError, ValueError, OverflowError) as err:
        raise ELQError(Errors.E221.format(address=address, problem=describe(err))) from None


@contextmanager
def _own_environment() -> Iterator[None]:
    """Give a cluster of our own a token that goes with it, and keep it to this machine. Ray would write a
    token to the home folder, which every cluster that is started later would demand.
    """
    before = {name: os.environ.get(name) for name in (_TOKEN, _MODE, _OTHERS)}
    os.environ.setdefault(_OTHERS, "0")
    if before[_TOKEN] is None and before[_MODE] is None:
        os.environ[_TOKEN] = secrets.token_hex(32)
    try:
        yield
    finally:
        for name, value in before.items():  # Ray sets the mode
            os.environ.pop(name, None)
            os.environ.update({} if value is None else {name: value})


class Cluster:
    """A cluster that this process is connected to."""

    def __init__(self, count: Optional[int]) -> None:
        """Check that it is large enough.

        count (Optional[int]): Actors; None for all CPUs.
        RAISES (ELQError): If there are fewer CPUs: Ray would wait for them for ever.
        """
        import ray

        self._ray = ray
        cpus = int(ray.cluster_resources().get("CPU", 0))
        self.count = cpus if count is None else count
        if not 1 <= self.count <= cpus:
            raise ELQError(Errors.E222.format(count=self.count, cpus=cpus, nodes=len(ray.nodes())))

    def run(self, make_worker: Callable[[], Callable[[Any], Any]], jobs: Iterable[Any]) -> Iterator[Any]:
        """Give jobs to actors.

        make_worker (Callable[[], Callable[[Any], Any]]): Makes what does a job, in each actor.
        jobs (Iterable[Any]): Taken one by one, when an actor is free.
        YIELDS (Any): What the worker returned for each, in the order in which they were done.
        RAISES (ELQError): If workers cannot be made, or end again and again.
        """
        run = _Run(self._ray, make_worker, iter(jobs), self.count)
        try:
            yield from run.results()
        finally:
            run.end()


class _Run:
    """Jobs, actors, and who has which."""

    def __init__(self, ray: Any, make_worker: Any, jobs: Iterator[Any], count: int) -> None:
        self._ray = ray
        self._count = count
        self._class = ray.remote(num_cpus=1, max_restarts=0)(Actor)
        # sent once, however large
        self._make_worker = ray.put(make_worker)
        self._jobs = jobs
        self._are_more = True
        self._again: Deque[Any] = deque()
        # how many actors have ended over a job, by its number; and before their first, one after the other
        self._ended: Dict[int, int] = {}
        self._not_ready = 0
        self._tasks: Dict[Any, _Task] = {}

    def results(self) -> Iterator[Any]:
        """YIELDS (Any): What was done last."""
        for _ in range(self._count):
            self._start()
        seen = time.monotonic()
        while not self._is_finished():
            done, _ = self._ray.wait(list(self._tasks), timeout=_LOOK)
            if done or any(task.job is not _HELLO for task in self._tasks.values()):
                seen = time.monotonic()
            elif time.monotonic() - seen > PATIENCE:
                raise ELQError(Errors.E225.format(seconds=round(PATIENCE), **self._count_cpus()))
            for ref in done:
                yield from self._finish(ref, self._tasks.pop(ref))

    def end(self) -> None:
        """End all actors."""
        for task in self._tasks.values():
            self._kill(task.actor)

    def _is_finished(self) -> bool:
        """RETURNS (bool): Whether all jobs are done; an actor that waits for room does not count."""
        return not self._are_more and not self._again and not any(x.is_job for x in self._tasks.values())

    def _start(self) -> None:
        """Have one more actor, as soon as there is room for it."""
        actor = self._class.remote()
        self._tasks[actor.hello.remote()] = _Task(actor, _HELLO)

    def _finish(self, ref: Any, task: _Task) -> List[Any]:
        """Let an actor go on, or give its job to another if it has ended.

        RETURNS (List[Any]): The result, if there is one.
        """
        try:
            result = self._ray.get(ref)
        except self._ray.exceptions.RayTaskError as err:
            raise _own_error(err, is_job=task.is_job) from err
        except self._ray.exceptions.RayError as err:
            self._replace(task, err)
            return []
        if task.job is _HELLO:
            self._tasks[task.actor.prepare.remote(self._make_worker)] = _Task(task.actor, _PREPARE)
            return []
        self._not_ready = 0
        self._give(task.actor)
        return [result] if task.is_job else []

    def _give(self, actor: Any) -> None:
        """Give an actor its next job; without one, it makes room for others."""
        job = self._again.popleft() if self._again else next(self._jobs, _NOTHING)
        if job is _NOTHING:
            self._are_more = False
            self._kill(actor)
        else:
            self._tasks[actor.work.remote(job)] = _Task(actor, job)

    def _replace(self, task: _Task, err: BaseException) -> None:
        """Put an actor in the place of one that has ended, and its job in front of the others."""
        self._kill(task.actor)
        if task.is_job:
            number = task.job.number
            self._ended[number] = self._ended.get(number, 0) + 1
            _check_ended(self._ended[number], TRIES, f"with part {number}", err)
            self._again.append(task.job)
        else:
            # a node takes all of its actors along
            self._not_ready += 1
            _check_ended(self._not_ready, TRIES * self._count, "before the first part", err)
        self._start()

    def _kill(self, actor: Any) -> None:
        with suppress(Exception):  # it may have ended
            self._ray.kill(actor)

    def _count_cpus(self) -> Dict[str, int]:
        """RETURNS (Dict[str, int]): How many CPUs are free, and how many there are."""
        resources = {"free": self._ray.available_resources(), "cpus": self._ray.cluster_resources()}
        return {key: int(own.get("CPU", 0)) for key, own in resources.items()}


def _check_ended(count: int, limit: int, job: str, err: BaseException) -> None:
    """Check that there is hope for another actor.

    RAISES (ELQError): If as many have ended as may.
    """
    if count >= limit:
        raise ELQError(Errors.E226.format(tries=count, job=job, problem=describe(err)))


def _own_error(err: Any, *, is_job: bool) -> BaseException:
    """RETURNS (BaseException): What was raised in a worker, as it would have been raised here."""
    cause = err.cause if isinstance(err.cause, BaseException) else err
    if isinstance(cause, ELQError):
        return ELQError(str(cause))
    return cause if is_job else ELQError(Errors.E224.format(problem=describe(cause)))
