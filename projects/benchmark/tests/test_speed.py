"""`speed.py`, `engines.py` and the page, on the tiny world."""

import subprocess
import sys
from pathlib import Path

import performance_page
import plot_memory
import plot_time
import pytest
import spacy
import srsly
from records import read_records, write_record
from spacy.tokens import DocBin

from spacy_elq.evaluation import save_pipeline
from spacy_elq.pipeline.quantize import quantize

PROJECT = Path(__file__).parents[1]
DOCS = PROJECT.parents[1] / "docs"
ROW = {
    "factory": "Flat",
    "widths": "",
    "entities": 10,
    "width": 48,
    "encoder": None,
    "recall_at_10": 1.0,
    "weak_f": None,
    "queries_per_second": 9.5,
    "resident_mb": 1.0,
    "share_of_vectors": 0.1,
    "disk_mb": 2.0,
    "load_seconds": 0.1,
    "build_seconds": 0.2,
    "vectors": "real",
    "default": True,
}
BACKENDS = [
    ROW,
    {**ROW, "factory": "SQ8", "vectors": "synthetic", "default": False},
    {**ROW, "factory": "SQ4", "entities": 20, "weak_f": 0.75, "recall_at_10": 0.95},
    {**ROW, "entities": 20, "weak_f": 0.8, "default": False},
    {**ROW, "factory": "SQ4", "entities": 3000, "resident_mb": 1234.5, "vectors": "synthetic"},
    {**ROW, "factory": "PQ", "entities": 277_103, "width": 384, "ms_batch_1": 2.0},
    {**ROW, "factory": "PQ", "entities": 5_903_527, "width": 384, "vectors": "synthetic", "ms_batch_1": 3.0},
]
SHARED = {"how": "alone", "processes": 1, "entities": 10, "rss_mb": 2.5, "pss_mb": 1.5}


def run(folder, script, *arguments):
    command = [sys.executable, str(PROJECT / "scripts" / f"{script}.py"), *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=600, cwd=folder, check=False)


@pytest.fixture(scope="module")
def made(trained_path, encoder_path, gold_docs, tmp_path_factory):
    """A folder in which both pipelines were measured, one of them again, and the page written."""
    folder = tmp_path_factory.mktemp("performance")
    DocBin(docs=gold_docs, store_user_data=True).to_disk(folder / "test.spacy")
    nlp = spacy.load(trained_path)
    quantize(nlp)
    save_pipeline(nlp, folder / "int8")
    for i, row in enumerate(BACKENDS):
        write_record(folder / "results", f"backend-{i}", row)
    write_record(folder / "results", "sharing-10", [SHARED])
    asked = ("--repeats", 1, "--lengths", "10,60", "--counts", "2,5,800,900")
    for name in ("real", "readme", "readme"):
        sizes = "1,64" if name == "real" else "4"
        words = (trained_path, "int8", "test.spacy", name, *asked, "--batch-sizes", sizes)
        done = run(folder, "speed", *words)
        assert done.returncode == 0, done.stderr
    done = run(folder, "engines", encoder_path, "test.spacy", "--repeats", 1, "--limit", 5)
    assert done.returncode == 0, done.stderr
    done = run(folder, "performance_page", "docs/performance.md")
    assert done.returncode == 0, done.stderr
    return folder


@pytest.fixture(scope="module")
def pipelines(made):
    return performance_page.read_pipelines(made / "results")


@pytest.fixture(scope="module")
def page(made):
    return (made / "docs" / "performance.md").read_text(encoding="utf8")


def test_both_precisions_of_each_pipeline_stand_once(pipelines, gold_docs):
    found = [(row["name"], row["precision"]) for row in pipelines]
    assert found == [(name, precision) for name in ("readme", "real") for precision in ("float32", "int8")]
    assert [run["batch_size"] for run in pipelines[2]["runs"]] == [1, 64]
    for row in pipelines:
        assert row["weak_f"] > 0.9
        assert row["load_seconds"] > 0
        assert row["entities"] == 10
        assert [own["tokens"] for own in row["lengths"]] == [
            pytest.approx(10, abs=2),
            pytest.approx(60, abs=9),
        ]
        assert [own["questions"] for own in row["counts"]] == [2, 5, len(gold_docs)]
        assert all(own["questions_per_second"] > 0 for own in row["counts"])


def test_the_goals_are_those_of_the_real_pipeline(pipelines):
    plain, quantized = pipelines[2:]
    found = performance_page.summarize(plain, quantized)
    for i, size in enumerate((1, 64)):
        own, other = plain["runs"][i], quantized["runs"][i]
        assert found[f"overhead_batch_{size}"] == own["ratio"]
        speedup = other["questions_per_second"] / own["questions_per_second"]
        assert found[f"int8_speedup_batch_{size}"] == speedup
    assert found["int8_f_loss"] == pytest.approx(100 * (plain["weak_f"] - quantized["weak_f"]))
    assert performance_page.summarize(*pipelines[:2]).keys() == {"int8_f_loss"}


