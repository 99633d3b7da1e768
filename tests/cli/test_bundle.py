import shutil
import sys

import pytest
import spacy
from conftest import links_of, run_spacy
from spacy.cli import app
from spacy.util import load_config
from typer.testing import CliRunner

from spacy_elq.cli.bundle import bundle_cli
from spacy_elq.errors import ELQError
from spacy_elq.index import Database, EntityIndex
from spacy_elq.model.entity_encoder import open_encoder


@pytest.fixture
def project(trained_path, index, tmp_path):
    """A folder with a pipeline and, outside of the pipeline, its index."""
    folder = tmp_path / "project"
    shutil.copytree(index.path, folder / "index")
    nlp = spacy.load(trained_path)
    nlp.get_pipe("elq_linker").set_index(EntityIndex.open(folder / "index"))
    nlp.to_disk(folder / "pipeline")
    return folder


def assert_links(nlp, gold_docs):
    for doc in gold_docs:
        assert links_of(nlp(doc.text)) == links_of(doc)


def test_help():
    result = CliRunner().invoke(app, ["elq", "bundle", "--help"])
    assert result.exit_code == 0
    assert "with a copy of its index inside" in " ".join(result.output.split())


def test_bundle_needs_nothing_outside_of_it(project, gold_docs, tmp_path):
    target = tmp_path / "new" / "bundled"
    done = run_spacy("elq", "bundle", project / "pipeline", target)
    assert done.returncode == 0, done.stderr
    assert f"{target}: the pipeline with its index" in " ".join(done.stdout.split())
    (project / "index").rename(tmp_path / "gone")
    with pytest.raises(ELQError, match="E006"):
        spacy.load(project / "pipeline")
    moved = target.rename(tmp_path / "moved")
    nlp = spacy.load(moved)
    assert nlp.get_pipe("elq_linker").index.path == moved / "elq_linker" / "index"
    assert_links(nlp, gold_docs)


def test_bundle_has_no_path_of_where_it_was_made(project, tmp_path):
    bundle_cli(str(project / "pipeline"), tmp_path / "bundled", encoder=False, int8=False)
    place = str(tmp_path).encode("utf8")
    files = [path for path in (tmp_path / "bundled").rglob("*") if path.is_file()]
    assert [path for path in files if place in path.read_bytes()] == []


def test_bundle_does_not_read_the_folder_of_the_encoder(project, encoder_path, gold_docs, tmp_path):
    bundle_cli(str(project / "pipeline"), tmp_path / "bundled", encoder=False, int8=False)
    path = tmp_path / "bundled" / "config.cfg"
    text = path.read_text(encoding="utf8")
    assert str(encoder_path) in text
    path.write_text(text.replace(str(encoder_path), "/nowhere"), encoding="utf8")
    assert_links(spacy.load(tmp_path / "bundled"), gold_docs[:3])


def test_bundle_saved_again_keeps_its_index(project, tmp_path):
    bundle_cli(str(project / "pipeline"), tmp_path / "bundled", encoder=False, int8=False)
    spacy.load(tmp_path / "bundled").to_disk(tmp_path / "again")
    shutil.rmtree(tmp_path / "bundled")
    assert len(spacy.load(tmp_path / "again").get_pipe("elq_linker").index) == 10


def test_pipeline_that_is_there_is_replaced_but_nothing_else(project, tmp_path):
    target = tmp_path / "bundled"
    target.mkdir()
    (target / "old").touch()
    with pytest.raises(ELQError, match=r"E146.*bundled has other files than a pipeline"):
        bundle_cli(str(project / "pipeline"), target, encoder=False, int8=False)
    (target / "config.cfg").touch()
    bundle_cli(str(project / "pipeline"), target, encoder=False, int8=False)
    assert not (target / "old").exists()
    assert (target / "elq_linker" / "index" / "entities.db").is_file()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["bundled", "project"]


