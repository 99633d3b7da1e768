"""Names as the character network reads them: numbers of characters, between marks, cut to a length."""

import unicodedata

import numpy as np

from ...types import Array

LENGTH = 25
_FIRST, _LAST = " ", "~"
# printable ASCII from 1 on, 0 for nothing, and one number for everything else
UNKNOWN = ord(_LAST) - ord(_FIRST) + 2
COUNT = UNKNOWN + 1
# up to here characters are read without their accents
_KNOWN = 0x250


def _number(character: str) -> int:
    """RETURNS (int): The number of a character, whatever its case and accent."""
    plain = unicodedata.normalize("NFKD", character.lower())[0]
    if plain.isspace():
        plain = _FIRST
    return ord(plain) - ord(_FIRST) + 1 if _FIRST <= plain <= _LAST else UNKNOWN


_NUMBERS = np.asarray([*(_number(chr(code)) for code in range(_KNOWN)), UNKNOWN], dtype="uint8")
_BEGIN, _END = _number("<"), _number(">")


def encode_characters(text: str, begins: Array, ends: Array) -> Array:
    """Number the characters of parts of a text, `<` before each and `>` behind it, as far as they fit.

    begins, ends (Array): (parts,) half-open ranges of characters.
    RETURNS (Array): (parts, LENGTH) uint8, filled up with 0.
    """
    codes = np.frombuffer(text.encode("utf-32-le", "surrogatepass"), dtype="<u4")
    numbers = np.append(_NUMBERS[np.minimum(codes, _KNOWN)], np.uint8(0))
    lengths = np.minimum(ends - begins, LENGTH - 1)
    inside = np.arange(LENGTH - 1) < lengths[:, None]
    places = np.where(inside, begins[:, None] + np.arange(LENGTH - 1), len(numbers) - 1)
    encoded = np.concatenate([np.full((len(begins), 1), _BEGIN, dtype="uint8"), numbers[places]], axis=1)
    short = np.flatnonzero(lengths < LENGTH - 1)
    encoded[short, lengths[short] + 1] = _END
    return encoded
