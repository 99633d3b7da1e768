from dataclasses import replace

import numpy as np
import pytest
import spacy
import torch
from thinc.api import fix_random_seed

from spacy_elq.baselines.vcg.characters import LENGTH
from spacy_elq.baselines.vcg.features import TOKENS, Features, read_features
from spacy_elq.baselines.vcg.mentions import find_ngrams
from spacy_elq.baselines.vcg.network import build_vector_net, set_dropout

WIDTH = 6
SIZES = [3, 1, 2]
# of five entities, two candidates of two n-grams each
CANDIDATES = [0, 1, 2, 1, 4, 2]
# the second and the fourth have no relations
OWNERS = [0, 0, 2, 4]


def make_features(seed=0):
    random = np.random.default_rng(seed)

    def floats(*shape):
        return random.normal(size=shape).astype("float32")

    return Features(
        words=floats(3, TOKENS, WIDTH),
        places=random.integers(0, 3, (3, TOKENS)),
        contexts=random.integers(0, 90, (3, LENGTH)).astype("uint8"),
        sizes=np.asarray(SIZES),
        candidates=np.asarray(CANDIDATES),
        numbers=floats(6, 3),
        labels=random.integers(0, 90, (5, LENGTH)).astype("uint8"),
        entities=floats(5, WIDTH),
        owners=np.asarray(OWNERS),
        kinds=floats(4, WIDTH),
        phrases=floats(4, WIDTH),
        others=floats(4, WIDTH),
    )


def alone(features, ngram):
    """The features of one n-gram by itself; its entities are not numbered anew."""
    begin = sum(SIZES[:ngram])
    own = slice(begin, begin + SIZES[ngram])
    return replace(
        features,
        words=features.words[ngram : ngram + 1],
        places=features.places[ngram : ngram + 1],
        contexts=features.contexts[ngram : ngram + 1],
        sizes=features.sizes[ngram : ngram + 1],
        candidates=features.candidates[own],
        numbers=features.numbers[own],
    )


@pytest.fixture
def model():
    fix_random_seed(1)
    return build_vector_net(WIDTH, channels=8, characters=5, relations=7, candidates=10, mentions=6)


def test_a_score_for_each_candidate_and_a_logit_for_each_ngram(model):
    logits, scores = model.predict(make_features())
    assert (logits.shape, scores.shape) == ((3,), (6,))
    assert len(set(scores.tolist())) == 6


@pytest.mark.parametrize("ngram", range(3))
def test_ngrams_do_not_know_each_other(model, ngram):
    features = make_features()
    logits, scores = model.predict(features)
    own_logits, own_scores = model.predict(alone(features, ngram))
    np.testing.assert_allclose(own_logits, logits[ngram : ngram + 1], rtol=1e-5, atol=1e-6)
    begin = sum(SIZES[:ngram])
    np.testing.assert_allclose(own_scores, scores[begin : begin + SIZES[ngram]], rtol=1e-5, atol=1e-6)


def test_candidates_know_each_other(model):
    features = make_features()
    changed = features.numbers.copy()
    changed[0] += 100.0
    scores = model.predict(features)[1]
    others = model.predict(replace(features, numbers=changed))[1]
    assert (others[:3] != scores[:3]).all()
    np.testing.assert_allclose(others[3:], scores[3:], rtol=1e-5)


@pytest.mark.parametrize(
    "name", ["words", "places", "contexts", "numbers", "labels", "entities", "kinds", "phrases", "others"]
)
def test_everything_counts(model, name):
    features, other = make_features(0), make_features(1)
    changed = replace(features, **{name: getattr(other, name)})
    assert not np.allclose(model.predict(changed)[1], model.predict(features)[1], atol=1e-7)


def test_no_relations_are_as_a_vector_of_zeros(model):
    features = make_features()
    zeros = np.zeros((2, WIDTH), dtype="float32")
    added = {
        name: np.concatenate([getattr(features, name), zeros]) for name in ("kinds", "phrases", "others")
    }
    more = replace(features, owners=np.asarray([*OWNERS, 1, 3]), **added)
    np.testing.assert_allclose(model.predict(more)[1], model.predict(features)[1], rtol=1e-6)


def test_what_is_padding_does_not_count(model):
    features = make_features()
    labels = features.labels.copy()
    labels[:, 10:] = 0
    longest = replace(features, labels=labels)
    network = model.shims[0]._model
    with torch.no_grad():
        # a place that no character has
        network._names._places.weight[0] = 0.0
    assert np.isfinite(model.predict(longest)[1]).all()


def test_gradients(model):
    features = make_features()
    network = model.shims[0]._model.double()
    with torch.no_grad():
        for parameter in network.parameters():
            # biases begin at zero, where a rectified value of zeros has no derivative
            parameter += 0.05 * torch.randn_like(parameter)
    doubles = {
        name: values.astype("float64") if values.dtype.kind == "f" else values
        for name, values in vars(features).items()
    }
    features = Features(**doubles)
    random = np.random.default_rng(2)
    d_logits, d_scores = random.normal(size=3), random.normal(size=6)

    def loss():
        logits, scores = model.predict(features)
        return float((d_logits * logits).sum() + (d_scores * scores).sum())

    (_, _), backprop = model.begin_update(features)
    backprop((d_logits, d_scores))
    for name, parameter in network.named_parameters():
        flat, gradient = parameter.data.view(-1), parameter.grad.view(-1)
        place = int(gradient.abs().argmax())
        values = []
        for step in (1e-6, -2e-6):
            flat[place] += step
            values.append(loss())
        flat[place] += 1e-6
        assert float(gradient[place]) == pytest.approx((values[0] - values[1]) / 2e-6, rel=1e-3), name


def test_dropout_is_for_training(model):
    features = make_features()
    set_dropout(model, 0.5)
    np.testing.assert_array_equal(model.predict(features)[1], model.predict(features)[1])
    first, second = (model.begin_update(features)[0][1] for _ in range(2))
    assert not np.array_equal(first, second)
    set_dropout(model, 0.0)
    np.testing.assert_array_equal(*(model.begin_update(features)[0][1] for _ in range(2)))


def test_real_features(relations):
    nlp = spacy.blank("en")
    docs = [nlp.make_doc("is paris in texas"), nlp.make_doc("georgia")]
    ngrams = find_ngrams(docs, relations, longest=4, candidates=50, block=False)
    model = build_vector_net(relations.width)
    logits, scores = model.predict(read_features(docs, ngrams, relations))
    assert (len(logits), len(scores)) == (len(ngrams.spans), len(ngrams.entities))
