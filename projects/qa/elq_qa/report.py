"""What was measured, as files of `results`: one for each question set."""

import json
from pathlib import Path
from typing import Dict, List, Sequence

import numpy as np

from .evaluate import compare, paired_interval, recall
from .passages import Passages
from .reading import Readings, exact_matches, find_answers
from .runs import Run
from .systems import articles_for, make_pairs
from .types import Array, Question, Row


def write_recall(name: str, questions: Sequence[Question], runs: Dict[str, Run], results: Path) -> None:
    """Write answer recall of each system: over all questions, and over those with gold entities.

    name (str): The question set.
    results (Path): The folder that gets `recall/NAME.json`.
    """
    row: Row = {"name": name, "articles": articles_for(name)}
    for part, chosen in _parts(questions).items():
        own = {x: run.firsts[chosen] for x, run in runs.items() if _belongs(x, part)}
        row[part] = {
            "questions": int(chosen.sum()),
            "recall": {system: recall(firsts) for system, firsts in own.items()},
            "differences": {
                str(cut): compare({x: y < cut for x, y in own.items()}, make_pairs(row["articles"]))
                for cut in (5, 40)
            },
        }
    write_result(results / "recall" / f"{name}.json", row)


def write_exact(
    name: str,
    questions: Sequence[Question],
    runs: Dict[str, Run],
    passages: Passages,
    readings: Readings,
    results: Path,
    *,
    count: int,
) -> None:
    """Write exact match of each system, over the same parts as answer recall, with a 95 % interval.

    count (int): How many passages of each system were read.
    results (Path): The folder that gets `exact/NAME.json`.
    """
    matches = {
        system: exact_matches(questions, find_answers(questions, run, passages, readings, count=count))
        for system, run in runs.items()
    }
    row: Row = {"name": name, "passages": count}
    for part, chosen in _parts(questions).items():
        own = {system: right[chosen] for system, right in matches.items() if _belongs(system, part)}
        row[part] = {
            "questions": int(chosen.sum()),
            "exact": {
                system: [round(float(right.mean()), 4), *paired_interval(right, np.zeros(len(right)))]
                for system, right in own.items()
            },
            "differences": compare(own, make_pairs(articles_for(name))),
        }
    write_result(results / "exact" / f"{name}.json", row)


def write_losses(losses: List[float], questions: int, folder: Path) -> None:
    """Write how the training of a reader went, beside it."""
    window = max(1, len(losses) // 10)
    row = {
        "questions": questions,
        "steps": len(losses),
        "first_loss": round(float(np.mean(losses[:window])), 4),
        "last_loss": round(float(np.mean(losses[-window:])), 4),
    }
    write_result(folder / "training.json", row)


def _parts(questions: Sequence[Question]) -> Dict[str, Array]:
    """RETURNS (Dict[str, Array]): Which questions are in each part: all, and those with gold entities."""
    is_gold = np.asarray([bool(question.gold) for question in questions])
    return {"all": np.ones(len(questions), dtype=bool), **({"gold": is_gold} if is_gold.any() else {})}


def _belongs(system: str, part: str) -> bool:
    # gold entities are known for some questions only
    return part == "gold" or not system.startswith("gold")


def write_result(path: Path, row: Row) -> None:
    """Write a result file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(row, indent=1, ensure_ascii=False) + "\n", encoding="utf8")