def test_pipeline_can_be_bundled_in_place(project, gold_docs):
    bundle_cli(str(project / "pipeline"), project / "pipeline", encoder=False, int8=False)
    (project / "index").rename(project / "gone")
    assert_links(spacy.load(project / "pipeline"), gold_docs[:3])


def test_config_of_the_bundle_says_so(project, tmp_path):
    bundle_cli(str(project / "pipeline"), tmp_path / "bundled", encoder=False, int8=False)
    config = load_config(tmp_path / "bundled" / "config.cfg")
    assert "bundle_index" not in config["components"]["elq_linker"]


def test_bundle_of_a_pipeline_with_index_path(project, gold_docs, tmp_path):
    place = {"components.elq_linker.index_path": str(project / "index")}
    spacy.load(project / "pipeline", config=place).to_disk(project / "pointing")
    bundle_cli(str(project / "pointing"), tmp_path / "bundled", encoder=False, int8=False)
    project.rename(tmp_path / "gone")
    assert_links(spacy.load(tmp_path / "bundled"), gold_docs[:3])


def test_pipeline_without_linker(tmp_path):
    spacy.blank("en").to_disk(tmp_path / "other")
    result = CliRunner().invoke(app, ["elq", "bundle", str(tmp_path / "other"), str(tmp_path / "bundled")])
    assert result.exit_code == 1
    assert "E009" in result.output
    assert not (tmp_path / "bundled").exists()


def test_missing_pipeline(tmp_path):
    with pytest.raises(ELQError, match="E022"):
        bundle_cli(str(tmp_path / "nothing"), tmp_path / "bundled", encoder=False, int8=False)


# With the encoder


def add_anywhere(pipeline):
    """The encoder of an index that is far from where it was made."""
    index = spacy.load(pipeline).get_pipe("elq_linker").index
    return open_encoder({**index.meta["encoder"], "name": "/nowhere"}, index.path)


@pytest.mark.parametrize(("options", "is_int8"), [(["--encoder"], False), (["--int8"], True)])
def test_bundle_with_the_encoder_needs_no_other(project, entity_encoder, tmp_path, options, is_int8):
    words = ["elq", "bundle", str(project / "pipeline"), str(tmp_path / "bundled"), *options]
    result = CliRunner().invoke(app, words)
    assert result.exit_code == 0, result.output
    assert "with its index and its entity encoder" in " ".join(result.output.split())
    moved = (tmp_path / "bundled").rename(tmp_path / "moved")
    encoder = add_anywhere(moved)
    assert encoder.settings["name"] == str(moved / "elq_linker" / "index" / "encoder")
    assert encoder.fingerprint == entity_encoder.fingerprint
    assert encoder.settings.get("int8", False) is is_int8
    weights = {path.suffix for path in (moved / "elq_linker" / "index" / "encoder").iterdir()}
    assert (".safetensors" in weights, ".onnx" in weights) == (not is_int8, is_int8)


def test_encoder_is_left_out_by_default(project, tmp_path):
    bundle_cli(str(project / "pipeline"), tmp_path / "bundled", encoder=False, int8=False)
    assert not (tmp_path / "bundled" / "elq_linker" / "index" / "encoder").exists()


def test_encoder_that_is_missing_is_told_before_anything_is_written(project, tmp_path):
    database = Database.open(project / "index" / "entities.db")
    database.set_meta(encoder={**database.get_meta("encoder"), "name": "/nowhere/encoder", "paths": []})
    with pytest.raises(ELQError, match=r"E151.*/nowhere/encoder"):
        bundle_cli(str(project / "pipeline"), tmp_path / "bundled", encoder=True, int8=False)
    assert not (tmp_path / "bundled").exists()


def test_missing_onnx_runtime_is_told_before_anything_is_written(project, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    with pytest.raises(ELQError, match="E091"):
        bundle_cli(str(project / "pipeline"), tmp_path / "bundled", encoder=False, int8=True)
    assert not (tmp_path / "bundled").exists()
