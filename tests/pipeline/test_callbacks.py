import pytest
from conftest import train

from spacy_elq.errors import ELQError
from spacy_elq.pipeline.callbacks import build_freeze_layers


def test_frozen_layers_stay_and_the_others_learn(make_pipeline, gold_docs):
    nlp = make_pipeline("transformer", gold_docs)
    assert build_freeze_layers(layers=1)(nlp) is nlp
    model = nlp.get_pipe("transformer").model.transformer
    before = {name: value.detach().clone() for name, value in model.named_parameters()}
    train(nlp, gold_docs, steps=2, learn_rate=0.01)
    changed = {name for name, value in model.named_parameters() if not value.equal(before[name])}
    assert not any(name.startswith(("embeddings.", "encoder.layer.0.")) for name in changed)
    assert any(name.startswith("encoder.layer.1.") for name in changed)


def test_a_transformer_with_nothing_left_to_learn_is_an_error(make_pipeline):
    with pytest.raises(ELQError, match=r"E002.*`layers`.*2.*fewer than 2 layers"):
        build_freeze_layers(layers=2)(make_pipeline("transformer"))
