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
    """Make a pipeline that ONNX Runtime runs on a CPU, its encoder in 8-bit integers.

    It is loaded with `spacy.load` as any other, needs the extra `onnx` (pip install 'spacy-elq[onnx]') and
    cannot be trained further. Its scores differ a little: choose the threshold anew with `spacy elq
    threshold`, and measure with `spacy elq evaluate` and `spacy elq bench`.
    """
    from ..evaluation.pipelines import load_pipeline, save_pipeline
    from ..pipeline.quantize import quantize

    nlp, _ = load_pipeline(pipeline)
    quantize(nlp, precision=precision)
    save_pipeline(nlp, output)
    msg.good(f"{precision} pipeline: {output}")
