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
# goals for 5.9 million vectors, by their width: milliseconds of a query in batches of 1 and 64, MB
LARGEST = {
    384: {"one": "at most 4", "many": "at most 1.5", "mb": "under 1,500"},
    1024: {"one": "at most 10", "many": "none", "mb": "under 3,000"},
}
_NO_GOALS = dict.fromkeys(LARGEST[384], "none")
LARGE_GOALS = {
    "recall_at_10": "recall@10 of the default, {entities:,} of width {width:,} (goal: at least 0.97)",
    "ms_batch_1": "ms per query, batch 1 (goal: {one})",
    "ms_batch_64": "ms per query, batch 64 (goal: {many})",
    "resident_mb": "its resident memory in MB (goal: {mb})",
    "build_minutes": "minutes to build it on two cores (goal: under 60)",
}
GROWTH_FROM, GROWTH_TO, GROWTH_WIDTH = 277_103, 5_903_527, 384
GROWTH = "ms per query, batch 1, {to:,} / {of:,} entities of width {width} (goal: at most 2.5)"
LIVING_GOALS = {
    "open_ms": "ms to open the index, {entities:,} entities (goal: under 50)",
    "open_changed_ms": "the same with 1 % changes (goal: under 50)",
    "add_ms": "ms to add an entity (goal: at most {limit}, 1.5 x encoding it + 20)",
    "bulk": "entities/s, added {bulk} at a time / encoded only (goal: at least 0.8)",
    "changes_1": "search with 1 % changes / without, 1 query (goal: at most 1.15)",
    "changes_192": "search with 1 % changes / without, 192 queries (goal: at most 1.15)",
    "recall": "lowest recall@10 of a restricted search (goal: at least 0.99)",
    "restricted": "highest time of a restricted search / an unrestricted one (goal: at most 2)",
    "plain_mb": "resident memory in MB after 1,000 searches",
    "building": "time to build the index / with spacy-elq 0.2 (goal: at most 1.5)",
}
CHANGED_COLUMNS = {
    "share": "entities changed",
    "changes": "rows added or removed",
    "queries": "queries per call",
    "plain_ms": "ms without changes",
    "ms": "ms with changes",
    "ratio": "ratio",
}
RESTRICTED_COLUMNS = {
    "share": "entities that count",
    "queries": "queries per call",
    "recall_at_10": "recall@10",
    "plain_ms": "ms unrestricted",
    "ms": "ms restricted",
    "ratio": "ratio",
    "first_ms": "ms, first time",
}
SOAK_COLUMNS = {
    "minutes": "minutes",
    "writers": "writers",
    "readers": "readers",
    "pipeline": "pipeline",
    "kills": "kills",
    "changes": "changes",
    "compactions": "compactions",
    "searches": "searches",
    "links": "texts linked",
    "errors": "errors",
}
KILL_COLUMNS = {
    "command": "command",
    "tried": "runs",
    "kills": "kills",
    "old": "index as before",
    "new": "index complete",
    "shards_kept": "shards kept",
    "errors": "errors",
}
FLIP_COLUMNS = {"file": "file", "found": "found", "harmless": "harmless", "missed": "missed"}
SERVING_COLUMNS = {
    "name": "pipeline",
    "piped": "nlp.pipe, texts/s",
    "served": "server, texts/s",
    "throughput_ratio": "ratio (at least 0.8)",
    "bare": "nlp(text), ms",
    "p50_one": "server, p50 ms",
    "latency_ratio": "ratio (at most 1.3)",
    "p50": "p50 ms",
    "p99": "p99 ms",
    "tail_ratio": "ratio (at most 5)",
    "failed": "failed",
}
SERVING_SOAK_COLUMNS = {
    "minutes": "minutes",
    "requests": "requests",
    "texts": "texts",
    "changes": "changes",
    "kills": "workers killed",
    "failed": "failed",
    "lost": "lost",
    "under_way": "under way at SIGTERM",
    "answered": "of them answered",
    "exit_code": "exit code",
    "memory_before_mb": "MB before",
    "memory_after_mb": "MB after",
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
    "ms_batch_1": "ms, batch 1",
    "ms_batch_64": "ms, batch 64",
    "resident_mb": "resident MB",
    "share_of_vectors": "of the vectors",
    "disk_mb": "disk MB",
    "load_seconds": "load s",
    "build_seconds": "build CPU s",
    "build_minutes": "build min",
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
        index_goals=table(
            ("", "measured"),
            index_goals(real) + index_goals(synthetic, LARGE_GOALS) + growth(real + synthetic),
        ),
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
        **living_tables(results),
        **serving_tables(results),
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
            filled = {**row, **LARGEST.get(row["width"], _NO_GOALS)}
            lines += [
                (text.format(**filled), show(found.get(key), digits=0 if key == "resident_mb" else 4))
                for key, text in goals.items()
            ]
    return lines


def growth(rows: List[Row]) -> List[Tuple[str, ...]]:
    """RETURNS (List[Tuple[str, ...]]): How much longer a query takes over many more entities."""
    times = {(row["entities"], row["width"]): row.get("ms_batch_1") for row in rows if row["default"]}
    few, many = (times.get((entities, GROWTH_WIDTH)) for entities in (GROWTH_FROM, GROWTH_TO))
    text = GROWTH.format(to=GROWTH_TO, of=GROWTH_FROM, width=GROWTH_WIDTH)
    return [(text, show(many / few if few and many else None))]


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


def living_tables(results: Path) -> Dict[str, str]:
    """RETURNS (Dict[str, str]): What `page.md` says about catalogues that change."""
    (living,) = read_records(results, "living") or [{}]
    (kills,) = read_records(results, "kills") or [[]]
    (flips,) = read_records(results, "flips") or [{}]
    counted = [{**row, "errors": len(row["errors"])} for row in kills]
    return {
        "living_goals": table(("", "measured"), living_goals(living)),
        "changed": column_table(CHANGED_COLUMNS, _percent(living.get("changes", []))),
        "restricted": column_table(RESTRICTED_COLUMNS, _percent(living.get("restricted", []))),
        "soak": column_table(SOAK_COLUMNS, read_records(results, "soak")),
        "kills": column_table(KILL_COLUMNS, counted),
        "flips": column_table(FLIP_COLUMNS, flips.get("files", [])),
    }


def serving_tables(results: Path) -> Dict[str, str]:
    """RETURNS (Dict[str, str]): What `page.md` says about the server."""
    rows = [row for name in NAMES for row in read_records(results, f"serving-{name}")]
    memory = [
        (
            row["name"],
            str(row["memory"]["1"]["entities"]),
            workers,
            str(size["mb"]),
            str(size["per_worker_mb"]),
        )
        for row in rows
        for workers, size in row["memory"].items()
    ]
    return {
        "serving": column_table(SERVING_COLUMNS, rows),
        "serving_memory": table(("pipeline", "entities", "workers", "MB in all", "MB each"), memory),
        "serving_soak": column_table(SERVING_SOAK_COLUMNS, read_records(results, "serving-soak")),
    }


def living_goals(record: Row) -> List[Tuple[str, str]]:
    """RETURNS (List[Tuple[str, str]]): The goals, and what was measured of an index that changes."""
    one, many = record.get("adding_one", {}), record.get("adding_many", {})
    restricted = record.get("restricted", [])
    found = {**record.get("opening", {}), **record.get("memory", {}), **one}
    found |= {"bulk": many.get("ratio"), "building": record.get("building", {}).get("ratio")}
    found |= {f"changes_{row['queries']}": row["ratio"] for row in record.get("changes", [])[:2]}
    found["recall"] = min((row["recall_at_10"] for row in restricted), default=None)
    found["restricted"] = max((row["ratio"] for row in restricted), default=None)
    filled = {
        "entities": record.get("entities", 0),
        "limit": show(one.get("limit_ms"), digits=0),
        "bulk": f"{many.get('entities', 0):,}",
    }
    return [(text.format(**filled), show(found.get(key))) for key, text in LIVING_GOALS.items()]


def _percent(rows: List[Row]) -> List[Row]:
    return [{**row, "share": f"{100 * row['share']:g} %"} for row in rows]


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
