"""The entity encoder: `[CLS] title [ENT] description [SEP]` to a vector."""

import hashlib
import json
from pathlib import Path
from typing import Any, Callable, Dict, List, Optional, Tuple

import numpy as np
import torch
from thinc.api import ArgsKwargs, Model, PyTorchWrapper_v2
from thinc.types import Floats2d
from torch.nn.utils.rnn import pad_sequence
from transformers import AutoConfig, AutoModel, AutoTokenizer

from ..errors import ELQError, Errors
from ..types import Array, Entity
from ..util import settle_threads
from .fetch import hub_options
from .onnx import OnnxTransformer, to_onnx
from .transformer import split_mixed_precision, use_bfloat16

POOLINGS = ("mean", "cls")
BERT_ENT = "[unused2]"
_NOT_THE_MODEL = ("_name_or_path", "transformers_version", "torch_dtype", "dtype")


class _Pooled(torch.nn.Module):
    """A transformer whose word pieces become one vector."""

    def __init__(self, transformer: torch.nn.Module, pooling: str, norm: float) -> None:
        super().__init__()
        self.transformer = transformer
        self._pooling = pooling
        self._norm = norm
        self.in_bfloat16 = False

    def forward(self, ids: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        """RETURNS (torch.Tensor): (entities, width) from (entities, pieces) ids and where they are real."""
        with use_bfloat16(self.in_bfloat16 and self.training):
            states = self.transformer(input_ids=ids, attention_mask=mask.long()).last_hidden_state.float()
        if self._pooling == "cls":
            vectors = states[:, 0]
        else:
            weights = mask.unsqueeze(-1).to(states.dtype)
            vectors = (states * weights).sum(dim=1) / weights.sum(dim=1)
        if self._norm:
            vectors = vectors * (self._norm / vectors.norm(dim=1, keepdim=True))
        return vectors.float()


class EntityEncoder:
    """A transformer over title and description."""

    def __init__(
        self,
        name: str,
        *,
        pooling: str = "mean",
        max_length: int = 128,
        aliases: bool = False,
        ent_token: Optional[str] = None,
        norm: float = 0.0,
        int8: bool = False,
    ) -> None:
        """Load the encoder.

        name (str): A local folder, or the name of a model on the Hugging Face hub.
        pooling (str): "mean" of all word pieces, which suits sentence encoders, or "cls", the vector of
            the first word piece, which matches the paper.
        max_length (int): Maximum number of word pieces, special ones included.
        aliases (bool): Whether to put the aliases between the title and the description.
        ent_token (Optional[str]): The word piece between title and description. None takes `[unused2]`
            if the vocabulary has it (BERT), else the separator token.
        norm (float): Scale every vector to this length: sentence encoders are trained to compare angles.
            0 leaves the vectors as they are, which matches the paper.
        int8 (bool): Whether ONNX Runtime computes the vectors in 8-bit integers. They are close to those of
            torch and work with the same questions.
        """
        if pooling not in POOLINGS:
            expected = " or ".join(map(repr, POOLINGS))
            raise ELQError(
                Errors.E002.format(setting="pooling", name="encode", value=pooling, expected=expected)
            )
        options = hub_options(name)
        try:
            self._tokenizer = AutoTokenizer.from_pretrained(name, use_fast=True, **options)
            self._model = AutoModel.from_pretrained(name, **options).eval()
        except Exception as err:  # what the libraries raise for a damaged model is theirs to choose
            problem = (str(err) or type(err).__name__).splitlines()[0]
            raise ELQError(Errors.E036.format(name=name, problem=problem)) from err
        room = getattr(self._model.config, "max_position_embeddings", max_length)
        if not 4 <= max_length <= room:
            raise ELQError(Errors.E037.format(found=max_length, room=room))
        if ent_token is not None and ent_token not in self._tokenizer.get_vocab():
            raise ELQError(
                Errors.E002.format(
                    setting="ent_token", name="encode", value=ent_token, expected="a piece of its vocabulary"
                )
            )
        # before the first use, which leaves traces of its own in the tokenizer
        self._tokenizer_state = self._tokenizer.backend_tokenizer.to_str()
        self._ent_token = ent_token or self._default_ent_token()
        transformer = OnnxTransformer(self._model.config, to_onnx(self._model)) if int8 else self._model
        self.module = _Pooled(transformer, pooling, norm)
        self._pooling = pooling
        self._max_length = max_length
        self._aliases = aliases
        self._norm = norm
        self._name = name
        self._int8 = int8

    @property
    def width(self) -> int:
        """RETURNS (int): The length of a vector."""
        return int(self._model.config.hidden_size)

    @property
    def settings(self) -> Dict[str, Any]:
        """RETURNS (Dict[str, Any]): How it was made."""
        return {"name": self._name, **self._text_settings(), **({"int8": True} if self._int8 else {})}

    @property
    def fingerprint(self) -> str:
        """RETURNS (str): A digest of the weights and of everything else that changes the vectors."""
        config = {key: v for key, v in self._model.config.to_dict().items() if key not in _NOT_THE_MODEL}
        described = [self._text_settings(), config, self._tokenizer_state]
        digest = hashlib.sha256(json.dumps(described, sort_keys=True, default=str).encode("utf8"))
        for key, value in sorted(self._model.state_dict().items()):
            digest.update(key.encode("utf8"))
            digest.update(value.float().contiguous().cpu().numpy().tobytes())
        return digest.hexdigest()[:16]

    def encode(self, entities: List[Entity], *, batch_size: int) -> Array:
        """Encode entities in batches of similar length.

        RETURNS (Array): (entities, width) float32, in the order given.
        """
        ids = self.word_pieces(entities) if entities else []
        order = np.argsort([len(x) for x in ids], kind="stable")
        vectors = np.zeros((len(ids), self.width), dtype="float32")
        for begin in range(0, len(order), batch_size):
            chosen = order[begin : begin + batch_size]
            vectors[chosen] = self._forward([ids[i] for i in chosen])
        return vectors

    def word_pieces(self, entities: List[Entity]) -> List[List[int]]:
        """RETURNS (List[List[int]]): The ids of `[CLS] title [ENT] description [SEP]`, cut to length."""
        tokenizer = self._tokenizer
        ent = tokenizer.convert_tokens_to_ids(self._ent_token)
        titles = self._tokenize([entity.title for entity in entities])
        texts = self._tokenize([self._text(entity) for entity in entities])
        room = self._max_length - 2
        return [
            [tokenizer.cls_token_id, *[*title, ent, *text][:room], tokenizer.sep_token_id]
            for title, text in zip(titles, texts, strict=True)
        ]

    def _text(self, entity: Entity) -> str:
        if self._aliases and entity.aliases:
            return f"{', '.join(entity.aliases)}. {entity.description}"
        return entity.description

    def _tokenize(self, texts: List[str]) -> List[List[int]]:
        # the cut happens in `word_pieces`; a longer text is no reason for a warning
        encoded = self._tokenizer(
            texts, add_special_tokens=False, truncation=True, max_length=self._max_length
        )
        return encoded["input_ids"]

    def to_tensors(self, ids: List[List[int]]) -> Tuple[torch.Tensor, torch.Tensor]:
        """RETURNS (Tuple[torch.Tensor, torch.Tensor]): (entities, pieces) padded ids, and which are real."""
        tensors = [torch.tensor(x) for x in ids]
        padded = pad_sequence(tensors, batch_first=True, padding_value=self._tokenizer.pad_token_id or 0)
        lengths = torch.tensor([len(x) for x in ids])
        mask = torch.arange(padded.shape[1])[None] < lengths[:, None]
        return padded.to(self._model.device), mask.to(self._model.device)

    def to_disk(self, path: Path) -> None:
        """Save as a folder that `EntityEncoder` and transformers can load."""
        self._model.save_pretrained(path)
        self._tokenizer.save_pretrained(path)

    @torch.inference_mode()
    def _forward(self, ids: List[List[int]]) -> Array:
        settle_threads()
        self.module.eval()  # in case it was trained in between
        return self.module(*self.to_tensors(ids)).cpu().numpy()

    def _default_ent_token(self) -> str:
        return BERT_ENT if BERT_ENT in self._tokenizer.get_vocab() else self._tokenizer.sep_token

    def _text_settings(self) -> Dict[str, Any]:
        return {
            "pooling": self._pooling,
            "max_length": self._max_length,
            "aliases": self._aliases,
            "ent_token": self._ent_token,
            "norm": self._norm,
        }


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


def build_entity_tower(
    name: str,
    pooling: str = "mean",
    max_length: int = 64,
    aliases: bool = False,
    norm: float = 0.0,
    frozen_layers: int = 0,
    mixed_precision: bool = False,
) -> Model[List[Entity], Floats2d]:
    """A trainable entity encoder, for `elq_pairs`: encodes the title and description of an entity.

    name (str): A local folder, or the name of a model on the Hugging Face hub.
    pooling (str): "mean" of all word pieces, which suits sentence encoders, or "cls", the vector of the first
        word piece, which matches the paper.
    max_length (int): Maximum number of word pieces, special ones included.
    aliases (bool): Whether to put the aliases between the title and the description.
    norm (float): Scale every vector to this length, which suits sentence encoders. 0 leaves the vectors as
        they are, which matches the paper.
    frozen_layers (int): Layers that are not trained, counted from the bottom. The word embeddings never are.
    mixed_precision (bool): As in `spacy-elq.TransformerModel.v1`.
    RETURNS (Model[List[Entity], Floats2d]): From entities to (entities, width); its `attrs["encoder"]` is the
        `EntityEncoder`.
    """
    encoder = EntityEncoder(name, pooling=pooling, max_length=max_length, aliases=aliases, norm=norm)
    transformer: Any = encoder.module.transformer
    layers = len(transformer.encoder.layer)
    if not 0 <= frozen_layers < layers:
        expected = f"at least 0 and less than the {layers} layers of the encoder"
        raise ELQError(
            Errors.E002.format(
                setting="frozen_layers", name="elq_pairs", value=frozen_layers, expected=expected
            )
        )
    for part in [transformer.embeddings, *transformer.encoder.layer[:frozen_layers]]:
        part.requires_grad_(False)
    on_gpu, encoder.module.in_bfloat16 = split_mixed_precision(mixed_precision)
    model = PyTorchWrapper_v2(encoder.module, convert_inputs=_convert_entities, mixed_precision=on_gpu)
    model.attrs["encoder"] = encoder
    model.set_dim("nO", encoder.width)
    return model


def _convert_entities(
    model: Model, entities: List[Entity], is_train: bool
) -> Tuple[ArgsKwargs, Callable[[ArgsKwargs], List[Entity]]]:
    encoder = model.attrs["encoder"]
    tensors = encoder.to_tensors(encoder.word_pieces(entities))
    return ArgsKwargs(args=tensors, kwargs={}), lambda d_inputs: []
