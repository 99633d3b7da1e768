"""`spacy elq threshold`."""

from pathlib import Path
from typing import Optional

import typer
from wasabi import msg

from ._util import command


@command("threshold")
def threshold_cli(
    pipeline: str = typer.Argument(..., help="Trained pipeline"),
    data_path: Path = typer.Argument(..., help="Development questions with gold links (.spacy)"),
    output: Optional[Path] = typer.Option(
        None,
        "--output",
        "-o",
        help="Folder for the pipeline with its new threshold; by default the pipeline itself",
    ),
    index_path: Optional[Path] = typer.Option(
        None, "--index", "-i", help="Another index of the same encoder, for the pipeline to use from now on"
    ),
    first: bool = typer.Option(
        True, "--first/--no-first", help="Whether the best link of a text gets its own, lower threshold"
    ),
    batch_size: int = typer.Option(128, "--batch-size", "-b", help="Questions in one batch"),
) -> None:
    """Find the thresholds with the best weak F1 on development questions, and write them into the pipeline.

    A threshold is the minimum joint probability of a mention and its entity. The best link of a text gets its
    own threshold if that is better on these questions (a question nearly always names something); --no-first
    uses one for all, as in the paper. One pass over the data is enough to try them all. Thresholds depend on
    the pipeline, its index, the number of candidates and the kind of text: choose them again when one of these
    changes. The table is for a single threshold.
    """
    from ..evaluation.thresholds import choose_thresholds

    result = choose_thresholds(
        pipeline, data_path, output=output, index_path=index_path, first=first, batch_size=batch_size
    )
    rows = [
        (f"{row['threshold']:.4f}", f"{row['p']:.4f}", f"{row['r']:.4f}", f"{row['f']:.4f}")
        for row in result["shown"]
    ]
    msg.table(rows, header=("threshold", "P", "R", "F"), divider=True, aligns=("r", "r", "r", "r"))
    own = result["first_threshold"]
    aside = f", {own:.4f} for the best link of a text" if own is not None else ""
    msg.good(
        f"Threshold {result['threshold']:.4f}{aside} (was {result['before']:.4f}): weak F1 "
        f"{result['f']:.4f}, saved to {result['output']}"
    )
