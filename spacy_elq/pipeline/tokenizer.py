"""Tokenizers. BERT's splits at whitespace, and around punctuation and Chinese characters: with it a token is
what a published ELQ model calls a word. The other is spaCy's own, for text with markup.
"""

import re
from typing import Callable, List

from spacy.language import Language
from spacy.tokenizer import Tokenizer
from spacy.tokens import Doc
from spacy.util import (
    DummyTokenizer,
    compile_infix_regex,
    compile_prefix_regex,
    compile_suffix_regex,
    get_words_and_spaces,
    registry,
)
from spacy.vocab import Vocab
from tokenizers import PreTokenizedString
from tokenizers.normalizers import BertNormalizer
from tokenizers.pre_tokenizers import BertPreTokenizer

# puts spaces around Chinese characters; the rest of the text stays as it is
_NORMALIZER = BertNormalizer(
    clean_text=False, handle_chinese_chars=True, strip_accents=False, lowercase=False
)
_PRE_TOKENIZER = BertPreTokenizer()
# spaCy never splits "c.", with or without capitals
_INITIAL = re.compile(r"[^\W\d_]\.")
# zero-width space and byte order mark
_INVISIBLE = "[\u200b\ufeff]"


def split_words(text: str) -> List[str]:
    """RETURNS (List[str]): BERT's words of a text, exactly as written there."""
    string = PreTokenizedString(text)
    string.normalize(_NORMALIZER.normalize)
    _PRE_TOKENIZER.pre_tokenize(string)
    splits = string.get_splits(offset_referential="original", offset_type="char")
    return [text[start:end] for _, (start, end), _ in splits]


class BertTokenizer(DummyTokenizer):
    """Makes docs whose tokens are BERT's words, plus whitespace tokens for runs of whitespace."""

    def __init__(self, vocab: Vocab) -> None:
        """Make the tokenizer. It has no settings."""
        self.vocab = vocab

    def __call__(self, text: str) -> Doc:
        """RETURNS (Doc): The tokenized text."""
        words, spaces = get_words_and_spaces(split_words(text), text)
        return Doc(self.vocab, words=words, spaces=spaces)


def build_bert_tokenizer() -> Callable[[Language], BertTokenizer]:
    """Tokenize as BERT does before word pieces: at whitespace, and around punctuation and Chinese characters.
    For pipelines made from the published models.

    RETURNS (Callable[[Language], BertTokenizer]): Makes the tokenizer of a pipeline.
    """
    return make_bert_tokenizer


def make_bert_tokenizer(nlp: Language) -> BertTokenizer:
    """RETURNS (BertTokenizer): The tokenizer, with the vocab of a pipeline."""
    return BertTokenizer(nlp.vocab)


def build_markup_tokenizer() -> Callable[[Language], Tokenizer]:
    """Tokenize as spaCy does for the language, and also split at `<` and `>`, so that HTML tags do not stick
    to words, behind "@", at brackets within words, and before a full stop in more cases: "<b>vitamin C.</b>"
    has the tokens "vitamin" and "C".

    RETURNS (Callable[[Language], Tokenizer]): Makes the tokenizer of a pipeline.
    """
    return make_markup_tokenizer


def make_markup_tokenizer(nlp: Language) -> Tokenizer:
    """RETURNS (Tokenizer): spaCy's tokenizer of the language, with more places to split."""
    tokenizer = registry.tokenizers.get("spacy.Tokenizer.v1")()(nlp)
    defaults = nlp.Defaults
    prefixes = [*(defaults.prefixes or ()), "[<>]", _INVISIBLE, r"@(?=\w)"]
    tokenizer.prefix_search = compile_prefix_regex(prefixes).search
    # what ends a sentence in front of a tag is no suffix there; brackets and bars within "rome(italy)|paris"
    infixes = [
        *(defaults.infixes or ()),
        "[<>]",
        "[?!.,;:)](?=<)",
        _INVISIBLE,
        r"[|\])][(\[]|(?<=\w)[|()\[\]](?=\w)",
    ]
    tokenizer.infix_finditer = compile_infix_regex(infixes).finditer
    # spaCy takes "C.", "20K." and "GmbH." for abbreviations; "U.S." is one
    suffixes = [*(defaults.suffixes or ()), "[<>]", _INVISIBLE, r"(?<!\.[^\W\d_])(?<=\w)\."]
    tokenizer.suffix_search = compile_suffix_regex(suffixes).search
    tokenizer.rules = {text: rule for text, rule in tokenizer.rules.items() if not _INITIAL.fullmatch(text)}
    return tokenizer
