"""The training curve: loss and F1 by step, from the log of `spacy train`, as SVG."""

import math
from pathlib import Path
from typing import Any, Dict, List, NamedTuple, Sequence, Tuple

import srsly

from ..errors import ELQError, Errors
from ..files import check_file, check_text
from .chart import Line, Point, draw_chart, draw_row

# spaCy's name for the score; its logger writes percent
WEAK_F1 = "elq_weak_f"
# components that others listen to: what they report is the size of a gradient, not a loss
_UPSTREAM = ("transformer", "tok2vec")


class Evaluation(NamedTuple):
    """A line of the log.

    losses (Dict[str, float]): By component, summed over the steps since the line before.
    scores (Dict[str, float]): In percent.
    score (float): What the best model is chosen by.
    """

    step: int
    losses: Dict[str, float]
    scores: Dict[str, float]
    score: float


def read_log(path: Path) -> List[Evaluation]:
    """Read the log of a training, written by `spacy.ConsoleLogger.v3` (`output_file`).

    path (Path): The log, JSONL.
    RETURNS (List[Evaluation]): At least one.
    """
    hint = f"Write one while training: python -m spacy train CONFIG --paths.log {path}"
    check_file(path, hint)
    try:
        log = [_read_line(record) for record in srsly.read_jsonl(path)]
    except (ValueError, TypeError, KeyError, AttributeError) as err:
        problem = f"it is not the log of a training ({type(err).__name__}: {err})"
        raise ELQError(Errors.E023.format(path=path, problem=problem, hint=hint)) from None
    if not log:
        raise ELQError(Errors.E023.format(path=path, problem="it has no evaluations", hint=hint))
    return log


def _read_line(record: Any) -> Evaluation:
    check_text(record)
    losses, scores = (
        {str(name): float(value) for name, value in record[key].items()} for key in ("losses", "scores")
    )
    return Evaluation(int(record["step"]), losses, scores, float(record["score"]))


def draw_training(log: Sequence[Evaluation]) -> str:
    """Draw loss and weak F1 by step.

    log (Sequence[Evaluation]): See `read_log`.
    RETURNS (str): Two SVG charts, for a page that has `chart.STYLE`. Without weak F1 in the log, the second
        one shows the score that the best model was chosen by.
    """
    best = max(log, key=lambda evaluation: evaluation.score)
    name, scores = _scores(log)
    title = f"{name} on development questions: {dict(scores)[best.step]:.3f} at step {best.step}"
    losses = [_line(component, points) for component, points in _losses(log).items()]
    return draw_row(
        [
            draw_chart("Loss per step", losses, x_label="step"),
            draw_chart(title, [_line(name, scores)], x_label="step", top=1.0, marked=best.step),
        ]
    )


def _line(name: str, points: List[Point]) -> Line:
    return Line(name, points, [f"{name}, step {step:g}: {value:.4g}" for step, value in points])


def _scores(log: Sequence[Evaluation]) -> Tuple[str, List[Point]]:
    """RETURNS (Tuple[str, List[Point]]): What the score is called, and the score by step, from 0 to 1."""
    if all(WEAK_F1 in evaluation.scores for evaluation in log):
        return "Weak F1", [(e.step, e.scores[WEAK_F1] / 100) for e in log]
    return "Score", [(e.step, e.score) for e in log]


def _losses(log: Sequence[Evaluation]) -> Dict[str, List[Point]]:
    """RETURNS (Dict[str, List[Point]]): By component, the mean loss of the steps up to each evaluation."""
    names = [name for name in log[0].losses if name not in _UPSTREAM] or list(log[0].losses)
    lines: Dict[str, List[Point]] = {name: [] for name in names}
    before = log[0].step - 1
    for evaluation in log:
        steps = max(1, evaluation.step - before)
        before = evaluation.step
        for name in names:
            value = evaluation.losses.get(name, math.nan) / steps
            if math.isfinite(value):
                lines[name].append((evaluation.step, value))
    return lines
