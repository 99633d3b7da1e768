import os
import signal
import sqlite3
import threading
import time

import pytest
from index_world import in_child

from spacy_elq.errors import ELQError
from spacy_elq.index import connections as module
from spacy_elq.index.connections import Connections, create_database, translate_errors

NOBODY = 65534
needs_root = pytest.mark.skipif(
    not hasattr(os, "geteuid") or os.geteuid() != 0, reason="only root can become a user who may not write"
)


@pytest.fixture
def connections(quick_path):
    path = quick_path / "folder" / "x.db"
    path.parent.mkdir()
    create_database(path, "CREATE TABLE t (x INTEGER); INSERT INTO t VALUES (1);")
    return Connections(path)


def read(connections):
    with connections.reading() as connection:
        return [row[0] for row in connection.execute("SELECT x FROM t ORDER BY x")]


def write(connections, *values):
    with connections.writing() as connection:
        connection.executemany("INSERT INTO t VALUES (?)", [(value,) for value in values])


def log_size(connections):
    log = connections.path.with_name("x.db-wal")
    return log.stat().st_size if log.exists() else 0


# Transactions


def test_what_is_read_in_a_block_is_of_one_state(connections):
    other = Connections(connections.path)
    with connections.reading() as outer:
        assert read(connections) == [1]
        write(other, 2)
        assert read(connections) == [1]
        with connections.reading() as inner:
            assert inner is outer
        assert read(connections) == [1], "the inner block did not end the outer one"
    assert read(connections) == [1, 2]


def test_a_new_database_is_filled_without_a_log_and_has_one_afterwards(connections):
    with connections.filling():
        write(connections, *range(2, 5000))
        assert log_size(connections) == 0
    assert read(connections) == list(range(1, 5000))
    with connections.writing() as connection:
        assert connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)
        assert connection.execute("PRAGMA synchronous").fetchone() == (2,)


def test_a_filling_that_fails_ends_its_transaction(connections):
    with pytest.raises(ELQError, match="E031"), connections.filling() as connection:
        connection.execute("nonsense")
    assert connections.current is None, "its transaction has ended"


def test_what_is_written_counts_from_the_end_of_the_block(connections):
    other = Connections(connections.path)
    with connections.writing():
        write(connections, 2)
        assert read(connections) == [1, 2]
        assert read(other) == [1]
    assert read(other) == [1, 2]


def test_a_block_that_fails_has_written_nothing(connections):
    def fail():
        with connections.writing():
            write(connections, 2)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fail()
    assert read(connections) == [1]
    write(connections, 3)
    assert read(connections) == [1, 3]


def test_nobody_writes_while_reading_one_state(connections):
    with connections.reading(), pytest.raises(ELQError, match="E169") as error:
        write(connections, 2)
    assert str(connections.path.parent) in str(error.value)
    assert read(connections) == [1]


def test_a_writer_waits_for_another(connections):
    other, order = Connections(connections.path), []

    def wait():
        write(other, 3)
        order.append("second")

    with connections.writing() as connection:
        connection.execute("INSERT INTO t VALUES (2)")
        thread = threading.Thread(target=wait)
        thread.start()
        time.sleep(0.2)
        order.append("first")
    thread.join()
    assert order == ["first", "second"]
    assert read(connections) == [1, 2, 3]


def test_a_writer_does_not_wait_for_ever(connections, monkeypatch):
    monkeypatch.setattr(module, "PATIENCE", 0.05)
    other = Connections(connections.path)
    with connections.writing(), pytest.raises(ELQError, match="E161") as error:
        write(other, 2)
    assert str(connections.path.parent) in str(error.value)


def test_the_log_is_empty_after_a_change_unless_somebody_reads(connections):
    write(connections, 2)
    assert log_size(connections) == 0
    other = Connections(connections.path)
    with other.reading():
        read(other)
        write(connections, 3)
        assert log_size(connections) > 0
    write(connections, 4)
    assert log_size(connections) == 0


