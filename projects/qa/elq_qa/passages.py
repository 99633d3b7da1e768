"""Passages: articles in pieces of about 100 words, those of one entity together, its opening first.

A folder has `texts.bin` (UTF-8), `ends.npy` (passages + 1), `entities.npy` (passages,) with positions of
entities, `begins.npy` (entities + 1) with the range of passages of each, and `entities.jsonl` with their ids
and titles. Arrays and texts are memory-mapped.
"""

import json
import re
from functools import cached_property
from pathlib import Path
from typing import Dict, Iterable, Iterator, List, Sequence, Tuple

import numpy as np
from tqdm import tqdm

from .types import Array, Passage, QAError

WORDS = 100
_SENTENCE = re.compile(r"(?<=[.!?])\s+|\n+")


def split_article(text: str, *, words: int = WORDS) -> List[str]:
    """Split a text into passages of whole sentences.

    text (str): The text.
    words (int): The most words of a passage; only a sentence that is longer is cut.
    RETURNS (List[str]): The passages: their words are those of the text, in order.
    """
    passages: List[List[str]] = []
    for sentence in _SENTENCE.split(text):
        for piece in _cut(sentence.split(), words):
            if passages and len(passages[-1]) + len(piece) <= words:
                passages[-1] += piece
            else:
                passages.append(piece)
    return [" ".join(passage) for passage in passages]


def _cut(sentence: List[str], size: int) -> Iterator[List[str]]:
    for i in range(0, len(sentence), size):
        yield sentence[i : i + size]


def build_passages(
    entities: Iterable[Dict[str, str]], articles: Dict[str, List[str]], folder: Path
) -> "Passages":
    """Write a folder of passages.

    entities (Iterable[Dict[str, str]]): Records of the catalogue: `id`, `title`, perhaps `description`. The
        description is the first passage of an entity, whatever its length, and empty if there is none.
    articles (Dict[str, List[str]]): Texts by id of the entity. Those of other ids are left out.
    folder (Path): The folder to write.
    RETURNS (Passages): The passages.
    """
    folder.mkdir(parents=True, exist_ok=True)
    # opened last, so that a folder that is not complete is none
    (folder / "begins.npy").unlink(missing_ok=True)
    owners: List[int] = []
    ends, begins = [0], [0]
    with (
        (folder / "texts.bin").open("wb") as texts,
        (folder / "entities.jsonl").open("w", encoding="utf8") as names,
    ):
        for i, record in enumerate(tqdm(entities, desc="Passages", unit=" entities")):
            names.write(json.dumps([record["id"], record["title"]], ensure_ascii=False) + "\n")
            others = (piece for text in articles.get(record["id"], ()) for piece in split_article(text))
            for passage in (" ".join((record.get("description") or "").split()), *others):
                ends.append(ends[-1] + texts.write(passage.encode("utf8")))
                owners.append(i)
            begins.append(len(owners))
    np.save(folder / "ends.npy", np.asarray(ends, dtype="int64"))
    np.save(folder / "entities.npy", np.asarray(owners, dtype="int32"))
    np.save(folder / "begins.npy", np.asarray(begins, dtype="int64"))
    return Passages(folder)


class Passages(Sequence[Passage]):
    """A folder of passages."""

    def __init__(self, folder: Path) -> None:
        """Open a folder that `build_passages` wrote."""
        if not (folder / "begins.npy").is_file():
            raise QAError(f"{folder} has no passages. Make them: python -m elq_qa passages")
        self.folder = folder
        self.begins: Array = np.load(folder / "begins.npy")
        self.entities: Array = np.load(folder / "entities.npy", mmap_mode="r")
        self._ends: Array = np.load(folder / "ends.npy", mmap_mode="r")
        path = folder / "texts.bin"
        # an empty file cannot be mapped
        self._texts: Array = np.memmap(path, mode="r") if path.stat().st_size else np.empty(0, dtype="uint8")

    def __len__(self) -> int:
        """RETURNS (int): The number of passages."""
        return len(self.entities)

    def __getitem__(self, i: int) -> Passage:  # type: ignore[override]
        """RETURNS (Passage): A passage by its position."""
        entity, title = self._names[int(self.entities[i])]
        return Passage(entity, title, self._text(i))

    def _text(self, i: int) -> str:
        return self._texts[self._ends[i] : self._ends[i + 1]].tobytes().decode("utf8")

    def texts(self) -> Iterator[str]:
        """YIELDS (str): The passages in order, each with its title in front."""
        for i in range(len(self)):
            yield f"{self._names[int(self.entities[i])][1]}\n{self._text(i)}"

    @cached_property
    def _names(self) -> List[Tuple[str, str]]:
        with (self.folder / "entities.jsonl").open(encoding="utf8") as file_:
            return [tuple(json.loads(line)) for line in file_]

    @cached_property
    def _positions(self) -> Dict[str, int]:
        return {entity: i for i, (entity, _) in enumerate(self._names)}

    def position(self, entity: str) -> int:
        """RETURNS (int): Where an entity is, or -1."""
        return self._positions.get(entity, -1)

    def positions(self, entities: Iterable[str]) -> List[int]:
        """RETURNS (List[int]): Where entities are, in the order given, each once; unknown ids are left
        out.
        """
        return [i for i in dict.fromkeys(map(self.position, entities)) if i >= 0]

    def title(self, entity: int) -> str:
        """RETURNS (str): The title of the entity at a position."""
        return self._names[entity][1]

    def firsts(self, entities: Array) -> Array:
        """RETURNS (Array): The first passage of each entity."""
        return self.begins[entities]

    def others(self, entities: Array) -> Array:
        """RETURNS (Array): The passages of entities but the first of each, entity by entity."""
        ranges = [np.arange(self.begins[i] + 1, self.begins[i + 1]) for i in entities]
        return np.concatenate([np.empty(0, dtype="int64"), *ranges])
