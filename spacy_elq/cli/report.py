"""`spacy elq report`."""

from pathlib import Path
from typing import Optional

import typer
from wasabi import msg

from ._util import command


@command("report")
def report_cli(
    metrics_path: Path = typer.Argument(
        ..., help="Metrics that `spacy elq evaluate` wrote (.json); the linked docs are beside it"
    ),
    data_path: Path = typer.Argument(..., help="The questions with their gold links (.spacy)"),
    html_path: Optional[Path] = typer.Option(
        None, "--html", help="HTML page to write: every question, with correct and wrong links marked"
    ),
    kb_url: str = typer.Option(
        "https://www.wikidata.org/wiki/{}", "--kb-url", help="URL of an entity, {} for its id"
    ),
    training: Optional[Path] = typer.Option(
        None, "--training", help="Training log to draw on the page (JSONL, `paths.log` of the config)"
    ),
) -> None:
    """Show the metrics of an evaluation as a table, and the links as an HTML page.

    The page shows every question with its links (displaCy): correct ones green, wrong ones red, with gold
    below where they differ. Every entity links to the knowledge base; questions with errors come first.
    With --training, charts of loss and weak F1 by training step are shown above them.
    """
    from ..evaluation.report import metrics_table, read_metrics, write_html
    from ..pipeline.scorer import METRICS

    if training is not None and html_path is None:
        raise typer.BadParameter(
            "the curve is drawn on the page, so --html is needed", param_hint="--training"
        )
    metrics = read_metrics(metrics_path)
    header = ("", "questions", "gold", "found", *(f"{name} {x}" for name in METRICS for x in "PRF"))
    msg.table(metrics_table(metrics), header=header, divider=True, aligns=("l", *"r" * (len(header) - 1)))
    threshold = metrics["threshold"]
    chosen = "" if threshold is None else f"Threshold {threshold:.4f}. "  # spaCy's own linker has none
    msg.text(
        f"gold, found: links. {chosen}{metrics['questions_per_second']:.0f} questions/s on this machine."
    )
    errors = metrics["errors"]
    msg.text(
        f"Gold among the candidates: {metrics['candidates_recall']:.3f}. Errors: {len(errors['missed'])} missed "
        f"mentions, {len(errors['wrong'])} wrong entities, {len(errors['specific'])} more or less specific "
        f"ones, {len(errors['extra'])} extra mentions."
    )
    if html_path is not None:
        write_html(metrics_path, data_path, html_path, kb_url=kb_url, training=training)
        msg.good(f"Page: {html_path}")
