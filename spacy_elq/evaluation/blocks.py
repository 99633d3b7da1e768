"""The parts of the report page as HTML: questions with their links, explanations, tables."""

from html import escape
from itertools import pairwise
from typing import Any, List, Optional, Sequence
from urllib.parse import quote

from .compare import STATES, ComparedLink, ComparedQuestion
from .explained import ExplainedCandidate, ExplainedMention, Explanation

# the parts of an address that an id may have
_SAFE = "/:@!$&'()*+,;="
_CANDIDATE = ("candidate", "label", "vector", "name", "popularity", "similarity", "probability")


def draw_question(
    question: ComparedQuestion, explanation: Optional[Explanation], *, kind: int, kb_url: str
) -> str:
    """Draw a question: gold and prediction side by side and, if there is one, its explanation on click.

    kind (int): The number of its kind among the filters.
    kb_url (str): Address of an entity, with {} in place of its id.
    RETURNS (str): The HTML.
    """
    states = " ".join(question.states)
    head = f'<h3>{question.number} <span class="kind">{escape(question.kind)}</span></h3>'
    sides = _draw_side("Gold", question.text, question.gold, kb_url=kb_url, lost=question.lost)
    sides += _draw_side("Prediction", question.text, question.found, kb_url=kb_url)
    details = _draw_explanation(explanation, kb_url) if explanation is not None else ""
    return (
        f'<article class="question" id="q{question.number}" data-states="{states}" data-kind="{kind}">'
        f'{head}\n<div class="sides">{sides}</div>\n{details}</article>'
    )


def draw_table(rows: Sequence[Sequence[Any]], header: Sequence[str], *, name: str) -> str:
    """Draw a table that can be scrolled sideways where there is no room.

    rows (Sequence[Sequence[Any]]): Cells, as text, or HTML marked as `Markup`.
    name (str): What it is called for those who do not see it.
    RETURNS (str): The HTML.
    """
    head = "".join(f'<th scope="col">{escape(title)}</th>' for title in header)
    body = "\n".join(f"<tr>{_draw_cells(row)}</tr>" for row in rows)
    return (
        f'<div class="wide" role="region" tabindex="0" aria-label="{escape(name)}"><table>'
        f"<thead><tr>{head}</tr></thead>\n<tbody>\n{body}\n</tbody></table></div>"
    )


class Markup(str):
    """HTML, escaped already."""


def draw_badge(state: str) -> str:
    """RETURNS (str): The name of a state, in its colour."""
    return f'<span class="badge {state}">{STATES[state]}</span>'


def _draw_cells(row: Sequence[Any]) -> str:
    first, *others = (cell if isinstance(cell, Markup) else escape(str(cell)) for cell in row)
    return f'<th scope="row">{first}</th>' + "".join(f"<td>{cell}</td>" for cell in others)


def _draw_side(name: str, text: str, links: List[ComparedLink], *, kb_url: str, lost: int = 0) -> str:
    items = [_draw_link(text, link, kb_url) for link in links]
    if lost:
        items.append(f"<li>{draw_badge('missed')} {lost} that do not fit the tokens</li>")
    shown = f"<ul>{''.join(items)}</ul>" if items else '<p class="none">no links</p>'
    return (
        f'<section><h4>{name}</h4><p class="text" dir="auto">{mark_links(text, links)}</p>{shown}</section>'
    )


def _draw_link(text: str, link: ComparedLink, kb_url: str) -> str:
    score = f' <span class="score">{link.score:.3f}</span>' if link.score is not None else ""
    mention = f'<q dir="auto">{escape(text[link.start : link.end])}</q>'
    entity = draw_entity(link.id, link.title, kb_url)
    return f"<li>{draw_badge(link.state)} {mention} {entity}{score}</li>"


def draw_entity(id_: str, title: str, kb_url: str) -> Markup:
    """RETURNS (Markup): An entity as a link to the knowledge base, by its title if it has one, and its id."""
    address = escape(kb_url.replace("{}", quote(id_, safe=_SAFE)))
    name = f'<span dir="auto">{escape(title)}</span> ' if title else ""
    return Markup(f'<a href="{address}">{name}<code>{escape(id_)}</code></a>')


def mark_links(text: str, links: Sequence[ComparedLink]) -> str:
    """Mark links in a text. Where they overlap, the first of them is marked.

    RETURNS (str): The HTML.
    """
    cuts = sorted({0, len(text), *(place for link in links for place in (link.start, link.end))})
    parts = []
    for start, end in pairwise(cuts):
        piece = escape(text[start:end])
        state = next((link.state for link in links if link.start <= start < link.end), None)
        parts.append(piece if state is None else f'<mark class="{state}">{piece}</mark>')
    return "".join(parts)


def _draw_explanation(explanation: Explanation, kb_url: str) -> str:
    mentions = "\n".join(_draw_mention(m, explanation.threshold, kb_url) for m in explanation.mentions)
    shown = mentions or '<p class="none">no mentions</p>'
    return f"<details><summary>Explain</summary>\n{shown}\n</details>"


def _draw_mention(mention: ExplainedMention, threshold: float, kb_url: str) -> str:
    decision = "a link" if mention.is_link else "not a link"
    values = {f"{name} part": value for name, value in mention.parts.items()}
    values["mention probability"] = mention.mention_probability
    if mention.none is not None:
        values["none of the candidates"] = mention.none
    values.update({"joint probability": mention.joint, "score": mention.score, "threshold": threshold})
    shown = "".join(f"<div><dt>{escape(name)}</dt><dd>{x:.4g}</dd></div>" for name, x in values.items())
    rows = [_candidate_row(candidate, kb_url) for candidate in mention.candidates]
    table = draw_table(rows, _CANDIDATE, name="Candidates") if rows else ""
    return f'<h4><q dir="auto">{escape(mention.text)}</q> is {decision}</h4><dl>{shown}</dl>{table}'


def _candidate_row(candidate: ExplainedCandidate, kb_url: str) -> List[str]:
    entity = draw_entity(candidate.id, candidate.title, kb_url)
    numbers = [candidate.vector, candidate.name, candidate.popularity, candidate.similarity]
    return [entity, candidate.label, *(f"{x:.3f}" for x in (*numbers, candidate.probability))]
