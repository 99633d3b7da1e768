"""What was measured, as files of `results`: one for each question set."""

import json
from pathlib import Path
from typing import Dict, Sequence

import numpy as np

from .evaluate import compare, recall
from .runs import Run
from .systems import articles_for, make_pairs
from .types import Question, Row


def write_recall(name: str, questions: Sequence[Question], runs: Dict[str, Run], results: Path) -> None:
    """Write answer recall of each system: over all questions, and over those with gold entities.

    name (str): The question set.
    results (Path): The folder that gets `recall/NAME.json`.
    """
    is_gold = np.asarray([bool(question.gold) for question in questions])
    parts = {"all": np.ones(len(questions), dtype=bool), **({"gold": is_gold} if is_gold.any() else {})}
    row: Row = {"name": name, "articles": articles_for(name)}
    for part, chosen in parts.items():
        # gold entities are known for some questions only
        own = {x: run.firsts[chosen] for x, run in runs.items() if part == "gold" or not x.startswith("gold")}
        row[part] = {
            "questions": int(chosen.sum()),
            "recall": {system: recall(firsts) for system, firsts in own.items()},
            "differences": {
                str(cut): compare({x: y < cut for x, y in own.items()}, make_pairs(row["articles"]))
                for cut in (5, 40)
            },
        }
    write_result(results / "recall" / f"{name}.json", row)


def write_result(path: Path, row: Row) -> None:
    """Write a result file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(row, indent=1, ensure_ascii=False) + "\n", encoding="utf8")
