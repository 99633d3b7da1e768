"""`soak.py`, `kills.py`, `flips.py` and `living.py`, for a short time and on small indexes; and that they see
what is wrong.
"""

import json
import subprocess
import sys
from pathlib import Path

import flips
import numpy as np
import performance_page
import pytest
import soak
import srsly
from records import write_record
from stub import StubEncoder, make_entities, write_catalogue, write_encoder

from spacy_elq.index import EntityIndex, build_index, encode_catalogue
from spacy_elq.index.files import file_path
from spacy_elq.model.entity_encoder import EntityEncoder

PROJECT = Path(__file__).parents[1]


def run(folder, script, *arguments):
    command = [sys.executable, str(PROJECT / "scripts" / f"{script}.py"), *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=900, cwd=folder, check=False)


def read(folder, name):
    return srsly.read_json(folder / "results" / f"{name}.json")


# ---------------------------------------------------------------------- soak


def test_processes_that_are_killed_lose_nothing_and_see_nothing_wrong(tmp_path):
    done = run(tmp_path, "soak", "work", "--minutes", 0.33, "--readers", 2, "--groups", 300)
    assert done.returncode == 0, done.stderr
    record = read(tmp_path, "soak")
    assert record["errors"] == 0
    assert min(record[key] for key in ("kills", "changes", "searches", "entities")) > 0


@pytest.mark.slow
def test_pipelines_that_are_killed_see_nothing_wrong(trained_path, tmp_path):
    words = ("--readers", 2, "--groups", 300, "--pause", 4, "--pipeline", trained_path)
    done = run(tmp_path, "soak", "work", "--minutes", 0.7, *words)
    assert done.returncode == 0, done.stderr
    record = read(tmp_path, "soak-pipeline")
    assert min(record[key] for key in ("kills", "changes", "links")) > 0


@pytest.fixture
def small(tmp_path):
    """An index of the groups 0 to 3, at generation 7."""
    entities = [entity for group in range(4) for entity in soak.make_group(group, 7)]
    catalogue = write_catalogue(tmp_path / "entities.jsonl", entities)
    encode_catalogue(catalogue, tmp_path / "vectors", StubEncoder())
    return build_index(tmp_path / "vectors", tmp_path / "index", factory="SQ8")


def test_whole_groups_are_seen(small):
    assert [soak.see_group(small, group) for group in range(5)] == [7, 7, 7, 7, None]
    assert soak.see_all(small) == dict.fromkeys(range(4), 7)
    soak.see_vectors(small, small.all_positions(), StubEncoder())


def test_half_a_group_is_wrong(small):
    small.remove(["2-0"])
    for see in (lambda: soak.see_group(small, 2), lambda: soak.see_all(small)):
        with pytest.raises(soak.Wrong, match="group 2"):
            see()


def test_a_group_of_two_generations_is_wrong(small):
    small.add(soak.make_group(2, 8)[:1], StubEncoder())
    for see in (lambda: soak.see_group(small, 2), lambda: soak.see_all(small)):
        with pytest.raises(soak.Wrong, match="several generations"):
            see()


def test_the_vector_of_another_entity_is_wrong(small):
    entities = soak.make_group(2, 8)
    small._database.add(entities, StubEncoder().encode(entities)[::-1])
    with pytest.raises(soak.Wrong, match="those of others"):
        soak.see_vectors(small, small.positions(soak.group_ids(2)), StubEncoder())


def test_a_change_that_was_done_by_half_is_wrong(small):
    change = {"groups": [[1, 8], [2, 9]], "adds": True}
    assert not soak.was_done(small, change)
    small.add(soak.make_group(1, 8), StubEncoder())
    with pytest.raises(soak.Wrong, match="by half"):
        soak.was_done(small, change)
    small.add(soak.make_group(2, 9), StubEncoder())
    assert soak.was_done(small, change)
    assert not soak.was_done(small, {"groups": [[1, 10]], "adds": False})


EVENTS = [
    {"groups": [[1, 1], [2, 2]], "adds": True},
    {"done": True},
    {"groups": [[1, 3]], "adds": True},
    {"done": False},
    {"groups": [[2, 4]], "adds": False},
]


@pytest.mark.parametrize(
    ("group", "generation", "is_right"),
    [
        (1, 1, True),
        (1, 3, False),  # was never done
        (1, None, False),  # was lost
        (1, 0, False),  # came back
        (2, 2, True),
        (2, None, True),  # perhaps removed already
        (3, None, True),
        (3, 5, False),
    ],
)
def test_what_is_seen_must_be_between_what_is_done_and_what_is_begun(group, generation, is_right, tmp_path):
    path = tmp_path / "journal-0.jsonl"
    path.write_text("".join(json.dumps(event) + "\n" for event in EVENTS[:2]))
    journal = soak.Journal([path]).follow()
    before = dict(journal.floor)
    assert before == {1: (1, True), 2: (2, True)}
    path.write_text("".join(json.dumps(event) + "\n" for event in EVENTS) + '{"do')
    journal.follow()
    assert journal.unsettled(0) == EVENTS[-1]
    if is_right:
        journal.check(before, {group: generation})
    else:
        with pytest.raises(soak.Wrong, match=f"group {group}"):
            journal.check(before, {group: generation})


# ---------------------------------------------------------------------- kills and flips


def check_kills(folder, *arguments):
    done = run(folder, "kills", "work", *arguments)
    assert done.returncode == 0, done.stdout + done.stderr
    rows = read(folder, "kills")
    for row in rows:
        assert row["errors"] == []
        assert row["old"] + row["new"] == row["kills"] > 0
    return [row["command"] for row in rows]


