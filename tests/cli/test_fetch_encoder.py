import pytest
from spacy.cli._util import app as spacy_app
from typer.testing import CliRunner

import spacy_elq.cli  # noqa: F401 (adds the commands to spaCy's)
from spacy_elq.model import fetch


@pytest.fixture
def fetched(monkeypatch):
    """What was fetched; the folder "old" has its files already."""
    calls = []

    def fetch_encoder(name, output, *, force):
        calls.append((name, output.name, force))
        return output.name != "old"

    monkeypatch.setattr(fetch, "fetch_encoder", fetch_encoder)
    return calls


def run(*words):
    return CliRunner().invoke(spacy_app, ["elq", "fetch-encoder", *map(str, words)])


def test_encoder_is_fetched_and_the_next_command_named(fetched, tmp_path):
    result = run("gte-small", tmp_path / "new", "--force")
    assert result.exit_code == 0, result.output
    assert fetched == [("gte-small", "new", True)]
    assert "new: fetched, sha256" in " ".join(result.output.split())
    assert "--norm" not in result.output
    assert f"elq encode entities.jsonl vectors --encoder {tmp_path / 'new'}" in result.output.replace(
        "\n", " "
    )


def test_encoder_that_is_there_is_told(fetched, tmp_path):
    result = run("gte-small", tmp_path / "old", "--for", tmp_path / "old")
    assert "already there" in result.output
    assert fetched == [("gte-small", "old", False)]


@pytest.mark.parametrize("used", ["mine", "bert-large-uncased"])
def test_project_with_an_encoder_of_its_own_fetches_nothing(fetched, tmp_path, used):
    result = run("gte-small", tmp_path / "new", "--for", used)
    assert result.exit_code == 0, result.output
    assert "nothing to fetch" in result.output
    assert fetched == []


def test_unknown_name_is_an_error(tmp_path):
    result = run("large", tmp_path / "new")
    assert result.exit_code == 1
    assert "expected one of: all-MiniLM-L6-v2, gte-small" in result.output


def test_help_names_the_encoders():
    for name in fetch.SOURCES:
        assert name in run("--help").output
