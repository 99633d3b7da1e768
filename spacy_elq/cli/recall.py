"""`spacy elq recall`."""

from pathlib import Path
from typing import List, Optional

import srsly
import typer
from wasabi import msg

from ._util import command


@command("recall")
def recall_cli(
    pipeline: str = typer.Argument(..., help="Trained pipeline"),
    data_path: Path = typer.Argument(..., help="Questions with gold links (.spacy)"),
    k: List[int] = typer.Option([1, 10, 50], "--k", "-k", help="Number of candidates; can be repeated"),
    output: Optional[Path] = typer.Option(None, "--output", "-o", help="JSON file for the figures"),
    batch_size: int = typer.Option(128, "--batch-size", "-b", help="Questions in one batch"),
) -> None:
    """Recall@k of the candidates: how often the gold entity is among the k that are retrieved for a gold
    mention. This is the upper bound for linking; mention detection plays no part.
    """
    from ..evaluation.recall import recall
    from ..files import check_output, replace_file

    if output is not None:
        check_output(output, data_path)
    result = recall(pipeline, data_path, ks=k, batch_size=batch_size)
    rows = [(f"recall@{size}", f"{value:.4f}") for size, value in result["recall"].items()]
    msg.table(rows, header=("", f"of {result['in_index']} mentions"), divider=True)
    msg.text(
        f"{result['mentions']} gold mentions: {result['unknown']} have an entity that is not in the "
        f"index, {result['misfits']} do not match token boundaries; they are not counted above."
    )
    if output is not None:
        with replace_file(output) as new:
            srsly.write_json(new, result)
        msg.good(f"Saved to {output}")
