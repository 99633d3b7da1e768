import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from strategies import numeric_gradient

from spacy_elq.core.similarity import Prior, add_prior, mention_bonus, name_degrees, name_shares

MATCHES = st.dictionaries(
    st.tuples(st.integers(0, 3), st.integers(0, 9)), st.sampled_from([0.5, 0.75, 1.0]), max_size=12
)


def test_by_default_only_the_vectors_count():
    dense = np.asarray([[1.0, -2.0]])
    assert (add_prior(dense, Prior(), degrees=np.ones((1, 2)), log_popularity=np.ones(2)) == dense).all()


def test_names_and_popularity_are_added_by_their_weights():
    prior = Prior(name_weight=4.0, popularity_weight=0.5)
    found = add_prior(
        np.asarray([[1.0, 2.0], [3.0, 4.0]]),
        prior,
        degrees=np.asarray([[1.0, 0.0], [0.5, 0.0]]),
        log_popularity=np.asarray([2.0, 6.0]),
    )
    np.testing.assert_allclose(found, [[1 + 4 + 1, 2 + 3], [3 + 2 + 1, 4 + 3]])


@given(MATCHES, st.sets(st.integers(0, 9), min_size=1))
def test_matches_are_laid_out_as_by_a_loop(matches, entities):
    """Matches with entities outside of the pool are left out."""
    pool = np.asarray(sorted(entities))
    owners, found = np.asarray(sorted(matches), dtype="int64").reshape(-1, 2).T
    degrees = np.asarray([matches[pair] for pair in sorted(matches)], dtype="float64")
    expected = [[matches.get((mention, entity), 0.0) for entity in pool.tolist()] for mention in range(4)]
    assert name_degrees(owners, found, degrees, pool=pool, mentions=4).tolist() == expected


def test_names_of_several_words_and_whole_texts_count_more():
    prior = Prior(mention_name_weight=1.0, phrase_weight=10.0, text_weight=100.0)
    lengths, words, are_texts = np.asarray([[1, 2, 2, 6], [1, 1, 2, 6], [False, True, False, True]])
    assert mention_bonus(prior, lengths, words, are_texts).tolist() == [1.0, 102.0, 12.0, 114.0]
    assert not mention_bonus(Prior(), lengths, words, are_texts).any()


def test_what_was_learned_shares_the_weight_of_names():
    prior, ones = Prior(mention_name_weight=3.0, text_weight=5.0), np.ones(3, dtype="int64")
    shares, slopes = name_shares(np.asarray([-1000.0, 0.0, 1000.0]))
    assert mention_bonus(prior, ones, ones, ones > 0, shares).tolist() == [5.0, 8.0, 11.0]
    np.testing.assert_allclose(
        slopes, numeric_gradient(lambda X: name_shares(X)[0].sum(), np.asarray([-1000.0, 0.0, 1000.0]))
    )
