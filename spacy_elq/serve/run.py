"""Start the server: one process, or several that share a socket."""

import os
import signal
import sys
from importlib.util import find_spec
from typing import Any, Dict

from ..errors import ELQError, Errors
from .log import LOG_CONFIG
from .metrics import share_metrics
from .settings import ServeSettings

_NEEDED = ("fastapi", "uvicorn", "prometheus_client")
_APP = "spacy_elq.serve.app:create_app"


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

    settings.to_environment()
    for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ[variable] = str(settings.threads)
    config: Dict[str, Any] = {
        "factory": True,
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
        "timeout_worker_healthcheck": 300,
    }
    # uvicorn finishes what is under way, then raises the signal again: that is a proper end
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    if workers == 1:
        uvicorn.run(_APP, **config)
        return
    with share_metrics():
        uvicorn.run(_APP, **config)
