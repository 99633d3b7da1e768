"""`scripts/results.py`, on the tiny world: the rows that the tables are made of."""

import importlib.util
import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import spacy
from spacy.tokens import DocBin

SCRIPT = Path(__file__).parent.parent / "scripts" / "results.py"
FIELDS = {"system", "setting", "test", "entities", "weak", "strong", "mentions", "links", "seed", "commit"}


@pytest.fixture(scope="module")
def made(trained_path, gold_docs, index, tmp_path_factory):
    """A folder in which every command of the script ran."""
    folder = tmp_path_factory.mktemp("results")
    shutil.copytree(trained_path, folder / "pipeline")
    for name in ("webqsp_el", "graphquestions_el"):
        for part in ("train", "dev", "test"):
            path = folder / "corpus" / f"{name}_{part}.spacy"
            path.parent.mkdir(exist_ok=True)
            DocBin(docs=gold_docs, store_user_data=True).to_disk(path)

    def run(*arguments):
        command = [sys.executable, str(SCRIPT), *map(str, arguments)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=300, cwd=folder)
        assert done.returncode == 0, done.stderr

    run("data", "corpus/webqsp_el_test.spacy", index.path, "--name", "webqsp_el_test")
    places = ("--corpus", "corpus", "--work", "work")
    run("measure", "pipeline", "--setting", "wikipedia_questions", *places)
    places_of_other = (*places, "--index", index.path, "--seed", 1)
    run("measure", "pipeline", "--setting", "questions", *places_of_other)
    run("ablation", "pipeline", "no hard negatives", *places)
    run("ablation", "pipeline", "colder", "--set", "temperature=0.5", *places)
    assert spacy.load(folder / "work" / "models" / "ablation").get_pipe("elq_linker").temperature == 0.5
    assert spacy.load(folder / "pipeline").get_pipe("elq_linker").temperature == 1.0
    run("write")
    return folder


def test_rows_have_the_fields_agreed_on(made):
    rows = json.loads((made / "docs" / "results.json").read_text(encoding="utf8"))
    assert all({*FIELDS, "questions_per_second"} <= set(row) for row in rows)
    keys = [(row["setting"], row["test"], row["threshold_from"]) for row in rows]
    assert sorted(keys) == [
        ("colder", "graphquestions_el_dev", "graphquestions_el_dev"),
        ("colder", "webqsp_el_dev", "webqsp_el_dev"),
        ("no hard negatives", "graphquestions_el_dev", "graphquestions_el_dev"),
        ("no hard negatives", "webqsp_el_dev", "webqsp_el_dev"),
        ("questions", "graphquestions_el", "graphquestions_el_dev"),
        ("questions", "graphquestions_el", "webqsp_el_dev"),
        ("questions", "webqsp_el", "webqsp_el_dev"),
        ("wikipedia_questions", "graphquestions_el", "graphquestions_el_dev"),
        ("wikipedia_questions", "graphquestions_el", "webqsp_el_dev"),
        ("wikipedia_questions", "webqsp_el", "webqsp_el_dev"),
    ]
    assert all(row["weak"] == 1.0 and row["entities"] == 10 for row in rows)


def test_the_page_has_every_table(made):
    page = (made / "docs" / "results.md").read_text(encoding="utf8")
    assert "| webqsp_el_test | 20 | 22 | 1,603/1,806 | 10 | 100.0 %, 100.0 % with a description |" in page
    main = "| Wikipedia, then WebQSP_EL |  | WebQSP_EL | 10 | 100.0 (91.0) | 100.0 (87.0) | 100.0 (89.0) |"
    assert main in page
    assert "| no hard negatives |  | 10 |" + " 100.0 |" * 8 in page
    assert "| the paper (another machine) | 340 M | 5,903,527 |  | 683 | 107 | 5 |" in page
    assert "- WebQSP_EL, 10 entities: weak F1 100.0, the paper 89.0 (+11.0). Of the gold links 0.0 %" in page


def test_the_questions_stay_out_of_what_is_committed(made):
    for path in (made / "docs").iterdir():
        assert "what is the capital" not in path.read_text(encoding="utf8")
    assert list((made / "work" / "metrics").glob("*.html"))


