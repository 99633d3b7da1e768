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
        False,
        "--first/--no-first",
        help="Whether the best link of a text may get a lower threshold: for questions that always name "
        "something",
    ),
    calibrate: bool = typer.Option(
        True, "--calibrate/--no-calibrate", help="Whether scores become the probability that a link is right"
    ),
    target_precision: Optional[float] = typer.Option(
        None,
        "--target-precision",
        "-P",
        min=0.0,
        max=1.0,
        help="Reach this precision with as many links as possible, instead of the best F1",
    ),
    batch_size: int = typer.Option(128, "--batch-size", "-b", help="Questions in one batch"),
) -> None:
    """Calibrate a pipeline on development questions and choose its threshold, by default the one with the best
    weak F1. Both are written into the pipeline's config.

    The score of a link becomes the probability that it is right, and the threshold is the least score. With
    --target-precision 0.95, the threshold is the lowest at which 95 % of the links are right; the command says
    the recall. --no-calibrate keeps the joint probability of mention and entity as the score, as in the paper.
    Choose again when the pipeline, its catalogue, the number of candidates or the kind of text changes. With
    fewer than 50 gold links nothing is changed.
    """
    from ..evaluation.thresholds import choose_thresholds

    result = choose_thresholds(
        pipeline,
        data_path,
        output=output,
        index_path=index_path,
        first=first,
        calibrate=calibrate,
        target_precision=target_precision,
        batch_size=batch_size,
    )
    if not result["shown"]:
        msg.warn(f"Threshold {result['before']:.4f} as before, saved to {result['output']}")
        return
    rows = [
        (f"{row['threshold']:.4f}", f"{row['p']:.4f}", f"{row['r']:.4f}", f"{row['f']:.4f}")
        for row in result["shown"]
    ]
    msg.table(rows, header=("threshold", "P", "R", "F"), divider=True, aligns=("r", "r", "r", "r"))
    own = result["first_threshold"]
    aside = f", {own:.4f} for the best link of a text" if own is not None else ""
    msg.good(
        f"Threshold {result['threshold']:.4f}{aside} (was {result['before']:.4f}): precision "
        f"{result['p']:.4f}, recall {result['r']:.4f}, weak F1 {result['f']:.4f}, saved to {result['output']}"
    )
    if target_precision is not None and result["p"] < target_precision:
        msg.warn(f"No threshold reaches a precision of {target_precision}: this is the most precise one.")
