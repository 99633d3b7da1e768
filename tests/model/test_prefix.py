from functools import partial

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers
from transformers import AutoTokenizer, PreTrainedTokenizerFast

from spacy_elq.model import prefix
from spacy_elq.model.entity_encoder import _begin
from spacy_elq.model.prefix import first_pieces

CORPUS = ["the city of light is the capital of france", "a  big cat\n\nor car's", "中文字符 和 日本語"] * 5
# runs that are no word piece, that become another one with their neighbours, or that are one together
PARTS = [
    *("a", "the", " ", "  ", "\n", "\t\t", "\u00a0", "\u3000", "\u200b", "\u0000", "中", "文字", "日本語"),
    *(
        "e\u0301",
        "\u0301",
        "é",
        "👩‍🚀",
        "🇫🇷",
        "한글",
        "\u1112\u1161",
        ".",
        "'",
        "'s",
        "--",
        "capital of france",
    ),
    *("[SEP]", "[SE", "P]", "[unused2]", "<mask>", "<ma", "ﬁ", "İ", "Σ", "\u202e", "x" * 40),
]
texts = st.lists(
    st.one_of(
        st.sampled_from(PARTS),
        st.text(max_size=6),
        st.builds(lambda part, times: part * times, st.sampled_from(PARTS), st.integers(1, 90)),
    ),
    max_size=12,
).map("".join)


def train_bytes():
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=320, initial_alphabet=alphabet, special_tokens=["<mask>"])
    tokenizer.train_from_iterator(CORPUS, trainer)
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, mask_token="<mask>")


def train_unigram():
    tokenizer = Tokenizer(models.Unigram())
    tokenizer.normalizer = normalizers.NFKC()
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    trainer = trainers.UnigramTrainer(vocab_size=80, special_tokens=["<unk>", "<mask>"], unk_token="<unk>")
    tokenizer.train_from_iterator(CORPUS, trainer)
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, unk_token="<unk>", mask_token="<mask>")


@pytest.fixture(scope="module", params=["bert", "bytes", "unigram"])
def tokenizer(request, encoder_path):
    if request.param == "bert":
        return AutoTokenizer.from_pretrained(encoder_path)
    return train_bytes() if request.param == "bytes" else train_unigram()


def plain(tokenizer, text, count):
    return tokenizer(text, add_special_tokens=False, verbose=False)["input_ids"][:count]


def begin(text):
    return lambda size: text[:size]


@given(text=texts, count=st.integers(1, 12), characters=st.integers(1, 4))
@settings(max_examples=400)
def test_pieces_are_those_of_the_whole_text(tokenizer, text, count, characters):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(prefix, "_CHARACTERS", characters)
        patch.setattr(prefix, "_MORE", 2)
        assert first_pieces(tokenizer, [begin(text)], count) == [plain(tokenizer, text, count)]


class Counting:
    """A tokenizer that counts the characters it gets."""

    def __init__(self, tokenizer):
        self._tokenizer = tokenizer
        self.characters = 0

    def __call__(self, texts, **options):
        self.characters += sum(map(len, texts))
        return self._tokenizer(texts, **options)

    def __getattr__(self, name):
        return getattr(self._tokenizer, name)


@pytest.mark.parametrize("part", ["the city of light ", "中文", "a b\n"])
def test_of_a_long_text_only_the_beginning_is_tokenized(encoder_path, part):
    counting = Counting(AutoTokenizer.from_pretrained(encoder_path))
    text = part * (10_000_000 // len(part))
    (pieces,) = first_pieces(counting, [begin(text)], 46)
    assert counting.characters <= 16 * 46
    assert pieces == plain(counting, text[:10_000], 46)
    assert len(pieces) == 46


def test_more_is_tokenized_of_those_texts_that_need_it(encoder_path):
    counting = Counting(AutoTokenizer.from_pretrained(encoder_path))
    empty = " " * 1000 + "paris " * 1000
    pieces = first_pieces(counting, [begin(x) for x in ("city " * 1000, empty, "texas")], 10)
    assert counting.characters == 160 + 160 + 5 + 640 + 2560
    assert pieces == [plain(counting, x, 10) for x in ("city " * 10, "paris " * 10, "texas")]


def test_no_texts(encoder_path):
    assert first_pieces(AutoTokenizer.from_pretrained(encoder_path), [], 10) == []


# The text of an entity


@given(aliases=st.lists(st.text(max_size=5)), description=st.text(max_size=9), size=st.integers(1, 30))
def test_the_beginning_of_a_text_is_that_of_all_of_it(aliases, description, size):
    text = f"{', '.join(aliases)}. {description}" if aliases else description
    assert _begin(aliases, description, size) == text[:size]


def test_of_many_aliases_only_the_first_are_joined():
    class Aliases:
        seen = 0

        def __iter__(self):
            while True:
                self.seen += 1
                yield "name"

    aliases = Aliases()
    assert partial(_begin, aliases, "")(60) == "name, " * 10
    assert aliases.seen < 15
