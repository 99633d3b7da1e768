import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from strategies import numeric_gradient, rows

from spacy_elq.baselines.blink.boundaries import boundary_log_probs, boundary_loss, score_boundaries
from spacy_elq.types import Rows


def simple_rows(*lengths, spaces=()):
    positions = np.arange(sum(lengths))
    bounds = ~np.isin(positions, spaces)
    none = np.zeros(len(positions), dtype=bool)
    return Rows(positions[:, None], positions, positions + 1, bounds, none, np.asarray(lengths))


def test_probabilities_of_two_docs_by_hand():
    logits = np.log([[1.0, 3.0], [3.0, 1.0], [5.0, 5.0]])
    log_probs, _ = boundary_log_probs(logits, simple_rows(2, 0, 1))
    np.testing.assert_allclose(np.exp(log_probs), [[0.25, 0.75], [0.75, 0.25], [1.0, 1.0]])
    # from the first token to the second, and the second alone
    scores = score_boundaries(log_probs, np.asarray([[0, 2], [1, 2]]))
    np.testing.assert_allclose(np.exp(scores), [0.25 * 0.25, 0.75 * 0.25])


def test_a_token_starts_with_its_first_row_and_ends_with_its_last():
    one_token = np.asarray([0]), np.asarray([3])
    flags = np.asarray([True, True])
    starts, ends = np.append(one_token[0], 3), np.append(one_token[1], 4)
    two = Rows(np.zeros((4, 1)), starts, ends, flags, ~flags, np.asarray([2]))
    logits = np.log([[1.0, 9.0], [9.0, 9.0], [9.0, 1.0], [3.0, 3.0]])
    np.testing.assert_allclose(np.exp(boundary_log_probs(logits, two)[0]), [[0.25, 0.25], [0.75, 0.75]])


def test_nothing_starts_or_ends_with_a_blank():
    log_probs, _ = boundary_log_probs(np.zeros((3, 2)), simple_rows(3, spaces=[1]))
    np.testing.assert_allclose(np.exp(log_probs), [[0.5, 0.5], [0.0, 0.0], [0.5, 0.5]])


def test_large_scores_do_not_overflow():
    log_probs, _ = boundary_log_probs(np.asarray([[5000.0, -5000.0], [4999.0, 0.0]]), simple_rows(2))
    assert np.isfinite(log_probs).all()


def test_loss_is_the_mean_over_mentions():
    log_probs = np.log([[0.25, 0.75], [0.75, 0.25]])
    loss, gradient = boundary_loss(log_probs, np.asarray([[0, 2], [1, 2]]))
    np.testing.assert_allclose(loss, -(np.log(0.25 * 0.25) + np.log(0.75 * 0.25)) / 2)
    assert gradient.tolist() == [[-0.5, 0.0], [-0.5, -1.0]]


def test_mentions_where_none_may_be_are_left_out():
    log_probs, _ = boundary_log_probs(np.zeros((3, 2)), simple_rows(3, spaces=[1]))
    alone = boundary_loss(log_probs, np.asarray([[0, 3]]))
    both = boundary_loss(log_probs, np.asarray([[0, 3], [1, 3]]))
    assert both[0] == alone[0]
    np.testing.assert_array_equal(both[1], alone[1])


def test_no_mentions_no_loss():
    loss, gradient = boundary_loss(np.zeros((3, 2)), np.zeros((0, 2), dtype="int64"))
    assert loss == 0.0
    assert not gradient.any()


@given(rows(), st.data())
def test_gradient_by_finite_differences(rows, data):
    logits = np.random.default_rng(len(rows.starts)).normal(size=(len(rows.vectors), 2))
    ends = np.cumsum(rows.lengths)
    places = [
        (start, end)
        for first, last in zip(ends - rows.lengths, ends, strict=True)
        for start in range(first, last)
        for end in range(start + 1, last + 1)
    ]
    chosen = data.draw(st.lists(st.sampled_from(places), max_size=4)) if places else []
    gold = np.asarray(chosen, dtype="int64").reshape(-1, 2)

    def loss(X):
        return boundary_loss(boundary_log_probs(X, rows)[0], gold)[0]

    log_probs, backprop = boundary_log_probs(logits, rows)
    gradient = backprop(boundary_loss(log_probs, gold)[1])
    np.testing.assert_allclose(gradient, numeric_gradient(loss, logits), atol=1e-6)
