"""Augmenters for training corpora: questions as hurried people type them, sentences as short as questions."""

import random
from functools import partial
from itertools import pairwise
from typing import Any, Callable, Iterator, List, Optional, Tuple

from spacy.language import Language
from spacy.tokens import Doc, Span
from spacy.training import Example

from .gold import GOLD_KEY, gold_spans

Augmenter = Callable[[Language, Example], Iterator[Example]]

_LETTERS = "abcdefghijklmnopqrstuvwxyz"
_SHORTEST = 4


def build_typo_augmenter(level: float = 0.2, gold_key: str = GOLD_KEY) -> Augmenter:
    """Put typos into mentions.

    level (float): Share of the questions with gold links that get a typo in every mention.
    gold_key (str): Span group of the reference docs with the gold links.
    RETURNS (Augmenter): The augmenter, for `[corpora.train.augmenter]`.
    """
    return partial(add_typos, level=level, gold_key=gold_key)


def add_typos(nlp: Language, example: Example, *, level: float, gold_key: str) -> Iterator[Example]:
    """YIELDS (Example): The example as it is, or with a typo in each of its mentions. The settings are those
    of `build_typo_augmenter`.
    """
    spans = _separate_gold(example.reference, gold_key)
    if not spans or random.random() >= level:
        yield example
    else:
        yield _misspell(nlp, example.reference, spans, gold_key)


def build_clip_augmenter(
    shortest: int = 5, longest: int = 15, lower: float = 0.0, gold_key: str = GOLD_KEY
) -> Augmenter:
    """Cut sentences to the length of questions. Every time a different piece around one of the gold links is
    taken; links are never split.

    shortest (int): Minimum number of tokens of a piece.
    longest (int): Maximum number of tokens of a piece, not counting the rest of a link at its edge.
    lower (float): Share of the pieces that are read in lower case, as questions are often typed. The
        reference keeps its capitals.
    gold_key (str): Span group of the reference docs with the gold links.
    RETURNS (Augmenter): The augmenter, for `[corpora.train.augmenter]`.
    """
    return partial(clip, shortest=shortest, longest=longest, lower=lower, gold_key=gold_key)


def clip(
    nlp: Language, example: Example, *, shortest: int, longest: int, lower: float, gold_key: str
) -> Iterator[Example]:
    """YIELDS (Example): A piece of the example, or all of it if it is short. The settings are those of
    `build_clip_augmenter`.
    """
    reference = example.reference
    spans = gold_spans(reference, key=gold_key)
    length = random.randint(shortest, longest)
    if spans and len(reference) > length:
        centre = random.choice(spans)
        bounds = max(0, centre.end - length), min(centre.start, len(reference) - length)
        start = random.randint(min(bounds), max(bounds))
        example = _clip(nlp, reference, *_widen(start, start + length, spans), spans, gold_key)
    text = example.text.lower()
    # a few capitals are longer as small letters: then gold would not fit any more
    if len(text) == len(example.text) and random.random() < lower:
        example = Example(nlp.make_doc(text), example.reference)
    yield example


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
    return _make_example(nlp, piece.text, reference, inside, places, gold_key)


def add_typo(text: str, rng: Optional[random.Random] = None) -> str:
    """Drop, swap, double or replace one letter inside a text, not its first or last. Short texts stay.

    rng (Optional[random.Random]): What chooses, by default Python's own generator.
    """
    if len(text) < _SHORTEST:
        return text
    source: Any = rng or random
    i = source.randrange(1, len(text) - 1)
    before, letter, after = text[:i], text[i], text[i + 1 :]
    variants = [
        before + after,
        before + after[0] + letter + after[1:],
        before + letter + letter + after,
        before + source.choice(_LETTERS) + after,
    ]
    return source.choice(variants)


def _separate_gold(reference: Doc, gold_key: str) -> List[Span]:
    """RETURNS (List[Span]): The gold links by position, or none where they overlap."""
    spans = sorted(gold_spans(reference, key=gold_key), key=lambda span: span.start)
    return [] if any(a.end > b.start for a, b in pairwise(spans)) else spans


def _misspell(nlp: Language, reference: Doc, spans: List[Span], gold_key: str) -> Example:
    """RETURNS (Example): The question with a typo in each of its mentions."""
    text, at, places = "", 0, []
    for span in spans:
        text += reference.text[at : span.start_char]
        typed = add_typo(span.text)
        places.append((len(text), len(text) + len(typed)))
        text += typed
        at = span.end_char
    return _make_example(nlp, text + reference.text[at:], reference, spans, places, gold_key)


def _make_example(
    nlp: Language,
    text: str,
    reference: Doc,
    spans: List[Span],
    places: List[Tuple[int, int]],
    gold_key: str,
) -> Example:
    """RETURNS (Example): A text made of a reference doc, its gold links at new places."""
    doc = nlp.make_doc(text)
    copies = [
        doc.char_span(*place, label=span.label_, kb_id=span.kb_id_)
        for span, place in zip(spans, places, strict=True)
    ]
    doc.spans[gold_key] = [copy for copy in copies if copy is not None]
    # what is known of the question, such as whether every mention is marked
    doc.user_data.update({key: value for key, value in reference.user_data.items() if isinstance(key, str)})
    return Example(nlp.make_doc(text), doc)
