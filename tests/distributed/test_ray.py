"""Encode and link on a cluster of two nodes of which parts are killed. The kills are in the log:
`pytest -m slow tests/distributed/test_ray.py -o log_cli=true -o log_cli_level=INFO`.
"""

import hashlib
import json
import logging
import os
import random
import signal
import subprocess
import sys

import numpy as np
import pytest
from conftest import QUESTIONS
from index_world import names
from ray_world import HERE, RayCluster, SlowEncoder, processes_of, read_log, start_cluster, wait_until

from spacy_elq.errors import ELQError
from spacy_elq.index import EntityIndex, encode_catalogue
from spacy_elq.index.files import named_files

pytest.importorskip("ray", reason="needs spacy-elq[ray]")
pytestmark = pytest.mark.slow

LOG = logging.getLogger(__name__)
ENTITIES, SHARDS = 300, 12
WAIT = 300


@pytest.fixture(scope="module")
def shared():
    """A cluster of two nodes, for tests that leave it whole."""
    cluster = start_cluster()
    yield cluster
    cluster.stop()


@pytest.fixture
def cluster():
    """A cluster of two nodes, one of which may be killed."""
    own = start_cluster()
    yield own
    own.stop()


@pytest.fixture(scope="module")
def catalogue(tmp_path_factory):
    path = tmp_path_factory.mktemp("many") / "entities.jsonl"
    words = ["paris", "mercury", "planet", "capital", "new", "york", "city", "light", "georgia", "of", "the"]
    dice = random.Random(0)
    texts = [" ".join(dice.choices(words, k=dice.randint(2, 12))) for _ in range(ENTITIES)]
    lines = [{"id": f"E{i}", "title": f"Number {i}", "description": x} for i, x in enumerate(texts)]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


def sums(folder):
    """RETURNS: sha256 of the vectors of an index and of its entities."""
    index = EntityIndex.open(folder)
    vectors = named_files(index._database)["vectors.npy"].read_bytes()
    entities = repr([index.entity(i) for i in range(len(index))]).encode()
    return [hashlib.sha256(data).hexdigest() for data in (vectors, entities)]


@pytest.fixture(scope="module")
def expected(catalogue, encoder_path, tmp_path_factory):
    """What a single process makes of the catalogue."""
    folder = tmp_path_factory.mktemp("alone")
    encoder = SlowEncoder(str(encoder_path), str(folder / "log"), 0.0)
    encode_catalogue(catalogue, folder / "vectors", encoder, shard_size=25).close()
    return sums(folder / "vectors")


class Driver:
    """A process that encodes on a cluster, what it writes, and what the workers note."""

    def __init__(
        self, cluster: RayCluster, catalogue, encoder, folder, *, actors=2, seconds=0.7, output=None
    ):
        self._cluster, self._folder = cluster, folder
        self.output, self.log = output or str(folder / "vectors"), folder / "shards.log"
        words = (catalogue, self.output, encoder, self.log, cluster.address, seconds, actors)
        self._words = [HERE / "ray_world.py", *words]
        self.start()

    def start(self):
        self.process = self._cluster.run(*self._words, log=self._folder / "driver.log")

    def wait_for_shards(self, count):
        """Wait until so many shards have begun."""
        wait_until(
            lambda: len(read_log(self.log)) >= count or self.process.poll() is not None, f"{count} shards"
        )
        assert self.process.poll() is None, self.said()

    def said(self):
        return (self._folder / "driver.log").read_text()

    def finish(self):
        assert self.process.wait(WAIT) == 0, self.said()

    def check(self, expected, *, again):
        """Check that the result is as expected, and which shards were encoded more than once.

        again: how many, at most.
        """
        begun = read_log(self.log)
        LOG.info("%d shards, encoded %d times by %d actors", SHARDS, len(begun), len({x for x, _ in begun}))
        assert sums(self.output) == expected
        LOG.info("sha256 of vectors and entities: %s, as in a single process", expected)
        assert len({first for _, first in begun}) == SHARDS
        assert len(begun) <= SHARDS + again
        assert not (self._folder / "vectors" / "partial").exists()


@pytest.mark.parametrize("actors", [1, 2])
def test_the_result_is_that_of_a_single_process(shared, catalogue, encoder_path, expected, tmp_path, actors):
    driver = Driver(shared, catalogue, encoder_path, tmp_path, actors=actors, seconds=0.2)
    driver.finish()
    assert len({pid for pid, _ in read_log(driver.log)}) == actors
    driver.check(expected, again=0)


