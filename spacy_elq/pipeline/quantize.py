"""Pipelines whose encoder ONNX Runtime runs."""

from spacy.language import Language

from ..errors import ELQError, Errors
from ..model.onnx import PRECISIONS, OnnxTransformer, replace_transformer
from ..model.transformer import TransformerModel

ARCHITECTURE = "spacy-elq.OnnxTransformerModel.v1"


def quantize(nlp: Language, *, precision: str = "int8") -> None:
    """Let ONNX Runtime run the transformer of a pipeline, which cannot be trained any more then.

    nlp (Language): The pipeline. Its component and its config change.
    precision (str): One of `PRECISIONS`.
    """
    if precision not in PRECISIONS:
        expected = " or ".join(map(repr, PRECISIONS))
        raise ELQError(
            Errors.E002.format(setting="precision", name="quantize", value=precision, expected=expected)
        )
    for name, pipe in nlp.pipeline:
        model = getattr(pipe, "model", None)
        if not isinstance(model, TransformerModel) or isinstance(model.transformer, OnnxTransformer):
            continue
        config = nlp.get_pipe_config(name)
        pipe.model = replace_transformer(model, precision=precision)  # type: ignore[attr-defined]
        kept = {key: config["model"][key] for key in ("name", "get_spans")}
        config["model"] = {"@architectures": ARCHITECTURE, **kept}
        return
    raise ELQError(
        Errors.E092.format(pipeline=nlp.path or nlp.meta["name"], pipes=", ".join(nlp.pipe_names) or "none")
    )
