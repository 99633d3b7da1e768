"""What the reader finds, kept by question and passage in SQLite and shared by all systems."""

import sqlite3
from pathlib import Path
from typing import Dict, Iterable, List, Sequence, Tuple

import numpy as np
from tqdm import tqdm

from .answers import is_exact
from .passages import Passages
from .reader import Reader, Reading, hash_heads
from .runs import Run
from .types import Array, Question

_CHUNK = 1024


def make_stamp(reader: Path, passages: Passages) -> str:
    """RETURNS (str): What changes if the reader or the passages do."""
    return f"{len(passages)} {hash_heads(reader)}"


class Readings:
    """A file of readings by one reader."""

    def __init__(self, path: Path, stamp: str) -> None:
        """Open a file, or make one.

        stamp (str): Of the reader and the passages; what other ones left is removed.
        """
        path.parent.mkdir(parents=True, exist_ok=True)
        self._db = sqlite3.connect(path)
        with self._db:
            self._db.execute("CREATE TABLE IF NOT EXISTS stamp (stamp TEXT PRIMARY KEY)")
            self._db.execute(
                "CREATE TABLE IF NOT EXISTS readings (qid TEXT, passage INT, start INT, end INT, score REAL, "
                "PRIMARY KEY (qid, passage)) WITHOUT ROWID"
            )
            if self._db.execute("SELECT stamp FROM stamp").fetchall() != [(stamp,)]:
                self._db.execute("DELETE FROM readings")
                self._db.execute("DELETE FROM stamp")
                self._db.execute("INSERT INTO stamp VALUES (?)", (stamp,))

    def of(self, qid: str) -> Dict[int, Reading]:
        """RETURNS (Dict[int, Reading]): What was read for a question, by passage."""
        rows = self._db.execute("SELECT passage, start, end, score FROM readings WHERE qid = ?", (qid,))
        return {passage: Reading(start, end, score) for passage, start, end, score in rows}

    def add(self, keys: Sequence[Tuple[str, int]], found: Sequence[Reading]) -> None:
        """Keep readings, in one transaction."""
        rows = [(*key, *reading) for key, reading in zip(keys, found, strict=True)]
        with self._db:
            self._db.executemany("INSERT OR REPLACE INTO readings VALUES (?, ?, ?, ?, ?)", rows)


def read_all(
    reader: Reader,
    questions: Sequence[Question],
    runs: Iterable[Run],
    passages: Passages,
    readings: Readings,
    *,
    count: int,
) -> int:
    """Read the first passages of several systems, each once.

    count (int): How many passages of each system.
    RETURNS (int): How many were read; an interrupted reading goes on.
    """
    both = np.concatenate([run.passages[:, :count] for run in runs], axis=1)
    waiting: List[Tuple[int, int]] = []
    for i, question in enumerate(questions):
        known = readings.of(question.qid)
        waiting += [
            (i, passage) for passage in np.unique(both[i]).tolist() if passage >= 0 and passage not in known
        ]
    for begin in tqdm(range(0, len(waiting), _CHUNK), desc="Read", unit=f" x {_CHUNK} passages"):
        own = waiting[begin : begin + _CHUNK]
        found = reader.read([(questions[i].text, passages[passage].full) for i, passage in own])
        readings.add([(questions[i].qid, passage) for i, passage in own], found)
    return len(waiting)


def find_answers(
    questions: Sequence[Question], run: Run, passages: Passages, readings: Readings, *, count: int
) -> List[str]:
    """RETURNS (List[str]): The answer to each question: the best span of the first passages of a system; ""
    if there are none.
    """
    answers = []
    for question, own in zip(questions, run.passages[:, :count], strict=True):
        known = readings.of(question.qid)
        read = [(known[i], i) for i in own.tolist() if i >= 0 and known[i].end]
        if read:
            best, passage = max(read, key=lambda pair: pair[0].score)
            answers.append(passages[passage].full[best.start : best.end])
        else:
            answers.append("")
    return answers


def exact_matches(questions: Sequence[Question], answers: Sequence[str]) -> Array:
    """RETURNS (Array): (questions,) whether the answer is one of those that count."""
    pairs = zip(questions, answers, strict=True)
    return np.asarray([is_exact(answer, question.answers) for question, answer in pairs], dtype=bool)
