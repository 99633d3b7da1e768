"""The Milvus back end with a server that is stopped, frozen and killed."""

import logging
import os
import random
import signal
import tempfile
import time
import warnings
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from index_world import QUERIES, Texts, ask, assert_same, encode, in_child, make_entity, make_index
from milvus_server import HELP, MilvusServer, is_available

pytest.importorskip("pymilvus", reason="needs spacy-elq[milvus]")
pytestmark = [pytest.mark.slow, pytest.mark.skipif(not is_available(), reason=HELP)]

from spacy_elq.errors import ELQError  # noqa: E402
from spacy_elq.index import EntityIndex, build_index, check_index  # noqa: E402
from spacy_elq.index.database import Database  # noqa: E402
from spacy_elq.index.milvus import Collection, Unreachable, _import  # noqa: E402

logger = logging.getLogger(__name__)
IDS = [f"E{i}" for i in range(40)]
ENTITIES = [make_entity(i) for i in range(10)]
# seconds that the server has for an answer, on a machine that may be busy
TIMEOUT = 300.0


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    server = MilvusServer(tmp_path_factory.mktemp("milvus"))
    server.start()
    logger.info("a server listens on %s, process %s", server.uri, server.pid)
    yield server
    server.stop()


@pytest.fixture
def pair(quick_path, server):
    """The same entities with FAISS and with Milvus."""
    vectors = encode(quick_path, ENTITIES)
    pair = (
        build_index(vectors, quick_path / "faiss"),
        build_index(vectors, quick_path / "milvus", uri=server.uri, timeout=TIMEOUT),
    )
    yield pair
    pair[1].close()


def collections(server):
    client = _import().MilvusClient(server.uri, timeout=TIMEOUT, dedicated=True)
    try:
        return set(client.list_collections(timeout=TIMEOUT))
    finally:
        client.close()


def name_of(index):
    return index.meta["backend"]["collection"]


def assert_equal(pair):
    assert_same(ask(pair[1], ids=IDS), ask(pair[0], ids=IDS))


def assert_sound(index):
    """It answers as an index with FAISS that was built from its entities."""
    with tempfile.TemporaryDirectory(dir=index.path.parent) as folder:
        assert_same(ask(index, ids=IDS), ask(make_index(Path(folder), list(index)), ids=IDS))


def restart(server):
    logger.info("killing the server, process %s", server.pid)
    server.kill()
    server.start()
    logger.info("the server runs again, process %s", server.pid)


def test_same_answers_as_faiss(pair):
    for _ in range(2):
        assert_equal(pair)
        for index in pair:
            index.add([make_entity(i, 1) for i in range(7, 13)], Texts())
            index.remove(["E2", "E12"])
        assert_equal(pair)
        assert check_index(pair[1].path) == []
        assert pair[1].compact()
        assert pair[1].changes == 0
        assert_equal(pair)
        assert check_index(pair[1].path) == []


def test_what_was_sent_is_found_at_once(pair):
    """The next search sees it, in Milvus itself: nothing is left for this process to compare."""
    index = pair[1]
    for number in range(20, 40):
        entity = make_entity(number)
        index.add([entity], Texts())
        with index.reading() as view:
            assert view.first_unsent == view.counters.next
            assert view.written > 0
        found, _ = index.search(Texts().encode([entity], batch_size=1), 1, within={"ids": [entity.id]})
        assert index.entity(int(found[0, 0])).id == entity.id
        everybody, _ = index.search(QUERIES[:1], 11)
        assert found[0, 0] in everybody
        index.remove([entity.id])


