"""Scores of predicted links against gold links: weak, strong, mentions only, links only."""

from functools import partial
from typing import Any, Callable, Dict, Iterable, List, Optional, Sequence, Tuple

import numpy as np
from spacy.pipeline import EntityLinker
from spacy.scorer import PRFScore
from spacy.tokens import Doc, Span
from spacy.training import Example
from spacy.util import minibatch

from ..corpora.gold import LOST, gold_spans
from ..types import Link
from .gold import align_span

Mention = Tuple[int, int, str]
Error = Tuple[Optional[Mention], Optional[Mention]]
Scores = Dict[str, PRFScore]
METRICS = ("weak", "strong", "mentions", "links")
# what a linker is trained for, unless the config says otherwise
SCORE_WEIGHTS: Dict[str, Optional[float]] = {
    "elq_weak_f": 1.0,
    "elq_weak_p": 0.0,
    "elq_weak_r": 0.0,
    "elq_strong_f": 0.0,
    "elq_mentions_f": 0.0,
    "elq_links_f": 0.0,
}


def make_linker_scorer(spans_key: str = "sc") -> Callable:
    """The scorer of the linkers: precision, recall and F1 of weak match (`elq_weak_p`, `elq_weak_r`,
    `elq_weak_f`), strong match (`elq_strong_…`), mentions only (`elq_mentions_…`) and links only, with gold
    mentions given (`elq_links_…`).

    spans_key (str): Key of the table that `spacy evaluate` prints, `spans_{spans_key}_per_type`. Change it
        only together with `spacy evaluate --spans-key`.
    RETURNS (Callable): The scorer.
    """
    return partial(linker_score, spans_key=spans_key)


def linker_score(
    examples: Iterable[Example],
    *,
    links: Optional[Sequence[List[Mention]]] = None,
    spans_key: str = "sc",
    **cfg: Any,
) -> Dict[str, Any]:
    """Score the links in `doc.ents` the way spaCy's `Scorer` does.

    examples (Iterable[Example]): With predicted and reference docs.
    links (Optional[Sequence[List[Mention]]]): Per example, what the linker says when it is given the gold
        mentions: (start_char, end_char, id). Needed for the metric "links".
    RETURNS (Dict[str, Any]): `elq_{metric}_{p,r,f}`, and the same as a table for `spacy evaluate`.
    """
    counts = count_links(examples, links=links)
    table = {name: score.to_dict() for name, score in counts.items()}
    flat = {f"elq_{name}_{key}": v for name, prf in table.items() for key, v in prf.items()}
    weak = {f"spans_{spans_key}_{key}": value for key, value in table["weak"].items()}
    return {**flat, **weak, f"spans_{spans_key}_per_type": table}


def link_gold(
    link_spans: Callable[[Sequence[Doc], Sequence[Sequence[Span]]], List[List[Link]]],
    examples: Sequence[Example],
    *,
    batch_size: int = 128,
) -> List[List[Mention]]:
    """Link the gold mentions of processed examples, for the metric "links".

    link_spans (Callable): The linker's method that links given mentions of docs.
    RETURNS (List[List[Mention]]): Per example (start_char, end_char, id) of what can be linked, at
        the place that gold has.
    """
    results: List[List[Mention]] = []
    for batch in minibatch(examples, batch_size):
        pairs = [_fitting_gold(example) for example in batch]
        docs = [example.predicted for example in batch]
        links = link_spans(docs, [[span for span, _ in p] for p in pairs])
        for doc_pairs, doc_links in zip(pairs, links, strict=True):
            by_range = {(link.start, link.end): link.entity_id for link in doc_links}
            results.append(
                [
                    (gold.start_char, gold.end_char, by_range[span.start, span.end])
                    for span, gold in doc_pairs
                    if (span.start, span.end) in by_range
                ]
            )
    return results


class ScoresLinks:
    """What components that link have in common: how they are scored."""

    scorer: Optional[Callable] = None
    # every linker has its own way
    link_spans: Callable[[Sequence[Doc], Sequence[Sequence[Span]]], List[List[Link]]]

    def score(self, examples: Iterable[Example], **kwargs: Any) -> Dict[str, Any]:
        """Score a batch of processed examples.

        examples (Iterable[Example]): With predicted docs that went through the pipeline.
        RETURNS (Dict[str, Any]): The scores; see `linker_score`.
        """
        if self.scorer is None:
            return {}
        examples = list(examples)
        links = self.link_gold(examples)
        return self.scorer(examples, links=links, **kwargs)

    def link_gold(self, examples: Sequence[Example], *, batch_size: int = 128) -> List[List[Mention]]:
        """Link the gold mentions of processed examples, for the metric "links".

        RETURNS (List[List[Mention]]): Per example (start_char, end_char, id) of what can be linked, at
            the place that gold has.
        """
        return link_gold(self.link_spans, examples, batch_size=batch_size)


def _fitting_gold(example: Example) -> List[Tuple[Span, Span]]:
    """RETURNS (List[Tuple[Span, Span]]): Spans of the predicted doc, with the gold spans they are."""
    pairs = [(align_span(example, gold), gold) for gold in gold_spans(example.reference)]
    return [(example.predicted[r[0] : r[1]], gold) for r, gold in pairs if r is not None]


