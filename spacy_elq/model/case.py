"""Capitals as features: most encoders see lower case only, and capitals say much about names where people
type them.
"""

from typing import List, Sequence

import numpy as np
from spacy.tokens import Doc

from ..types import Array, Rows

# Adam moves every weight by about the same, and these shall learn faster than those of the rows
_SCALE = 10.0
_SENTENCE_ENDS = (".", "!", "?", ":", "\u2026")
WIDTH = 2


def row_case(docs: Sequence[Doc], rows: Rows) -> Array:
    """RETURNS (Array): (rows, 2) for each row, whether its token has a capital and whether it has none, where
    that says something: not where a sentence begins, nor in texts without capitals or with nothing else.
    """
    features = np.zeros((len(rows.vectors), WIDTH), dtype="float32")
    tokens = np.asarray([kind for doc in docs for kind in _kinds(doc)], dtype="int64")
    counts = rows.ends - rows.starts
    owners = np.repeat(np.arange(len(tokens)), counts)
    places = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts - rows.starts, counts)
    says = tokens[owners] >= 0
    features[places[says], tokens[owners][says]] = _SCALE
    return features


def _kinds(doc: Doc) -> List[int]:
    """RETURNS (List[int]): 0 for a token with a capital, 1 for one without, -1 where it says nothing."""
    texts = [token.text for token in doc]
    kinds: List[int] = []
    is_first, has_capitals = True, False
    for text in texts:
        if not text[0].isalpha():
            kinds.append(-1)
            is_first = is_first or text in _SENTENCE_ENDS
            continue
        is_small = text == text.lower()
        has_capitals = has_capitals or not is_small
        kinds.append(-1 if is_first else int(is_small))
        is_first = False
    return kinds if has_capitals and 1 in kinds else [-1] * len(texts)