@pytest.mark.parametrize("factory", ["HNSW", "IVF_FLAT", "IVF_SQ8"])
def test_kinds_of_index(quick_path, server, factory):
    vectors = encode(quick_path, [make_entity(i) for i in range(3000)])
    exact = build_index(vectors, quick_path / "faiss", factory="Flat")
    index = build_index(vectors, quick_path / "milvus", uri=server.uri, factory=factory, timeout=TIMEOUT)
    queries = np.random.default_rng(0).normal(size=(50, 8)).astype("float32")
    expected, found = exact.search(queries, 10), index.search(queries, 10)
    same = [len(set(a) & set(b)) for a, b in zip(expected[0].tolist(), found[0].tolist(), strict=True)]
    logger.info("%s: recall@10 %.3f", factory, sum(same) / 500)
    assert sum(same) >= (150 if factory.startswith("IVF") else 480)
    # whatever it found is scored exactly
    scores = np.einsum("qkw,qw->qk", exact.vectors_at(found[0]), queries)
    np.testing.assert_allclose(found[1], scores, rtol=1e-5, atol=1e-5)
    assert np.isin(exact.search(queries, 10, within={"tags": ["tag-1"]})[0], index.all_positions()).all()
    index.close()


def test_restart_and_kill_lose_nothing(pair, server):
    for index in pair:
        index.add([make_entity(i) for i in range(10, 14)], Texts())
        index.remove(["E3"])
    logger.info("stopping the server, process %s", server.pid)
    server.stop()
    server.start()
    assert_equal(pair)
    for index in pair:
        index.add([make_entity(i, 2) for i in range(12, 16)], Texts())
        index.remove(["E4", "E13"])
    restart(server)
    assert_equal(pair)
    assert check_index(pair[1].path) == []


def test_changes_without_a_server(pair, server):
    """They are made, found as soon as the server is back, and sent with the next change."""
    fast = build_index(pair[1].path, pair[1].path, timeout=3.0)
    logger.info("killing the server, process %s", server.pid)
    server.kill()
    begin = time.monotonic()
    with pytest.raises(Unreachable, match=r"E228.*--timeout"):
        fast.search(QUERIES, 3)
    with pytest.warns(UserWarning, match=r"W014.*elq compact"):
        fast.add([make_entity(i, 1) for i in range(8, 12)], Texts())
    with pytest.warns(UserWarning, match="W014"):
        fast.remove(["E1"])
    assert time.monotonic() - begin < 120
    assert "E11" in fast
    assert "E1" not in fast
    assert fast.find("shared 1")
    assert "E228" in check_index(fast.path)[0].problem
    pair[0].add([make_entity(i, 1) for i in range(8, 12)], Texts())
    pair[0].remove(["E1"])
    server.start()
    build_index(fast.path, fast.path, timeout=TIMEOUT)
    assert_equal(pair)
    for index in pair:
        index.add([make_entity(15)], Texts())
    assert_equal(pair)
    assert check_index(pair[1].path) == []


def test_server_that_does_not_answer_keeps_nobody_for_ever(pair, server):
    fast = build_index(pair[1].path, pair[1].path, timeout=3.0)
    logger.info("freezing the server, process %s", server.pid)
    server.freeze()
    try:
        for _ in range(2):
            begin = time.monotonic()
            with pytest.raises(Unreachable, match="E228"):
                fast.search(QUERIES, 3)
            assert time.monotonic() - begin < 120
    finally:
        server.thaw()
    build_index(fast.path, fast.path, timeout=TIMEOUT)
    assert_equal(pair)


def change(folder, seed):
    """Add, replace and remove at random, always the same for a seed."""
    draw = random.Random(seed)
    index = EntityIndex.open(folder)
    numbers = draw.sample(range(20), 4)
    index.add([make_entity(number, seed % 4) for number in numbers], Texts())
    index.remove([f"E{number}" for number in draw.sample(range(20), 2)])
    index.close()


