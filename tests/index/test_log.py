import os
import random
import shutil
import signal
import sqlite3

import numpy as np
import pytest
from index_world import in_child

from spacy_elq.index import log as module
from spacy_elq.index.log import check_log

ROWS = 20


def leave_log(path, *, page=512, commits=5, does_commit=True):
    """A database whose last transactions are in the log that a killed process left, one of them perhaps not
    committed.
    """

    def work():
        connection = sqlite3.connect(path, isolation_level=None)
        connection.execute(f"PRAGMA page_size = {page}")
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA wal_autocheckpoint = 0")
        connection.execute("PRAGMA cache_size = 2")
        connection.execute("CREATE TABLE t (x)")
        for number in range(commits):
            connection.execute("BEGIN")
            rows = [(random.Random(number + i).randbytes(200),) for i in range(ROWS)]
            connection.executemany("INSERT INTO t VALUES (?)", rows)
            if does_commit or number < commits - 1:
                connection.execute("COMMIT")
        os.kill(os.getpid(), signal.SIGKILL)

    assert in_child(work) == -signal.SIGKILL
    return path.with_name(f"{path.name}-wal")


@pytest.fixture(autouse=True)
def _quick(monkeypatch):
    monkeypatch.setattr(module, "_LOOK_AGAIN", 0.001)


@pytest.fixture
def log(quick_path):
    return leave_log(quick_path / "x.db")


def beside(log):
    return log.with_name("x.db-shm")


def frames(data, page=512):
    return (len(data) - 32) // (page + 24)


def frame(number, page=512):
    """RETURNS (int): Where a frame begins."""
    return 32 + number * (page + 24)


def flip(log, place, mask=1):
    data = bytearray(log.read_bytes())
    data[place] ^= mask
    log.write_bytes(data)


def count_rows(log):
    """RETURNS (int): What SQLite finds, in a copy; -1 if it finds no table."""
    folder = log.parent / "copy"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    for path in (log, log.with_name("x.db")):
        shutil.copy(path, folder)
    connection = sqlite3.connect(folder / "x.db")
    try:
        return connection.execute("SELECT count(*) FROM t").fetchone()[0]
    except sqlite3.DatabaseError:
        return -1
    finally:
        connection.close()


def sum_slowly(words, sums=(0, 0)):
    """What SQLite's documentation says."""
    first, second = sums
    for i in range(0, len(words), 2):
        first = (first + words[i] + second) % 2**32
        second = (second + words[i + 1] + first) % 2**32
    return first, second


@pytest.mark.parametrize("count", [2, 6, 130])
def test_sums_are_those_of_sqlite(count):
    rng = np.random.default_rng(count)
    words = rng.integers(2**32, size=(3, count), dtype="uint32")
    parts = module._weigh(words)
    for row, part in zip(words.tolist(), parts, strict=True):
        assert module._add((0, 0), part, count) == sum_slowly(row)
        assert module._add((7, 2**32 - 1), part, count) == sum_slowly(row, (7, 2**32 - 1))


@pytest.mark.parametrize("page", [512, 4096, 65536])
def test_a_whole_log_has_no_damage(quick_path, page):
    log = leave_log(quick_path / "x.db", page=page)
    assert count_rows(log) == 5 * ROWS
    assert check_log(log) is None
    beside(log).unlink()
    assert check_log(log) is None


def swap_order(log):
    """Write the sums as a machine does that begins numbers with their highest byte."""
    data = bytearray(log.read_bytes())
    data[3] |= 1
    sums = sum_slowly(np.frombuffer(bytes(data[:24]), ">u4").tolist())
    data[24:32] = np.asarray(sums, ">u4").tobytes()
    for number in range(frames(data)):
        begin = frame(number)
        summed = bytes(data[begin : begin + 8] + data[begin + 24 : begin + 24 + 512])
        sums = sum_slowly(np.frombuffer(summed, ">u4").tolist(), sums)
        data[begin + 16 : begin + 24] = np.asarray(sums, ">u4").tobytes()
    log.write_bytes(data)


def test_either_order_of_bytes_is_read(log):
    swap_order(log)
    assert count_rows(log) == 5 * ROWS
    assert check_log(log) is None
    flip(log, 700)
    assert "frame 2" in check_log(log)


