"""Encoders that cost next to nothing, and catalogues for them."""

import hashlib
import json
import random
from pathlib import Path
from typing import Any, Dict, Iterable, List

import numpy as np
import torch
from transformers import BertConfig, BertModel, BertTokenizerFast

from spacy_elq.catalogue import entity_to_dict
from spacy_elq.types import Array, Entity

_WORDS = ("red", "green", "blue", "small", "large", "old", "new", "fast", "slow", "round", "flat", "warm")
_NORM = 4.0


class StubEncoder:
    """Vectors from a hash of the texts: every process can compute which vector an entity must have."""

    def __init__(self, width: int = 32) -> None:
        """Width (int): Of the vectors."""
        self.width = width

    @property
    def fingerprint(self) -> str:
        """RETURNS (str): Equal for stubs of the same width."""
        return f"stub-{self.width}"

    @property
    def settings(self) -> Dict[str, Any]:
        """RETURNS (Dict[str, Any]): What an index stores of it."""
        return {"name": "stub", "width": self.width}

    def encode(self, entities: List[Entity], *, batch_size: int = 64) -> Array:
        """RETURNS (Array): (entities, width) float32, of the same length."""
        return np.stack([self._encode(entity) for entity in entities])

    def _encode(self, entity: Entity) -> Array:
        text = "\0".join((entity.title, entity.description, *entity.aliases))
        data = hashlib.shake_128(text.encode("utf8")).digest(4 * self.width)
        numbers = np.frombuffer(data, dtype="<u4").astype("float32") / 2.0**31 - 1
        return _NORM * numbers / np.linalg.norm(numbers)


def write_encoder(folder: Path) -> None:
    """Write a BERT of random weights whose word pieces are characters."""
    folder.mkdir(parents=True, exist_ok=True)
    characters = [chr(c) for c in range(33, 127) if not chr(c).isupper()]
    vocab = ["[PAD]", "[unused0]", "[unused1]", "[unused2]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    vocab += characters + [f"##{c}" for c in characters]
    (folder / "vocab.txt").write_text("\n".join(vocab) + "\n", encoding="utf8")
    torch.manual_seed(0)
    sizes = {"hidden_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 96}
    BertModel(BertConfig(vocab_size=len(vocab), max_position_embeddings=64, **sizes)).save_pretrained(folder)
    BertTokenizerFast(vocab_file=str(folder / "vocab.txt"), model_max_length=64).save_pretrained(folder)


def make_entities(count: int, *, first: int = 0, prefix: str = "E") -> List[Entity]:
    """RETURNS (List[Entity]): Entities with names, labels, tags and popularity, the same every time."""
    made = []
    for i in range(first, first + count):
        draw = random.Random(i)
        made.append(
            Entity(
                id=f"{prefix}{i}",
                title=f"{draw.choice(_WORDS)} {draw.choice(_WORDS)} {i}",
                description=" ".join(draw.choices(_WORDS, k=12)),
                aliases=(f"alias {i}", f"ALIAS-{i % 50}"),
                label=f"LABEL{i % 7}",
                tags=(f"tag-{i % 11}", "all"),
                popularity=float(i % 100),
            )
        )
    return made


def write_catalogue(path: Path, entities: Iterable[Entity]) -> Path:
    """RETURNS (Path): A catalogue in JSONL."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", encoding="utf8") as file_:
        for entity in entities:
            file_.write(json.dumps(entity_to_dict(entity), ensure_ascii=False) + "\n")
    return path
