"""Install a package in an empty environment, load it there and link a question; write down its size."""

import subprocess
import sys
import tempfile
import venv
from pathlib import Path

import srsly
import typer
from runs import RESULTS, write_run

ROOT = Path(__file__).parents[3]
QUESTION = "who played princess leia in star wars"
PROGRAM = """
import sys, spacy, srsly
name, question = sys.argv[1:]
doc = spacy.load(name)(question)
sys.stdout.write(srsly.json_dumps([[ent.text, ent.kb_id_, round(ent._.elq_score, 4)] for ent in doc.ents]))
"""


def main(
    wheel: Path = typer.Argument(..., help="The wheel of a pipeline"),
    results: Path = typer.Option(RESULTS, help="Folder of the result files"),
) -> None:
    """Install spacy-elq of this checkout and the wheel, and use it."""
    name = wheel.name.split("-")[0]
    with tempfile.TemporaryDirectory() as folder:
        venv.create(folder, with_pip=True)
        python = str(Path(folder) / "bin" / "python")
        install = [python, "-m", "pip", "install", "--quiet"]
        # torch first, as requirements-dev.txt pins it: the newest may bring gigabytes for a GPU
        subprocess.run([*install, _torch()], check=True)
        subprocess.run([*install, f"{ROOT}[onnx]", str(wheel)], check=True)
        command = [python, "-c", PROGRAM, name, QUESTION]
        done = subprocess.run(command, check=True, capture_output=True, text=True, cwd=folder)
    links = srsly.json_loads(done.stdout)
    if not links:
        sys.exit(f"{name} found nothing in: {QUESTION}")
    row = {"name": name, "megabytes": round(wheel.stat().st_size / 1e6), "question": QUESTION, "links": links}
    write_run(results, "wheel", name, row)


def _torch() -> str:
    lines = (ROOT / "requirements-dev.txt").read_text(encoding="utf8").splitlines()
    return next(line for line in lines if line.startswith("torch=="))


if __name__ == "__main__":
    typer.run(main)
