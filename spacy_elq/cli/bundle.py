"""`spacy elq bundle`."""

from pathlib import Path

import typer
from wasabi import msg

from ._util import command


@command("bundle")
def bundle_cli(
    pipeline: str = typer.Argument(..., help="Trained pipeline"),
    output: Path = typer.Argument(..., help="Folder for the pipeline and its index"),
    encoder: bool = typer.Option(
        False,
        "--encoder/--no-encoder",
        help="Also put the entity encoder into the index, so that entities can be added on another machine (90 MB for all-MiniLM-L6-v2)",
    ),
    int8: bool = typer.Option(
        False,
        "--int8",
        help="The same, with the weights of the entity encoder in 8-bit integers (23 MB); needs pip install 'spacy-elq[onnx]', there too",
    ),
) -> None:
    """Save a pipeline with a copy of its index inside, ready for `spacy package` or another machine.

    A pipeline saved by `spacy train` only points to its index. Linking does not need the entity encoder, which
    is left out by default; adding entities does. One that the index already has inside is kept.
    """
    from ..evaluation.pipelines import load_pipeline, save_pipeline
    from ..files import check_folder
    from ..pipeline.base import bundle_index
    from ..pipeline.bundle import bundle_encoder, open_index_encoder

    check_folder(output)
    nlp, linker = load_pipeline(pipeline)
    with_encoder = encoder or int8
    # first, so that nothing is written if it is missing
    found = open_index_encoder(nlp, linker.name, int8=int8) if with_encoder else None
    bundle_index(nlp, linker.name)
    save_pipeline(nlp, output)
    if found is not None:
        bundle_encoder(found, output, linker.name, int8=int8)
    msg.good(f"{output}: the pipeline with its index{' and its entity encoder' if with_encoder else ''}")
