import unicodedata

import pytest
import spacy
from hypothesis import given
from hypothesis import strategies as st
from transformers.models.bert.tokenization_bert import BasicTokenizer

from spacy_elq.pipeline.tokenizer import BertTokenizer, split_words

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


@given(st.text(st.characters(codec="utf-8", exclude_categories=("C", "Zl", "Zp")), max_size=40))
def test_words_are_those_of_bert(text):
    # BERT brings characters into their composed form first, which is not ours to do with a text
    text = unicodedata.normalize("NFC", text)
    assert split_words(text) == BasicTokenizer(do_lower_case=False, strip_accents=False).tokenize(text)


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
