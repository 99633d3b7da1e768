"""`spacy elq encode`."""

from pathlib import Path
from typing import Optional

import typer
from wasabi import msg

from ._util import command, print_next


@command("encode")
def encode_cli(
    catalogue: Path = typer.Argument(..., help="The catalogue, entities.jsonl"),
    output_path: Path = typer.Argument(..., help="Folder for the vectors"),
    encoder: str = typer.Option(
        ..., "--encoder", "-e", help="Transformer: a local folder or the name of a model on the hub"
    ),
    pooling: str = typer.Option(
        "mean", "--pooling", help="mean (sentence encoders) or cls (BERT, as in the paper)"
    ),
    max_length: int = typer.Option(
        128, "--max-length", "-L", help="Word pieces of title and description together"
    ),
    aliases: bool = typer.Option(
        False, "--aliases/--no-aliases", "-a/-A", help="Put the aliases in front of the description"
    ),
    norm: float = typer.Option(
        0.0,
        "--norm",
        "-n",
        help="Scale every vector to this length, for sentence encoders; 0 leaves them unchanged (the paper)",
    ),
    int8: bool = typer.Option(
        False,
        "--int8/--no-int8",
        "-8/ ",
        help="Compute in 8-bit integers with ONNX Runtime (pip install 'spacy-elq[onnx]'): faster on a CPU, and "
        "nearly the same vectors, which depend a little on the batch",
    ),
    batch_size: int = typer.Option(
        64, "--batch-size", "-b", min=1, help="Entities in one forward pass; does not change the vectors"
    ),
    n_process: int = typer.Option(
        1,
        "--n-process",
        "-p",
        min=1,
        help="Processes with one thread each; one per core is faster than one process with many threads",
    ),
    reuse: Optional[Path] = typer.Option(
        None,
        "--reuse",
        "-r",
        help="Vectors or an index made with this encoder: entities with the same texts are not encoded again",
    ),
) -> None:
    """Encode a catalogue: one vector for every entity, from `[CLS] title [ENT] description [SEP]`.

    The catalogue is JSONL with "id", "title", "description" and, optionally, "aliases", "label" and
    "ids". Encoding is the slow part, so it can be interrupted at any time: the same command continues where
    it stopped. If the catalogue has changed, --reuse encodes only what is new. Pass the result to
    `spacy elq index`; building another index never requires encoding again.
    """
    from ..index import encode_catalogue
    from ..model.entity_encoder import EntityEncoder
    from ..model.fetch import is_hub_name

    if is_hub_name(encoder):
        msg.info(f"{encoder} is not a local folder: loading it from the Hugging Face hub")
    vectors = encode_catalogue(
        catalogue,
        output_path,
        EntityEncoder(encoder, pooling=pooling, max_length=max_length, aliases=aliases, norm=norm, int8=int8),
        batch_size=batch_size,
        reuse=reuse,
        n_process=n_process,
        progress=True,
    )
    msg.good(f"{output_path}: {len(vectors)} entities, vectors of width {vectors.width}")
    print_next(f"python -m spacy elq index {output_path} INDEX")
