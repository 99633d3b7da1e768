"""The report of an evaluation: a table, and a page with every question."""

from html import escape
from pathlib import Path
from typing import Any, Dict, List, Tuple

import spacy
import srsly
from spacy import displacy
from spacy.tokens import Doc

from ..corpora.base import KIND
from ..corpora.gold import gold_spans
from ..errors import ELQError, Errors
from ..pipeline.scorer import METRICS, is_linked, is_weak_match, match, mention_of
from .metrics import predictions_path
from .pipelines import read_docs

COLORS = {"RIGHT": "#b6e3b6", "WRONG": "#f5b7b1", "GOLD": "#cfe2f3"}


def read_metrics(path: Path) -> Dict[str, Any]:
    """RETURNS (Dict[str, Any]): What `spacy elq evaluate` wrote."""
    if not path.is_file():
        hint = "Make it with: python -m spacy elq evaluate"
        raise ELQError(Errors.E022.format(path=path, hint=hint))
    try:
        metrics = srsly.read_json(path)
        if {"weak", "kinds", "errors"} <= set(metrics):
            return metrics
        problem = "it has no metrics"
    except ValueError as err:
        problem = f"it is not JSON ({err})"
    hint = "Make it with: python -m spacy elq evaluate"
    raise ELQError(Errors.E023.format(path=path, problem=problem, hint=hint))


def write_html(metrics_path: Path, data_path: Path, html_path: Path, *, kb_url: str) -> None:
    """Write the page.

    metrics_path (Path): The metrics; the linked docs are beside them.
    data_path (Path): The gold docs.
    """
    nlp = spacy.blank("en")
    predicted = predictions_path(metrics_path)
    linked, gold = read_docs(predicted, nlp), read_docs(data_path, nlp)
    if [doc.text for doc in linked] != [doc.text for doc in gold]:
        raise ELQError(Errors.E044.format(predicted=predicted, data=data_path, metrics=metrics_path))
    blocks = [_render(*pair, kb_url) for pair in zip(linked, gold, strict=True)]
    blocks.sort(key=lambda block: block[0])
    n_right = sum(1 for is_right, _ in blocks if is_right)
    page = [parsed for _, group in blocks for parsed in group]
    options = {"colors": COLORS}
    html = displacy.render(page, style="ent", manual=True, page=True, options=options)
    title = f"<h1>{n_right} of {len(blocks)} questions without an error</h1>"
    html_path.parent.mkdir(parents=True, exist_ok=True)
    html_path.write_text(html.replace("<figure", f"{title}<figure", 1), encoding="utf8")


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


def _render(found: Doc, gold: Doc, kb_url: str) -> Tuple[bool, List[Dict[str, Any]]]:
    """RETURNS (Tuple[bool, List[Dict[str, Any]]]): Whether all is right, and what displaCy shows."""
    right = [mention_of(span) for span in gold_spans(gold)]
    ents = [ent for ent in found.ents if is_linked(ent)]
    links = [mention_of(ent) for ent in ents]
    pairs = match(right, links, is_weak_match)
    hits = {p for _, p in pairs}
    is_right = len(pairs) == len(right) == len(links)
    kind = gold.user_data.get(KIND, "")
    shown = [
        _ent(start, end, "RIGHT" if i in hits else "WRONG", id_, ents[i]._.elq_title, kb_url)
        for i, (start, end, id_) in enumerate(links)
    ]
    blocks = [{"text": found.text, "ents": shown, "title": None if is_right else kind}]
    if not is_right:
        wanted = [_ent(start, end, "GOLD", id_, "", kb_url) for start, end, id_ in sorted(right)]
        blocks.append({"text": gold.text, "ents": wanted, "title": None})
    return is_right, blocks


def _ent(start: int, end: int, label: str, id_: str, title: str, kb_url: str) -> Dict[str, Any]:
    shown = escape(f"{title} {id_}".strip())  # displaCy escapes the text of a doc, but not this
    return {
        "start": start,
        "end": end,
        "label": label,
        "kb_id": shown,
        "kb_url": escape(kb_url.format(id_)),
    }
