"""Make the page of the paper's experiments from the result files and `page.md`."""

import statistics
from pathlib import Path
from string import Template
from typing import Any, Dict, List, Sequence, Tuple

import typer
from runs import DEVS, MAIN, RESULTS, SETTINGS, SYSTEMS, TESTS, Row, read_rows

TEMPLATE = Path(__file__).parents[1] / "page.md"
NOT_MEASURED = "Not measured yet."
Groups = List[Tuple[Tuple[Any, ...], List[Row]]]
# Li et al. 2020, Tables 1, 2, 4 and 6
PAPER_DATA = {"webqsp_el_test": (1603, 1806), "graphquestions_el_test": (2075, 2229)}
PAPER_MAIN = {
    ("questions", "webqsp_el"): (90.0, 85.0, 87.4, 1.56),
    ("questions", "graphquestions_el"): (60.1, 57.2, 58.6, 1.57),
    ("wikipedia", "webqsp_el"): (86.1, 81.8, 83.9, 1.56),
    ("wikipedia", "graphquestions_el"): (69.8, 69.8, 69.8, 1.57),
    ("wikipedia_questions", "webqsp_el"): (91.0, 87.0, 89.0, 1.56),
    ("wikipedia_questions", "graphquestions_el"): (74.7, 66.4, 70.3, 1.57),
}
PAPER_SYSTEMS = {
    ("elq", "webqsp_el"): PAPER_MAIN["questions", "webqsp_el"],
    ("elq", "graphquestions_el"): PAPER_MAIN["questions", "graphquestions_el"],
    ("blink", "webqsp_el"): (82.2, 79.4, 80.8, 0.80),
    ("blink", "graphquestions_el"): (65.3, 61.2, 63.2, 0.78),
    ("tagme", "webqsp_el"): (53.1, 27.3, 36.1, 2.39),
    ("tagme", "graphquestions_el"): (49.6, 36.5, 42.0, 3.16),
    ("vcg", "webqsp_el"): (82.4, 68.3, 74.7, 0.45),
    ("vcg", "graphquestions_el"): (54.1, 30.6, 39.0, 0.26),
}
PAPER_SECONDS = {"encoder": 0.683, "search": 0.107, "rest": 0.00508}
ABOUT = ("trained on", "encoder", "test", "entities")
STAGES = ("tokenizer", "encoder", "search", "rest")
DETAILS = {
    "strong": "strong",
    "mentions": "mentions",
    "links": "links",
    "candidates_recall": "recall@10",
    "weak_unseen": "unseen",
    "weak_described": "described",
}
ABLATED = {"weak": "weak F1", "mentions": "mentions", "links": "links", "candidates_recall": "recall@10"}
ERRORS = {
    "missed": "missed mentions",
    "wrong": "wrong entities",
    "specific": "more or less specific",
    "extra": "extra mentions",
}


def main(
    page: Path = typer.Argument(..., help="Page to write"),
    results: Path = typer.Option(RESULTS, help="Folder of the result files"),
) -> None:
    """Write the page."""
    data, settings = read_rows(results, "data"), group(read_rows(results, "settings"))
    compared = compare(read_rows(results, "comparison"))
    tables = {
        "data": data_table(data),
        "main": main_table(settings),
        "comparison": comparison_table(compared),
        "differences": differences(compared),
        "details": detail_table(settings),
        "times": time_table(settings),
        "ablations": ablation_table(read_rows(results, "ablations")),
        "errors": error_table(settings),
        "examples": examples(settings),
        "limits": limits(settings, data),
        "package": package_table(read_rows(results, "package"), read_rows(results, "wheel")),
        "steps": step_table(read_rows(results, "steps")),
    }
    page.parent.mkdir(parents=True, exist_ok=True)
    page.write_text(Template(TEMPLATE.read_text(encoding="utf8")).substitute(tables), encoding="utf8")


def group(rows: List[Row]) -> Groups:
    """RETURNS (Groups): The rows that differ only in the seed, by setting, encoder, test, entities and origin
    of the thresholds; in the order of the settings, larger encoders first.
    """
    groups: Dict[Any, List[Row]] = {}
    for row in rows:
        key = (row["setting"], _encoder(row), row["test"], row["entities"], row["threshold_from"])
        groups.setdefault(key, []).append(row)
    order = list(SETTINGS)

    def place(item: Any) -> Any:
        (setting, _, test, entities, source), (row, *_) = item
        return order.index(setting), -(row.get("parameters") or 0), -len(test), entities, source

    return sorted(groups.items(), key=place)


def compare(rows: List[Row]) -> Groups:
    """RETURNS (Groups): The rows of the comparison, a seed each, by test and system."""
    keys = [(test, system) for test in TESTS for system in SYSTEMS]
    groups = [(key, [row for row in rows if (row["test"], row["system"]) == key]) for key in keys]
    return [(key, own) for key, own in groups if own]


