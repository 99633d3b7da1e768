"""The report page: what is around the questions, with its style and script. It loads nothing."""

import base64
import hashlib
from collections import Counter
from html import escape
from typing import Dict, List, Sequence

from .blocks import draw_badge
from .chart import STYLE as CHART_STYLE
from .compare import STATES, ComparedQuestion

_STYLE = """
:root { color-scheme: light dark; --line: #8886; --soft: #8882;
  --right: #c5e8c5; --boundary: #f7e3a1; --wrong: #f6c1ba; --spurious: #f9d0a8; --missed: #c9dcf5 }
@media (prefers-color-scheme: dark) { :root { --right: #24522a; --boundary: #5d4c0c; --wrong: #6e2a24;
  --spurious: #6b4114; --missed: #23446e } }
* { box-sizing: border-box }
body { font: 16px/1.5 system-ui, sans-serif; max-width: 72rem; margin: 2rem auto; padding: 0 1rem }
h1, h3, li, .kind, legend, label { overflow-wrap: anywhere }
h2 { margin: 2.5rem 0 0.5rem }
.wide { overflow-x: auto }
table { border-collapse: collapse; font-variant-numeric: tabular-nums }
th, td { padding: 0.2rem 0.5rem; text-align: right; white-space: nowrap;
  border-bottom: 1px solid var(--line) }
th { font-weight: normal } thead th { opacity: 0.75; white-space: normal; vertical-align: bottom }
th:first-child { text-align: left }
fieldset { border: 1px solid var(--line); border-radius: 0.35rem; margin: 0 0 0.75rem;
  display: flex; flex-wrap: wrap; gap: 0.25rem 1.25rem }
label { cursor: pointer } button { font: inherit }
.question { border-top: 1px solid var(--line); padding: 0.75rem 0 }
.question[hidden] { display: none }
.question h3 { font-size: 0.9rem; margin: 0; font-weight: normal; opacity: 0.75 }
.question h4 { font-size: 0.9rem; margin: 0.5rem 0 0; font-weight: bold }
.sides { display: grid; grid-template-columns: 1fr 1fr; gap: 0 2rem }
.sides section { min-width: 0 }
@media (max-width: 40rem) { .sides { grid-template-columns: 1fr } }
.text { margin: 0.15rem 0; white-space: pre-wrap; overflow-wrap: anywhere }
mark, .badge { color: inherit; border-radius: 0.25rem; padding: 0.1em 0.3em }
.badge { font-size: 0.85rem; white-space: nowrap }
.right { background: var(--right) } .boundary { background: var(--boundary) }
.wrong { background: var(--wrong) } .spurious { background: var(--spurious) }
.missed { background: var(--missed) }
ul { list-style: none; margin: 0.25rem 0; padding: 0; font-size: 0.95rem }
.none { margin: 0.25rem 0; opacity: 0.75; font-size: 0.95rem }
.score { font-variant-numeric: tabular-nums } code { font-size: 0.85rem }
a { color: inherit } summary { cursor: pointer; width: fit-content; font-size: 0.95rem }
details { margin-top: 0.25rem } details .wide { font-size: 0.9rem }
dl { display: flex; flex-wrap: wrap; gap: 0 1.25rem; margin: 0.15rem 0; font-size: 0.95rem }
dl div { display: flex; gap: 0.4rem } dt { opacity: 0.75 }
dd { margin: 0; font-variant-numeric: tabular-nums }
:focus-visible { outline: 3px solid #2f7fe0; outline-offset: 2px }
"""
STYLE = _STYLE + CHART_STYLE
# nothing chosen shows all; of each group, any of what is chosen
SCRIPT = """
"use strict";
const form = document.getElementById("filters");
const shown = document.getElementById("shown");
const questions = Array.from(document.querySelectorAll(".question"));
function chosen(name) {
  return Array.from(form.querySelectorAll(`input[name="${name}"]:checked`), (box) => box.value);
}
function update() {
  const states = chosen("state");
  const kinds = chosen("kind");
  for (const question of questions) {
    const own = question.dataset.states.split(" ");
    const fits = !states.length || own.some((state) => states.includes(state));
    question.hidden = !(fits && (!kinds.length || kinds.includes(question.dataset.kind)));
  }
  const count = questions.filter((question) => !question.hidden).length;
  shown.textContent = `${count} of ${questions.length} questions shown`;
}
form.addEventListener("change", update);
form.addEventListener("reset", () => setTimeout(update));
form.hidden = false;
update();
"""
_PAGE = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<meta name="viewport" content="width=device-width">
<meta name="color-scheme" content="light dark">
<title>{title}</title>
<style>{style}</style>
</head>
<body>
<h1>{title}</h1>
{sections}
<script>{script}</script>
</body>
</html>
"""


def draw_page(title: str, sections: Dict[str, str]) -> str:
    """Draw the page.

    sections (Dict[str, str]): HTML by heading. One of them has the filters; see `draw_filters`.
    RETURNS (str): The HTML, complete.
    """
    hashes = [f"{kind}-src '{_hash(text)}'" for kind, text in (("style", STYLE), ("script", SCRIPT))]
    policy = "; ".join(["default-src 'none'", *hashes, "base-uri 'none'", "form-action 'none'"])
    drawn = [f"<section>\n<h2>{escape(name)}</h2>\n{html}\n</section>" for name, html in sections.items()]
    return _PAGE.format(
        policy=policy, title=escape(title), style=STYLE, sections="\n".join(drawn), script=SCRIPT
    )


def find_kinds(questions: Sequence[ComparedQuestion]) -> List[str]:
    """RETURNS (List[str]): The kinds of questions, in the order of the data; a kind's place is its number."""
    return list(dict.fromkeys(q.kind for q in sorted(questions, key=lambda question: question.number)))


def draw_filters(questions: Sequence[ComparedQuestion]) -> str:
    """Draw check boxes for errors and for kinds of questions, with the number of questions of each. They are
    shown by the script only: without it, all questions are.

    RETURNS (str): The HTML.
    """
    states = Counter(state for question in questions for state in question.states)
    kinds = Counter(question.kind for question in questions)
    boxes = [_draw_box("state", state, draw_badge(state), states[state]) for state in STATES]
    groups = _draw_group("Links", boxes)
    if len(kinds) > 1:
        names = enumerate(find_kinds(questions))
        boxes = [_draw_box("kind", str(i), escape(kind or "no kind"), kinds[kind]) for i, kind in names]
        groups += _draw_group("Kind of question", boxes)
    reset = '<button type="reset">Show all</button>'
    return f'<form id="filters" hidden>\n{groups}{reset}\n<p id="shown" role="status"></p></form>'


def _draw_group(name: str, boxes: List[str]) -> str:
    return f"<fieldset><legend>{name}</legend>\n" + "\n".join(boxes) + "\n</fieldset>\n"


def _draw_box(group: str, value: str, name: str, count: int) -> str:
    return f'<label><input type="checkbox" name="{group}" value="{value}"> {name} ({count})</label>'


def _hash(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode("utf8")).digest()).decode("ascii")
