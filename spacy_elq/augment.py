"""Augmenters for training corpora: the same questions as hurried people type them."""

import random
from itertools import pairwise
from typing import Callable, Iterator, List, Tuple

from spacy.language import Language
from spacy.tokens import Doc, Span
from spacy.training import Example

from .gold import GOLD_KEY, gold_spans

_LETTERS = "abcdefghijklmnopqrstuvwxyz"
_SHORTEST = 4


def build_typo_augmenter(
    level: float = 0.2, gold_key: str = GOLD_KEY
) -> Callable[[Language, Example], Iterator[Example]]:
    """Build a corpus augmenter that misspells names.

    level (float): Share of the questions with gold links that get a typo in each of their mentions.
    gold_key (str): Span group of the reference docs with the gold links.
    RETURNS (Callable): The augmenter, for `[corpora.train.augmenter]`.
    """

    def augment(nlp: Language, example: Example) -> Iterator[Example]:
        spans = sorted(gold_spans(example.reference, key=gold_key), key=lambda span: span.start)
        overlap = any(a.end > b.start for a, b in pairwise(spans))
        if not spans or overlap or random.random() >= level:
            yield example
        else:
            yield _misspell(nlp, example.reference, spans, gold_key)

    return augment


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


def _misspell(nlp: Language, reference: Doc, spans: List[Span], gold_key: str) -> Example:
    text, at, places = "", 0, []
    for span in spans:
        text += reference.text[at : span.start_char]
        typed = add_typo(span.text)
        places.append((len(text), len(text) + len(typed)))
        text += typed
        at = span.end_char
    doc = nlp.make_doc(text + reference.text[at:])
    doc.spans[gold_key] = _copy_gold(doc, spans, places)
    # what is known of the question, such as whether every mention is marked
    doc.user_data.update({key: value for key, value in reference.user_data.items() if isinstance(key, str)})
    return Example(nlp.make_doc(doc.text), doc)


def _copy_gold(doc: Doc, spans: List[Span], places: List[Tuple[int, int]]) -> List[Span]:
    copies = [
        doc.char_span(*place, label=span.label_, kb_id=span.kb_id_)
        for span, place in zip(spans, places, strict=True)
    ]
    return [copy for copy in copies if copy is not None]
