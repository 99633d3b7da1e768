"""The published ELQ models: from their files to a pipeline that gives the same scores."""

import ast
import json
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Dict, Iterable, Optional

import numpy as np
from spacy import blank
from spacy.language import Language
from spacy.training import Example
from thinc.api import Config
from tqdm import tqdm

from ..catalogue import count_entities, read_catalogue
from ..errors import ELQError, Errors
from ..files import check_file
from ..index import EntityIndex
from ..index.backend import read_hnsw_settings
from ..model.entity_encoder import EntityEncoder
from ..model.pretrained import write_encoder
from ..pipeline.base import bundle_index
from ..pipeline.settings import update_settings
from ..types import Array
from .index import import_index
from .tensors import read_matrix, read_tensors

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

[elq_linker.decoder]
@misc = "spacy-elq.Decoder.v1"
mention_limit = 50
word_edges = false

[elq_linker.model]
@architectures = "spacy-elq.QuestionTower.v1"

[elq_linker.model.tok2vec]
@architectures = "spacy-elq.WordPieceListener.v1"
"""


@dataclass(frozen=True)
class Published:
    """The files of a published model, checked against each other.

    They are opened where they are read: pages that were read count as memory as long as a file is mapped.

    params (Dict[str, Any]): Its settings.
    checkpoint (Path): Its parameters.
    entities (Path): Its catalogue, entity.jsonl.
    count (int): How many entities that has.
    vectors (Path): Their vectors.
    index (Optional[Path]): The HNSW file over the vectors.
    bert (str): Where configuration and tokenizer of its encoders are.
    """

    params: Dict[str, Any]
    checkpoint: Path
    entities: Path
    count: int
    vectors: Path
    index: Optional[Path]
    bert: str


def open_published(
    checkpoint: Path,
    params: Path,
    entities: Path,
    vectors: Path,
    *,
    index: Optional[Path] = None,
    bert: Optional[str] = None,
) -> Published:
    """Check the files of a published model, as far as that goes without reading them all.

    index (Optional[Path]): The published HNSW file, or None to build one.
    bert (Optional[str]): Folder or hub name for configuration and tokenizer; by default what the params name.
    RETURNS (Published): The model.
    """
    settings = read_params(params)
    width = read_checkpoint(checkpoint)[HEAD + "weight"].shape[1]
    shape = read_matrix(vectors).shape
    if shape[1] != width:
        problem = f"vectors of width {shape[1]}, but {checkpoint} has width {width}"
        raise ELQError(Errors.E050.format(path=vectors, problem=f"{problem}. Name those of this model"))
    if index is not None:
        read_hnsw_settings(index, shape)
    count = count_entities(entities)
    if count != shape[0]:
        raise ELQError(Errors.E051.format(vectors=shape[0], entities=count))
    if bert is None:
        # a name in the params is relative to them, or one on the hub
        beside = params.parent / settings["bert_model"]
        bert = str(beside) if beside.is_dir() else str(settings["bert_model"])
    return Published(settings, checkpoint, entities, count, vectors, index, bert)


def read_params(path: Path) -> Dict[str, Any]:
    """RETURNS (Dict[str, Any]): The settings of a published model, the one-line dict that training wrote."""
    check_file(path, "Expected the params file of the model.")
    text = path.read_text(encoding="utf8", errors="replace").strip()
    expected = "expected the one-line Python dict that was published with it, such as elq_large_params.txt"
    if _is_json(text):
        raise ELQError(Errors.E050.format(path=path, problem=f"it is JSON; {expected}"))
    try:
        params = ast.literal_eval(text)
    except (ValueError, SyntaxError, RecursionError, MemoryError):  # the last two: nested too deeply
        raise ELQError(Errors.E050.format(path=path, problem=f"no Python; {expected}")) from None
    if not isinstance(params, dict) or "bert_model" not in params:
        raise ELQError(Errors.E050.format(path=path, problem=f"no `bert_model` in it; {expected}"))
    for key, value in _EXPECTED.items():
        if params.get(key, value) != value:
            problem = f"{key} is {params[key]!r}; only {value!r}, as in the published models, is supported"
            raise ELQError(Errors.E050.format(path=path, problem=problem))
    return params


def _is_json(text: str) -> bool:
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return False
    return True


def read_checkpoint(path: Path) -> Dict[str, Array]:
    """RETURNS (Dict[str, Array]): The parameters of a published model, memory-mapped."""
    tensors = read_tensors(path)
    if not isinstance(tensors, dict):
        raise ELQError(Errors.E050.format(path=path, problem="a single tensor, not a checkpoint"))
    _check_keys(path, tensors)
    return tensors


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
    folder: Path,
    *,
    ids: str = "wikidata",
    factory: Optional[str] = None,
    progress: bool = False,
) -> Language:
    """Write what a pipeline needs into a folder and build the pipeline.

    folder (Path): Gets `entity_encoder`, `question_encoder` and `index`.
    ids (str): What becomes the id of an entity: wikidata, title or curid.
    factory (Optional[str]): How to build the index where the model has no HNSW file; None goes by size.
    RETURNS (Language): The pipeline, attached to the index.
    """
    for name, prefix in (("question_encoder", QUESTIONS), ("entity_encoder", ENTITIES)):
        write_encoder(model.bert, _part(read_checkpoint(model.checkpoint), prefix), folder / name)
    max_length = model.params.get("max_cand_length", 128)
    encoder = EntityEncoder(str(folder / "entity_encoder"), pooling="cls", max_length=max_length)
    encoder.write_recipe(folder / "entity_encoder")
    entities = read_catalogue(model.entities, ids=ids)
    opened = import_index(
        tqdm(entities, total=model.count, desc="Catalogue", unit=" entities", disable=not progress),
        model.vectors,
        folder / "index",
        encoder,
        search=model.index,
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
    config["elq_linker"]["decoder"]["max_length"] = model.params.get("max_mention_length", 10) + 1
    nlp.add_pipe("transformer", config=config["transformer"])
    linker: Any = nlp.add_pipe("elq_linker", config=config["elq_linker"])

    def examples() -> Iterable[Example]:
        doc = nlp.make_doc("who wrote it")
        return [Example(doc, doc)]

    nlp.get_pipe("transformer").initialize(examples, nlp=nlp)  # type: ignore[attr-defined]
    linker.initialize(examples, nlp=nlp, index_loader=lambda: index)
    scorer = linker.model.layers[2]
    for name, key in (("W", "weight"), ("b", "bias")):
        scorer.set_param(name, np.array(read_checkpoint(model.checkpoint)[HEAD + key]))
    return nlp


def import_(
    checkpoint: Path,
    output: Path,
    *,
    params: Path,
    entities: Path,
    vectors: Path,
    index: Optional[Path] = None,
    bert: Optional[str] = None,
    ids: str = "wikidata",
    factory: Optional[str] = None,
    threshold: float = 0.055,
) -> None:
    """Import a published model. The output folder appears when it is complete."""
    if output.exists():
        raise ELQError(Errors.E053.format(path=output))
    model = open_published(checkpoint, params, entities, vectors, index=index, bert=bert)
    work = output.absolute().with_name(f".{output.name}.partial")
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir(parents=True)
    try:
        nlp = import_published(model, work, ids=ids, factory=factory, progress=True)
        update_settings(nlp, "elq_linker", {"decoder.threshold": threshold})
        bundle_index(nlp, "elq_linker")
        nlp.to_disk(work / "pipeline")
        (work / "entity_encoder").rename(work / "pipeline" / "entity_encoder")
        (work / "pipeline").rename(output)
    finally:
        shutil.rmtree(work, ignore_errors=True)