def test_a_writer_is_patient_again_after_the_log(connections):
    write(connections, 2)
    with connections.reading() as connection:
        assert connection.execute("PRAGMA busy_timeout").fetchone() == (300_000,)


def test_changes_are_on_the_disk_when_a_block_ends(connections):
    with connections.reading() as connection:
        assert connection.execute("PRAGMA synchronous").fetchone() == (2,)


def test_a_closed_connection_is_opened_again(connections):
    with connections.reading() as first:
        pass
    connections.close()
    connections.close()
    with connections.reading() as second:
        assert second is not first
    assert read(connections) == [1]


def test_every_thread_has_a_connection_of_its_own(connections):
    used = []

    def use():
        with connections.reading() as connection:
            used.append(connection)

    threads = [threading.Thread(target=use) for _ in range(3)]
    for thread in [*threads]:
        thread.start()
        thread.join()
    use()
    use()
    assert len(set(map(id, used))) == 4


# Replacing everything


@pytest.mark.parametrize("is_there", [True, False])
def test_a_database_is_replaced_at_once(connections, quick_path, is_there):
    source = Connections(quick_path / "new.db")
    create_database(source.path, "CREATE TABLE t (x); INSERT INTO t VALUES (7)")
    target = connections if is_there else Connections(quick_path / "folder" / "y.db")
    reader = Connections(target.path)
    if is_there:
        with reader.reading():
            assert read(reader) == [1]
            target.replace_by(source)
            assert read(reader) == [1], "one state"
    else:
        target.replace_by(source)
    assert read(reader) == read(target) == [7]
    assert not list(target.path.parent.glob(".spacy-elq*"))
    with reader.reading() as connection:
        assert connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)


def test_a_database_that_is_not_complete_never_has_its_name(connections, quick_path, monkeypatch):
    monkeypatch.setattr(os, "replace", lambda *args: (_ for _ in ()).throw(KeyboardInterrupt))
    target = Connections(quick_path / "folder" / "y.db")
    with pytest.raises(KeyboardInterrupt):
        target.replace_by(connections)
    assert not target.path.exists()


# Errors


@pytest.mark.parametrize(
    ("error", "is_writing", "expected"),
    [
        (sqlite3.OperationalError("database is locked"), False, "E161"),
        (sqlite3.OperationalError("database table is busy"), False, "E161"),
        (sqlite3.OperationalError("database or disk is full"), False, "E162.*disk is full"),
        (sqlite3.OperationalError("attempt to write a readonly database"), False, "E162"),
        (sqlite3.OperationalError("unable to open database file"), False, "E162"),
        (sqlite3.OperationalError("disk I/O error"), True, "E162"),
        (sqlite3.OperationalError("disk I/O error"), False, r"E031.*x\.db cannot be read \(disk I/O"),
        (sqlite3.OperationalError("no such table: t"), True, "E031.*no such table"),
        (sqlite3.DatabaseError("file is not a database"), False, "E031.*file is not"),
        (UnicodeDecodeError("utf-8", b"\xff", 0, 1, "x"), False, r"E031.*x\.db cannot be read"),
    ],
)
def test_what_sqlite_says_becomes_what_to_do(tmp_path, error, is_writing, expected):
    with (
        pytest.raises(ELQError, match=expected) as found,
        translate_errors(tmp_path / "x.db", is_writing=is_writing),
    ):
        raise error
    assert str(tmp_path) in str(found.value)


def test_a_schema_that_fails_is_an_error_with_the_path(quick_path):
    with pytest.raises(ELQError, match="E031"):
        create_database(quick_path / "x.db", "nonsense")
    with pytest.raises(ELQError, match="E162"):
        create_database(quick_path / "no" / "x.db", "")


# Without permission to write


def as_nobody(work):
    assert in_child(work, user=NOBODY) == 0


