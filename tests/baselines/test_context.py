import numpy as np
import pytest
import spacy
import torch
from spacy_transformers.architectures import create_TransformerModel_v3
from spacy_transformers.span_getters import configure_get_doc_spans
from transformers import AutoModel, AutoTokenizer

from spacy_elq.baselines.blink.context import build_context_tower
from spacy_elq.errors import ELQError

TEXTS = ["is mercury a hot planet", "paris, texas", "from georgia to new york city"]
SPANS = np.asarray([[1, 2], [5, 6], [9, 10], [11, 14]])
MARKED = [
    "is [unused0] mercury [unused1] a hot planet",
    "[unused0] paris [unused1] , texas",
    "from [unused0] georgia [unused1] to new york city",
    "from georgia to [unused0] new york city [unused1]",
]


@pytest.fixture
def make_tower(encoder_path):
    def make(width=48, **settings):
        encoder = create_TransformerModel_v3(
            str(encoder_path), configure_get_doc_spans(), tokenizer_config={"use_fast": True}
        )
        tower = build_context_tower(encoder, **settings)
        tower.set_dim("nO", width)
        tower.initialize()
        return tower

    return make


@pytest.fixture
def docs():
    nlp = spacy.blank("en")
    return [nlp.make_doc(text) for text in TEXTS]


@torch.inference_mode()
def expected_vectors(encoder_path, pooling):
    """The same with nothing but transformers, a text at a time."""
    marks = ["[unused0]", "[unused1]"]
    tokenizer = AutoTokenizer.from_pretrained(encoder_path, additional_special_tokens=marks)
    model = AutoModel.from_pretrained(encoder_path).eval()
    states = [model(**tokenizer(text, return_tensors="pt")).last_hidden_state[0] for text in MARKED]
    return torch.stack([x[0] if pooling == "cls" else x.mean(0) for x in states]).numpy()


@pytest.mark.parametrize("pooling", ["cls", "mean"])
def test_vectors_are_those_of_the_marked_texts(make_tower, docs, encoder_path, pooling):
    vectors = make_tower(pooling=pooling).predict((docs, SPANS))
    np.testing.assert_allclose(vectors, expected_vectors(encoder_path, pooling), atol=1e-5)


def test_batches_by_length_change_nothing(make_tower, docs, monkeypatch):
    tower = make_tower()
    together = tower.predict((docs, SPANS))
    monkeypatch.setattr("spacy_elq.baselines.blink.context._MENTIONS_AT_ONCE", 1)
    np.testing.assert_allclose(tower.predict((docs, SPANS)), together, atol=1e-5)


def test_another_width_is_projected(make_tower, docs):
    assert make_tower(width=7).predict((docs, SPANS)).shape == (4, 7)


@pytest.mark.parametrize("pooling", ["cls", "mean"])
def test_gradient_of_a_parameter(make_tower, docs, pooling, monkeypatch):
    """Finite differences of a sum of the vectors, weighted, with respect to the bias of the last layer."""
    monkeypatch.setattr("spacy_elq.baselines.blink.context._MENTIONS_AT_ONCE", 2)
    tower = make_tower(width=7, pooling=pooling)
    bias = tower.layers[0].transformer.encoder.layer[-1].output.LayerNorm.bias
    weights = np.random.default_rng(0).normal(size=(4, 7)).astype("f")
    _, backprop = tower.begin_update((docs, SPANS))
    backprop(weights)
    found = bias.grad.numpy()[:5].copy()
    expected = []
    for i in range(5):
        sums = []
        for step in (0.01, -0.01):
            with torch.no_grad():
                bias[i] += step
            sums.append(float((tower.predict((docs, SPANS)) * weights).sum()))
            with torch.no_grad():
                bias[i] -= step
        expected.append((sums[0] - sums[1]) / 0.02)
    np.testing.assert_allclose(found, expected, rtol=1e-2, atol=1e-3)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"pooling": "max"}, "E002.*pooling"),
        ({"max_length": 4}, "E002.*max_length"),
        ({"start_mark": "[nowhere]"}, r"E079.*\[nowhere\]"),
    ],
)
def test_bad_settings_are_named(make_tower, settings, message):
    with pytest.raises(ELQError, match=message):
        make_tower(**settings)