def test_every_engine_is_compared_with_torch(made, page):
    (record,) = read_records(made / "results", "engines")
    plain, *others = record["engines"]
    assert plain["engine"] == "torch, float32"
    assert plain["speed"] == {"1": 1.0, "64": 1.0}
    assert plain["cosine"] == plain["least_cosine"] == 1.0
    assert [row["engine"] for row in others] == [
        "torch, int8 (dynamic quantization)",
        "ONNX Runtime, float32",
        "ONNX Runtime, int8",
    ]
    for row in others:
        assert 0.5 < row["least_cosine"] <= row["cosine"] <= 1.0001
        assert min(row["speed"].values()) > 0
    assert others[1]["least_cosine"] == pytest.approx(1.0, abs=1e-3)
    assert others[2]["least_cosine"] < 1.0
    assert "| torch, float32 | 1.00 | 1.00 | 1.0000 | 1.0000 |" in page
    assert record["processor"] in page
    assert f"The forward pass of {record['encoder']} alone over" in page


def test_the_page_has_the_tables(page, pipelines):
    assert f"batch 64 (goal: at most 1.25) | {pipelines[2]['runs'][1]['ratio']:.2f} |" in page
    assert "| README | int8 | 4 |" in page
    assert "| real data | float32 | 64 |" in page
    assert "| real data | float32 | 10 |" in page
    assert "$" not in page
    goals, page = page.split("## Speed")
    assert "| recall@10 of the default back end, 20 entities (goal: at least 0.99) | 0.9500 |" in goals
    assert "| weak F1 lost against exact search, in points (goal: at most 0.3) | 5.0000 |" in goals
    assert "| its resident memory in MB (goal: none) | 1234 |" in goals
    assert "| ms per query, batch 1 (goal: none) | not measured |" in goals
    assert "| ms per query, batch 1 (goal: at most 4) | 3.0000 |" in goals
    assert "5,903,527 / 277,103 entities of width 384 (goal: at most 2.5) | 1.50 |" in goals
    real, synthetic = page.split("## 5.9 million")
    assert "| `Flat` * |  | 10 | 48 |  | 1.0 |  | 9.5 |" in real
    assert "| `SQ8` |" in synthetic
    assert "`SQ8`" not in real
    assert "| alone | 1 | 10 | 2.5 | 1.5 |" in page


def test_what_was_not_measured_is_said(tmp_path):
    performance_page.main(tmp_path / "page.md", results=tmp_path / "results")
    page = (tmp_path / "page.md").read_text(encoding="utf8")
    assert "batch 1 (goal: at most 1.35) | not measured |" in page
    assert "(goal: at most 2.5) | not measured |" in page
    assert "Not measured yet." in page


def test_an_unknown_name_is_an_error(tmp_path):
    done = run(tmp_path, "speed", "a", "b", "c.spacy", "other")
    assert done.returncode == 2
    assert "readme, real" in done.stderr


def test_the_committed_page_is_what_the_result_files_say(tmp_path):
    """Run `python -m spacy project run results projects/benchmark` if this fails."""
    performance_page.main(tmp_path / "page.md", results=PROJECT / "results")
    page = (DOCS / "performance.md").read_text(encoding="utf8")
    assert (tmp_path / "page.md").read_text(encoding="utf8") == page
    assert (DOCS / "images" / "recall_memory.svg").is_file()


def test_the_plot_names_every_back_end(tmp_path):
    plot_memory.main(tmp_path / "plot.svg", results=PROJECT / "results")
    text = (tmp_path / "plot.svg").read_text(encoding="utf8")
    rows = performance_page.read_backends(PROJECT / "results", "real")
    assert len(rows) == 14
    for name in ("default", *(row["factory"] for row in rows if not row["default"]), "277,103 entities"):
        assert f">{name}<" in text


def test_the_plot_of_times_has_a_panel_for_each_size(made):
    plot_time.main(made / "times.svg", results=made / "results")
    text = (made / "times.svg").read_text(encoding="utf8")
    for title in (
        "10 entities of width 48",
        "277,103 entities of width 384",
        "5,903,527 entities of width 384",
    ):
        assert f">{title}<" in text
    assert ">1: default, 1 MB<" in text
    assert ">1: SQ8, 1 MB<" in text or ">2: SQ8, 1 MB<" in text


def test_without_figures_the_plot_is_empty(tmp_path):
    plot_time.main(tmp_path / "times.svg", results=tmp_path)
    assert (tmp_path / "times.svg").is_file()


def test_workflows_have_commands_and_scripts_that_exist():
    config = srsly.read_yaml(PROJECT / "project.yml")
    known = {command["name"]: command["script"] for command in config["commands"]}
    assert set(config["workflows"]["all"]) <= set(known)
    words = {word for lines in known.values() for line in lines for word in line.split()}
    scripts = [word for word in words if word.endswith(".py")]
    assert {"scripts/speed.py", "scripts/soak.py", "scripts/split.py"} <= set(scripts)
    assert [script for script in scripts if not (PROJECT / script).is_file()] == []
