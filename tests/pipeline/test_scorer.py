import pytest
import spacy
from hypothesis import given
from hypothesis import strategies as st
from spacy.tokens import Doc, Span
from spacy.training import Example

from spacy_elq.corpora.gold import GOLD_KEY, LOST
from spacy_elq.pipeline.scorer import count_links, find_errors, linker_score, make_linker_scorer, match

VOCAB = spacy.blank("en").vocab
WORDS = list("abcdef")  # without blanks: token i is character i, and neighbours touch


def make_example(gold, found, *, key=GOLD_KEY):
    """`gold` and `found` are (start, end, id) in tokens."""
    reference, predicted = (Doc(VOCAB, words=WORDS, spaces=[False] * len(WORDS)) for _ in range(2))
    reference.spans[key] = [Span(reference, s, e, label="X", kb_id=id_) for s, e, id_ in gold]
    predicted.ents = [Span(predicted, s, e, label="X", kb_id=id_) for s, e, id_ in found]
    return Example(predicted, reference)


def counts(examples, **settings):
    scores = count_links(examples, **settings)
    return {name: (score.tp, score.fp, score.fn) for name, score in scores.items()}


def most_pairs(right, used=frozenset()):
    """The size of a maximum matching, by trying everything."""
    if not right:
        return 0
    choices = [p for p, is_right in enumerate(right[0]) if is_right and p not in used]
    return max([most_pairs(right[1:], used), *(1 + most_pairs(right[1:], used | {p}) for p in choices)])


matrices = st.tuples(st.integers(0, 5), st.integers(0, 5)).flatmap(
    lambda shape: st.tuples(
        st.just(shape[1]),
        st.lists(
            st.lists(st.booleans(), min_size=shape[1], max_size=shape[1]),
            min_size=shape[0],
            max_size=shape[0],
        ),
    )
)


@given(matrices)
def test_match_is_a_maximum_matching(matrix):
    columns, right = matrix
    pairs = match(list(range(len(right))), list(range(columns)), lambda g, p: right[g][p])
    assert all(right[g][p] for g, p in pairs)
    assert len({g for g, _ in pairs}) == len({p for _, p in pairs}) == len(pairs)
    assert len(pairs) == most_pairs(right)
    assert pairs == sorted(pairs)


def test_match_is_not_limited_by_the_stack():
    gold = [(2 * i, 2 * i + 2, "") for i in range(1100)]
    found = [(2 * i + 1, 2 * i + 3, "") for i in range(1100)]
    assert len(match(gold, found, lambda a, b: a[0] < b[1] and b[0] < a[1])) == 1100


cuts = st.lists(st.integers(0, 6), max_size=6).map(lambda x: sorted(set(x)))
ids = st.sampled_from(["E1", "E2"])
apart = st.tuples(cuts, st.lists(ids, min_size=6, max_size=6)).map(
    lambda x: [(s, e, id_) for s, e, id_ in zip(x[0], x[0][1:], x[1], strict=False)]
)
overlapping = st.lists(
    st.tuples(st.integers(0, 5), st.integers(1, 6), ids).filter(lambda x: x[0] < x[1]), max_size=5
)


@given(overlapping, apart)
def test_counts_add_up_and_never_exceed(gold, found):
    scores = counts([make_example(gold, found)])
    for tp, fp, fn in scores.values():
        assert tp + fp == len(found)
        assert tp + fn == len(gold)
    assert scores["strong"][0] <= scores["weak"][0] <= scores["mentions"][0]


@pytest.mark.parametrize(
    ("gold", "found", "expected"),
    [
        ([(0, 2, "E1")], [(0, 2, "E1")], {"weak": (1, 0, 0), "strong": (1, 0, 0), "mentions": (1, 0, 0)}),
        ([(0, 2, "E1")], [(1, 3, "E1")], {"weak": (1, 0, 0), "strong": (0, 1, 1), "mentions": (1, 0, 0)}),
        ([(0, 2, "E1")], [(0, 2, "E2")], {"weak": (0, 1, 1), "strong": (0, 1, 1), "mentions": (1, 0, 0)}),
        ([(0, 2, "E1")], [(2, 3, "E1")], {"weak": (0, 1, 1), "strong": (0, 1, 1), "mentions": (0, 1, 1)}),
        ([(2, 3, "E1")], [(0, 2, "E1")], {"weak": (0, 1, 1), "strong": (0, 1, 1), "mentions": (0, 1, 1)}),
        (
            [(0, 2, "E1"), (0, 2, "E1")],
            [(0, 2, "E1")],
            {"weak": (1, 0, 1), "strong": (1, 0, 1), "mentions": (1, 0, 1)},
        ),
        (
            [(0, 2, "E1"), (1, 2, "E1")],
            [(0, 2, "E1")],
            {"weak": (1, 0, 1), "strong": (1, 0, 1), "mentions": (1, 0, 1)},
        ),
        (
            [(0, 3, "E1")],
            [(0, 1, "E1"), (2, 3, "E1")],
            {"weak": (1, 1, 0), "strong": (0, 2, 1), "mentions": (1, 1, 0)},
        ),
        (
            [(0, 3, "E1"), (0, 1, "E1")],
            [(0, 1, "E1"), (2, 3, "E1")],
            {"weak": (2, 0, 0), "strong": (1, 1, 1), "mentions": (2, 0, 0)},
        ),
        ([], [], {"weak": (0, 0, 0), "strong": (0, 0, 0), "mentions": (0, 0, 0)}),
        ([(0, 1, "E1")], [], {"weak": (0, 0, 1), "strong": (0, 0, 1), "mentions": (0, 0, 1)}),
        ([], [(0, 1, "E1")], {"weak": (0, 1, 0), "strong": (0, 1, 0), "mentions": (0, 1, 0)}),
        ([], [(0, 1, "")], {"weak": (0, 0, 0), "strong": (0, 0, 0), "mentions": (0, 0, 0)}),
    ],
    ids=[
        "equal",
        "other boundaries",
        "other entity",
        "touching, right of it",
        "touching, left of it",
        "gold twice, found once",
        "gold overlaps, found once",
        "two found for one gold",
        "first come first served would find one",
        "nothing",
        "missed",
        "wrong",
        "an entity without kb_id is no link",
    ],
)
def test_what_is_right_wrong_and_missed(gold, found, expected):
    assert counts([make_example(gold, found)]) == expected


