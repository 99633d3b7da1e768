"""The forward pass at prediction gives what that of spacy-transformers gives."""

import numpy as np
import pytest
import spacy
import torch
from conftest import TRANSFORMER, links_of, train
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from spacy.tokens import Doc
from spacy_transformers.layers.transformer_model import forward

from spacy_elq.model.transformer import (
    build_transformer_model,
    can_predict,
    predict_batch,
    split_mixed_precision,
)
from spacy_elq.model.wordpieces import visible_text

WORDS = st.sampled_from(
    ["paris", "can't", "new", "york", "  ", "é", "🦊", "x" * 12, "shaq", "​", "日本", "\n"]
)
TEXTS = [
    "what is the capital of france near paris",
    "",
    "mercury",
    "from georgia to paris and new york city in texas " * 8,
    " is  shaq's\njaguar\u00a0in new-york city ",
    "paris",
    "日本 🦊 é can't",
]
_ARRAYS = ("input_ids", "attention_mask", "token_type_ids")


def get_windows(docs):
    """Windows of 24 tokens that overlap, as spacy-transformers has them."""
    return spacy.registry.span_getters.get("spacy-transformers.strided_spans.v1")(window=24, stride=16)(docs)


def make_model(encoder_path, get_spans=get_windows, **transformer_config):
    model = build_transformer_model(str(encoder_path), get_spans, {"use_fast": True}, transformer_config)
    model.initialize()
    return model


@pytest.fixture(scope="module")
def model(encoder_path):
    return make_model(encoder_path)


def docs_of(texts):
    nlp = spacy.blank("en")
    return [nlp.make_doc(text) for text in texts]


def assert_same(found, expected):
    """Compare the output of a doc, but for the states of padding."""
    assert found.wordpieces.strings == expected.wordpieces.strings
    assert found.wordpieces.lengths == expected.wordpieces.lengths
    for name in _ARRAYS if len(expected.wordpieces) else ():
        array, other = getattr(found.wordpieces, name), getattr(expected.wordpieces, name)
        np.testing.assert_array_equal(array, other)
        assert array.dtype == other.dtype
    for name in ("dataXd", "lengths"):
        array, other = getattr(found.align, name), getattr(expected.align, name)
        np.testing.assert_array_equal(array, other)
        assert (array.dtype, array.shape) == (other.dtype, other.shape)
    assert list(found.model_output) == list(expected.model_output)
    mask = expected.wordpieces.attention_mask.astype(bool)
    for key, value in expected.model_output.items():
        array = found.model_output[key]
        if key == "last_hidden_state":
            array, value = array[mask], value[mask]
        np.testing.assert_allclose(np.asarray(array), np.asarray(value), atol=1e-4)


def assert_same_batch(model, docs):
    found, expected = model.predict(docs), forward(model, docs, is_train=False)[0]
    assert len(found.doc_data) == len(expected.doc_data) == len(docs)
    for own, other in zip(found.doc_data, expected.doc_data, strict=True):
        assert_same(own, other)
    assert found.spans == expected.spans
    for own, other in zip(found.split_by_doc(), expected.doc_data, strict=True):
        assert_same(own, other)


def test_it_gives_what_spacy_transformers_gives(model):
    assert_same_batch(model, docs_of(TEXTS))


def test_texts_of_one_batch_are_run_in_groups(model):
    widths = []
    handle = model.transformer.register_forward_pre_hook(
        lambda module, args, kwargs: widths.append(tuple(kwargs["input_ids"].shape)), with_kwargs=True
    )
    model.predict(docs_of(["paris " * 20] * 3 + ["paris"] * 4))
    handle.remove()
    assert widths == [(3, 22), (4, 3)]


@settings(max_examples=50, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.lists(st.tuples(WORDS, st.booleans()), max_size=40), min_size=1, max_size=4))
def test_any_doc_is_aligned_in_the_same_way(model, contents):
    vocab = spacy.blank("en").vocab
    docs = [Doc(vocab, words=[w for w, _ in c], spaces=[s for _, s in c]) for c in contents]
    # what is blanked, spacy-transformers shows to the encoder
    if any(map(len, docs)) and all(visible_text(doc[:]) == doc.text for doc in docs if len(doc)):
        assert_same_batch(model, docs)


