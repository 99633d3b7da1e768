"""A tokenizer that splits where BERT's does before word pieces: at whitespace, and around punctuation and
Chinese characters. With it a token is what a published ELQ model calls a word.
"""

from typing import Callable, List

from spacy.language import Language
from spacy.tokens import Doc
from spacy.util import DummyTokenizer, get_words_and_spaces
from spacy.vocab import Vocab
from tokenizers import PreTokenizedString
from tokenizers.normalizers import BertNormalizer
from tokenizers.pre_tokenizers import BertPreTokenizer

# puts spaces around Chinese characters; the rest of the text stays as it is
_NORMALIZER = BertNormalizer(
    clean_text=False, handle_chinese_chars=True, strip_accents=False, lowercase=False
)
_PRE_TOKENIZER = BertPreTokenizer()


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
