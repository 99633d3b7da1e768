"""Where mentions may begin and end: at words, not at punctuation, emoji, addresses or markup."""

import re
from functools import lru_cache
from typing import List, Sequence

import numpy as np
from spacy.attrs import IDX, LIKE_EMAIL, LIKE_URL
from spacy.tokens import Doc

from ..index import AnyIndex
from ..names import ARTICLES, as_written
from ..types import Array

_POSSESSIVES = ("'s", "\u2019s", "'", "\u2019")
# what a token is: a word, an article, no word, a possessive ending, an address, a part of a tag or comment
_WORD, _ARTICLE, _NO_WORD, _POSSESSIVE, _ADDRESS, _MARKUP = range(6)
_TAG = re.compile(r"<!--.*?-->|</?[A-Za-z][^<>]*>", re.DOTALL)


def token_kinds(docs: Sequence[Doc]) -> Array:
    """RETURNS (Array): (tokens,) what each token of a batch is."""
    kinds = np.asarray([_kind(token.text) for doc in docs for token in doc], dtype="int8")
    addresses = np.concatenate([doc.to_array([LIKE_URL, LIKE_EMAIL]).any(axis=1) for doc in docs if len(doc)])
    kinds[addresses] = _ADDRESS
    if any("<" in doc.text for doc in docs):
        kinds[np.concatenate([_are_markup(doc) for doc in docs])] = _MARKUP
    return kinds


def _are_markup(doc: Doc) -> Array:
    """RETURNS (Array): (tokens,) whether each begins in a tag or comment."""
    starts, is_inside = doc.to_array(IDX).astype("int64"), np.zeros(len(doc), dtype=bool)
    for tag in _TAG.finditer(doc.text):
        is_inside |= (starts >= tag.start()) & (starts < tag.end())
    return is_inside


@lru_cache(maxsize=100_000)
def _kind(text: str) -> int:
    if text.lower() in _POSSESSIVES:
        return _POSSESSIVE
    if text.lower() in ARTICLES:
        return _ARTICLE
    return _WORD if any(character.isalnum() for character in text) else _NO_WORD


def are_sound(kinds: Array, spans: Array) -> Array:
    """RETURNS (Array): (spans,) whether a span begins and ends with a word, and has no address or markup in
    it.
    """
    first, last = kinds[spans[:, 0]], kinds[spans[:, 1] - 1]
    barriers = np.concatenate([[0], np.cumsum(kinds >= _ADDRESS)])
    is_free = barriers[spans[:, 1]] == barriers[spans[:, 0]]
    return is_free & (first <= _ARTICLE) & (last <= _ARTICLE)


def begin_with_article(kinds: Array, spans: Array) -> Array:
    """RETURNS (Array): (spans,) whether the first token of a span is an article."""
    # a doc without tokens at the end of a batch begins behind the last token
    return np.append(kinds, _NO_WORD)[spans[:, 0]] == _ARTICLE


def count_words(kinds: Array, spans: Array) -> Array:
    """RETURNS (Array): (spans,) how many of the tokens of a span are words, without an article in front, as
    names are compared.
    """
    words = np.concatenate([[0], np.cumsum((kinds <= _ARTICLE) | (kinds == _ADDRESS))])
    return words[spans[:, 1]] - words[spans[:, 0]] - begin_with_article(kinds, spans)


def are_texts(kinds: Array, spans: Array, lengths: Array) -> Array:
    """RETURNS (Array): (spans,) whether a span has all words of its doc."""
    ends = np.cumsum(lengths)
    whole = np.stack([ends - lengths, ends], axis=1)
    owners = np.searchsorted(ends, spans[:, 0], side="right")
    return count_words(kinds, spans) == count_words(kinds, whole)[owners]


def are_written_so(index: AnyIndex, texts: List[str]) -> Array:
    """RETURNS (Array): (texts,) whether a text is a name in the catalogue to the letter, punctuation
    included; only case and spaces may differ.
    """
    found = np.zeros(len(texts), dtype=bool)
    owners, positions, _ = index.match_names(texts)
    for owner, position in zip(owners.tolist(), positions.tolist(), strict=True):
        if not found[owner]:
            entity = index.entity(position)
            names = {as_written(name) for name in (entity.title, *entity.aliases)}
            found[owner] = as_written(texts[owner]) in names
    return found
