from itertools import combinations

import pytest
import spacy
from hypothesis import given
from hypothesis import strategies as st

from spacy_elq.model.wordpieces import group_by_length, visible_text


@pytest.mark.parametrize(
    ("text", "visible"),
    [
        ("\U0001f600paris is big", " paris is big"),
        ("is paris\U0001f44d\U0001f3fd old", "is paris \U0001f3fd old"),
        ("\u2764\ufe0fparis", " \ufe0fparis"),
        ("nimbus\u2122 9", "nimbus  9"),
        # these stand alone
        ("(\U0001f600)", "(\U0001f600)"),
        ("\U0001f600 paris \U0001f600", "\U0001f600 paris \U0001f600"),
        ("caf\xe9 5\u20ac in \u6771\u4eac", "caf\xe9 5\u20ac in \u6771\u4eac"),
    ],
)
def test_emoji_that_touch_a_word_are_blanked(text, visible):
    doc = spacy.blank("en").make_doc(text)
    assert visible_text(doc[:]) == visible


@given(st.text(max_size=30))
def test_a_text_stays_as_long_as_it_is(text):
    doc = spacy.blank("en").make_doc(text)
    visible = visible_text(doc[:])
    assert len(visible) == len(doc[:].text)
    assert all(new in (old, " ") for new, old in zip(visible, doc[:].text, strict=True))


def cost(groups, lengths):
    return sum(len(group) * max(lengths[i] for i in group) + 32 for group in groups)


@given(st.lists(st.integers(1, 60), min_size=1, max_size=7))
def test_groups_cost_least(lengths):
    groups = group_by_length(lengths, 32)
    assert sorted(i for group in groups for i in group) == list(range(len(lengths)))
    ascending = sorted(range(len(lengths)), key=lengths.__getitem__)
    options = [
        [ascending[a:b] for a, b in zip((0, *cuts), (*cuts, len(lengths)), strict=True)]
        for n in range(len(lengths))
        for cuts in combinations(range(1, len(lengths)), n)
    ]
    assert cost(groups, lengths) == min(cost(option, lengths) for option in options)
