"""Run a step and write down how long it took, in results/steps: a step that was interrupted adds up."""

import os
import subprocess
import sys
import time
from pathlib import Path
from typing import List

import srsly
import typer
from runs import RESULTS, write_run


def main(
    step: str = typer.Argument(..., help="Name of the step"),
    command: List[str] = typer.Argument(..., help="The command, after --"),
    results: Path = typer.Option(RESULTS, help="Folder of the result files"),
) -> None:
    """Run a command, show what it shows, end as it ends."""
    path, start = results / "steps" / f"{step}.json", time.perf_counter()
    before = srsly.read_json(path) if path.is_file() else {}
    is_going_on = before and not before["finished"]
    seconds, runs = (before["seconds"], before["runs"]) if is_going_on else (0.0, 0)
    code = 1
    try:
        code = subprocess.run([*_python(command)], check=False).returncode
    finally:
        row = {
            "name": step,
            "seconds": round(seconds + time.perf_counter() - start, 1),
            "runs": runs + 1,
            "finished": code == 0,
            "cores": os.cpu_count(),
        }
        write_run(results, "steps", step, row)
    raise typer.Exit(code)


def _python(command: List[str]) -> List[str]:
    return [sys.executable, *command[1:]] if command[0] == "python" else command


if __name__ == "__main__":
    typer.run(main)
