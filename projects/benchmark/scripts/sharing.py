"""Show that processes share the pages of an index, in `results/sharing-ENTITIES.json`."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any, Dict, List, Optional, Sequence, cast

import numpy as np
import typer
from records import RESULTS, write_record

from spacy_elq.evaluation import load_pipeline, read_docs
from spacy_elq.index import EntityIndex
from spacy_elq.pipeline.base import IndexedLinker

app = typer.Typer(help=__doc__, no_args_is_help=True)
K, PROBED = 10, 1000
MB = 1e6


@app.command()
def share(
    index: Path = typer.Argument(..., help="An index"),
    queries: Path = typer.Argument(..., help="queries.npz of `measure` or `synthesize`"),
    pipeline: Optional[Path] = typer.Option(
        None, help="Trained pipeline, to look at nlp.pipe(n_process=2) too"
    ),
    questions: List[Path] = typer.Option([], help="Questions for it (.spacy)"),
    results: Path = typer.Option(RESULTS, help="Folder of the result files"),
) -> None:
    """Measure how much of an index is in the memory of one process and of each of two: resident, and
    resident divided by the number of processes that share a page.
    """
    rows = []
    for count in (1, 2):
        command = [sys.executable, __file__, "hold", str(index), str(queries)]
        pipes: Dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
        processes = [subprocess.Popen(command, **pipes) for _ in range(count)]
        for process in processes:
            process.stdout.readline()  # type: ignore[union-attr]
        rows.append(_row(index, "separate processes", [process.pid for process in processes]))
        for process in processes:
            process.communicate(b"\n")
    if pipeline is not None:
        rows.append(_share_pipe(index, pipeline, questions))
    write_record(results, f"sharing-{rows[0]['entities']}", rows)


@app.command(hidden=True)
def hold(folder: Path, queries: Path) -> None:
    """Use an index, print "ready", and keep it until there is input."""
    index = EntityIndex.open(folder)
    loaded = np.load(queries)
    index.search(loaded["vectors"][:PROBED], K)
    index.match_names(loaded["names"][:PROBED].tolist())
    typer.echo("ready")
    sys.stdin.readline()


def _mapped(pid: int, folder: Path) -> Dict[str, float]:
    """RETURNS (Dict[str, float]): MB of the files of a folder that a process has: "Rss" and "Pss"."""
    sizes = {"Rss:": 0, "Pss:": 0}
    inside = False
    for line in Path(f"/proc/{pid}/smaps").read_text().splitlines():
        words = line.split()
        if "-" in words[0]:
            inside = str(folder.resolve()) in line
        elif inside and words[0] in sizes:
            sizes[words[0]] += int(words[1]) * 1024
    return {key[:-1]: value / MB for key, value in sizes.items()}


def _row(index: Path, how: str, pids: Sequence[int]) -> Dict[str, Any]:
    sizes = [_mapped(pid, index) for pid in pids]
    row = {"how": how, "processes": len(pids), "entities": len(EntityIndex.open(index))}
    return row | {
        f"{key.lower()}_mb": round(float(np.mean([size[key] for size in sizes])), 3) for key in sizes[0]
    }


def _share_pipe(index: Path, pipeline: Path, questions: List[Path]) -> Dict[str, Any]:
    """RETURNS (Dict[str, Any]): What the workers of `nlp.pipe(n_process=2)` have after most of their work."""
    nlp, linker = load_pipeline(str(pipeline))
    cast(IndexedLinker, linker).set_index(EntityIndex.open(index))
    texts = [doc.text for path in questions for doc in read_docs(path, nlp)]
    row: Dict[str, Any] = {}
    for i, _ in enumerate(nlp.pipe(texts, n_process=2, batch_size=16)):
        if i == int(0.9 * len(texts)):
            children = Path(f"/proc/{os.getpid()}/task/{os.getpid()}/children").read_text().split()
            mapping = [int(pid) for pid in children if _mapped(int(pid), index)["Rss"]]
            row = _row(index, "nlp.pipe(n_process=2)", mapping)
    return row


if __name__ == "__main__":
    app()
