"""Make the page of speed and memory from the result files and `page.md`."""

from pathlib import Path
from string import Template
from typing import Any, Dict, List, Optional, Sequence, Tuple

import typer
from records import NAMES, RESULTS, read_records

from spacy_elq.evaluation.speed import STAGES

TEMPLATE = Path(__file__).parents[1] / "page.md"
Row = Dict[str, Any]
GOALS = {
    "overhead_batch_1": "whole pipeline / forward pass of the encoder, batch 1 (goal: at most 1.35)",
    "overhead_batch_64": "whole pipeline / forward pass of the encoder, batch 64 (goal: at most 1.25)",
    "int8_speedup_batch_1": "questions/s, int8 / float32, batch 1 (goal: at least 1.5)",
    "int8_speedup_batch_64": "questions/s, int8 / float32, batch 64 (goal: at least 1.5)",
    "int8_f_loss": "weak F1 lost by int8, in points (goal: at most 0.5)",
}
INDEX_GOALS = {
    "recall_at_10": "recall@10 of the default back end, {entities:,} entities (goal: at least 0.99)",
    "share_of_vectors": "its resident memory / that of the vectors (goal: at most 0.20)",
    "f_loss": "weak F1 lost against exact search, in points (goal: at most 0.3)",
    "load_seconds": "seconds to load it (goal: under 3)",
}
LARGE_GOALS = {
    "recall_at_10": "recall@10 of the default back end, {entities:,} entities",
    "resident_mb": "its resident memory in MB (goal: under 3,000)",
}
INDEX_COLUMNS = {
    "factory": "factory string",
    "widths": "settings",
    "entities": "entities",
    "width": "width",
    "encoder": "encoder",
    "recall_at_10": "recall@10",
    "weak_f": "weak F1",
    "queries_per_second": "queries/s",
    "resident_mb": "resident MB",
    "share_of_vectors": "of the vectors",
    "disk_mb": "disk MB",
    "load_seconds": "load s",
    "build_seconds": "build s",
}
SHARING_COLUMNS = {
    "how": "how",
    "processes": "processes",
    "entities": "entities",
    "rss_mb": "resident MB each",
    "pss_mb": "proportional MB each",
}


def main(
    page: Path = typer.Argument(..., help="Page to write"),
    results: Path = typer.Option(RESULTS, help="Folder of the result files"),
) -> None:
    """Write the page."""
    pipelines = read_pipelines(results)
    real, synthetic = (read_backends(results, kind) for kind in ("real", "synthetic"))
    (engines,) = read_records(results, "engines") or [{}]
    sharing = [row for rows in read_records(results, "sharing-") for row in rows]
    sharing.sort(key=lambda row: (row["entities"], row["processes"], row["how"]))
    text = Template(TEMPLATE.read_text(encoding="utf8")).substitute(
        goals=table(("", "measured"), goal_lines(pipelines)),
        index_goals=table(("", "measured"), index_goals(real) + index_goals(synthetic, LARGE_GOALS)),
        runs=run_table(pipelines),
        pipelines=pipeline_table(pipelines),
        encoder=engines.get("encoder", "one encoder"),
        processor=engines.get("processor", "not measured yet"),
        engines=engine_table(engines.get("engines", [])),
        lengths=curve_table(pipelines, "lengths", "tokens"),
        counts=curve_table(pipelines, "counts", "questions"),
        backends=index_table(real),
        synthetic=index_table(synthetic),
        sharing=column_table(SHARING_COLUMNS, sharing),
    )
    page.parent.mkdir(parents=True, exist_ok=True)
    page.write_text(text, encoding="utf8")


def read_pipelines(results: Path) -> List[Row]:
    """RETURNS (List[Row]): The rows of each pipeline, float32 first."""
    return [row for name in NAMES for rows in read_records(results, f"speed-{name}") for row in rows]


def read_backends(results: Path, kind: str) -> List[Row]:
    """RETURNS (List[Row]): The back ends over real or synthetic vectors, by size, settings and name."""
    rows = [row for row in read_records(results, "backend-") if row["vectors"] == kind]
    keys = ("width", "entities", "encoder", "widths", "factory")
    return sorted(rows, key=lambda row: [str(row[key]) for key in keys])


def goal_lines(pipelines: List[Row]) -> List[Tuple[str, str]]:
    """RETURNS (List[Tuple[str, str]]): The goals, and what was measured of the pipeline on real data."""
    real = [row for row in pipelines if row["name"] == "real"]
    found = summarize(*real) if real else {}
    return [(text, show(found.get(key))) for key, text in GOALS.items()]


