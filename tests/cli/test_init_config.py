import pytest
from spacy.cli._util import app as spacy_app
from spacy.util import load_config
from typer.testing import CliRunner

import spacy_elq.cli  # noqa: F401 (adds the commands to spaCy's)
from spacy_elq.pipeline.configs import read_config


def run(*words):
    return CliRunner().invoke(spacy_app, ["elq", "init-config", *map(str, words)])


def test_config_is_written_and_the_next_command_named(tmp_path):
    path = tmp_path / "new" / "config.cfg"
    result = run(
        "elq", path, "--index", "my/index", "--encoder", "enc", "--train", "a.spacy", "--dev", "b.spacy"
    )
    assert result.exit_code == 0, result.output
    paths = load_config(path)["paths"]
    expected = {"index": "my/index", "encoder": "enc", "train": "a.spacy", "dev": "b.spacy"}
    assert {key: paths[key] for key in expected} == expected
    assert f"python -m spacy train {path} --output" in result.output


def test_dash_writes_to_stdout_alone():
    result = run("elq_tok2vec", "-")
    assert result.exit_code == 0
    assert result.stdout == read_config("elq_tok2vec")


def test_file_is_overwritten_only_by_force(tmp_path):
    path = tmp_path / "config.cfg"
    path.write_text("mine", encoding="utf8")
    result = run("elq", path)
    assert result.exit_code == 1
    assert "config.cfg already exists" in result.output
    assert path.read_text(encoding="utf8") == "mine"
    assert run("elq", path, "--force").exit_code == 0
    assert path.read_text(encoding="utf8") == read_config("elq")


@pytest.mark.parametrize("words", [[], ["eql"], ["eql", "-"]])
def test_wrong_call_lists_the_names(words, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    result = run(*words)
    assert result.exit_code == 1
    assert "elq_tok2vec" in result.output
    assert not any(tmp_path.iterdir())


def test_a_pipeline_to_go_on_from_must_be_there(tmp_path):
    result = run("finetune", tmp_path / "config.cfg", "--pipeline", tmp_path / "models" / "elq")
    assert result.exit_code == 1
    assert "E201" in result.output
    assert not (tmp_path / "config.cfg").exists()
