import numpy as np
import pytest

from spacy_elq.baselines.vcg.transe import corrupt, margin_loss, train_transe

# a line of ten entities, each followed by the next, and back by another relation
LINE = np.asarray([(i, 0, i + 1) for i in range(9)] + [(i + 1, 1, i) for i in range(9)])


def test_gradient():
    random = np.random.default_rng(0)
    tables = [random.normal(size=(6, 4)), random.normal(size=(2, 4))]
    # some entities more than once, one on both sides
    right = np.asarray([(0, 0, 1), (1, 1, 2), (3, 0, 3), (0, 1, 4)])
    wrong = np.asarray([(0, 0, 2), (5, 1, 2), (3, 0, 1), (0, 1, 5)])
    _, updates = margin_loss(*tables, right, wrong, margin=3.0)
    for number, (rows, gradient) in enumerate(updates):
        dense = np.zeros_like(tables[number])
        dense[rows] = gradient
        assert len(set(rows.tolist())) == len(rows)
        for place in np.ndindex(*dense.shape):
            values = []
            for step in (1e-6, -1e-6):
                moved = [table.copy() for table in tables]
                moved[number][place] += step
                values.append(margin_loss(*moved, right, wrong, margin=3.0)[0])
            assert dense[place] == pytest.approx((values[0] - values[1]) / 2e-6, abs=1e-5)


def test_what_is_far_enough_has_no_gradient():
    entities, relations = np.asarray([[0.0], [0.0], [5.0]]), np.zeros((1, 1))
    right, wrong = np.asarray([(0, 0, 1)]), np.asarray([(0, 0, 2)])
    loss, ((rows, _), _) = margin_loss(entities, relations, right, wrong, margin=1.0)
    assert (loss, len(rows)) == (0.0, 0)


def test_one_end_is_another_entity():
    random = np.random.default_rng(0)
    right = np.tile(LINE, (20, 1))
    wrong = corrupt(right, 10, random)
    changed = wrong != right
    assert not changed[:, 1].any()
    assert (changed.sum(axis=1) == 1).all()
    assert changed[:, 0].any()
    assert changed[:, 2].any()
    assert wrong.min() >= 0
    assert wrong.max() < 10


def test_triples_are_nearer_than_others():
    entities, relations = train_transe(LINE, width=16, epochs=300, batch_size=8, learn_rate=0.05)
    np.testing.assert_allclose(np.linalg.norm(entities, axis=1), 1.0, rtol=1e-5)
    assert relations.shape == (2, 16)
    ranks = []
    for head, relation, tail in LINE:
        distances = np.abs(entities[head] + relations[relation] - entities).sum(axis=1)
        ranks.append(int((distances < distances[tail]).sum()))
    # by chance 4.5
    assert np.mean(ranks) < 1.0


def test_a_seed_gives_the_same_vectors():
    first, again, other = (train_transe(LINE, width=4, epochs=2, seed=seed)[0] for seed in (1, 1, 2))
    np.testing.assert_array_equal(first, again)
    assert not np.allclose(first, other)
