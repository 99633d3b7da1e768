"""`spacy elq import`."""

from pathlib import Path
from typing import Optional

import typer
from wasabi import msg

from ._util import command, print_next


@command("import")
def import_cli(
    checkpoint: Path = typer.Argument(..., help="Model parameters, such as elq_wiki_large.bin"),
    output: Path = typer.Argument(..., help="Folder for the pipeline"),
    params: Path = typer.Option(..., "--params", "-p", help="Its settings, such as elq_large_params.txt"),
    entities: Path = typer.Option(..., "--entities", "-e", help="Its catalogue, entity.jsonl"),
    vectors: Path = typer.Option(..., "--vectors", "-v", help="Its vectors, such as all_entities_large.t7"),
    index: Optional[Path] = typer.Option(
        None,
        "--index",
        "-i",
        help="Its FAISS index, faiss_hnsw_index.pkl; without it one is built (--factory)",
    ),
    bert: Optional[str] = typer.Option(
        None,
        "--bert",
        "-b",
        help="Folder or hub name of the BERT with the configuration and tokenizer; by default that of the settings",
    ),
    ids: str = typer.Option("wikidata", "--ids", help="What becomes kb_id_: wikidata, title or curid"),
    factory: Optional[str] = typer.Option(
        None,
        "--factory",
        "-f",
        help="FAISS factory string of the index to build without --index; by default by size",
    ),
    threshold: float = typer.Option(
        0.055, "--threshold", "-t", help="Minimum joint probability of a link; exp(-2.9), as published"
    ),
) -> None:
    """Convert a published ELQ model to a pipeline that gives the same scores.

    The result is an ordinary pipeline with its index inside; its folder "entity_encoder" is for `spacy elq
    encode`, so that entities can be added later. Vectors and index are never loaded into memory
    as a whole, and nothing in the files is executed.
    """
    from ..published.importer import import_

    import_(
        checkpoint,
        output,
        params=params,
        entities=entities,
        vectors=vectors,
        index=index,
        bert=bert,
        ids=ids,
        factory=factory,
        threshold=threshold,
    )
    msg.good(f"{output}: pipeline with index and entity encoder")
    print_next(f"python -c \"import spacy; print(spacy.load({str(output)!r})('...').ents)\"")
