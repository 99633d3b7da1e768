"""The catalogue changes while others read it: threads, forks, other processes, other users."""

import multiprocessing
import os
import random
import signal
import subprocess
import sys
import threading
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from index_world import QUERIES, Texts, ask, assert_same, in_child, make_entity, make_index, names

from spacy_elq.errors import ELQError
from spacy_elq.index import EntityIndex, build_index, check_index, open_index
from spacy_elq.index import entity_index as module
from spacy_elq.types import Entity

IDS = [f"E{i}" for i in range(20)]
TESTS = Path(__file__).parent.parent
NOBODY = 65534


@pytest.fixture
def index(quick_path):
    return make_index(quick_path, [make_entity(i) for i in range(10)])


# Any sequence of changes


class Changes(RuleBasedStateMachine):
    """After any changes, an index answers as one that was built from the same entities."""

    factory: str = "Flat"

    @initialize(numbers=st.sets(st.integers(0, 9), min_size=1))
    def build(self, numbers):
        import tempfile

        memory = "/dev/shm" if Path("/dev/shm").is_dir() else None
        self.folder = tempfile.TemporaryDirectory(dir=memory)
        self.expected = {f"E{i}": make_entity(i) for i in sorted(numbers)}
        self.index = make_index(Path(self.folder.name), self.expected.values(), factory=self.factory)
        self.other = EntityIndex.open(self.index.path)
        self.gone = set()
        self.is_changed = True

    @rule(numbers=st.sets(st.integers(0, 19), max_size=4), version=st.integers(0, 3))
    def add(self, numbers, version):
        entities = [make_entity(i, version) for i in sorted(numbers)]
        assert self.index.add(entities, Texts()) == len(entities)
        self.expected.update({entity.id: entity for entity in entities})
        self.gone -= {entity.id for entity in entities}
        self.is_changed = True

    @rule(numbers=st.sets(st.integers(0, 19), max_size=4))
    def remove(self, numbers):
        ids = [f"E{i}" for i in sorted(numbers)]
        known = [id_ for id_ in ids if id_ in self.expected]
        assert self.index.remove(ids) == len(known)
        for id_ in known:
            del self.expected[id_]
        self.gone.update(known)
        self.is_changed = True

    @rule()
    def compact(self):
        self.index.compact()

    @rule()
    def reopen(self):
        self.index.close()
        self.index = EntityIndex.open(self.index.path)

    @rule()
    def change_places(self):
        self.index, self.other = self.other, self.index

    @invariant()
    def nobody_comes_back(self):
        if not hasattr(self, "index"):
            return
        assert not any(id_ in self.index or id_ in self.other for id_ in self.gone)
        assert len(self.index) == len(self.other) == len(self.expected)

    def teardown(self):
        if not hasattr(self, "index"):
            return
        found = [ask(index, ids=IDS) for index in (self.index, self.other, EntityIndex.open(self.index.path))]
        assert check_index(self.index.path) == []
        if self.expected:
            scratch = make_index(Path(self.folder.name) / "new", self.expected.values(), factory=self.factory)
            expected = ask(scratch, ids=IDS)
            for answers in found:
                assert_same(answers, expected)
        self.index.close()
        self.other.close()
        self.folder.cleanup()


TestChanges = Changes.TestCase
TestChanges.settings = settings(max_examples=25, stateful_step_count=12, deadline=None)


class ChangesOfCodes(Changes):
    factory = "SQ8"


TestChangesOfCodes = ChangesOfCodes.TestCase
TestChangesOfCodes.settings = settings(max_examples=10, stateful_step_count=12, deadline=None)


class ChangesOfGraph(Changes):
    factory = "HNSW32"


TestChangesOfGraph = ChangesOfGraph.TestCase
TestChangesOfGraph.settings = settings(max_examples=10, stateful_step_count=12, deadline=None)


def test_each_id_is_given_once(index):
    with pytest.raises(ELQError, match=r"E166.*'E1'"):
        index.add([make_entity(1), make_entity(2), make_entity(1, 1)], Texts())
    assert index.changes == 0


