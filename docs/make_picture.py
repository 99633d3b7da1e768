"""Draw linked questions as an SVG: every mention with the title, id and score of its entity.

python docs/make_picture.py models/elq docs/images/example.svg
"""

import argparse
from html import escape
from itertools import pairwise
from pathlib import Path
from typing import Iterator, List, NamedTuple

import spacy
from spacy.displacy.render import DEFAULT_LABEL_COLORS
from spacy.tokens import Doc, Span

QUESTIONS = ["is mercury closer to the sun than venus", "python or java for beginners"]
STYLE = """
text { font-family: ui-monospace, SFMono-Regular, Menlo, Consolas, monospace; white-space: pre }
.card { fill: #ffffff; stroke: #d0d7de }
.word { fill: #1f2328 }
.mention, .title { fill: #1f2328; font-weight: bold }
.facts { fill: #3b434b }
@media (prefers-color-scheme: dark) {
  .card { fill: #161b22; stroke: #30363d }
  .word { fill: #e6edf3 }
}
"""
# font sizes of the three lines of a mention, and their baselines from the top of its box
SIZES, BASELINES = (17, 12, 11), (25, 44, 60)
BOX, GAP, PAD = 70, 14, 12
# width of a character of a monospaced font, in font sizes; `textLength` holds every font to it
ASPECT = 0.6


class Piece(NamedTuple):
    """Text between mentions, or a mention: its lines, and the colour of its box."""

    lines: List[str]
    color: str = ""

    @property
    def width(self) -> float:
        """RETURNS (float): Of the widest line, and the box around it."""
        widths = [_width(line, size) for line, size in zip(self.lines, SIZES, strict=False)]
        return max(widths) + (2 * PAD if self.color else 0)


def main() -> None:
    """Read the arguments, link, draw."""
    parser = argparse.ArgumentParser(description="Draw linked questions as an SVG.")
    parser.add_argument("pipeline", help="Trained pipeline")
    parser.add_argument("output", type=Path, help="SVG to write")
    parser.add_argument("--question", action="append", help="May be given several times")
    args = parser.parse_args()
    nlp = spacy.load(args.pipeline)
    args.output.parent.mkdir(parents=True, exist_ok=True)
    args.output.write_text(draw(list(nlp.pipe(args.question or QUESTIONS))), encoding="utf8")


def draw(docs: List[Doc]) -> str:
    """RETURNS (str): An SVG with one row per doc. It has a background of its own, light or dark."""
    rows = [list(_pieces(doc)) for doc in docs]
    width = max(sum(piece.width + GAP for piece in row) - GAP for row in rows) + 4 * PAD
    height = len(rows) * (BOX + 2 * PAD) + 2 * PAD
    shapes = [shape for i, row in enumerate(rows) for shape in _draw_row(row, 2 * PAD + i * (BOX + 2 * PAD))]
    title = escape("; ".join(_describe(doc) for doc in docs))
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height}" '
            f'width="{width:.0f}" height="{height}" role="img">',
            f"<title>{title}</title>",
            f"<style>{STYLE}</style>",
            f'<rect class="card" x="0.5" y="0.5" width="{width - 1:.0f}" height="{height - 1}" rx="8"/>',
            *shapes,
            "</svg>\n",
        ]
    )


def _pieces(doc: Doc) -> Iterator[Piece]:
    """YIELDS (Piece): The doc from left to right."""
    cuts = [0, *(place for ent in doc.ents for place in (ent.start, ent.end)), len(doc)]
    for i, (start, end) in enumerate(pairwise(cuts)):
        if i % 2:
            ent = doc.ents[i // 2]
            color = DEFAULT_LABEL_COLORS.get(ent.label_, "#dddddd")
            yield Piece([ent.text, ent._.elq_title, _facts(ent)], color)
        elif start < end:
            yield Piece([doc[start:end].text])


def _facts(ent: Span) -> str:
    return f"{ent.kb_id_} · {ent._.elq_score:.2f}"


def _describe(doc: Doc) -> str:
    links = [f"{ent.text}: {ent._.elq_title} ({_facts(ent)})" for ent in doc.ents]
    return f"{doc.text} → {', '.join(links) or 'no link'}"


def _draw_row(row: List[Piece], y: float) -> Iterator[str]:
    x = 2.0 * PAD
    for piece in row:
        inner = x
        if piece.color:
            size = f'width="{piece.width:.1f}" height="{BOX}"'
            yield f'<rect x="{x:.1f}" y="{y}" {size} rx="6" fill="{piece.color}"/>'
            inner += PAD
        names = ("mention", "title", "facts") if piece.color else ("word",)
        for line, name, size, baseline in zip(piece.lines, names, SIZES, BASELINES, strict=False):
            yield (
                f'<text class="{name}" x="{inner:.1f}" y="{y + baseline}" font-size="{size}" '
                f'textLength="{_width(line, size):.1f}" lengthAdjust="spacingAndGlyphs">{escape(line)}</text>'
            )
        x += piece.width + GAP


def _width(text: str, size: int) -> float:
    return ASPECT * size * len(text)


if __name__ == "__main__":
    main()
