"""What people run: the component, the example, the commands, the page, the project."""

import gzip
import json
import lzma
import pickle
import runpy
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import spacy
import srsly
from elq_qa import page
from elq_qa.choices import try_bm25, try_boosts
from elq_qa.commands import app
from elq_qa.component import PassageRetriever
from elq_qa.evaluate import CUTS
from elq_qa.examples import show_examples
from elq_qa.retrieve import Setting, open_retriever
from elq_qa.runs import COUNT
from elq_qa.systems import make_settings
from elq_qa.types import QAError
from qa_world import ARTICLES, ENTITIES, QUESTIONS, make_world
from spacy.language import Language
from spacy.tokens import Span
from typer.testing import CliRunner

PROJECT = Path(__file__).parents[1]
DOCS = PROJECT.parents[1] / "docs"


@Language.component("qa_project_linker")
def link_mercury(doc):
    """Links "mercury" to the planet and "roman" to the god."""
    ids = {"mercury": "planet", "roman": "god"}
    doc.ents = [Span(doc, x.i, x.i + 1, "E", kb_id=ids[x.text]) for x in doc if x.text in ids]
    return doc


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("work")
    make_world(path)
    return path


@pytest.fixture(scope="module")
def retriever(folder):
    return open_retriever(folder)


def make_pipeline(folder, **settings):
    nlp = spacy.blank("en")
    nlp.add_pipe("qa_project_linker")
    nlp.add_pipe("elq_passages", config={"work": str(folder), "count": 3, **settings})
    return nlp


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({}, ["planet", "planet", "planet"]),
        ({"boost": 0.1}, ["venus", "planet", "planet"]),
        # only the planet's passages, then only with its neighbours
        ({"boost": 0.0}, ["planet", "planet", "planet"]),
        ({"boost": 0.0, "graph": "bm25"}, ["planet", "venus", "planet"]),
        ({"boost": 0.0, "articles": 1}, ["planet", "venus", "planet"]),
        ({"count": 1}, ["planet"]),
    ],
)
def test_a_doc_gets_the_passages_of_its_entities(folder, settings, expected):
    doc = make_pipeline(folder, **settings)("mercury and clouds")
    assert [passage["entity"] for passage in doc._.passages] == expected


def test_a_doc_without_links_gets_the_best_passages(folder):
    for boost in (0.0, 4.0):
        (passage,) = make_pipeline(folder, boost=boost)("thick clouds")._.passages
        assert passage["title"] == "Venus"
        assert passage["text"] == "Venus is a planet with thick clouds."
        assert passage["score"] > 0


def test_the_component_works_in_several_processes_and_is_saved(folder, tmp_path):
    nlp = make_pipeline(folder, boost=0.0)
    texts = [question.text for question in QUESTIONS] * 2
    expected = [doc._.passages for doc in nlp.pipe(texts)]
    assert [doc._.passages for doc in nlp.pipe(texts, n_process=2, batch_size=2)] == expected
    nlp.to_disk(tmp_path / "pipeline")
    assert spacy.load(tmp_path / "pipeline")(texts[0])._.passages == expected[0]
    # what was opened is not taken along
    assert len(pickle.dumps(nlp.get_pipe("elq_passages"))) < 2000
    assert PassageRetriever(nlp).setting == Setting("doc", boost=4.0)


def test_an_unknown_order_of_neighbours_is_named(folder):
    with pytest.raises(QAError, match="graph is 'random'"):
        make_pipeline(folder, graph="random")


def test_examples_say_what_links_change(folder, retriever):
    nlp = make_pipeline(folder)
    rows = show_examples(nlp, retriever, QUESTIONS, boost=9.0)
    assert [(row["without"], row["with"], row["kind"]) for row in rows] == [
        (1, 1, "same"),
        # the planet is linked as well, and its passages come first
        (2, 5, "hurts"),
        (1, 1, "same"),
        (None, None, "same"),
    ]
    assert rows[0]["links"] == "mercury = planet"
    hurt = QUESTIONS[2]._replace(text="thick clouds of mercury")
    assert [row["kind"] for row in show_examples(nlp, retriever, [hurt], boost=9.0)] == ["hurts"]
    helped = QUESTIONS[0]._replace(text="thick clouds mercury")
    assert [row["kind"] for row in show_examples(nlp, retriever, [helped], boost=9.0)] == ["helps"]


