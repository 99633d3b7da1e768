"""`spacy elq bundle`."""

from pathlib import Path

import typer
from wasabi import msg

from ._util import command


@command("bundle")
def bundle_cli(
    pipeline: str = typer.Argument(..., help="Trained pipeline"),
    output: Path = typer.Argument(..., help="Folder for the pipeline and its index"),
) -> None:
    """Save a pipeline with a copy of its index inside, ready for `spacy package` or another machine.

    A pipeline saved by `spacy train` only points to its index.
    """
    from ..evaluation.pipelines import load_pipeline, save_pipeline
    from ..files import check_folder
    from ..pipeline.base import bundle_index

    check_folder(output)
    nlp, linker = load_pipeline(pipeline)
    bundle_index(nlp, linker.name)
    save_pipeline(nlp, output)
    msg.good(f"{output}: the pipeline with its index")
