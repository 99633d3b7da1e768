import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies import scored_spans

from spacy_elq.core.decode import (
    NIL_POSITION,
    Decoder,
    accept_mentions,
    add_nil,
    choose_mentions,
    doubt_candidates,
    is_first,
    joint_scores,
    keep_mentions,
    log_sigmoid,
)
from spacy_elq.errors import ELQError


def naive_greedy(spans, scores, log_threshold):
    order = sorted(range(len(spans)), key=lambda i: (-scores[i], spans[i][0], spans[i][1]))
    taken, chosen = set(), []
    for i in order:
        tokens = set(range(*spans[i]))
        if scores[i] >= log_threshold and not tokens & taken:
            taken |= tokens
            chosen.append(i)
    return sorted(chosen)


def test_log_sigmoid():
    np.testing.assert_allclose(log_sigmoid(np.asarray([0.0, -800.0, 800.0])), [np.log(0.5), -800.0, 0.0])


def test_joint_score_is_mention_times_entity():
    similarities = np.asarray([[2.0, 1.0, -np.inf]])
    joint = joint_scores(log_sigmoid(np.asarray([0.3])), similarities)
    mention = 1 / (1 + np.exp(-0.3))
    entity = np.exp([2.0, 1.0]) / np.exp([2.0, 1.0]).sum()
    np.testing.assert_allclose(np.exp(joint[0]), [*(mention * entity), 0.0])


def test_joint_scores_of_large_similarities_are_finite():
    joint = joint_scores(np.asarray([-0.01]), np.asarray([[5000.0, 4999.0]]))
    assert np.isfinite(joint).all()


def test_a_mention_without_candidates_has_no_probability():
    similarities = np.asarray([[-np.inf, -np.inf], [1.0, 1.0]])
    with np.errstate(all="raise"):
        joint = joint_scores(np.log([0.5, 0.5]), similarities)
    np.testing.assert_allclose(np.exp(joint), [[0.0, 0.0], [0.25, 0.25]])


def test_joint_scores_of_nothing():
    assert joint_scores(np.zeros(0), np.zeros((0, 10))).shape == (0, 10)


def test_a_doc_keeps_what_reaches_the_threshold_else_its_best():
    log_probs = np.log([0.9, 0.1, 0.3, 0.05, 0.2, 0.4])
    docs = np.asarray([0, 0, 2, 2, 2, 3])
    kept = keep_mentions(log_probs, docs, log_threshold=np.log(0.4), max_mentions=2)
    assert kept.tolist() == [0, 2, 4, 5]


def test_without_fallback_only_the_threshold_counts():
    kept = keep_mentions(np.log([0.9, 0.1]), np.asarray([0, 1]), log_threshold=np.log(0.5), max_mentions=0)
    assert kept.tolist() == [0]


@pytest.mark.parametrize("max_mentions", [0, 50])
def test_nothing_to_keep(max_mentions):
    nothing = np.zeros(0)
    kept = keep_mentions(nothing, nothing.astype(int), log_threshold=-1.0, max_mentions=max_mentions)
    assert kept.tolist() == []


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(-5, 0)), max_size=12), st.integers(1, 3))
def test_keep_is_what_a_plain_loop_keeps(pairs, max_mentions):
    docs = np.asarray(sorted(d for d, _ in pairs), dtype="int64")
    log_probs = np.asarray([s for _, s in pairs], dtype="float64") + np.linspace(0, 0.1, len(pairs))
    kept = keep_mentions(log_probs, docs, log_threshold=-2.0, max_mentions=max_mentions)
    expected = []
    for doc in set(docs.tolist()):
        mine = [i for i in range(len(docs)) if docs[i] == doc]
        good = [i for i in mine if log_probs[i] >= -2.0]
        expected += good or sorted(mine, key=lambda i: -log_probs[i])[:max_mentions]
    assert kept.tolist() == sorted(expected)


@given(scored_spans(), st.integers(-7, 1))
def test_chosen_mentions_are_the_greedy_ones(scored, log_threshold):
    spans, scores = scored
    chosen = choose_mentions(spans, scores, log_threshold=log_threshold)
    assert chosen.tolist() == naive_greedy(spans.tolist(), scores, log_threshold)


@given(scored_spans())
def test_chosen_mentions_do_not_overlap(scored):
    spans, scores = scored
    chosen = spans[choose_mentions(spans, scores, log_threshold=-10.0)]
    tokens = [token for start, end in chosen for token in range(start, end)]
    assert len(tokens) == len(set(tokens))


@given(scored_spans(), st.integers(-6, 0))
def test_a_higher_threshold_only_takes_away(scored, log_threshold):
    spans, scores = scored
    every = choose_mentions(spans, scores, log_threshold=-10.0)
    some = choose_mentions(spans, scores, log_threshold=log_threshold)
    assert some.tolist() == [i for i in every if scores[i] >= log_threshold]


