"""The Milvus back end, with Milvus Lite. What needs a server is in `test_milvus_server.py`."""

import fcntl
import json
import socket
import sys
import threading
import time

import numpy as np
import pytest
from filelock import FileLock
from index_world import QUERIES, Texts, ask, assert_same, encode, in_child, make_entity, make_index
from typer.testing import CliRunner

from spacy_elq.cli import app
from spacy_elq.errors import ELQError
from spacy_elq.index import EntityIndex, build_index, check_index, copy_index, milvus, sync
from spacy_elq.index.connections import Damaged
from spacy_elq.index.database import Database
from spacy_elq.index.files import COLLECTIONS
from spacy_elq.index.milvus import (
    MOST_TAGS,
    Collection,
    check_uri,
    default_kind,
    describe_filter,
    place_uri,
    plan_collection,
)
from spacy_elq.types import Entity

IDS = [f"E{i}" for i in range(20)]
ENTITIES = [make_entity(i) for i in range(10)]


@pytest.fixture(scope="session")
def installed():
    pytest.importorskip("pymilvus", reason="needs spacy-elq[milvus]")
    pytest.importorskip("milvus_lite", reason="needs spacy-elq[milvus]")


@pytest.fixture(scope="module")
def uri(installed, tmp_path_factory):
    """One folder of Milvus Lite, as opening one takes long."""
    return str(tmp_path_factory.mktemp("lite") / "milvus.db")


@pytest.fixture
def vectors(quick_path):
    return encode(quick_path, ENTITIES)


@pytest.fixture
def index(vectors, uri):
    index = build_index(vectors, vectors.parent / "milvus", uri=uri)
    yield index
    index.close()


@pytest.fixture
def client(index, uri):
    client = milvus._import().MilvusClient(uri, dedicated=True)
    yield client
    client.close()


def name_of(index):
    return index.meta["backend"]["collection"]


def change(index):
    index.add([make_entity(i, 1) for i in range(7, 13)], Texts())
    index.remove(["E2", "E12"])


def fail(*args, **kwargs):
    raise milvus.Unreachable("no answer")


def set_backend(index, **values):
    database = Database.open(index.path / "entities.db")
    database.set_meta(backend={**database.get_meta("backend"), **values})
    database.renew()
    database.close()


# Planning, which needs no Milvus


@pytest.mark.parametrize(
    ("count", "kind"),
    [(1, "FLAT"), (10_000, "FLAT"), (10_001, "HNSW"), (999_999, "HNSW"), (1_000_000, "IVF_FLAT")],
)
def test_kind_goes_by_size(count, kind):
    assert default_kind(count) == kind


def plan(count=100_000, **settings):
    return plan_collection((count, 8), uri="http://localhost:19530", **settings)


def test_plan(installed):
    expected = {"factory": "HNSW", "M": 16, "efConstruction": 200, "efSearch": 256}
    found = plan()
    assert found["collection"] != plan()["collection"]
    assert found.pop("collection").startswith("spacy_elq_")
    assert found == {**expected, "uri": "http://localhost:19530", "width": 8, "timeout": 10.0}
    assert plan(widths={"efSearch": 64}, timeout=2.5)["efSearch"] == 64
    lists = plan(kind="IVF_FLAT")
    assert (lists["nlist"], lists["nprobe"]) == (1265, 79)
    assert "rescore" not in lists
    assert plan(10**12, kind="IVF_FLAT")["nlist"] == 65_536
    assert plan(0, kind="IVF_SQ8")["nlist"] == 1
    assert plan(kind="IVF_SQ8")["rescore"] == 100


def test_plan_refuses(installed):
    with pytest.raises(ELQError, match=r"E236.*'HNSW32'.*expected one of FLAT, HNSW"):
        plan(kind="HNSW32")
    with pytest.raises(ELQError, match=r"E081.*nprobe"):
        plan(widths={"nprobe": 4})
    with pytest.raises(ELQError, match="E081"):
        plan(widths={"efSearch": 0})
    for timeout in (0.0, -1.0, 3601.0, float("nan")):
        with pytest.raises(ELQError, match=r"E002.*timeout"):
            plan(timeout=timeout)


