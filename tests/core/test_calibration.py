import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spacy_elq.core.calibration import (
    LEAST_SLOPE,
    apply_calibration,
    calibration_error,
    fit_calibration,
    reliability,
    risk_coverage,
)

log_scores = st.one_of(st.floats(-1e4, 0), st.floats(-1e-3, 0), st.sampled_from([0.0, -math.inf, -5e-324]))
slopes, biases = st.floats(LEAST_SLOPE, 20), st.floats(-20, 20)
judged = st.lists(st.tuples(st.floats(0, 1), st.booleans()), max_size=40)


def columns(links):
    scores, right = zip(*links, strict=True) if links else ((), ())
    return np.asarray(scores, dtype="float64"), np.asarray(right, dtype="float64")


def log_sigmoid(logits):
    return -np.logaddexp(0.0, -logits)


def sample(slope, bias, *, size=20_000, spread=3.0, seed=0):
    """Log scores, and links that are right as often as a calibration says."""
    rng = np.random.default_rng(seed)
    logits = rng.normal(scale=spread, size=size)
    probs = np.exp(log_sigmoid(slope * logits + bias))
    return log_sigmoid(logits), (rng.random(size) < probs).astype("float64"), probs


# ---------------------------------------------------------------------- apply


@given(st.lists(log_scores, max_size=20))
def test_slope_1_and_bias_0_change_nothing(values):
    given_ = np.asarray(values, dtype="float64")
    assert apply_calibration(given_, slope=1.0, bias=0.0).tolist() == values


@given(st.lists(log_scores, min_size=1, max_size=20), slopes, biases)
def test_calibrated_scores_are_log_probabilities_in_the_same_order(values, slope, bias):
    found = apply_calibration(np.sort(values), slope=slope, bias=bias)
    assert (found <= 0).all()
    assert not np.isnan(found).any()
    before, after = found[:-1], found[1:]
    assert (before <= after + 1e-12 * np.abs(np.where(np.isfinite(after), after, 0))).all()


@given(st.floats(1e-6, 1 - 1e-6), slopes, biases)
def test_calibration_is_that_of_the_formula(score, slope, bias):
    logit = math.log(score / (1 - score))
    expected = log_sigmoid(slope * logit + bias)
    found = apply_calibration(np.asarray([math.log(score)]), slope=slope, bias=bias)
    assert found[0] == pytest.approx(float(expected), rel=1e-6, abs=1e-9)


def test_certain_scores_are_calibrated_too():
    """A score of 1 is a rounded one; what has no candidate stays without a score."""
    one, nothing = apply_calibration(np.asarray([0.0, -np.inf]), slope=0.1, bias=0.0)
    assert math.exp(one) == pytest.approx(1 / (1 + math.exp(-0.1 * 53 * math.log(2))), rel=1e-6)
    assert nothing == -np.inf


@pytest.mark.filterwarnings("error")
def test_shape_stays_and_nothing_is_warned_of():
    given_ = np.asarray([[0.0, -np.inf, -1e300], [-1.0, -1e-300, -700.0]])
    assert apply_calibration(given_, slope=2.0, bias=-1.0).shape == (2, 3)


# ------------------------------------------------------------------------ fit


@pytest.mark.parametrize(("slope", "bias"), [(1.0, 0.0), (0.4, -1.0), (2.0, 0.5)])
def test_slope_and_bias_of_sampled_data_are_found(slope, bias):
    scores, right, _ = sample(slope, bias)
    assert fit_calibration(scores, right) == pytest.approx((slope, bias), abs=0.1)


def test_fit_makes_scores_calibrated():
    scores, right, _ = sample(0.3, -1.0)
    slope, bias = fit_calibration(scores, right)
    after = np.exp(apply_calibration(scores, slope=slope, bias=bias))
    assert calibration_error(np.exp(scores), right) > 0.1
    assert calibration_error(after, right) < 0.02
    assert after.mean() == pytest.approx(right.mean(), abs=1e-3)


def test_fit_has_the_least_loss():
    """No pair nearby has a lower one: log loss, and the ridge."""
    scores, right, _ = sample(0.7, 0.4, size=60)
    logits = scores - np.log(-np.expm1(scores))

    def loss(slope, bias):
        p = log_sigmoid((2 * right - 1) * (slope * logits + bias))
        return -p.sum() + 0.5 * 2.0 * ((slope - 1) ** 2 + bias**2)

    slope, bias = fit_calibration(scores, right, ridge=2.0)
    nearby = [(slope + x, bias + y) for x in (-1e-4, 0, 1e-4) for y in (-1e-4, 0, 1e-4)]
    assert min(nearby, key=lambda pair: loss(*pair)) == (slope, bias)


def test_a_link_that_counts_twice_is_like_two():
    log_scores, right = np.log([0.9, 0.6, 0.3, 0.2, 0.7]), np.asarray([1, 0, 1, 0, 1])
    twice = np.asarray([0, 1, 1, 2, 3, 4, 4])
    expected = fit_calibration(log_scores[twice], right[twice])
    found = fit_calibration(log_scores, right, weights=np.asarray([1, 2, 1, 1, 2]))
    assert found == pytest.approx(expected)
    assert found != pytest.approx(fit_calibration(log_scores, right))


