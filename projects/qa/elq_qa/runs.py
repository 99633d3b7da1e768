"""Runs: what each system retrieves for a question set, and the first passage with an answer.

A run is a folder of parts of `PART` questions, so that an interrupted one goes on. A part is made again if
the links, the setting, the passages or BM25's parameters are others.
"""

from pathlib import Path
from typing import Dict, Iterable, List, NamedTuple, Sequence, Set
from zlib import crc32

import numpy as np
from tqdm import tqdm

from .answers import has_answer, tokenize
from .links import Links
from .passages import Passages
from .retrieve import Retriever, Setting
from .types import Array, QAError, Question

PART = 500
COUNT = 80
# no passage of a question has an answer
NEVER = COUNT
_NEXT = "Make it: python -m elq_qa retrieve"


class Run(NamedTuple):
    """A system on a question set.

    passages (Array): (questions, COUNT) positions of passages in order, -1 behind the last one.
    firsts (Array): (questions,) how many passages are before the first with an answer, `NEVER` if none has
        one.
    """

    passages: Array
    firsts: Array


class System(NamedTuple):
    """A setting with the links of its linker for a question set, {} without one."""

    setting: Setting
    links: Links

    def ids(self, question: Question) -> List[str]:
        """RETURNS (List[str]): The linked entities of a question, best first."""
        return [link["id"] for link in self.links.get(question.qid, ())]


def retrieve_all(
    retriever: Retriever, questions: Sequence[Question], systems: Iterable[System], folder: Path
) -> Dict[str, Run]:
    """Retrieve the passages of a question set with several systems; what depends on the question alone is
    computed once for all.

    folder (Path): Gets a folder of parts for each system.
    RETURNS (Dict[str, Run]): The runs by the names of the settings.
    """
    systems = list(systems)
    for begin in tqdm(range(0, len(questions), PART), desc=folder.name, unit=" parts"):
        own = questions[begin : begin + PART]
        paths = [folder / system.setting.name / f"{begin:06}.npz" for system in systems]
        stamps = [_stamp(retriever.stamp, own, system) for system in systems]
        waiting = [i for i, path in enumerate(paths) if _read_stamp(path) != stamps[i]]
        runs = _retrieve(retriever, own, [systems[i] for i in waiting]) if waiting else []
        for i, run in zip(waiting, runs, strict=True):
            _write(paths[i], run, stamps[i])
    return {system.setting.name: read_run(folder, system.setting.name) for system in systems}


def read_run(folder: Path, name: str) -> Run:
    """RETURNS (Run): The run of a system."""
    paths = sorted((folder / name).glob("*[0-9].npz"))
    if not paths:
        raise QAError(f"{folder / name} has no run. {_NEXT}")
    parts = [np.load(path) for path in paths]
    return Run(*(np.concatenate([part[key] for part in parts]) for key in Run._fields))


def read_runs(folder: Path, count: int) -> Dict[str, Run]:
    """RETURNS (Dict[str, Run]): The runs of all systems in a folder, for the first questions.

    RAISES (QAError): If one has fewer questions.
    """
    runs = {path.name: read_run(folder, path.name) for path in sorted(folder.glob("*")) if path.is_dir()}
    short = [name for name, run in runs.items() if len(run.firsts) < count]
    if short or not runs:
        raise QAError(f"{folder}: no complete run of {', '.join(short) or 'any system'}. {_NEXT}")
    return {name: Run(run.passages[:count], run.firsts[:count]) for name, run in runs.items()}


def _retrieve(retriever: Retriever, questions: Sequence[Question], systems: List[System]) -> List[Run]:
    """RETURNS (List[Run]): A run for each system."""
    runs = [
        Run(
            np.full((len(questions), COUNT), -1, dtype="int32"), np.full(len(questions), NEVER, dtype="int16")
        )
        for _ in systems
    ]
    for i, question in enumerate(questions):
        view = retriever.view(question.text)
        found = [retriever.retrieve(view, x.ids(question), x.setting, count=COUNT) for x in systems]
        hits = find_hits(retriever.passages, question, np.concatenate(found))
        for run, own in zip(runs, found, strict=True):
            run.passages[i, : len(own)] = own
            run.firsts[i] = _first(own, hits)
    return runs


def _stamp(retriever: str, questions: Sequence[Question], system: System) -> int:
    """RETURNS (int): A checksum of what a part is made of."""
    given = [(x.qid, x.text, x.answers, system.ids(x)) for x in questions]
    return crc32(repr((retriever, system.setting, given)).encode("utf8"))


def _read_stamp(path: Path) -> int:
    return int(np.load(path)["stamp"]) if path.is_file() else -1


def _write(path: Path, run: Run, stamp: int) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    new = path.with_suffix(".partial.npz")
    np.savez(new, stamp=stamp, passages=run.passages, firsts=run.firsts)
    new.replace(path)


def find_hits(passages: Passages, question: Question, positions: Array) -> Set[int]:
    """RETURNS (Set[int]): Those of the passages that have an answer."""
    answers = [tokenize(answer) for answer in question.answers]
    return {i for i in np.unique(positions).tolist() if has_answer(tokenize(passages[i].full), answers)}


def find_first(passages: Passages, question: Question, positions: Array) -> int:
    """RETURNS (int): How many of the passages are before the first that has an answer, `NEVER` if none has
    one.
    """
    return _first(positions, find_hits(passages, question, positions))


def _first(positions: Array, hits: Set[int]) -> int:
    return next((rank for rank, i in enumerate(positions.tolist()) if i in hits), NEVER)