@pytest.mark.parametrize("record", [Entity(5, "a"), {"id": "E30"}, make_entity(31, 1).__dict__ | {"id": ""}])
def test_if_a_record_is_not_valid_nobody_is_added(index, record):
    with pytest.raises(ELQError, match=r"E020.*entity 2"):
        index.add([make_entity(30), record], Texts())
    assert index.changes == 0


def test_kinds_of_text_are_added_as_texts(index):
    index.add([{"id": np.str_("E30"), "title": np.str_("x"), "label": np.str_("GPE")}], Texts())
    index.add([replace(make_entity(31), id=np.str_("E31"), popularity=-0.0)], Texts())
    opened = EntityIndex.open(index.path)
    assert opened["E30"] == Entity("E30", "x", label="GPE")
    assert opened["E31"] == replace(make_entity(31), popularity=0.0)
    assert check_index(index.path) == []
    assert opened.remove([np.str_("E30")]) == 1


def test_the_same_text_of_another_kind_is_the_same_id(index):
    with pytest.raises(ELQError, match="E166"):
        index.add([make_entity(30), replace(make_entity(30), id=np.str_("E30"))], Texts())


def test_new_and_replaced_entities_are_told_apart(index):
    assert index.put([make_entity(1, 1), make_entity(30), make_entity(31)], Texts()) == (2, 1)
    assert index.put([], Texts()) == (0, 0)


def test_half_of_a_surrogate_pair_is_no_id(index):
    assert "\udcff" not in index
    with pytest.raises(KeyError):
        index["\udcff"]
    assert index.remove(["\udcff"]) == 0
    assert index.find("\udcff") == []


@pytest.mark.parametrize("name", [None, 7, ["x"], b"x"])
def test_what_is_no_name_is_not_looked_for(index, name):
    for own in (index, open_index([index.path, index.path])):
        with pytest.raises(ELQError, match="E182") as error:
            own.find(name)
        assert repr(name) in str(error.value)


def test_a_loop_of_links_is_no_index(tmp_path):
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    with pytest.raises(OSError, match="loop"):
        EntityIndex.open(tmp_path / "loop")
    (tmp_path / "file").touch()
    for place in (tmp_path / "no", tmp_path / "file" / "no"):
        with pytest.raises(ELQError, match="E030"):
            EntityIndex.open(place)


def test_the_docs_say_when_changes_are_folded_in():
    docs = (TESTS.parent / "docs" / "catalogue-changes.md").read_text(encoding="utf8")
    sentence = (
        f"more than {module.COMPACT_FROM:,} changes and they are more than {module.COMPACT_SHARE:.0%} of"
    )
    assert sentence in " ".join(docs.split())


def test_nobody_is_added_in_an_empty_list(index):
    encoder = Texts()
    assert index.add([], encoder) == 0
    assert index.add(iter([make_entity(30)]), encoder) == 1
    assert encoder.encoded == ["E30"]


def test_another_encoder_adds_nobody(index):
    class Other(Texts):
        fingerprint = "other"

    with pytest.raises(ELQError, match=f"E038.*{index.path}"):
        index.add([make_entity(30)], Other())
    assert index.changes == 0


def test_removed_ids_stay_away(index):
    index.add([make_entity(12)], Texts())
    index.remove(["E1", "E12"])
    for _ in range(2):
        for opened in (index, EntityIndex.open(index.path)):
            assert opened.positions(["E1", "E12"]).tolist() == [-1, -1]
            assert {"E1", "E12"}.isdisjoint(entity.id for entity in opened)
            assert opened.find("alias 12") == []
            found, _ = opened.search(QUERIES, 20)
            assert {"E1", "E12"}.isdisjoint(head[0] for head in opened.heads(np.unique(found)))
        index.compact()


# Other processes


def run_python(code, *arguments):
    """A real other process, which knows nothing of this one."""
    command = [
        sys.executable,
        "-c",
        f"import sys; sys.path.insert(0, {str(TESTS)!r})\n{code}",
        *map(str, arguments),
    ]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


CHANGER = """
from index_world import *
index = EntityIndex.open(sys.argv[1])
for line in sys.stdin:
    command, *ids = line.split()
    if command == "add":
        index.add([make_entity(int(i), 1) for i in ids], Texts())
    elif command == "remove":
        index.remove([f"E{i}" for i in ids])
    else:
        index.compact()
    print("done", flush=True)
"""


