import numpy as np
import pytest

from spacy_elq.baselines.vcg.losses import candidate_margin_loss, ramp, weighted_mention_loss


def differences(loss, values, step=1e-6):
    """RETURNS: The gradient of a loss by central differences."""
    found = np.zeros_like(values)
    for i in range(len(values)):
        ahead, behind = values.copy(), values.copy()
        ahead[i] += step
        behind[i] -= step
        found[i] = (loss(ahead) - loss(behind)) / (2 * step)
    return found


def test_mention_loss_by_hand():
    logits, are_mentions = np.asarray([0.0, 0.0, 2.0]), np.asarray([True, False, False])
    loss, _ = weighted_mention_loss(logits, are_mentions, negative_weight=0.43)
    assert loss == pytest.approx(np.log(2) + 0.43 * (np.log(2) + np.log1p(np.exp(2.0))))


def test_mention_loss_does_not_overflow():
    logits = np.asarray([1000.0, -1000.0])
    loss, gradient = weighted_mention_loss(logits, np.asarray([False, True]), negative_weight=0.5)
    assert loss == 1500.0
    assert gradient.tolist() == [0.5, -1.0]


def test_gradient_of_the_mention_loss():
    random = np.random.default_rng(0)
    logits, are_mentions = random.normal(size=12) * 3, random.random(12) < 0.4

    def loss(x):
        return weighted_mention_loss(x, are_mentions, negative_weight=0.43)[0]

    _, gradient = weighted_mention_loss(logits, are_mentions, negative_weight=0.43)
    np.testing.assert_allclose(gradient, differences(loss, logits), atol=1e-7)


def test_margin_loss_by_hand():
    # of the first n-gram the second candidate is right: 0.5 - 1.0 + 0.8 and nothing, over three candidates;
    # the second has no target
    scores, sizes = np.asarray([0.8, 1.0, 0.4, 7.0, 9.0]), np.asarray([3, 2])
    loss, gradient = candidate_margin_loss(scores, sizes, np.asarray([1, -1]), margin=0.5)
    assert loss == pytest.approx(0.3 / 3)
    np.testing.assert_allclose(gradient, [1 / 3, -1 / 3, 0, 0, 0])


def test_margin_is_how_far_the_right_candidate_must_be_ahead():
    scores, sizes, targets = np.asarray([0.8, 1.0]), np.asarray([2]), np.asarray([1])
    assert candidate_margin_loss(scores, sizes, targets, margin=0.19)[0] == 0.0
    assert candidate_margin_loss(scores, sizes, targets, margin=0.25)[0] == pytest.approx(0.025)


def test_gradient_of_the_margin_loss():
    random = np.random.default_rng(1)
    sizes = np.asarray([4, 1, 3, 5])
    targets = np.asarray([2, 4, -1, 8])
    scores = random.normal(size=13)

    def loss(x):
        return candidate_margin_loss(x, sizes, targets, margin=0.5)[0]

    _, gradient = candidate_margin_loss(scores, sizes, targets, margin=0.5)
    np.testing.assert_allclose(gradient, differences(loss, scores), atol=1e-7)
    assert gradient.sum() == pytest.approx(0.0)


def test_negatives_come_in_slowly():
    assert ramp(0, 100) == pytest.approx(1 / (1 + np.exp(5)))
    assert ramp(50, 100) == 0.5
    assert ramp(99, 100) < ramp(100, 100) == 1.0
    assert ramp(0, 0) == 1.0