def test_what_was_tried_is_measured(retriever, tmp_path):
    words, passages = retriever.search.words, retriever.passages
    rows = try_bm25(words, passages, QUESTIONS, [(0.9, 0.4), (1.2, 0.75)], tmp_path)
    assert [row["value"] for row in rows] == ["0.9, 0.4", "1.2, 0.75"]
    assert rows[0]["recall"]["5"] == 0.75
    links = {"q0": [{"id": "planet"}], "q2": [{"id": "rome"}]}
    few, much = try_boosts(retriever, QUESTIONS, "tagme", links, [0.1, 9.0])
    assert (few["what"], few["value"], much["value"]) == ("rise for TAGME", "0.1", "9.0")
    assert few["recall"] == much["recall"] == dict.fromkeys(map(str, CUTS), 0.75)


@pytest.mark.parametrize("library", ["bm25s", "tantivy"])
def test_search_libraries_are_measured(retriever, tmp_path, library):
    pytest.importorskip("tantivy", reason="needs projects/qa/requirements.txt")
    from elq_qa.engines import measure

    (tmp_path / "index").mkdir()
    (tmp_path / "index" / "old").write_text("from before")
    row = measure(library, retriever.passages, QUESTIONS, tmp_path / "index")
    assert (row["engine"], row["passages"], row["questions"]) == (library, 9, 4)
    assert row["recall"]["5"] == 0.75
    assert not (tmp_path / "index" / "old").exists()
    with pytest.raises(QAError, match="Expected one of bm25s, tantivy"):
        measure("lucene", retriever.passages, QUESTIONS, tmp_path / "index")


# ------------------------------------------------------------------ commands


def write_raw_files(folder: Path) -> None:
    """Writes the raw files of the world, as `project.yml` names them."""
    for name in ("questions", "articles", "graph", "reader"):
        (folder / "qa" / name).mkdir(parents=True)
    (folder / "questions").mkdir()
    (folder / "catalogue").mkdir()
    srsly.write_jsonl(folder / "catalogue" / "entities_766k.jsonl", ENTITIES)
    (folder / "catalogue" / "merges.tsv").write_text("mercury\tplanet\n")
    for i, name in enumerate(("simplewiki2021", "enwiki2015")):
        with lzma.open(folder / "qa" / "articles" / f"{name}.jsonl.xz", "wt") as file_:
            file_.write(json.dumps({"id": "mercury", "text": ARTICLES["planet"][i]}) + "\n")
    with lzma.open(folder / "qa" / "graph" / "kb.tsv.xz", "wt") as file_:
        file_.write("head\trelation\ttail\tsource\nplanet\tstar\tsun\tx\ngod\tcity\trome\tx\n")
    with gzip.open(folder / "qa" / "graph" / "links.tsv.gz", "wt") as file_:
        file_.write("page\tlinked\nrome\titaly\nplanet\tvenus\n")
    with gzip.open(folder / "qa" / "graph" / "tables.tsv.gz", "wt") as file_:
        file_.write("entity\tcolumns\tentity\ngod\trow: x\tstub\n")
    records = [
        {"qid": x.qid, "question": x.text, "answers": x.answers, **({"webqsp_el": x.gold} if x.gold else {})}
        for x in QUESTIONS
    ]
    for part in ("webquestions_dev", "webquestions_test", "nq_open_test", "webquestions_train"):
        srsly.write_jsonl(folder / "qa" / "questions" / f"{part}.jsonl", records)
    for part in ("triviaqa_open_test", "triviaqa_open_dev", "nq_open_dev"):
        srsly.write_gzip_jsonl(folder / "qa" / "questions" / f"{part}.jsonl.gz", records)
    gold = [
        {"qid": "WebQTest-0", "spans": [{"id": "planet"}]},
        {"qid": "WebQTest-1", "spans": [{"id": "god"}]},
    ]
    srsly.write_jsonl(folder / "questions" / "webqsp_el_train.jsonl", gold[:1])
    srsly.write_jsonl(folder / "questions" / "webqsp_el_test.jsonl", gold[1:])
    qa = {"question": "what is hot", "answers": [{"start": 0, "text": "It"}]}
    squad = [{"title": "Sun", "context": "It is hot.", "qas": [qa]}]
    srsly.write_gzip_jsonl(folder / "qa" / "reader" / "squad_dev.jsonl.gz", squad)


def run(*words):
    done = CliRunner().invoke(app, [str(word) for word in words])
    assert done.exit_code == 0, done.output + repr(done.exception)
    return done.output


