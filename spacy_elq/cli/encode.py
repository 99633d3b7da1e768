"""`spacy elq encode`."""

from functools import partial
from pathlib import Path
from typing import Optional

import typer
from wasabi import msg

from ._util import command, print_next


@command("encode")
def encode_cli(
    catalogue: str = typer.Argument(
        ..., help="The catalogue, entities.jsonl: a file, or a URL such as s3://bucket/entities.jsonl"
    ),
    output_path: str = typer.Argument(
        ..., help="Folder for the vectors, or a URL such as s3://bucket/vectors"
    ),
    encoder: str = typer.Option(
        ..., "--encoder", "-e", help="Transformer: a local folder or the name of a model on the hub"
    ),
    pooling: Optional[str] = typer.Option(
        None,
        "--pooling",
        help="mean (sentence encoders) or cls (BERT, as in the paper); by default that of the encoder's recipe, else mean",
    ),
    max_length: Optional[int] = typer.Option(
        None,
        "--max-length",
        "-L",
        help="Word pieces of title and description together; by default that of the recipe, else 128",
    ),
    aliases: Optional[bool] = typer.Option(
        None,
        "--aliases/--no-aliases",
        "-a/-A",
        help="Put the aliases in front of the description; by default as in the recipe, else not",
    ),
    norm: Optional[float] = typer.Option(
        None,
        "--norm",
        "-n",
        help="Scale every vector to this length, for sentence encoders; 0 leaves them unchanged (the paper). By default that of the recipe, else 0",
    ),
    int8: Optional[bool] = typer.Option(
        None,
        "--int8/--no-int8",
        "-8/ ",
        help="Compute in 8-bit integers with ONNX Runtime (pip install 'spacy-elq[onnx]'): faster on a CPU, and "
        "nearly the same vectors, which depend a little on the batch; by default as in the recipe, else not",
    ),
    bfloat16: bool = typer.Option(
        False,
        "--bfloat16",
        help="Compute in bfloat16 if the CPU has instructions for it (AMX, AVX512-BF16), else in float32: faster than "
        "int8 there, and nearer to the vectors in float32",
    ),
    batch_size: int = typer.Option(
        64, "--batch-size", "-b", min=1, help="Entities in one forward pass; does not change the vectors"
    ),
    n_process: Optional[int] = typer.Option(
        None,
        "--n-process",
        "-p",
        min=1,
        help="Processes with one thread each; one per core is faster than one process with many threads. By "
        "default 1, or with --ray one per CPU",
    ),
    ray: Optional[str] = typer.Option(
        None,
        "--ray",
        help="Encode on a Ray cluster (pip install 'spacy-elq[ray]'): its address, HOST:PORT; auto for the one that "
        "this machine is a node of; local for one that is started here and ends with the work",
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

    An encoder's recipe, the file elq_encoder.json in its folder, has the settings that suit it. Encoders made by
    `spacy elq fetch-encoder`, `spacy elq import` and the training of `elq_pairs` have one.
    """
    from ..distributed.encode import encode_parts
    from ..model.entity_encoder import EntityEncoder
    from ..model.fetch import is_hub_name

    if is_hub_name(encoder):
        msg.info(f"{encoder} is not a local folder: loading it from the Hugging Face hub")
    vectors = encode_parts(
        catalogue,
        output_path,
        partial(
            EntityEncoder,
            # workers have another current folder
            str(Path(encoder).absolute()) if Path(encoder).exists() else encoder,
            pooling=pooling,
            max_length=max_length,
            aliases=aliases,
            norm=norm,
            int8=int8,
            bfloat16=bfloat16,
        ),
        batch_size=batch_size,
        reuse=reuse,
        n_process=n_process,
        ray=ray,
        progress=True,
    )
    msg.good(f"{output_path}: {vectors.entities} entities, vectors of width {vectors.width}")
    print_next(f"python -m spacy elq index {output_path} INDEX")
