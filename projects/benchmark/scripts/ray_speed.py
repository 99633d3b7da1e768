"""Throughput of `spacy elq encode --ray` by the number of workers, in `results/ray-WORKERS.json`. It can be
interrupted: what is measured is not measured again.
"""

import itertools
import os
import shutil
import time
from functools import partial
from pathlib import Path
from typing import Any, Dict, List, Tuple

import typer
from records import RESULTS, write_record

from spacy_elq.distributed.encode import encode_parts
from spacy_elq.model.entity_encoder import EntityEncoder
from spacy_elq.types import Array, Entity


class TimedEncoder:
    """An entity encoder that notes when it begins a shard, and when it has done it."""

    def __init__(self, log: str, name: str, settings: Dict[str, Any]) -> None:
        """Load it.

        log (str): A file that gets a line per shard: process, begin, end, entities.
        """
        self._encoder = EntityEncoder(name, **settings)
        self._log = log
        self.width = self._encoder.width
        self.fingerprint = self._encoder.fingerprint
        self.settings = self._encoder.settings

    def encode(self, entities: List[Entity], *, batch_size: int) -> Array:
        """RETURNS (Array): What the encoder returns."""
        begin = time.time()
        vectors = self._encoder.encode(entities, batch_size=batch_size)
        with open(self._log, "a") as file_:
            file_.write(f"{os.getpid()} {begin} {time.time()} {len(entities)}\n")
        return vectors


def main(
    catalogue: Path = typer.Argument(..., help="Catalogue, entities.jsonl"),
    encoder: str = typer.Argument(..., help="Folder of an entity encoder"),
    work: Path = typer.Option(Path("work/ray"), help="Folder for vectors; it is emptied"),
    entities: int = typer.Option(16384, help="How many to encode, from the beginning"),
    shard_size: int = typer.Option(512, help="Entities per shard"),
    workers: List[int] = typer.Option([1, 2], help="How many workers"),
    bfloat16: bool = typer.Option(False, help="Encode in bfloat16"),
    results: Path = typer.Option(RESULTS, help="Folder of the result files"),
) -> None:
    """Measure it, on a local cluster that ends with the work."""
    # on an idle machine, so that one worker has one core
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    for count in workers:
        if (results / f"ray-{count}.json").exists():
            continue
        shutil.rmtree(work, ignore_errors=True)
        work.mkdir(parents=True)
        with catalogue.open("rb") as source, (work / "entities.jsonl").open("wb") as target:
            target.writelines(itertools.islice(source, entities))
        log = (work / "shards.log").absolute()
        settings = {"max_length": 48, "bfloat16": bfloat16}
        make_encoder = partial(TimedEncoder, str(log), str(Path(encoder).absolute()), settings)
        begin = time.time()
        options: Dict[str, Any] = {"ray": "local", "n_process": count, "shard_size": shard_size}
        encode_parts(work / "entities.jsonl", work / "vectors", make_encoder, progress=True, **options)
        whole = time.time() - begin
        write_record(results, f"ray-{count}", {"workers": count, **summarize(read_log(log), whole)})


def read_log(path: Path) -> List[Tuple[int, float, float, int]]:
    """RETURNS (List[Tuple[int, float, float, int]]): Process, begin, end and entities of each shard."""
    rows = [line.split() for line in path.read_text().splitlines()]
    return [(int(pid), float(begin), float(end), int(count)) for pid, begin, end, count in rows]


def summarize(shards: List[Tuple[int, float, float, int]], whole: float) -> Dict[str, Any]:
    """RETURNS (Dict[str, Any]): Entities/s while shards were encoded, and with all that is around it."""
    count = sum(shard[3] for shard in shards)
    seconds = max(shard[2] for shard in shards) - min(shard[1] for shard in shards)
    return {
        "processes": len({shard[0] for shard in shards}),
        "entities": count,
        "shards": len(shards),
        "seconds": round(seconds, 2),
        "whole_seconds": round(whole, 2),
        "entities_per_second": round(count / seconds, 1),
    }


if __name__ == "__main__":
    typer.run(main)
