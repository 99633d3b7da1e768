"""`spacy elq bench`."""

import contextlib
import statistics
import time
from pathlib import Path
from typing import Any, Callable, Dict, List, Optional

import srsly
import typer
from spacy.language import Language
from wasabi import msg

from .. import threads
from ..errors import ELQError, Errors
from ..types import Linker
from ._util import command, load_pipeline, read_docs

STAGES = ("tokenizer", "encoder", "search", "rest")


@command("bench")
def bench_cli(
    pipeline: str = typer.Argument(..., help="Trained pipeline"),
    data_path: Path = typer.Argument(..., help="Questions (.spacy)"),
    output: Optional[Path] = typer.Argument(None, help="JSON file for the figures"),
    batch_sizes: str = typer.Option("1,8,64", "--batch-sizes", "-b", help="Batch sizes to try"),
    n_threads: int = typer.Option(1, "--threads", "-t", min=1, help="Threads of torch and FAISS"),
    limit: int = typer.Option(500, "--limit", "-n", min=1, help="How many of the questions"),
    repeats: int = typer.Option(3, "--repeats", "-r", min=1, help="Runs, of which the median counts"),
) -> None:
    """Measure a pipeline: questions a second, and where the time goes.

    The encoder is everything that the components before the linker do; the search is what the index does,
    names included; the rest is the linker's own arithmetic and the writing of annotations.
    """
    sizes = [int(size) for size in batch_sizes.split(",")]
    figures = bench(pipeline, data_path, sizes, n_threads=n_threads, limit=limit, repeats=repeats)
    rows = [
        (
            str(row["batch_size"]),
            f"{row['questions_per_second']:.1f}",
            *(f"{1000 * row['seconds'][stage]:.2f}" for stage in STAGES),
        )
        for row in figures["runs"]
    ]
    header = ("batch", "questions/s", *(f"{stage} ms" for stage in STAGES))
    msg.table(rows, header=header, divider=True, aligns=("r",) * len(header))
    msg.text(
        f"Milliseconds a question, {figures['threads']} threads, {figures['questions']} questions, "
        f"{figures['entities']} entities."
    )
    if output is not None:
        output.parent.mkdir(parents=True, exist_ok=True)
        srsly.write_json(output, figures)


def bench(
    pipeline: str,
    data_path: Path,
    batch_sizes: List[int],
    *,
    n_threads: int = 1,
    limit: int = 500,
    repeats: int = 3,
) -> Dict[str, Any]:
    """Measure a pipeline.

    RETURNS (Dict[str, Any]): Threads, questions, entities and, in "runs", figures for each batch size.
    """
    nlp, linker = load_pipeline(pipeline)
    if linker.index is None:
        raise ELQError(Errors.E001.format(name=linker.name))
    texts = [doc.text for doc in read_docs(data_path, nlp)][:limit]
    threads.set_threads(n_threads)
    clock = _install_clock(nlp, linker)
    list(nlp.pipe(texts[:64]))
    runs = []
    for size in batch_sizes:
        measured = [_measure(nlp, texts, size, clock) for _ in range(repeats)]
        seconds = {stage: statistics.median(m[stage] for m in measured) / len(texts) for stage in STAGES}
        total = statistics.median(sum(m.values()) for m in measured)
        runs.append(
            {"batch_size": size, "questions_per_second": len(texts) / total, "seconds": seconds},
        )
    return {"threads": n_threads, "questions": len(texts), "entities": len(linker.index), "runs": runs}


def _install_clock(nlp: Language, linker: Linker) -> Dict[str, float]:
    """Put a clock around the stages of a pipeline that was loaded for this alone.

    RETURNS (Dict[str, float]): Seconds by stage, counted up.
    """
    clock: Dict[str, float] = dict.fromkeys(STAGES, 0.0)
    running: List[str] = []

    def timed(stage: str, func: Callable) -> Callable:
        def call(*args: Any, **kwargs: Any) -> Any:
            if running:  # what one stage asks of another is its own time
                return func(*args, **kwargs)
            running.append(stage)
            begin = time.perf_counter()
            try:
                return func(*args, **kwargs)
            finally:
                clock[running.pop()] += time.perf_counter() - begin

        return call

    index: Any = linker.index
    for method in ("search", "match_names", "find", "senses", "relatedness"):
        if hasattr(index, method):
            setattr(index, method, timed("search", getattr(index, method)))
    for name, pipe in nlp.pipeline:
        if name == linker.name:
            break
        # nothing can be put around the methods of a compiled component: its time is part of the rest
        with contextlib.suppress(AttributeError):
            for method in ("predict", "set_annotations"):
                setattr(pipe, method, timed("encoder", getattr(pipe, method)))
    nlp.tokenizer = timed("tokenizer", nlp.tokenizer)
    return clock


def _measure(nlp: Language, texts: List[str], batch_size: int, clock: Dict[str, float]) -> Dict[str, float]:
    """RETURNS (Dict[str, float]): Seconds by stage."""
    clock.update(dict.fromkeys(STAGES, 0.0))
    begin = time.perf_counter()
    for _ in nlp.pipe(texts, batch_size=batch_size):
        pass
    spent = dict(clock)
    spent["rest"] = time.perf_counter() - begin - sum(clock.values())
    return spent
