"""`scripts/tables.py`: what the tables say of the result files; and the page that is committed."""

import re
from pathlib import Path

import plot_speed
import tables
from runs import MAIN

PROJECT = Path(__file__).parents[1]
DOCS = PROJECT.parents[1] / "docs"
ROW = {
    "setting": MAIN,
    "test": "webqsp_el",
    "entities": 7,
    "threshold_from": "webqsp_el_dev",
    "parameters": 33,
}


def cells(text):
    return [tuple(cell.strip() for cell in line.strip("|").split("|")) for line in text.splitlines()[2:]]


def test_the_page_is_what_the_result_files_say(tmp_path):
    """Run `python -m spacy project run results projects/paper` if this fails."""
    tables.main(tmp_path / "page.md", results=PROJECT / "results")
    page = (DOCS / "experiments.md").read_text(encoding="utf8")
    assert (tmp_path / "page.md").read_text(encoding="utf8") == page
    for picture in re.findall(r"!\[.*\]\((.*)\)", page):
        assert (DOCS / picture).is_file()


def test_the_plot_names_every_system(tmp_path):
    plot_speed.main(tmp_path / "plot.svg", results=PROJECT / "results")
    text = (tmp_path / "plot.svg").read_text(encoding="utf8")
    for name in (*plot_speed.NAMES.values(), "WebQSP_EL", "GraphQuestions_EL", "weak F1, %"):
        assert f">{name}<" in text


def test_speeds_are_those_of_the_last_seed():
    stages = ("tokenizer", "encoder", "search", "rest")
    rows = [
        {**ROW, "questions_per_second": 1.0, "seconds": dict.fromkeys(stages, 1.0)},
        {**ROW, "questions_per_second": 2.0, "seconds": dict.fromkeys(stages, 0.5)},
        {**ROW, "test": "graphquestions_el", "seconds": dict.fromkeys(stages, 9.0)},
    ]
    groups = tables.group(rows)
    assert {line[7] for line in cells(tables.main_table(groups))} == {"2.0 (1.56)", "(1.57)"}
    (line, _) = cells(tables.time_table(groups))
    assert line == ("Wikipedia, then WebQSP_EL", "33 M", "7", *["500.0"] * 4)


def test_rows_of_different_encoders_stay_apart():
    rows = [{**ROW, "parameters": 22, "weak": 0.1 * seed} for seed in (1, 3)]
    rows.append({**ROW, "weak": 0.5})
    shown = [(line[1], line[6], line[9]) for line in cells(tables.main_table(tables.group(rows)))]
    assert shown == [("33 M", "50.0 (89.0)", "1"), ("22 M", "20.0 ± 14.1 (89.0)", "2")]


def test_what_limits_it_is_counted():
    assert tables.limits([], []) == tables.NOT_MEASURED
    counts = [{"name": "webqsp_el_test", "links": 200, "known": 190, "described": 140}]
    row = {
        **ROW,
        "parameters": None,
        "weak": 0.5,
        "weak_described": 0.75,
        "candidates_recall": 0.9,
        "links": 0.6,
    }
    rows = [row, {**row, "weak": 0.7}, {**row, "setting": "questions"}, {**row, "entities": 99}]
    (line,) = tables.limits(tables.group(rows), counts).splitlines()
    assert "weak F1 60.0, the paper 89.0 (-29.0)" in line
    assert "5.0 % are to entities that are not in the catalogue, 25.0 % to entities without" in line
    assert line.endswith(
        "weak F1 is 75.0 ± 0.0. The gold entity is among the ten candidates in 90.0 ± 0.0 %, and linked in "
        "60.0 ± 0.0 % when the mention is given."
    )


def test_differences_have_a_sign():
    rows = [
        {"system": system, "test": "webqsp_el", "weak": weak, "questions_per_second": 9}
        for system, weak in (("elq", 0.5), ("tagme", 0.25), ("spacy", 0.75))
    ]
    ahead, behind = tables.differences(tables.compare(rows)).splitlines()
    assert ahead == (
        "- WebQSP_EL, ELQ against TAGME (`elq_tagme`): +25.0 weak F1, 1.00 times the questions/s."
    )
    assert behind.startswith("- WebQSP_EL, ELQ against spaCy (`ner`, `entity_linker`): -25.0 weak F1")
    assert tables.differences([]) == tables.NOT_MEASURED