@pytest.fixture
def tell(index):
    """Lets another process change the index; returns when it has."""
    process = run_python(CHANGER, index.path)

    def tell(command):
        process.stdin.write(command + "\n")
        process.stdin.flush()
        assert process.stdout.readline() == "done\n"

    yield tell
    process.stdin.close()
    assert process.wait(60) == 0


def test_the_changes_of_another_process_are_seen_by_the_next_call(index, tell):
    tell("add 1 15")
    assert index["E15"] == make_entity(15, 1)
    assert index["E1"] == make_entity(1, 1)
    tell("remove 2 15")
    assert "E15" not in index
    assert len(index) == 9
    tell("compact")
    assert index.changes == 0
    entities = [make_entity(i) for i in (0, 3, 4, 5, 6, 7, 8, 9)] + [make_entity(1, 1)]
    expected = make_index(index.path.parent / "new", entities)
    assert_same(ask(index, ids=IDS), ask(expected, ids=IDS))


def test_inside_a_block_the_state_stays_although_another_process_changes_it(index, tell):
    with index.reading():
        before = ask(index, ids=IDS)
        for command in ("add 1 15", "remove 2 3", "compact", "add 3 16"):
            tell(command)
            assert_same(ask(index, ids=IDS), before)
    assert "E16" in index
    assert "E2" not in index


def _ask_elsewhere(index, queue):
    queue.put(ask(index, ids=IDS))


@pytest.mark.parametrize("method", ["spawn", "fork"])
def test_an_index_goes_to_another_process(index, method):
    index.add([make_entity(1, 1), make_entity(15)], Texts())
    index.remove(["E2"])
    context = multiprocessing.get_context(method)
    queue = context.SimpleQueue()
    process = context.Process(target=_ask_elsewhere, args=(index, queue))
    process.start()
    found = queue.get()
    process.join()
    assert_same(found, ask(index, ids=IDS))


ADDER = """
from index_world import *
index = EntityIndex.open(sys.argv[1])
sys.stdin.readline()
for i in range(int(sys.argv[2]), int(sys.argv[3])):
    index.add([make_entity(i)], Texts())
    if i % 7 == 0:
        try:
            index.compact()
        except ELQError as err:
            assert "E163" in str(err)
"""


def test_writers_at_once_lose_nothing(index):
    code = "from spacy_elq.errors import ELQError\n" + ADDER
    processes = [run_python(code, index.path, begin, begin + 25) for begin in (100, 200)]
    for process in processes:
        process.stdin.write("go\n")
        process.stdin.flush()
    for process in processes:
        process.communicate(timeout=120)
        assert process.returncode == 0
    added = [make_entity(i) for begin in (100, 200) for i in range(begin, begin + 25)]
    assert [index[entity.id] for entity in added] == added
    assert len(index) == 60
    assert check_index(index.path) == []
    expected = make_index(index.path.parent / "new", [*(make_entity(i) for i in range(10)), *added])
    assert_same(ask(index, ids=IDS), ask(expected, ids=IDS))


BUILDER = """
from index_world import *
folders = sys.argv[1].split(",")
print("ready", flush=True)
i = 0
while not Path(sys.argv[3]).exists():
    build_index(folders[i % 2], sys.argv[2], factory=["Flat", "HNSW8"][i // 2 % 2])
    i += 1
print(i, flush=True)
"""