def test_a_word_that_an_emoji_touches_is_seen(model):
    docs = docs_of(["\U0001f98aparis is", "  paris is", "paris\U0001f98a is", "paris  is"])
    found = [data.wordpieces.strings[0][1:3] for data in model.predict(docs).doc_data]
    assert found == [found[1]] * 4
    assert "[UNK]" in forward(model, docs[:1], is_train=False)[0].wordpieces.strings[0]


def test_what_is_longer_than_the_encoder_takes_is_cut_off(encoder_path):
    model = make_model(encoder_path, lambda docs: [[doc[:]] if len(doc) else [] for doc in docs])
    assert_same_batch(model, docs_of(["xxxxxxxxxxxx " * 10, "paris"]))


def test_windows_may_leave_tokens_out(encoder_path):
    docs = docs_of(["what is the capital of france", "is paris in texas or not"])
    model = make_model(encoder_path, lambda docs: [[doc[1:3], doc[3:-1]] for doc in docs])
    assert_same_batch(model, docs)
    assert_same_batch(model, docs[:1])


@pytest.mark.parametrize("window", [slice(1, None), slice(None, -1)])
def test_windows_of_a_single_doc_may_leave_tokens_out(encoder_path, window):
    model = make_model(encoder_path, lambda docs: [[doc[window]] for doc in docs])
    assert_same_batch(model, docs_of(["what is the capital of france"]))


@pytest.mark.parametrize("extra", ["output_hidden_states", "output_attentions"])
def test_other_outputs_are_kept(encoder_path, extra):
    model = make_model(encoder_path, **{extra: True})
    docs = docs_of(["paris " * 20] * 3 + ["paris"] * 4)
    assert_same_batch(model, docs)
    for data in model.predict(docs).doc_data:
        assert len(data.model_output[extra.replace("output_", "")]) >= 2


def test_training_is_left_to_spacy_transformers(model):
    docs = docs_of(TEXTS)
    output, backprop = model.begin_update(docs)
    assert output.cached_doc_data is None
    assert output.model_output.last_hidden_state.requires_grad
    assert callable(backprop)


@pytest.mark.parametrize(("name", "value"), [("padding_side", "left"), ("pad_token", None)])
def test_unusual_tokenizers_are_left_to_spacy_transformers(encoder_path, name, value):
    model = make_model(encoder_path)
    assert can_predict(model)
    setattr(model.tokenizer, name, value)
    assert not can_predict(model)


def test_a_model_that_logs_is_left_to_spacy_transformers(encoder_path):
    model = make_model(encoder_path)
    model.attrs["logger"] = None
    assert not can_predict(model)


def test_what_is_not_usual_is_run_by_spacy_transformers(encoder_path):
    model = make_model(encoder_path)
    model.tokenizer.padding_side = "left"
    output = model.predict(docs_of(["paris is near", "paris"]))
    assert output.wordpieces.strings[1][0] == "[PAD]"


def test_settings_of_the_tokenizer_do_not_matter(model):
    docs = docs_of(["what is the capital of france", "paris"])
    expected = predict_batch(model, docs)
    model.tokenizer.backend_tokenizer.enable_padding(length=30)
    model.tokenizer.backend_tokenizer.enable_truncation(max_length=3)
    found = predict_batch(model, docs)
    assert found.wordpieces.strings == expected.wordpieces.strings


def cosines(a, b):
    return (a * b).sum(1) / np.linalg.norm(a, axis=1) / np.linalg.norm(b, axis=1)


def use_own_architecture(nlp):
    config = nlp.config.copy()
    config["components"]["transformer"]["model"]["@architectures"] = "spacy-elq.TransformerModel.v1"
    return config


