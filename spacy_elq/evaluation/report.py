"""The report of an evaluation: a table, and a page with every question."""

from html import escape
from pathlib import Path
from typing import Any, Dict, List, Optional, Tuple
from urllib.parse import quote, urlsplit

import spacy
from spacy import displacy
from spacy.tokens import Doc

from ..corpora.base import KIND
from ..corpora.gold import gold_spans
from ..errors import ELQError, Errors
from ..files import check_file, check_output, check_text, parse_json, replace_file
from ..pipeline.scorer import METRICS, is_linked, is_weak_match, match, mention_of
from .curve import STYLE, draw_training, read_log
from .metrics import predictions_path
from .pipelines import read_docs

COLORS = {"RIGHT": "#b6e3b6", "WRONG": "#f5b7b1", "GOLD": "#cfe2f3"}
SCHEMES = ("http", "https")
# the parts of an address that an id may have
_SAFE = "/:@!$&'()*+,;="
_ENT = """<mark style="background: {bg}">{text} <small>{label} {link}</small></mark>"""
_PAGE = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width">
<meta name="color-scheme" content="light dark">
<title>{title}</title>
<style>
body {{ font: 16px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem }}
figure {{ margin: 0 0 2rem }}
figure h2 {{ font-size: 1rem; margin: 0; opacity: 0.7 }}
mark {{ color: #111; padding: 0.3em 0.5em; border-radius: 0.35em }}
mark small {{ font-weight: bold }}
mark a {{ color: inherit; font-weight: normal }}
{style}
</style>
</head>
<body>
<h1>{title}</h1>
{curve}
{questions}
</body>
</html>
"""


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
    metrics_path: Path, data_path: Path, html_path: Path, *, kb_url: str, training: Optional[Path] = None
) -> None:
    """Write the page: the training curve, if there is a log, and every question, those with errors first.

    metrics_path (Path): The metrics; the linked docs are beside them.
    data_path (Path): The gold docs.
    html_path (Path): The page.
    kb_url (str): Address of an entity, http or https, with {} in place of its id.
    training (Optional[Path]): Log of the training; see `curve.read_log`.
    """
    check_kb_url(kb_url)
    predicted = predictions_path(metrics_path)
    check_output(html_path, metrics_path, data_path, predicted, *([training] if training else []))
    curve = draw_training(read_log(training)) if training is not None else ""
    nlp = spacy.blank("en")
    linked, gold = read_docs(predicted, nlp), read_docs(data_path, nlp)
    if [doc.text for doc in linked] != [doc.text for doc in gold]:
        raise ELQError(Errors.E044.format(predicted=predicted, data=data_path, metrics=metrics_path))
    blocks = [_render(*pair, kb_url) for pair in zip(linked, gold, strict=True)]
    blocks.sort(key=lambda block: block[0])
    n_right = sum(1 for is_right, _ in blocks if is_right)
    options = {"colors": COLORS, "template": _ENT}
    figures = [
        f"<figure>{displacy.render(group, style='ent', manual=True, jupyter=False, options=options)}</figure>"
        for _, group in blocks
    ]
    title = f"{n_right} of {len(blocks)} questions without an error"
    html = _PAGE.format(title=title, style=STYLE if curve else "", curve=curve, questions="\n".join(figures))
    with replace_file(html_path) as new:
        new.write_text(html, encoding="utf8")


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


def _render(found: Doc, gold: Doc, kb_url: str) -> Tuple[bool, List[Dict[str, Any]]]:
    """RETURNS (Tuple[bool, List[Dict[str, Any]]]): Whether all links are right, and what displaCy shows."""
    right = [mention_of(span) for span in gold_spans(gold)]
    ents = [ent for ent in found.ents if is_linked(ent)]
    links = [mention_of(ent) for ent in ents]
    pairs = match(right, links, is_weak_match)
    hits = {p for _, p in pairs}
    is_right = len(pairs) == len(right) == len(links)
    kind = escape(str(gold.user_data.get(KIND, "")))  # displaCy does not escape titles
    shown = [
        _ent(start, end, "RIGHT" if i in hits else "WRONG", id_, ents[i]._.elq_title or "", kb_url)
        for i, (start, end, id_) in enumerate(links)
    ]
    blocks = [{"text": found.text, "ents": shown, "title": None if is_right else kind}]
    if not is_right:
        wanted = [_ent(start, end, "GOLD", id_, "", kb_url) for start, end, id_ in sorted(right)]
        blocks.append({"text": gold.text, "ents": wanted, "title": None})
    return is_right, blocks


def _ent(start: int, end: int, label: str, id_: str, title: str, kb_url: str) -> Dict[str, Any]:
    # displaCy escapes the text of a doc, but nothing else
    address = escape(kb_url.replace("{}", quote(id_, safe=_SAFE)))
    link = f'<a href="{address}">{escape(f"{title} {id_}".strip())}</a>'
    return {"start": start, "end": end, "label": label, "params": {"link": link}}
