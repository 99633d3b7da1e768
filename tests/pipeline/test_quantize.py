import shutil
import subprocess
import sys

import pytest
import spacy
from conftest import links_of
from spacy.cli import app
from spacy.util import load_config, load_model
from typer.testing import CliRunner

from spacy_elq.errors import ELQError
from spacy_elq.pipeline.quantize import quantize


def test_help():
    result = CliRunner().invoke(app, ["elq", "quantize", "--help"])
    assert result.exit_code == 0
    assert "cannot be trained further" in " ".join(result.output.split())


@pytest.fixture(scope="module")
def quantized_path(trained_path, tmp_path_factory):
    target = tmp_path_factory.mktemp("quantized") / "elq"
    command = [sys.executable, "-m", "spacy", "elq", "quantize", str(trained_path), str(target)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    assert f"int8 pipeline: {target}" in " ".join(done.stdout.split())
    assert done.stderr == ""
    return target


def test_plain_spacy_loads_it(quantized_path, gold_docs):
    nlp = spacy.load(quantized_path)
    wrong = [doc.text for doc in gold_docs if links_of(nlp(doc.text)) != links_of(doc)]
    assert len(wrong) <= 2


def test_several_processes(quantized_path, gold_docs):
    nlp = spacy.load(quantized_path)
    texts = [doc.text for doc in gold_docs[:4]]
    expected = [links_of(nlp(text)) for text in texts]
    assert [links_of(doc) for doc in nlp.pipe(texts, n_process=2, batch_size=1)] == expected


def test_config_names_the_architecture_and_the_weights_are_small(quantized_path, trained_path):
    model = load_config(quantized_path / "config.cfg")["components"]["transformer"]["model"]
    assert model["@architectures"] == "spacy-elq.OnnxTransformerModel.v1"
    assert model["get_spans"]["window"] == 24
    sizes = [(path / "transformer" / "model").stat().st_size for path in (quantized_path, trained_path)]
    assert sizes[0] < sizes[1]


def test_saved_again_it_is_the_same(quantized_path, gold_docs, tmp_path):
    nlp = spacy.load(quantized_path)
    nlp.to_disk(tmp_path / "again")
    again = spacy.load(tmp_path / "again")
    for doc in gold_docs:
        assert links_of(again(doc.text)) == links_of(nlp(doc.text))


def test_what_was_quantized_cannot_be_again(quantized_path):
    with pytest.raises(ELQError, match=r"E092.*transformer, elq_linker"):
        quantize(load_model(quantized_path))


def test_unknown_precision(trained_path):
    with pytest.raises(ELQError, match=r"E002.*int8.*float32"):
        quantize(load_model(trained_path), precision="int4")


@pytest.mark.parametrize("missing", ["onnxruntime", "onnx"])
def test_without_the_extra_the_error_says_what_to_install(trained_path, monkeypatch, missing):
    monkeypatch.setitem(sys.modules, missing, None)
    with pytest.raises(ELQError, match=r"E091.*spacy-elq\[onnx\]"):
        quantize(load_model(trained_path))


def test_what_was_quantized_runs_without_the_package_that_writes_graphs(quantized_path, monkeypatch):
    expected = [ent.kb_id_ for ent in load_model(quantized_path)("where is paris").ents]
    monkeypatch.setitem(sys.modules, "onnx", None)
    assert [ent.kb_id_ for ent in load_model(quantized_path)("where is paris").ents] == expected


def test_an_existing_folder_is_replaced(trained_path, tmp_path):
    shutil.copytree(trained_path, tmp_path / "elq")
    nlp = load_model(trained_path)
    quantize(nlp, precision="float32")
    nlp.to_disk(tmp_path / "elq")
    assert "OnnxTransformerModel" in (tmp_path / "elq" / "config.cfg").read_text(encoding="utf8")
