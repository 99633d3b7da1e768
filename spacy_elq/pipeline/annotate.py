"""Links on docs: what is written there, and what becomes of entities that were there before."""

from typing import Iterable, List, Optional, Sequence, Tuple

import numpy as np
from spacy.tokens import Doc, Span

from ..types import Link

# what linkers assign, for `nlp.analyze_pipes`
EXTENSIONS = ("elq_score", "elq_title", "elq_alternatives", "elq_catalogue")
# what restricts the catalogue for a doc
WITHIN = "elq_within"
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
        spans = [Span(doc, x.start, x.end, label=x.label, kb_id=x.entity_id) for x in doc_links]
        accepted = [s for s, link in zip(spans, doc_links, strict=True) if link.accepted]
        kept, linked = _merge_ents(doc.ents, accepted, how=existing_ents)
        doc.set_ents([*kept, *linked])
        # spaCy stores these values by characters: an entity that stays would get those of another
        taken = {(ent.start, ent.end) for ent in kept}
        for span, link in zip(spans, doc_links, strict=True):
            if (link.start, link.end) not in taken:
                _annotate(span, link)
        if spans_key:
            doc.spans[spans_key] = spans
            scores = np.asarray([link.score for link in doc_links], dtype="float32")
            doc.spans[spans_key].attrs["scores"] = scores


def _install_extensions() -> None:
    """Register what can be read on every linked entity, in plain types, and what can be asked of a doc."""
    for name in EXTENSIONS:
        if not Span.has_extension(name):
            Span.set_extension(name, default=None)
    if not Doc.has_extension(WITHIN):
        Doc.set_extension(WITHIN, default=None)


def _annotate(span: Span, link: Link) -> None:
    values = span._
    values.elq_score = link.score
    values.elq_title = link.title
    values.elq_catalogue = link.catalogue
    values.elq_alternatives = [alternative.to_dict() for alternative in link.alternatives]


def _merge_ents(
    existing: Sequence[Span], linked: List[Span], *, how: str
) -> Tuple[Sequence[Span], Sequence[Span]]:
    """RETURNS (Tuple[Sequence[Span], Sequence[Span]]): The entities that stay and the links that become
    entities, by the setting `existing_ents`.
    """
    if how == "replace" or not existing:
        return [], linked
    if how == "keep":
        return existing, _without_overlap(linked, existing)
    return _without_overlap(existing, linked), linked


def _without_overlap(spans: Sequence[Span], others: Sequence[Span]) -> List[Span]:
    """RETURNS (List[Span]): The spans that share no token with any of the others."""
    taken = {token for span in others for token in range(span.start, span.end)}
    return [span for span in spans if taken.isdisjoint(range(span.start, span.end))]


_install_extensions()
