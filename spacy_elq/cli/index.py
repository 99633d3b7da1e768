"""`spacy elq index`."""

from pathlib import Path
from typing import Optional

import typer
from wasabi import msg

from ..index import build_index
from ._util import command


@command("index")
def index_cli(
    vectors: Path = typer.Argument(..., help="What `spacy elq encode` wrote (or another index)"),
    output_path: Path = typer.Argument(..., help="Folder of the index"),
    factory: Optional[str] = typer.Option(
        None,
        "--factory",
        "-f",
        help="FAISS factory string, e.g. Flat or HNSW128; by default chosen by the number of entities",
    ),
) -> None:
    """Make the vectors of a catalogue searchable.

    Without --factory, small catalogues get exact search (Flat) and large ones the paper's graph
    (HNSW128, efConstruction 200, efSearch 256). Whatever finds the candidates, their similarities are
    computed exactly from the stored vectors. An index that is in the folder is replaced only when the
    new one is complete.
    """
    index = build_index(vectors, output_path, factory=factory, progress=True)
    settings = ", ".join(f"{key} {value}" for key, value in index.meta["backend"].items())
    msg.good(f"{output_path}: {len(index)} entities, {settings}")
