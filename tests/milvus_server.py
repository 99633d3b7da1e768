"""A Milvus server for tests: the one that the package `milvus` (2.3.5) brings, in an environment of its own.
It would listen on every interface, whatever its config says, so it runs in a network of its own, and what
connects to a port of 127.0.0.1 is passed on to it.

    python -m venv milvus-server
    milvus-server/bin/python -m pip install milvus==2.3.5
    export SPACY_ELQ_MILVUS_PYTHON=milvus-server/bin/python
    python -m pytest -m slow tests/index/test_milvus_server.py
"""

import asyncio
import fcntl
import os
import shutil
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
import urllib.request
from pathlib import Path
from typing import Any, Optional

VARIABLE = "SPACY_ELQ_MILVUS_PYTHON"
HELP = (
    f"needs {VARIABLE}, the Python of an environment with milvus==2.3.5, and `unshare` (Linux): "
    "see tests/milvus_server.py"
)
# inside of the network of the server
_PORT, _HEALTH_PORT = 19530, 9091
_PATIENCE = 600.0
# writes the configuration, unpacks the program, which takes long the first time, then becomes it
_LAUNCH = f"""
import os, sys
from milvus import MilvusServerConfig, _initialize_data_files
folder = sys.argv[1]
config = MilvusServerConfig(data_dir=folder, proxy_port={_PORT})
for part in ("rootCoord", "proxy", "queryCoord", "queryNode", "indexNode", "dataCoord", "dataNode"):
    config.extra_configs[part + ".ip"] = "127.0.0.1"
config.extra_configs["quotaAndLimits.limits.maxCollectionNum"] = 1000
config.resolve()
home = os.path.join(sys.prefix, "milvus-run")
_initialize_data_files(home)
os.environ.update(DEPLOY_MODE="STANDALONE", METRICS_PORT="{_HEALTH_PORT}", MILVUS_RUN_DIR=folder + "/run",
                  LD_LIBRARY_PATH=home + "/bin")
os.chdir(folder)
os.execv(home + "/bin/milvus", ["milvus", "run", "standalone"])
"""


def is_available() -> bool:
    """RETURNS (bool): Whether there is a server to start."""
    python = os.environ.get(VARIABLE, "")
    return bool(python) and Path(python).is_file() and shutil.which("unshare") is not None


class MilvusServer:
    """A server that can be ended, killed and started again over the same data.

    folder (Path): Its data.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self._port = free.getsockname()[1]
        self._process: Optional[subprocess.Popen] = None

    @property
    def uri(self) -> str:
        return f"http://127.0.0.1:{self._port}"

    @property
    def pid(self) -> int:
        """RETURNS (int): The process of Milvus itself."""
        return int((self._folder / "pid").read_text())

    def start(self) -> None:
        """Start it, and wait until it answers."""
        self._folder.mkdir(parents=True, exist_ok=True)
        for name in ("pid", "ready"):
            (self._folder / name).unlink(missing_ok=True)
        with socket.socket() as listener, (self._folder / "log").open("ab") as log:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind(("127.0.0.1", self._port))
            listener.listen(64)
            own = [] if os.getuid() == 0 else ["--map-root-user"]
            self._process = subprocess.Popen(
                ["unshare", "--net", *own, sys.executable, __file__, str(listener.fileno()), self._folder],
                pass_fds=[listener.fileno()],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
            )
        end = time.monotonic() + _PATIENCE
        while not (self._folder / "ready").exists():
            if self._process.poll() is not None or time.monotonic() > end:
                self.stop()
                raise RuntimeError((self._folder / "log").read_text(errors="replace")[-2000:])
            time.sleep(0.2)

    def kill(self) -> None:
        """End it at once, as a power failure would."""
        os.kill(self.pid, signal.SIGKILL)
        self._wait()

    def freeze(self) -> None:
        """Let it accept connections, but answer nothing."""
        os.kill(self.pid, signal.SIGSTOP)

    def thaw(self) -> None:
        os.kill(self.pid, signal.SIGCONT)

    def stop(self) -> None:
        """End it in order."""
        if self._process is not None:
            assert self._process.stdin is not None
            self._process.stdin.close()
            self._wait()

    def _wait(self) -> None:
        assert self._process is not None
        self._process.wait(timeout=60)
        self._process = None


def _bring_up_loopback() -> None:
    """A new network has a loopback interface that is down."""
    with socket.socket() as any_socket:
        flags = struct.pack("16sh14x", b"lo", 0x1 | 0x40)  # IFF_UP, IFF_RUNNING
        fcntl.ioctl(any_socket, 0x8914, flags)  # SIOCSIFFLAGS


async def _pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while data := await reader.read(1 << 16):
            writer.write(data)
            await writer.drain()
    except OSError:
        pass
    finally:
        writer.close()


async def _connect(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        inner = await asyncio.open_connection("127.0.0.1", _PORT)
    except OSError:
        writer.close()
        return
    await asyncio.gather(_pass_on(reader, inner[1]), _pass_on(inner[0], writer))


def _is_healthy() -> bool:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{_HEALTH_PORT}/healthz", timeout=5) as answer:
            return b"OK" in answer.read()
    except OSError:
        return False


async def _serve(listener: socket.socket, folder: Path, server: Any) -> None:
    await asyncio.start_server(_connect, sock=listener)
    while server.poll() is None:
        if not (folder / "ready").exists() and await asyncio.to_thread(_is_healthy):
            (folder / "ready").touch()
        await asyncio.sleep(0.1)


def main() -> None:
    """Run in the new network until Milvus ends, or nobody holds the other end of stdin any more."""
    listener, folder = socket.socket(fileno=int(sys.argv[1])), Path(sys.argv[2])
    _bring_up_loopback()
    server = subprocess.Popen([os.environ[VARIABLE], "-c", _LAUNCH, folder], stdin=subprocess.DEVNULL)
    (folder / "pid").write_text(str(server.pid))

    def end_with_parent() -> None:
        sys.stdin.buffer.read()
        server.terminate()
        try:
            server.wait(timeout=20)
        except subprocess.TimeoutExpired:
            server.kill()

    threading.Thread(target=end_with_parent, daemon=True).start()
    asyncio.run(_serve(listener, folder, server))


if __name__ == "__main__":
    main()