def test_weights_count_where_the_slope_is_at_its_least():
    log_scores, right = np.log([0.9, 0.8, 0.2, 0.1]), np.asarray([0, 0, 1, 1])
    expected = fit_calibration(log_scores[[0, 1, 2, 2, 3]], right[[0, 1, 2, 2, 3]])
    assert expected[0] == LEAST_SLOPE
    assert fit_calibration(log_scores, right, weights=[1, 1, 2, 1]) == pytest.approx(expected)


def test_without_links_nothing_changes():
    assert fit_calibration(np.zeros(0), np.zeros(0)) == (1.0, 0.0)


def test_scores_that_are_lower_where_links_are_right_keep_their_order():
    scores, right, _ = sample(1.0, 1.0, size=500)
    slope, bias = fit_calibration(scores, 1 - right)
    assert slope == LEAST_SLOPE
    # the scores say nothing, so each becomes the share of right links
    after = np.exp(apply_calibration(scores, slope=slope, bias=bias))
    assert after.mean() == pytest.approx(1 - right.mean(), abs=0.01)


@given(st.lists(st.tuples(log_scores, st.booleans()), max_size=30))
def test_fit_is_finite_and_the_same_each_time(links):
    scores, right = columns(links)
    slope, bias = fit_calibration(scores, right)
    assert slope >= LEAST_SLOPE
    assert math.isfinite(slope)
    assert math.isfinite(bias)
    assert fit_calibration(scores, right) == (slope, bias)


def test_fit_converges_where_a_whole_step_would_go_too_far():
    """Certain and wrong: the curvature at the start is next to nothing, so the first step is huge."""
    slope, bias = fit_calibration(
        np.asarray([-1e-15, -30.0] * 50), np.asarray([0.0, 0.0] * 25 + [1.0, 0.0] * 25)
    )
    assert 0.5 * slope * 34.5 + bias < 20
    p = np.exp(apply_calibration(np.asarray([-1e-15, -30.0]), slope=slope, bias=bias))
    assert p == pytest.approx([0.5, 0.0], abs=0.01)


@pytest.mark.filterwarnings("error")
def test_links_that_are_all_right_give_a_finite_fit():
    slope, bias = fit_calibration(np.asarray([0.0, -1e-20, -0.1] * 30), np.ones(90))
    assert slope >= 1
    assert 0 < bias < 20


@pytest.mark.filterwarnings("error")
def test_a_score_of_0_counts_as_a_very_low_one():
    scores, right, _ = sample(0.5, 0.0, size=2000)
    found = fit_calibration(np.append(scores, -np.inf), np.append(right, 0.0))
    assert found == pytest.approx(fit_calibration(scores, right), abs=0.01)


# ---------------------------------------------------------------- reliability


@given(judged, st.integers(1, 12))
def test_bins_are_those_of_a_loop(links, bins):
    rows = {round(row["low"] * bins): row for row in reliability(*columns(links), bins=bins)}
    expected = {}
    for score, is_right in links:
        expected.setdefault(min(int(score * bins), bins - 1), []).append((score, is_right))
    assert list(rows) == sorted(expected)
    for i, group in expected.items():
        assert rows[i]["high"] == pytest.approx((i + 1) / bins)
        assert rows[i]["count"] == len(group)
        assert rows[i]["score"] == pytest.approx(sum(score for score, _ in group) / len(group))
        assert rows[i]["right"] == pytest.approx(sum(is_right for _, is_right in group) / len(group))


@given(judged)
def test_error_is_from_0_to_1(links):
    assert 0 <= calibration_error(*columns(links)) <= 1


def test_error_of_calibrated_scores_is_small():
    _, right, probs = sample(1.0, 0.0)
    assert calibration_error(probs, right) < 0.01


def test_error_is_the_mean_over_links():
    """Three links of a bin are off by 0.95, one by 0.25."""
    assert calibration_error([0.95, 0.95, 0.95, 0.25], [0, 0, 0, 0]) == pytest.approx((3 * 0.95 + 0.25) / 4)


# -------------------------------------------------------------- risk, coverage


@given(judged)
def test_each_row_is_what_its_threshold_gives(links):
    scores, right = columns(links)
    rows = risk_coverage(scores, right)
    assert [row["threshold"] for row in rows] == sorted(set(scores.tolist()), reverse=True)
    for row in rows:
        kept = right[scores >= row["threshold"]]
        assert row["coverage"] == pytest.approx(len(kept) / len(links))
        assert row["precision"] == pytest.approx(kept.mean())
        assert row["risk"] == pytest.approx(1 - kept.mean())


def test_many_links_give_a_hundred_rows_with_both_ends():
    scores = np.linspace(0.2, 0.9, 1234)
    rows = risk_coverage(scores, np.ones(1234))
    assert len(rows) == 100
    assert (rows[0]["threshold"], rows[-1]["threshold"], rows[-1]["coverage"]) == (0.9, 0.2, 1.0)
    coverage = [row["coverage"] for row in rows]
    assert coverage == sorted(set(coverage))