def summarize(plain: Row, quantized: Row) -> Dict[str, Optional[float]]:
    """RETURNS (Dict[str, Optional[float]]): The figures of `GOALS`, from the rows of both precisions; None
    where the batch size was not measured.
    """
    runs, others = ({run["batch_size"]: run for run in row["runs"]} for row in (plain, quantized))
    found: Dict[str, Optional[float]] = {"int8_f_loss": 100 * (plain["weak_f"] - quantized["weak_f"])}
    for size in runs.keys() & {1, 64}:
        found[f"overhead_batch_{size}"] = runs[size]["ratio"]
        speeds = [own[size]["questions_per_second"] for own in (runs, others)]
        found[f"int8_speedup_batch_{size}"] = speeds[1] / speeds[0]
    return found


def index_goals(rows: List[Row], goals: Dict[str, str] = INDEX_GOALS) -> List[Tuple[str, ...]]:
    """RETURNS (List[Tuple[str, ...]]): What was measured of the default back ends, beside exact search."""
    exact = {(row["entities"], row["encoder"]): row["weak_f"] for row in rows if row["factory"] == "Flat"}
    lines: List[Tuple[str, ...]] = []
    for row in rows:
        if row["default"]:
            best = exact.get((row["entities"], row["encoder"]))
            found = {**row, "f_loss": None if best is None else 100 * (best - row["weak_f"])}
            lines += [
                (text.format(**row), show(found[key], digits=0 if key == "resident_mb" else 4))
                for key, text in goals.items()
            ]
    return lines


def run_table(rows: List[Row]) -> str:
    """RETURNS (str): Speed by batch size, milliseconds by stage."""
    header = ("pipeline", "precision", "batch", "questions/s", "forward", "ratio", *STAGES)
    lines = [
        (
            NAMES[row["name"]],
            row["precision"],
            str(run["batch_size"]),
            f"{run['questions_per_second']:.1f}",
            show(run["forward"], scale=1000),
            show(run["ratio"]),
            *(show(run["seconds"][stage], scale=1000) for stage in STAGES),
        )
        for row in rows
        for run in row["runs"]
    ]
    return table(header, lines)


def pipeline_table(rows: List[Row]) -> str:
    """RETURNS (str): Weak F1, load time and memory."""
    header = ("pipeline", "precision", "entities", "weak F1", "load s", "peak MB", "threads")
    lines = [
        (
            NAMES[row["name"]],
            row["precision"],
            f"{row['entities']:,}",
            f"{100 * row['weak_f']:.1f}",
            f"{row['load_seconds']:.1f}",
            show(row["peak_mb"], digits=0),
            str(row["threads"]),
        )
        for row in rows
    ]
    return table(header, lines)


def engine_table(rows: List[Row]) -> str:
    """RETURNS (str): Speed and cosine of each engine."""
    lines = [
        (
            row["engine"],
            *(show(row["speed"].get(size)) for size in ("1", "64")),
            *(show(row[key], digits=4) for key in ("cosine", "least_cosine")),
        )
        for row in rows
    ]
    return table(("engine", "speed, batch 1", "speed, batch 64", "cosine", "lowest cosine"), lines)


def curve_table(rows: List[Row], key: str, unit: str) -> str:
    """RETURNS (str): Speed by length of a doc, or of a stream."""
    lines = [
        (NAMES[row["name"]], row["precision"], f"{own[unit]:,}", f"{own[f'{unit}_per_second']:,.0f}")
        for row in rows
        for own in row[key]
    ]
    return table(("pipeline", "precision", unit, f"{unit}/s"), lines)


def index_table(rows: List[Row]) -> str:
    """RETURNS (str): Back ends, the default marked with a star."""
    shown = [{**row, "factory": f"`{row['factory']}`{' *' if row['default'] else ''}"} for row in rows]
    return column_table(INDEX_COLUMNS, shown)


def column_table(columns: Dict[str, str], rows: List[Row]) -> str:
    """RETURNS (str): A table of chosen columns."""
    lines = [tuple("" if row.get(key) is None else str(row[key]) for key in columns) for row in rows]
    return table(tuple(columns.values()), lines)


def show(value: Optional[float], *, scale: float = 1.0, digits: int = 2) -> str:
    """RETURNS (str): A figure, or that there is none."""
    return "not measured" if value is None else f"{scale * value:.{digits}f}"


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """RETURNS (str): A table in Markdown."""
    if not rows:
        return "Not measured yet."
    lines = [header, ("---",) * len(header), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


if __name__ == "__main__":
    typer.run(main)