@needs_root
@pytest.mark.parametrize("is_open", [True, False])
def test_whoever_may_not_write_reads(connections, is_open):
    if is_open:
        read(connections)
        assert connections.path.with_name("x.db-shm").exists()

    def work():
        own = Connections(connections.path)
        assert own.is_read_only
        assert read(own) == [1]
        with pytest.raises(ELQError, match="E160") as error:
            write(own, 2)
        assert str(connections.path.parent) in str(error.value)
        assert read(own) == [1]

    as_nobody(work)


@needs_root
@pytest.mark.parametrize("stays_open", [True, False])
def test_whoever_may_not_write_sees_the_changes_of_others(connections, stays_open):
    told, asked = os.pipe(), os.pipe()
    connections.close()

    def work():
        own = Connections(connections.path)
        assert read(own) == [1]
        with own.reading():
            os.write(told[1], b"x")
            os.read(asked[0], 1)
        for expected in ([1, 2], [1, 2, 3]):
            assert read(own) == expected
            os.write(told[1], b"x")
            os.read(asked[0], 1)

    child = os.fork()
    if not child:
        code = 1
        try:
            os.setresuid(NOBODY, NOBODY, NOBODY)
            work()
            code = 0
        finally:
            os._exit(code)
    for value in (2, 3):
        os.read(told[0], 1)
        write(connections, value)
        if not stays_open:
            connections.close()
        os.write(asked[1], b"x")
    os.read(told[0], 1)
    os.write(asked[1], b"x")
    assert os.waitpid(child, 0)[1] == 0


def leave_log(connections):
    """A change in the log of a process that was killed, without what tells readers where it ends."""

    def work():
        reader = Connections(connections.path)
        with reader.reading():
            read(reader)
            write(connections, 2)
            os.kill(os.getpid(), signal.SIGKILL)

    connections.close()
    assert in_child(work) == -signal.SIGKILL
    connections.path.with_name("x.db-shm").unlink()
    assert log_size(connections) > 0


@needs_root
def test_a_log_that_cannot_be_read_is_not_left_out(connections, monkeypatch):
    monkeypatch.setattr(module, "_LOOK_AGAIN", 0.001)
    leave_log(connections)

    def work():
        own = Connections(connections.path)
        for _ in range(2):
            with pytest.raises(ELQError, match=r"E192.*folder.*x\.db-wal.*elq check .*folder"):
                read(own)

    as_nobody(work)
    assert read(connections) == [1, 2]
    as_nobody(lambda: read(Connections(connections.path)) == [1, 2] or 1 / 0)


@needs_root
def test_a_log_that_goes_at_once_is_waited_for(connections, monkeypatch):
    leave_log(connections)
    log = connections.path.with_name("x.db-wal")

    def go(seconds):
        log.write_bytes(b"")

    monkeypatch.setattr(time, "sleep", go)
    log.chmod(0o666)
    as_nobody(lambda: read(Connections(connections.path)) == [1] or 1 / 0)


@needs_root
def test_a_database_that_nobody_may_read_is_an_error_with_the_path(connections):
    connections.path.chmod(0o600)
    connections.close()

    def work():
        with pytest.raises(ELQError, match=r"E162.*folder"):
            read(Connections(connections.path))

    as_nobody(work)


@needs_root
def test_a_database_that_is_gone_is_an_error_with_the_path(connections):
    connections.close()

    def work():
        with pytest.raises(ELQError, match=r"E031.*folder.*y\.db is missing"):
            read(Connections(connections.path.with_name("y.db")))

    as_nobody(work)


@needs_root
def test_a_database_that_goes_while_somebody_reads_it_without_permission(connections):
    """As nobody else has it open, it is read as one that never changes."""
    connections.close()
    told, asked = os.pipe(), os.pipe()
    codes = []

    def work():
        own = Connections(connections.path)
        assert read(own) == [1]
        os.write(told[1], b"x")
        os.read(asked[0], 1)
        with pytest.raises(ELQError, match=r"E031.*x\.db is missing"):
            read(own)

    thread = threading.Thread(target=lambda: codes.append(in_child(work, user=NOBODY)))
    thread.start()
    os.read(told[0], 1)
    connections.path.unlink()
    os.write(asked[1], b"x")
    thread.join()
    assert codes == [0]


