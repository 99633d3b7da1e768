import shutil

import numpy as np
import pytest
from conftest import run_spacy
from spacy.cli import app
from typer.testing import CliRunner

import spacy_elq.cli  # noqa: F401 (adds the commands to spaCy's)
from spacy_elq.index import EntityIndex
from spacy_elq.model.recipe import RECIPE, Recipe, write_recipe


def elq(*args):
    return run_spacy("elq", *args)


def invoke(*args):
    """Run `spacy elq encode` in this process; gives the exit code and what it printed, as one line."""
    result = CliRunner().invoke(app, ["elq", "encode", *map(str, args)])
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result.exit_code, " ".join(result.output.split())


def test_help_explains_the_catalogue():
    code, output = invoke("--help")
    assert code == 0
    assert "[CLS] title [ENT] description [SEP]" in output
    assert "--encoder" in output


def test_encode_then_index(catalogue_path, encoder_path, vectors_path, tmp_path):
    vectors, index = tmp_path / "vectors", tmp_path / "index"
    settings = ["--encoder", encoder_path, "--max-length", "48", "--n-process", "2"]
    done = elq("encode", catalogue_path, vectors, *settings)
    assert done.returncode == 0, done.stderr
    output = " ".join(done.stdout.split())
    assert "10 entities, vectors of width 48" in output
    assert f"Next: python -m spacy elq index {vectors} INDEX" in output
    # the same encoder and settings as the fixture's, in another process
    expected, encoded = EntityIndex.open(vectors_path), EntityIndex.open(vectors)
    assert encoded.stamp == expected.stamp
    np.testing.assert_allclose(encoded.vectors, expected.vectors, atol=1e-5)

    done = elq("index", vectors, index, "--factory", "HNSW128")
    assert done.returncode == 0, done.stderr
    printed = "10 entities, factory HNSW128, efConstruction 200, efSearch 256"
    assert printed in " ".join(done.stdout.split())
    opened = EntityIndex.open(index)
    positions, _ = opened.search(opened.vectors[3:4], 10)
    assert sorted(positions[0].tolist()) == list(range(10))
    assert opened.entity(3).title == "Mercury (element)"


def test_bad_catalogue_line_ends_with_the_line_and_no_traceback(encoder_path, tmp_path):
    catalogue = tmp_path / "entities.jsonl"
    catalogue.write_text('{"id": "E1", "title": "Paris"}\n{"id": "E2", "title": 5}\n', encoding="utf8")
    done = elq("encode", catalogue, tmp_path / "vectors", "--encoder", encoder_path, "-L", "64")
    assert done.returncode == 1
    assert "Traceback" not in done.stderr + done.stdout
    assert "line 2: `title` must be a string" in " ".join((done.stdout + done.stderr).split())
    assert not (tmp_path / "vectors").exists()


def test_options_reach_the_encoder(catalogue_path, encoder_path, tmp_path):
    folder = tmp_path / "vectors"
    options = ["-e", encoder_path, "--pooling", "cls", "--aliases", "--max-length", "16", "--norm", "3"]
    assert invoke(catalogue_path, folder, *options)[0] == 0
    settings = EntityIndex.open(folder).meta["encoder"]
    assert settings["name"] == str(encoder_path)
    assert (settings["pooling"], settings["aliases"], settings["max_length"]) == ("cls", True, 16)
    np.testing.assert_allclose(np.linalg.norm(EntityIndex.open(folder).vectors, axis=1), 3.0, rtol=1e-5)


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ([], ("cls", True, 16, 3.0)),
        (
            ["--no-aliases", "--pooling", "mean", "--max-length", "20", "--norm", "0"],
            ("mean", False, 20, 0.0),
        ),
    ],
)
def test_recipe_of_the_encoder_is_the_default(catalogue_path, encoder_path, tmp_path, options, expected):
    encoder, folder = shutil.copytree(encoder_path, tmp_path / "encoder"), tmp_path / "vectors"
    write_recipe(encoder, Recipe(pooling="cls", aliases=True, max_length=16, norm=3.0))
    assert invoke(catalogue_path, folder, "-e", encoder, *options)[0] == 0
    settings = EntityIndex.open(folder).meta["encoder"]
    assert tuple(settings[key] for key in ("pooling", "aliases", "max_length", "norm")) == expected


def test_damaged_recipe_is_an_error(catalogue_path, encoder_path, tmp_path):
    encoder = shutil.copytree(encoder_path, tmp_path / "encoder")
    (encoder / RECIPE).write_text("{", encoding="utf8")
    code, output = invoke(catalogue_path, tmp_path / "vectors", "-e", encoder)
    assert code == 1
    assert "E150" in output


def test_batch_size_does_not_change_the_vectors(catalogue_path, encoder_path, vectors_path, tmp_path):
    options = ["-e", encoder_path, "-L", "48", "--batch-size", "3"]
    assert invoke(catalogue_path, tmp_path / "vectors", *options)[0] == 0
    found = EntityIndex.open(tmp_path / "vectors").vectors
    np.testing.assert_allclose(found, EntityIndex.open(vectors_path).vectors, atol=1e-5)


def test_missing_catalogue(encoder_path, tmp_path):
    code, output = invoke(tmp_path / "no.jsonl", tmp_path / "vectors", "-e", encoder_path, "-L", "64")
    assert code == 1
    assert "E022" in output
    assert "no.jsonl" in output


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--encoder", "/nowhere/at/all"], "E036"),
        (["--encoder", "ENCODER", "--pooling", "max"], "'max', expected 'mean' or 'cls'"),
        (["--encoder", "ENCODER", "--max-length", "3"], "E037"),
        (["--encoder", "ENCODER", "--max-length", "65"], "expected 4 to 64 word pieces"),
    ],
)
def test_wrong_settings(catalogue_path, encoder_path, tmp_path, options, message):
    options = [str(encoder_path) if option == "ENCODER" else option for option in options]
    code, output = invoke(catalogue_path, tmp_path / "vectors", *options)
    assert code == 1
    assert message in output
    assert not (tmp_path / "vectors").exists()