def test_counts_add_up_over_a_stream_of_docs():
    examples = [
        make_example([(0, 1, "E1")], [(0, 1, "E1")]),
        make_example([(0, 1, "E1")], []),
        make_example([(2, 3, "E1")], [(2, 4, "E1"), (5, 6, "E2")]),
    ]
    assert counts(iter(examples)) == {"weak": (2, 1, 1), "strong": (1, 2, 2), "mentions": (2, 1, 1)}


def test_a_prediction_in_another_doc_is_no_match():
    examples = [make_example([(0, 1, "E1")], []), make_example([], [(0, 1, "E1")])]
    assert counts(examples)["weak"] == (0, 1, 1)


def test_links_are_scored_on_given_mentions():
    examples = [make_example([(0, 1, "E1"), (2, 3, "E2")], []), make_example([(0, 2, "E1")], [])]
    links = [[(0, 1, "E1"), (2, 3, "E9")], [(0, 2, "E1")]]
    assert counts(examples, links=links)["links"] == (2, 1, 1)


def test_links_on_other_boundaries_are_wrong():
    assert counts([make_example([(0, 2, "E1")], [])], links=[[(0, 1, "E1")]])["links"] == (0, 1, 1)


def test_gold_links_that_conversion_lost_are_missed_in_every_metric():
    whole = make_example([(0, 1, "E1")], [(0, 1, "E1")])
    damaged = make_example([(2, 3, "E2")], [(2, 3, "E2")])
    damaged.reference.user_data[LOST] = 2
    found = counts([whole, damaged], links=[[(0, 1, "E1")], [(2, 3, "E2")]])
    assert found == dict.fromkeys(("weak", "strong", "mentions", "links"), (2, 0, 2))
    assert linker_score([whole, damaged])["elq_weak_r"] == 0.5


def prf(name, p, r, f):
    return {f"{name}_p": p, f"{name}_r": r, f"{name}_f": f}


EXAMPLES = [make_example([(0, 2, "E1"), (3, 4, "E2")], [(0, 2, "E1"), (2, 4, "E2"), (5, 6, "E1")])]
WEAK, STRONG = (
    (pytest.approx(2 / 3), 1.0, pytest.approx(0.8)),
    (pytest.approx(1 / 3), 0.5, pytest.approx(0.4)),
)


def table(**metrics):
    return {name: dict(zip("prf", values, strict=True)) for name, values in metrics.items()}


def test_scores_are_flat_keys_and_a_table():
    assert linker_score(EXAMPLES) == {
        **prf("elq_weak", *WEAK),
        **prf("elq_strong", *STRONG),
        **prf("elq_mentions", *WEAK),
        **prf("spans_sc", *WEAK),
        "spans_sc_per_type": table(weak=WEAK, strong=STRONG, mentions=WEAK),
    }


def test_links_have_a_score_only_where_they_are_given():
    scores = linker_score(EXAMPLES, links=[[(0, 2, "E1")]])
    assert {key: scores[key] for key in scores if "links" in key} == prf(
        "elq_links", 1.0, 0.5, pytest.approx(2 / 3)
    )
    assert "links" in scores["spans_sc_per_type"]


def test_spans_key_renames_the_table_and_nothing_else():
    default, other = make_linker_scorer()(EXAMPLES), make_linker_scorer(spans_key="elq")(EXAMPLES)
    assert default == linker_score(EXAMPLES)
    assert other == {key.replace("spans_sc", "spans_elq"): value for key, value in default.items()}


def test_what_other_scorers_are_told_is_ignored():
    assert make_linker_scorer()(EXAMPLES, attr="tag", labels=["X"]) == linker_score(EXAMPLES)
    assert make_linker_scorer()(EXAMPLES, links=[[]])["elq_links_r"] == 0.0


def test_no_gold_and_no_prediction_is_a_score_of_zero():
    assert linker_score([make_example([], [])])["elq_weak_f"] == 0.0


@pytest.mark.parametrize(
    ("gold", "found", "errors"),
    [
        ([(0, 2, "E1")], [(1, 3, "E1")], []),
        ([(0, 2, "E1")], [], [((0, 2, "E1"), None)]),
        ([], [(0, 2, "E1")], [(None, (0, 2, "E1"))]),
        ([(0, 2, "E1")], [(1, 3, "E2")], [((0, 2, "E1"), (1, 3, "E2"))]),
        ([(0, 2, "E1")], [(2, 3, "E1")], [((0, 2, "E1"), None), (None, (2, 3, "E1"))]),
        ([(0, 2, "E1")], [(0, 1, "E1"), (1, 2, "E2")], [(None, (1, 2, "E2"))]),
        (
            [(0, 2, "E1"), (2, 4, "E2"), (4, 6, "E3")],
            [(0, 2, "E1"), (3, 4, "E9")],
            [((2, 4, "E2"), (3, 4, "E9")), ((4, 6, "E3"), None)],
        ),
    ],
    ids=["none", "missed", "extra", "wrong", "beside", "two for one", "several"],
)
def test_errors_are_told_apart(gold, found, errors):
    assert find_errors(gold, found) == errors