@given(scored_spans())
def test_the_threshold_before_the_search_changes_no_link(scored):
    """The paper keeps mentions by their own probability first; its code takes the best 50 first."""
    spans, scores = scored
    joint = scores - 0.5
    docs = np.zeros(len(spans), dtype=int)
    kept = keep_mentions(scores, docs, log_threshold=-3.0, max_mentions=0)
    chosen = kept[choose_mentions(spans[kept], joint[kept], log_threshold=-3.0)]
    assert chosen.tolist() == choose_mentions(spans, joint, log_threshold=-3.0).tolist()


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(-5, 0)), max_size=12))
def test_first_is_the_best_of_its_doc_and_the_earliest_of_equals(pairs):
    docs, scores = (np.asarray([pair[i] for pair in pairs], dtype="int64") for i in range(2))
    best = {
        d: max(range(len(pairs)), key=lambda i: (docs[i] == d, scores[i], -i)) for d in set(docs.tolist())
    }
    assert np.flatnonzero(is_first(scores, docs)).tolist() == sorted(best.values())


def test_only_the_best_mention_of_a_doc_has_the_lower_threshold():
    # two docs: the tokens 0 to 9 and 10 to 19
    spans = np.asarray([[0, 2], [1, 3], [5, 6], [7, 8], [10, 11], [12, 13]])
    scores = np.asarray([-2.0, -2.5, -1.0, -3.0, -3.0, -9.0])
    docs = np.asarray([0, 0, 0, 0, 1, 1])
    decoder = Decoder(threshold=math.exp(-2.0) - 1e-9, first_threshold=math.exp(-4.0))
    accepted = accept_mentions(spans, scores, docs, decoder)
    # overlaps, lower than the threshold and not the best, the best of its doc, lower than both thresholds
    assert accepted.tolist() == [True, False, True, False, True, False]


def test_none_of_these_takes_its_share():
    similarities, none = np.asarray([[1.0, 0.0], [3.0, 2.0]]), np.asarray([2.0, -np.inf])
    joint = np.exp(joint_scores(np.log([0.5, 0.5]), similarities, none))
    total = np.exp([1.0, 0.0, 2.0]).sum()
    np.testing.assert_allclose(joint[0], 0.5 * np.exp([1.0, 0.0]) / total)
    np.testing.assert_allclose(joint[1], np.exp(joint_scores(np.log([0.5]), similarities[1:]))[0])


def test_none_of_these_is_right_where_no_candidate_stands_out():
    similarities = np.asarray([[1.0, 0.9, 0.8], [5.0, 1.0, 0.0], [-np.inf] * 3])
    none = np.asarray([0.0, 0.0, 0.0])
    shares = np.exp(joint_scores(np.zeros(3), similarities, none))
    raised = doubt_candidates(similarities, none, least=0.4)
    assert raised[1:].tolist() == none[1:].tolist()
    # its odds against the best are those of all the others together
    assert np.exp(raised[0] - similarities[0, 0]) == pytest.approx((1 - shares[0, 0]) / shares[0, 0])
    assert add_nil(np.asarray([[7, 8, 9]]), similarities[:1], raised[:1])[0][0, 0] == NIL_POSITION
    assert doubt_candidates(similarities, none, least=0.0).tolist() == none.tolist()


def test_nil_is_first_where_it_is_the_best_and_otherwise_last():
    positions, similarities = np.asarray([[7, 8], [7, -1]]), np.asarray([[3.0, 1.0], [2.0, -np.inf]])
    found, scores = add_nil(positions, similarities, np.asarray([2.0, 4.0]))
    assert found.tolist() == [[7, 8, NIL_POSITION], [NIL_POSITION, 7, -1]]
    assert scores.tolist() == [[3.0, 1.0, 2.0], [4.0, 2.0, -np.inf]]


@given(
    threshold=st.floats(0.01, 0.99),
    slope=st.floats(0.1, 5.0),
    bias=st.floats(-3.0, 3.0),
    joint=st.floats(1e-6, 1 - 1e-6),
)
def test_a_link_reaches_the_threshold_by_its_calibrated_score(threshold, slope, bias, joint):
    decoder = Decoder(threshold=threshold, slope=slope, bias=bias)
    score = float(decoder.calibrate(np.log(np.asarray([[joint]])))[0, 0])
    if abs(score - threshold) > 1e-9:
        assert (np.log(joint) >= decoder.log_threshold) == (score >= threshold)


@given(st.lists(st.floats(0.01, 10.0), min_size=2, max_size=5), st.floats(0.2, 3.0), st.floats(-2.0, 2.0))
def test_scores_of_candidates_stay_a_distribution_in_the_same_order(weights, slope, bias):
    """The last of the weights is what is no candidate."""
    joint = np.sort(np.asarray(weights[:-1]))[::-1] / sum(weights)
    scores = Decoder(slope=slope, bias=bias).calibrate(np.log(joint[None]))[0]
    assert scores.sum() <= 1.0 + 1e-9
    assert (np.diff(scores) <= 1e-12).all()


@pytest.mark.parametrize(("threshold", "expected"), [(0.0, -np.inf), (1.0, 0.0)])
def test_extreme_thresholds_stay_extreme_when_calibrated(threshold, expected):
    assert Decoder(threshold=threshold, slope=2.0, bias=1.0).log_threshold == expected


def test_without_calibration_the_score_is_the_joint_probability():
    log_joint = np.log(np.asarray([[0.3, 0.2], [0.9, 0.1]]))
    np.testing.assert_array_equal(Decoder().calibrate(log_joint), np.exp(log_joint))
    assert Decoder(threshold=0.3).log_threshold == np.log(0.3)


@pytest.mark.parametrize(("setting", "value"), [("slope", 0.0), ("slope", -1.0), ("bias", np.inf)])
def test_invalid_calibration(setting, value):
    with pytest.raises(ELQError, match=setting):
        Decoder(**{setting: value})
