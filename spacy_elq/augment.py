"""Augmenters for training corpora: the same questions as hurried people type them, or about others."""

import random
import re
from itertools import pairwise
from typing import Callable, Dict, Iterator, List, Optional, Sequence, Tuple

import numpy as np
from spacy.language import Language
from spacy.tokens import Doc, Span
from spacy.training import Example

from .gold import GOLD_KEY, gold_spans
from .index import EntityIndex
from .types import Array, Entity

Augmenter = Callable[[Language, Example], Iterator[Example]]

_LETTERS = "abcdefghijklmnopqrstuvwxyz"
_SHORTEST = 4
_ALIAS_SHARE = 0.25


def build_typo_augmenter(level: float = 0.2, gold_key: str = GOLD_KEY) -> Augmenter:
    """Build a corpus augmenter that misspells names.

    level (float): Share of the questions with gold links that get a typo in each of their mentions.
    gold_key (str): Span group of the reference docs with the gold links.
    RETURNS (Callable): The augmenter, for `[corpora.train.augmenter]`.
    """

    def augment(nlp: Language, example: Example) -> Iterator[Example]:
        spans = _separate_gold(example.reference, gold_key)
        if not spans or random.random() >= level:
            yield example
        else:
            named = [(add_typo(span.text), span.kb_id_) for span in spans]
            yield _rename(nlp, example.reference, spans, named, gold_key)

    return augment


def build_swap_augmenter(
    index_loader: Callable[[], EntityIndex],
    level: float = 0.5,
    anywhere: float = 0.5,
    neighbours: int = 50,
    then: Optional[Augmenter] = None,
    gold_key: str = GOLD_KEY,
) -> Augmenter:
    """Build a corpus augmenter that asks the same questions about other entities.

    A question of few can then be about any entity of the index, under its title or another name, and stays
    marked. Popular entities are drawn more often, by the square root of their popularity.

    index_loader (Callable[[], EntityIndex]): Opens the index.
    level (float): Share of the questions with gold links in which every mention is swapped.
    anywhere (float): Share of the swaps that draw from the whole index; the others draw from the entities
        nearest to the gold one, so that a river stays a river.
    neighbours (int): How many are near.
    then (Optional[Augmenter]): Another augmenter that gets the result.
    gold_key (str): Span group of the reference docs with the gold links.
    RETURNS (Augmenter): The augmenter, for `[corpora.train.augmenter]`.
    """
    index = index_loader()
    everything = _Urn(np.arange(len(index)), index)
    near: Dict[int, _Urn] = {}

    def draw(position: int) -> Entity:
        if random.random() < anywhere:
            return index.entity(everything.draw())
        if position not in near:
            found, _ = index.search(index.vectors[[position]], neighbours + 1)
            near[position] = _Urn(np.setdiff1d(found[found >= 0], [position]), index)
        return index.entity(near[position].draw())

    def swap(span: Span, position: int) -> Tuple[str, str]:
        entity = draw(position) if position >= 0 else None
        if entity is None:
            return span.text, span.kb_id_
        name = _name_in_use(entity)
        return (name.lower() if span.text.islower() else name), entity.id

    def augment(nlp: Language, example: Example) -> Iterator[Example]:
        spans = _separate_gold(example.reference, gold_key)
        if spans and random.random() < level:
            positions = index.positions([span.kb_id_ for span in spans])
            named = [swap(span, int(position)) for span, position in zip(spans, positions, strict=True)]
            example = _rename(nlp, example.reference, spans, named, gold_key)
        yield from [example] if then is None else then(nlp, example)

    return augment


def build_clip_augmenter(
    shortest: int = 5, longest: int = 15, then: Optional[Augmenter] = None, gold_key: str = GOLD_KEY
) -> Augmenter:
    """Build a corpus augmenter that cuts sentences to the length of questions.

    Each time another piece is taken, around one of the gold links; links are never cut in two.

    shortest (int): Tokens of the shortest piece.
    longest (int): Tokens of the longest piece, but for a link at its edge.
    then (Optional[Augmenter]): Another augmenter that gets the result.
    gold_key (str): Span group of the reference docs with the gold links.
    RETURNS (Augmenter): The augmenter, for `[corpora.train.augmenter]`.
    """

    def augment(nlp: Language, example: Example) -> Iterator[Example]:
        reference = example.reference
        spans = gold_spans(reference, key=gold_key)
        length = random.randint(shortest, longest)
        if spans and len(reference) > length:
            centre = random.choice(spans)
            bounds = max(0, centre.end - length), min(centre.start, len(reference) - length)
            start = random.randint(min(bounds), max(bounds))
            example = _clip(nlp, reference, *_widen(start, start + length, spans), spans, gold_key)
        yield from [example] if then is None else then(nlp, example)

    return augment


