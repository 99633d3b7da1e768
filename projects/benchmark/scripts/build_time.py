"""Time `encode_catalogue` with an encoder that costs nothing, and `build_index`. It also runs with older
versions of the package: `PYTHONPATH=OLDER python scripts/build_time.py CATALOGUE WORK`.
"""

import json
import resource
import time
from pathlib import Path
from typing import Any, Dict, List

import numpy as np
import typer

from spacy_elq import __version__
from spacy_elq.index import build_index, encode_catalogue
from spacy_elq.types import Array, Entity


class FreeEncoder:
    """Random vectors that are drawn once."""

    fingerprint = "free"
    settings: Dict[str, Any] = {"name": "free"}

    def __init__(self, width: int) -> None:
        """Width (int): Of the vectors."""
        self.width = width
        self._drawn = np.zeros((0, width), dtype="float32")
        self._calls = 0

    def encode(self, entities: List[Entity], *, batch_size: int = 64) -> Array:
        """RETURNS (Array): (entities, width) float32."""
        if len(self._drawn) < len(entities):
            shape = (len(entities), self.width)
            self._drawn = np.random.default_rng(0).standard_normal(shape, dtype="float32")
        self._calls += 1
        return np.roll(self._drawn[: len(entities)], self._calls, axis=1)


def main(
    catalogue: Path = typer.Argument(..., help="Catalogue, entities.jsonl"),
    work: Path = typer.Argument(..., help="Folder for vectors and index"),
    width: int = typer.Option(384, help="Of the vectors"),
) -> None:
    """Print how long it takes, in JSON."""
    begin = time.perf_counter()
    encoded = encode_catalogue(catalogue, work / "vectors", FreeEncoder(width))
    between = time.perf_counter()
    count = len(encoded)
    build_index(work / "vectors", work / "index")
    figures = {
        "version": __version__,
        "entities": count,
        "encode_seconds": round(between - begin, 2),
        "index_seconds": round(time.perf_counter() - between, 2),
        "peak_mb": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e6, 1),
    }
    typer.echo(json.dumps(figures))


if __name__ == "__main__":
    typer.run(main)
