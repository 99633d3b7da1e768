import multiprocessing
import pickle

import numpy as np
import onnx
import onnxruntime
import pytest
import spacy
import torch
from conftest import TRANSFORMER, links_of, train
from spacy.training import Example
from transformers import AutoModel

from spacy_elq.errors import ELQError
from spacy_elq.model.transformer import (
    OnnxTransformer,
    build_transformer_model,
    replace_transformer,
    split_mixed_precision,
    to_onnx,
)

IDS = torch.tensor([[2, 9, 10, 11, 3], [2, 12, 3, 0, 0]])
MASK = torch.tensor([[1, 1, 1, 1, 1], [1, 1, 1, 0, 0]])


@pytest.fixture(scope="module")
def transformer(encoder_path):
    return AutoModel.from_pretrained(encoder_path).eval()


@pytest.fixture(scope="module", params=["float32", "int8"])
def converted(request, transformer):
    return request.param, OnnxTransformer(
        transformer.config, to_onnx(transformer, precision=request.param)
    ).eval()


@torch.inference_mode()
def states(module, ids=IDS, mask=MASK):
    return module(input_ids=ids, attention_mask=mask).last_hidden_state[mask.bool()].numpy()


def cosines(a, b):
    return (a * b).sum(1) / np.linalg.norm(a, axis=1) / np.linalg.norm(b, axis=1)


def test_the_graph_gives_the_states(transformer, converted):
    precision, module = converted
    expected, found = states(transformer), states(module)
    if precision == "float32":
        assert found == pytest.approx(expected, abs=1e-5)
    else:
        assert cosines(found, expected).min() > 0.98
        assert not np.allclose(found, expected, atol=1e-5)


def test_int8_is_smaller(transformer):
    assert len(to_onnx(transformer, precision="int8")) < 0.5 * len(to_onnx(transformer, precision="float32"))


def test_adding_and_normalizing_are_two_steps(converted, monkeypatch, tmp_path):
    _, module = converted
    plain = onnxruntime.SessionOptions

    def options():
        made = plain()
        made.optimized_model_filepath = str(tmp_path / "run.onnx")
        return made

    monkeypatch.setattr(onnxruntime, "SessionOptions", options)
    monkeypatch.setattr(module, "_session", None)
    states(module)
    run = onnx.load(tmp_path / "run.onnx")
    for model in (onnx.load_from_string(module.graph.numpy().tobytes()), run):
        kinds = {node.op_type for node in model.graph.node}
        assert "LayerNormalization" in kinds
        assert not any("Skip" in kind for kind in kinds)


def test_the_transformer_stays_as_it_was(transformer, converted):
    assert transformer.config._attn_implementation == "sdpa"
    assert not transformer.training


def test_any_shape_of_batch(converted):
    _, module = converted
    ids = torch.full((3, 17), 9)
    assert states(module, ids, torch.ones_like(ids)).shape[0] == 51


def test_state_and_pickle_give_the_same_states(converted):
    _, module = converted
    expected = states(module)
    empty = OnnxTransformer.from_config(module.config)
    empty.load_state_dict(module.state_dict())
    assert np.array_equal(states(empty), expected)
    assert np.array_equal(states(pickle.loads(pickle.dumps(module))), expected)


def test_a_session_has_the_threads_of_torch(converted):
    _, module = converted
    before = torch.get_num_threads()
    states(module)
    session = module._session
    states(module)
    assert module._session is session
    torch.set_num_threads(before + 1)
    try:
        states(module)
        assert module._session.get_session_options().intra_op_num_threads == before + 1
    finally:
        torch.set_num_threads(before)


def put_states(queue, module):
    found = states(module)
    queue.put((found, module._session.get_session_options().intra_op_num_threads))


def test_a_forked_process_has_its_own_session(converted):
    _, module = converted
    torch.set_num_threads(2)
    expected = states(module)
    torch.set_num_threads(1)
    context = multiprocessing.get_context("fork")
    queue = context.Queue()
    process = context.Process(target=put_states, args=(queue, module))
    process.start()
    found, n_threads = queue.get(timeout=600)
    process.join()
    assert np.array_equal(found, expected)
    assert n_threads == 1


def test_it_cannot_be_trained(converted):
    _, module = converted
    with pytest.raises(ELQError, match="E090"):
        module(input_ids=IDS, attention_mask=MASK)


@pytest.fixture(scope="module")
def quantized(trained_path):
    nlp = spacy.load(trained_path)
    pipe = nlp.get_pipe("transformer")
    pipe.model = replace_transformer(pipe.model, precision="float32")
    return nlp


def test_a_pipeline_keeps_its_links(quantized, gold_docs):
    for doc in gold_docs:
        assert links_of(quantized(doc.text)) == links_of(doc)


def test_texts_of_different_length_are_run_apart(quantized, trained_path, monkeypatch):
    texts = ["is mercury a hot planet", "mercury"]
    shapes = {}
    for name, nlp in (("torch", spacy.load(trained_path)), ("onnx", quantized)):
        transformer = nlp.get_pipe("transformer").model.transformer
        seen = shapes.setdefault(name, [])
        run = transformer.forward
        monkeypatch.setattr(
            transformer, "forward", lambda *, s=seen, r=run, **x: s.append(len(x["input_ids"])) or r(**x)
        )
        list(nlp.pipe(texts))
    assert shapes == {"torch": [2], "onnx": [1, 1]}


def test_long_docs_are_read_in_windows(quantized, trained_path):
    text = "is mercury a hot planet and how big is new york city " * 10
    assert links_of(quantized(text)) == links_of(spacy.load(trained_path)(text)) != []


def test_training_the_pipeline_is_refused(quantized, gold_docs):
    with pytest.raises(ELQError, match="E090"):
        quantized.update([Example(quantized.make_doc(gold_docs[0].text), gold_docs[0])])


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
