"""What a doc with gold links looks like: a span group, and a few keys of `user_data`."""

from typing import List

from spacy.tokens import Doc, Span

GOLD_KEY = "gold_links"

# keys of `user_data` of reference docs: whether every mention is marked, and how many gold links were lost
COMPLETE = "complete"

LOST = "lost"


def gold_spans(reference: Doc, *, key: str = GOLD_KEY) -> List[Span]:
    """The gold links of a doc: the span group where there is one (nothing is lost there, mentions may
    overlap), else the entities that have a kb_id.

    RETURNS (List[Span]): Spans with `kb_id_`.
    """
    spans = reference.spans.get(key, reference.ents)
    return [span for span in spans if span.kb_id_]