def test_opening_while_another_process_builds_the_index_anew(quick_path):
    """Never a state between: all the answers are those of the one or the other."""
    sizes = (10, 14)
    folders = [make_index(quick_path / str(n), [make_entity(i) for i in range(n)]).path for n in sizes]
    expected = [ask(EntityIndex.open(folder), ids=IDS) for folder in folders]
    target = build_index(folders[0], quick_path / "target").path
    process = run_python(BUILDER, ",".join(map(str, folders)), target, quick_path / "stop")
    process.stdout.readline()
    seen = set()
    for i in range(300):
        opened = EntityIndex.open(target)
        if i % 10 == 0:
            answers = ask(opened, ids=IDS)
            assert_same(answers, expected[sizes.index(answers["len"])])
        else:
            with opened.reading():
                found, _ = opened.search(QUERIES, 20)
                assert found.shape[1] == len(opened)
                assert len(opened.heads(np.unique(found))) == len(opened)
        seen.add(len(opened))
        opened.close()
    (quick_path / "stop").touch()
    assert int(process.communicate(timeout=60)[0]) > 2
    assert seen == set(sizes)
    assert check_index(target) == []
    assert set(names(target)) <= {"entities.db", "search.faiss", "vectors.npy"}


def test_files_that_vanish_between_two_looks_are_looked_for_again(index, monkeypatch):
    load, calls = module.load_view, []

    def vanish(database, before):
        calls.append(before)
        if len(calls) < 5:
            raise FileNotFoundError(2, "gone", "vectors-00000000.npy")
        return load(database, before)

    monkeypatch.setattr(module, "load_view", vanish)
    assert len(EntityIndex.open(index.path)) == 10
    assert len(calls) == 5


# Threads


@pytest.mark.parametrize("does_compact", [False, True])
def test_every_answer_of_a_thread_is_of_one_state(index, does_compact):
    """One thread replaces two entities at once, so that a mixture of two states can be seen."""
    stop, failures = threading.Event(), []

    def search():
        try:
            while not stop.is_set():
                with index.reading():
                    assert len(index) == 11
                    versions = {index[id_].description.split()[-1] for id_ in ("E1", "E2")}
                    assert len(versions) == 1
                    found, _ = index.search(QUERIES[:2], 20)
                    assert all(
                        sorted(row) == sorted(index.all_positions().tolist()) for row in found.tolist()
                    )
                found, _ = index.search(QUERIES[:2], 20, within={"tags": ["tag-0", "tag-1", "tag-2"]})
        except BaseException as err:
            failures.append(err)

    index.add([make_entity(1, 1), make_entity(2, 1), make_entity(15)], Texts())
    threads = [threading.Thread(target=search) for _ in range(3)]
    for thread in threads:
        thread.start()
    try:
        for version in range(2, 30):
            index.add([make_entity(1, version), make_entity(2, version)], Texts())
            if does_compact and version % 5 == 0:
                index.compact()
            if failures:
                break
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    assert not failures, failures


def test_a_thread_in_an_earlier_state_does_not_set_others_back(index):
    """Its state is loaded anew if another thread has gone on in the same object."""
    inside, done, found = threading.Event(), threading.Event(), []

    def read_old():
        with index._database.reading():
            len(index._database)  # from here on, the state of this thread is fixed
            inside.set()
            done.wait(30)
            found.append(len(index))

    thread = threading.Thread(target=read_old)
    thread.start()
    inside.wait(30)
    index.remove(["E1"])
    assert len(index) == 9
    done.set()
    thread.join()
    assert found == [10]
    assert len(index) == 9


# Forks


def test_a_process_forks_while_threads_read(index):
    stop, failures = threading.Event(), []

    def search():
        try:
            while not stop.is_set():
                index.search(QUERIES, 3, within={"tags": ["tag-0"]})
        except BaseException as err:
            failures.append(err)

    expected = ask(index, ids=IDS)
    threads = [threading.Thread(target=search) for _ in range(2)]
    for thread in threads:
        thread.start()

    def read():
        signal.alarm(60)
        assert_same(ask(index, ids=IDS), expected)

    try:
        for _ in range(10):
            assert in_child(read) == 0
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    assert not failures


def test_a_forked_process_changes_the_index(index):
    len(index)
    assert in_child(lambda: (index.add([make_entity(15)], Texts()), index.remove(["E1"]))) == 0
    assert "E15" in index
    assert "E1" not in index


# Other users

needs_root = pytest.mark.skipif(
    not hasattr(os, "geteuid") or os.geteuid() != 0, reason="only root can become a user who may not write"
)


