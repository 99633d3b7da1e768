"""How names are compared: what people type, spellings that sound alike, the names of an entity."""

import hashlib
import re
import unicodedata
from typing import Dict, List, Set, Tuple

from .types import Entity

_WORD = re.compile(r"\w+")
ARTICLES = ("the", "a", "an")
_SHORTEST_SKELETON = 3
_NO_VOWELS = str.maketrans("", "", "aeiouhwy")
_RUN = re.compile(r"([^\W\d])\1+")  # of letters, not digits
_MARK = re.compile(r"\s*\([^()]*\)$")


def normalize_name(text: str) -> str:
    """Reduce a name to what people type: lower case, no accents, no punctuation, no article in front.

    RETURNS (str): The normalized name, or "" if nothing is left.
    """
    words = [word for word, _, _ in find_words(text)]
    return " ".join(words[1:] if len(words) > 1 and words[0] in ARTICLES else words)


def find_words(text: str) -> List[Tuple[str, int, int]]:
    """Find the words of a text as names are compared by them: lower case, no accents, no punctuation.

    RETURNS (List[Tuple[str, int, int]]): Each word, and the half-open range of characters where it stands.
    """
    lowered = text.lower()
    if lowered.isascii():
        return [(match[0], *match.span()) for match in _WORD.finditer(lowered)]
    # a character may become several in lower case, or without its accent, and each must know its origin
    characters = lowered if len(lowered) == len(text) else map(str.lower, text)
    plain = [
        (part, origin)
        for origin, character in enumerate(characters)
        for part in unicodedata.normalize("NFKD", character)
        if not unicodedata.combining(part)
    ]
    return [
        (match[0], plain[match.start()][1], plain[match.end() - 1][1] + 1)
        for match in _WORD.finditer("".join(part for part, _ in plain))
    ]


def skeleton(name: str) -> str:
    """Reduce a normalized name to what most typos leave as it is: the first letter and the consonants, runs
    as one, no spaces. "frieda kalo" and "frida kahlo" have one skeleton.

    RETURNS (str): The skeleton, or "" where it is too short to tell names apart.
    """
    joined = name.replace(" ", "")
    collapsed = _RUN.sub(r"\1", joined[:1] + joined[1:].translate(_NO_VOWELS))
    return collapsed if len(collapsed) >= _SHORTEST_SKELETON else ""


def entity_names(entity: Entity) -> Set[str]:
    """RETURNS (Set[str]): The normalized names of an entity: its title, the title without what only tells
    it apart (in parentheses or behind a comma), and its aliases.
    """
    title = entity.title
    names = {title, _MARK.sub("", title), title.split(",")[0], *entity.aliases}
    return {name for name in map(normalize_name, names) if name}


def as_written(text: str) -> str:
    """RETURNS (str): A name with its punctuation, to be compared to the letter: only case, spaces and kinds
    of quotation marks do not count.
    """
    return "".join(text.casefold().replace("\u2019", "'").split())


def typed_names(entity: Entity) -> List[str]:
    """RETURNS (List[str]): The names of an entity as people may type them, each once: its title without what
    is in parentheses at the end, that without what is behind a comma, and its aliases.
    """
    title = _MARK.sub("", entity.title) or entity.title
    names = [" ".join(name.split()) for name in (title, title.split(",")[0], *entity.aliases)]
    firsts: Dict[str, str] = {}
    for name in names:
        firsts.setdefault(normalize_name(name), name)
    return list(firsts.values())


def hash_text(text: str, *, signed: bool = False) -> int:
    """RETURNS (int): 64 bits by which a text is looked up in a table."""
    digest = hashlib.blake2b(text.encode("utf8"), digest_size=8).digest()
    return int.from_bytes(digest, "little", signed=signed)
