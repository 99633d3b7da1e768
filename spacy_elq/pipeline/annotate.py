"""Links on docs: what is written there, and what becomes of entities that were there before."""

from typing import Iterable, List, Optional, Sequence

import numpy as np
from spacy.tokens import Doc, Span

from ..types import Link

# what linkers assign, for `nlp.analyze_pipes`
EXTENSIONS = ("elq_score", "elq_title", "elq_alternatives")
ASSIGNS = ["doc.ents", "token.ent_iob", "token.ent_type", "token.ent_kb_id"]
ASSIGNS += [f"span._.{name}" for name in EXTENSIONS]


def write_links(
    docs: Iterable[Doc], links: List[List[Link]], *, existing_ents: str, spans_key: Optional[str] = None
) -> None:
    """Write links to docs: entities, scores, titles, alternatives and, if asked for, a span group.

    docs (Iterable[Doc]): The docs.
    links (List[List[Link]]): Of each doc.
    existing_ents (str): "overwrite" drops entities of earlier components that
        overlap with a link, "keep" drops links that overlap with them, "replace" drops all of them.
    spans_key (Optional[str]): Span group for all links, also those that were not accepted.
    """
    for doc, doc_links in zip(docs, links, strict=True):
        spans = [_annotate(doc, link) for link in doc_links]
        accepted = [s for s, link in zip(spans, doc_links, strict=True) if link.accepted]
        doc.set_ents(_merge_ents(doc.ents, accepted, how=existing_ents))
        if spans_key:
            doc.spans[spans_key] = spans
            scores = np.asarray([link.score for link in doc_links], dtype="float32")
            doc.spans[spans_key].attrs["scores"] = scores


def _install_extensions() -> None:
    """Register what can be read on every linked entity, in plain types."""
    for name in EXTENSIONS:
        if not Span.has_extension(name):
            Span.set_extension(name, default=None)


def _annotate(doc: Doc, link: Link) -> Span:
    span = Span(doc, link.start, link.end, label=link.label, kb_id=link.entity_id)
    values = span._
    values.elq_score = link.score
    values.elq_title = link.title
    values.elq_alternatives = [alternative.to_dict() for alternative in link.alternatives]
    return span


def _merge_ents(existing: Sequence[Span], linked: List[Span], *, how: str) -> List[Span]:
    """RETURNS (List[Span]): What becomes `doc.ents`, by the setting `existing_ents`."""
    if how == "replace" or not existing:
        return linked
    first, second = (existing, linked) if how == "keep" else (linked, existing)
    taken = {token for span in first for token in range(span.start, span.end)}
    rest = [span for span in second if taken.isdisjoint(range(span.start, span.end))]
    return [*first, *rest]


_install_extensions()
