"""`spacy elq index`."""

from pathlib import Path
from typing import Optional

import typer
from wasabi import msg

from ._util import command


@command("index")
def index_cli(
    vectors: Path = typer.Argument(..., help="What `spacy elq encode` wrote (or another index)"),
    output_path: Path = typer.Argument(..., help="Folder of the index"),
    factory: Optional[str] = typer.Option(
        None,
        "--factory",
        "-f",
        help="FAISS factory string, e.g. Flat or HNSW128, or the index of Milvus (FLAT, HNSW, IVF_FLAT, IVF_SQ8); by "
        "default that of the index given, or chosen by the number of entities",
    ),
    ef_search: Optional[int] = typer.Option(
        None, "--ef-search", min=1, help="efSearch of a graph (HNSW): how many nodes a search keeps"
    ),
    nprobe: Optional[int] = typer.Option(
        None, "--nprobe", min=1, help="nprobe of lists (IVF): how many lists are searched"
    ),
    rescore: Optional[int] = typer.Option(
        None, "--rescore", min=1, help="How many candidates of a compressed back end are scored exactly"
    ),
    dtype: Optional[str] = typer.Option(
        None,
        "--dtype",
        help="How the vectors are stored: float32 or float16, which takes half the space; by default as they are",
    ),
    backend: Optional[str] = typer.Option(
        None, "--backend", help="faiss or milvus; by default that of the index given, or faiss"
    ),
    uri: Optional[str] = typer.Option(
        None, "--uri", help="Where Milvus is: http://HOST:PORT, or a path that ends in .db for Milvus Lite"
    ),
    timeout: Optional[float] = typer.Option(
        None, "--timeout", help="Seconds that Milvus has for one answer; 10 by default"
    ),
) -> None:
    """Make the vectors of a catalogue searchable.

    Without --factory, up to 10,000 entities are searched exactly (Flat), more by a scan of short codes, and
    from 1,000,000 on only by those in the nearest lists. A graph over compressed vectors (PCA192,HNSW16_SQ4)
    looks at fewer entities, but takes long to build; the paper uses HNSW128 (efConstruction 200, efSearch
    256), which is larger than the vectors. Whatever finds the candidates, their similarities are computed
    exactly from the stored vectors. Given an index instead of vectors, its back end is kept unless --factory
    names another: --ef-search, --nprobe and --rescore change how it is searched without rebuilding it. An
    existing index is replaced only when the new one is complete.

    With --backend milvus, the vectors go into a collection of a Milvus server, which finds the candidates; the
    folder keeps entities and names.
    """
    from ..index import build_index

    widths = {"efSearch": ef_search, "nprobe": nprobe, "rescore": rescore}
    given = {name: value for name, value in widths.items() if value is not None}
    index = build_index(
        vectors,
        output_path,
        factory=factory,
        widths=given,
        dtype=dtype,
        backend=backend,
        uri=uri,
        timeout=timeout,
        progress=True,
    )
    settings = ", ".join(f"{key} {value}" for key, value in index.meta["backend"].items())
    msg.good(f"{output_path}: {len(index)} entities, {settings}")
