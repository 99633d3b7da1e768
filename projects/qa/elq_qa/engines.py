"""bm25s and tantivy on the same passages: time to build, size, questions/s, answer recall."""

import time
from pathlib import Path
from typing import Any, Callable, List, Sequence

import numpy as np

from .evaluate import recall
from .passages import Passages
from .runs import COUNT, NEVER, find_hits
from .search import best, build_search
from .tantivy_search import build_tantivy
from .types import Question, Row
from .words import build_words


def measure_bm25s(passages: Passages, questions: Sequence[Question], folder: Path) -> Row:
    """RETURNS (Row): What bm25s takes, with its own numbering of words, and finds."""

    def build() -> Callable[[str], List[int]]:
        search = build_search(build_words(passages.texts(), folder / "words"), folder / "search")
        return lambda text: best(search.scores(text), COUNT).tolist()

    return {"engine": "bm25s", **_measure(build, passages, questions, folder)}


def measure_tantivy(passages: Passages, questions: Sequence[Question], folder: Path) -> Row:
    """RETURNS (Row): What tantivy takes and finds."""

    def build() -> Callable[[str], List[int]]:
        search = build_tantivy(passages.texts(), folder)
        return lambda text: search.search(text, COUNT)

    return {"engine": "tantivy", **_measure(build, passages, questions, folder)}


def _measure(build: Any, passages: Passages, questions: Sequence[Question], folder: Path) -> Row:
    start = time.perf_counter()
    find = build()
    built = time.perf_counter()
    # the first questions read the files
    for question in questions[:20]:
        find(question.text)
    begun = time.perf_counter()
    found = [find(question.text) for question in questions]
    searched = time.perf_counter()
    firsts = []
    for question, own in zip(questions, found, strict=True):
        hits = find_hits(passages, question, np.asarray(own, dtype="int64"))
        firsts.append(next((rank for rank, i in enumerate(own) if i in hits), NEVER))
    size = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
    return {
        "passages": len(passages),
        "questions": len(questions),
        "build_seconds": round(built - start, 1),
        "megabytes": round(size / 1e6),
        "questions_per_second": round(len(questions) / (searched - begun), 1),
        "recall": recall(np.asarray(firsts)),
    }
