"""`spacy elq bench`."""

from pathlib import Path
from typing import Optional

import srsly
import typer
from wasabi import msg

from ._util import command


@command("bench")
def bench_cli(
    pipeline: str = typer.Argument(..., help="Trained pipeline"),
    data_path: Path = typer.Argument(..., help="Questions (.spacy)"),
    output: Optional[Path] = typer.Argument(None, help="JSON file for the figures"),
    batch_sizes: str = typer.Option("1,8,64", "--batch-sizes", "-b", help="Batch sizes to try"),
    n_threads: int = typer.Option(1, "--threads", "-t", min=1, help="Threads for torch and FAISS"),
    limit: int = typer.Option(500, "--limit", "-n", min=1, help="Number of questions to use"),
    repeats: int = typer.Option(3, "--repeats", "-r", min=1, help="Number of runs; the median is reported"),
    lengths: str = typer.Option(
        "", "--lengths", "-l", help="Also measure docs of these lengths in tokens, e.g. 10,100,1000"
    ),
) -> None:
    """Measure the speed of a pipeline in questions/s, and where the time goes.

    The baseline is the encoder's forward pass alone, over the word pieces of the same batches. Pipeline and
    baseline take turns every 64 questions; `ratio` is the pipeline's time divided by the baseline's, the
    median over all runs.

    Stages: encoder (all components before the linker), mentions (scoring spans), search (the index, including
    name matches), decode (choosing links), annotation (writing them to the doc), rest (spaCy itself).
    """
    from ..evaluation.speed import STAGES, bench
    from ..files import check_output, replace_file

    if output is not None:
        check_output(output, data_path)
    sizes, tokens = ([int(x) for x in text.split(",") if x] for text in (batch_sizes, lengths))
    figures = bench(
        pipeline, data_path, sizes, n_threads=n_threads, limit=limit, repeats=repeats, lengths=tokens
    )
    header = ("batch", "questions/s", "forward ms", "ratio", *(f"{stage} ms" for stage in STAGES))
    rows = [
        (
            str(row["batch_size"]),
            f"{row['questions_per_second']:.1f}",
            "-" if row["forward"] is None else f"{1000 * row['forward']:.2f}",
            "-" if row["ratio"] is None else f"{row['ratio']:.2f}",
            *(f"{1000 * row['seconds'][stage]:.2f}" for stage in STAGES),
        )
        for row in figures["runs"]
    ]
    msg.table(rows, header=header, divider=True, aligns=("r",) * len(header))
    if figures["lengths"]:
        rows = [(str(x["tokens"]), f"{x['tokens_per_second']:.0f}") for x in figures["lengths"]]
        msg.table(rows, header=("tokens/doc", "tokens/s"), divider=True, aligns=("r", "r"))
    memory = "" if figures["peak_mb"] is None else f", {figures['peak_mb']:.0f} MB peak memory"
    msg.text(
        f"Milliseconds per question, {figures['threads']} threads, {figures['questions']} questions, "
        f"{figures['entities']} entities; loaded in {figures['load_seconds']:.1f} s{memory}."
    )
    if output is not None:
        with replace_file(output) as new:
            srsly.write_json(new, figures)
