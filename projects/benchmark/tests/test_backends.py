"""`backends.py`, `synthetic.py` and `sharing.py`, on the tiny world and on vectors that are like its own."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from conftest import ENTITIES
from records import read_records
from spacy.tokens import DocBin

from spacy_elq.index import EntityIndex, build_index
from spacy_elq.index.files import SEARCH, named_files

SCRIPTS = Path(__file__).parents[1] / "scripts"
FIELDS = {
    "factory",
    "entities",
    "width",
    "recall_at_10",
    "weak_f",
    "queries_per_second",
    "ms_batch_1",
    "ms_batch_64",
    "resident_mb",
    "anonymous_mb",
    "mapped_mb",
    "share_of_vectors",
    "disk_mb",
    "load_seconds",
    "build_seconds",
    "build_minutes",
}


def run(folder, script, *arguments):
    command = [sys.executable, str(SCRIPTS / f"{script}.py"), *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, cwd=folder, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def made(trained_path, vectors_path, gold_docs, tmp_path_factory):
    """A folder in which every command of the scripts ran, and what the last one printed."""
    folder = tmp_path_factory.mktemp("table")
    DocBin(docs=gold_docs, store_user_data=True).to_disk(folder / "dev.spacy")
    asked = ("--pipeline", trained_path, "--questions", "dev.spacy", "--work", "work")
    specs = ("-f", "default", "-f", "SQ4@rescore=1", "-f", "SQ4")
    run(folder, "backends", "measure", vectors_path, *specs, *asked, "--encoder", "assets/small")
    (folder / "few.jsonl").write_text("".join(json.dumps(e) + "\n" for e in ENTITIES[3:6]))
    run(folder, "synthetic", "cut", vectors_path, "few.jsonl", "cut", "--entities", 5)
    size = ("--entities", 3000, "--width", 64)
    run(folder, "synthetic", "synthesize", vectors_path, "work/10-48/queries.npz", "large", *size)
    queries = ("--queries", "large/queries.npz", "--work", "work")
    run(folder, "backends", "measure", "large/vectors", "-f", "SQ8", *queries)
    run(folder, "backends", "measure", "large/vectors", "-f", "SQ8", *queries)
    pipe = ("--pipeline", trained_path, "--questions", "dev.spacy")
    printed = run(folder, "sharing", "share", "work/10-48/SQ4_rescore_1", "work/10-48/queries.npz", *pipe)
    return folder, printed


@pytest.fixture(scope="module")
def rows(made):
    return read_records(made[0] / "results", "backend-")


@pytest.fixture(scope="module")
def shared(made):
    (rows,) = read_records(made[0] / "results", "sharing-")
    return rows


def test_each_back_end_has_a_file(made):
    assert {path.name for path in (made[0] / "results").iterdir()} == {
        "backend-10-48-small-SQ4.json",
        "backend-10-48-small-SQ4_rescore_1.json",
        "backend-10-48-small-default.json",
        "backend-3000-64-None-SQ8.json",
        "sharing-10.json",
    }


def test_rows_have_the_fields_agreed_on_and_stand_once(rows):
    assert all(set(row) >= FIELDS for row in rows)
    found = {(row["factory"], row["widths"], row["entities"], row["width"], row["vectors"]) for row in rows}
    assert len(rows) == 4
    assert {(row["vectors"], row["encoder"]) for row in rows} == {("real", "small"), ("synthetic", None)}
    assert found == {
        ("Flat", "", 10, 48, "real"),
        ("SQ4", "rescore 1", 10, 48, "real"),
        ("SQ4", "rescore 100", 10, 48, "real"),
        ("SQ8", "rescore 100", 3000, 64, "synthetic"),
    }


def test_the_figures_are_those_of_the_back_end(rows):
    rows = {row["factory"]: row for row in rows if row["widths"] != "rescore 1"}
    assert rows["Flat"]["recall_at_10"] == rows["Flat"]["weak_f"] == 1.0
    assert rows["Flat"]["default"]
    assert not rows["SQ4"]["default"]
    assert rows["SQ8"]["recall_at_10"] > 0.99
    assert rows["SQ8"]["weak_f"] is None
    assert rows["SQ8"]["search_mb"] == pytest.approx(3000 * 64 / 1e6, abs=0.1)
    assert rows["SQ8"]["disk_mb"] > 3000 * 64 * 5 / 1e6
    for row in rows.values():
        assert row["queries_per_second"] > 0
        assert row["build_seconds"] > 0
        assert row["build_minutes"] >= 0
        assert row["ms_batch_1"] == pytest.approx(1000 / row["queries_per_second"], rel=0.01)
        assert row["ms_batch_64"] > 0
        assert row["resident_mb"] == pytest.approx(row["anonymous_mb"] + row["mapped_mb"], abs=0.2)


def test_processes_are_seen_to_share(shared):
    rows = {(row["how"], row["processes"]): row for row in shared}
    assert set(rows) == {
        ("separate processes", 1),
        ("separate processes", 2),
        ("nlp.pipe(n_process=2)", 2),
    }
    for (_, count), row in rows.items():
        assert row["rss_mb"] > 0
        assert row["pss_mb"] < row["rss_mb"] or count == 1
    two = rows["separate processes", 2]
    assert two["rss_mb"] == rows["separate processes", 1]["rss_mb"]
    assert two["pss_mb"] < rows["separate processes", 1]["pss_mb"]


def test_what_was_measured_is_printed(made, shared):
    assert made[1] == json.dumps(shared) + "\n"


def test_a_cut_has_the_entities_named_and_others_of_the_larger_one(made, vectors_path):
    smaller, whole = EntityIndex.open(made[0] / "cut"), EntityIndex.open(vectors_path)
    assert len(smaller) == 5
    entities = [smaller.entity(i) for i in range(5)]
    assert [entity.id for entity in entities[:3]] == [entity["id"] for entity in ENTITIES[3:6]]
    assert len({entity.id for entity in entities}) == 5
    places = whole.positions([entity.id for entity in entities])
    np.testing.assert_array_equal(smaller.vectors, whole.vectors[places])
    assert smaller.stamp["encoder"] == whole.stamp["encoder"]


def test_synthetic_vectors_are_like_the_real_ones(made, vectors_path):
    real, large = EntityIndex.open(vectors_path), EntityIndex.open(made[0] / "large" / "vectors")
    assert large.vectors.shape == (3000, 64)
    assert np.isfinite(large.vectors).all()
    spread = [np.square(v - v.mean(axis=0)).sum(axis=1).mean() for v in (real.vectors, large.vectors)]
    assert 0.5 < spread[1] / spread[0] < 2
    asked, alike = (
        np.load(made[0] / place)["vectors"] for place in ("work/10-48/queries.npz", "large/queries.npz")
    )
    assert alike.shape == (len(asked), 64)
    np.testing.assert_allclose(np.linalg.norm(alike, axis=1), np.linalg.norm(asked, axis=1).mean(), rtol=1e-3)


def test_what_is_only_searched_more_widely_is_not_built_again(made):
    work = made[0] / "work" / "10-48"
    first, second = (work / f"{name}.build.json" for name in ("SQ4_rescore_1", "SQ4"))
    assert first.read_text() == second.read_text()
    one, other = (named_files(EntityIndex.open(work / name)._database) for name in ("SQ4_rescore_1", "SQ4"))
    assert one[SEARCH].samefile(other[SEARCH])


def test_what_is_of_other_vectors_or_another_default_is_made_anew(made, vectors_path, tmp_path):
    asked = ("-f", "default", "-f", "SQ8", "--queries", made[0] / "work/10-48/queries.npz", "--work", "work")
    run(tmp_path, "backends", "measure", vectors_path, *asked)
    work = tmp_path / "work" / "10-48"
    build_index(vectors_path, work / "default", factory="SQ4")
    kept = (work / "SQ8.build.json").stat().st_mtime
    run(tmp_path, "backends", "measure", vectors_path, *asked)
    assert EntityIndex.open(work / "default").meta["backend"] == {"factory": "Flat"}
    assert (work / "SQ8.build.json").stat().st_mtime == kept
    (work / "stamp.json").write_text("{}")
    run(tmp_path, "backends", "measure", vectors_path, *asked[:2], *asked[4:])
    assert not (work / "SQ8").exists()
    assert json.loads((work / "stamp.json").read_text())["width"] == 48


def test_neither_pipeline_nor_queries_is_an_error(vectors_path, tmp_path):
    script = str(SCRIPTS / "backends.py")
    command = [sys.executable, script, "measure", str(vectors_path), "-f", "Flat", "--work", "work"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, check=False)
    assert done.returncode == 2
    assert "or queries" in done.stderr
    assert not (tmp_path / "work").exists()
