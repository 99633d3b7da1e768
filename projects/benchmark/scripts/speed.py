"""Measure speed and memory of a pipeline and its int8 twin, into `results/speed-NAME.json`."""

import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Dict, List

import srsly
import typer
from records import NAMES, RESULTS, write_record

from spacy_elq.evaluation import bench_in_turn, evaluate

PRECISIONS = ("float32", "int8")


def main(
    pipeline: str = typer.Argument(..., help="Trained pipeline, with its threshold"),
    int8: str = typer.Argument(..., help="What `spacy elq quantize` made of it, with its own threshold"),
    questions: Path = typer.Argument(..., help="Test questions (.spacy)"),
    name: str = typer.Argument(..., help=f"One of {', '.join(NAMES)}"),
    batch_sizes: str = typer.Option("1,8,64", help="Batch sizes"),
    lengths: str = typer.Option("10,100,300,1000,3000,5000", help="Tokens of single docs"),
    counts: str = typer.Option(
        "100,400,1600", help="Lengths of streams of questions, in the largest batches"
    ),
    n_threads: int = typer.Option(1, "--threads", min=1, help="Threads"),
    limit: int = typer.Option(500, min=1, help="How many questions are used to measure speed"),
    repeats: int = typer.Option(5, min=1, help="Runs; the median counts"),
    results: Path = typer.Option(RESULTS, help="Folder of the result files"),
) -> None:
    """Measure both pipelines in turn."""
    if name not in NAMES:
        raise typer.BadParameter(f"Expected one of {', '.join(NAMES)}.")
    pipelines = [pipeline, int8]
    sizes = [int(size) for size in batch_sizes.split(",")]
    runs = bench_in_turn(pipelines, questions, sizes, n_threads=n_threads, limit=limit, repeats=repeats)
    streams = [
        bench_in_turn(pipelines, questions, [max(sizes)], n_threads=n_threads, limit=int(count))
        for count in counts.split(",")
    ]
    rows = []
    for i, (path, precision) in enumerate(zip(pipelines, PRECISIONS, strict=True)):
        alone = _bench_alone(path, questions, lengths, ["-t", str(n_threads), "-n", str(limit)])
        row = {"name": name, "precision": precision, "weak_f": _weak_f(path, questions), **alone}
        keys = ("questions", "questions_per_second")
        own = [{key: stream[i][0][key] for key in keys} for stream in streams]
        # streams longer than the set are all of it, once
        counted = list({stream["questions"]: stream for stream in own}.values())
        rows.append({**row, "repeats": repeats, "runs": runs[i], "counts": counted})
    write_record(results, f"speed-{name}", rows)


def _bench_alone(pipeline: str, questions: Path, lengths: str, settings: List[str]) -> Dict[str, Any]:
    """RETURNS (Dict[str, Any]): Load time, peak memory and the cost by length, in a process of its own."""
    with TemporaryDirectory() as folder:
        path = Path(folder) / "bench.json"
        command = [sys.executable, "-m", "spacy", "elq", "bench", pipeline, str(questions), str(path)]
        command += ["-b", "1", "-r", "3", "-l", lengths, *settings]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        figures = srsly.read_json(path)
    return {key: figures[key] for key in figures if key != "runs"}


def _weak_f(pipeline: str, questions: Path) -> float:
    with TemporaryDirectory() as folder:
        return evaluate(pipeline, questions, Path(folder) / "metrics.json")["weak"]["f"]


if __name__ == "__main__":
    typer.run(main)
