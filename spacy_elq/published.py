"""The published ELQ models: from their files to a pipeline that gives the same scores."""

import ast
import json
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Dict, Iterable, Optional, Tuple

import numpy as np
from spacy import blank
from spacy.language import Language
from spacy.training import Example
from thinc.api import Config
from tqdm import tqdm

from .catalogue import read_catalogue
from .entity_encoder import EntityEncoder, write_encoder
from .errors import ELQError, Errors
from .index import EntityIndex, import_index
from .tensors import read_tensors
from .types import Array

QUESTIONS, ENTITIES = "context_encoder.bert_model.", "cand_encoder.bert_model."
HEAD = "classification_heads.mention_scores.bound_classifier."
# what the published models are, and all that this package computes
_EXPECTED = {
    "mention_aggregation_type": "all_avg",
    "mention_scoring_method": "qa_linear",
    "no_mention_bounds": True,
    "add_linear": False,
    "pull_from_layer": -1,
    "lowercase": True,
}
_HNSW, _INNER_PRODUCT = b"IHNf", 0
PIPELINE_CONFIG = """
[nlp]
lang = "en"

[nlp.tokenizer]
@tokenizers = "spacy-elq.BertTokenizer.v1"

[transformer]
max_batch_items = 4096

[transformer.model]
@architectures = "spacy-transformers.TransformerModel.v3"
tokenizer_config = {"use_fast": true}

[transformer.model.get_spans]
@span_getters = "spacy-transformers.strided_spans.v1"
window = 128
stride = 96

[elq_linker]
bundle_index = true
mention_limit = 50

[elq_linker.model]
@architectures = "spacy-elq.QuestionTower.v1"

[elq_linker.model.tok2vec]
@architectures = "spacy-elq.WordPieceListener.v1"
"""


@dataclass(frozen=True)
class Published:
    """The files of a published model, opened and checked against each other.

    params (Dict[str, Any]): Its settings.
    tensors (Dict[str, Array]): Its parameters.
    vectors (Array): (entities, width) of its catalogue.
    bert (str): Where configuration and tokenizer of its encoders are.
    """

    params: Dict[str, Any]
    tensors: Dict[str, Array]
    vectors: Array
    bert: str


def open_published(
    checkpoint: Path, params: Path, vectors: Path, index: Optional[Path], *, bert: Optional[str] = None
) -> Published:
    """Open the files of a published model and check what can be checked without reading them all.

    bert (Optional[str]): Folder or hub name for configuration and tokenizer; by default what the params name.
    RETURNS (Published): The model.
    """
    settings = read_params(params)
    tensors = read_tensors(checkpoint)
    if not isinstance(tensors, dict):
        raise ELQError(Errors.E050.format(path=checkpoint, problem="a single tensor, not a checkpoint"))
    _check_keys(checkpoint, tensors)
    matrix = read_tensors(vectors)
    if isinstance(matrix, dict) or matrix.ndim != 2 or matrix.dtype != np.float32:
        raise ELQError(Errors.E050.format(path=vectors, problem="not a float32 matrix, a row an entity"))
    width = tensors[HEAD + "weight"].shape[1]
    if matrix.shape[1] != width:
        problem = f"vectors of width {matrix.shape[1]}, but {checkpoint} has width {width}"
        raise ELQError(Errors.E050.format(path=vectors, problem=problem))
    if index is not None:
        check_hnsw_file(index, matrix.shape)
    if bert is None:
        # a name in the params is relative to them, or one on the hub
        beside = params.parent / settings["bert_model"]
        bert = str(beside) if beside.is_dir() else str(settings["bert_model"])
    return Published(settings, tensors, matrix, bert)


def read_params(path: Path) -> Dict[str, Any]:
    """RETURNS (Dict[str, Any]): The settings of a published model, the one-line dict that training wrote."""
    if not path.is_file():
        raise ELQError(Errors.E022.format(path=path, hint="Expected the params file of the model."))
    text = path.read_text(encoding="utf8").strip()
    problem = "not the one-line Python dict of a published model"
    if _is_json(text):
        raise ELQError(Errors.E050.format(path=path, problem=f"JSON, {problem}"))
    try:
        params = ast.literal_eval(text)
    except (ValueError, SyntaxError):
        raise ELQError(Errors.E050.format(path=path, problem=problem)) from None
    if not isinstance(params, dict) or "bert_model" not in params:
        raise ELQError(Errors.E050.format(path=path, problem=f"{problem}: no `bert_model` in it"))
    for key, expected in _EXPECTED.items():
        if params.get(key, expected) != expected:
            problem = f"{key} is {params[key]!r}; only {expected!r}, as in the published models, is supported"
            raise ELQError(Errors.E050.format(path=path, problem=problem))
    return params


def _is_json(text: str) -> bool:
    try:
        json.loads(text)
    except ValueError:
        return False
    return True