@needs_root
@pytest.mark.parametrize("is_open", [True, False])
def test_whoever_may_not_write_searches_and_changes_nothing(index, is_open):
    index.add([make_entity(15)], Texts())
    expected = ask(index, ids=IDS)
    if not is_open:
        index.close()

    def use():
        own = EntityIndex.open(index.path)
        assert_same(ask(own, ids=IDS), expected)
        for change in (lambda: own.add([make_entity(16)], Texts()), lambda: own.remove(["E1"])):
            with pytest.raises(ELQError, match=f"E160.*{index.path}"):
                change()
        with pytest.raises(ELQError, match=f"E162.*{index.path}"):
            own.compact()
        assert check_index(index.path) == []
        assert_same(ask(own, ids=IDS), expected)

    assert in_child(use, user=NOBODY) == 0


@needs_root
def test_whoever_may_not_write_sees_what_others_change(index):
    index.close()
    ready, go = os.pipe(), os.pipe()

    def use():
        own = EntityIndex.open(index.path)
        assert "E15" not in own
        for id_ in ("E15", "E16"):
            os.write(ready[1], b"x")
            os.read(go[0], 1)
            assert id_ in own
            found, _ = own.search(QUERIES, 20)
            assert own.positions([id_])[0] in found
        assert own.changes == 0

    thread = threading.Thread(target=lambda: codes.append(in_child(use, user=NOBODY)))
    codes = []
    thread.start()
    for number in (15, 16):
        os.read(ready[0], 1)
        index.add([make_entity(number)], Texts())
        if number == 16:
            index.compact()
        index.close()
        os.write(go[1], b"x")
    thread.join()
    assert codes == [0]


# A full disk

FULL = """
from index_world import *
import resource, signal
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
from spacy_elq.errors import ELQError
from spacy_elq.index import check_index
index = EntityIndex.open(sys.argv[1])
before = ask(index)
limit = resource.getrlimit(resource.RLIMIT_FSIZE)
many = [make_entity(i) for i in range(1000, 3000)]
for change in (lambda: index.add(many, Texts()), lambda: index.compact(force=True),
               lambda: encode_catalogue(sys.argv[2], sys.argv[3], Texts()),
               lambda: build_index(index.path, sys.argv[3] + "2", factory="HNSW128")):
    resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[4]), limit[1]))
    try:
        change()
    except ELQError as err:
        message = str(err)
        print(message.split("]")[0][-4:])
        assert ("E162" in message or "E082" in message), message
    else:
        raise AssertionError("there was room enough")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limit)
    assert_same(ask(index), before)
    assert check_index(index.path) == []
index.add(many[:3], Texts())
index.compact()
assert len(index) == before["len"] + 3
assert check_index(index.path) == []
assert len(encode_catalogue(sys.argv[2], sys.argv[3], Texts())) == 2000
assert len(build_index(index.path, sys.argv[3] + "2", factory="HNSW128")) == len(index)
"""


def test_a_full_disk_is_said_and_going_on_works(quick_path):
    from index_world import write_catalogue

    index = make_index(quick_path, [make_entity(i) for i in range(600)])
    catalogue = write_catalogue(quick_path / "many.jsonl", [make_entity(i) for i in range(2000)])
    index.close()
    limit = 16_000  # below the vectors of 600 entities, and every change of 2,000
    process = run_python(FULL, index.path, catalogue, quick_path / "encoded", limit)
    process.communicate(timeout=120)
    assert process.returncode == 0


def test_random_order_of_everything_at_once(index):
    """A short run of all kinds of changes by two objects, with reads in between."""
    rng = random.Random(3)
    other = EntityIndex.open(index.path)
    expected = {f"E{i}": make_entity(i) for i in range(10)}
    for step in range(60):
        own = rng.choice([index, other])
        kind = rng.random()
        if kind < 0.5:
            entity = make_entity(rng.randrange(20), step)
            own.add([entity], Texts())
            expected[entity.id] = entity
        elif kind < 0.8 and len(expected) > 1:
            id_ = rng.choice(sorted(expected))
            own.remove([id_])
            del expected[id_]
        elif kind < 0.9:
            own.compact()
        else:
            own = build_index(own.path, own.path)
        assert {entity.id: entity for entity in rng.choice([index, other])} == expected
    assert check_index(index.path) == []
