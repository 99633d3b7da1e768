"""Make the page of sound links, and its diagram, from the result files."""

from pathlib import Path
from string import Template
from typing import Any, Dict, List

import matplotlib.pyplot as plt
import typer
from performance_page import table
from records import RESULTS, read_records

TEMPLATE = Path(__file__).parents[1] / "soundness.md"
Row = Dict[str, Any]
NAMES = {"paper": "the paper's formula", "readme": "today"}
DOMAIN_COLUMNS = {
    "f": "weak F1 on its own questions",
    "foreign": "links per 100 questions about other things",
    "nothing": "links per 100 texts that name nothing",
    "alone": "names found, typed alone",
    "templates": "names found, in templates",
    "bad_edges": "mentions with wrong ends",
}
OWN_COLUMNS = {
    "f": "weak F1",
    "nothing": "links per 100 texts that name nothing",
    "calibration_error": "calibration error",
}
LEFT_OUT_COLUMNS = {
    "wrong": "wrong links per 100 questions",
    "absent": "links per 100 questions whose entity was left out",
    "f": "weak F1 on the rest",
}
REAL_COLUMNS = {
    "set": "questions",
    "f": "weak F1",
    "links": "links",
    "calibration_error": "calibration error",
    "nothing": "links per 100 texts that name nothing",
}
TUNED = {"as_is": "nothing: as it is", "own": "own questions", "made": "made questions", "both": "both"}
TUNED_SETS = {"own": "train", "made": "made", "both": "both"}


def main(
    page: Path = typer.Argument(..., help="The page to write"),
    picture: Path = typer.Argument(..., help="The reliability diagram to write (.svg)"),
    results: Path = typer.Option(RESULTS, help="Folder of the result files"),
) -> None:
    """Write both."""
    records = read_records(results, "soundness-")
    catalogues = sorted(
        (r for r in records if "domains" in r), key=lambda r: list(NAMES).index(r["pipeline"])
    )
    sets = [record for record in records if "set" in record]
    tuned = {
        domain: row for r in read_records(results, "own-questions") for domain, row in r["domains"].items()
    }
    text = Template(TEMPLATE.read_text(encoding="utf8")).substitute(
        own=_table(catalogues, "own", OWN_COLUMNS),
        domains=domain_table(catalogues),
        left_out=_table(catalogues, "left_out", LEFT_OUT_COLUMNS),
        tuned=tuned_table(tuned),
        recall=recall_table(tuned),
        real=real_table(sets),
    )
    page.write_text(text, encoding="utf8")
    today = [{"set": "the embedded questions", **r["own"]} for r in catalogues if r["pipeline"] == "readme"]
    draw([*today, *(r for r in sets if not _is_plain(r))], picture)


def domain_table(records: List[Row]) -> str:
    """RETURNS (str): A row for every catalogue, before and after."""
    rows = [
        [
            domain,
            NAMES[record["pipeline"]],
            *(_show(record["domains"][domain][key]) for key in DOMAIN_COLUMNS),
        ]
        for domain in (records[0]["domains"] if records else [])
        for record in records
    ]
    return table(["catalogue", "pipeline", *DOMAIN_COLUMNS.values()], rows)


def real_table(records: List[Row]) -> str:
    """RETURNS (str): A row for every test set and pipeline."""
    rows = [
        ["WebQSP_EL" if _is_plain(r) else "the same and texts that name nothing"]
        + [_show(r[key]) for key in REAL_COLUMNS]
        for r in sorted(records, key=lambda r: (not _is_plain(r), r["set"]))
    ]
    return table(["trained on", *REAL_COLUMNS.values()], rows)


def _is_plain(record: Row) -> bool:
    """RETURNS (bool): Whether the pipeline was trained on questions alone."""
    return record["pipeline"].startswith("questions-")


def tuned_table(domains: Dict[str, Row]) -> str:
    """RETURNS (str): A row for every catalogue and way to train; the best step is that of the pipeline."""
    rows = [
        [
            domain,
            name,
            str(row["questions"][TUNED_SETS[way]] if way in TUNED_SETS else 0),
            str(row[way].get("step", "")),
            *(_show(row[way][key]) for key in ("f", "foreign")),
        ]
        for domain, row in domains.items()
        for way, name in TUNED.items()
    ]
    header = ["catalogue", "fine-tuned on", "training questions", "best step", "weak F1"]
    return table([*header, DOMAIN_COLUMNS["foreign"]], rows)


def recall_table(domains: Dict[str, Row]) -> str:
    """RETURNS (str): For every catalogue, the recall on made questions and on real ones."""
    rows = [
        [domain, *(_show(row["recall"][key]) for key in ("made", "real"))] for domain, row in domains.items()
    ]
    return table(["catalogue", "weak recall on made questions", "weak recall on real questions"], rows)


def _table(records: List[Row], part: str, columns: Dict[str, str]) -> str:
    rows = [[NAMES[r["pipeline"]], *(_show(r[part][key]) for key in columns)] for r in records]
    return table(["pipeline", *columns.values()], rows)


def _show(value: Any) -> str:
    return f"{value:,.3f}".rstrip("0").rstrip(".") if isinstance(value, float) else str(value)


def draw(records: List[Row], path: Path) -> None:
    """Draw how often links are right by score, and how often they are wrong by how many are kept."""
    plt.rcParams["svg.hashsalt"] = "spacy-elq"
    figure, (left, right) = plt.subplots(ncols=2, figsize=(9, 4), layout="constrained")
    left.plot([0, 1], [0, 1], color="grey", linestyle="--", linewidth=1)
    for record in records:
        bins, risk = record["reliability"], record["risk"]
        left.plot([b["score"] for b in bins], [b["right"] for b in bins], marker="o", markersize=4)
        right.plot([r["coverage"] for r in risk], [r["risk"] for r in risk], label=record["set"])
    left.set(xlabel="score", ylabel="share of right links", xlim=(0, 1), ylim=(0, 1))
    right.set(xlabel="share of links kept", ylabel="share of wrong links", xlim=(0, 1), ylim=(0, None))
    right.legend(loc="upper left", frameon=False)
    figure.savefig(path, metadata={"Date": None})
    plt.close(figure)


if __name__ == "__main__":
    typer.run(main)