def count_links(
    examples: Iterable[Example],
    *,
    links: Optional[Sequence[List[Mention]]] = None,
) -> Scores:
    """Count right, wrong and missed links.

    RETURNS (Scores): By metric: "weak" (the entity equal, the mentions overlapping), "strong" (both
        equal), "mentions" (overlapping, with any entity) and, if `links` is given, "links" (gold
        mentions given). Every gold link counts once; those that conversion lost count as missed.
    """
    scores = {name: PRFScore() for name in METRICS if name != "links" or links is not None}
    for i, example in enumerate(examples):
        gold = [mention_of(span) for span in gold_spans(example.reference)]
        found = [mention_of(span) for span in example.predicted.ents if is_linked(span)]
        _count(scores["weak"], gold, found, is_weak_match)
        _count(scores["strong"], gold, found, lambda g, p: g == p)
        _count(scores["mentions"], gold, found, _overlap)
        if links is not None:
            _count(scores["links"], gold, links[i], lambda g, p: g == p)
        for score in scores.values():
            score.fn += int(example.reference.user_data.get(LOST, 0))
    return scores


def is_link_score(key: str) -> bool:
    """RETURNS (bool): Whether a score of a pipeline is one of those that `linker_score` returns."""
    return key in {f"elq_{name}_{x}" for name in METRICS for x in "prf"}


def find_errors(gold: List[Mention], found: List[Mention]) -> List[Error]:
    """Classify the errors of a doc.

    RETURNS (List[Error]): Pairs of a gold link and a predicted one: (gold, None) is a missed mention, (None,
        found) an extra one, and both together are two mentions that overlap, with different entities.
    """
    pairs = [
        (None if g is None else gold[g], None if p is None else found[p]) for g, p in pair_links(gold, found)
    ]
    return [(g, p) for g, p in pairs if g is None or p is None or not is_weak_match(g, p)]


def pair_links(gold: List[Mention], found: List[Mention]) -> List[Tuple[Optional[int], Optional[int]]]:
    """Pair the gold links of a doc with the predicted ones: those that are right first, then the mentions
    that overlap.

    RETURNS (List[Tuple[Optional[int], Optional[int]]]): Pairs of a position in `gold` and one in `found`,
        each used once, with None where there is no other.
    """
    right = match(gold, found, is_weak_match)
    left_gold = [g for g in range(len(gold)) if g not in {g for g, _ in right}]
    left_found = [p for p in range(len(found)) if p not in {p for _, p in right}]
    wrong = [
        (left_gold[g], left_found[p])
        for g, p in match([gold[g] for g in left_gold], [found[p] for p in left_found], _overlap)
    ]
    missed = [(g, None) for g in left_gold if g not in {g for g, _ in wrong}]
    extra = [(None, p) for p in left_found if p not in {p for _, p in wrong}]
    return [*right, *wrong, *missed, *extra]


def is_linked(span: Span) -> bool:
    """RETURNS (bool): Whether a span has an entity; spaCy's own linker marks those without as NIL."""
    return span.kb_id_ not in ("", EntityLinker.NIL)


def mention_of(span: Span) -> Mention:
    """RETURNS (Mention): Characters and entity of a linked span."""
    return (span.start_char, span.end_char, span.kb_id_)


def is_weak_match(a: Mention, b: Mention) -> bool:
    """RETURNS (bool): Whether two links have one entity and overlapping mentions, as the paper counts."""
    return a[2] == b[2] and _overlap(a, b)


def match(
    gold: List[Mention], found: List[Mention], right: Callable[[Mention, Mention], bool]
) -> List[Tuple[int, int]]:
    """Pair as many predictions with gold links as possible, each used once.

    RETURNS (List[Tuple[int, int]]): Pairs of a position in `gold` and one in `found`.
    """
    pairs = np.asarray([[right(g, p) for p in found] for g in gold], dtype=bool)
    gold_of: Dict[int, int] = {}
    found_of: Dict[int, int] = {}
    for g in range(len(gold)):
        end, reached_from = _augmenting_path(g, pairs, gold_of)
        while end is not None:
            owner = reached_from[end]
            gold_of[end], found_of[owner], end = owner, end, found_of.get(owner)
    return sorted(found_of.items())


def _augmenting_path(g: int, pairs: Any, gold_of: Dict[int, int]) -> Tuple[Optional[int], Dict[int, int]]:
    """Look for a prediction that is free, by way of gold links that could move to another one.

    RETURNS (Tuple[Optional[int], Dict[int, int]]): The free prediction, if any, and from which gold link
        each prediction was reached.
    """
    reached_from: Dict[int, int] = {}
    queue = [g]
    for current in queue:
        for p in np.flatnonzero(pairs[current]).tolist():
            if p not in reached_from:
                reached_from[p] = current
                if p not in gold_of:
                    return p, reached_from
                queue.append(gold_of[p])
    return None, reached_from


def _count(
    score: PRFScore,
    gold: List[Mention],
    found: List[Mention],
    right: Callable[[Mention, Mention], bool],
) -> None:
    matched = len(match(gold, found, right))
    score.tp += matched
    score.fp += len(found) - matched
    score.fn += len(gold) - matched


def _overlap(a: Mention, b: Mention) -> bool:
    return a[0] < b[1] and b[0] < a[1]
