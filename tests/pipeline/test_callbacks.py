from functools import partial

import pytest
from conftest import train

from spacy_elq.errors import ELQError
from spacy_elq.pipeline.callbacks import build_adjust_linker, build_freeze_layers, build_run_callbacks


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


def test_callbacks_run_in_their_order():
    calls = []

    def note(nlp, *, name):
        calls.append(name)
        return nlp + name

    callbacks = {"b": partial(note, name="b"), "a": partial(note, name="a")}
    assert build_run_callbacks(callbacks)("nlp ") == "nlp ba"
    assert calls == ["b", "a"]


def test_linker_gets_settings_and_keeps_its_index(make_pipeline, index):
    nlp = make_pipeline("tok2vec")
    settings = {"decoder": {"threshold": 0.4}, "label": "THING", "prior": {}}
    assert build_adjust_linker(settings=settings)(nlp) is nlp
    linker = nlp.get_pipe("elq_linker")
    assert (linker.threshold, linker.label) == (0.4, "THING")
    assert linker.index is index
    assert nlp.config["components"]["elq_linker"]["decoder"]["threshold"] == 0.4


def test_unknown_setting_of_the_linker_is_an_error(make_pipeline):
    with pytest.raises(ELQError, match=r"E077.*decoder\.treshold"):
        build_adjust_linker(settings={"decoder": {"treshold": 0.4}})(make_pipeline("tok2vec"))
