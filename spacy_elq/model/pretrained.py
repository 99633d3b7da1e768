"""The files of an entity encoder: what is loaded from a folder or the hub, and written to a folder."""

import copy
import hashlib
from pathlib import Path
from typing import Any, Dict, FrozenSet, NamedTuple

import numpy as np
import torch
from transformers import AutoConfig, AutoModel, AutoTokenizer

from ..errors import ELQError, Errors
from ..types import Array
from .fetch import hub_options

# the weights of an encoder that is saved in int8
INT8 = "model_int8.onnx"


class Pretrained(NamedTuple):
    """What transformers loads.

    tokenizer, config (Any): The tokenizer, and the configuration as it was saved.
    model (Any): The transformer, its weights frozen, or None if they were not asked for.
    unsaved (FrozenSet[str]): Weights that the encoder was saved without: they have random values.
    """

    tokenizer: Any
    config: Any
    model: Any
    unsaved: FrozenSet[str]


def load_pretrained(name: str, *, with_weights: bool = True) -> Pretrained:
    """Load an encoder.

    name (str): A local folder, or the name of a model on the Hugging Face hub.
    RETURNS (Pretrained): Its parts.
    """
    options = hub_options(name)
    try:
        tokenizer = AutoTokenizer.from_pretrained(name, use_fast=True, **options)
        if not with_weights:
            return Pretrained(tokenizer, AutoConfig.from_pretrained(name, **options), None, frozenset())
        model, info = AutoModel.from_pretrained(name, output_loading_info=True, **options)
    except Exception as err:  # what the libraries raise for a damaged model is theirs to choose
        problem = (str(err) or type(err).__name__).splitlines()[0]
        raise ELQError(Errors.E036.format(name=name, problem=problem)) from err
    # saving the model changes its own
    config = copy.deepcopy(model.config)
    return Pretrained(tokenizer, config, model.eval().requires_grad_(False), frozenset(info["missing_keys"]))


def read_graph(name: str, sha256: str) -> bytes:
    """RETURNS (bytes): The weights in int8 of a folder, whose checksum must be right."""
    try:
        graph = (Path(name) / INT8).read_bytes()
    except OSError as err:
        raise ELQError(Errors.E036.format(name=name, problem=f"{INT8}: {err.strerror}")) from None
    if hashlib.sha256(graph).hexdigest() != sha256:
        problem = f"{INT8} is damaged: its sha256 is not that of its recipe."
        raise ELQError(Errors.E036.format(name=name, problem=problem))
    return graph


def write_graph(folder: Path, graph: bytes) -> str:
    """Write weights in int8. RETURNS (str): Their sha256."""
    (folder / INT8).write_bytes(graph)
    return hashlib.sha256(graph).hexdigest()


def write_encoder(name: str, weights: Dict[str, Array], folder: Path) -> None:
    """Write an encoder: configuration and tokenizer of a known one, with other parameters.

    name (str): A local folder (no weights are needed there) or the name of a model on the hub.
    weights (Dict[str, Array]): Every parameter, by its name in the model.
    folder (Path): Gets what `EntityEncoder` and transformers can load.
    RAISES (ELQError): If a parameter is missing, unknown or of another shape.
    """
    options = hub_options(name)
    try:
        config = AutoConfig.from_pretrained(name, **options)
        tokenizer = AutoTokenizer.from_pretrained(name, use_fast=True, **options)
        model = AutoModel.from_config(config)
    except Exception as err:  # what the libraries raise for a damaged model is theirs to choose
        problem = (str(err) or type(err).__name__).splitlines()[0]
        raise ELQError(Errors.E036.format(name=name, problem=problem)) from err
    own = model.state_dict()
    # a buffer that old versions saved with the parameters
    given = {key: value for key, value in weights.items() if key != "embeddings.position_ids"}
    problems = [f"{key} is missing" for key in own if key not in given]
    problems += [f"{key} is unknown" for key in given if key not in own]
    problems += [
        f"{key} has shape {tuple(given[key].shape)} instead of {tuple(own[key].shape)}"
        for key in own
        if key in given and tuple(given[key].shape) != tuple(own[key].shape)
    ]
    if problems:
        raise ELQError(Errors.E052.format(name=name, problem="; ".join(problems[:5])))
    for key, value in given.items():
        own[key].copy_(torch.from_numpy(np.array(value)))
    # longer windows than the model has positions are cut, not an error
    tokenizer.model_max_length = min(tokenizer.model_max_length, config.max_position_embeddings)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
