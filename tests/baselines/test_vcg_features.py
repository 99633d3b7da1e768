import numpy as np
import pytest
import spacy
from hypothesis import given
from hypothesis import strategies as st
from spacy.tokens import Doc
from test_vcg_build import decode

from spacy_elq.baselines.vcg.features import (
    TOKENS,
    count_shared_words,
    read_contexts,
    read_features,
    read_questions,
)
from spacy_elq.baselines.vcg.mentions import are_not_blocked, find_ngrams
from spacy_elq.pipeline.batch import span_texts

nlp = spacy.blank("en")


def find(relations, *texts, block=False, longest=4, candidates=50):
    docs = list(map(nlp.make_doc, texts))
    return docs, find_ngrams(docs, relations, longest=longest, candidates=candidates, block=block)


def texts_of(relations, *texts, **settings):
    docs, ngrams = find(relations, *texts, **settings)
    return span_texts(docs, ngrams.spans)


# ---------------------------------------------------------------------- n-grams


def test_ngrams_are_names_and_parts_of_names(relations):
    found = texts_of(relations, "is new york city near paris", "nothing", "", "georgia")
    assert found == ["new", "new york", "new york city", "york", "york city", "city", "paris", "georgia"]


def test_no_function_word_at_the_edges(relations):
    # "city of light" has one inside, "of light" begins with one
    assert texts_of(relations, "the city of light") == ["city", "city of light", "light"]


def test_longest_ngram(relations):
    assert texts_of(relations, "new york city", longest=2) == ["new", "new york", "york", "york city", "city"]


def test_a_text_does_not_begin_with_its_verb(relations):
    doc = Doc(nlp.vocab, ["light", "paris"], pos=["VERB", "PROPN"])
    noun = Doc(nlp.vocab, ["light", "paris"], pos=["NOUN", "PROPN"])
    other = Doc(nlp.vocab, ["paris", "light"], pos=["PROPN", "VERB"])
    found = find_ngrams([doc, noun, other], relations, longest=4, candidates=50, block=False)
    assert found.spans.tolist() == [[1, 2], [2, 3], [3, 4], [4, 5], [5, 6]]
    assert found.docs.tolist() == [0, 1, 1, 2, 2]


def test_whole_names_block_their_parts(relations):
    assert texts_of(relations, "new york city near light", block=True) == ["new york city", "light"]
    # "new york" is only a part of a name
    assert texts_of(relations, "new york", block=True) == ["new", "new york", "york"]


def test_what_is_blocked_does_not_block():
    spans = np.asarray([(0, 3), (2, 4), (3, 4), (2, 3)])
    assert are_not_blocked(spans, np.asarray([True, True, True, True])).tolist() == [True, False, True, False]
    # of one length all stay
    spans = np.asarray([(0, 2), (1, 3), (2, 3)])
    assert are_not_blocked(spans, np.asarray([True, True, False])).tolist() == [True, True, False]


def test_candidates_are_limited(relations):
    _, ngrams = find(relations, "paris", candidates=1)
    assert (ngrams.sizes.tolist(), relations.entity(int(ngrams.entities[0])).id) == ([1], "E1")


# ---------------------------------------------------------------------- questions


def test_words_of_a_question(relations):
    docs, ngrams = find(relations, "is it near Paris", "paris")
    words, places = read_questions(docs, ngrams, relations)
    vectors = relations.words.vectors(["<", "is", "it", "near", "paris", ">"])
    np.testing.assert_array_equal(words[0, :6], vectors)
    assert not words[0, 6:].any()
    assert places[0].tolist() == [1, 1, 1, 1, 2, 1, *[0] * 9]
    assert places[1].tolist() == [1, 2, 1, *[0] * 12]


@given(st.integers(0, 40), st.integers(0, 40))
def test_of_a_long_text_the_words_around_are_read(relations, before, after):
    docs, ngrams = find(relations, " ".join([*["x"] * before, "paris", *["y"] * after]))
    words, places = read_questions(docs, ngrams, relations)
    assert (places == 2).sum() == 1
    assert (places > 0).sum() == min(before + after + 3, TOKENS)
    np.testing.assert_array_equal(words[places == 2], relations.words.vectors(["paris"]))
    # in the middle where there is text on both sides
    if min(before, after) > TOKENS:
        assert places[0, TOKENS // 2] == 2


def test_characters_around_an_ngram(relations):
    docs, ngrams = find(relations, "so, how far is Paris from here", "paris")
    contexts = [decode(row) for row in read_contexts(docs, ngrams.spans)]
    assert contexts == ["<far is paris from here>", "<paris>"]


# ---------------------------------------------------------------------- shared words


def shared(relations, text):
    docs, ngrams = find(relations, text)
    counts = count_shared_words(docs, ngrams, relations) * 10
    ids = [relations.entity(int(position)).id for position in ngrams.entities]
    return dict(zip(ids, counts.round(5).tolist(), strict=True))


def test_words_in_the_signature_of_a_candidate_are_counted(relations):
    # a word of its own, "capital" of its relation with E7, whose title has "Georgia"
    assert shared(relations, "paris the capital")["E1"] == 2.0
    assert shared(relations, "paris the capital capital")["E1"] == 2.0
    assert shared(relations, "what is paris")["E1"] == 1.0
    assert shared(relations, "paris the capital")["E2"] == 1.0


def test_words_of_the_ngram_are_not_counted_again(relations):
    # E10 leads to "Jaguar", which is the n-gram itself
    assert shared(relations, "jaguar")["E10"] == 1.0
    assert shared(relations, "named jaguar")["E10"] == 2.0


def test_function_words_are_not_counted(relations):
    # the relation is "place of birth"
    assert shared(relations, "shaq of")["E8"] == 1.0
    assert shared(relations, "shaq birth")["E8"] == 2.0


# ---------------------------------------------------------------------- all of it


def test_entities_are_there_once(relations):
    docs, ngrams = find(relations, "paris", "from paris to jaguar")
    features = read_features(docs, ngrams, relations)
    assert len(features.entities) == len(features.labels) == 4
    assert features.sizes.tolist() == [2, 2, 2]
    assert features.candidates.tolist() == [0, 1, 0, 1, 2, 3]
    # E1 has three relations, E9 two and E10 one
    assert features.owners.tolist() == [0, 0, 0, 2, 2, 3]
    np.testing.assert_array_equal(features.entities, relations.vectors(np.unique(ngrams.entities)))
    # E1 is linked to the jaguar
    assert features.numbers.shape == (6, 3)
    assert features.numbers[2].tolist() == pytest.approx([*np.log1p([3, 3]) / np.log1p(1000), 0.2])
