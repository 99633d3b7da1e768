"""Whoever is killed, at whatever operation, leaves the old or the new index and nothing else behind."""

import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from faults import run_until
from index_world import Texts, encode, make_entity, make_index, names, vector_of, write_catalogue

from spacy_elq.errors import ELQError
from spacy_elq.index import EntityIndex, build_index, check_index, copy_index, encode_catalogue
from spacy_elq.index.database import Database

TESTS = Path(__file__).parent.parent
OLD, NEW = [make_entity(i) for i in range(4)], [make_entity(i, 1) for i in range(2, 9)]
COMPLETE = ["entities.db", "search.faiss", "vectors.npy"]


def state(folder):
    """What is in an index, with everything read that a search needs."""
    index = EntityIndex.open(folder)
    try:
        with index.reading():
            entities = {entity.id: entity for entity in index}
            vectors = dict(zip(entities, index.vectors.tolist(), strict=True))
            if "backend" in index.meta and entities:
                queries = index.vectors_at(index.all_positions())
                found, _ = index.search(queries, len(entities))
                assert {head[0] for head in index.heads(found[0])} == set(entities)
        assert vectors == {id_: vector_of(entity).tolist() for id_, entity in entities.items()}
        return entities
    finally:
        index.close()


def by_id(entities):
    return {entity.id: entity for entity in entities}


def kill_everywhere(original, folder, work, *, old, new, complete=COMPLETE, look=lambda folder: None):
    """Run `work(folder)` on copies of a folder, ended at every operation in turn; then run it to its end."""
    operation, is_done = 0, False
    while not is_done:
        operation += 1
        assert operation < 500
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(original, folder)
        is_done = run_until(lambda: work(folder), operation)
        if (folder / "index" / "entities.db").exists():
            assert check_index(folder / "index") == [], operation
            assert state(folder / "index") in ([new] if is_done or old is None else [old, new]), operation
        else:
            assert old is None, operation
            with pytest.raises(ELQError, match="E030"):
                EntityIndex.open(folder / "index")
        look(folder)
        work(folder)
        assert state(folder / "index") == new, operation
        assert check_index(folder / "index") == [], operation
        assert names(folder / "index") == complete, operation
    return operation


@pytest.mark.parametrize("is_there", [True, pytest.param(False, marks=pytest.mark.slow)])
def test_build(quick_path, is_there):
    original = quick_path / "original"
    encode(original, NEW)
    if is_there:
        build_index(encode(quick_path / "old", OLD), original / "index", factory="HNSW4").close()

    def work(folder):
        build_index(folder / "vectors", folder / "index", factory="HNSW8").close()

    old = by_id(OLD) if is_there else None
    assert kill_everywhere(original, quick_path / "copy", work, old=old, new=by_id(NEW)) > 20


@pytest.mark.slow
def test_build_in_place(quick_path):
    original = quick_path / "original"
    make_index(original, NEW, factory="HNSW4").close()

    def work(folder):
        build_index(folder / "index", folder / "index", factory="HNSW8").close()

    kill_everywhere(original, quick_path / "copy", work, old=by_id(NEW), new=by_id(NEW))


@pytest.mark.slow
def test_copy(quick_path):
    original = quick_path / "original"
    make_index(original / "source", NEW, factory="HNSW4").close()
    (original / "source" / "index" / "encoder").mkdir()
    (original / "source" / "index" / "encoder" / "weights").write_text("x")

    def work(folder):
        source = EntityIndex.open(folder / "source" / "index")
        copy_index(source, folder / "index")
        source.close()

    complete = sorted([*COMPLETE, "encoder"])
    kill_everywhere(original, quick_path / "copy", work, old=None, new=by_id(NEW), complete=complete)


@pytest.mark.parametrize("kind", ["add", "remove"])
def test_changes(quick_path, kind):
    original = quick_path / "original"
    make_index(original, OLD, factory="HNSW4").close()

    def work(folder):
        index = EntityIndex.open(folder / "index")
        if kind == "add":
            index.add(NEW, Texts())
        else:
            index.remove(["E1", "E3"])
        index.close()

    new = {**by_id(OLD), **by_id(NEW)} if kind == "add" else by_id([OLD[0], OLD[2]])
    assert kill_everywhere(original, quick_path / "copy", work, old=by_id(OLD), new=new) > 3


