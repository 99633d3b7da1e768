"""A tokenizer that cuts where BERT's does before word pieces: at blanks, and around punctuation and Chinese
characters. With it a token is what a published ELQ model calls a word.
"""

import re
import unicodedata
from functools import lru_cache
from typing import Callable, List

from spacy.language import Language
from spacy.tokens import Doc
from spacy.util import DummyTokenizer, get_words_and_spaces
from spacy.vocab import Vocab

_CHINESE = (
    (0x4E00, 0x9FFF),
    (0x3400, 0x4DBF),
    (0x20000, 0x2A6DF),
    (0x2A700, 0x2B73F),
    (0x2B740, 0x2B81F),
    (0x2B820, 0x2CEAF),
    (0xF900, 0xFAFF),
    (0x2F800, 0x2FA1F),
)


def _is_punctuation(char: str) -> bool:
    code = ord(char)
    return (code < 128 and char.isprintable() and not char.isalnum() and char != " ") or (
        unicodedata.category(char).startswith("P")
    )


@lru_cache(maxsize=1)
def _word_pattern() -> "re.Pattern[str]":
    """RETURNS (re.Pattern[str]): Finds the words of a text."""
    # there is no punctuation beyond the second plane
    single = "".join(re.escape(chr(code)) for code in range(0x20000) if _is_punctuation(chr(code)))
    single += "".join(f"{chr(first)}-{chr(last)}" for first, last in _CHINESE)
    return re.compile(rf"[{single}]|[^\s{single}]+")


def split_words(text: str) -> List[str]:
    """RETURNS (List[str]): The words of a text as BERT counts them, as they are written."""
    return _word_pattern().findall(text)


class BertTokenizer(DummyTokenizer):
    """Gives docs whose tokens are BERT's words, and blanks where a text has more than one in a row."""

    def __init__(self, vocab: Vocab) -> None:
        """Make the tokenizer. It has no settings."""
        self.vocab = vocab

    def __call__(self, text: str) -> Doc:
        """RETURNS (Doc): The text in tokens."""
        words, spaces = get_words_and_spaces(split_words(text), text)
        return Doc(self.vocab, words=words, spaces=spaces)


def build_bert_tokenizer() -> Callable[[Language], BertTokenizer]:
    """Build `spacy-elq.BertTokenizer.v1` for `[nlp.tokenizer]`.

    RETURNS (Callable[[Language], BertTokenizer]): Makes the tokenizer of a pipeline.
    """
    return lambda nlp: BertTokenizer(nlp.vocab)