def check_hnsw_file(path: Path, shape: Tuple[int, ...]) -> None:
    """Check that a FAISS file is an HNSW index of so many vectors by inner product, by its first bytes."""
    if not path.is_file():
        raise ELQError(Errors.E022.format(path=path, hint="Expected a FAISS index."))
    with path.open("rb") as file_:
        head = file_.read(37)
    if len(head) < 37 or head[:4] != _HNSW:
        problem = f"not a FAISS HNSW index (it begins with {head[:4]!r}); leave out --index to build one"
        raise ELQError(Errors.E050.format(path=path, problem=problem))
    width, count = struct.unpack("<iq", head[4:16])
    (metric,) = struct.unpack("<i", head[33:37])
    if metric != _INNER_PRODUCT:
        problem = f"an index by L2 distance, of width {width}; ELQ searches by inner product"
        raise ELQError(Errors.E050.format(path=path, problem=problem))
    if (count, width) != shape:
        problem = f"an index of {count} vectors of width {width} for {shape[0]} vectors of width {shape[1]}"
        raise ELQError(Errors.E050.format(path=path, problem=problem))


def _check_keys(path: Path, tensors: Dict[str, Array]) -> None:
    heads = [HEAD + "weight", HEAD + "bias"]
    missing = [key for key in heads if key not in tensors]
    missing += [f"{prefix}*" for prefix in (QUESTIONS, ENTITIES) if not _part(tensors, prefix)]
    unknown = [k for k in tensors if k not in heads and not k.startswith((QUESTIONS, ENTITIES))]
    if missing or unknown:
        parts = [f"no tensor {', '.join(missing)}"] if missing else []
        parts += [f"unknown tensors {', '.join(unknown[:5])}"] if unknown else []
        raise ELQError(Errors.E050.format(path=path, problem="; ".join(parts)))
    weight, bias = tensors[heads[0]], tensors[heads[1]]
    if weight.ndim != 2 or weight.shape[0] != 3 or bias.shape != (3,):
        problem = (
            f"{heads[0]} of shape {weight.shape} and bias of shape {bias.shape}, expected (3, width) and (3,)"
        )
        raise ELQError(Errors.E050.format(path=path, problem=problem))


def _part(tensors: Dict[str, Array], prefix: str) -> Dict[str, Array]:
    return {key[len(prefix) :]: value for key, value in tensors.items() if key.startswith(prefix)}


def import_published(
    model: Published,
    entities: Path,
    folder: Path,
    *,
    index: Optional[Path] = None,
    ids: str = "wikidata",
    factory: Optional[str] = None,
    progress: bool = False,
) -> Language:
    """Write what a pipeline needs into a folder and build the pipeline.

    entities (Path): The published catalogue, entity.jsonl.
    folder (Path): Gets `entity_encoder`, `question_encoder` and `index`.
    index (Optional[Path]): The published HNSW file, used as it is; None builds one by `factory`.
    ids (str): What becomes the id of an entity: wikidata, title or curid.
    RETURNS (Language): The pipeline, attached to the index.
    """
    for name, prefix in (("question_encoder", QUESTIONS), ("entity_encoder", ENTITIES)):
        write_encoder(model.bert, _part(model.tensors, prefix), folder / name)
    encoder = EntityEncoder(
        str(folder / "entity_encoder"), pooling="cls", max_length=model.params.get("max_cand_length", 128)
    )
    opened = import_index(
        tqdm(read_catalogue(entities, ids=ids), desc="Catalogue", unit=" entities", disable=not progress),
        model.vectors,
        folder / "index",
        encoder,
        search=index,
        factory=factory,
        progress=progress,
    )
    return build_pipeline(model, folder / "question_encoder", opened)


def build_pipeline(model: Published, encoder: Path, index: EntityIndex) -> Language:
    """RETURNS (Language): A pipeline with the parameters of a published model."""
    config = Config().from_str(PIPELINE_CONFIG)
    nlp = blank("en", config={"nlp": {"tokenizer": config["nlp"]["tokenizer"]}})
    config["transformer"]["model"]["name"] = str(encoder)
    # ends of mentions are inclusive there: one piece more than its setting says
    config["elq_linker"]["max_length"] = model.params.get("max_mention_length", 10) + 1
    nlp.add_pipe("transformer", config=config["transformer"])
    linker: Any = nlp.add_pipe("elq_linker", config=config["elq_linker"])

    def examples() -> Iterable[Example]:
        doc = nlp.make_doc("who wrote it")
        return [Example(doc, doc)]

    nlp.get_pipe("transformer").initialize(examples, nlp=nlp)  # type: ignore[attr-defined]
    linker.initialize(examples, nlp=nlp, index_loader=lambda: index)
    scorer = linker.model.layers[2]
    scorer.set_param("W", np.array(model.tensors[HEAD + "weight"]))
    scorer.set_param("b", np.array(model.tensors[HEAD + "bias"]))
    return nlp
