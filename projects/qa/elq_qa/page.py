"""The page of the project: `page.md` with its tables filled in from the result files."""

import json
from pathlib import Path
from string import Template
from typing import Any, Dict, Iterator, List, Sequence, Tuple

from .evaluate import CUTS
from .graph import SOURCES
from .systems import BOOST, LINKERS
from .types import Row

TEMPLATE = Path(__file__).parents[1] / "page.md"
NOT_MEASURED = "Not measured yet."
SETS = {
    "webquestions_test": "WebQuestions",
    "nq_open_test": "NQ-open",
    "triviaqa_open_test": "TriviaQA-open",
    "webquestions_dev": "WebQuestions, development",
}
# Li et al. 2020, Table 3, and where it has each system here
PAPER = {
    "tfidf": (20.8, 28.7, 54.0),
    "tagme+tfidf-claims": (31.8, 33.5, 55.0),
    "elq_wikipedia+tfidf-claims": (37.4, 37.4, 55.4),
    "elq_questions+tfidf-claims": (37.7, 37.0, 54.7),
}
_GRAPHS = {"": "no", "claims": "order of claims", "bm25": "by BM25"}


def write_page(output: Path, results: Path) -> None:
    """Write the page.

    output (Path): The page.
    results (Path): The folder of the result files.
    """
    recalls, exacts = read_rows(results / "recall"), read_rows(results / "exact")
    tables = {
        **count_facts(read_rows(results / "data")),
        **{name: set_tables(name, recalls, exacts) for name in SETS},
        "differences": difference_table(recalls, exacts),
        "engines": engine_table(read_rows(results / "engines")),
        "choices": choice_table(read_rows(results / "choices")),
        "boost": f"{BOOST:g}",
        "examples": example_tables(read_rows(results / "examples")),
        "steps": step_table(read_rows(results / "steps")),
    }
    output.parent.mkdir(parents=True, exist_ok=True)
    output.write_text(Template(TEMPLATE.read_text(encoding="utf8")).substitute(tables), encoding="utf8")


def count_facts(rows: Dict[str, Row]) -> Dict[str, str]:
    """RETURNS (Dict[str, str]): The numbers in the text of the page."""
    passages, graph = rows.get("passages", {}), rows.get("graph", {})
    dev = rows.get("webquestions_dev", {})
    facts = {
        **{name: passages.get(name) for name in ("passages", "entities", "articles")},
        **{name: graph.get(file_) for name, file_ in zip(("claims", "links", "cells"), SOURCES, strict=True)},
        **{f"dev_{name}": dev.get(name) for name in ("questions", "trained")},
    }
    return {name: "?" if value is None else f"{value:,}" for name, value in facts.items()}


def read_rows(folder: Path) -> Dict[str, Row]:
    """RETURNS (Dict[str, Row]): What each file of a folder says, by its name."""
    paths = sorted(folder.glob("*.json"))
    return {path.stem: json.loads(path.read_text(encoding="utf8")) for path in paths}


def set_tables(name: str, recalls: Dict[str, Row], exacts: Dict[str, Row]) -> str:
    """RETURNS (str): Answer recall and exact match of all systems on a question set: over all questions, and
    over those with gold entities.
    """
    if name not in recalls:
        return NOT_MEASURED
    parts = [("all", "All {:,} questions:"), ("gold", "The {:,} questions with gold entities:")]
    blocks = []
    for part, title in parts:
        own = recalls[name].get(part)
        if own:
            exact = exacts.get(name, {}).get(part, {})
            # the paper's figures are over all questions
            paper = list(SETS).index(name) if part == "all" else -1
            blocks += [title.format(own["questions"]), _set_table(own, exact, paper)]
    return "\n\n".join(blocks)


def _set_table(recalls: Row, exact: Row, paper: int) -> str:
    lines = []
    for system, found in recalls["recall"].items():
        beside = f"({PAPER[system][paper]})" if system in PAPER and 0 <= paper < 3 else ""
        cells = [f"{100 * found[str(cut)]:.1f}" for cut in CUTS]
        lines.append((*describe(system), *cells, f"{_exact(exact, system)} {beside}".strip()))
    read = f", first {exact['questions']:,}" if exact and exact["questions"] < recalls["questions"] else ""
    return table(("seeds", "graph", *(f"@{cut}" for cut in CUTS), f"EM{read} (paper)"), lines)