@pytest.fixture(scope="module")
def script():
    spec = importlib.util.spec_from_file_location("results", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_all_systems_are_compared_in_one_run(
    script, trained_path, blink_path, anchors, own_path, gold_docs, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    for name in ("webqsp_el_train", *(f"{test}_{part}" for test in script.TESTS for part in ("dev", "test"))):
        (tmp_path / "corpus").mkdir(exist_ok=True)
        DocBin(docs=gold_docs[:4], store_user_data=True).to_disk(tmp_path / "corpus" / f"{name}.spacy")
    places = {"corpus": tmp_path / "corpus", "work": tmp_path / "work", "seed": 0}
    pipelines = {"elq": trained_path, "blink": blink_path, "dictionary": anchors.path, "own": own_path}
    script.compare(**pipelines, **places)
    rows = json.loads((tmp_path / "docs" / "results.json").read_text(encoding="utf8"))
    assert {(row["system"], row["test"]) for row in rows} == {
        (system, test) for system in ("elq", "blink", "tagme", "spacy") for test in script.TESTS
    }
    assert all(row["questions_per_second"] > 0 and row["setting"] == "comparison" for row in rows)
    assert {row["system"]: row["threshold"] is None for row in rows}["spacy"]
    script.write()
    page = (tmp_path / "docs" / "results.md").read_text(encoding="utf8")
    assert (
        "| ELQ: `elq_linker` |  | WebQSP_EL | 10 | 100.0 (90.0) | 100.0 (85.0) | 100.0 (87.4) | 100.0 |"
        in page
    )
    assert "(42.0)" in page
    # they are in no other table
    assert page.count("| ELQ: `elq_linker` |") == 2
    assert page.count("- WebQSP_EL: ELQ is ") == page.count("- GraphQuestions_EL: ELQ is ") == 3


def test_speeds_are_those_of_the_last_seed(script):
    row = {"setting": script.MAIN, "test": "webqsp_el", "entities": 7, "threshold_from": "webqsp_el_dev"}
    row["parameters"] = 33
    stages = ("tokenizer", "encoder", "search", "rest")
    rows = [
        {**row, "questions_per_second": 1.0, "seconds": dict.fromkeys(stages, 1.0)},
        {**row, "questions_per_second": 2.0, "seconds": dict.fromkeys(stages, 0.5)},
        {**row, "test": "graphquestions_el", "seconds": dict.fromkeys(stages, 9.0)},
    ]
    assert {line[7] for line in script._main_rows(rows)} == {"2.0 (1.56)", " (1.57)"}
    assert script._time_rows(rows)[:-1] == [("Wikipedia, then WebQSP_EL", "33 M", "7", *["500.0"] * 4)]


def test_rows_of_different_encoders_stay_apart(script):
    row = {"setting": script.MAIN, "test": "webqsp_el", "entities": 7, "threshold_from": "webqsp_el_dev"}
    rows = [{**row, "parameters": 22, "weak": 0.1 * seed} for seed in (1, 3)]
    rows.append({**row, "parameters": 33, "weak": 0.5})
    shown = [(line[1], line[6], line[9]) for line in script._main_rows(rows)]
    assert shown == [("33 M", "50.0 (89.0)", "1"), ("22 M", "20.0 ± 14.1 (89.0)", "2")]


def test_parameters_of_the_transformer_are_counted(script, trained_path, tmp_path):
    assert script._count_parameters(trained_path) == 0
    spacy.blank("en").to_disk(tmp_path / "blank")
    assert script._count_parameters(tmp_path / "blank") is None


def test_what_limits_it_is_counted(script, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert script._limits([]) == "Not measured yet."
    counts = {"name": "webqsp_el_test", "links": 200, "known": 190, "described": 140}
    script._write_json(script.DATA, [counts])
    row = {"setting": script.MAIN, "test": "webqsp_el", "entities": 7, "threshold_from": "webqsp_el_dev"}
    figures = {"weak": 0.5, "weak_described": 0.75, "candidates_recall": 0.9, "links": 0.6}
    rows = [{**row, **figures}, {**row, **figures, "weak": 0.7}, {**row, **figures, "setting": "questions"}]
    rows.append({**row, **figures, "entities": 99})
    (line,) = script._limits(rows).splitlines()
    assert "weak F1 60.0, the paper 89.0 (-29.0)" in line
    assert "5.0 % are to entities that the catalogue does not have, 25.0 % to entities without" in line
    assert line.endswith(
        "weak F1 is 75.0 ± 0.0. Gold is among the ten candidates in 90.0 ± 0.0 %, and linked in "
        "60.0 ± 0.0 % where the mention is given."
    )


def test_a_baseline_that_is_ahead_is_named(script):
    rows = [
        {
            "system": system,
            "setting": "comparison",
            "test": "webqsp_el",
            "weak": weak,
            "questions_per_second": 9,
        }
        for system, weak in (("elq", 0.5), ("tagme", 0.25), ("spacy", 0.75))
    ]
    ahead, behind = script._compared(rows).splitlines()
    assert ahead.startswith("- WebQSP_EL: ELQ is ahead of TAGME: `elq_tagme` by +25.0 weak F1, at 1.00 times")
    assert behind.startswith(
        "- WebQSP_EL: ELQ is NOT ahead of spaCy: `ner`, `entity_linker` by -25.0 weak F1"
    )
    assert script._compared([]) == "Not measured yet."
