"""The entity encoder: `[CLS] title [ENT] description [SEP]` to a vector. Here are torch and
transformers, nowhere else.
"""

import hashlib
import json
from typing import Any, Dict, List, Optional

import numpy as np
import torch
from torch.nn.utils.rnn import pad_sequence
from transformers import AutoModel, AutoTokenizer

from .errors import ELQError, Errors
from .types import Array, Entity

POOLINGS = ("mean", "cls")
BERT_ENT = "[unused2]"
_NOT_THE_MODEL = ("_name_or_path", "transformers_version", "torch_dtype", "dtype")


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
    ) -> None:
        """Load the encoder.

        name (str): A local folder or the name of a model on the hub.
        pooling (str): "mean" of all word pieces, as sentence encoders want it, or "cls", the vector
            of the first, as the paper has it.
        max_length (int): Word pieces in all, the special ones included.
        aliases (bool): Whether the aliases stand between the title and the description.
        ent_token (Optional[str]): The piece between title and description. None takes `[unused2]`
            where the vocabulary has it (BERT), else the separator token.
        norm (float): Give every vector this length. Sentence encoders compare by angle, so that the
            length of their vectors only disturbs. 0 leaves the vectors as they are, as the paper does.
        """
        if pooling not in POOLINGS:
            expected = " or ".join(map(repr, POOLINGS))
            raise ELQError(
                Errors.E002.format(setting="pooling", name="encode", value=pooling, expected=expected)
            )
        try:
            self._tokenizer = AutoTokenizer.from_pretrained(name, use_fast=True)
            self._model = AutoModel.from_pretrained(name).eval()
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
        self._pooling = pooling
        self._max_length = max_length
        self._aliases = aliases
        self._norm = norm
        self._name = name

    @property
    def width(self) -> int:
        """RETURNS (int): The length of a vector."""
        return int(self._model.config.hidden_size)

    @property
    def settings(self) -> Dict[str, Any]:
        """RETURNS (Dict[str, Any]): How it was made."""
        return {"name": self._name, **self._text_settings()}

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
        if self._norm:
            vectors *= self._norm / np.linalg.norm(vectors, axis=1, keepdims=True)
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

    @torch.inference_mode()
    def _forward(self, ids: List[List[int]]) -> Array:
        tensors = [torch.tensor(x) for x in ids]
        padded = pad_sequence(tensors, batch_first=True, padding_value=self._tokenizer.pad_token_id or 0)
        lengths = torch.tensor([len(x) for x in ids])
        mask = torch.arange(padded.shape[1])[None] < lengths[:, None]
        padded, mask = padded.to(self._model.device), mask.to(self._model.device)
        states = self._model(input_ids=padded, attention_mask=mask.long()).last_hidden_state
        if self._pooling == "cls":
            return states[:, 0].float().cpu().numpy()
        weights = mask.unsqueeze(-1).to(states.dtype)
        pooled = (states * weights).sum(dim=1) / weights.sum(dim=1)
        return pooled.float().cpu().numpy()

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
