"""Ask a server while its catalogue changes and its workers are killed, and end it with SIGTERM: no request
may fail or be lost. Writes `results/serving-soak.json`.
"""

import asyncio
import os
import random
import re
import secrets
import signal
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any, Dict, List, Sequence, Set

import httpx
import typer
from records import RESULTS, write_record
from serving import Server, serving

from spacy_elq import AsyncElqClient
from spacy_elq.evaluation import load_pipeline, read_docs

# entities that a change adds and takes away again
_CHANGED = 5


class Soak:
    """What all tasks share: what was counted, and whether to go on."""

    def __init__(self, server: Server, texts: Sequence[str], token: str) -> None:
        """Make the record.

        server (Server): The server.
        texts (Sequence[str]): What is asked.
        token (str): The key to the catalogue.
        """
        self.server = server
        self.texts = texts
        self.token = token
        self.counts: Counter = Counter()
        self.problems: List[str] = []
        self.is_ending = False

    async def link(self) -> None:
        """Link texts until told to end. A request that nobody has taken at the end is not lost."""
        async with AsyncElqClient(self.server.url, retries=10) as client:
            while not self.is_ending:
                texts = random.sample(self.texts, random.choice([1, 1, 1, 8]))
                try:
                    links = await client.link(texts)
                except Exception as err:
                    if not self.is_ending:
                        self.problems.append(f"link: {err}")
                    continue
                self.counts["requests"] += 1
                self.counts["texts"] += len(texts)
                self.counts["lost"] += len(texts) - len(links)

    async def change(self) -> None:
        """Add entities, see that every worker has them, take them away, see that none has them."""
        async with AsyncElqClient(self.server.url, token=self.token, retries=10) as client:
            while not self.is_ending:
                ids = [f"soak-{secrets.token_hex(4)}" for _ in range(_CHANGED)]
                try:
                    await client.put([{"id": id_, "title": f"Thing {id_}"} for id_ in ids])
                    await self._expect(ids, 200)
                    await client.remove(ids)
                    await self._expect(ids, 404)
                except Exception as err:
                    if not self.is_ending:
                        self.problems.append(f"change: {err}")
                    continue
                self.counts["changes"] += 2
                await asyncio.sleep(0.5)

    async def _expect(self, ids: Sequence[str], status: int) -> None:
        """See that entities are there, or are not, by new connections, which go to any worker."""
        for id_ in ids:
            try:
                async with httpx.AsyncClient(base_url=self.server.url) as http:
                    found = (await http.get(f"/entities/{id_}")).status_code
            except httpx.TransportError:  # that worker was killed
                continue
            if found != status:
                self.problems.append(f"an entity: {found} instead of {status}")

    async def kill(self, every: float) -> None:
        """Kill a worker every so many seconds."""
        while not self.is_ending:
            await asyncio.sleep(every)
            if not self.is_ending:
                os.kill(random.choice(self.server.workers), signal.SIGKILL)
                self.counts["kills"] += 1

    def memory(self) -> float:
        """RETURNS (float): MB of all workers; a page that several share counts once."""
        total = 0.0
        for pid in self.server.workers:
            try:
                text = Path(f"/proc/{pid}/smaps_rollup").read_text()
            except OSError:
                continue
            total += int(re.findall(r"^Pss:\s+(\d+)", text, re.M)[0]) * 1024 / 1e6
        return round(total, 1)


async def _run(soak: Soak, seconds: float, every: float, connections: int) -> Dict[str, Any]:
    tasks = [asyncio.create_task(soak.link()) for _ in range(connections)]
    tasks += [asyncio.create_task(soak.change()), asyncio.create_task(soak.kill(every))]
    await asyncio.sleep(min(30.0, seconds / 4))
    before = soak.memory()
    await asyncio.sleep(max(0.0, seconds - min(30.0, seconds / 4)))
    after = soak.memory()
    ended = await _end(soak)
    await asyncio.wait(tasks, timeout=60)
    return {"memory_before_mb": before, "memory_after_mb": after, **ended}


async def _end(soak: Soak) -> Dict[str, Any]:
    """Send SIGTERM while requests are under way: those that were taken are answered.

    RETURNS (Dict[str, Any]): How many were, how many of them were answered, and the exit code.
    """
    body = {"text": list(soak.texts[:200])}
    async with httpx.AsyncClient(base_url=soak.server.url, timeout=60) as http:
        asked: Set[Any] = {asyncio.create_task(http.post("/link", json=body)) for _ in range(4)}
        await asyncio.sleep(0.3)
        soak.is_ending = True
        soak.server.process.send_signal(signal.SIGTERM)
        done, _ = await asyncio.wait(asked, timeout=90)
    answers = [task for task in done if task.exception() is None and task.result().status_code == 200]
    code = await asyncio.to_thread(soak.server.process.wait, 60)
    return {"under_way": len(asked), "answered": len(answers), "exit_code": code}


def main(
    pipeline: Path = typer.Argument(
        ..., help="Pipeline with index and encoder inside (`spacy elq bundle --encoder`)"
    ),
    questions: List[Path] = typer.Argument(..., help="Questions (.spacy)"),
    minutes: float = typer.Option(10.0, help="Minutes"),
    every: float = typer.Option(60.0, help="Seconds between kills"),
    connections: int = typer.Option(16, help="Connections that link"),
    workers: int = typer.Option(2, help="Workers of the server"),
    results: Path = typer.Option(RESULTS, help="Folder of the result files"),
) -> None:
    """Run the soak."""
    nlp, _ = load_pipeline(str(pipeline))
    texts = [doc.text for path in questions for doc in read_docs(path, nlp)]
    os.environ["SPACY_ELQ_TOKEN"] = token = secrets.token_urlsafe()
    start = time.perf_counter()
    with serving(pipeline, workers, "--writable") as server:
        soak = Soak(server, texts, token)
        ended = asyncio.run(_run(soak, 60 * minutes, every, connections))
    record = {
        "minutes": round((time.perf_counter() - start) / 60, 1),
        "workers": workers,
        "connections": connections,
        **{name: soak.counts[name] for name in ("requests", "texts", "lost", "changes", "kills")},
        "failed": len(soak.problems),
        "problems": soak.problems[:10],
        **ended,
    }
    write_record(results, "serving-soak", record)
    if record["failed"] or record["lost"] or record["answered"] < record["under_way"]:
        sys.exit(1)


if __name__ == "__main__":
    typer.run(main)