def test_to_another_file_system(shared, catalogue, encoder_path, expected, tmp_path):
    output = f"file://{tmp_path}/remote"
    driver = Driver(shared, f"file://{catalogue}", encoder_path, tmp_path, seconds=0.1, output=output)
    driver.finish()
    # opening an index makes files of SQLite
    assert names(tmp_path / "remote") == ["entities.db", "vectors.npy"]
    assert sums(tmp_path / "remote") == expected


@pytest.mark.parametrize("actors", [1, 2])
def test_an_actor_is_killed(shared, catalogue, encoder_path, expected, tmp_path, actors):
    driver = Driver(shared, catalogue, encoder_path, tmp_path, actors=actors)
    driver.wait_for_shards(4)
    pid, first = read_log(driver.log)[-1]
    LOG.info("kill -9 actor %d while it encodes the shard of %s", pid, first)
    os.kill(pid, signal.SIGKILL)
    driver.finish()
    if actors == 1:
        assert len({pid for pid, _ in read_log(driver.log)}) == 2, "another took its place"
    driver.check(expected, again=1)


def test_a_node_is_killed(cluster, catalogue, encoder_path, expected, tmp_path):
    driver = Driver(cluster, catalogue, encoder_path, tmp_path)
    driver.wait_for_shards(4)
    node = cluster.nodes[1]
    lost = {pid for pid, _ in read_log(driver.log)} & set(processes_of(node.process.pid))
    LOG.info("kill -9 all processes of the second node, %s, with actor %s", node.process.pid, lost)
    node.kill()
    driver.finish()
    driver.check(expected, again=1)


@pytest.mark.parametrize("is_remote", [False, True])
def test_the_driver_is_killed(shared, catalogue, encoder_path, expected, tmp_path, is_remote):
    output = f"file://{tmp_path}/vectors" if is_remote else None
    driver = Driver(shared, catalogue, encoder_path, tmp_path, output=output)
    driver.wait_for_shards(6)
    LOG.info("kill -9 driver %d after %d shards were begun", driver.process.pid, len(read_log(driver.log)))
    driver.process.kill()
    driver.process.wait(WAIT)
    # what is under way may be finished, and counts if it is
    wait_until(lambda: not any(map(is_alive, {pid for pid, _ in read_log(driver.log)})), "end of the actors")
    with pytest.raises(ELQError):
        EntityIndex.open(tmp_path / "vectors")
    driver.start()
    driver.finish()
    driver.output = str(tmp_path / "vectors")
    driver.check(expected, again=2)


