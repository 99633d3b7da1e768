"""`spacy elq quantize`."""

from pathlib import Path

import typer
from wasabi import msg

from ._util import command


@command("quantize")
def quantize_cli(
    pipeline: str = typer.Argument(..., help="Trained pipeline with a transformer"),
    output: Path = typer.Argument(..., help="Folder for the quantized pipeline"),
    precision: str = typer.Option("int8", "--precision", "-p", help="int8 or float32"),
) -> None:
    """Convert a pipeline for ONNX Runtime on a CPU, with its encoder in 8-bit integers.

    It is loaded with `spacy.load` like any other, needs the extra `onnx` (pip install 'spacy-elq[onnx]') and
    cannot be trained further. Scores differ a little: choose a new threshold with `spacy elq threshold`, and
    measure with `spacy elq evaluate` and `spacy elq bench`.
    """
    from ..evaluation.pipelines import load_pipeline, save_pipeline
    from ..files import check_folder
    from ..pipeline.quantize import quantize

    check_folder(output)
    nlp, _ = load_pipeline(pipeline)
    quantize(nlp, precision=precision)
    save_pipeline(nlp, output)
    msg.good(f"{precision} pipeline: {output}")