def test_prediction_changes_the_mode_once(trained_path, gold_docs, tmp_path):
    nlp = spacy.load(trained_path)
    lean = spacy.util.load_model_from_config(use_own_architecture(nlp), auto_fill=True)
    lean.from_disk(trained_path)
    module = lean.get_pipe("transformer").model.transformer
    modes = []
    module.register_forward_pre_hook(lambda m, args: modes.append(m.training))
    assert links_of(lean(gold_docs[0].text)) == links_of(gold_docs[0])
    assert not module.training  # and stays there
    train(lean, gold_docs[:2], steps=1, learn_rate=0.0)
    assert modes == [False, True]
    assert links_of(lean(gold_docs[0].text)) == links_of(gold_docs[0])


@pytest.fixture
def bfloat16(monkeypatch):
    """Says what the processor can: any can compute in bfloat16, most of them slowly."""

    def set_capability(has):
        monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: {"avx512_bf16": has}, raising=False)

    return set_capability


def test_mixed_precision_on_a_cpu_is_bfloat16_where_it_is_quick(bfloat16, monkeypatch):
    bfloat16(True)
    assert split_mixed_precision(True) == (False, True)
    assert split_mixed_precision(False) == (False, False)
    bfloat16(False)
    assert split_mixed_precision(True) == (False, False)
    monkeypatch.delattr(torch.cpu, "get_capabilities")
    assert split_mixed_precision(True) == (False, False)
    monkeypatch.setattr("spacy_elq.model.transformer.get_torch_default_device", lambda: torch.device("cuda"))
    assert split_mixed_precision(True) == (True, False)


@pytest.mark.parametrize("outputs", [{}, {"output_hidden_states": True}], ids=str)
def test_mixed_precision_trains_in_bfloat16_and_predicts_in_float32(
    encoder_path, gold_docs, bfloat16, outputs
):
    bfloat16(True)
    spans = spacy.util.registry.resolve({"get": TRANSFORMER["config"]["model"]["get_spans"]})["get"]
    mixed, plain = (
        build_transformer_model(str(encoder_path), spans, {"use_fast": True}, outputs, mixed_precision=m)
        for m in (True, False)
    )
    found, kinds = {}, []
    for name, model in (("mixed", mixed), ("plain", plain)):
        model.initialize(X=gold_docs[:2])
        for module in model.transformer.modules():
            if isinstance(module, torch.nn.Dropout):
                module.p = 0.0
        dense = model.transformer.encoder.layer[0].output.dense
        dense.register_forward_hook(lambda m, args, output: kinds.append(output.dtype))
        predicted = model.predict(gold_docs[:2]).model_output.last_hidden_state
        trained, backprop = model.begin_update(gold_docs[:2])
        states = trained.model_output.last_hidden_state.detach().clone()
        assert all(d.tensors[0].dtype == "float32" for d in trained.doc_data)
        for doc in trained.doc_data:
            doc.tensors[0][:] = np.random.default_rng(0).normal(size=doc.tensors[0].shape)
        backprop(trained)
        found[name] = predicted, states, dense.weight.grad
    assert kinds == [torch.float32, torch.bfloat16, torch.float32, torch.float32]
    assert np.array_equal(found["mixed"][0], found["plain"][0])
    for exact, rough in zip(found["plain"][1:], found["mixed"][1:], strict=True):
        exact, rough = exact.numpy().ravel(), rough.numpy().ravel()
        assert not np.array_equal(exact, rough)
        assert cosines(exact[None], rough[None]) > 0.99


def test_a_pipeline_learns_in_bfloat16(make_pipeline, gold_docs, bfloat16, tmp_path):
    bfloat16(True)
    nlp = make_pipeline("transformer", gold_docs)
    nlp.to_disk(tmp_path / "fresh")
    config = use_own_architecture(nlp)
    config["components"]["transformer"]["model"]["mixed_precision"] = True
    mixed = spacy.util.load_model_from_config(config, auto_fill=True).from_disk(tmp_path / "fresh")
    train(mixed, gold_docs, steps=150, learn_rate=0.002)
    mixed.to_disk(tmp_path / "learnt")
    for learnt in (mixed, spacy.load(tmp_path / "learnt")):
        assert [links_of(learnt(doc.text)) for doc in gold_docs] == [links_of(doc) for doc in gold_docs]
