"""What was tried on the development set, so that nothing is chosen on a test set: BM25's parameters, and how
much the passages of linked entities are raised.
"""

from pathlib import Path
from typing import Iterable, List, Sequence, Tuple

import numpy as np

from .evaluate import recall
from .links import Links
from .passages import Passages
from .retrieve import Retriever, Setting
from .runs import COUNT, NEVER, find_first
from .search import best, build_search
from .systems import LINKERS
from .types import Question, Row
from .words import Words


def try_bm25(
    words: Words,
    passages: Passages,
    questions: Sequence[Question],
    pairs: Iterable[Tuple[float, float]],
    folder: Path,
) -> List[Row]:
    """Measure answer recall by BM25 for pairs of k1 and b.

    folder (Path): For the index of each pair, one after the other.
    RETURNS (List[Row]): `what`, `value` and `recall` of each.
    """
    rows = []
    for k1, b in pairs:
        search = build_search(words, folder, k1=k1, b=b)
        firsts = [find_first(passages, x, best(search.scores(x.text), COUNT)) for x in questions]
        rows.append({"what": "BM25: k1, b", "value": f"{k1}, {b}", "recall": recall(np.asarray(firsts))})
    return rows


def try_boosts(
    retriever: Retriever, questions: Sequence[Question], linker: str, links: Links, boosts: Iterable[float]
) -> List[Row]:
    """RETURNS (List[Row]): Answer recall for each rise of the passages of linked entities."""
    boosts = list(boosts)
    firsts = np.full((len(boosts), len(questions)), NEVER)
    for column, question in enumerate(questions):
        view = retriever.view(question.text, articles=0)
        ids = [link["id"] for link in links.get(question.qid, ())]
        found = [retriever.retrieve(view, ids, Setting(linker, boost=x), count=COUNT) for x in boosts]
        firsts[:, column] = [find_first(retriever.passages, question, own) for own in found]
    return [
        {"what": f"rise for {LINKERS[linker]}", "value": f"{boost}", "recall": recall(own)}
        for boost, own in zip(boosts, firsts, strict=True)
    ]
