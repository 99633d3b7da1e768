"""`scripts/performance.py`, on the tiny world."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
import spacy
from spacy.tokens import DocBin

from spacy_elq.evaluation.pipelines import save_pipeline
from spacy_elq.pipeline.quantize import quantize

SCRIPT = Path(__file__).parent.parent / "scripts" / "performance.py"
ROW = {
    "factory": "Flat",
    "widths": "",
    "entities": 10,
    "width": 48,
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
SHARED = {"how": "alone", "processes": 1, "entities": 10, "rss_mb": 2.5, "pss_mb": 1.5}


def run(folder, *arguments):
    command = [sys.executable, str(SCRIPT), *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=600, cwd=folder, check=False)


@pytest.fixture(scope="module")
def made(trained_path, encoder_path, gold_docs, tmp_path_factory):
    """A folder in which both pipelines were measured, once again with another name, and the page written."""
    folder = tmp_path_factory.mktemp("performance")
    DocBin(docs=gold_docs, store_user_data=True).to_disk(folder / "test.spacy")
    nlp = spacy.load(trained_path)
    quantize(nlp)
    save_pipeline(nlp, folder / "int8")
    (folder / "docs").mkdir()
    index = [ROW, {**ROW, "factory": "SQ8", "vectors": "synthetic", "default": False}]
    index += [{**ROW, "factory": "SQ4", "entities": 20, "weak_f": 0.75, "recall_at_10": 0.95}]
    index += [{**ROW, "entities": 20, "weak_f": 0.8, "default": False}]
    index += [{**ROW, "factory": "SQ4", "entities": 3000, "resident_mb": 1234.5, "vectors": "synthetic"}]
    before = {"index": index, "index_sharing": [SHARED], "overhead_batch_1": 9.0}
    before["pipelines"] = [{"name": "one of before", "precision": "float32"}]
    (folder / "docs" / "performance.json").write_text(json.dumps(before))
    asked = ("bench", trained_path, "int8", "test.spacy", "--repeats", 1, "--lengths", "10,60")
    asked += ("--counts", "2,5,800,900")
    for name in ("real", "readme", "readme"):
        done = run(folder, *asked, "--name", name, "--batch-sizes", "1,64" if name == "real" else "4")
        assert done.returncode == 0, done.stderr
    done = run(folder, "engines", encoder_path, "test.spacy", "--repeats", 1, "--limit", 5)
    assert done.returncode == 0, done.stderr
    assert run(folder, "write").returncode == 0
    return folder


@pytest.fixture(scope="module")
def figures(made):
    return json.loads((made / "docs" / "performance.json").read_text())


def test_both_precisions_of_each_pipeline_stand_once(figures, gold_docs):
    found = [(row["name"], row["precision"]) for row in figures["pipelines"]]
    assert found == [(name, precision) for name in ("readme", "real") for precision in ("float32", "int8")]
    assert [run["batch_size"] for run in figures["pipelines"][2]["runs"]] == [1, 64]
    for row in figures["pipelines"]:
        assert row["weak_f"] > 0.9
        assert row["load_seconds"] > 0
        assert row["entities"] == 10
        assert [own["tokens"] for own in row["lengths"]] == [
            pytest.approx(10, abs=2),
            pytest.approx(60, abs=9),
        ]
        assert [own["questions"] for own in row["counts"]] == [2, 5, len(gold_docs)]
        assert all(own["questions_per_second"] > 0 for own in row["counts"])


def test_the_goals_are_those_of_the_real_pipeline(figures):
    plain, quantized = figures["pipelines"][2:]
    for i, size in enumerate((1, 64)):
        own, other = plain["runs"][i], quantized["runs"][i]
        assert figures[f"overhead_batch_{size}"] == pytest.approx(own["ratio"], abs=1e-3)
        speedup = other["questions_per_second"] / own["questions_per_second"]
        assert figures[f"int8_speedup_batch_{size}"] == pytest.approx(speedup, abs=1e-3)
    loss = 100 * (plain["weak_f"] - quantized["weak_f"])
    assert figures["int8_f_loss"] == pytest.approx(loss, abs=1e-2)


def test_every_engine_is_compared_with_torch(made, figures):
    plain, *others = figures["engines"]
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
    page = (made / "docs" / "performance.md").read_text()
    assert "| torch, float32 | 1.00 | 1.00 | 1.0000 | 1.0000 |" in page
    assert figures["processor"] in page
    assert f"The bare forward pass of {figures['engines_encoder']} over" in page


def test_other_figures_stay_where_they_are(figures):
    assert [row["factory"] for row in figures["index"]] == ["Flat", "SQ8", "SQ4", "Flat", "SQ4"]
    assert figures["index_sharing"] == [SHARED]


def test_the_page_has_the_tables(made, figures):
    page = (made / "docs" / "performance.md").read_text()
    assert f"batch 64 (goal: at most 1.25) | {figures['overhead_batch_64']:.2f} |" in page
    assert "| the README's pipeline | int8 | 4 |" in page
    assert "| the real-data pipeline | float32 | 64 |" in page
    assert "| the real-data pipeline | float32 | 10 |" in page
    goals, page = page.split("## Speed")
    assert "| recall@10 of the default back end, 20 entities (goal: at least 0.99) | 0.9500 |" in goals
    assert "| weak F1 lost against exact search, in points (goal: at most 0.3) | 5.0000 |" in goals
    assert "| its resident memory in MB (goal: under 3,000) | 1234 |" in goals
    real, synthetic = page.split("## 5.9 million")
    assert "| `Flat` * |  | 10 | 48 |  | 1.0 |  | 9.5 |" in real
    assert "| `SQ8` |" in synthetic
    assert "`SQ8`" not in real
    assert "| alone | 1 | 10 | 2.5 | 1.5 |" in page


def test_what_was_not_measured_is_said(tmp_path):
    assert run(tmp_path, "write").returncode == 0
    page = (tmp_path / "docs" / "performance.md").read_text()
    assert "batch 1 (goal: at most 1.35) | not measured |" in page
    assert "Not measured yet." in page


def test_an_unknown_name_is_an_error(tmp_path):
    done = run(tmp_path, "bench", "a", "b", "c.spacy", "--name", "other")
    assert done.returncode == 2
    assert "readme, real" in done.stderr
