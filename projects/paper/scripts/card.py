"""Complete a pipeline for publishing: meta.json for `spacy package` and the Hub, README.md as its card."""

from pathlib import Path
from string import Template

import spacy
import srsly
import typer
from runs import RESULTS, Row, read_rows
from tables import package_table

CARD = Path(__file__).parents[1] / "card.md"
SOURCES = [
    {"name": "Wikipedia", "author": "Wikipedia contributors", "license": "CC BY-SA"},
    {"name": "WebQSP_EL", "author": "Li et al.", "license": "MIT"},
    {"name": "GraphQuestions_EL", "author": "Sorokin and Gurevych; Su et al.", "license": "CC BY 4.0"},
    {"name": "ConEL 2022", "author": "Joko and Hasibi", "license": "MIT"},
    {"name": "gte-small", "author": "Alibaba DAMO Academy", "license": "MIT"},
]


def main(
    pipeline: Path = typer.Argument(..., help="Pipeline with its index inside; its meta.json is changed"),
    name: str = typer.Argument(..., help="Name of the package, without the language"),
    version: str = typer.Argument(..., help="Version of the package"),
    results: Path = typer.Option(RESULTS, help="Folder of the result files"),
) -> None:
    """Write meta.json and README.md."""
    rows = {row["test"]: row for row in read_rows(results, "package")}
    nlp = spacy.load(pipeline)
    package = f"{nlp.lang}_{name}"
    path = pipeline / "meta.json"
    meta = {
        **srsly.read_json(path),
        "name": name,
        "version": version,
        "description": "Links the entities that questions and other short texts name to Wikipedia (ELQ)",
        "author": "The authors of spacy-elq",
        "license": "CC BY-SA 4.0",
        "sources": SOURCES,
        "performance": _performance(rows["webqsp_el"]),
    }
    srsly.write_json(path, meta)
    filled = Template(CARD.read_text(encoding="utf8")).substitute(
        package=package,
        wheel=f"{package}-{version}-py3-none-any.whl",
        parameters=rows["webqsp_el"]["parameters"],
        entities=f"{rows['webqsp_el']['entities']:,}",
        scores=package_table(list(rows.values()), []),
    )
    (pipeline / "README.md").write_text(filled, encoding="utf8")


def _performance(row: Row) -> Row:
    """RETURNS (Row): The scores under spaCy's names."""
    return {
        "elq_weak_f": row["weak"],
        "elq_weak_p": row["weak_p"],
        "elq_weak_r": row["weak_r"],
        "elq_strong_f": row["strong"],
        "elq_mentions_f": row["mentions"],
        "elq_links_f": row["links"],
    }


if __name__ == "__main__":
    typer.run(main)
