import json

import pytest
from spacy.cli import app
from spacy.tokens import DocBin
from typer.testing import CliRunner

from spacy_elq.evaluation import speed as bench_module
from spacy_elq.evaluation.speed import STAGES, bench, bench_in_turn


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


def test_the_whole_is_compared_with_the_bare_forward_pass(trained_path, data):
    figures = bench(str(trained_path), data, [1, 64], repeats=1)
    for run in figures["runs"]:
        assert run["forward"] > 0
        assert run["ratio"] == pytest.approx(1 / run["questions_per_second"] / run["forward"])
    assert figures["load_seconds"] > 0
    assert figures["peak_mb"] is None or figures["peak_mb"] > 50


def test_a_pipeline_without_transformer_has_no_yardstick(make_pipeline, gold_docs, data, tmp_path):
    make_pipeline("tok2vec", gold_docs).to_disk(tmp_path / "elq")
    arguments = [str(tmp_path / "elq"), str(data), "-b", "4", "-r", "1"]
    result = CliRunner().invoke(app, ["elq", "bench", *arguments])
    assert result.exit_code == 0, result.output
    (run,) = bench(str(tmp_path / "elq"), data, [4], repeats=1)["runs"]
    assert run["forward"] is run["ratio"] is None


def test_long_docs(trained_path, data):
    arguments = [str(trained_path), str(data), "-b", "4", "-r", "1", "--lengths", "10,300"]
    result = CliRunner().invoke(app, ["elq", "bench", *arguments])
    assert "tokens/doc" in result.output
    lengths = bench(str(trained_path), data, [], repeats=1, lengths=[10, 300])["lengths"]
    assert [row["tokens"] for row in lengths] == pytest.approx([10, 300], rel=0.1)
    assert all(row["tokens_per_second"] > 0 for row in lengths)


def test_a_missing_file_is_an_error(trained_path, tmp_path):
    result = CliRunner().invoke(app, ["elq", "bench", str(trained_path), str(tmp_path / "no.spacy")])
    assert result.exit_code == 1
    assert "E022" in result.output


def test_pipelines_take_turns(trained_path, data, monkeypatch):
    order = []
    measure = bench_module._measure
    monkeypatch.setattr(
        bench_module, "_measure", lambda s, size: order.append((id(s), size)) or measure(s, size)
    )
    first, second = bench_in_turn([str(trained_path)] * 2, data, [1, 4], repeats=2)
    assert [run["batch_size"] for run in first] == [run["batch_size"] for run in second] == [1, 4]
    assert [size for _, size in order] == [1] * 4 + [4] * 4
    subjects = [subject for subject, _ in order]
    assert subjects == subjects[:2] * 4
    assert subjects[0] != subjects[1]


def test_all_questions_are_measured_block_by_block(trained_path, data, gold_docs, monkeypatch):
    seen, time_forward = [], bench_module.time_forward
    monkeypatch.setattr(bench_module, "_BLOCK", 2)
    monkeypatch.setattr(
        bench_module, "time_forward", lambda model, x: seen.append(x) or time_forward(model, x)
    )
    (run,) = bench(str(trained_path), data, [1], repeats=1)["runs"]
    texts = [doc.text for doc in gold_docs]
    assert run["questions"] == len(texts) > 2
    assert [[text] for text in texts] == [batch for block in seen for batch in block]
    assert {len(block) for block in seen[:-1]} == {2}
