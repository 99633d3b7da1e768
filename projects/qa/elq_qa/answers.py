"""When an answer counts: exact match as SQuAD has it, and whether a passage contains an answer as DrQA has it."""

import re
import string
import unicodedata
from typing import Iterable, Sequence

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
    tokens = _TOKEN.findall(unicodedata.normalize("NFD", text).lower())
    return f" {' '.join(tokens)} "


def has_answer(passage: str, answers: Sequence[str]) -> bool:
    """RETURNS (bool): Whether the tokens of an answer are in a passage, one after the other.

    passage (str): What `tokenize` returns.
    answers (Sequence[str]): The same of each answer. One without tokens is in no passage.
    """
    return any(answer in passage for answer in answers if answer.strip())
