"""`scripts/measure.py` and `scripts/count.py`, on the tiny world: result files and page."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import measure
import pytest
import spacy
import srsly
import tables
import timed
import typer
from runs import DEVS, TESTS, read_rows
from spacy.tokens import DocBin

SCRIPTS = Path(__file__).parents[1] / "scripts"
FIELDS = {"setting", "test", "entities", "weak", "strong", "mentions", "links", "seed", "commit"}


def write_corpus(folder, docs):
    folder.mkdir(parents=True)
    for test in DEVS:
        for part in ("train", "dev", "test"):
            DocBin(docs=docs, store_user_data=True).to_disk(folder / f"{test}_{part}.spacy")


@pytest.fixture(scope="module")
def made(trained_path, gold_docs, index, tmp_path_factory):
    """A folder in which the scripts ran."""
    folder = tmp_path_factory.mktemp("results")
    shutil.copytree(trained_path, folder / "pipeline")
    write_corpus(folder / "work" / "corpus", gold_docs)

    def run(script, *arguments):
        command = [sys.executable, str(SCRIPTS / f"{script}.py"), *map(str, arguments)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=300, cwd=folder)
        assert done.returncode == 0, done.stderr

    run("count", "work/corpus/webqsp_el_test.spacy", index.path, "webqsp_el_test")
    run("measure", "setting", "pipeline", "wikipedia_questions")
    run("measure", "setting", "pipeline", "questions", "--index", index.path, "--seed", 1)
    run("measure", "ablation", "pipeline", "no hard negatives")
    run("measure", "ablation", "pipeline", "colder", "--set", "prior.temperature=0.5")
    assert temperature(folder / "work" / "models" / "ablation") == 0.5
    assert temperature(folder / "pipeline") == 1.0
    run("measure", "package", "pipeline", "pipeline", "--seed", 2)
    shutil.copytree(folder / "pipeline", folder / "bundled")
    run("card", "bundled", "small", "1.2.0")
    run("timed", "waiting", "--", "python", "-c", "0")
    run("tables", "docs/experiments.md")
    return folder


def temperature(path):
    return spacy.load(path).get_pipe("elq_linker").temperature


def test_each_run_writes_a_file(made):
    found = {str(path.relative_to(made / "results")) for path in made.glob("results/*/*")}
    assert found == {
        "ablations/colder-0m-10.json",
        "ablations/no-hard-negatives-0m-10.json",
        "data/webqsp_el_test.json",
        "package/package-2.json",
        "settings/questions-1-0m-10.json",
        "settings/wikipedia_questions-0-0m-10.json",
        "steps/waiting.json",
    }


def test_rows_have_the_fields_agreed_on(made):
    settings, ablations = (read_rows(made / "results", kind) for kind in ("settings", "ablations"))
    assert all(set(row) >= FIELDS for row in settings + ablations)
    assert all(row["questions_per_second"] > 0 for row in settings)
    keys = [(row["setting"], row["test"], row["threshold_from"]) for row in settings + ablations]
    assert sorted(keys) == [
        *(("colder", f"{dev}_dev", f"{dev}_dev") for dev in sorted(DEVS)),
        *(("no hard negatives", f"{dev}_dev", f"{dev}_dev") for dev in sorted(DEVS)),
        ("questions", "graphquestions_el", "graphquestions_el_dev"),
        ("questions", "graphquestions_el", "webqsp_el_dev"),
        ("questions", "webqsp_el", "webqsp_el_dev"),
        ("wikipedia_questions", "graphquestions_el", "graphquestions_el_dev"),
        ("wikipedia_questions", "graphquestions_el", "webqsp_el_dev"),
        ("wikipedia_questions", "webqsp_el", "webqsp_el_dev"),
    ]
    assert all(row["weak"] == 1.0 and row["entities"] == 10 for row in settings + ablations)


def test_examples_are_kept_once(made):
    kept = [row for row in read_rows(made / "results", "settings") if "examples" in row]
    assert [(row["setting"], row["seed"], row["test"]) for row in kept] == [
        ("wikipedia_questions", 0, "graphquestions_el"),
        ("wikipedia_questions", 0, "webqsp_el"),
    ]


def test_the_page_has_every_table(made):
    page = (made / "docs" / "experiments.md").read_text(encoding="utf8")
    assert "| webqsp_el_test | 20 | 22 | 1,603/1,806 | 10 | 100.0 %, 100.0 % with a description |" in page
    main = "| Wikipedia, then WebQSP_EL |  | WebQSP_EL | 10 | 100.0 (91.0) | 100.0 (87.0) | 100.0 (89.0) |"
    assert main in page
    assert "| no hard negatives |  | 10 |" + " 100.0 |" * 9 in page
    assert "| the paper (another machine) | 340 M | 5,903,527 |  | 683 | 107 | 5 |" in page
    assert "- WebQSP_EL, 10 entities: weak F1 100.0, the paper 89.0 (+11.0). Of the gold links, 0.0 %" in page
    assert "WebQSP_EL, missed mentions:\n\n- none" in page
    assert "$" not in page


def test_a_package_is_measured_as_it_is(made):
    rows = read_rows(made / "results", "package")
    assert {row["test"] for row in rows} == {*TESTS, *(f"{dev}_dev" for dev in DEVS)}
    assert {row["threshold"] for row in rows} == {
        spacy.load(made / "pipeline").get_pipe("elq_linker").threshold
    }


def test_a_card_says_what_was_measured(made):
    meta = srsly.read_json(made / "bundled" / "meta.json")
    assert (meta["name"], meta["version"], meta["performance"]["elq_weak_f"]) == ("small", "1.2.0", 1.0)
    card = (made / "bundled" / "README.md").read_text(encoding="utf8")
    assert card.startswith("---\nlanguage: en\n")
    assert [
        x for x in ("# en_small", "en_small-1.2.0-py3-none-any.whl", "10 entities") if x not in card
    ] == []
    lines = [line for line in card.splitlines() if line.endswith("| 100.0 | 100.0 | 100.0 | 100.0 | 100.0 |")]
    assert [line.split(" | ")[0] for line in lines] == [
        "| WebQSP_EL, test",
        "| GraphQuestions_EL, test",
        *(f"| {title}, development" for title in DEVS.values()),
    ]
    assert "$" not in card


def test_steps_that_were_interrupted_add_up(made, tmp_path):
    page = (made / "docs" / "experiments.md").read_text(encoding="utf8")
    assert f"| waiting | {os.cpu_count()} | 0.0 | 1 |" in page

    def step(code):
        with pytest.raises(typer.Exit) as ended:
            timed.main("s", ["python", "-c", f"import sys; sys.exit({code})"], results=tmp_path)
        (row,) = read_rows(tmp_path, "steps")
        return ended.value.exit_code, row

    code, row = step(3)
    assert (code, row["runs"], row["finished"]) == (3, 1, False)
    seconds = row["seconds"]
    code, row = step(0)
    assert (code, row["runs"], row["finished"]) == (0, 2, True)
    assert row["seconds"] >= seconds
    assert step(0)[1]["runs"] == 1


def test_the_questions_stay_out_of_what_is_committed(made):
    for path in (*made.glob("results/*/*"), made / "docs" / "experiments.md"):
        assert "what is the capital" not in path.read_text(encoding="utf8")
    assert list((made / "work" / "metrics").glob("*.html"))


def test_all_systems_are_compared_in_one_run(
    trained_path, blink_path, anchors, vcg_path, own_path, gold_docs, tmp_path
):
    write_corpus(tmp_path / "work" / "corpus", gold_docs[:4])
    pipelines = {"elq": trained_path, "blink": blink_path, "dictionary": anchors.path}
    pipelines |= {"vcg": vcg_path, "own": own_path}
    measure.compare(**pipelines, work=tmp_path / "work", results=tmp_path / "results", seed=0)
    rows = read_rows(tmp_path / "results", "comparison")
    assert {(row["system"], row["test"]) for row in rows} == {
        (system, test) for system in ("elq", "blink", "tagme", "vcg", "spacy") for test in TESTS
    }
    assert all(row["questions_per_second"] > 0 for row in rows)
    assert {row["system"]: row["threshold"] is None for row in rows}["spacy"]
    tables.main(tmp_path / "page.md", results=tmp_path / "results")
    page = (tmp_path / "page.md").read_text(encoding="utf8")
    assert (
        "| ELQ: `elq_linker` |  | WebQSP_EL | 10 | 100.0 (90.0) | 100.0 (85.0) | 100.0 (87.4) | 100.0 |"
        in page
    )
    assert "(42.0)" in page
    (line,) = [line for line in page.splitlines() if line.startswith("| VCG: `elq_vcg` |  | GraphQ")]
    assert "(39.0)" in line
    assert "(0.26)" in line
    # they are in no other table
    assert page.count("| ELQ: `elq_linker` |") == 2
    assert page.count("- WebQSP_EL, ELQ against ") == page.count("- GraphQuestions_EL, ELQ against ") == 4


def test_parameters_of_the_transformer_are_counted(trained_path, tmp_path):
    assert measure._count_parameters(trained_path) == 0
    spacy.blank("en").to_disk(tmp_path / "blank")
    assert measure._count_parameters(tmp_path / "blank") is None


def test_a_run_takes_the_place_of_the_one_before(tmp_path):
    for weak in (0.25, 0.5):
        measure.write_run(tmp_path, "settings", "a-0", {"seed": 0, "tests": [{"test": "x", "weak": weak}]})
    assert read_rows(tmp_path, "settings") == [{"seed": 0, "test": "x", "weak": 0.5}]
    assert json.loads((tmp_path / "settings" / "a-0.json").read_text())["seed"] == 0
