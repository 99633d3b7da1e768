"""Make the page of what is past one machine, from the result files and `past-one-machine.md`."""

from pathlib import Path
from string import Template
from typing import Any, Dict, List, Optional, Tuple

import typer
from performance_page import column_table, table
from records import RESULTS, read_records
from scale import Need, Rates, check, compute

TEMPLATE = Path(__file__).parents[1] / "past-one-machine.md"
SIZES = (6e6, 1e8, 1e9)
MONTH = 30 * 24
Row = Dict[str, Any]
NEED_COLUMNS = {
    "entities": "entities",
    "encode_core_hours": "encode, core-hours",
    "encode_hours": "hours",
    "build_core_hours": "index, core-hours",
    "disk_gb": "disk, GB",
    "memory_gb": "memory, GB",
    "question_cores": "cores, questions",
    "search_cores": "cores, search",
    "once": "USD, once",
    "monthly": "USD, month",
}
SIMULATED_COLUMNS = {
    "quantity": "quantity",
    "entities": "entities",
    "predicted": "predicted",
    "measured": "measured",
    "ratio": "measured / predicted",
}
WORKER_COLUMNS = {
    "workers": "workers",
    "entities": "entities",
    "shards": "shards",
    "entities_per_second": "entities/s",
    "whole_seconds": "whole s",
    "ratio": "ratio to one worker (goal: at least 1.6)",
}


def main(
    page: Path = typer.Argument(..., help="Page to write"),
    results: Path = typer.Option(RESULTS, help="Folder of the result files"),
    questions_a_day: float = typer.Option(1e9, help="Questions a day"),
    cores: int = typer.Option(64, help="Cores to encode on"),
    core_hour: float = typer.Option(0.05, help="Price of a core-hour, USD"),
    gb_month: float = typer.Option(0.1, help="Price of a GB of disk for a month, USD"),
) -> None:
    """Write the page."""
    rates = read_rates(results)
    needs = []
    for entities in SIZES:
        need = compute(rates, entities, questions_a_day=questions_a_day, cores=cores)
        needs.append(need_row(entities, need, core_hour=core_hour, gb_month=gb_month))
    records = read_records(results, "scale-")
    text = Template(TEMPLATE.read_text(encoding="utf8")).substitute(
        questions_a_day=f"{questions_a_day:,.0f}",
        cores=cores,
        price_core=core_hour,
        price_disk=gb_month,
        needs=column_table(NEED_COLUMNS, needs),
        rates=table(("", "measured"), rate_lines(rates)),
        simulated=column_table(SIMULATED_COLUMNS, simulated(records)),
        workers=column_table(WORKER_COLUMNS, worker_rows(read_records(results, "ray-"))),
    )
    page.parent.mkdir(parents=True, exist_ok=True)
    page.write_text(text, encoding="utf8")


def read_rates(results: Path) -> Rates:
    """RETURNS (Rates): From the records of the pipeline on real data in int8, of the default back end over
    its entities, and of entities that are added.
    """
    (living,) = read_records(results, "living")
    (speeds,) = read_records(results, "speed-real")
    backends = [row for row in read_records(results, "backend-") if row["default"]]
    (backend,) = [row for row in backends if row["entities"] == speeds[0]["entities"]]
    quantized = next(row for row in speeds if row["precision"] == "int8")
    run = max(quantized["runs"], key=lambda run: run["batch_size"])
    search, count = run["seconds"]["search"], backend["entities"]
    return Rates(
        encoded=living["adding_many"]["encoded_per_second"],
        build_seconds=backend["build_seconds"] / count,
        disk_bytes=1e6 * backend["disk_mb"] / count,
        memory_bytes=1e6 * backend["resident_mb"] / count,
        questions=1 / (1 / run["questions_per_second"] - search),
        scan_seconds=search / count,
    )


def rate_lines(rates: Rates) -> List[Tuple[str, str]]:
    """RETURNS (List[Tuple[str, str]]): The rates, in units that people read."""
    return [
        ("entities/s, encoded", f"{rates.encoded:,.1f}"),
        ("µs per entity, to build the index", f"{1e6 * rates.build_seconds:,.0f}"),
        ("bytes per entity, on disk", f"{rates.disk_bytes:,.0f}"),
        ("bytes per entity, resident", f"{rates.memory_bytes:,.0f}"),
        ("questions/s, without the search", f"{rates.questions:,.1f}"),
        ("ns per entity, for the search of one question", f"{1e9 * rates.scan_seconds:,.2f}"),
    ]


def need_row(entities: float, need: Need, *, core_hour: float, gb_month: float) -> Row:
    """RETURNS (Row): A need with its prices."""
    once = (need.encode_core_hours + need.build_core_hours) * core_hour
    monthly = (need.question_cores + need.search_cores) * core_hour * MONTH + need.disk_gb * gb_month
    figures = {**vars(need), "once": once, "monthly": monthly}
    return {"entities": f"{entities:,.0f}", **{key: show(value) for key, value in figures.items()}}


def show(value: float) -> str:
    """RETURNS (str): A figure with two digits or more."""
    return f"{value:,.0f}" if value >= 10 else f"{value:.2g}"


def simulated(records: List[Row]) -> List[Row]:
    """RETURNS (List[Row]): The prediction of the largest size, if there are three."""
    if len(records) < 3:
        return []
    rows = check(records)
    figures = ("predicted", "measured", "ratio")
    return [{**row, **{key: f"{row[key]:,.4g}" for key in figures}} for row in rows]


def worker_rows(records: List[Row]) -> List[Row]:
    """RETURNS (List[Row]): Throughput by workers, beside that of one."""
    alone: Optional[float] = next(
        (row["entities_per_second"] for row in records if row["workers"] == 1), None
    )
    return [
        {**row, "ratio": "" if alone is None else f"{row['entities_per_second'] / alone:.2f}"}
        for row in sorted(records, key=lambda row: row["workers"])
    ]


if __name__ == "__main__":
    typer.run(main)
