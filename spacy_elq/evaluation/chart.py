"""Charts of the report page, as SVG: lines, bars, axes."""

import math
from html import escape
from typing import Iterable, List, NamedTuple, Optional, Sequence, Tuple

# in pixels: one chart, and the room around it
_WIDTH, _HEIGHT, _LEFT, _RIGHT, _TOP, _BOTTOM = 460, 240, 48, 16, 30, 38
_COLOURS = 3

Point = Tuple[float, float]

# the colours are those of the page it is on; lines differ in light and dark
STYLE = """
.curve { display: flex; flex-wrap: wrap; gap: 1rem; margin: 1rem 0 }
.curve svg { flex: 1 1 400px; min-width: 0; max-width: 560px; height: auto; font: 12px sans-serif }
.curve text { fill: currentColor }
.curve .grid { stroke: currentColor; stroke-opacity: 0.15 }
.curve .guide { stroke: currentColor; stroke-opacity: 0.6; stroke-dasharray: 4 4 }
.curve .line { fill: none; stroke-width: 2 }
.curve .bar { fill: #2563b0; fill-opacity: 0.45 }
.curve .line0 { stroke: #2563b0 } .curve .dot0 { fill: #2563b0 }
.curve .line1 { stroke: #b3541e } .curve .dot1 { fill: #b3541e }
.curve .line2 { stroke: #3d7a3d } .curve .dot2 { fill: #3d7a3d }
@media (prefers-color-scheme: dark) {
  .curve .bar { fill: #7fb3f5 }
  .curve .line0 { stroke: #7fb3f5 } .curve .dot0 { fill: #7fb3f5 }
  .curve .line1 { stroke: #f0a070 } .curve .dot1 { fill: #f0a070 }
  .curve .line2 { stroke: #8fcf8f } .curve .dot2 { fill: #8fcf8f }
}
"""


class Line(NamedTuple):
    """A line of a chart.

    name (str): Shown where a chart has several lines.
    points (List[Point]): x and y, none below 0.
    hints (List[str]): What a browser shows for each point.
    """

    name: str
    points: List[Point]
    hints: List[str]


class Bar(NamedTuple):
    """A bar of a chart: it goes from `low` to `high`, and up to `value`."""

    low: float
    high: float
    value: float
    hint: str


class _Frame(NamedTuple):
    """The axes of a chart: where the x axis ends, and the numbers on the y axis."""

    right: float
    y_ticks: List[float]

    def place(self, point: Point) -> Point:
        """RETURNS (Point): Where a point is drawn, in pixels."""
        x = _LEFT + point[0] / self.right * (_WIDTH - _LEFT - _RIGHT)
        return x, _HEIGHT - _BOTTOM - point[1] / self.y_ticks[-1] * (_HEIGHT - _TOP - _BOTTOM)


def draw_chart(
    title: str,
    lines: Sequence[Line],
    *,
    x_label: str,
    right: Optional[float] = None,
    top: Optional[float] = None,
    marked: Optional[float] = None,
    bars: Sequence[Bar] = (),
    is_diagonal: bool = False,
) -> str:
    """Draw one chart.

    right, top (Optional[float]): The ends of the axes; None takes what the lines need.
    marked (Optional[float]): The x of the points that get a larger dot.
    bars (Sequence[Bar]): Behind the lines.
    is_diagonal (bool): Whether to draw where x and y are equal.
    RETURNS (str): The SVG, for a page that has `STYLE`.
    """
    points = [point for line in lines for point in line.points]
    end = max(max((x for x, _ in points), default=0.0), 1.0) if right is None else right
    highest = max((y for _, y in points), default=0.0) if top is None else top
    frame = _Frame(end, ticks(0.0, highest))
    parts = [f'<text x="{_LEFT}" y="16" font-weight="bold">{escape(title)}</text>']
    parts += _axes(frame, x_label)
    parts += [_bar(frame, bar) for bar in bars]
    if is_diagonal:
        (x1, y1), (x2, y2) = frame.place((0.0, 0.0)), frame.place((1.0, 1.0))
        parts.append(f'<line class="guide" x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}"/>')
    for i, line in enumerate(lines):
        parts += _line(frame, line, i % _COLOURS, marked)
        if len(lines) > 1:
            parts.append(_name(line.name, i))
    head = f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" aria-label="{escape(title)}">'
    return f"{head}{''.join(parts)}</svg>"


def draw_row(charts: Iterable[str]) -> str:
    """RETURNS (str): Charts side by side where there is room."""
    return f'<div class="curve">{"".join(charts)}</div>'


def _axes(frame: _Frame, x_label: str) -> List[str]:
    parts = []
    for y in frame.y_ticks:
        _, at = frame.place((0.0, y))
        parts.append(f'<line class="grid" x1="{_LEFT}" x2="{_WIDTH - _RIGHT}" y1="{at:.1f}" y2="{at:.1f}"/>')
        parts.append(f'<text x="{_LEFT - 6}" y="{at + 4:.1f}" text-anchor="end">{y:g}</text>')
    for x in [x for x in ticks(0.0, frame.right) if x <= frame.right]:
        at, _ = frame.place((x, 0.0))
        parts.append(f'<text x="{at:.1f}" y="{_HEIGHT - _BOTTOM + 16}" text-anchor="middle">{x:g}</text>')
    label = escape(x_label)
    return [*parts, f'<text x="{_WIDTH - _RIGHT}" y="{_HEIGHT - 4}" text-anchor="end">{label}</text>']


def _bar(frame: _Frame, bar: Bar) -> str:
    (x1, y1), (x2, y2) = frame.place((bar.low, bar.value)), frame.place((bar.high, 0.0))
    size = f'x="{x1 + 1:.1f}" y="{y1:.1f}" width="{x2 - x1 - 2:.1f}" height="{y2 - y1:.1f}"'
    return f'<rect class="bar" {size}><title>{escape(bar.hint)}</title></rect>'


def _line(frame: _Frame, line: Line, colour: int, marked: Optional[float]) -> List[str]:
    """RETURNS (List[str]): The line, and a dot for each of its points that says its values."""
    places = [frame.place(point) for point in line.points]
    path = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
    parts = [f'<polyline class="line line{colour}" points="{path}"/>']
    for point, (x, y), hint in zip(line.points, places, line.hints, strict=True):
        radius = 5 if point[0] == marked else 2.5
        at = f'cx="{x:.1f}" cy="{y:.1f}" r="{radius}"'
        parts.append(f'<circle class="dot{colour}" {at}><title>{escape(hint)}</title></circle>')
    return parts


def _name(name: str, i: int) -> str:
    at = f'x="{_WIDTH - _RIGHT - 4}" y="{_TOP + 14 * (i + 1)}"'
    return f'<text class="dot{i % _COLOURS}" {at} text-anchor="end">{escape(name)}</text>'


def ticks(low: float, high: float, most: int = 5) -> List[float]:
    """RETURNS (List[float]): Round numbers from `low` to at least `high`, at most `most` steps apart."""
    room = max(high - low, 1e-9)
    unit = 10.0 ** math.floor(math.log10(room / most))
    step = next(unit * factor for factor in (1, 2, 5, 10, 20) if unit * factor * most >= room * (1 - 1e-9))
    count = max(1, math.ceil((high - low) / step - 1e-9))
    return [low + i * step for i in range(count + 1)]
