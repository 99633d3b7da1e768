"""Real servers in processes of their own."""

from pathlib import Path
from typing import Callable, Dict, Iterator, List, Optional

import pytest
from serve_world import Server, start

StartServer = Callable[..., Server]


@pytest.fixture(scope="session")
def start_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StartServer]:
    """Starts `python -m spacy elq serve` with a pipeline and options, on a free port, and waits for it."""
    servers: List[Server] = []

    def start_one(pipeline: Path, *options: object, env: Optional[Dict[str, str]] = None) -> Server:
        log = tmp_path_factory.mktemp("server") / "log"
        servers.append(start(pipeline, *options, log=log, env=env))
        return servers[-1]

    try:
        yield start_one
    finally:
        for server in servers:
            server.stop()


@pytest.fixture(scope="session")
def server(start_server: StartServer, trained_path: Path) -> Server:
    """A server of the small pipeline, with the default options."""
    return start_server(trained_path)