# Forks


def test_a_forked_process_has_connections_of_its_own(connections):
    read(connections)
    write(connections, 2)

    def work():
        assert read(connections) == [1, 2]
        write(connections, 3)

    assert in_child(work) == 0
    assert read(connections) == [1, 2, 3]


def test_a_fork_inside_a_block_leaves_the_block_of_the_parent_alone(connections):
    other = Connections(connections.path)
    with connections.reading():
        read(connections)
        child = os.fork()
        if not child:
            code = 1
            try:
                assert connections._session().connection is None
                assert read(connections) == [1]
                code = 0
            finally:
                os._exit(code)
        assert os.waitpid(child, 0)[1] == 0
        write(other, 2)
        assert read(connections) == [1]
    assert read(connections) == [1, 2]


def test_a_child_that_leaves_the_block_it_was_forked_in_does_not_touch_the_parent_s_connection(connections):
    child = None
    try:
        with connections.reading() as inherited:
            child = os.fork()
        if not child:
            ended = not inherited.in_transaction
            os._exit(7 if ended else 0)
    except BaseException:
        if child == 0:
            os._exit(8)
        raise
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_a_fork_while_writing_does_not_make_the_child_a_writer(connections):
    with connections.writing():
        child = os.fork()
        if not child:
            os._exit(1 if connections._session().is_writing else 0)
        assert os.waitpid(child, 0)[1] == 0
        write(connections, 2)
    assert read(connections) == [1, 2]


def test_a_fork_waits_until_other_threads_have_read(connections):
    inside, forked, order = threading.Event(), threading.Event(), []

    def use():
        with connections.reading():
            inside.set()
            time.sleep(0.2)
            order.append("read")

    thread = threading.Thread(target=use)
    thread.start()
    inside.wait()
    child = os.fork()
    if not child:
        os._exit(0)
    order.append("forked")
    forked.set()
    thread.join()
    os.waitpid(child, 0)
    assert order == ["read", "forked"]


def test_threads_that_fork_at_once_do_not_release_each_others_locks(connections, monkeypatch):
    read(connections)
    session, seen = connections._session(), []
    monkeypatch.setattr(module, "_sessions", [session])

    class Slow:
        """Gives another thread time between the release of the last lock and the end of the fork."""

        def __init__(self, lock):
            self._lock = lock

        def acquire(self):
            return self._lock.acquire()

        def release(self):
            self._lock.release()
            time.sleep(0.2)
            seen.append(len(module._held))

    session.lock = Slow(session.lock)
    failures = []

    def fork():
        try:
            module._hold_sessions()
            module._release_sessions()
        except RuntimeError as err:
            failures.append(err)

    threads = [threading.Thread(target=fork) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(10)
    session.lock = session.lock._lock
    assert not failures
    assert seen == [0, 0]


def test_no_session_begins_while_a_process_forks(connections):
    begun = threading.Event()

    def begin():
        connections._session()
        begun.set()

    module._hold_sessions()
    try:
        thread = threading.Thread(target=begin)
        thread.start()
        assert not begun.wait(0.2)
    finally:
        module._release_sessions()
    assert begun.wait(10)
    thread.join()


def test_many_forks_while_threads_read_and_write_do_not_hang(connections):
    stop, failures = threading.Event(), []

    def use(work):
        try:
            while not stop.is_set():
                work()
        except BaseException as err:
            failures.append(err)

    value = iter(range(2, 10**9))
    works = [lambda: read(connections), lambda: read(connections), lambda: write(connections, next(value))]
    threads = [threading.Thread(target=use, args=(work,)) for work in works]
    for thread in threads:
        thread.start()
    try:
        for _ in range(25):
            child = os.fork()
            if not child:
                signal.alarm(30)
                code = 1
                try:
                    assert read(connections)[0] == 1
                    code = 0
                finally:
                    os._exit(code)
            assert os.waitpid(child, 0)[1] == 0
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    assert not failures
    written = read(connections)
    assert written == list(range(1, len(written) + 1))
