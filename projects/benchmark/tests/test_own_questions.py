"""`own_questions.py` and its tables, on the tiny world."""

import json
from pathlib import Path

import own_questions
import pytest
import soundness_page
from conftest import ENTITIES, QUESTIONS
from split import main as split_file
from split import split
from typer import Typer
from typer.testing import CliRunner

from spacy_elq.corpora.formats import read_marked

PROJECT = Path(__file__).parents[1]
PARTS = ("train", "dev", "test")


def texts(questions):
    return {question.text for question in questions}


def same_weights(path, other):
    return (path / "elq_linker" / "model").read_bytes() == (other / "elq_linker" / "model").read_bytes()


@pytest.fixture(scope="module")
def made(trained_path, tmp_path_factory):
    """The folder of a run with few steps over one domain, and the pipelines that were measured."""
    folder, loaded = tmp_path_factory.mktemp("own"), []
    (folder / "assets" / "shop").mkdir(parents=True)
    lines = "".join(json.dumps(entity) + "\n" for entity in ENTITIES)
    (folder / "assets" / "shop" / "entities.jsonl").write_text(lines, encoding="utf8")
    (folder / "assets" / "shop" / "questions.txt").write_text(QUESTIONS, encoding="utf8")
    (folder / "others.txt").write_text("is paris older than new york city\nok\n", encoding="utf8")
    load = own_questions.load_pipeline
    app = Typer()
    app.command()(own_questions.main)
    options = {"assets": folder / "assets", "others": folder / "others.txt", "work": folder / "work"}
    options |= {"results": folder / "results", "steps": 2}
    words = [str(word) for name, value in options.items() for word in (f"--{name}", value)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(own_questions, "DOMAINS", ("shop",))
        patch.setattr(own_questions, "TRAIN", 10)
        patch.setattr(own_questions, "DEV", 4)
        # the encoder of the tests has two layers in all
        read = own_questions.read_config
        patch.setattr(own_questions, "read_config", lambda *a: read(*a).replace("layers = 2", "layers = 1"))
        patch.setattr(own_questions, "load_pipeline", lambda path: (loaded.append(path), load(path))[1])
        done = CliRunner().invoke(app, [str(trained_path), *words])
    assert done.exit_code == 0, done.output
    return folder, loaded


def read(made):
    return json.loads((made[0] / "results" / "own-questions.json").read_text(encoding="utf8"))


@pytest.mark.parametrize("domain", own_questions.DOMAINS)
def test_the_split_is_whole_disjoint_and_reproducible(domain):
    questions = list(read_marked(PROJECT / "assets" / domain / "questions.txt"))
    parts = split(questions, 0, train=40, dev=15)
    assert (len(parts["train"]), len(parts["dev"])) == (40, 15)
    assert sum(len(parts[part]) for part in PARTS) == len(questions)
    assert set.union(*(texts(parts[part]) for part in PARTS)) == texts(questions)
    assert split(questions, 0, train=40, dev=15) == parts
    assert split(questions, 1, train=40, dev=15) != parts


def test_training_sees_no_test_question(made):
    sets = {path.stem: list(read_marked(path)) for path in (made[0] / "work" / "shop").glob("*.txt")}
    assert read(made)["domains"]["shop"]["questions"] == {
        name: len(sets[name]) for name in (*PARTS, "made", "made_dev", "both")
    }
    assert texts(sets["both"]) == texts(sets["train"]) | texts(sets["made"])
    for name in ("train", "dev"):
        assert texts(sets[name]).isdisjoint(texts(sets["test"]))
    assert texts(sets["made"]).isdisjoint(texts(sets["made_dev"]))
    assert sets["made_dev"]


def test_each_way_is_trained_on_its_own_questions_and_measured(made, trained_path):
    folder, loaded = made[0] / "work" / "shop", made[1]
    tuned = [folder / "own" / "model", folder / "made" / "model-best", folder / "both" / "model"]
    assert loaded == [str(trained_path), *map(str, tuned)]
    for way, (train, dev) in own_questions.WAYS.items():
        config = (folder / way / "config.cfg").read_text(encoding="utf8")
        assert f'train = "{folder / train}.spacy"' in config
        assert f'dev = "{folder / dev}.spacy"' in config
        assert not same_weights(folder / way / "model-last", trained_path)


def test_figures_are_those_of_a_pipeline_that_knows_the_questions(made):
    record = read(made)
    row = record["domains"]["shop"]
    assert (record["others"], row["as_is"]["f"], row["recall"]["real"]) == (2, 1.0, 1.0)
    assert row["recall"]["made"] < 1.0
    assert row["as_is"]["foreign"] > 0
    assert {row[way]["step"] for way in own_questions.WAYS} <= {0, 1, 2}


def test_of_equal_scores_the_last_is_the_best(tmp_path):
    rows = [(0, 0.5), (10, 0.7), (20, 0.7), (30, 0.6)]
    lines = [json.dumps({"step": step, "score": score}) + "\n" for step, score in rows]
    (tmp_path / "log.jsonl").write_text("".join(lines), encoding="utf8")
    assert own_questions.best_step(tmp_path / "log.jsonl") == 20


def test_the_page_has_a_row_for_every_way(made):
    folder = made[0]
    soundness_page.main(folder / "page.md", folder / "page.svg", results=folder / "results")
    page = (folder / "page.md").read_text(encoding="utf8")
    row = read(made)["domains"]["shop"]
    made_step = row["made"]["step"]
    assert "| shop | nothing: as it is | 0 |  | 1 |" in page
    assert "| shop | own questions | 10 |" in page
    assert f"| shop | made questions | {row['questions']['made']} | {made_step} |" in page
    assert f"| shop | both | {row['questions']['both']} |" in page
    assert f"| shop | {soundness_page._show(row['recall']['made'])} | 1 |" in page


def test_a_question_set_is_split_into_files(tmp_path):
    app, source = Typer(), PROJECT / "assets" / "shop" / "questions.txt"
    app.command()(split_file)
    done = CliRunner().invoke(app, [str(source), str(tmp_path / "new"), "--train", "55", "--dev", "20"])
    assert done.exit_code == 0, done.output
    parts = {name: list(read_marked(tmp_path / "new" / f"{name}.txt")) for name in PARTS}
    assert [len(parts[name]) for name in PARTS] == [55, 20, 25]
    together = [question.text for own in parts.values() for question in own]
    assert sorted(together) == sorted(question.text for question in read_marked(source))
