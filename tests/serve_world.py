"""Servers in processes of their own, for tests."""

import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from dataclasses import dataclass
from pathlib import Path
from typing import Dict, Optional

import pytest

# seconds
_START = 120
_END = 10


@dataclass
class Server:
    """A server that runs: where it is, its process, and the file with its log."""

    url: str
    process: subprocess.Popen
    log: Path

    def stop(self) -> int:
        """End the process, gently at first. RETURNS (int): Its exit code."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(_END)
            except subprocess.TimeoutExpired:
                os.killpg(self.process.pid, signal.SIGKILL)  # with its workers
        return self.process.wait(_END)


def start(pipeline: Path, *options: object, log: Path, env: Optional[Dict[str, str]] = None) -> Server:
    """RETURNS (Server): `python -m spacy elq serve` with a pipeline and options on a free port, once it is
    ready.

    log (Path): The file for its log.
    """
    port = _find_port()
    command = [sys.executable, "-m", "spacy", "elq", "serve", pipeline, "--port", port, *options]
    with log.open("wb") as file_:
        process = subprocess.Popen(
            list(map(str, command)),
            stdin=subprocess.DEVNULL,
            stdout=file_,
            stderr=subprocess.STDOUT,
            env={**os.environ, **(env or {})},
            start_new_session=True,
        )
    server = Server(f"http://127.0.0.1:{port}", process, log)
    _wait_until_ready(server)
    return server


def _find_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


def _wait_until_ready(server: Server) -> None:
    deadline = time.monotonic() + _START
    while time.monotonic() < deadline:
        if server.process.poll() is not None:
            break
        try:
            with urllib.request.urlopen(f"{server.url}/ready", timeout=5):
                return
        except (urllib.error.URLError, OSError):
            time.sleep(0.1)
    server.stop()
    pytest.fail(f"The server did not start:\n{server.log.read_text(encoding='utf8')[-3000:]}")