@pytest.mark.parametrize("is_alone", [True, False])
@pytest.mark.parametrize("at_once", [3, 256])
def test_every_byte_of_what_was_committed_counts(log, is_alone, at_once, monkeypatch):
    monkeypatch.setattr(module, "_FRAMES_AT_ONCE", at_once)
    if is_alone:
        beside(log).unlink()
    data, rng = log.read_bytes(), random.Random(3)
    for number in range(200):
        # every other byte is one of those that stand before a page
        place = frame(rng.randrange(frames(data))) + rng.randrange(24)
        place = rng.randrange(len(data)) if number % 2 else place
        flip(log, place, 1 << rng.randrange(8))
        assert count_rows(log) < 5 * ROWS, place
        problem = check_log(log)
        expected = "header" if place < 32 else f"from frame {(place - 32) // 536 + 1} on"
        assert expected in problem, place
        log.write_bytes(data)
    assert check_log(log) is None


@pytest.mark.parametrize("is_alone", [True, False])
def test_what_was_not_committed_is_no_loss(quick_path, is_alone):
    log = leave_log(quick_path / "x.db", does_commit=False)
    data = log.read_bytes()
    committed = module._read_committed(log, module._read_header(data[:32]))
    assert frames(data) > committed, "SQLite has written some of it"
    if is_alone:
        beside(log).unlink()
    assert check_log(log) is None
    for place in (frame(committed) + 100, frame(frames(data) - 1) + 9, len(data) - 1):
        flip(log, place)
        assert count_rows(log) == 4 * ROWS
        assert check_log(log) is None
        flip(log, place)
    log.write_bytes(data[:-100])
    assert check_log(log) is None, "a frame that is not complete"
    log.write_bytes(data)
    flip(log, frame(committed - 1) + 100)
    assert f"from frame {committed} on" in check_log(log)


def test_a_commit_that_was_not_complete_is_known_by_the_file_beside_the_log(quick_path):
    """As if the process was killed before the page of the last frame was written."""
    log = leave_log(quick_path / "x.db", does_commit=False)
    data = bytearray(log.read_bytes())
    begin = frame(frames(data) - 1)
    data[begin + 4 : begin + 8] = (9).to_bytes(4, "big")
    log.write_bytes(data)
    assert count_rows(log) == 4 * ROWS
    assert check_log(log) is None
    beside(log).unlink()
    assert "is damaged" in check_log(log), "nobody can tell"


def test_the_rest_of_an_earlier_log_is_no_damage(log):
    def go_on():
        connection = sqlite3.connect(log.with_name("x.db"), isolation_level=None)
        connection.execute("PRAGMA wal_autocheckpoint = 0")
        connection.execute("PRAGMA wal_checkpoint(RESTART)").fetchone()
        connection.execute("INSERT INTO t VALUES (1)")
        os.kill(os.getpid(), signal.SIGKILL)

    before = frames(log.read_bytes())
    assert in_child(go_on) == -signal.SIGKILL
    data = log.read_bytes()
    salts = {data[frame(i) + 8 : frame(i) + 16] for i in range(frames(data))}
    assert (frames(data), len(salts)) == (before, 2)
    for _ in range(2):
        assert check_log(log) is None
        flip(log, len(data) - 5)
        assert check_log(log) is None, "of the earlier log"
        flip(log, len(data) - 5)
        flip(log, 200)
        assert "from frame 1 on" in check_log(log)
        flip(log, 200)
        beside(log).unlink(missing_ok=True)


def test_a_log_that_ends_too_early_is_seen_with_the_file_beside_it(log):
    data = log.read_bytes()
    log.write_bytes(data[: frame(7)])
    assert "from frame 8 on" in check_log(log)
    beside(log).unlink()
    assert check_log(log) is None


@pytest.mark.parametrize("place", [16, 32, 40, 48 + 16, -1])
def test_a_damaged_file_beside_the_log_does_not_count(log, place):
    note = beside(log).read_bytes()
    log.write_bytes(log.read_bytes()[: frame(7)])
    if place < 0:
        beside(log).write_bytes(note[:95])
    elif place < 48:
        changed = bytearray(note[:48])
        changed[place] ^= 1
        beside(log).write_bytes(bytes(changed) * 2 + note[96:])
    else:
        flip(beside(log), place)
    assert check_log(log) is None


@pytest.mark.parametrize("size", [0, 10, 32])
def test_a_log_without_frames_has_nothing_to_lose(log, size):
    log.write_bytes(b"x" * size)
    assert check_log(log) is None


def test_no_log_has_no_damage(tmp_path):
    assert check_log(tmp_path / "x.db-wal") is None


# While others write


def test_damage_that_does_not_last_is_none(log, monkeypatch):
    flip(log, 700)
    monkeypatch.setattr(module.time, "sleep", lambda seconds: flip(log, 700))
    assert check_log(log) is None


def test_damage_that_moves_is_none(log, monkeypatch):
    place = frame(0) + 100
    flip(log, place)

    def move(seconds):
        nonlocal place
        flip(log, place)
        place += 536
        flip(log, place)

    monkeypatch.setattr(module.time, "sleep", move)
    assert check_log(log) is None
