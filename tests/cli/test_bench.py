import json

import pytest
from spacy.cli import app
from spacy.tokens import DocBin
from typer.testing import CliRunner

from spacy_elq.cli.bench import STAGES, bench


@pytest.fixture
def data(gold_docs, tmp_path):
    DocBin(docs=gold_docs, store_user_data=True).to_disk(tmp_path / "test.spacy")
    return tmp_path / "test.spacy"


def test_command_prints_a_table_and_writes_the_figures(trained_path, data, tmp_path):
    target = tmp_path / "new" / "bench.json"
    arguments = [str(trained_path), str(data), str(target), "-b", "1,8", "-n", "6", "-r", "2"]
    result = CliRunner().invoke(app, ["elq", "bench", *arguments])
    assert result.exit_code == 0, result.output
    assert "1 threads, 6 questions, 10 entities" in " ".join(result.output.split())
    figures = json.loads(target.read_text(encoding="utf8"))
    assert [run["batch_size"] for run in figures["runs"]] == [1, 8]
    assert (figures["questions"], figures["entities"], figures["threads"]) == (6, 10, 1)


def test_stages_make_up_the_whole(trained_path, data):
    (run,) = bench(str(trained_path), data, [4], repeats=1)["runs"]
    assert set(run["seconds"]) == set(STAGES)
    assert all(seconds > 0 for seconds in run["seconds"].values())
    assert sum(run["seconds"].values()) == pytest.approx(1 / run["questions_per_second"])
    assert run["seconds"]["encoder"] > run["seconds"]["tokenizer"]


def test_a_missing_file_is_an_error(trained_path, tmp_path):
    result = CliRunner().invoke(app, ["elq", "bench", str(trained_path), str(tmp_path / "no.spacy")])
    assert result.exit_code == 1
    assert "E022" in result.output