def data_table(rows: List[Row]) -> str:
    """RETURNS (str): Table 1, the question sets."""

    def percent(row: Row, key: str) -> str:
        return f"{100 * row[key] / row['links']:.1f} %"

    header = ("set", "questions", "gold links", "(paper)", "entities", "in the catalogue")
    return table(
        header,
        [
            (
                row["name"],
                f"{row['questions']:,}",
                f"{row['links']:,}",
                "/".join(f"{x:,}" for x in PAPER_DATA.get(row["name"], ())),
                f"{row['entities']:,}",
                f"{percent(row, 'known')}, {percent(row, 'described')} with a description",
            )
            for row in rows
        ],
    )


def main_table(groups: Groups) -> str:
    """RETURNS (str): Table 2, weak match and speed beside the paper's."""
    lines = []
    for (setting, encoder, test, entities, source), own in groups:
        speed = mean(own[-1:], "questions_per_second", scale=1.0)
        shown = [*(mean(own, key) for key in ("weak_p", "weak_r", "weak")), speed]
        beside = _beside(shown, PAPER_MAIN.get((setting, test), ()))
        about = (SETTINGS[setting], encoder, TESTS[test], f"{entities:,}")
        lines.append((*about, *beside, source, str(len(own))))
    return table((*ABOUT, "P", "R", "F1", "questions/s", "thresholds from", "seeds"), lines)


def comparison_table(groups: Groups) -> str:
    """RETURNS (str): ELQ and its baselines."""
    lines = []
    for (test, system), own in groups:
        shown = [mean(own, key) for key in ("weak_p", "weak_r", "weak")]
        shown.append(mean(own, "questions_per_second", scale=1.0))
        *weak, speed = _beside(shown, PAPER_SYSTEMS.get((system, test), ()))
        about = (SYSTEMS[system], _encoder(own[0]), TESTS[test], f"{own[0]['entities']:,}")
        details = [mean(own, key) for key in ("mentions", "links")]
        lines.append((*about, *weak, *details, speed, str(len(own))))
    header = ("system", *ABOUT[1:], "P", "R", "F1", "mentions", "links", "questions/s", "seeds")
    return table(header, lines)


def differences(groups: Groups) -> str:
    """RETURNS (str): How far ELQ is ahead of each baseline, or behind it."""
    means = {
        key: [statistics.mean(row[name] for row in own) for name in ("weak", "questions_per_second")]
        for key, own in groups
    }
    lines = []
    for (test, system), (weak, speed) in means.items():
        if system != "elq" and (test, "elq") in means:
            elq = means[test, "elq"]
            name, _, components = SYSTEMS[system].partition(": ")
            gain = f"{100 * (elq[0] - weak):+.1f} weak F1, {elq[1] / speed:.2f} times the questions/s."
            lines.append(f"- {TESTS[test]}, ELQ against {name} ({components}): {gain}")
    return "\n".join(lines) or NOT_MEASURED


def detail_table(groups: Groups) -> str:
    """RETURNS (str): The other metrics."""
    lines = [(*about, *(mean(own, key) for key in DETAILS)) for about, own in _own_thresholds(groups)]
    return table((*ABOUT, *DETAILS.values()), lines)


def time_table(groups: Groups) -> str:
    """RETURNS (str): Milliseconds per question by stage, of the last seed."""
    lines = [
        (SETTINGS[setting], encoder, f"{entities:,}", *(f"{1000 * row['seconds'][x]:.1f}" for x in STAGES))
        for (setting, encoder, test, entities, _), (*_, row) in groups
        if row.get("seconds") and test == "webqsp_el"
    ]
    paper = [f"{1000 * PAPER_SECONDS[stage]:.0f}" for stage in STAGES[1:]]
    lines.append(("the paper (another machine)", "340 M", "5,903,527", "", *paper))
    return table(("trained on", "parameters", "entities", *STAGES), lines)


def ablation_table(rows: List[Row]) -> str:
    """RETURNS (str): What is left out: weak F1 on each development set, and the means over them."""
    by_name: Dict[Tuple[str, ...], Dict[str, Row]] = {}
    for row in rows:
        name = (row["setting"], _encoder(row), f"{row['entities']:,}")
        by_name.setdefault(name, {})[row["test"]] = row
    header = ("what", *ABOUT[1::2], *DEVS.values(), *(f"mean {x}" for x in ABLATED.values()))
    lines = []
    for about, own in by_name.items():
        each = [own.get(f"{dev}_dev", {}) for dev in DEVS]
        # a mean over other sets would not compare
        means = [_average(each, key) if all(each) else "" for key in ABLATED]
        lines.append((*about, *(mean([row], "weak") for row in each), *means))
    return table(header, lines)


def _average(rows: List[Row], key: str) -> str:
    return f"{100 * statistics.mean(row[key] for row in rows):.1f}"


