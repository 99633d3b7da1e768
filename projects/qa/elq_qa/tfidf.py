"""TF-IDF over articles as DrQA has it: hashed words and pairs of words, log counts, no length normalization.

A folder has `begins.npy` (grams + 1), and for each gram, one after the other, the entities whose article has
it (`entities.npy`) and how often, at most 255 times (`counts.npy`).
"""

from pathlib import Path
from typing import Iterator, Tuple

import numpy as np
from tqdm import tqdm

from .types import Array, QAError
from .words import Words

GRAMS = 1 << 24
_CHUNK = 1 << 24


def hash_grams(words: Array, owners: Array, stop_words: Array, *, grams: int) -> Tuple[Array, Array]:
    """Find the words and pairs of words, but those with a stop word.

    words, owners (Array): (words,) numbers of words, and the text that each is in.
    stop_words (Array): (stems,) which words are left out.
    grams (int): A power of 2, the number of hashes.
    RETURNS (Tuple[Array, Array]): (grams,) hashes, and the text that each is in.
    """
    keep = ~stop_words[words]
    pairs = keep[:-1] & keep[1:] & (owners[:-1] == owners[1:])
    first, second = words[:-1][pairs].astype("uint64") + 1, words[1:][pairs].astype("uint64") + 1
    found = np.concatenate([words[keep].astype("uint64") + 1, first * np.uint64(0x9E3779B97F4A7C15) ^ second])
    # multiplied by an odd number, the high bits depend on all of them
    hashes = (found * np.uint64(0xD6E8FEB86659FD93)) >> np.uint64(64 - grams.bit_length() + 1)
    return hashes.astype("int64"), np.concatenate([owners[keep], owners[:-1][pairs]])


class Tfidf:
    """A folder of counts."""

    def __init__(self, folder: Path, words: Words) -> None:
        """Open a folder that `build_tfidf` wrote.

        words (Words): The words that it was made from.
        """
        if not (folder / "begins.npy").is_file():
            raise QAError(f"{folder} has no TF-IDF index. Make it: python -m elq_qa articles")
        self.words = words
        self.size = int(np.load(folder / "size.npy"))
        self._begins: Array = np.load(folder / "begins.npy", mmap_mode="r")
        self._entities: Array = np.load(folder / "entities.npy", mmap_mode="r")
        self._counts: Array = np.load(folder / "counts.npy", mmap_mode="r")

    def scores(self, question: str) -> Array:
        """RETURNS (Array): (entities,) the score of each article."""
        numbers = self.words.number(question)
        grams, _ = hash_grams(
            numbers, np.zeros(len(numbers), "int64"), self.words.stop_words, grams=len(self._begins) - 1
        )
        scores = np.zeros(self.size, dtype="float32")
        for gram, count in zip(*np.unique(grams, return_counts=True), strict=True):
            begin, end = int(self._begins[gram]), int(self._begins[gram + 1])
            known = end - begin
            idf = max(0.0, float(np.log((self.size - known + 0.5) / (known + 0.5))))
            weight = idf * idf * float(np.log1p(count))
            scores[self._entities[begin:end]] += np.float32(weight) * _LOGS[self._counts[begin:end]]
        return scores


_LOGS: Array = np.log1p(np.arange(256, dtype="float32"))


def build_tfidf(words: Words, begins: Array, folder: Path, *, grams: int = GRAMS) -> Tfidf:
    """Count the grams of all articles.

    words (Words): The words of the passages.
    begins (Array): (entities + 1,) the first passage of each entity.
    folder (Path): The folder to write.
    grams (int): A power of 2, the number of hashes.
    RETURNS (Tfidf): The index.
    """
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "begins.npy").unlink(missing_ok=True)
    known = np.zeros(grams, dtype="int64")
    for keys, _ in tqdm(_counted(words, begins, grams), desc="Count grams"):
        known += np.bincount(keys >> 32, minlength=grams)
    places = np.concatenate([[0], np.cumsum(known)])
    entities, counts = np.empty(places[-1], dtype="int32"), np.empty(places[-1], dtype="uint8")
    filled = places[:-1].copy()
    for keys, own in tqdm(_counted(words, begins, grams), desc="Write grams"):
        hashes = keys >> 32
        sizes = np.bincount(hashes, minlength=grams)
        # keys are sorted: those of a gram stand together
        rank = np.arange(len(keys)) - (np.cumsum(sizes) - sizes)[hashes]
        entities[filled[hashes] + rank] = keys & 0xFFFFFFFF
        counts[filled[hashes] + rank] = np.minimum(own, 255)
        filled += sizes
    np.save(folder / "size.npy", len(begins) - 1)
    np.save(folder / "entities.npy", entities)
    np.save(folder / "counts.npy", counts)
    np.save(folder / "begins.npy", places)
    return Tfidf(folder, words)


def _counted(words: Words, begins: Array, grams: int) -> Iterator[Tuple[Array, Array]]:
    """YIELDS (Tuple[Array, Array]): For some articles at a time, hash << 32 | entity, sorted, and how
    often.
    """
    ends = words.ends[begins]
    start = 0
    while start < len(begins) - 1:
        stop = max(start + 1, int(np.searchsorted(ends, ends[start] + _CHUNK, side="right")) - 1)
        owners = np.repeat(np.arange(start, stop), np.diff(ends[start : stop + 1]))
        numbers = np.asarray(words.words[ends[start] : ends[stop]])
        hashes, texts = hash_grams(numbers, owners, words.stop_words, grams=grams)
        yield np.unique(hashes << 32 | texts, return_counts=True)
        start = stop
