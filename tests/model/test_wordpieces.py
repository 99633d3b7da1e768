from itertools import combinations

from hypothesis import given
from hypothesis import strategies as st

from spacy_elq.model.wordpieces import group_by_length


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
