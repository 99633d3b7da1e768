"""Words of questions and passages, as numbers: lower case, no accents, stems.

A folder has `words.npy`, the words of all passages one after the other, `ends.npy` (passages + 1), and
`stems.txt` with the stem of each number.
"""

import re
import unicodedata
from functools import cached_property
from pathlib import Path
from typing import Dict, Iterable, Iterator, List

import numpy as np
import Stemmer
from tqdm import tqdm

from .types import Array, QAError

_WORD = re.compile(r"\w+")
_CHUNK = 1 << 22
# of Lucene, and what questions are asked with
_STOP_WORDS = """
a an and are as at be but by for if in into is it no not of on or such that the their then there these
they this to was will with what which who whom whose when where why how do does did s
"""
STOP_WORDS = frozenset(_STOP_WORDS.split())


def find_words(text: str) -> List[str]:
    """RETURNS (List[str]): The words of a text in lower case, without accents."""
    lowered = text.lower()
    if not lowered.isascii():
        parts = unicodedata.normalize("NFKD", lowered)
        lowered = "".join(x for x in parts if not unicodedata.combining(x))
    return _WORD.findall(lowered)


def build_words(texts: Iterable[str], folder: Path) -> "Words":
    """Number the words of passages and write them to a folder.

    texts (Iterable[str]): The passages.
    RETURNS (Words): The words.
    """
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "ends.npy").unlink(missing_ok=True)
    stem = Stemmer.Stemmer("english").stemWord
    stems: Dict[str, int] = {}
    numbers: Dict[str, int] = {}
    ends, chunks, waiting = [0], [], []
    for text in tqdm(texts, desc="Words", unit=" passages"):
        words = find_words(text)
        for word in words:
            if word not in numbers:
                numbers[word] = stems.setdefault(stem(word), len(stems))
        waiting += [numbers[word] for word in words]
        ends.append(ends[-1] + len(words))
        if len(waiting) > _CHUNK:
            chunks.append(np.asarray(waiting, dtype="int32"))
            waiting = []
    np.save(folder / "words.npy", np.concatenate([*chunks, np.asarray(waiting, dtype="int32")]))
    (folder / "stems.txt").write_text("".join(f"{x}\n" for x in stems), encoding="utf8")
    np.save(folder / "ends.npy", np.asarray(ends, dtype="int64"))
    return Words(folder)


class Words:
    """A folder of words."""

    def __init__(self, folder: Path) -> None:
        """Open a folder that `build_words` wrote."""
        if not (folder / "ends.npy").is_file():
            raise QAError(f"{folder} has no words. Make them: python -m elq_qa words")
        self.folder = folder
        self.words: Array = np.load(folder / "words.npy", mmap_mode="r")
        self.ends: Array = np.load(folder / "ends.npy")
        self._stem = Stemmer.Stemmer("english").stemWord

    @cached_property
    def stems(self) -> Dict[str, int]:
        """RETURNS (Dict[str, int]): The number of each stem."""
        lines = (self.folder / "stems.txt").read_text(encoding="utf8").split("\n")[:-1]
        return {stem: i for i, stem in enumerate(lines)}

    @cached_property
    def stop_words(self) -> Array:
        """RETURNS (Array): (stems,) whether a stem carries no meaning."""
        mask = np.zeros(len(self.stems), dtype=bool)
        mask[[i for i in map(self.stems.get, map(self._stem, STOP_WORDS)) if i is not None]] = True
        return mask

    def number(self, text: str) -> Array:
        """RETURNS (Array): The words of a text, without those that no passage has."""
        found = (self.stems.get(self._stem(word)) for word in find_words(text))
        return np.asarray([i for i in found if i is not None], dtype="int32")

    def of_passages(self) -> Iterator[Array]:
        """YIELDS (Array): The words of each passage."""
        for i in range(len(self.ends) - 1):
            yield self.words[self.ends[i] : self.ends[i + 1]]
