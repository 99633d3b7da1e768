"""Private parts of spacy-transformers and thinc that `model/transformer` and `model/towers` rely on. If an
upgrade changes one, it shows here first.
"""

import dataclasses
import inspect

import numpy as np
import pytest
import spacy
import torch
from spacy_transformers import data_classes, layers, truncate
from spacy_transformers.layers import hf_shim, transformer_model
from spacy_transformers.pipeline_component import install_extensions
from thinc.api import Linear, Model, PyTorchShim
from thinc.layers.linear import forward as linear_forward
from thinc.util import convert_recursive

FIELDS = {
    "FullTransformerBatch": ["spans", "wordpieces", "model_output", "align", "cached_doc_data"],
    "HFObjects": [
        "tokenizer",
        "transformer",
        "vocab_file_contents",
        "_init_tokenizer_config",
        "_init_transformer_config",
    ],
    "TransformerData": ["wordpieces", "model_output", "align"],
    "WordpieceBatch": ["strings", "input_ids", "attention_mask", "lengths", "token_type_ids"],
}
# functions, and how their parameters begin
SIGNATURES = [
    (transformer_model.forward, ["model", "docs", "is_train"]),
    (
        layers.TransformerModel.__init__,
        ["self", "name", "get_spans", "tokenizer_config", "transformer_config", "mixed_precision"],
    ),
    (layers.TransformerListener.__init__, ["self", "upstream_name"]),
    (layers.split_trf_batch, []),
    (truncate.truncate_oversize_splits, ["wordpieces", "align", "max_length"]),
    (PyTorchShim.predict, ["self", "inputs"]),
    (PyTorchShim.begin_update, ["self", "inputs"]),
    (linear_forward, ["model", "X", "is_train"]),
    (convert_recursive, ["is_match", "convert_item", "obj"]),
]


def get_spans(docs):
    return [[doc[:]] for doc in docs]


@pytest.fixture
def model(encoder_path):
    """RETURNS: A model as spacy-transformers makes it, with its transformer."""
    model = layers.TransformerModel(str(encoder_path), get_spans, {"use_fast": True})
    model.initialize()
    return model


@pytest.fixture
def doc():
    return spacy.blank("en").make_doc("what is the capital of france")


@pytest.mark.parametrize("name", FIELDS)
def test_records_of_spacy_transformers_have_these_fields(name):
    fields = [field.name for field in dataclasses.fields(getattr(data_classes, name))]
    assert fields == FIELDS[name], f"spacy_transformers.data_classes.{name} has other fields"


@pytest.mark.parametrize(
    ("function", "expected"), SIGNATURES, ids=[f"{f.__module__}.{f.__qualname__}" for f, _ in SIGNATURES]
)
def test_functions_take_these_arguments(function, expected):
    found = list(inspect.signature(function).parameters)
    assert found[: len(expected)] == expected, f"{function.__qualname__} takes other arguments"


def test_the_shim_takes_these_settings():
    found = set(inspect.signature(hf_shim.HFShim.__init__).parameters)
    assert {"model", "mixed_precision", "grad_scaler_config", "model_cls"} <= found


def test_a_thinc_model_runs_what_is_in_func(model, doc, monkeypatch):
    assert model._func is transformer_model.forward, "Model._func is no longer the forward pass"
    monkeypatch.setattr(model, "_func", lambda model, docs, is_train: ("ours", None))
    assert model.predict([doc]) == "ours", "Model.predict no longer calls Model._func"
    assert model.begin_update([doc])[0] == "ours", "Model.begin_update no longer calls Model._func"


def test_the_transformer_is_in_the_shim_of_the_first_layer(model):
    (wrapper,) = model.layers
    (shim,) = wrapper.shims
    assert type(shim) is hf_shim.HFShim
    assert isinstance(shim._hfmodel, data_classes.HFObjects)
    assert shim._model is shim._hfmodel.transformer is model.transformer
    assert shim._hfmodel.tokenizer is model.tokenizer
    assert shim._mixed_precision is False


def test_the_wrapper_takes_word_pieces_and_gives_what_transformers_gives(model):
    ones: np.ndarray = np.ones((1, 4), dtype="int64")
    pieces = data_classes.WordpieceBatch([], ones, ones.astype("f"), [4], None)
    output, backprop = model.layers[0](pieces, True)
    assert output.last_hidden_state.shape == (1, 4, model.get_dim("nO"))
    backprop(type(output)(last_hidden_state=torch.ones_like(output.last_hidden_state)))
    assert model.transformer.embeddings.word_embeddings.weight.grad is not None


def test_attributes_of_the_model_are_there(model):
    assert model.attrs["get_spans"] is get_spans
    assert model.attrs["has_transformer"] is True
    assert model.attrs["set_transformer"] is transformer_model.set_pytorch_transformer
    assert "logger" not in model.attrs, "whether a model logs is no longer to be seen from its attributes"


def test_a_shim_makes_its_transformer_of_a_configuration_when_it_is_loaded(model):
    source = inspect.getsource(hf_shim.HFShim.from_bytes)
    assert "self.model_cls.from_config(" in source, "HFShim.from_bytes makes its transformer in another way"


def test_output_that_is_split_by_doc_is_used_as_it_is(model, doc):
    batch = model.predict([doc])
    data = [data_classes.TransformerData.empty()]
    own = data_classes.FullTransformerBatch(
        batch.spans, batch.wordpieces, batch.model_output, batch.align, data
    )
    assert own.doc_data is data, "FullTransformerBatch no longer takes the output of each doc"


def test_docs_have_no_transformer_output_before_a_transformer_was_there(doc):
    install_extensions()
    assert doc._.trf_data is None, "a doc that no transformer has seen looks as if one had"


def test_a_shim_of_thinc_has_a_model_and_a_precision():
    shim = PyTorchShim(torch.nn.Linear(2, 2))
    assert isinstance(shim._model, torch.nn.Linear)
    assert shim._mixed_precision is False


def test_a_linear_layer_of_thinc_is_what_saved_pipelines_hold():
    model = Linear(2, 3).initialize()
    assert isinstance(model, Model)
    assert (model.name, sorted(model.dim_names), sorted(model.param_names)) == (
        "linear",
        ["nI", "nO"],
        ["W", "b"],
    )
    assert model.get_param("W").shape == (2, 3)
    assert model._func is linear_forward
    assert callable(model.init)