def is_alive(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


# What does not fit


def command(cluster, *words):
    """Run `python -m spacy elq …` in the environment of a cluster."""
    return subprocess.run(
        [sys.executable, "-m", "spacy", "elq", *map(str, words)],
        env=cluster.environment,
        capture_output=True,
        text=True,
        timeout=WAIT,
    )


def test_more_actors_than_cpus(shared, catalogue_path, encoder_path, tmp_path):
    options = ["-e", encoder_path, "-L", 48, "--ray", shared.address, "-p", 3]
    done = command(shared, "encode", catalogue_path, tmp_path / "out", *options)
    assert done.returncode == 1
    assert "E222] 3 actors need as many CPUs, the cluster has 2 (2 nodes)" in done.stderr
    assert not (tmp_path / "out").exists()


def test_what_workers_do_not_see(shared, catalogue_path, encoder_path):
    # every process has a memory of its own
    options = ["-e", encoder_path, "-L", 48, "--ray", shared.address]
    done = command(shared, "encode", catalogue_path, "memory://out", *options)
    assert done.returncode == 1
    assert "E223] memory://out/partial is not there on" in done.stderr
    assert "Traceback" not in done.stderr


def test_another_token(shared, catalogue_path, encoder_path, tmp_path):
    shared_token = shared.environment["RAY_AUTH_TOKEN"]
    try:
        shared.environment["RAY_AUTH_TOKEN"] = "0" * 64
        options = ["-e", encoder_path, "-L", 48, "--ray", shared.address]
        done = command(shared, "encode", catalogue_path, tmp_path / "out", *options)
    finally:
        shared.environment["RAY_AUTH_TOKEN"] = shared_token
    assert done.returncode == 1
    assert f"E221] No Ray cluster at {shared.address}" in done.stderr


def test_a_worker_that_ends_again_and_again(shared, tmp_path):
    done = subprocess.run(
        [sys.executable, HERE / "ray_jobs.py", shared.address, "die"],
        env=shared.environment,
        capture_output=True,
        text=True,
        timeout=WAIT,
    )
    assert "E226] 3 workers ended one after the other, with part 2" in done.stderr


def test_errors_of_a_worker(shared):
    for kind, message in [
        ("fail", "ZeroDivisionError"),
        ("refuse", "ELQError: E000 refused"),
        ("no", "E224"),
    ]:
        done = subprocess.run(
            [sys.executable, HERE / "ray_jobs.py", shared.address, kind],
            env=shared.environment,
            capture_output=True,
            text=True,
            timeout=WAIT,
        )
        assert message in done.stderr, kind


def test_no_cpu_gets_free(shared):
    done = subprocess.run(
        [sys.executable, HERE / "ray_jobs.py", shared.address, "crowd"],
        env=shared.environment,
        capture_output=True,
        text=True,
        timeout=WAIT,
    )
    assert "E225] No actor could start for 5 seconds: 0 of 2 CPUs" in done.stderr


# Questions


@pytest.fixture
def questions(tmp_path):
    texts = [line for line in QUESTIONS.splitlines() if line[0] != "#"]
    path = tmp_path / "questions.txt"
    path.write_text("\n".join(texts * 100) + "\n")
    return path


def test_links_are_those_of_a_single_process(shared, trained_path, questions, tmp_path):
    alone, together = tmp_path / "alone.jsonl", tmp_path / "together.jsonl"
    assert command(shared, "link", trained_path, questions, alone).returncode == 0
    done = command(shared, "link", trained_path, questions, together, "--ray", shared.address)
    assert done.returncode == 0, done.stderr
    assert together.read_bytes() == alone.read_bytes()
    LOG.info("sha256 of the links: %s", hashlib.sha256(together.read_bytes()).hexdigest())
    assert not (tmp_path / "together.jsonl.parts").exists()


@pytest.mark.parametrize("who", ["actor", "driver"])
def test_links_after_a_kill(shared, trained_path, questions, tmp_path, who):
    questions.write_text(questions.read_text() * 8)
    alone, together = tmp_path / "alone.jsonl", tmp_path / "together.jsonl"
    assert command(shared, "link", trained_path, questions, alone).returncode == 0
    words = ["-m", "spacy", "elq", "link", trained_path, questions, together, "--ray", shared.address]
    driver = shared.run(*words, log=tmp_path / "log")
    parts = tmp_path / "together.jsonl.parts"
    wait_until(lambda: list(parts.glob("part-*.jsonl")) or driver.poll() is not None, "a part")
    before = set(os.listdir(parts))
    if who == "driver":
        LOG.info("kill -9 driver %d with %d parts", driver.pid, len(before))
        driver.kill()
        driver.wait(WAIT)
        assert not together.exists()
        driver = shared.run(*words, log=tmp_path / "log")
    else:
        node_pids = [pid for node in shared.nodes for pid in processes_of(node.process.pid)]
        actors = [pid for pid in node_pids if "ray::Actor" in title(pid)]
        LOG.info("kill -9 actor %d of %s", actors[0], actors)
        os.kill(actors[0], signal.SIGKILL)
    assert driver.wait(WAIT) == 0, (tmp_path / "log").read_text()
    assert together.read_bytes() == alone.read_bytes()
    LOG.info("sha256 of the links: %s", hashlib.sha256(together.read_bytes()).hexdigest())


def title(pid):
    try:
        with open(f"/proc/{pid}/cmdline") as file_:
            return file_.read()
    except OSError:
        return ""


# A cluster that ends with the work


def test_local(catalogue, encoder_path, expected, tmp_path):
    environment = {**os.environ, "HOME": str(tmp_path), "OMP_NUM_THREADS": "1"}
    for name in ("RAY_AUTH_TOKEN", "RAY_AUTH_MODE"):
        environment.pop(name, None)
    options = ["-e", encoder_path, "-L", 48, "--ray", "local", "-p", 2]
    words = [sys.executable, "-m", "spacy", "elq", "encode", catalogue, tmp_path / "out", *options]
    done = subprocess.run(
        list(map(str, words)), env=environment, capture_output=True, text=True, timeout=WAIT
    )
    assert done.returncode == 0, done.stderr
    assert f"{ENTITIES} entities, vectors of width 48" in " ".join(done.stdout.split())
    found = EntityIndex.open(tmp_path / "out").vectors
    alone = encode_catalogue(catalogue, tmp_path / "alone", SlowEncoder(str(encoder_path), os.devnull, 0.0))
    np.testing.assert_array_equal(found, alone.vectors)
    assert not (tmp_path / ".ray").exists(), "a token there would be demanded by later clusters"
