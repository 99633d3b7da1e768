"""Plot recall@10 against the time of a query for back ends; the size of a marker is their resident memory."""

from pathlib import Path
from typing import Any, Dict, List

import matplotlib

matplotlib.use("svg")
import matplotlib.pyplot as plt
import typer
from performance_page import read_backends
from plot_memory import DEFAULT, OTHER
from records import RESULTS

# the area of a marker, in square points, for so many bytes per entity
AREA, BYTES = 25, 200
TICKS = [0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50, 100]


def main(
    output: Path = typer.Argument(..., help="Picture to write, by its ending: .svg or .png"),
    results: Path = typer.Option(RESULTS, help="Folder of the result files"),
) -> None:
    """Draw a panel for each number and width of entities."""
    plt.rcParams.update({"svg.fonttype": "none", "svg.hashsalt": "spacy-elq", "font.size": 11})
    rows = [row for kind in ("real", "synthetic") for row in read_backends(results, kind)]
    panels: Dict[Any, List[Dict[str, Any]]] = {}
    for row in rows:
        panels.setdefault((row["entities"], row["width"]), []).append(row)
    figure, axes = plt.subplots(
        max(1, len(panels)), 1, figsize=(12, 3.6 * max(1, len(panels))), squeeze=False, layout="constrained"
    )
    for axis, (entities, width) in zip(axes[:, 0], sorted(panels), strict=False):
        _draw(axis, panels[entities, width])
        axis.set_title(f"{entities:,} entities of width {width:,}")
    output.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(output, metadata={"Date": None} if output.suffix == ".svg" else None, dpi=120)
    plt.close(figure)


def _draw(axis: plt.Axes, rows: List[Dict[str, Any]]) -> None:
    for number, row in enumerate(sorted(rows, key=lambda row: -row["queries_per_second"]), start=1):
        colour = DEFAULT if row["default"] else OTHER
        point = (1000 / row["queries_per_second"], row["recall_at_10"])
        area = AREA * row["resident_mb"] * 1e6 / row["entities"] / BYTES
        name = "default" if row["default"] else row["factory"]
        settings = "" if row["default"] or not row["widths"] else f" ({row['widths']})"
        label = f"{number}: {name}{settings}, {row['resident_mb']:,.0f} MB"
        axis.scatter(*point, s=area, color=colour, alpha=0.7, label=label)
        axis.annotate(str(number), point, xytext=(6, 6), textcoords="offset points", fontsize=9)
    axis.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0), fontsize=8, frameon=False, handlelength=0)
    axis.set(xlabel="ms per query, one at a time (log scale)", ylabel="recall@10", xscale="log")
    axis.set(xlim=(0.1, 100), ylim=(0.74, 1.03))
    axis.set_xticks(TICKS, labels=[f"{tick:g}" for tick in TICKS])
    axis.minorticks_off()
    axis.grid(color="#e5e5e5", linewidth=0.8)
    axis.set_axisbelow(True)
    axis.spines[["top", "right"]].set_visible(False)


if __name__ == "__main__":
    typer.run(main)