@pytest.mark.parametrize("moment", ["before", "after"])
@pytest.mark.parametrize("step", ["upsert", "delete", "note_sync"])
def test_kill_between_the_two_writes(pair, step, moment):
    """Whatever a process that is killed has sent, the next one sends the rest."""
    owner = Database if step == "note_sync" else Collection
    function = getattr(owner, step)

    def deadly(*args, **kwargs):
        if moment == "after":
            function(*args, **kwargs)
        os.kill(os.getpid(), signal.SIGKILL)

    def work():
        setattr(owner, step, deadly)
        change(pair[1].path, 1)

    logger.info("a process is killed %s %s", moment, step)
    assert in_child(work) == -signal.SIGKILL
    assert_sound(pair[1])
    for index in pair:
        change(index.path, 1)
    assert_equal(pair)
    assert check_index(pair[1].path) == []


def test_kill_while_a_collection_is_filled(quick_path, server):
    """The index is the old one or the new one, and no collection is left that nobody uses."""
    before = collections(server)
    vectors = encode(quick_path, ENTITIES)
    for step in ("create", "upsert", "finish", "drop"):
        other = encode(quick_path / step, [replace(x, description=step) for x in ENTITIES])
        build_index(vectors, quick_path / "index", uri=server.uri, timeout=TIMEOUT).close()

        def work(step=step, other=other):
            function = getattr(Collection, step)

            def deadly(*args, **kwargs):
                function(*args, **kwargs)
                os.kill(os.getpid(), signal.SIGKILL)

            setattr(Collection, step, deadly)
            build_index(other, quick_path / "index", uri=server.uri, timeout=TIMEOUT)

        logger.info("a process is killed after %s", step)
        assert in_child(work) == -signal.SIGKILL
        index = EntityIndex.open(quick_path / "index")
        assert index["E1"].description == (step if step == "drop" else ENTITIES[1].description)
        assert check_index(index.path) == []
        index.search(QUERIES, 3)
        index.close()
        index = build_index(other, quick_path / "index", uri=server.uri, timeout=TIMEOUT)
        assert collections(server) == before | {name_of(index)}
        index.close()


def test_processes_that_fork_have_connections_of_their_own(pair):
    index = pair[1]
    expected = index.search(QUERIES, 3)

    def work():
        for _ in range(3):
            found = index.search(QUERIES, 3)
            np.testing.assert_array_equal(found[0], expected[0])

    assert [in_child(work) for _ in range(4)] == [0] * 4
    work()


def test_soak(pair, server):
    """Processes that change the index and the server are killed at random moments."""
    draw = random.Random(0)
    kills = {"process": 0, "server": 0}
    for seed in range(24):
        child = os.fork()
        if not child:
            try:
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    change(pair[1].path, seed)
                os._exit(0)
            except BaseException as err:
                logger.error("%s", err)
                os._exit(1)
        if seed % 8 == 7:
            time.sleep(draw.uniform(0, 1.0))
            restart(server)
            kills["server"] += 1
            os.waitpid(child, 0)
        elif seed % 2:
            time.sleep(draw.uniform(0, 1.0))
            os.kill(child, signal.SIGKILL)
            code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
            logger.info("process %s: %s", child, "killed" if code else "was done before")
            kills["process"] += code != 0
        else:
            os.waitpid(child, 0)
    logger.info("killed: %s", kills)
    assert_sound(pair[1])
    pair[1].add([make_entity(30)], Texts())
    assert_sound(pair[1])
    assert check_index(pair[1].path) == []
    assert kills["server"] == 3


def test_another_collection_is_refused(pair, server):
    name = name_of(pair[1])
    client = _import().MilvusClient(server.uri, timeout=TIMEOUT, dedicated=True)
    client.alter_collection_properties(name, {"spacy_elq": '{"catalogue": "x"}'}, timeout=TIMEOUT)
    pair[1].close()
    with pytest.raises(ELQError, match=r"E232.*catalogue: x there"):
        pair[1].search(QUERIES, 3)
    client.drop_collection(name, timeout=TIMEOUT)
    with pytest.raises(ELQError, match=r"E230.*--backend milvus"):
        pair[1].search(QUERIES, 3)
    client.close()