@pytest.mark.parametrize("uri", ["http://localhost:19530", "https://milvus.example", "tcp://x:1", "a/b.db"])
def test_addresses(uri):
    check_uri(uri)


@pytest.mark.parametrize(
    "uri", ["", "localhost:19530", "http://", "ftp://host/x.db", "folder", "file:///x.db"]
)
def test_no_addresses(uri):
    with pytest.raises(ELQError, match="E234"):
        check_uri(uri)


def test_password_in_an_address_is_refused_and_not_shown():
    with pytest.raises(ELQError, match="SPACY_ELQ_MILVUS_TOKEN") as err:
        check_uri("http://user:secret@host:19530")
    assert "secret" not in str(err.value)


def test_places_of_lite_are_from_the_index(tmp_path):
    assert place_uri(str(tmp_path / "x.db"), tmp_path / "index") == "../x.db"
    assert place_uri("http://host:1", tmp_path) == "http://host:1"


def test_filter():
    assert describe_filter({}) == ""
    found = describe_filter({"tags": [1, -2], "ids": [3], "labels": [4]})
    assert found == "id in [3] and label in [4] and array_contains_any(tags, [1, -2])"


def test_consistency():
    assert milvus._consistency(0) == {"consistency_level": "Strong"}
    assert milvus._consistency(7) == {"consistency_level": "Customized", "guarantee_timestamp": 7}


@pytest.mark.parametrize("properties", [{}, {"spacy_elq": "no JSON"}, {"spacy_elq": "[1]"}])
def test_stamp_of_somebody_else(properties):
    assert milvus._read_stamp(properties) == {}


def test_without_pymilvus(monkeypatch):
    milvus._import.cache_clear()
    monkeypatch.setitem(sys.modules, "pymilvus", None)
    with pytest.raises(ELQError, match=r"E229.*spacy-elq\[milvus\]"):
        plan()


# Searching and changing


def test_answers_like_faiss(index, vectors, quick_path):
    expected = build_index(vectors, quick_path / "faiss")
    assert_same(ask(index, ids=IDS), ask(expected, ids=IDS))
    change(index)
    change(expected)
    answers = ask(expected, ids=IDS)
    assert_same(ask(index, ids=IDS), answers)
    with index.reading() as view:
        assert (view.sent, view.first_unsent) == (len(view.changed), view.counters.next)
    assert check_index(index.path) == []
    assert index.compact()
    assert not index.compact()
    assert index.changes == 0
    assert_same(ask(index, ids=IDS), answers)
    assert_same(ask(EntityIndex.open(index.path), ids=IDS), answers)
    assert check_index(index.path) == []


def test_changes_that_could_not_be_sent(index, quick_path, monkeypatch, uri):
    """They are found, and sent with the next change. What was removed but not deleted hides nobody."""
    with monkeypatch.context() as patched:
        patched.setattr(Collection, "upsert", fail)
        patched.setattr(Collection, "delete", fail)
        with pytest.warns(UserWarning, match=r"W014.*elq compact .*no answer"):
            index.add([make_entity(i, 1) for i in range(8, 12)], Texts())
        with pytest.warns(UserWarning, match="W014"):
            index.remove([f"E{i}" for i in range(6)])
        with index.reading() as view:
            assert view.sent == 0
            assert view.first_unsent == 10
        expected = make_index(quick_path / "scratch", list(index))
        assert_same(ask(index, ids=IDS), ask(expected, ids=IDS))
        assert check_index(index.path) == []
        with pytest.raises(milvus.Unreachable):
            index.compact()
    index.add([make_entity(12)], Texts())
    with index.reading() as view:
        assert view.sent == len(view.changed) == 5
    expected.add([make_entity(12)], Texts())
    assert_same(ask(index, ids=IDS), ask(expected, ids=IDS))
    assert check_index(index.path) == []


