"""Whether scores say how often links are right, drawn as SVG: reliability, and risk by coverage."""

from typing import Dict, List, Tuple

import numpy as np

from ..core.calibration import calibration_error, reliability, risk_coverage
from .chart import Bar, Line, draw_chart, draw_row

Row = Dict[str, float]


def draw_confidence(links: List[Tuple[float, bool]]) -> str:
    """Draw the reliability diagram and the risk-coverage curve.

    links (List[Tuple[float, bool]]): Score of every link, and whether it is right; at least one.
    RETURNS (str): Two SVG charts, for a page that has `chart.STYLE`.
    """
    scores, right = np.asarray(links, dtype="float64").T
    error = calibration_error(scores, right)
    charts = [draw_reliability(reliability(scores, right), error), draw_risk(risk_coverage(scores, right))]
    return draw_row(charts)


def draw_reliability(rows: List[Row], error: float) -> str:
    """Draw how often links are right, by score. Scores are calibrated if the bars end at the diagonal.

    rows (List[Row]): See `core.calibration.reliability`.
    error (float): The expected calibration error.
    RETURNS (str): The SVG.
    """
    bars = [Bar(row["low"], row["high"], row["right"], _describe(row)) for row in rows]
    title = f"Share of right links by score; calibration error {error:.3f}"
    return draw_chart(title, [], x_label="score", right=1.0, top=1.0, bars=bars, is_diagonal=True)


def _describe(row: Row) -> str:
    bounds = f"{row['low']:.2g} to {row['high']:.2g}"
    return f"{bounds}: {row['count']:.0f} links, mean score {row['score']:.3f}, {row['right']:.3f} right"


def draw_risk(rows: List[Row]) -> str:
    """Draw the share of wrong links among the best ones, by the share of links that are kept.

    rows (List[Row]): See `core.calibration.risk_coverage`; at least one.
    RETURNS (str): The SVG.
    """
    points = [(row["coverage"], row["risk"]) for row in rows]
    hints = [
        f"threshold {row['threshold']:.3f}: {row['coverage']:.3f} of the links kept, "
        f"{row['risk']:.3f} of them wrong"
        for row in rows
    ]
    title = f"Share of wrong links by coverage; {rows[-1]['risk']:.3f} of all"
    return draw_chart(title, [Line("wrong", points, hints)], x_label="coverage", right=1.0)
