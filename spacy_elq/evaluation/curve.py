"""The training curve: loss and F1 by step, from the log of `spacy train`, as SVG."""

import math
from html import escape
from pathlib import Path
from typing import Any, Dict, List, NamedTuple, Optional, Sequence, Tuple

import srsly

from ..errors import ELQError, Errors
from ..files import check_file, check_text

# spaCy's name for the score; its logger writes percent
WEAK_F1 = "elq_weak_f"
# components that others listen to: what they report is the size of a gradient, not a loss
_UPSTREAM = ("transformer", "tok2vec")
# in pixels: one chart, and the room around it
_WIDTH, _HEIGHT, _LEFT, _RIGHT, _TOP, _BOTTOM = 460, 240, 48, 16, 30, 38

Point = Tuple[float, float]

# the colours are those of the page it is on; lines differ in light and dark
STYLE = """
.curve { display: flex; flex-wrap: wrap; gap: 1rem; margin: 1rem 0 3rem }
.curve svg { width: 460px; max-width: 100%; height: auto; font: 12px sans-serif }
.curve text { fill: currentColor }
.curve .grid { stroke: currentColor; stroke-opacity: 0.15 }
.curve .line { fill: none; stroke-width: 2 }
.curve .line0 { stroke: #2563b0 } .curve .dot0 { fill: #2563b0 }
.curve .line1 { stroke: #b3541e } .curve .dot1 { fill: #b3541e }
.curve .line2 { stroke: #3d7a3d } .curve .dot2 { fill: #3d7a3d }
@media (prefers-color-scheme: dark) {
  .curve .line0 { stroke: #7fb3f5 } .curve .dot0 { fill: #7fb3f5 }
  .curve .line1 { stroke: #f0a070 } .curve .dot1 { fill: #f0a070 }
  .curve .line2 { stroke: #8fcf8f } .curve .dot2 { fill: #8fcf8f }
}
"""
_COLOURS = 3


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
    RETURNS (str): Two SVG charts, for a page that has `STYLE`. Without weak F1 in the log, the second one
        shows the score that the best model was chosen by.
    """
    best = max(log, key=lambda evaluation: evaluation.score)
    name, scores = _scores(log)
    title = f"{name} on development questions: {dict(scores)[best.step]:.3f} at step {best.step}"
    charts = [
        _chart("Loss per step", _losses(log)),
        _chart(title, {name: scores}, top=1.0, marked=best.step),
    ]
    return f'<div class="curve">{"".join(charts)}</div>'


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


def _chart(
    title: str,
    lines: Dict[str, List[Point]],
    *,
    top: Optional[float] = None,
    marked: Optional[float] = None,
) -> str:
    """Draw one chart.

    lines (Dict[str, List[Point]]): By name; names are shown where there is more than one.
    top (Optional[float]): The upper end of the y axis; None takes what the lines need.
    marked (Optional[float]): The x of the points that get a larger dot.
    RETURNS (str): The SVG.
    """
    points = [point for line in lines.values() for point in line]
    x_ticks = ticks(0.0, max((x for x, _ in points), default=0.0))
    y_ticks = ticks(0.0, max((y for _, y in points), default=0.0) if top is None else top)
    right = max(max((x for x, _ in points), default=0.0), 1.0)

    def place(point: Point) -> Point:
        x = _LEFT + point[0] / right * (_WIDTH - _LEFT - _RIGHT)
        return x, _HEIGHT - _BOTTOM - point[1] / y_ticks[-1] * (_HEIGHT - _TOP - _BOTTOM)

    parts = [f'<text x="{_LEFT}" y="16" font-weight="bold">{escape(title)}</text>']
    for y in y_ticks:
        _, at = place((0.0, y))
        parts.append(f'<line class="grid" x1="{_LEFT}" x2="{_WIDTH - _RIGHT}" y1="{at:.1f}" y2="{at:.1f}"/>')
        parts.append(f'<text x="{_LEFT - 6}" y="{at + 4:.1f}" text-anchor="end">{y:g}</text>')
    for x in [x for x in x_ticks if x <= right]:
        at, _ = place((x, 0.0))
        parts.append(f'<text x="{at:.1f}" y="{_HEIGHT - _BOTTOM + 16}" text-anchor="middle">{x:g}</text>')
    parts.append(f'<text x="{_WIDTH - _RIGHT}" y="{_HEIGHT - 4}" text-anchor="end">step</text>')
    for i, (name, line) in enumerate(lines.items()):
        parts += _line(i % _COLOURS, name, line, [place(point) for point in line], marked)
        if len(lines) > 1:
            y = _TOP + 14 * (i + 1)
            parts.append(
                f'<text class="dot{i % _COLOURS}" x="{_WIDTH - _RIGHT - 4}" y="{y}" '
                f'text-anchor="end">{escape(name)}</text>'
            )
    head = f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" aria-label="{escape(title)}">'
    return f"{head}{''.join(parts)}</svg>"


def _line(
    colour: int, name: str, line: List[Point], places: List[Point], marked: Optional[float]
) -> List[str]:
    """RETURNS (List[str]): The line, and a dot for each of its points that says its values."""
    path = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
    parts = [f'<polyline class="line line{colour}" points="{path}"/>']
    for (step, value), (x, y) in zip(line, places, strict=True):
        radius = 5 if step == marked else 2.5
        hint = escape(f"{name}, step {step:g}: {value:.4g}")
        at = f'cx="{x:.1f}" cy="{y:.1f}" r="{radius}"'
        parts.append(f'<circle class="dot{colour}" {at}><title>{hint}</title></circle>')
    return parts


def ticks(low: float, high: float, most: int = 5) -> List[float]:
    """RETURNS (List[float]): Round numbers from `low` to at least `high`, at most `most` steps apart."""
    room = max(high - low, 1e-9)
    unit = 10.0 ** math.floor(math.log10(room / most))
    step = next(unit * factor for factor in (1, 2, 5, 10, 20) if unit * factor * most >= room * (1 - 1e-9))
    count = max(1, math.ceil((high - low) / step - 1e-9))
    return [low + i * step for i in range(count + 1)]
