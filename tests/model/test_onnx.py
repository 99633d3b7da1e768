import multiprocessing
import pickle

import numpy as np
import onnx
import onnxruntime
import pytest
import spacy
import torch
from conftest import links_of
from spacy.training import Example
from transformers import AutoModel

from spacy_elq.errors import ELQError
from spacy_elq.model.onnx import OnnxTransformer, replace_transformer, to_onnx

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
