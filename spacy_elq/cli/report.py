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
        None, "--html", help="HTML page to write: charts, and every question with gold and predicted links"
    ),
    kb_url: str = typer.Option(
        "https://www.wikidata.org/wiki/{}", "--kb-url", help="URL of an entity, {} for its id"
    ),
    title: Optional[str] = typer.Option(
        None, "--title", help="Title of the page; by default it has the name of the metrics"
    ),
    training: Optional[Path] = typer.Option(
        None, "--training", help="Training log to draw on the page (JSONL, `paths.log` of the config)"
    ),
    index_path: Optional[Path] = typer.Option(
        None, "--index", "-i", help="Index to look up the titles of gold entities that no link names"
    ),
) -> None:
    """Show the metrics of an evaluation as a table, and the links as an HTML page.

    The page shows gold and predicted links of every question side by side, with titles and scores: right, with
    other boundaries, the wrong entity, spurious or missed. Questions with errors come first, and can be filtered
    by error and by kind. Above them are the scores, how often links are right by score (reliability), how
    many are wrong by the share of links kept (risk and coverage) and, with --training, loss and weak F1 by
    training step. Every entity links to the knowledge base. The page is one file and loads nothing.
    """
    from ..evaluation.report import TABLE_HEADER, describe, metrics_table, read_metrics, write_html

    on_page = {"--training": training, "--title": title, "--index": index_path}
    for name in [name for name, value in on_page.items() if value is not None and html_path is None]:
        raise typer.BadParameter("it is for the page, so --html is needed", param_hint=name)
    metrics = read_metrics(metrics_path)
    aligns = ("l", *"r" * (len(TABLE_HEADER) - 1))
    msg.table(metrics_table(metrics), header=TABLE_HEADER, divider=True, aligns=aligns)
    msg.text(describe(metrics))
    errors = metrics["errors"]
    msg.text(
        f"Gold among the candidates: {metrics['candidates_recall']:.3f}. Errors: {len(errors['missed'])} missed "
        f"mentions, {len(errors['wrong'])} wrong entities, {len(errors['specific'])} more or less specific "
        f"ones, {len(errors['extra'])} extra mentions."
    )
    if html_path is not None:
        write_html(
            metrics_path,
            data_path,
            html_path,
            kb_url=kb_url,
            title=title,
            training=training,
            index_path=index_path,
        )
        msg.good(f"Page: {html_path}")
