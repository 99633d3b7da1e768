"""A cluster of two nodes on this machine, in processes of our own, and commands that use it."""

import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Callable, Dict, List, Tuple

from spacy_elq.distributed.encode import encode_parts
from spacy_elq.model.entity_encoder import EntityEncoder

# Ray takes 127.0.0.1 for a machine that others cannot reach, and listens on its public address instead
HOST = "127.0.0.2"
STORE = 100_000_000
# seconds
_START, _WAIT = 240, 300
HERE = Path(__file__).parent


def session_of(pid: int) -> int:
    """RETURNS (int): The session of a process, 0 if it has ended."""
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[3])
    except (OSError, IndexError):
        return 0


def processes_of(session: int) -> List[int]:
    """RETURNS (List[int]): The processes of a session."""
    return [pid for pid in map(int, filter(str.isdigit, os.listdir("/proc"))) if session_of(pid) == session]


def wait_until(is_true: Callable[[], object], what: str, *, seconds: float = _WAIT) -> None:
    """Wait for something, but not for ever."""
    end = time.monotonic() + seconds
    while not is_true():
        assert time.monotonic() < end, f"{what}: not within {seconds} seconds"
        time.sleep(0.05)


@dataclass
class Node:
    """A node of a cluster: its processes are a session."""

    process: subprocess.Popen

    def kill(self) -> None:
        """End all its processes at once, as a power cut would."""
        for _ in range(2):  # one may have started another meanwhile
            for pid in processes_of(self.process.pid):
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
        self.process.wait(_WAIT)


@dataclass
class RayCluster:
    """A cluster on a port of its own, with a temporary folder and a token of its own."""

    folder: Path
    port: int
    environment: Dict[str, str]
    nodes: List[Node] = field(default_factory=list)

    @property
    def address(self) -> str:
        """RETURNS (str): What to give to --ray."""
        return f"{HOST}:{self.port}"

    def start_node(self) -> Node:
        """RETURNS (Node): One more, with one CPU, once it is ready. The first is the head."""
        head = ["--head", "--port", self.port, "--temp-dir", self.folder / "ray", "--include-dashboard=false"]
        options = [*(["--address", self.address] if self.nodes else head), "--node-ip-address", HOST]
        options += ["--num-cpus", 1, "--object-store-memory", STORE, "--block"]
        log = self.folder / f"node-{len(self.nodes)}.log"
        command = [sys.executable, "-m", "ray.scripts.scripts", "start", *map(str, options)]
        with log.open("wb") as file_:
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=file_,
                stderr=subprocess.STDOUT,
                env=self.environment,
                start_new_session=True,
            )
        self.nodes.append(Node(process))
        started = "Ray runtime started"
        wait_until(
            lambda: started in log.read_text() or process.poll() is not None, "ray start", seconds=_START
        )
        assert started in log.read_text(), log.read_text()
        return self.nodes[-1]

    def run(self, *words: object, log: Path) -> subprocess.Popen:
        """RETURNS (subprocess.Popen): Python with these arguments, in the environment of the cluster."""
        with log.open("wb") as file_:
            return subprocess.Popen(
                [sys.executable, *map(str, words)],
                stdin=subprocess.DEVNULL,
                stdout=file_,
                stderr=subprocess.STDOUT,
                env=self.environment,
                start_new_session=True,
            )

    def stop(self) -> None:
        """End all nodes and remove the folder."""
        for node in reversed(self.nodes):
            node.kill()
        shutil.rmtree(self.folder, ignore_errors=True)


def start_cluster() -> RayCluster:
    """RETURNS (RayCluster): One of two nodes with one CPU each."""
    # the names of sockets are short
    folder = Path(tempfile.mkdtemp(prefix="elq-", dir="/tmp"))
    with socket.socket() as sock:
        sock.bind((HOST, 0))
        port = sock.getsockname()[1]
    environment = {
        **os.environ,
        "RAY_AUTH_MODE": "token",
        "RAY_AUTH_TOKEN": secrets.token_hex(32),
        "RAY_USAGE_STATS_ENABLED": "0",
        "OMP_NUM_THREADS": "1",
        # workers unpickle what is in this folder
        "PYTHONPATH": f"{HERE}{os.pathsep}{os.environ.get('PYTHONPATH', '')}",
    }
    cluster = RayCluster(folder, port, environment)
    try:
        cluster.start_node()
        cluster.start_node()
    except BaseException:
        cluster.stop()
        raise
    return cluster


class SlowEncoder:
    """The real encoder, which notes each shard that it begins, and takes its time."""

    def __init__(self, folder: str, log: str, seconds: float) -> None:
        """Load it.

        log (str): A file that gets a line for each shard: the process, and the first entity.
        """
        self._encoder = EntityEncoder(folder, max_length=48)
        self._log = log
        self._seconds = seconds
        self.width = self._encoder.width
        self.fingerprint = self._encoder.fingerprint
        self.settings = self._encoder.settings

    def encode(self, entities, *, batch_size):
        with open(self._log, "a") as file_:
            file_.write(f"{os.getpid()} {entities[0].id}\n")
        time.sleep(self._seconds)
        return self._encoder.encode(entities, batch_size=batch_size)


def read_log(path: Path) -> List[Tuple[int, str]]:
    """RETURNS (List[Tuple[int, str]]): Process and first entity of each shard that was begun."""
    lines = path.read_text().splitlines() if path.exists() else []
    return [(int(pid), first) for pid, first in map(str.split, lines)]


def drive(
    catalogue: str, output: str, encoder: str, log: str, address: str, seconds: str, actors: str
) -> None:
    """Encode by shards of 25, as a process that can be killed."""
    # under the name that workers import it by
    from ray_world import SlowEncoder as Slow

    make_encoder = partial(Slow, encoder, log, float(seconds))
    encode_parts(catalogue, output, make_encoder, ray=address, n_process=int(actors), shard_size=25)


if __name__ == "__main__":
    drive(*sys.argv[1:])
