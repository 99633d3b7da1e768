"""Plot weak F1 against questions/s for ELQ and its baselines."""

from pathlib import Path
from statistics import mean
from typing import Any, Dict, Tuple

import matplotlib

matplotlib.use("svg")
import matplotlib.pyplot as plt
import typer
from runs import RESULTS, TESTS, read_rows
from tables import PAPER_SYSTEMS, Groups, compare

NAMES = {"elq": "ELQ", "blink": "two stages", "tagme": "TAGME", "vcg": "VCG", "spacy": "spaCy"}
COLOURS = {"elq": "#d1495b", "blink": "#00798c", "tagme": "#8d6a9f", "vcg": "#d98324", "spacy": "#5c7a29"}
# labels stand to the right of their markers, but for those that would touch another
LEFT = {("blink", True)}


def main(
    output: Path = typer.Argument(..., help="Picture to write, by its ending: .svg or .png"),
    results: Path = typer.Option(RESULTS, help="Folder of the result files"),
) -> None:
    """Draw a panel for each test set."""
    # the same bytes for the same figures: text as text, no date, ids that are not random
    plt.rcParams.update({"svg.fonttype": "none", "svg.hashsalt": "spacy-elq", "font.size": 11})
    groups = compare(read_rows(results, "comparison"))
    figure, axes = plt.subplots(1, len(TESTS), figsize=(10, 4.4), sharey=True, layout="constrained")
    for axis, test in zip(axes, TESTS, strict=True):
        _draw(axis, test, groups)
    axes[0].set_ylabel("weak F1, %")
    axes[0].legend(
        [plt.Line2D([], [], **_marker("#444444", is_ours)) for is_ours in (True, False)],
        ["here, one core", "the paper, another machine"],
        loc="lower right",
        frameon=False,
        fontsize=10,
    )
    output.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(output, metadata={"Date": None} if output.suffix == ".svg" else None, dpi=120)
    plt.close(figure)


def _draw(axis: plt.Axes, test: str, groups: Groups) -> None:
    ours = {
        system: (mean(row["questions_per_second"] for row in rows), 100 * mean(row["weak"] for row in rows))
        for (own, system), rows in groups
        if own == test
    }
    paper = {system: PAPER_SYSTEMS[system, test] for system in NAMES if (system, test) in PAPER_SYSTEMS}
    for system, (speed, weak) in ours.items():
        _mark(axis, (speed, weak), system, is_ours=True)
    for system, (*_, weak, speed) in paper.items():
        _mark(axis, (speed, weak), system, is_ours=False)
    axis.set(title=TESTS[test], xlabel="questions/s, one at a time (log scale)", xscale="log")
    axis.set(xlim=(0.4, 3000), ylim=(30, 95))
    axis.xaxis.set_major_formatter("{x:g}")
    axis.grid(color="#e5e5e5", linewidth=0.8)
    axis.set_axisbelow(True)
    axis.spines[["top", "right"]].set_visible(False)


def _mark(axis: plt.Axes, point: Tuple[float, float], system: str, *, is_ours: bool) -> None:
    axis.plot(*point, **_marker(COLOURS[system], is_ours))
    is_left = (system, is_ours) in LEFT
    axis.annotate(
        NAMES[system],
        point,
        xytext=(-9 if is_left else 9, 0),
        textcoords="offset points",
        ha="right" if is_left else "left",
        va="center",
        color=COLOURS[system],
        fontsize=11 if is_ours else 9,
        fontweight="bold" if is_ours and system == "elq" else "normal",
    )


def _marker(colour: str, is_ours: bool) -> Dict[str, Any]:
    face = colour if is_ours else "white"
    shape = {"marker": "o", "markersize": 9 if is_ours else 7, "linestyle": "none"}
    return {**shape, "markerfacecolor": face, "markeredgecolor": colour}


if __name__ == "__main__":
    typer.run(main)
