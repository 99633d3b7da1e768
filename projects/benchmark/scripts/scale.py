"""What catalogues and streams of questions of any size need: the arithmetic, and a simulation that checks it
at sizes that can be run, in `results/scale-ENTITIES.json`.
"""

import shutil
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Dict, List, Mapping, Sequence

import numpy as np
import typer
from backends import resident
from build_time import FreeEncoder
from records import RESULTS, write_record
from stub import make_entities, write_catalogue

from spacy_elq.index import EntityIndex, build_index, encode_catalogue

app = typer.Typer(help=__doc__, no_args_is_help=True)
DAY, GB = 86_400, 1e9
K, QUERIES = 10, 400
# what grows with the entities
MEASURED = ("fill_seconds", "build_seconds", "disk_bytes", "resident_bytes", "query_seconds")


@dataclass(frozen=True)
class Rates:
    """What was measured on one core.

    encoded (float): Entities/s.
    build_seconds (float): To make the index, per entity.
    disk_bytes, memory_bytes (float): Of the index, per entity; memory that is resident after many searches.
    questions (float): Questions/s of the pipeline, without the search.
    scan_seconds (float): Of the search for one question, per entity: the default back end looks at all codes.
    """

    encoded: float
    build_seconds: float
    disk_bytes: float
    memory_bytes: float
    questions: float
    scan_seconds: float


@dataclass(frozen=True)
class Need:
    """What it takes.

    encode_core_hours, build_core_hours (float): Once.
    encode_hours (float): With the cores given.
    disk_gb, memory_gb (float): Of the whole index, in one copy.
    question_cores, search_cores (float): All day, for encoder and decoder, and for the search.
    """

    encode_core_hours: float
    encode_hours: float
    build_core_hours: float
    disk_gb: float
    memory_gb: float
    question_cores: float
    search_cores: float


def compute(rates: Rates, entities: float, *, questions_a_day: float, cores: int) -> Need:
    """RETURNS (Need): What entities and questions take, with so many cores to encode on."""
    encode = entities / rates.encoded / 3600
    rate = questions_a_day / DAY
    return Need(
        encode_core_hours=encode,
        encode_hours=encode / cores,
        build_core_hours=entities * rates.build_seconds / 3600,
        disk_gb=entities * rates.disk_bytes / GB,
        memory_gb=entities * rates.memory_bytes / GB,
        question_cores=rate / rates.questions,
        search_cores=rate * entities * rates.scan_seconds,
    )


@app.command()
def simulate(
    work: Path = typer.Argument(
        ..., help="Folder for catalogues and indexes; each is removed after its turn"
    ),
    sizes: List[int] = typer.Option(
        [25_000, 100_000, 400_000], "--size", help="Entities, three sizes or more"
    ),
    width: int = typer.Option(384, help="Of the vectors"),
    results: Path = typer.Option(RESULTS, help="Folder of the result files"),
) -> None:
    """Make and search indexes of several sizes, to predict the largest from the others. What is measured is
    not measured again.
    """
    if len(sizes) < 3:
        raise typer.BadParameter("needs three sizes: two to predict from, one to check")
    for size in sizes:
        if not (results / f"scale-{size}.json").exists():
            command = [sys.executable, __file__, "run", str(work / str(size)), str(size), str(width)]
            subprocess.run([*command, "--results", str(results)], check=True)
            shutil.rmtree(work / str(size))


@app.command(hidden=True)
def run(folder: Path, entities: int, width: int, results: Path = typer.Option(RESULTS)) -> None:
    """Make and search one index."""
    catalogue = write_catalogue(folder / "entities.jsonl", make_entities(entities))
    seconds = {"begin": time.process_time()}
    encode_catalogue(catalogue, folder / "vectors", FreeEncoder(width)).close()
    seconds["filled"] = time.process_time()
    build_index(folder / "vectors", folder / "index").close()
    seconds["built"] = time.process_time()
    before = resident()
    index = EntityIndex.open(folder / "index")
    queries = np.random.default_rng(1).standard_normal((QUERIES, width), dtype="float32")
    index.search(queries[:1], K)
    begin = time.process_time()
    for query in queries:
        index.search(query[None], K)
    searched = time.process_time() - begin
    record = {
        "entities": entities,
        "width": width,
        "factory": index.meta["backend"]["factory"],
        "fill_seconds": seconds["filled"] - seconds["begin"],
        "build_seconds": seconds["built"] - seconds["filled"],
        "disk_bytes": sum(path.stat().st_size for path in (folder / "index").iterdir()),
        "resident_bytes": sum(resident().values()) - sum(before.values()),
        "query_seconds": searched / QUERIES,
    }
    write_record(results, f"scale-{entities}", record)


def check(records: Sequence[Mapping[str, Any]]) -> List[Dict[str, Any]]:
    """Predict the largest size from the others, with a straight line for each quantity, as `compute` does for
    what is not fixed.

    RETURNS (List[Dict[str, Any]]): Per quantity, what was predicted and what was measured.
    """
    *known, largest = sorted(records, key=lambda record: record["entities"])
    sizes = [record["entities"] for record in known]
    rows = []
    for name in MEASURED:
        line = np.polyfit(sizes, [record[name] for record in known], 1)
        predicted = float(np.polyval(line, largest["entities"]))
        rows.append(
            {
                "quantity": name,
                "entities": largest["entities"],
                "predicted": predicted,
                "measured": largest[name],
                "ratio": largest[name] / predicted,
            }
        )
    return rows


if __name__ == "__main__":
    app()
