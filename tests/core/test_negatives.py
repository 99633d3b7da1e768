import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spacy_elq.core.negatives import HardNegatives


def ranked_search(vectors, k, *, found=None):
    """A search whose queries are the similarities themselves; `found` limits how many come back."""
    k = min(k, vectors.shape[1])
    positions = np.argsort(-vectors, axis=1, kind="stable")[:, :k]
    positions[:, k if found is None else found :] = -1
    return positions, np.zeros(positions.shape, dtype="float32")


def competitors(pool, competes):
    return [set(pool[row].tolist()) for row in competes]


def naive(vectors, gold, search, *, hard, in_batch):
    """Who competes for each mention, gold included, as the docstring says it."""
    sets = []
    for i, own in enumerate(gold.tolist()):
        found = search(vectors[i : i + 1], hard + 1)[0][0].tolist()
        wrong = [position for position in found if position not in (own, -1)][:hard]
        sets.append({own, *wrong, *(gold.tolist() if in_batch else [])})
    return sets


@st.composite
def batches(draw):
    mentions, entities = draw(st.integers(0, 5)), draw(st.integers(1, 8))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    gold = draw(st.lists(st.integers(0, entities - 1), min_size=mentions, max_size=mentions))
    found = draw(st.none() | st.integers(0, entities))
    return rng.normal(size=(mentions, entities)), np.asarray(gold, dtype="int64"), found


@given(batches(), st.integers(0, 6), st.booleans())
def test_equals_a_plain_loop(batch, hard, in_batch):
    vectors, gold, found = batch

    def search(queries, k):
        return ranked_search(queries, k, found=found)

    pool, competes, targets = HardNegatives(hard, in_batch)(vectors, gold, search)
    assert competes.shape == (len(gold), len(pool))
    assert len(set(pool.tolist())) == len(pool)
    assert (pool >= 0).all()
    assert pool[targets].tolist() == gold.tolist()
    assert competes[np.arange(len(gold)), targets].all()
    sets = competitors(pool, competes)
    assert sets == naive(vectors, gold, search, hard=hard, in_batch=in_batch)
    others = set(gold.tolist()) if in_batch else set()
    for own, competing in zip(gold.tolist(), sets, strict=True):
        assert len(competing - {own} - others) <= hard
    assert set(pool.tolist()) == set().union(*sets)


@pytest.mark.parametrize(
    ("gold", "expected"),
    [(0, {0, 1, 2}), (1, {0, 1, 2}), (4, {0, 1, 4})],
    ids=["gold found first", "gold found second", "gold not found"],
)
def test_the_most_similar_wrong_entities_compete(gold, expected):
    vectors = np.asarray([[5.0, 4.0, 3.0, 2.0, 1.0]])
    pool, competes, _ = HardNegatives(hard=2)(vectors, np.asarray([gold]), ranked_search)
    assert competitors(pool, competes) == [expected]


def test_in_batch_lends_the_gold_of_others_but_not_their_hard_negatives():
    vectors = np.asarray([[9.0, 8.0, 0.0, 0.0], [0.0, 0.0, 9.0, 8.0]])
    gold = np.asarray([0, 2])
    pool, competes, _ = HardNegatives(hard=1, in_batch=True)(vectors, gold, ranked_search)
    assert competitors(pool, competes) == [{0, 1, 2}, {0, 2, 3}]
    pool, competes, _ = HardNegatives(hard=1, in_batch=False)(vectors, gold, ranked_search)
    assert competitors(pool, competes) == [{0, 1}, {2, 3}]


def test_without_hard_negatives_the_index_is_not_searched():
    pool, competes, targets = HardNegatives(hard=0)(np.ones((2, 3)), np.asarray([2, 1]), pytest.fail)
    assert pool.tolist() == [1, 2]
    assert competes.all()
    assert targets.tolist() == [1, 0]


def test_ten_from_the_index_and_the_batch_are_the_default(index):
    choose, gold = HardNegatives(), np.asarray([0, 1])
    pool, competes, _ = choose(np.asarray(index.vectors[:2]), gold, index.search)
    assert pool.tolist() == list(range(10))
    assert competes.all()


def test_live_search_finds_the_neighbours_in_the_index(index):
    gold = index.positions(["E1", "E3"])
    queries = np.asarray(index.vectors[gold])
    pool, competes, _ = HardNegatives(hard=2, in_batch=False)(queries, gold, index.search)
    assert competitors(pool, competes) == naive(queries, gold, index.search, hard=2, in_batch=False)
