import json
import os
import subprocess
import sys
import threading

import pytest
from conftest import ENTITIES, run_spacy

from spacy_elq.index import EntityIndex, build_index, copy_index
from spacy_elq.model.entity_encoder import EntityEncoder

NEW = [
    {"id": "P9", "title": "Nimbus", "description": "A phone.", "tags": ["shop"]},
    {"id": "E1", "title": "Paris", "description": "Another one.", "aliases": ["Lutetia"]},
]


@pytest.fixture
def path(index, tmp_path):
    copy_index(index, tmp_path / "index")
    return tmp_path / "index"


@pytest.fixture
def catalogue(tmp_path):
    file_ = tmp_path / "new.jsonl"
    file_.write_text("".join(json.dumps(record) + "\n" for record in NEW))
    return file_


def run(*words, code=0):
    done = run_spacy("elq", *words)
    assert done.returncode == code, done
    assert "Traceback" not in done.stderr
    return " ".join((done.stdout + done.stderr).split())


def show(*words):
    return [json.loads(line) for line in run_spacy("elq", "show", *words).stdout.splitlines()]


def test_add_says_what_is_new(path, catalogue):
    assert "1 entities added, 1 replaced; 11 in all" in run("add", path, catalogue)
    opened = EntityIndex.open(path)
    assert opened["P9"].title == "Nimbus"
    assert opened["E1"].description == "Another one."
    assert "0 entities added, 2 replaced; 11 in all" in run("add", path, catalogue, "--batch-size", 1)


def test_add_takes_the_encoder_from_elsewhere(path, catalogue, encoder_path, tmp_path):
    index = EntityIndex.open(path)
    stamp = {**index.meta["encoder"], "name": str(tmp_path / "gone"), "paths": []}
    index._database.set_meta(encoder=stamp)
    index.close()
    assert "E151" in run("add", path, catalogue, code=1)
    assert "11 in all" in run("add", path, catalogue, "--encoder", encoder_path)


def test_add_adds_all_or_nobody(path, tmp_path):
    bad = tmp_path / "bad.jsonl"
    bad.write_text(json.dumps(NEW[0]) + "\n{")
    assert "line 2" in run("add", path, bad, code=1)
    assert len(EntityIndex.open(path)) == len(ENTITIES)


def test_remove_says_who_was_not_there(path):
    output = run("remove", path, "E1", "E404", "E2")
    assert "2 entities removed, 8 left" in output
    assert "Not in the index: E404" in output
    assert "E1" not in EntityIndex.open(path)
    assert "Not in" not in run("remove", path, "E3")


def test_what_is_no_text_is_no_id(path):
    """As Python gives bytes of the command line that are not UTF-8."""
    assert r"Not in the index: \udcff" in run("remove", path, "\udcff")
    assert r"E168" in run("show", path, "\udcff", code=1)
    assert r"E184" in run("show", path, "--name", "\udcff", code=1)
    assert len(EntityIndex.open(path)) == len(ENTITIES)


def test_add_counts_what_it_has_done_itself(path, catalogue, monkeypatch):
    """Another process removes entities while this one encodes."""
    original = EntityEncoder.encode

    def encode(self, entities, **settings):
        other = EntityIndex.open(path)
        other.remove(["E2", "E3", "E4"])
        other.close()
        return original(self, entities, **settings)

    monkeypatch.setattr(EntityEncoder, "encode", encode)
    assert "1 entities added, 1 replaced; 8 in all" in run("add", path, catalogue)


def test_add_reads_a_pipe_and_says_what_a_folder_is(path, catalogue, tmp_path):
    os.mkfifo(tmp_path / "pipe")
    writer = threading.Thread(target=lambda: (tmp_path / "pipe").write_bytes(catalogue.read_bytes()))
    writer.start()
    assert "1 entities added, 1 replaced" in run("add", path, tmp_path / "pipe")
    writer.join()
    assert "E140" in run("add", path, tmp_path, code=1)


def test_remove_names_only_a_few_of_those_that_were_not_there(path):
    output = run("remove", path, *(f"X{i}" for i in range(20)))
    assert "X9" in output
    assert "X10" not in output


def test_compact_folds_changes_in(path):
    run("remove", path, "E1")
    assert EntityIndex.open(path).changes == 1
    assert "compacted" in run("compact", path)
    assert EntityIndex.open(path).changes == 0
    assert "nothing to do" in run("compact", path)
    assert "compacted" in run("compact", path, "--force")


def test_check_finds_damage_and_says_how_to_repair_it(path, tmp_path):
    assert "no damage found" in run("check", path)
    built = build_index(path, tmp_path / "hnsw", factory="HNSW8")
    built.close()
    (search,) = built.path.glob("search-*.faiss")
    data = bytearray(search.read_bytes())
    data[len(data) // 2] ^= 1
    search.write_bytes(data)
    output = run("check", built.path, code=1)
    assert "search.faiss" in output
    assert f"spacy elq compact {built.path} --force" in output.replace("\n", "")
    run("compact", built.path, "--force")
    assert "no damage found" in run("check", built.path)


def test_show_an_entity(path):
    assert show(path, "E8") == [ENTITIES[7]]
    assert "E168" in run("show", path, "E404", code=1)


def test_show_all_with_a_name(path):
    assert [record["id"] for record in show(path, "--name", "paris")] == ["E1", "E2"]
    done = run_spacy("elq", "show", path, "--name", "nobody")
    assert (done.returncode, done.stdout) == (1, "")
    assert "E184" in done.stderr
    assert f"spacy elq show {path} ID" in done.stderr


def test_show_what_the_index_is(path):
    run("remove", path, "E1")
    (found,) = show(path)
    assert (found["entities"], found["changes"]) == (9, 1)
    assert found["backend"] == {"factory": "Flat"}
    assert found["encoder"]["name"]
    assert set(found["files"]) == {"vectors.npy"}


@pytest.mark.parametrize("command", ["add", "remove", "compact", "check", "show"])
def test_what_is_no_index_is_an_error_that_names_the_next_command(tmp_path, catalogue, command):
    rest = {"add": [catalogue], "remove": ["E1"]}.get(command, [])
    output = run(command, tmp_path / "no", *rest, code=1)
    assert "E030" in output
    assert "spacy elq encode" in output
    assert not (tmp_path / "no").exists()


@pytest.mark.parametrize("command", ["remove", "compact", "check", "show"])
def test_a_damaged_index_is_an_error_without_a_traceback(path, command):
    (path / "entities.db").write_bytes(b"x" * 5000)
    rest = ["E1"] if command == "remove" else []
    assert "E031" in run(command, path, *rest, code=1)


@pytest.mark.parametrize("command", ["add", "remove", "compact", "check", "show"])
def test_help_is_there(command):
    assert f"elq {command}" in run(command, "--help")


def test_the_real_command_line(path, catalogue):
    """In processes of their own, one after the other, on one index."""
    for words in (["remove", str(path), "E1"], ["compact", str(path)], ["check", str(path)]):
        command = [sys.executable, "-m", "spacy", "elq", *words]
        done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
        assert done.returncode == 0, done.stderr
    assert len(EntityIndex.open(path)) == 9