def test_wider_search_when_the_nearest_are_gone(quick_path, uri, monkeypatch):
    index = build_index(encode(quick_path, [make_entity(i) for i in range(60)]), quick_path / "m", uri=uri)
    positions, _ = index.search(QUERIES[:1], 40)
    monkeypatch.setattr(Collection, "delete", fail)
    with pytest.warns(UserWarning, match="W014"):
        index.remove([head[0] for head in index.heads(positions[0])])
    asked = []
    search = Collection.search

    def watched(self, queries, k, **settings):
        asked.append((len(queries), k))
        return search(self, queries, k, **settings)

    monkeypatch.setattr(Collection, "search", watched)
    found, similarities = index.search(QUERIES[:2], 3)
    exact = QUERIES[:2] @ index.vectors.T
    np.testing.assert_allclose(similarities, -np.sort(-exact, axis=1)[:, :3], rtol=1e-5)
    assert (found >= 0).all()
    assert asked[0] == (2, 3)
    assert max(k for _, k in asked) == 48
    index.close()


def test_what_this_state_does_not_know_is_left_out(index):
    """Another process may have sent it just now, or a copy of the index that was restored is older."""
    collection = Collection(index.meta["backend"], index.path, index.stamp)
    collection.upsert(np.asarray([10, 11]), 100 * QUERIES[:2], [0, 0], [[], []])
    found, _ = index.search(QUERIES, 3)
    assert ((found >= 0) & (found < 10)).all()
    collection.close()


def test_answers_come_in_parts(index, monkeypatch):
    expected = ask(index, ids=IDS)
    monkeypatch.setattr(milvus, "_ANSWER", 200)
    assert_same(ask(index, ids=IDS), expected)
    change(index)
    assert check_index(index.path) == []


def test_vectors_of_no_entity_are_zeros(index):
    collection = Collection(index.meta["backend"], index.path, index.stamp)
    vectors = collection.take(np.asarray([[3, 99], [0, 3]]), seen=0)
    np.testing.assert_array_equal(vectors[0, 1], np.zeros(8))
    np.testing.assert_array_equal(vectors[0, 0], vectors[1, 1])
    np.testing.assert_array_equal(vectors[1, 0], index.vectors[0])
    collection.close()


def test_too_many_tags(index):
    entity = Entity("E1", "x", tags=tuple(map(str, range(MOST_TAGS + 1))))
    with pytest.raises(ELQError, match=r"E237.*'E1' has 4097 tags"):
        index.add([entity], Texts())
    assert index["E1"].title != "x"
    index.add([Entity("E1", "x", tags=entity.tags[1:])], Texts())
    assert check_index(index.path) == []


def test_changes_are_sent_one_after_the_other(index, monkeypatch):
    monkeypatch.setattr(sync, "PATIENCE", 0.05)
    with FileLock(index.path / sync.LOCK), pytest.warns(UserWarning, match=r"W014.*E163"):
        index.remove(["E1"])
    index.remove(["E3"])
    assert check_index(index.path) == []


def test_fork_while_another_thread_searches(index):
    """Nobody waits for the other, and the thread goes on with a new connection."""
    found, is_done = [], threading.Event()

    def search():
        while not is_done.is_set():
            found.append(index.search(QUERIES, 3)[0].tolist())

    thread = threading.Thread(target=search, daemon=True)
    thread.start()
    assert [in_child(lambda: None) for _ in range(5)] == [0] * 5
    is_done.set()
    thread.join(timeout=120)
    assert not thread.is_alive()
    assert all(rows == found[0] for rows in found)


# What is there


def test_check_counts(index, client):
    index.add([make_entity(20)], Texts())
    client.delete(name_of(index), filter="id in [10]")
    (damage,) = check_index(index.path)
    assert damage.file == name_of(index)
    assert damage.problem == "has 10 entities instead of 11"
    assert f"elq compact {index.path} --force" in damage.remedy
    with pytest.raises(ELQError, match=r"E233.*has 10 entities instead of 11"):
        copy_index(index, index.path.parent / "copy")
    assert index.compact(force=True)
    assert check_index(index.path) == []


def test_another_collection_is_refused(index, client):
    name = name_of(index)
    index.close()
    stamp = {**index.stamp, "encoder": "another"}
    client.alter_collection_properties(name, {"spacy_elq": json.dumps(stamp)})
    with pytest.raises(ELQError, match=r"E232.*encoder: another there, texts expected"):
        index.search(QUERIES, 3)
    assert "E232" in check_index(index.path)[0].problem
    client.drop_collection(name)
    with pytest.raises(ELQError, match=r"E230.*--backend milvus"):
        index.search(QUERIES, 3)