def test_the_commands_make_the_tables_from_the_raw_files(tmp_path, encoder_path, dictionary):
    data, work, results = tmp_path / "data", tmp_path / "work", tmp_path / "results"
    write_raw_files(data)
    articles = [data / "qa" / "articles" / f"{x}.jsonl.xz" for x in ("simplewiki2021", "enwiki2015")]
    catalogue, merges = data / "catalogue" / "entities_766k.jsonl", data / "catalogue" / "merges.tsv"
    out = ("--work", work, "--results", results)
    output = run("passages", catalogue, *articles, "--merges", merges, *out)
    assert "9 passages of 7 entities" in output
    for command in ("words", "search", "articles"):
        run(command, "--work", work)
    run("graph", data / "qa" / "graph", *out)
    run("tagme", dictionary.path, work / "tagme")
    assert spacy.load(work / "tagme").get_pipe("elq_tagme").decoder.threshold == 0.1
    nlp = spacy.blank("en")
    nlp.add_pipe("qa_project_linker")
    nlp.to_disk(work / "own")
    raw = ("--data", data, "--work", work)
    run("link", work / "own", "tagme", "webquestions_dev", "webquestions_test", *raw)
    run("gold", "webquestions_dev", *raw, "--results", results)
    run("gold", "webquestions_test", *raw, "--results", results)
    run("choose-bm25", *raw, "--results", results)
    run("choose-boost", "tagme", *raw, "--results", results)
    run("retrieve", "webquestions_test", "triviaqa_open_test", *raw, "--results", results)
    run("train", encoder_path, "webquestions_train", "triviaqa_open_dev", *raw, "--steps", 2, "--threads", 1)
    assert srsly.read_json(work / "reader" / "training.json")["steps"] == 2
    run("read", "webquestions_test", *raw, "--results", results, "--count", 2, "--threads", 1)
    run("read", "triviaqa_open_test", *raw, "--results", results, "--limit", 3, "--threads", 1)
    questions = data / "qa" / "questions" / "webquestions_dev.jsonl"
    run("examples", work / "own", "tagme", questions, "--work", work, "--results", results)
    run("page", tmp_path / "page.md", "--results", results)
    text = (tmp_path / "page.md").read_text(encoding="utf8")
    assert "| BM25 over passages |  | 75.0 |" in text
    assert "9 of at most 100 words, the openings of 7 entities and 2 longer articles" in text
    assert "2 claims of Freebase and Wikidata, 2 hyperlinks and 1 pairs" in text
    assert "1 of its 4 questions are in" in text
    assert "The 2 questions with gold entities:" in text
    assert "EM, first 3 (paper)" in text
    assert "| gold entities | order of claims | 100.0 |" in text
    recall = srsly.read_json(results / "recall" / "webquestions_test.json")
    names = [x.name for linker in ("", "tagme", "gold") for x in make_settings(linker, 5)]
    assert list(recall["gold"]["recall"]) == names


def test_what_is_missing_is_named_with_the_next_command(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["elq_qa", "words", "--work", str(tmp_path)])
    with pytest.raises(SystemExit) as end:
        runpy.run_module("elq_qa")
    assert end.value.code == 1
    assert "Make them: python -m elq_qa passages" in capsys.readouterr().err


