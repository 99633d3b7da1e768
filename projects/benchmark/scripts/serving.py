"""What a server costs beside `nlp.pipe` and `nlp(text)`, on loopback. Writes `results/serving-NAME.json`;
needs wrk.
"""

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Dict, Iterator, List, Sequence

import numpy as np
import typer
from records import RESULTS, write_record

from spacy_elq.evaluation import load_pipeline, read_docs

CONNECTIONS = 64
_ENVIRONMENT = {"OMP_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false"}
# each thread of wrk asks the texts in turn
_LUA = """
local bodies = {BODIES}
local i = 0
request = function()
  i = i + 1
  return wrk.format("POST", "/link", {["Content-Type"] = "application/json"}, bodies[(i - 1) % #bodies + 1])
end
done = function(summary, latency, requests)
  io.write(string.format("RESULT %d %d %d %f %f %d\\n", summary.requests, summary.duration,
    summary.errors.connect + summary.errors.read + summary.errors.write + summary.errors.status +
    summary.errors.timeout, latency:percentile(50), latency:percentile(99), latency.max))
end
"""


def main(
    pipeline: Path = typer.Argument(..., help="Trained pipeline"),
    questions: List[Path] = typer.Argument(..., help="Questions (.spacy)"),
    name: str = typer.Option(..., help="Name of the result file"),
    workers: int = typer.Option(2, help="Workers of the server, and processes of nlp.pipe"),
    seconds: int = typer.Option(20, help="Seconds of each measurement"),
    rounds: int = typer.Option(3, help="Rounds of all measurements; medians count"),
    results: Path = typer.Option(RESULTS, help="Folder of the result files"),
) -> None:
    """Measure throughput at 64 connections, latency at 1 and at 64, and memory with 1, 2 and 4 workers."""
    if shutil.which("wrk") is None:
        sys.exit("wrk is not installed: apt-get install wrk")
    os.environ.update(_ENVIRONMENT)
    nlp, _ = load_pipeline(str(pipeline))
    texts = [doc.text for path in questions for doc in read_docs(path, nlp)]
    rows = [_measure(pipeline, texts, workers, seconds) for _ in range(rounds)]
    row = {key: float(np.median([row[key] for row in rows])) for key in rows[0]}
    memory = {str(count): _measure_memory(pipeline, texts, count) for count in (1, 2, 4)}
    write_record(
        results,
        f"serving-{name}",
        {
            "name": name,
            "workers": workers,
            "connections": CONNECTIONS,
            "rounds": rounds,
            **{key: round(value, 3) for key, value in row.items()},
            "throughput_ratio": round(row["served"] / row["piped"], 3),
            "latency_ratio": round(row["p50_one"] / row["bare"], 3),
            "tail_ratio": round(row["p99"] / row["p50"], 3),
            "memory": memory,
        },
    )


def _measure(pipeline: Path, texts: Sequence[str], workers: int, seconds: int) -> Dict[str, float]:
    """RETURNS (Dict[str, float]): Texts per second of `nlp.pipe` and of the server, milliseconds of one text
    alone and of the percentiles of requests, one round.
    """
    row = {
        "piped": _run("pipe", pipeline, texts, workers, seconds),
        "bare": _run("one", pipeline, texts, 1, seconds),
    }
    with serving(pipeline, workers) as server:
        for _pid in server.workers:
            _load(server.url, texts, 1, 2)
        one = _load(server.url, texts, 1, seconds)
        many = _load(server.url, texts, CONNECTIONS, seconds)
    return {
        **row,
        "served": many["rate"],
        "p50_one": one["p50"],
        "p50": many["p50"],
        "p99": many["p99"],
        "failed": one["failed"] + many["failed"],
    }


# ---------------------------------------------------------------------- without a server


_PROGRAM = """
import json, sys, time, itertools
import spacy
how, path, workers, seconds = sys.argv[1], sys.argv[2], int(sys.argv[3]), float(sys.argv[4])
texts = json.load(sys.stdin)
nlp = spacy.load(path)
if how == "one":
    times = []
    for text in texts[:50]:
        nlp(text)
    end = time.perf_counter() + seconds
    for text in itertools.cycle(texts):
        start = time.perf_counter()
        nlp(text)
        times.append(time.perf_counter() - start)
        if start > end:
            break
    print(1000 * sorted(times)[len(times) // 2])
else:
    # the first batches start the workers
    end, begin, count = None, None, 0
    for doc in nlp.pipe(itertools.cycle(texts), n_process=workers, batch_size=64):
        count += 1
        now = time.perf_counter()
        if begin is None and count > 64 * workers * 2:
            begin, end, count = now, now + seconds, 0
        if end is not None and now > end:
            print(count / (now - begin), flush=True)
            import os
            os._exit(0)
"""