def _widen(start: int, end: int, spans: List[Span]) -> Tuple[int, int]:
    """RETURNS (Tuple[int, int]): The range, made larger until it cuts no span in two."""
    cut = [span for span in spans if span.start < end and span.end > start]
    wider = min([start, *(span.start for span in cut)]), max([end, *(span.end for span in cut)])
    return wider if wider == (start, end) else _widen(*wider, spans)


def _clip(nlp: Language, reference: Doc, start: int, end: int, spans: List[Span], gold_key: str) -> Example:
    """RETURNS (Example): A piece of a text, with the links in it."""
    piece = reference[start:end]
    inside = [span for span in spans if span.start >= start and span.end <= end]
    places = [(span.start_char - piece.start_char, span.end_char - piece.start_char) for span in inside]
    return _make_example(nlp, piece.text, reference, inside, places, [s.kb_id_ for s in inside], gold_key)


class _Urn:
    """Positions to draw from, the popular ones more often."""

    def __init__(self, positions: Array, index: EntityIndex) -> None:
        self._positions = positions
        self._shares = np.cumsum(np.exp(index.log_popularity[positions] / 2, dtype="float64"))

    def draw(self) -> int:
        at = np.searchsorted(self._shares, random.random() * self._shares[-1], side="right")
        return int(self._positions[min(at, len(self._positions) - 1)])


def _name_in_use(entity: Entity) -> str:
    """RETURNS (str): The title as people say it, or now and then one of the aliases."""
    title = re.sub(r"\s*\([^()]*\)$", "", entity.title) or entity.title
    if entity.aliases and random.random() < _ALIAS_SHARE:
        return random.choice(entity.aliases)
    return title


def add_typo(text: str) -> str:
    """Drop, swap, double or replace one letter inside a text, not its first or last. Short texts stay."""
    if len(text) < _SHORTEST:
        return text
    i = random.randrange(1, len(text) - 1)
    before, letter, after = text[:i], text[i], text[i + 1 :]
    variants = [
        before + after,
        before + after[0] + letter + after[1:],
        before + letter + letter + after,
        before + random.choice(_LETTERS) + after,
    ]
    return random.choice(variants)


def _separate_gold(reference: Doc, gold_key: str) -> List[Span]:
    """RETURNS (List[Span]): The gold links by position, or none where they overlap."""
    spans = sorted(gold_spans(reference, key=gold_key), key=lambda span: span.start)
    return [] if any(a.end > b.start for a, b in pairwise(spans)) else spans


def _rename(
    nlp: Language, reference: Doc, spans: List[Span], named: Sequence[Tuple[str, str]], gold_key: str
) -> Example:
    """RETURNS (Example): The question with other texts and ids for its mentions."""
    text, at, places = "", 0, []
    for span, (name, _) in zip(spans, named, strict=True):
        text += reference.text[at : span.start_char]
        places.append((len(text), len(text) + len(name)))
        text += name
        at = span.end_char
    ids = [id_ for _, id_ in named]
    return _make_example(nlp, text + reference.text[at:], reference, spans, places, ids, gold_key)


def _make_example(
    nlp: Language,
    text: str,
    reference: Doc,
    spans: List[Span],
    places: List[Tuple[int, int]],
    ids: List[str],
    gold_key: str,
) -> Example:
    """RETURNS (Example): A text made of a reference doc, its gold links at new places and with new ids."""
    doc = nlp.make_doc(text)
    copies = [
        doc.char_span(*place, label=span.label_, kb_id=id_)
        for span, place, id_ in zip(spans, places, ids, strict=True)
    ]
    doc.spans[gold_key] = [copy for copy in copies if copy is not None]
    # what is known of the question, such as whether every mention is marked
    doc.user_data.update({key: value for key, value in reference.user_data.items() if isinstance(key, str)})
    return Example(nlp.make_doc(text), doc)