def test_another_width_is_refused(index):
    set_backend(index, width=16)
    with pytest.raises(ELQError, match=r"E231.*width 8, but"):
        EntityIndex.open(index.path).search(np.zeros((1, 16), dtype="float32"), 3)


def test_refusal_of_milvus_is_passed_on(index):
    collection = Collection(index.meta["backend"], index.path, index.stamp)
    with pytest.raises(ELQError, match="E233"):
        collection._ask("search", data=[[1.0]], anns_field="vector", limit=1)
    collection.close()


def test_what_is_not_of_milvus_is_raised_as_it_is(index, monkeypatch):
    collection = Collection(index.meta["backend"], index.path, index.stamp)
    monkeypatch.setattr(Collection, "_check", lambda self: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        collection.count()


def test_server_that_is_starting_is_asked_again(index, monkeypatch):
    """As long as it has for an answer; then it is one that does not answer."""
    collection = Collection({**index.meta["backend"], "timeout": 1.0}, index.path, index.stamp)
    raised = milvus._import().MilvusException
    left = [raised(code=101, message="not loaded"), raised(code=503, message="no channel")]

    def check(self):
        if left:
            raise left.pop()

    monkeypatch.setattr(Collection, "_check", check)
    assert collection.count() == 10
    left += [raised(code=1, message="not ready")] * 1000
    collection.close()
    with pytest.raises(milvus.Unreachable, match=r"E228.*not ready"):
        collection.count()
    assert left


def test_collection_that_is_not_loaded_is_loaded(index, client):
    index.close()
    client.release_collection(name_of(index))
    assert index.search(QUERIES, 3)[0].shape == (9, 3)


@pytest.mark.parametrize(
    "values",
    [
        {"uri": 3},
        {"uri": "x"},
        {"collection": None},
        {"width": 0},
        {"width": "8"},
        {"timeout": 0},
        {"M": "x"},
    ],
)
def test_settings_that_cannot_be_used_are_damage(index, values):
    set_backend(index, **values)
    with pytest.raises(Damaged, match="`backend`"):
        EntityIndex.open(index.path)
    assert "`backend`" in check_index(index.path)[0].problem


@pytest.mark.parametrize("synced", [None, {"next": 1}, {"next": 1, "version": 0, "seen": "x"}, 3])
def test_note_of_what_was_sent_must_be_there(index, synced):
    database = Database.open(index.path / "entities.db")
    database.set_meta(synced=synced)
    database.renew()
    database.close()
    with pytest.raises(Damaged, match="`synced`"):
        EntityIndex.open(index.path)


# An address where nobody answers


@pytest.fixture
def silent():
    """A port that takes connections and says nothing."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"


@pytest.mark.parametrize("is_open", [True, False])
def test_nobody_waits_for_ever(index, silent, is_open):
    uri = silent if is_open else "http://127.0.0.1:9"
    set_backend(index, uri=uri, timeout=0.5)
    index = EntityIndex.open(index.path)
    begin = time.monotonic()
    with pytest.raises(milvus.Unreachable, match=f"E228.*{uri} within 0.5 s"):
        index.search(QUERIES, 3)
    assert time.monotonic() - begin < 10
    assert "E1" in index


def test_lite_serves_one_process(vectors, installed, tmp_path):
    (tmp_path / "milvus.db").mkdir()
    with (tmp_path / "milvus.db" / "LOCK").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with pytest.raises(ELQError, match=r"E235.*another process"):
            build_index(vectors, tmp_path / "index", uri=str(tmp_path / "milvus.db"))


def test_lite_in_a_folder_that_is_not_there(vectors, installed, tmp_path):
    with pytest.raises(ELQError, match="E234"):
        build_index(vectors, tmp_path / "index", uri=str(tmp_path / "none" / "milvus.db"))


# Building


def test_from_and_to_faiss(index, quick_path, client):
    change(index)
    expected = ask(index, ids=IDS)
    back = build_index(index.path, quick_path / "back", backend="faiss", factory="HNSW8")
    assert back.meta["backend"]["factory"] == "HNSW8"
    assert_same(ask(back, ids=IDS), expected)
    assert check_index(back.path) == []
    back.add([make_entity(15)], Texts())
    back.compact()
    again = build_index(back.path, quick_path / "again", uri=index._collection().uri)
    assert_same(ask(again, ids=IDS), ask(back, ids=IDS))
    assert check_index(again.path) == []
    # the collection of an index that is not in Milvus any more goes
    name = name_of(again)
    assert client.has_collection(name)
    build_index(again.path, again.path, backend="faiss")
    assert not client.has_collection(name)
    assert_same(ask(again, ids=IDS), ask(back, ids=IDS))


def test_copy_has_a_collection_of_its_own(index, quick_path):
    index.remove(["E1"])
    copy_index(index, quick_path / "copy")
    copy = EntityIndex.open(quick_path / "copy")
    assert name_of(copy) != name_of(index)
    index.remove(["E3"])
    assert "E3" in copy
    assert_same(ask(copy, ids=IDS), ask(make_index(quick_path / "scratch", list(copy)), ids=IDS))
    assert [check_index(x.path) for x in (copy, index)] == [[], []]


def test_settings_change_in_place(index, client):
    name = name_of(index)
    build_index(index.path, index.path, timeout=3.0)
    assert index.meta["backend"]["timeout"] == 3.0
    assert name_of(index) == name
    with pytest.raises(ELQError, match="E081"):
        build_index(index.path, index.path, widths={"efSearch": 4})
    build_index(index.path, index.path, factory="HNSW", widths={"efSearch": 4})
    assert name_of(index) != name
    assert not client.has_collection(name)
    assert index.meta["backend"]["timeout"] == 3.0
    build_index(index.path, index.path, widths={"efSearch": 5})
    assert index.meta["backend"]["efSearch"] == 5
    assert index.search(QUERIES, 3)[0].shape == (9, 3)


def test_collections_that_were_left_go(index, vectors, client, monkeypatch):
    name = name_of(index)
    with monkeypatch.context() as patched:
        patched.setattr(Collection, "finish", fail)
        with pytest.raises(milvus.Unreachable):
            build_index(vectors, index.path, uri=index._collection().uri)
        patched.setattr(Collection, "drop", fail)
        sync.drop_collections(index.path, index._database)
    notes = index.path / COLLECTIONS
    (left,) = [json.loads(line) for line in notes.read_text().splitlines()]
    assert client.has_collection(left["collection"])
    notes.write_text(
        notes.read_text() + json.dumps({**left, "collection": name}) + '\n3\n{"collection": "half'
    )
    sync.drop_collections(index.path, index._database)
    assert not notes.exists()
    assert [client.has_collection(x) for x in (left["collection"], name)] == [False, True]
    assert index.search(QUERIES, 3)[0].shape == (9, 3)


def test_what_does_not_go_together(index, vectors, quick_path):
    with pytest.raises(ELQError, match=r"E002.*backend"):
        build_index(vectors, quick_path / "x", backend="annoy")
    with pytest.raises(ELQError, match=r"E234.*no --uri"):
        build_index(vectors, quick_path / "x", backend="milvus")
    for settings in ({"uri": "http://x:1"}, {"timeout": 3.0}):
        with pytest.raises(ELQError, match="E234"):
            build_index(vectors, quick_path / "x", backend="faiss", **settings)
    with pytest.raises(ELQError, match=r"E002.*dtype"):
        build_index(index.path, quick_path / "x", dtype="float16")
    assert not (quick_path / "x").exists()


def test_half_the_precision_goes_in_as_it_is(vectors, quick_path, uri):
    half = build_index(vectors, quick_path / "half", dtype="float16")
    index = build_index(half.path, quick_path / "index", uri=uri)
    np.testing.assert_array_equal(index.vectors, half.vectors)
    assert check_index(index.path) == []


def test_command(vectors, uri, quick_path):
    runner = CliRunner()
    command = ["index", str(vectors), str(quick_path / "index"), "--backend", "milvus", "--uri", uri]
    result = runner.invoke(app, [*command, "--timeout", "5"])
    assert result.exit_code == 0, result.output
    assert "10 entities, factory FLAT" in result.output
    result = runner.invoke(app, ["show", str(quick_path / "index")])
    assert json.loads(result.output)["backend"]["timeout"] == 5.0
    assert runner.invoke(app, ["check", str(quick_path / "index")]).exit_code == 0
