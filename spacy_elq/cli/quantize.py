"""`spacy elq quantize`."""

from pathlib import Path

import typer
from spacy.language import Language
from spacy_transformers.layers import TransformerModel
from wasabi import msg

from ..errors import ELQError, Errors
from ..model.transformer import PRECISIONS, OnnxTransformer, replace_transformer
from ._util import command, load_pipeline, save_pipeline

ARCHITECTURE = "spacy-elq.OnnxTransformerModel.v1"


@command("quantize")
def quantize_cli(
    pipeline: str = typer.Argument(..., help="Trained pipeline with a transformer"),
    output: Path = typer.Argument(..., help="Folder for the quantized pipeline"),
    precision: str = typer.Option("int8", "--precision", "-p", help=f"One of {', '.join(PRECISIONS)}"),
) -> None:
    """Make a pipeline that ONNX Runtime runs on a CPU, its encoder in 8-bit integers.

    It is loaded with `spacy.load` as any other, needs the extra `onnx` (pip install 'spacy-elq[onnx]') and
    cannot be trained further. Its scores differ a little: choose the threshold anew with `spacy elq
    threshold`, and measure with `spacy elq evaluate` and `spacy elq bench`.
    """
    nlp = quantize(pipeline, precision=precision)
    save_pipeline(nlp, output)
    msg.good(f"{precision} pipeline: {output}")


def quantize(pipeline: str, *, precision: str = "int8") -> Language:
    """RETURNS (Language): The pipeline with a transformer that ONNX Runtime runs."""
    if precision not in PRECISIONS:
        expected = " or ".join(map(repr, PRECISIONS))
        raise ELQError(
            Errors.E002.format(setting="precision", name="quantize", value=precision, expected=expected)
        )
    nlp, _ = load_pipeline(pipeline)
    for name, pipe in nlp.pipeline:
        model = getattr(pipe, "model", None)
        if not isinstance(model, TransformerModel) or isinstance(model.transformer, OnnxTransformer):
            continue
        config = nlp.get_pipe_config(name)
        pipe.model = replace_transformer(model, precision=precision)  # type: ignore[attr-defined]
        get_spans = config["model"]["get_spans"]
        config["model"] = {
            "@architectures": ARCHITECTURE,
            "name": config["model"]["name"],
            "get_spans": get_spans,
        }
        return nlp
    raise ELQError(Errors.E092.format(pipeline=pipeline, pipes=", ".join(nlp.pipe_names) or "none"))
