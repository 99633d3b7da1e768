"""Word pieces: what text they are made of, and arrays of them: how they are padded, aligned to tokens, and
grouped by length.
"""

import unicodedata
from itertools import accumulate
from typing import Any, List, Optional, Sequence

import numpy as np
from spacy.attrs import IDX
from spacy.tokens import Span, Token
from thinc.types import Ragged

from ..types import Array

# symbols and what changes them: skin tones, variation selectors, joiners
_SYMBOLS = {"So", "Sk", "Mn", "Cf"}


def pad(lists: List[List[int]], longest: int, value: int) -> Any:
    """RETURNS (Any): (lists, longest) int64, filled up with a value."""
    if len(lists) == 1:
        return np.asarray(lists, dtype="int64")
    array = np.full((len(lists), longest), value, dtype="int64")
    for row, numbers in zip(array, lists, strict=True):
        row[: len(numbers)] = numbers
    return array


def visible_text(span: Span) -> str:
    """RETURNS (str): The text of a window, as long as it is. Emoji and other symbols are blanked if they
    touch a word but are tokens of their own: of "\U0001f600paris", BERT's word pieces would see neither.
    """
    text = span.text
    if text.isascii():
        return text
    characters = list(text)
    for token in filter(_is_symbol, span):
        before, after = (span.doc[i] if 0 <= i < len(span.doc) else None for i in (token.i - 1, token.i + 1))
        if _sticks(before, token) or _sticks(token, after):
            start = token.idx - span.start_char
            characters[start : start + len(token)] = " " * len(token)
    return "".join(characters)


def _is_symbol(token: Token) -> bool:
    return all(unicodedata.category(character) in _SYMBOLS for character in token.text)


def _sticks(left: Optional[Token], right: Optional[Token]) -> bool:
    """RETURNS (bool): Whether there is no space between two tokens, and one has a letter or digit."""
    if left is None or right is None or left.whitespace_:
        return False
    return any(map(str.isalnum, left.text + right.text))


def align_tokens(spans: List[List[Span]], windows: List[Span], offsets: List[Array]) -> Ragged:
    """Align the tokens of docs to word pieces.

    A piece belongs to every token of which it has a character; the space behind a token is the token's.

    spans, windows (List[List[Span]], List[Span]): The windows, by doc and one after the other.
    offsets (List[Array]): The characters of the pieces of each window.
    RETURNS (Ragged): The places of the pieces of every token, ascending, in the padded batch.
    """
    # the characters of the docs that have windows are counted on, so that one search finds all tokens
    docs = [own[0].doc for own in spans if own]
    ends_of_docs = accumulate((len(doc.text) + 1 for doc in docs), initial=0)
    origins = dict(zip(map(id, docs), ends_of_docs, strict=False))
    tokens = np.concatenate([origins[id(doc)] + doc.to_array(IDX).astype("int64") for doc in docs])
    counts = [len(own) for own in offsets]
    origin = np.repeat([origins[id(span.doc)] + span.start_char for span in windows], counts)
    begins, ends = np.concatenate(offsets).T
    firsts = range(0, len(counts) * max(counts), max(counts))
    places = np.concatenate([np.arange(i, i + count) for i, count in zip(firsts, counts, strict=True)])
    real = ends > begins
    first = np.searchsorted(tokens, (origin + begins)[real], side="right") - 1
    last = np.searchsorted(tokens, (origin + ends - 1)[real], side="right") - 1
    owners, places = first, places[real]
    if (first != last).any():
        shares = last - first + 1
        owners, places = np.repeat(first, shares), np.repeat(places, shares)
        owners += np.arange(len(owners)) - np.repeat(np.cumsum(shares) - shares, shares)
    order = np.argsort(owners, kind="stable")
    data: Any = places[order].astype("int32")
    lengths: Any = np.bincount(owners, minlength=len(tokens)).astype("int32")
    return Ragged(data, lengths)


def group_by_length(lengths: Sequence[int], cost_of_pass: int) -> List[List[int]]:
    """Divide texts into groups that are run together so that all passes cost least.

    lengths (Sequence[int]): The word pieces of each text.
    cost_of_pass (int): What each group costs beside its word pieces, counted in them.
    RETURNS (List[List[int]]): The positions of the texts of each group, longer ones first.
    """
    order = np.argsort(lengths, kind="stable")
    ascending = np.asarray(lengths)[order]
    costs, cuts = np.zeros(len(order) + 1), [0]
    for end in range(1, len(order) + 1):
        options = costs[:end] + np.arange(end, 0, -1) * ascending[end - 1]
        cuts.append(int(options.argmin()))
        costs[end] = options[cuts[-1]] + cost_of_pass
    groups, end = [], len(order)
    while end:
        groups.append(order[cuts[end] : end].tolist())
        end = cuts[end]
    return groups
