"""Plot recall@10 against resident memory for back ends over real vectors."""

from pathlib import Path
from typing import Any, Dict, List

import matplotlib

matplotlib.use("svg")
import matplotlib.pyplot as plt
import typer
from performance_page import read_backends
from records import RESULTS

DEFAULT, OTHER = "#d1495b", "#00798c"
# labels stand to the right of their markers, but for those that would touch another: (x, y, alignment)
PLACES = {"Flat": (2, 9, "left"), "PCA192,HNSW16_SQ4": (0, -19, "center")}


def main(
    output: Path = typer.Argument(..., help="Picture to write, by its ending: .svg or .png"),
    results: Path = typer.Option(RESULTS, help="Folder of the result files"),
) -> None:
    """Draw a panel for each number of entities."""
    # the same bytes for the same figures: text as text, no date, ids that are not random
    plt.rcParams.update({"svg.fonttype": "none", "svg.hashsalt": "spacy-elq", "font.size": 11})
    rows = read_backends(results, "real")
    sizes = sorted({row["entities"] for row in rows})
    figure, axes = plt.subplots(
        1, len(sizes), figsize=(10, 4.4), sharey=True, squeeze=False, layout="constrained"
    )
    for axis, entities in zip(axes[0], sizes, strict=True):
        _draw(axis, [row for row in rows if row["entities"] == entities])
        axis.set_title(f"{entities:,} entities")
    axes[0][0].set_ylabel("recall@10")
    output.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(output, metadata={"Date": None} if output.suffix == ".svg" else None, dpi=120)
    plt.close(figure)


def _draw(axis: plt.Axes, rows: List[Dict[str, Any]]) -> None:
    full = rows[0]["resident_mb"] / rows[0]["share_of_vectors"]
    axis.axvline(full, color="#999999", linewidth=1, linestyle="--")
    axis.annotate("float32 vectors", (full, 0.755), rotation=90, color="#666666", **_shift(-5, 0, "right"))
    for row in rows:
        colour = DEFAULT if row["default"] else OTHER
        point = (row["resident_mb"], row["recall_at_10"])
        axis.plot(*point, "o", color=colour, markersize=9)
        x, y, side = PLACES.get(row["factory"], (9, -4, "left"))
        name = "default" if row["default"] else row["factory"]
        weight = "bold" if row["default"] else "normal"
        axis.annotate(name, point, color=colour, fontweight=weight, **_shift(x, y, side))
    axis.set(xlabel="resident memory, MB (log scale)", xscale="log", xlim=(10, 1300), ylim=(0.74, 1.03))
    axis.set_xticks(
        [10, 20, 50, 100, 200, 500, 1000], labels=["10", "20", "50", "100", "200", "500", "1,000"]
    )
    axis.minorticks_off()
    axis.grid(color="#e5e5e5", linewidth=0.8)
    axis.set_axisbelow(True)
    axis.spines[["top", "right"]].set_visible(False)


def _shift(x: float, y: float, side: str) -> Dict[str, Any]:
    return {"xytext": (x, y), "textcoords": "offset points", "ha": side, "fontsize": 10}


if __name__ == "__main__":
    typer.run(main)