def test_a_command_that_is_killed_breaks_nothing(tmp_path):
    asked = ("--kills", 1, "--entities", 1200, "--command", "compact")
    assert check_kills(tmp_path, *asked) == ["compact"]
    # those of other commands stay
    other = {**read(tmp_path, "kills")[0], "command": "encode"}
    srsly.write_json(tmp_path / "results" / "kills.json", [other])
    assert check_kills(tmp_path, *asked) == ["encode", "compact"]


@pytest.mark.slow
def test_no_command_that_is_killed_breaks_anything(tmp_path):
    found = check_kills(tmp_path, "--kills", 3, "--entities", 5000)
    assert found == ["encode", "encode-2", "index", "add", "compact"]


def test_flipped_bits_are_found_or_harmless(tmp_path):
    done = run(tmp_path, "flips", "work", "--trials", 30, "--many", 1, "--entities", 400)
    assert done.returncode == 0, done.stdout
    record = read(tmp_path, "flips")
    assert record["missed"] == []
    assert sum(row["found"] + row["harmless"] for row in record["files"]) == 31


def test_flipped_bits_of_the_log_are_found(tmp_path):
    asked = ("--trials", 10, "--many", 0, "--entities", 400, "--only", "entities.db-wal")
    done = run(tmp_path, "flips", "work", *asked)
    assert done.returncode == 0, done.stdout
    record = read(tmp_path, "flips")
    assert record["files"] == [
        {"file": "entities.db-wal", "found": 10, "harmless": 0, "missed": 0, "other": 10}
    ]


def test_a_flip_that_is_not_found_is_missed(small, tmp_path, monkeypatch):
    number = small.meta["files"]["vectors.npy"]["number"]
    name = file_path(small.path, "vectors.npy", number).name
    flip = (name, 200, 6)
    found = flips.run_trial(small.path, tmp_path / "trial", [flip], small.path)
    assert found == {"found": 1, "harmless": 0, "missed": 0, "other": 1}
    monkeypatch.setattr(flips, "check_index", lambda path: [])
    found = flips.run_trial(small.path, tmp_path / "trial", [flip], small.path)
    assert found == {"found": 0, "harmless": 0, "missed": 1, "other": 1}
    assert flips.kind_of(name) == "vectors.npy"


# ---------------------------------------------------------------------- living


@pytest.fixture(scope="module")
def measured(tmp_path_factory):
    """A folder in which all was measured, one part of it again."""
    folder = tmp_path_factory.mktemp("living")
    write_encoder(folder / "encoder")
    catalogue = write_catalogue(folder / "entities.jsonl", make_entities(1500))
    encode_catalogue(catalogue, folder / "vectors", EntityEncoder(str(folder / "encoder"), max_length=48))
    build_index(folder / "vectors", folder / "index", factory="SQ8")
    asked = ("measure", "index", "--work", "work", "--repeats", 5, "--bulk", 20)
    words = ("--encoder", "encoder", "--catalogue", "entities.jsonl", "--old", PROJECT.parents[1])
    for more in (words, ("--part", "opening")):
        done = run(folder, "living", *asked, *more)
        assert done.returncode == 0, done.stderr
    return folder


def test_every_figure_of_a_living_catalogue_is_measured(measured):
    record = read(measured, "living")
    assert (record["entities"], record["queries"]) == (1500, "entities with noise")
    assert len(EntityIndex.open(measured / "index")) == 1500
    assert record["opening"]["open_ms"] > 0
    assert record["adding_one"]["limit_ms"] > 20
    assert record["adding_many"]["entities"] == 20
    assert [row["share"] for row in record["changes"][::2]] == [0.01, 0.02, 0.05, 0.1, 0.2]
    assert [row["queries"] for row in record["changes"][:2]] == [1, 192]
    assert all(np.diff([row["changes"] for row in record["changes"][::2]]) > 0)
    assert len(record["restricted"]) == 6
    assert min(row["recall_at_10"] for row in record["restricted"]) == 1.0
    assert record["building"]["new"]["entities"] == record["building"]["old"]["entities"] == 1500
    assert record["building"]["ratio"] > 0
    assert set(record["memory"]) == {"plain_mb", "changed_mb"}


def test_the_page_shows_them(measured, tmp_path):
    results = measured / "results"
    counts = {"tried": 5, "kills": 3, "old": 1, "new": 2, "shards_kept": 4}
    write_record(results, "kills", [{"command": "encode", **counts, "errors": []}])
    row = {"file": "entities.db", "found": 5, "harmless": 6, "missed": 0}
    write_record(results, "flips", {"files": [row], "missed": []})
    counted = dict.fromkeys(performance_page.SOAK_COLUMNS, 9)
    write_record(results, "soak", {**counted, "pipeline": None})
    performance_page.main(tmp_path / "page.md", results=results)
    page = (tmp_path / "page.md").read_text(encoding="utf8").split("## Catalogues that change")[1]
    record = read(measured, "living")
    assert f"1,500 entities (goal: under 50) | {record['opening']['open_ms']:.2f} |" in page
    assert (
        f"added 20 at a time / encoded only (goal: at least 0.8) | {record['adding_many']['ratio']:.2f} |"
        in page
    )
    assert "| lowest recall@10 of a restricted search (goal: at least 0.99) | 1.00 |" in page
    assert "| 0.1 % | 192 | 1.0 |" in page
    assert "| 20 % |" in page
    assert "| encode | 5 | 3 | 1 | 2 | 4 | 0 |" in page
    assert "| entities.db | 5 | 6 | 0 |" in page
    assert "| 9 | 9 | 9 |  | 9 | 9 |" in page
    assert "not measured" not in page.split("###")[0]
