"""The first word pieces of texts of any length: what cannot become one of them is not tokenized."""

from typing import Any, Callable, List, Sequence

# gives the first characters of a text, as many as asked for
Text = Callable[[int], str]
# characters per word piece that are tokenized first; where they do not suffice, this many times more
_CHARACTERS = 16
_MORE = 4


def first_pieces(tokenizer: Any, texts: Sequence[Text], count: int) -> List[List[int]]:
    """Tokenize the beginning of texts.

    tokenizer (Any): A fast tokenizer of transformers.
    texts (Sequence[Text]): The texts.
    count (int): How many word pieces are needed.
    RETURNS (List[List[int]]): The first word pieces of each text, the same as if all of it were tokenized.
    """
    pieces: List[List[int]] = [[] for _ in texts]
    missing, size = list(range(len(texts))), _CHARACTERS * count
    margin = max(map(len, tokenizer.get_added_vocab()), default=0)
    while missing:
        # one more, to see whether there is more
        beginnings = [texts[i](size + 1) for i in missing]
        encoded = tokenizer([text[:size] for text in beginnings], add_special_tokens=False, verbose=False)
        short = []
        for i, text, encoding in zip(missing, beginnings, encoded.encodings, strict=True):
            known = len(encoding.ids) if len(text) <= size else _count_known(encoding, size - margin)
            pieces[i] = encoding.ids[: min(count, known)]
            if known < count and len(text) > size:
                short.append(i)
        missing, size = short, size * _MORE
    return pieces


def _count_known(encoding: Any, end: int) -> int:
    """Words are tokenized one by one, so that a cut changes the word it is in, or a special token.

    end (int): Where the first special token could begin that the cut has destroyed.
    RETURNS (int): How many pieces of a text that was cut do not depend on what follows.
    """
    words, offsets = encoding.word_ids, encoding.offsets
    known = len(words)
    while known and (words[known - 1] == words[-1] or offsets[known - 1][1] > end):
        known -= 1
    return known
