"""Start the server: one process, or several that share a socket."""

import os
import signal
import socket
import sys
from contextlib import contextmanager
from importlib.util import find_spec
from typing import Any, Dict, Iterator, List

from ..errors import ELQError, Errors
from .log import LOG_CONFIG
from .metrics import share_metrics
from .settings import NOT_STARTED, ServeSettings

_NEEDED = ("fastapi", "uvicorn", "prometheus_client")
_WORKER = "spacy_elq.serve.app:create_worker"


def serve(settings: ServeSettings, *, host: str, port: int, workers: int) -> None:
    """Serve a pipeline until the process is told to end. SIGTERM finishes what is under way.

    settings (ServeSettings): The settings.
    host, port (str, int): Where it listens.
    workers (int): Processes. One that dies is started again.
    """
    missing = [name for name in _NEEDED if find_spec(name) is None]
    if missing:
        raise ELQError(Errors.E204.format(missing=missing[0]))
    import uvicorn
    from uvicorn.supervisors import Multiprocess

    settings.to_environment()
    for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ[variable] = str(settings.threads)
    options: Dict[str, Any] = {
        "host": host,
        "port": port,
        "workers": workers,
        "log_config": LOG_CONFIG,
        "access_log": False,
        "server_header": False,
        "date_header": False,
        "timeout_keep_alive": 30,
        # what is under way may take its whole time
        "timeout_graceful_shutdown": int(settings.timeout) + 5,
        # a worker that loads a large index is not dead
        "timeout_worker_healthcheck": 20,
    }
    if workers == 1:
        from .app import create_app

        config = uvicorn.Config(create_app(settings), **options)
        _end_properly()
        with listening(config) as sockets:
            uvicorn.Server(config).run(sockets=sockets)
    else:
        config = uvicorn.Config(_WORKER, factory=True, **options)
        _end_properly()
        with share_metrics(), listening(config) as sockets:
            supervisor = Multiprocess(config, sockets=sockets)
            supervisor.run()
        if any(process.exitcode == NOT_STARTED for process in supervisor.processes):
            sys.exit(NOT_STARTED)


def _end_properly() -> None:
    """Let SIGTERM be an end like any other: uvicorn finishes what is under way, then raises it again."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))


@contextmanager
def listening(config: Any) -> Iterator[List[socket.socket]]:
    """Bind the socket that the workers share. Its connections send at once: uvicorn writes the head and the
    body of an answer apart, and the kernel would hold the body back for 40 ms, until the head has arrived.
    """
    with config.bind_socket() as sock:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        yield [sock]