def test_compact(quick_path):
    original = quick_path / "original"
    index = make_index(original, OLD, factory="HNSW4")
    index.add(NEW, Texts())
    index.remove(["E0", "E8"])
    index.close()
    expected = state(index.path)

    def work(folder):
        index = EntityIndex.open(folder / "index")
        index.compact()
        assert index.changes == 0
        index.close()

    assert kill_everywhere(original, quick_path / "copy", work, old=expected, new=expected) > 15


class Logged(Texts):
    """Writes down what it has encoded, also for other processes."""

    def __init__(self, path):
        super().__init__()
        self._path = path

    def encode(self, entities, *, batch_size):
        encoded = super().encode(entities, batch_size=batch_size)
        with self._path.open("a") as file_:
            file_.write(" ".join(entity.id for entity in entities) + "\n")
        return encoded

    def read(self):
        return self._path.read_text().split() if self._path.exists() else []


@pytest.mark.parametrize("is_there", [pytest.param(True, marks=pytest.mark.slow), False])
def test_encode(quick_path, is_there):
    """What was encoded before is not encoded again, but for the shard at which the process was killed."""
    original = quick_path / "original"
    original.mkdir()
    write_catalogue(original / "entities.jsonl", NEW)
    if is_there:
        catalogue = write_catalogue(quick_path / "old.jsonl", OLD)
        encode_catalogue(catalogue, original / "index", Texts()).close()

    def work(folder):
        encoder = Logged(folder / "log")
        encode_catalogue(folder / "entities.jsonl", folder / "index", encoder, shard_size=3).close()

    seen = set()

    def look(folder):
        partial, log = folder / "index" / "partial", folder / "log"
        encoded, done = Logged(log).read(), []
        if (partial / "entities.db").exists() and (partial / "vectors.npy").exists():
            database = Database.open(partial / "entities.db")
            done = sorted(database.shards())
            database.close()
            assert len(encoded) <= sum(min(3, 7 - begin) for begin in done) + 3
        seen.add(len(done))
        log.unlink(missing_ok=True)
        work(folder)
        left = [entity.id for i, entity in enumerate(NEW) if i // 3 * 3 not in done]
        assert Logged(log).read() == left
        assert names(folder / "index") == ["entities.db", "vectors.npy"]

    complete = ["entities.db", "vectors.npy"]
    old = by_id(OLD) if is_there else None
    kill_everywhere(
        original, quick_path / "copy", work, old=old, new=by_id(NEW), complete=complete, look=look
    )
    assert seen == {0, 1, 2, 3}


SLOW = """
from index_world import *
import time

class Slow(Texts):
    def encode(self, entities, *, batch_size):
        print("begun", flush=True)
        time.sleep(0.3)
        return super().encode(entities, batch_size=batch_size)

if __name__ == "__main__":
    encode_catalogue(sys.argv[1], sys.argv[2], Slow(), shard_size=1, n_process=2)
"""


def test_processes_that_encode_do_not_outlive_the_one_that_was_killed(quick_path):
    """They would keep the folder locked for ever."""
    catalogue = write_catalogue(quick_path / "entities.jsonl", [make_entity(i) for i in range(20)])
    code = f"import sys; sys.path.insert(0, {str(TESTS)!r})\n{SLOW}"
    command = [sys.executable, "-c", code, str(catalogue), str(quick_path / "index")]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    process.stdout.readline()
    process.send_signal(signal.SIGKILL)
    process.wait()
    encoder = Texts()
    for attempt in range(100):
        try:
            encode_catalogue(catalogue, quick_path / "index", encoder, shard_size=1)
            break
        except ELQError as err:
            assert "E163" in str(err)  # noqa: PT017
            assert attempt < 99, "somebody still has the lock"
            time.sleep(0.1)
    assert state(quick_path / "index") == by_id([make_entity(i) for i in range(20)])