def _exact(exact: Row, system: str) -> str:
    if system not in exact.get("exact", {}):
        return ""
    figure, low, high = (100 * x for x in exact["exact"][system])
    return f"{figure:.1f} [{low:.1f}, {high:.1f}]"


def describe(system: str) -> Tuple[str, str]:
    """RETURNS (Tuple[str, str]): The seeds of a system and the order of its neighbours, in words."""
    seeds, _, graph = system.partition("-")
    if graph == "boost":
        return f"BM25, raised for {LINKERS[seeds]}", ""
    if seeds == "bm25":
        return "BM25 over passages", ""
    names = {"tfidf": "TF-IDF", **LINKERS}
    return " + ".join(names[x] for x in seeds.split("+")), _GRAPHS[graph]


def difference_table(recalls: Dict[str, Row], exacts: Dict[str, Row]) -> str:
    """RETURNS (str): What each ELQ has over TAGME in the same setting, with intervals."""
    lines = []
    for name, part, figure, row in _differences(recalls, exacts):
        if row["than"].startswith("tagme"):
            about = SETS[name] + (", with gold entities" if part == "gold" else "")
            seeds, graph = describe(row["system"])
            change = f"{100 * row['difference']:+.1f} [{100 * row['low']:+.1f}, {100 * row['high']:+.1f}]"
            lines.append((about, figure, seeds, graph, change))
    return (
        table(("questions", "figure", "seeds", "graph", "more than TAGME"), lines) if lines else NOT_MEASURED
    )


def _differences(recalls: Dict[str, Row], exacts: Dict[str, Row]) -> Iterator[Tuple[str, str, str, Row]]:
    for name in SETS:
        for part in ("all", "gold"):
            own = recalls.get(name, {}).get(part, {}).get("differences", {})
            figures: List[Tuple[str, List[Row]]] = [(f"@{cut}", rows) for cut, rows in own.items()]
            figures.append(("EM", exacts.get(name, {}).get(part, {}).get("differences", [])))
            yield from ((name, part, figure, row) for figure, rows in figures for row in rows)


def engine_table(rows: Dict[str, Row]) -> str:
    """RETURNS (str): The search libraries side by side."""
    lines = [
        (
            row["engine"],
            f"{row['build_seconds']:.0f}",
            f"{row['megabytes']:,}",
            f"{row['questions_per_second']:.0f}",
            *(f"{100 * row['recall'][str(cut)]:.1f}" for cut in CUTS),
        )
        for row in rows.values()
    ]
    header = (
        "library",
        "CPU seconds to build",
        "MB",
        "questions per CPU second",
        *(f"@{cut}" for cut in CUTS),
    )
    return table(header, lines) if lines else NOT_MEASURED


def choice_table(rows: Dict[str, Row]) -> str:
    """RETURNS (str): What was tried on the development set."""
    lines = [
        (row["what"], row["value"], *(f"{100 * row['recall'][str(cut)]:.1f}" for cut in CUTS))
        for own in rows.values()
        for row in own["tried"]
    ]
    return table(("what", "value", *(f"@{cut}" for cut in CUTS)), lines) if lines else NOT_MEASURED


def example_tables(rows: Dict[str, Row]) -> str:
    """RETURNS (str): Questions where links help, and where they hurt: the place of the first passage with an
    answer.
    """
    blocks = []
    for row in rows.values():
        for kind, title in (
            ("helps", "Linking helps"),
            ("hurts", "Linking hurts"),
            ("same", "No difference"),
        ):
            lines = [
                (x["question"], x["links"] or "none", _place(x["without"]), _place(x["with"]))
                for x in row["questions"]
                if x["kind"] == kind
            ]
            if lines:
                header = ("question", "links", "BM25", "with links")
                blocks.append(f"{title} ({LINKERS[row['linker']]}):\n\n{table(header, lines)}")
    return "\n\n".join(blocks) or NOT_MEASURED


def _place(rank: Any) -> str:
    return "not in 80" if rank is None else str(rank)


def step_table(rows: Dict[str, Row]) -> str:
    """RETURNS (str): How long each step took."""
    lines = [
        (row["name"], str(row["cores"]), f"{row['seconds'] / 60:.1f}", str(row["runs"]))
        for row in rows.values()
        if row["finished"]
    ]
    return table(("step", "cores", "minutes", "runs"), lines) if lines else NOT_MEASURED


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """RETURNS (str): A table in Markdown."""
    lines = [header, ("---",) * len(header), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)
