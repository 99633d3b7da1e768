"""bm25s and tantivy on the same passages: time to build, size, questions/s, answer recall. Times are those
of the CPU, all threads together: other processes hardly change them.
"""

import shutil
import time
from pathlib import Path
from typing import Callable, Sequence

import numpy as np

from .evaluate import recall
from .passages import Passages
from .runs import COUNT, find_first
from .search import best, build_search
from .tantivy_search import build_tantivy
from .types import Array, QAError, Question, Row
from .words import build_words

Find = Callable[[str], Array]


def measure(library: str, passages: Passages, questions: Sequence[Question], folder: Path) -> Row:
    """Build an index of passages and search it.

    library (str): "bm25s" or "tantivy".
    folder (Path): For the index; what is there is removed.
    RETURNS (Row): Seconds to build, with what numbers words; megabytes; questions/s and answer recall.
    """
    if library not in _BUILD:
        raise QAError(f"library is {library!r}. Expected one of {', '.join(_BUILD)}.")
    shutil.rmtree(folder, ignore_errors=True)
    start = time.process_time()
    find = _BUILD[library](passages, folder)
    built = time.process_time()
    # the first questions read the files
    for question in questions[:20]:
        find(question.text)
    begun = time.process_time()
    found = [find(question.text) for question in questions]
    searched = time.process_time()
    size = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
    return {
        "engine": library,
        "passages": len(passages),
        "questions": len(questions),
        "build_seconds": round(built - start, 1),
        "megabytes": round(size / 1e6),
        "questions_per_second": round(len(questions) / (searched - begun), 1),
        "recall": recall(
            np.asarray([find_first(passages, *pair) for pair in zip(questions, found, strict=True)])
        ),
    }


def _build_bm25s(passages: Passages, folder: Path) -> Find:
    search = build_search(build_words(passages.texts(), folder / "words"), folder / "search")
    return lambda text: best(search.scores(text), COUNT)


def _build_tantivy(passages: Passages, folder: Path) -> Find:
    search = build_tantivy(passages.texts(), folder)
    return lambda text: np.asarray(search.search(text, COUNT), dtype="int64")


_BUILD = {"bm25s": _build_bm25s, "tantivy": _build_tantivy}
