import numpy as np
import pytest
from strategies import numeric_gradient

from spacy_elq.core.losses import (
    absent_linking_loss,
    binary_linking_loss,
    mention_loss,
    softmax_linking_loss,
)

RNG = np.random.default_rng(0)
SIMILARITIES = RNG.normal(size=(3, 4)) * 2
TARGETS = np.asarray([0, 3, 3])
MASKED = np.where([[1, 1, 0, 1], [0, 1, 1, 1], [1, 1, 1, 1]], SIMILARITIES, -np.inf)


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def test_mention_loss_is_the_mean_cross_entropy():
    scores, targets = np.asarray([2.0, -1.0, 0.5]), np.asarray([1.0, 0.0, 0.0])
    p = sigmoid(scores)
    expected = -np.mean(targets * np.log(p) + (1 - targets) * np.log(1 - p))
    assert mention_loss(scores, targets)[0] == pytest.approx(expected)


def test_mention_loss_gradient():
    scores, targets = RNG.normal(size=7), RNG.integers(0, 2, size=7).astype(float)
    expected = numeric_gradient(lambda X: mention_loss(X, targets)[0], scores)
    np.testing.assert_allclose(mention_loss(scores, targets)[1], expected, atol=1e-8)


def test_mention_loss_does_not_overflow():
    loss, gradient = mention_loss(np.asarray([1000.0, -1000.0]), np.asarray([0.0, 1.0]))
    assert loss == pytest.approx(1000.0)
    np.testing.assert_allclose(gradient, [0.5, -0.5])


def test_softmax_loss_is_minus_the_log_probability_of_gold():
    probs = np.exp(SIMILARITIES) / np.exp(SIMILARITIES).sum(axis=1, keepdims=True)
    expected = -np.log(probs[[0, 1, 2], TARGETS]).mean()
    assert softmax_linking_loss(SIMILARITIES, TARGETS)[0] == pytest.approx(expected)


def test_binary_loss_is_the_mean_over_competitors():
    loss = binary_linking_loss(np.asarray([[1.0, -2.0, -np.inf]]), np.asarray([0]))[0]
    assert loss == pytest.approx((-np.log(sigmoid(1.0)) - np.log(1 - sigmoid(-2.0))) / 2)


@pytest.mark.parametrize("loss", [softmax_linking_loss, binary_linking_loss])
def test_linking_gradient(loss):
    finite = np.isfinite(MASKED)

    def value(X):
        return loss(np.where(finite, X, -np.inf), TARGETS)[0]

    expected = numeric_gradient(value, np.where(finite, MASKED, 0.0))
    np.testing.assert_allclose(loss(MASKED, TARGETS)[1], expected, atol=1e-8)


@pytest.mark.parametrize("loss", [softmax_linking_loss, binary_linking_loss])
def test_who_does_not_compete_does_not_count(loss):
    gradient = loss(MASKED, TARGETS)[1]
    assert (gradient[~np.isfinite(MASKED)] == 0.0).all()
    without = np.delete(MASKED[:1], 2, axis=1)
    assert loss(MASKED[:1], TARGETS[:1])[0] == pytest.approx(loss(without, TARGETS[:1])[0])


@pytest.mark.parametrize("loss", [softmax_linking_loss, binary_linking_loss])
def test_nothing_to_link(loss):
    value, gradient = loss(np.zeros((0, 5)), np.zeros(0, dtype=int))
    assert value == 0.0
    assert gradient.shape == (0, 5)


def test_nothing_to_detect():
    value, gradient = mention_loss(np.zeros(0), np.zeros(0))
    assert value == 0.0
    assert gradient.shape == (0,)


NONE = RNG.normal(size=3)
NAMED = np.asarray([[0, 1, 0, 0], [0, 0, 0, 0], [1, 0, 0, 1]], dtype=bool)


@pytest.mark.parametrize("linking", ["softmax", "binary"])
def test_absent_gradient(linking):
    finite, targets = np.isfinite(MASKED), np.asarray([0, 2, 3])
    settings = {"named": NAMED, "linking": linking, "share": 0.3}

    def value(X):
        similarities = np.where(finite, X[:, :-1], -np.inf)
        return absent_linking_loss(similarities, X[:, -1], targets, **settings)[0]

    both = np.column_stack([np.where(finite, MASKED, 0.0), NONE])
    expected = numeric_gradient(value, both)
    _, d_similarities, d_none = absent_linking_loss(
        MASKED, NONE, targets, named=NAMED, linking=linking, share=0.3
    )
    np.testing.assert_allclose(d_similarities, expected[:, :-1], atol=1e-8)
    np.testing.assert_allclose(d_none, expected[:, -1], atol=1e-8)


def test_absent_loss_is_that_of_gold_and_that_of_none_without_it():
    columns = np.column_stack([SIMILARITIES, NONE])
    without = columns.copy()
    without[[0, 1, 2], TARGETS] = -np.inf
    without[:, :-1][NAMED] = -np.inf
    present, _ = softmax_linking_loss(columns, TARGETS)
    absent, _ = softmax_linking_loss(without, np.asarray([4, 4, 4]))
    loss, *_ = absent_linking_loss(SIMILARITIES, NONE, TARGETS, named=NAMED, linking="softmax", share=0.25)
    assert loss == pytest.approx(0.75 * present + 0.25 * absent)
