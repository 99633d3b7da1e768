"""The report of an evaluation: a table, and a page with every question."""

from pathlib import Path
from typing import Any, Dict, List, Optional, Tuple
from urllib.parse import urlsplit

import spacy
from spacy.tokens import Doc
from spacy.training import Example

from ..corpora.gold import gold_spans
from ..errors import ELQError, Errors
from ..files import check_file, check_output, check_text, parse_json, replace_file
from ..index import EntityIndex
from ..pipeline.scorer import METRICS
from .blocks import draw_question, draw_table
from .compare import ComparedQuestion, collect_titles, compare, look_up_titles
from .confidence import draw_confidence
from .curve import draw_training, read_log
from .explained import Explanation, read_explained
from .metrics import explained_path, predictions_path
from .page import draw_filters, draw_page, find_kinds
from .pipelines import read_docs
from .thresholds import judge_links

SCHEMES = ("http", "https")
TABLE_HEADER = ("", "questions", "gold", "found", *(f"{name} {x}" for name in METRICS for x in "PRF"))


def read_metrics(path: Path) -> Dict[str, Any]:
    """RETURNS (Dict[str, Any]): What `spacy elq evaluate` wrote."""
    hint = "Make it with: python -m spacy elq evaluate"
    check_file(path, hint)
    try:
        metrics = parse_json(path.read_text(encoding="utf8"))
        check_text(metrics)
        if isinstance(metrics, dict) and {"weak", "kinds", "errors"} <= set(metrics):
            return metrics
        problem = "it has no metrics"
    except ValueError as err:
        problem = f"it is not JSON ({err})"
    raise ELQError(Errors.E023.format(path=path, problem=problem, hint=hint))


def write_html(
    metrics_path: Path,
    data_path: Path,
    html_path: Path,
    *,
    kb_url: str,
    title: Optional[str] = None,
    training: Optional[Path] = None,
    index_path: Optional[Path] = None,
) -> None:
    """Write the page: scores, how far they can be trusted, the training curve, if there is a log, and every
    question, those with errors first.

    metrics_path (Path): The metrics; the linked docs are beside them and, if there are any, explanations.
    data_path (Path): The gold docs.
    html_path (Path): The page.
    kb_url (str): Address of an entity, http or https, with {} in place of its id.
    title (Optional[str]): Of the page; by default it has the name of the metrics.
    training (Optional[Path]): Log of the training; see `curve.read_log`.
    index_path (Optional[Path]): Index to look up the titles of gold entities in that no link names.
    """
    check_kb_url(kb_url)
    beside = (predictions_path(metrics_path), explained_path(metrics_path))
    check_output(html_path, metrics_path, data_path, *beside, *([training] if training else []))
    metrics = read_metrics(metrics_path)
    sections = {"Scores": _draw_scores(metrics)}
    curve = draw_training(read_log(training)) if training is not None else ""
    linked, gold = _read_both(metrics_path, data_path)
    judged = [link for pair in zip(linked, gold, strict=True) for link in judge_links(Example(*pair))]
    if judged:
        sections["Confidence"] = draw_confidence(judged)
    if curve:
        sections["Training"] = curve
    questions = _compare_all(linked, gold, index_path)
    explanations = _read_explanations(metrics_path, data_path, linked)
    sections["Questions"] = _draw_questions(questions, explanations, kb_url)
    html = draw_page(title or f"Entity linking: {metrics_path.stem}", sections)
    with replace_file(html_path) as new:
        new.write_text(html, encoding="utf8")


def describe(metrics: Dict[str, Any]) -> str:
    """RETURNS (str): What goes below the table of scores."""
    threshold = metrics["threshold"]
    chosen = "" if threshold is None else f"Threshold {threshold:.4f}. "  # spaCy's own linker has none
    return f"gold, found: links. {chosen}{metrics['questions_per_second']:.0f} questions/s on this machine."


def check_kb_url(kb_url: str) -> None:
    """RAISES (ELQError): If an address is not http or https, or has no place for the id of an entity."""
    parts = urlsplit(kb_url)
    if parts.scheme not in SCHEMES or not parts.netloc or "{}" not in kb_url:
        raise ELQError(Errors.E055.format(found=kb_url))


def metrics_table(metrics: Dict[str, Any]) -> List[Tuple[str, ...]]:
    """RETURNS (List[Tuple[str, ...]]): A row for all questions, and for each group and kind of them."""
    groups = {"all": metrics}
    groups.update({name: metrics[name] for name in ("seen", "unseen", "described") if name in metrics})
    groups.update(metrics["kinds"])
    return [
        (
            name,
            *(str(group[count]) for count in ("questions", "gold", "found")),
            # without gold links there is nothing to be right about: what was found is wrong
            *(f"{group[m][x]:.3f}" if group["gold"] else "-" for m in METRICS for x in "prf"),
        )
        for name, group in groups.items()
    ]


def _draw_scores(metrics: Dict[str, Any]) -> str:
    table = draw_table(metrics_table(metrics), TABLE_HEADER, name="Scores")
    recall = f"Gold among the candidates: {metrics['candidates_recall']:.3f}."
    return f"{table}\n<p>{describe(metrics)} {recall}</p>"


def _read_both(metrics_path: Path, data_path: Path) -> Tuple[List[Doc], List[Doc]]:
    """RETURNS (Tuple[List[Doc], List[Doc]]): The linked docs and the gold docs of the same questions."""
    nlp, path = spacy.blank("en"), predictions_path(metrics_path)
    linked, gold = read_docs(path, nlp), read_docs(data_path, nlp)
    if [doc.text for doc in linked] != [doc.text for doc in gold]:
        raise ELQError(Errors.E044.format(predicted=path, data=data_path, metrics=metrics_path))
    return linked, gold


def _compare_all(linked: List[Doc], gold: List[Doc], index_path: Optional[Path]) -> List[ComparedQuestion]:
    titles = collect_titles(linked)
    if index_path is not None:
        index = EntityIndex.open(index_path)
        unknown = {span.kb_id_ for doc in gold for span in gold_spans(doc)} - set(titles)
        titles.update(look_up_titles(sorted(unknown), index))
        index.close()
    pairs = enumerate(zip(linked, gold, strict=True), start=1)
    return [compare(number, found, wanted, titles) for number, (found, wanted) in pairs]


def _read_explanations(metrics_path: Path, data_path: Path, docs: List[Doc]) -> List[Optional[Explanation]]:
    """RETURNS (List[Optional[Explanation]]): Of each doc, None if there is no file with them."""
    path = explained_path(metrics_path)
    if not path.exists():
        return [None] * len(docs)
    explanations = read_explained(path)
    if [explanation.text for explanation in explanations] != [doc.text for doc in docs]:
        raise ELQError(Errors.E044.format(predicted=path, data=data_path, metrics=metrics_path))
    return [*explanations]


def _draw_questions(
    questions: List[ComparedQuestion], explanations: List[Optional[Explanation]], kb_url: str
) -> str:
    kinds = {kind: i for i, kind in enumerate(find_kinds(questions))}
    pairs = sorted(zip(questions, explanations, strict=True), key=lambda pair: pair[0].is_right)
    blocks = [draw_question(q, explanation, kind=kinds[q.kind], kb_url=kb_url) for q, explanation in pairs]
    count = sum(question.is_right for question in questions)
    summary = f"<p>{count} of {len(questions)} questions without an error (weak match).</p>"
    return "\n".join([summary, draw_filters(questions), *blocks])
