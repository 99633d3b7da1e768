import pickle
import unicodedata

import pytest
import spacy
from hypothesis import given
from hypothesis import strategies as st
from transformers import BertTokenizerFast
from transformers.models.bert.tokenization_bert import BasicTokenizer

from spacy_elq.pipeline.tokenizer import BertTokenizer, make_bert_tokenizer, split_words

WORDS = [
    ("who wrote it", ["who", "wrote", "it"]),
    ("D'Mal K. Nia's", ["D", "'", "Mal", "K", ".", "Nia", "'", "s"]),
    ("U.S.A.", ["U", ".", "S", ".", "A", "."]),
    ("rock-n-roll $5 a+b", ["rock", "-", "n", "-", "roll", "$", "5", "a", "+", "b"]),
    ("北京 in 2008", ["北", "京", "in", "2008"]),
    ("“quoted” — so", ["“", "quoted", "”", "—", "so"]),
    ("café 😀!", ["café", "😀", "!"]),
    ("", []),
]


@pytest.mark.parametrize(("text", "words"), WORDS)
def test_words(text, words):
    assert split_words(text) == words


def is_old(char):
    """RETURNS: Whether a character has had its category since Unicode 3.2, as tokenizers has older tables."""
    category = unicodedata.category(char)
    return category == unicodedata.ucd_3_2_0.category(char) and category[0] != "C" and char != "\ufffd"


@given(
    st.text(st.characters(codec="utf-8", exclude_categories=("C", "Zl", "Zp")).filter(is_old), max_size=40)
)
def test_words_are_those_of_bert(text):
    # BERT brings characters into their composed form first, which is not ours to do with a text
    text = unicodedata.normalize("NFC", text)
    assert split_words(text) == BasicTokenizer(do_lower_case=False, strip_accents=False).tokenize(text)


@pytest.fixture(scope="module")
def cased(encoder_path):
    """RETURNS: The tokenizer of a BERT that tells upper from lower case, without its word pieces."""
    vocab = str(encoder_path / "vocab.txt")
    return BertTokenizerFast(vocab, do_lower_case=False, strip_accents=False).backend_tokenizer


@given(st.text(max_size=40))
def test_words_are_those_of_the_fast_tokenizer(cased, text):
    # BERT leaves control characters out, which is not ours to do with a text
    text = "".join(char for char in text if cased.normalizer.normalize_str(f"a{char}b") != "ab")
    found = cased.pre_tokenizer.pre_tokenize_str(cased.normalizer.normalize_str(text))
    assert split_words(text) == [word for word, _ in found]


def test_it_can_be_pickled():
    tokenizer = pickle.loads(pickle.dumps(make_bert_tokenizer))(spacy.blank("en"))
    assert [token.text for token in pickle.loads(pickle.dumps(tokenizer))("a-b")] == ["a", "-", "b"]


@given(st.text(max_size=30))
def test_the_text_stays_as_it_is(text):
    assert BertTokenizer(spacy.blank("en").vocab)(text).text == text


def test_a_pipeline_with_it_survives_the_disk(tmp_path):
    config = {"nlp": {"tokenizer": {"@tokenizers": "spacy-elq.BertTokenizer.v1"}}}
    nlp = spacy.blank("en", config=config)
    nlp.to_disk(tmp_path / "nlp")
    loaded = spacy.load(tmp_path / "nlp")
    assert [token.text for token in loaded("isn't it")] == ["isn", "'", "t", "it"]
    assert [doc.text for doc in loaded.pipe(["a-b", "c"])] == ["a-b", "c"]


@pytest.mark.parametrize(
    ("text", "tokens"),
    [
        ("<b>paris</b> hotels", ["<", "b", ">", "paris", "<", "/b", ">", "hotels"]),
        ("<a href='x'>mount everest</a>", ["<", "a", "href='x'", ">", "mount", "everest", "<", "/a", ">"]),
        ("<p>is paris old?</p>", ["<", "p", ">", "is", "paris", "old", "?", "<", "/p", ">"]),
        ("a brick 20K. or a B&B.", ["a", "brick", "20", "K", ".", "or", "a", "B&B", "."]),
        ("vitamin C. is 12/B. or c.", ["vitamin", "C", ".", "is", "12", "/", "B", ".", "or", "c", "."]),
        ("ToS. of B and C GmbH.", ["ToS", ".", "of", "B", "and", "C", "GmbH", "."]),
        ("@nasa me@x.org st. 5.", ["@", "nasa", "me@x.org", "st", ".", "5", "."]),
        (
            "rome(italy) [paris](x) a|b",
            ["rome", "(", "italy", ")", "[", "paris", "](", "x", ")", "a", "|", "b"],
        ),
        ("\u200bparis\u200b new\u200byork", ["\u200b", "paris", "\u200b", "new", "\u200b", "york"]),
        ("in the U.S. or e.g. at 3 p.m.", ["in", "the", "U.S.", "or", "e.g.", "at", "3", "p.m."]),
        ("C++ in paris, i <3 it!", ["C++", "in", "paris", ",", "i", "<3", "it", "!"]),
    ],
)
def test_tags_do_not_stick_to_words(text, tokens, tmp_path):
    nlp = spacy.blank("en", config={"nlp": {"tokenizer": {"@tokenizers": "spacy-elq.MarkupTokenizer.v1"}}})
    assert [token.text for token in nlp(text)] == tokens
    nlp.to_disk(tmp_path)
    assert [token.text for token in spacy.load(tmp_path)(text)] == tokens