def error_table(groups: Groups) -> str:
    """RETURNS (str): Errors by kind, of the first seed."""
    lines = [(*about, *(str(own[0]["errors"][x]) for x in ERRORS)) for about, own in _own_thresholds(groups)]
    return table((*ABOUT, *ERRORS.values()), lines)


def examples(groups: Groups) -> str:
    """RETURNS (str): A few errors of each kind, of the first run that has them."""
    parts = []
    for test, name in TESTS.items():
        rows = (row for (_, _, own, *_), rows in groups for row in rows if own == test)
        chosen: Dict[str, List[Row]] = next((row["examples"] for row in rows if "examples" in row), {})
        for kind in chosen:
            lines = [
                f"- *{e['mention']}*: " + ", ".join(f"{k} {e[k]}" for k in ("gold", "found") if e[k])
                for e in chosen[kind]
            ]
            parts += [f"{name}, {ERRORS[kind]}:", "\n".join(lines) or "- none"]
    return "\n\n".join(parts) or NOT_MEASURED


def package_table(rows: List[Row], wheels: List[Row]) -> str:
    """RETURNS (str): What was measured of the package on each question set, and its size."""
    names = {test: f"{title}, test" for test, title in TESTS.items()}
    names |= {f"{dev}_dev": f"{title}, development" for dev, title in DEVS.items()}
    shown = [row for name in names for row in rows if row["test"] == name]
    keys = ("weak_p", "weak_r", "weak", "mentions", "links")
    header = ("questions", "P", "R", "F1", "mentions", "links")
    lines = [(names[row["test"]], *(mean([row], key) for key in keys)) for row in shown]
    sizes = [f"The wheel `{wheel['name']}` has {wheel['megabytes']:,} MB." for wheel in wheels]
    return "\n\n".join([table(header, lines), *sizes]) if lines else NOT_MEASURED


def step_table(rows: List[Row]) -> str:
    """RETURNS (str): How long each step took."""
    lines = [
        (row["name"], str(row["cores"]), f"{row['seconds'] / 60:.1f}", str(row["runs"]))
        for row in rows
        if row["finished"]
    ]
    return table(("step", "cores", "minutes", "runs"), lines)


def limits(groups: Groups, data: List[Row]) -> str:
    """RETURNS (str): For both tests, how far the main row is from the paper, and what the tables say."""
    counted, lines = {row["name"]: row for row in data}, {}
    for (setting, encoder, test, entities, source), own in groups:
        counts = counted.get(f"{test}_test")
        # the sets are counted over the catalogue of the tables, the smaller one
        if setting != MAIN or not source.startswith(test) or counts is None or test in lines:
            continue
        weak, paper = statistics.mean(100 * row["weak"] for row in own), PAPER_MAIN[setting, test][2]
        about = ", ".join(filter(None, (TESTS[test], encoder, f"{entities:,} entities")))
        described = mean(own, "weak_described")
        aside = f"; where all have one, weak F1 is {described}" if described else ""
        lost, bare = (
            100 * (counts[more] - counts[less]) / counts["links"]
            for more, less in (("links", "known"), ("known", "described"))
        )
        lines[test] = (
            f"- {about}: weak F1 {weak:.1f}, the paper {paper} ({weak - paper:+.1f}). Of the gold links, "
            f"{lost:.1f} % are to entities that are not in the catalogue, {bare:.1f} % to entities without "
            f"a description{aside}. The gold entity is among the ten candidates in "
            f"{mean(own, 'candidates_recall')} %, and linked in {mean(own, 'links')} % when the mention "
            "is given."
        )
    return "\n".join(lines.values()) or NOT_MEASURED


def mean(rows: List[Row], key: str, *, scale: float = 100.0) -> str:
    """RETURNS (str): The mean over seeds, with the standard deviation if there are several."""
    values = [scale * row[key] for row in rows if row.get(key) is not None]
    if not values:
        return ""
    spread = f" ± {statistics.stdev(values):.1f}" if len(values) > 1 else ""
    return f"{statistics.mean(values):.1f}{spread}"


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """RETURNS (str): A table in Markdown."""
    lines = [header, ("---",) * len(header), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def _own_thresholds(groups: Groups) -> Groups:
    """RETURNS (Groups): Those evaluated with thresholds from the development set of the test, by the columns
    of `ABOUT`.
    """
    return [
        ((SETTINGS[setting], encoder, TESTS[test], f"{entities:,}"), own)
        for (setting, encoder, test, entities, source), own in groups
        if source.startswith(test)
    ]


def _beside(figures: List[str], paper: Sequence[float]) -> List[str]:
    added = [f" ({x})" for x in paper] or [""] * len(figures)
    return [f"{x}{y}" for x, y in zip(figures, added, strict=True)]


def _encoder(row: Row) -> str:
    return f"{row['parameters']} M" if row.get("parameters") else ""


if __name__ == "__main__":
    typer.run(main)
