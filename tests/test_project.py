"""The workflow of project.yml itself, on a cut-down copy of the project."""

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import srsly

ROOT = Path(__file__).parent.parent
# what a tiny encoder of random weights needs to learn twenty questions
TINY = {"max_epochs": 100, "initial_rate": 0.002, "total_steps": 200, "layers": 0, "level": 0.0}


@pytest.fixture(scope="module")
def project(tmp_path_factory, encoder_path, catalogue_path, questions_path):
    """The real project.yml, configs and scripts, with the tiny encoder, catalogue and questions."""
    folder = tmp_path_factory.mktemp("project")
    for name in ("configs", "scripts"):
        shutil.copytree(ROOT / name, folder / name)
    shutil.copy(ROOT / "project.yml", folder / "project.yml")
    (folder / "assets" / "questions").mkdir(parents=True)
    shutil.copy(catalogue_path, folder / "assets" / "entities.jsonl")
    for part in ("train", "dev", "test"):
        shutil.copy(questions_path, folder / "assets" / "questions" / f"{part}.txt")
    recipe = (folder / "configs" / "elq.cfg").read_text(encoding="utf8")
    for setting, value in TINY.items():
        recipe, count = re.subn(rf"(?m)^{setting} = .*$", f"{setting} = {value}", recipe)
        assert count == 1, setting
    (folder / "configs" / "elq.cfg").write_text(recipe, encoding="utf8")
    return folder


def run(project, encoder_path, command, **variables):
    variables = {"encoder": encoder_path, "max_length": 48, **variables}
    overrides = [word for name, value in variables.items() for word in (f"--vars.{name}", str(value))]
    arguments = [sys.executable, "-m", "spacy", "project", "run", command, str(project), *overrides]
    return subprocess.run(arguments, capture_output=True, text=True, timeout=900)


def test_all_runs_to_the_final_table_and_then_skips_everything(project, encoder_path):
    first = run(project, encoder_path, "all")
    assert first.returncode == 0, first.stdout + first.stderr
    metrics = json.loads((project / "metrics" / "test.json").read_text(encoding="utf8"))
    for group in (metrics, metrics["unseen"]):
        for metric in ("weak", "strong", "mentions", "links"):
            assert set(group[metric]) == {"p", "r", "f"}
    assert metrics["questions_per_second"] > 0
    assert metrics["weak"]["f"] > 0.9  # trained on the very questions
    assert "weak F" in first.stdout
    assert (
        "WRONG" not in (project / "metrics" / "test.html").read_text(encoding="utf8")
        or metrics["weak"]["f"] < 1
    )
    second = run(project, encoder_path, "all")
    assert second.returncode == 0
    assert second.stdout.count("nothing changed") == 8

    (project / "index" / "meta.json").touch()  # same content: still nothing to do
    assert run(project, encoder_path, "train").stdout.count("nothing changed") == 1


def test_package_can_be_made_of_the_result(project, encoder_path):
    done = run(project, encoder_path, "package")
    assert done.returncode == 0, done.stdout + done.stderr
    packaged = next((project / "packages").glob("en_*/en_*/en_*"))
    assert (packaged / "elq_linker" / "index" / "meta.json").is_file()
    assert next((project / "packages").glob("en_*/dist/*.tar.gz")).is_file()


UNPACK = """
import shutil, sys
from pathlib import Path
folder = Path(sys.argv[1])
folder.mkdir(parents=True)
for size in ("277k", "766k"):
    shutil.copy(Path(__file__).parent / "entities.jsonl", folder / f"entities_{size}.jsonl")
"""


@pytest.fixture(scope="module")
def real_data(tmp_path_factory, catalogue_path, gold_docs):
    """A folder of the shape of the real data: catalogue, question sets, sentences that are partly marked."""
    folder = tmp_path_factory.mktemp("data")
    for part in ("catalogue", "questions", "wikipedia"):
        (folder / part).mkdir()
    shutil.copy(catalogue_path, folder / "catalogue" / "entities.jsonl")
    (folder / "catalogue" / "unpack").write_text(UNPACK, encoding="utf8")
    records = [
        {
            "qid": str(i),
            "text": doc.text,
            "spans": [
                {"start": span.start_char, "end": span.end_char, "id": span.kb_id_}
                for span in doc.spans["gold_links"]
            ],
        }
        for i, doc in enumerate(gold_docs)
    ]
    sets = [f"webqsp_el_{part}" for part in ("train", "dev", "test")]
    sets += ["graphquestions_el_dev", "graphquestions_el_test"]
    sets += ["simplequestions_wd_train", "simpledbpediaqa_train", "conel22_train"]
    for name in sets:
        srsly.write_jsonl(folder / "questions" / f"{name}.jsonl", records)
    for name in ("cd2007", "wtq2014"):
        partly = [{**record, "complete": False} for record in records]
        srsly.write_gzip_jsonl(folder / "wikipedia" / f"wiki_anchor_{name}.jsonl.gz", partly)
    return folder


@pytest.mark.slow
def test_the_papers_experiments_run_from_the_raw_files_to_the_tables(project, encoder_path, real_data):
    for path in (project / "configs").glob("*.cfg"):
        recipe = path.read_text(encoding="utf8")
        for setting, value in {"frozen_layers": 1, "layers": 0, "total_steps": 20, "max_steps": 20}.items():
            recipe = re.sub(rf"(?m)^{setting} = [1-9].*$", f"{setting} = {value}", recipe)
        path.write_text(recipe, encoding="utf8")
    variables = {"data": real_data, "work": "work", "factory": "Flat", "factory_large": "HNSW8"}
    for workflow in ("paper", "paper-everything", "paper-large", "paper-ablations", "paper-ablation-pairs"):
        done = run(project, encoder_path, workflow, **variables)
        assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    assert run(project, encoder_path, "paper-results", **variables).returncode == 0
    rows = srsly.read_json(project / "docs" / "results.json")
    settings = {row["setting"] for row in rows if row["test"] == "webqsp_el"}
    assert settings == {"questions", "wikipedia", "wikipedia_questions", "everything"}
    assert sum(row["test"] == "webqsp_el_dev" for row in rows) == 13
    page = (project / "docs" / "results.md").read_text(encoding="utf8")
    assert "| Wikipedia, then every training file | WebQSP_EL | 10 |" in page
    assert "| Wikipedia, 160 steps: unmarked = proper | 10 |" in page
    assert "| wikipedia | 40 | 44 |" in page
