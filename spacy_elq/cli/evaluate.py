"""`spacy elq evaluate`."""

from pathlib import Path
from typing import Optional

import typer
from wasabi import msg

from ._util import command


@command("evaluate")
def evaluate_cli(
    pipeline: str = typer.Argument(..., help="Trained pipeline"),
    data_path: Path = typer.Argument(..., help="Test questions with gold links (.spacy)"),
    output: Path = typer.Argument(
        ..., help="JSON file for the metrics; the linked docs go beside it (.linked.spacy)"
    ),
    train: Optional[Path] = typer.Option(
        None, "--train", "-t", help="Training questions (.spacy), to tell seen from unseen entities"
    ),
    batch_size: int = typer.Option(64, "--batch-size", "-b", help="Questions in one batch"),
    threshold: Optional[float] = typer.Option(
        None, "--threshold", help="Use this threshold for every link instead of the pipeline's own"
    ),
    explain: bool = typer.Option(
        False, "--explain/--no-explain", help="Also write why each link was made, for the report page"
    ),
) -> None:
    """Evaluate a pipeline on questions with gold links: weak and strong match, mentions only, links only,
    for entities seen or not seen in training, and for each kind of question; how often the gold entity is
    among the candidates; and the errors by type.

    `spacy evaluate` gives the overall scores too; `spacy elq report` shows what this command wrote.
    """
    from ..evaluation.metrics import evaluate

    metrics = evaluate(
        pipeline, data_path, output, train=train, batch_size=batch_size, threshold=threshold, explain=explain
    )
    msg.good(f"{output}: weak F1 {metrics['weak']['f']:.4f} on {metrics['questions']} questions")
