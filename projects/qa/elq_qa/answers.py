"""When an answer counts: exact match as SQuAD has it, and whether a passage contains an answer as DrQA has
it.
"""

import re
import string
import unicodedata
from typing import Iterable, Iterator, Sequence, Tuple

import regex

_ARTICLES = re.compile(r"\b(a|an|the)\b")
_NO_PUNCTUATION = str.maketrans("", "", string.punctuation)
_TOKEN = regex.compile(r"[\p{L}\p{N}\p{M}]+|[^\p{Z}\p{C}]")


def normalize_answer(text: str) -> str:
    """RETURNS (str): A text in lower case, without punctuation and articles, with single spaces."""
    return " ".join(_ARTICLES.sub(" ", text.lower().translate(_NO_PUNCTUATION)).split())


def is_exact(found: str, answers: Iterable[str]) -> bool:
    """RETURNS (bool): Whether an answer that was found is one of those that count."""
    return normalize_answer(found) in map(normalize_answer, answers)


def tokenize(text: str) -> str:
    """RETURNS (str): The tokens of a text in lower case, with a space around each, for `has_answer`."""
    tokens = _TOKEN.findall(_plain(text))
    return f" {' '.join(tokens)} "


def has_answer(passage: str, answers: Sequence[str]) -> bool:
    """RETURNS (bool): Whether the tokens of an answer are in a passage, one after the other.

    passage (str): What `tokenize` returns.
    answers (Sequence[str]): The same of each answer. One without tokens is in no passage.
    """
    return any(answer in passage for answer in answers if answer.strip())


def find_spans(text: str, answers: Iterable[str]) -> Iterator[Tuple[int, int]]:
    """YIELDS (Tuple[int, int]): Where answers are in a text, by tokens as in `has_answer`: characters,
    half-open.
    """
    matches = list(_TOKEN.finditer(text))
    tokens = [_plain(match[0]) for match in matches]
    wanted = {tuple(tokenize(answer).split()) for answer in answers} - {()}
    for size in sorted({len(own) for own in wanted}):
        for i in range(len(tokens) - size + 1):
            if tuple(tokens[i : i + size]) in wanted:
                yield matches[i].start(), matches[i + size - 1].end()


def _plain(text: str) -> str:
    return (text if text.isascii() else unicodedata.normalize("NFD", text)).lower()
