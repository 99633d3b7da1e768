"""The workflow of project.yml itself, on a cut-down copy of the project."""

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

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


def run(project, encoder_path, *command):
    overrides = ["--vars.encoder", str(encoder_path), "--vars.max_length", "48"]
    arguments = [sys.executable, "-m", "spacy", "project", "run", *command, str(project), *overrides]
    return subprocess.run(arguments, capture_output=True, text=True, timeout=600)


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