def test_the_example_answers(folder, tmp_path, encoder_path):
    from elq_qa.reader import Reader

    Reader(str(encoder_path)).save(tmp_path / "reader")
    nlp = spacy.blank("en")
    ruler = nlp.add_pipe("span_ruler", config={"annotate_ents": True})
    ruler.add_patterns([{"label": "E", "pattern": "mercury", "id": "planet"}])
    nlp.to_disk(tmp_path / "pipeline")
    script = PROJECT / "examples" / "ask.py"
    command = [sys.executable, script, tmp_path / "pipeline", folder, "how many days has mercury"]
    done = subprocess.run([*command, "--reader", tmp_path / "reader"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "how many days has mercury (no links)" in done.stdout
    assert "Mercury (planet): Mercury has no moons." in done.stdout


# ------------------------------------------------------------------ the page and the project


def test_the_page_is_what_the_result_files_say(tmp_path):
    """Run `python -m spacy project run results projects/qa` if this fails."""
    page.write_page(tmp_path / "page.md", PROJECT / "results")
    text = (DOCS / "question-answering.md").read_text(encoding="utf8")
    assert (tmp_path / "page.md").read_text(encoding="utf8") == text


def test_a_page_without_results_says_so(tmp_path):
    page.write_page(tmp_path / "page.md", tmp_path)
    assert (tmp_path / "page.md").read_text(encoding="utf8").count(page.NOT_MEASURED) == 9
    assert "? claims of Freebase" in (tmp_path / "page.md").read_text(encoding="utf8")


def test_tables_have_figures_beside_the_paper():
    recalls = {"recall": {"tagme+tfidf-claims": {"5": 0.1, "20": 0.2, "40": 0.3, "80": 0.4}}, "questions": 4}
    row = {
        "system": "elq_questions-bm25",
        "than": "tagme-bm25",
        "difference": 0.05,
        "low": -0.01,
        "high": 0.1,
    }
    other = {**row, "than": "tfidf"}
    recall = {"nq_open_test": {"all": {**recalls, "differences": {"5": [row, other]}}}}
    exact = {"questions": 2, "exact": {"tagme+tfidf-claims": [0.25, 0.2, 0.3]}, "differences": [row]}
    text = page.set_tables("nq_open_test", recall, {"nq_open_test": {"all": exact}})
    assert text.startswith("All 4 questions:")
    assert (
        "| TAGME + TF-IDF | order of claims | 10.0 | 20.0 | 30.0 | 40.0 | 25.0 [20.0, 30.0] (33.5) |" in text
    )
    assert "EM, first 2 (paper)" in text
    lines = page.difference_table(recall, {"nq_open_test": {"all": exact}}).splitlines()[2:]
    assert lines == [
        f"| NQ-open | {x} | ELQ (Wikipedia, then WebQSP_EL) | by BM25 | +5.0 [-1.0, +10.0] |"
        for x in ("@5", "EM")
    ]


def test_examples_and_steps_are_shown():
    example = {"question": "who", "links": "", "without": None, "with": 3, "kind": "helps"}
    text = page.example_tables({"x": {"linker": "tagme", "questions": [example]}})
    assert text.startswith("Linking helps (TAGME):")
    assert f"| who | none | not in {COUNT} | 3 |" in text
    steps = {
        name: {"name": name, "cores": 2, "seconds": 90.0, "runs": 1, "finished": name == "a"} for name in "ab"
    }
    assert page.step_table(steps).splitlines()[2:] == ["| a | 2 | 1.5 | 1 |"]


def test_workflows_have_commands_of_the_program():
    config = srsly.read_yaml(PROJECT / "project.yml")
    commands = {command["name"]: command for command in config["commands"]}
    for names in config["workflows"].values():
        assert set(names) <= set(commands)
    known = {x.name or x.callback.__name__.replace("_", "-") for x in app.registered_commands}
    used = {
        line.split("python -m elq_qa ")[1].split()[0]
        for command in commands.values()
        for line in command["script"]
        if "python -m elq_qa" in line
    }
    assert used == known


@pytest.mark.slow
def test_the_project_runs_from_the_raw_files_to_the_page(tmp_path, dictionary, encoder_path):
    root = tmp_path / "root"
    shutil.copytree(
        PROJECT, root / "projects" / "qa", ignore=shutil.ignore_patterns("results", "work", "tests")
    )
    scripts = root / "projects" / "paper" / "scripts"
    shutil.copytree(PROJECT.parent / "paper" / "scripts", scripts)
    data, paper = tmp_path / "data", tmp_path / "paper"
    write_raw_files(data)
    shutil.copytree(data / "catalogue", paper / "catalogue")
    shutil.copytree(dictionary.path, paper / "dictionary")
    nlp = spacy.blank("en")
    nlp.add_pipe("entity_ruler")
    nlp.to_disk(tmp_path / "linker")
    variables = {
        "data": data,
        "paper": paper,
        "elq_wikipedia": tmp_path / "linker",
        "elq_questions": tmp_path / "linker",
        "encoder": encoder_path,
        "steps": 2,
    }
    overrides = [str(word) for name, value in variables.items() for word in (f"--vars.{name}", value)]
    command = [
        sys.executable,
        "-m",
        "spacy",
        "project",
        "run",
        "qa",
        str(root / "projects" / "qa"),
        *overrides,
    ]
    for _ in range(2):
        done = subprocess.run(command, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    text = (root / "docs" / "question-answering.md").read_text(encoding="utf8")
    assert "ELQ (Wikipedia, then WebQSP_EL) + TF-IDF" in text
    assert "| retrieve |" in text