def _run(how: str, pipeline: Path, texts: Sequence[str], workers: int, seconds: int) -> float:
    command = [sys.executable, "-c", _PROGRAM, how, str(pipeline), str(workers), str(seconds)]
    # in a group of its own: nlp.pipe over endless texts does not end by itself, nor do its workers
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, start_new_session=True
    ) as process:
        process.stdin.write(json.dumps(list(texts)))  # type: ignore[union-attr]
        process.stdin.close()  # type: ignore[union-attr]
        line = process.stdout.readline()  # type: ignore[union-attr]
        _end_group(process.pid)
    return float(line)


def _end_group(pid: int) -> None:
    with suppress(ProcessLookupError):
        os.killpg(pid, signal.SIGKILL)


# ---------------------------------------------------------------------- with a server


class Server:
    """A server that runs: where, and its processes."""

    def __init__(self, process: "subprocess.Popen[bytes]", url: str, log: Path) -> None:
        """Make the record.

        process (subprocess.Popen): The server.
        url (str): Where it listens.
        log (Path): What it writes.
        """
        self.process = process
        self.url = url
        self.log = log

    @property
    def workers(self) -> List[int]:
        """RETURNS (List[int]): The processes that have said that they are ready, and live."""
        lines = [json.loads(line) for line in self.log.read_text().splitlines() if line.startswith("{")]
        pids = {line["worker"] for line in lines if line["message"] == "ready"}
        return sorted(pid for pid in pids if Path(f"/proc/{pid}").exists())


@contextmanager
def serving(pipeline: Path, workers: int, *options: str) -> Iterator[Server]:
    """Serve a pipeline on a free port of loopback, until the block is left."""
    with socket.socket() as free, tempfile.TemporaryDirectory() as folder:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
        free.close()
        log = Path(folder) / "log"
        command = [sys.executable, "-m", "spacy", "elq", "serve", str(pipeline), "--port", str(port)]
        with log.open("wb") as file_:
            process = subprocess.Popen([*command, "--workers", str(workers), *options], stderr=file_)
        server = Server(process, f"http://127.0.0.1:{port}", log)
        try:
            while len(server.workers) < workers:
                if process.poll() is not None:
                    sys.exit(f"The server has ended: {log.read_text()[-2000:]}")
                time.sleep(0.2)
            yield server
        finally:
            process.terminate()
            process.wait(60)


def _load(url: str, texts: Sequence[str], connections: int, seconds: int) -> Dict[str, float]:
    """RETURNS (Dict[str, float]): Requests per second, percentiles in milliseconds, failed requests."""
    bodies = ",".join(f"[=====[{json.dumps({'text': text})}]=====]" for text in texts)
    with tempfile.TemporaryDirectory() as folder:
        script = Path(folder) / "ask.lua"
        script.write_text(_LUA.replace("BODIES", bodies), encoding="utf8")
        command = [
            "wrk",
            "-t1",
            f"-c{connections}",
            f"-d{seconds}s",
            "--timeout",
            "30s",
            "-s",
            str(script),
            url,
        ]
        said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    found = re.search(r"RESULT (\d+) (\d+) (\d+) (\S+) (\S+) (\d+)", said)
    if found is None:
        sys.exit(f"wrk said: {said}")
    requests, micros, failed, p50, p99, _ = map(float, found.groups())
    return {"rate": requests / micros * 1e6, "p50": p50 / 1000, "p99": p99 / 1000, "failed": failed}


def _measure_memory(pipeline: Path, texts: Sequence[str], workers: int) -> Dict[str, float]:
    """RETURNS (Dict[str, float]): MB of all workers together, after they have linked: shared pages once."""
    with serving(pipeline, workers) as server:
        _load(server.url, texts, 16, 5)
        sizes = [_proportional(pid) for pid in server.workers]
        info = json.loads(urllib.request.urlopen(f"{server.url}/info").read())
    return {
        "mb": round(sum(sizes), 1),
        "per_worker_mb": round(sum(sizes) / workers, 1),
        "entities": info["entities"],
    }


def _proportional(pid: int) -> float:
    """RETURNS (float): MB of a process; a page that several share counts in parts."""
    text = Path(f"/proc/{pid}/smaps_rollup").read_text()
    return int(re.findall(r"^Pss:\s+(\d+)", text, re.M)[0]) * 1024 / 1e6


if __name__ == "__main__":
    typer.run(main)
