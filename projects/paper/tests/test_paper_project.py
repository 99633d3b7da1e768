"""The workflows of project.yml, on small files in place of the real data."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import srsly
from make_config import make_config
from runs import read_rows
from spacy.util import dot_to_object

PROJECT = Path(__file__).parents[1]
ROOT = PROJECT.parents[1]
# what is enough for a tiny encoder of random weights, whose layers are two
TINY = {"frozen_layers": 1, "layers": 0, "total_steps": 20, "max_steps": 20, "max_epochs": 2}
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


@pytest.fixture(scope="module")
def project(tmp_path_factory):
    """The project in a copy of the repository, without its results and with short trainings."""
    root = tmp_path_factory.mktemp("root")
    for name in ("configs", "scripts"):
        shutil.copytree(ROOT / name, root / name)
    folder = root / "projects" / "paper"
    shutil.copytree(
        PROJECT, folder, ignore=shutil.ignore_patterns("results", "work", "tests", "project.lock")
    )
    for path in (*(root / "configs").glob("*.cfg"), *(folder / "configs").glob("*.cfg")):
        recipe = path.read_text(encoding="utf8")
        for setting, value in TINY.items():
            recipe = re.sub(rf"(?m)^{setting} = [1-9].*$", f"{setting} = {value}", recipe)
        path.write_text(recipe, encoding="utf8")
    return folder


def run(project, command, *words, **variables):
    overrides = [word for name, value in variables.items() for word in (f"--vars.{name}", str(value))]
    words = ["project", "run", command, str(project), *words, *overrides]
    command = [sys.executable, "-m", "spacy", *words]
    return subprocess.run(command, capture_output=True, text=True, timeout=1800)


def commands():
    config = srsly.read_yaml(PROJECT / "project.yml")
    return config["workflows"], {command["name"]: command for command in config["commands"]}


def test_workflows_have_commands_and_scripts_that_exist():
    workflows, known = commands()
    for names in workflows.values():
        assert set(names) <= set(known)
    scripts = {
        word
        for command in known.values()
        for line in command["script"]
        for word in line.split()
        if word.endswith(".py") and "${" not in word
    }
    assert {"scripts/measure.py", "scripts/make_config.py", "scripts/tables.py"} <= scripts
    assert [script for script in scripts if not (PROJECT / script).is_file()] == []


def test_what_a_training_overrides_is_in_its_config():
    lines = [
        line for command in commands()[1].values() for line in command["script"] if "spacy train" in line
    ]
    assert len(lines) == 22
    for line in lines:
        words = line.split()
        place = words[words.index("train") + 1].replace("${vars.work}/", "")
        config = make_config(PROJECT / place)
        for word in words:
            if word.startswith("--") and "." in word:
                *outer, last = word[2:].split(".")
                block = dot_to_object(config, ".".join(outer))
                assert last in block, (place, word)


def test_a_command_runs_in_the_folder_of_the_project(project):
    done = run(project, "configs")
    assert done.returncode == 0, done.stdout + done.stderr
    made = {path.name for path in (project / "work" / "configs").iterdir()}
    assert made == {path.name for path in (project / "configs").iterdir()}


@pytest.mark.slow
def test_the_experiments_run_from_the_raw_files_to_the_page(project, encoder_path, real_data):
    variables = {"data": real_data, "encoder": encoder_path, "frozen": 1}
    for name in ("all", "keep", "everything", "ablations", "ablation-pairs", "results"):
        done = run(project, name, **variables)
        assert done.returncode == 0, name + done.stdout[-3000:] + done.stderr[-3000:]
    settings, ablations = (read_rows(project / "results", kind) for kind in ("settings", "ablations"))
    assert {row["setting"] for row in settings} == {
        "questions",
        "wikipedia",
        "wikipedia_questions",
        "keep",
        "everything",
    }
    assert sum(row["test"] == "webqsp_el_dev" for row in ablations) == 14
    page = (project.parents[1] / "docs" / "experiments.md").read_text(encoding="utf8")
    assert "| Wikipedia, then every training file |  | WebQSP_EL | 10 |" in page
    assert "| Wikipedia, 160 steps: unmarked = proper |  | 10 |" in page
    assert "| wikipedia | 40 | 44 |" in page
