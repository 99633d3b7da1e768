from pathlib import Path

import pytest
import spacy

from spacy_elq.errors import ELQError
from spacy_elq.index import check_index, copy_index
from spacy_elq.model.pretrained import INT8
from spacy_elq.pipeline.base import bundle_index
from spacy_elq.pipeline.bundle import bundle_encoder, open_index_encoder


def test_encoder_of_the_index_is_opened(trained_path, entity_encoder):
    encoder = open_index_encoder(spacy.load(trained_path), "elq_linker")
    assert encoder.fingerprint == entity_encoder.fingerprint
    assert encoder.settings == entity_encoder.settings


def test_linker_without_an_index_has_no_encoder():
    nlp = spacy.blank("en")
    nlp.add_pipe("elq_linker")
    with pytest.raises(ELQError, match="E001"):
        open_index_encoder(nlp, "elq_linker")


def test_component_that_has_no_index_has_no_encoder():
    nlp = spacy.blank("en")
    nlp.add_pipe("sentencizer")
    with pytest.raises(ELQError, match="E077"):
        open_index_encoder(nlp, "sentencizer")


def test_encoder_that_is_there_is_replaced_and_its_files_are_not_changed(index, entity_encoder, tmp_path):
    copy_index(index, tmp_path / "elq_linker" / "index")
    folder = tmp_path / "elq_linker" / "index" / "encoder"
    bundle_encoder(entity_encoder, tmp_path, "elq_linker")
    weights = folder / "model.safetensors"
    other = tmp_path / "weights of another index"
    other.hardlink_to(weights)
    data = weights.read_bytes()
    bundle_encoder(entity_encoder, tmp_path, "elq_linker", int8=True)
    assert (folder / INT8).is_file()
    assert not weights.exists()
    assert other.read_bytes() == data
    assert [path.name for path in folder.parent.glob("*encoder*")] == ["encoder"]
    assert check_index(folder.parent) == []
    (folder / INT8).write_bytes(b"damaged")
    assert [damage.file for damage in check_index(folder.parent)] == ["encoder"]


def test_encoder_that_cannot_be_saved_leaves_the_old_one(index, entity_encoder, tmp_path, monkeypatch):
    copy_index(index, tmp_path / "elq_linker" / "index")
    bundle_encoder(entity_encoder, tmp_path, "elq_linker")
    monkeypatch.setattr("spacy_elq.model.entity_encoder.write_recipe", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        bundle_encoder(entity_encoder, tmp_path, "elq_linker", int8=True)
    folder = tmp_path / "elq_linker" / "index"
    assert [path.name for path in folder.glob("*encoder*")] == ["encoder"]
    assert (folder / "encoder" / "model.safetensors").is_file()


def test_bundle_can_be_at_a_relative_path(trained_path, entity_encoder, tmp_path, monkeypatch):
    nlp = spacy.load(trained_path)
    bundle_index(nlp, "elq_linker")
    monkeypatch.chdir(tmp_path)
    nlp.to_disk("saved")
    bundle_encoder(entity_encoder, Path("saved"), "elq_linker")
    index = spacy.load("saved").get_pipe("elq_linker").index
    assert len(index) == len(nlp.get_pipe("elq_linker").index)
    assert index.path == tmp_path / "saved" / "elq_linker" / "index"
