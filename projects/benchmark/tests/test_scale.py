"""The arithmetic of `scale.py`, its simulation on small indexes, and `ray_speed.py` with one worker."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
import ray_speed
import scale
import scale_page
from hypothesis import given
from hypothesis import strategies as st
from stub import make_entities, write_catalogue

PROJECT = Path(__file__).parents[1]
RATES = scale.Rates(
    encoded=100.0,
    build_seconds=0.001,
    disk_bytes=2000.0,
    memory_bytes=200.0,
    questions=500.0,
    scan_seconds=1e-9,
)


def run(folder, script, *arguments):
    command = [sys.executable, str(PROJECT / "scripts" / f"{script}.py"), *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=900, cwd=folder, check=False)


def test_the_arithmetic():
    need = scale.compute(RATES, 36e6, questions_a_day=86_400e3, cores=10)
    assert need.encode_core_hours == pytest.approx(100)
    assert need.encode_hours == pytest.approx(10)
    assert need.build_core_hours == pytest.approx(10)
    assert (need.disk_gb, need.memory_gb) == pytest.approx((72, 7.2))
    assert need.question_cores == pytest.approx(2)
    assert need.search_cores == pytest.approx(36)


@given(st.floats(1, 1e10), st.floats(1, 1e10), st.integers(1, 1000))
def test_twice_as_much_takes_twice_as_much(entities, questions, cores):
    once = scale.compute(RATES, entities, questions_a_day=questions, cores=cores)
    twice = scale.compute(RATES, 2 * entities, questions_a_day=questions, cores=cores)
    same = {"question_cores"}
    for key, value in vars(once).items():
        assert vars(twice)[key] == pytest.approx(value * (1 if key in same else 2))


def test_a_straight_line_predicts_the_largest():
    records = [{"entities": n, **dict.fromkeys(scale.MEASURED, 3 + 2 * n)} for n in (30, 10, 20)]
    records[0]["disk_bytes"] *= 2
    rows = {row["quantity"]: row for row in scale.check(records)}
    assert {row["entities"] for row in rows.values()} == {30}
    assert rows["disk_bytes"]["ratio"] == pytest.approx(2)
    assert rows["query_seconds"]["ratio"] == pytest.approx(1)
    assert rows["query_seconds"]["predicted"] == pytest.approx(63)


def test_the_simulation_measures_each_size_once(tmp_path):
    sizes = ["--size", 300, "--size", 600, "--size", 1200, "--width", 32]
    assert run(tmp_path, "scale", "simulate", "work", *sizes).returncode == 0
    records = [json.loads((tmp_path / "results" / f"scale-{n}.json").read_text()) for n in (300, 600, 1200)]
    assert all(record[name] > 0 for record in records for name in ("disk_bytes", "query_seconds"))
    ratio = {row["quantity"]: row["ratio"] for row in scale.check(records)}
    assert 0.5 < ratio["disk_bytes"] < 2
    assert list((tmp_path / "work").iterdir()) == []
    (tmp_path / "results" / "scale-600.json").write_text('"kept"')
    assert run(tmp_path, "scale", "simulate", "work", *sizes).returncode == 0
    assert (tmp_path / "results" / "scale-600.json").read_text() == '"kept"'


def test_two_sizes_are_too_few(tmp_path):
    done = run(tmp_path, "scale", "simulate", "work", "--size", 300, "--size", 600)
    assert done.returncode == 2
    assert "three sizes" in done.stderr


def test_throughput_is_that_of_the_time_of_encoding():
    shards = [(1, 10.0, 14.0, 30), (2, 11.0, 15.0, 30), (1, 14.0, 16.0, 12)]
    found = ray_speed.summarize(shards, 9.5)
    assert found == {
        "processes": 2,
        "entities": 72,
        "shards": 3,
        "seconds": 6.0,
        "whole_seconds": 9.5,
        "entities_per_second": 12.0,
    }


@pytest.mark.slow
def test_ray_is_measured_once(encoder_path, tmp_path):
    pytest.importorskip("ray", reason="needs spacy-elq[ray]")
    catalogue = write_catalogue(tmp_path / "entities.jsonl", make_entities(40))
    words = [catalogue, encoder_path, "--entities", 30, "--shard-size", 10, "--workers", 1]
    done = run(tmp_path, "ray_speed", *words)
    assert done.returncode == 0, done.stderr
    record = json.loads((tmp_path / "results" / "ray-1.json").read_text())
    assert (record["workers"], record["processes"], record["entities"], record["shards"]) == (1, 1, 30, 3)
    assert run(tmp_path, "ray_speed", *words).stdout == ""


def test_the_page_in_docs_is_the_one_of_the_results(tmp_path):
    scale_page.main(
        tmp_path / "page.md",
        results=PROJECT / "results",
        questions_a_day=1e9,
        cores=64,
        core_hour=0.05,
        gb_month=0.1,
    )
    page = (PROJECT.parents[1] / "docs" / "past-one-machine.md").read_text(encoding="utf8")
    assert (tmp_path / "page.md").read_text(encoding="utf8") == page


def test_ratios_are_to_one_worker(tmp_path):
    assert scale_page.worker_rows([]) == []
    rows = [{"workers": 2, "entities_per_second": 190.0}]
    assert scale_page.worker_rows(rows)[0]["ratio"] == ""
    rows.append({"workers": 1, "entities_per_second": 100.0})
    assert [row["ratio"] for row in scale_page.worker_rows(rows)] == ["1.00", "1.90"]


def test_less_than_three_sizes_are_not_shown():
    assert scale_page.simulated([{"entities": 1}]) == []
