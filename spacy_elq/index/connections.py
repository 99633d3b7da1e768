"""Connections to the database of an index, one per process and thread. The only module with sqlite3."""

import atexit
import os
import sqlite3
import threading
import time
import weakref
from contextlib import contextmanager, suppress
from functools import lru_cache
from pathlib import Path
from typing import Callable, Iterator, List, Optional, Tuple

from ..errors import ELQError, Errors

Connection = sqlite3.Connection
# what the names of our files begin with until they are complete; nobody else has files that are called so
TEMPORARY = ".spacy-elq-"
# what the name of the log of a database ends with
LOG = "-wal"
# how long a writer waits for another one, in seconds
PATIENCE = 300.0
# how often a reader looks whether the log is still there, and how many seconds it waits in between
_LOOKS, _LOOK_AGAIN = 20, 0.05
# if the log has more than this many pages, 16 MB, a writer waits so many seconds for readers to make room
_LONG_LOG, _WAIT = 4096, 2.0
_sessions: "weakref.WeakSet[_Session]" = weakref.WeakSet()
# whoever forks, or begins to use a database, holds this
_forking = threading.RLock()
# those that are kept from use while a process forks
_held: List["_Session"] = []
# what else must not be used while a process forks: what to call before, and after
_others: List[Tuple[Callable[[], None], Callable[[], None]]] = []
# connections that a forked process has inherited: SQLite forbids even to close them
_inherited: List[Connection] = []


class Damaged(ELQError):
    """A file is not what was written.

    file, problem (str): Which one, and what is wrong.
    """

    def __init__(self, path: Path, problem: str, message: str = Errors.E031) -> None:
        """Say what is wrong with a file."""
        super().__init__(message.format(path=path.parent, file=path.name, problem=problem))
        self.file, self.problem = path.name, problem


class Busy(ELQError):
    """Another process makes files in the folder of an index."""


class LogLeft(ELQError):
    """The last changes are in a log that cannot be read without permission to write."""


class _Session:
    """The connection of a thread. Whoever uses it holds the lock: nobody forks meanwhile."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.connection: Optional[Connection] = None
        self.is_writing = False
        # of a database that SQLite takes to be unchangeable: what tells whether it has changed all the same
        self.seen: Optional[Tuple[int, ...]] = None
        with _forking:
            _watch()
            _sessions.add(self)


class Connections:
    """Opens a database once for each process and thread that uses it."""

    def __init__(self, path: Path) -> None:
        """Nothing is opened yet."""
        self.path = path
        self._local = threading.local()

    @contextmanager
    def reading(self) -> Iterator[Connection]:
        """All that is read inside comes from one state of the database. Inside of another block, or of
        `writing`, that block's state is read.

        YIELDS (Connection): The connection of this thread.
        """
        session = self._session()
        with session.lock, translate_errors(self.path):
            connection = self._open(session)
            if connection.in_transaction:
                yield connection
                return
            connection.execute("BEGIN")
            try:
                yield connection
            finally:
                _end(session, connection)

    @contextmanager
    def writing(self) -> Iterator[Connection]:
        """All that is written inside counts from the end of the block on, or not at all. It waits while
        another process or thread writes. Inside of another such block, that block's end counts.

        YIELDS (Connection): The connection of this thread.
        """
        session = self._session()
        with session.lock, translate_errors(self.path, is_writing=True):
            connection = self._open(session)
            if session.is_writing:
                yield connection
                return
            if connection.in_transaction:
                raise ELQError(Errors.E169.format(path=self.path.parent))
            if self.is_read_only:
                raise ELQError(Errors.E160.format(path=self.path.parent))
            with _changing(session, connection):
                yield connection
            _fold_log(connection)

    @contextmanager
    def filling(self) -> Iterator[Connection]:
        """Fill a database that nobody else has open. All is written once, without the log: if the block
        fails, the file is of no use any more.

        YIELDS (Connection): The connection of this thread; `reading` and `writing` inside use it.
        """
        session = self._session()
        with session.lock, translate_errors(self.path, is_writing=True):
            connection = self._open(session)
            for setting in ("synchronous = OFF", "journal_mode = OFF"):
                connection.execute(f"PRAGMA {setting}")
            with _changing(session, connection):
                yield connection
            for setting in ("synchronous = FULL", "journal_mode = WAL"):
                connection.execute(f"PRAGMA {setting}")
            with self.path.open("rb") as file_:
                os.fsync(file_.fileno())

    @property
    def current(self) -> Optional[Connection]:
        """RETURNS (Optional[Connection]): The connection of this thread, if it is inside of `reading` or
        `writing`.
        """
        connection = self._session().connection
        return connection if connection is not None and connection.in_transaction else None

    def replace_by(self, source: "Connections") -> None:
        """Make the content of another database that of this one, at once: a reader sees either. The database
        is created if it is missing.
        """
        is_new = not self.path.exists()
        # nobody has it open before it has its name: SQLite does not survive that a file is moved
        path = self.path.with_name(f"{TEMPORARY}{self.path.name}") if is_new else self.path
        with source.reading() as content, translate_errors(self.path, is_writing=True):
            connection = sqlite3.connect(path, timeout=PATIENCE, isolation_level=None)
            try:
                if not is_new:
                    connection.execute("PRAGMA schema_version").fetchone()  # before the pages are copied
                content.backup(connection)
                connection.execute("PRAGMA journal_mode = WAL")
                _fold_log(connection)
            finally:
                connection.close()
        if is_new:
            os.replace(path, self.path)

    def close(self) -> None:
        """Close the connection of this thread; the next use opens another one."""
        session = self._session()
        with session.lock:
            if session.connection is not None:
                session.connection.close()
            session.connection = None

    @property
    def is_read_only(self) -> bool:
        """RETURNS (bool): Whether the database, or its folder, cannot be written."""
        return not (os.access(self.path, os.W_OK) and os.access(self.path.parent, os.W_OK))

    def _session(self) -> _Session:
        if not hasattr(self._local, "session"):
            self._local.session = _Session()
        return self._local.session

    def _open(self, session: _Session) -> Connection:
        connection = session.connection
        is_idle = connection is not None and not connection.in_transaction
        is_fixed = connection is not None and is_idle and session.seen is not None
        if connection is not None and is_fixed and session.seen != _look_at(self.path):
            connection.close()
            connection = session.connection = None
        if connection is None:
            if not self.path.is_file():
                raise Damaged(self.path, "is missing")
            connection = _connect(session, self.path, is_read_only=self.is_read_only)
        return connection


def _connect(session: _Session, path: Path, *, is_read_only: bool) -> Connection:
    session.seen = None
    if not is_read_only:
        session.connection = _prepare(f"{path.as_uri()}?mode=rw")
        return session.connection
    # readers, too, want to note in the folder that they are there. Where they cannot, and nobody else has,
    # the database is read as one that never changes, and opened again when another user has changed it
    for _ in range(_LOOKS):
        with suppress(sqlite3.OperationalError):
            session.connection = _prepare(f"{path.as_uri()}?mode=ro")
            return session.connection
        session.seen = _look_at(path)
        if not _has_log(path):
            session.connection = _prepare(f"{path.as_uri()}?mode=ro&immutable=1")
            return session.connection
        # whoever closes the database last removes the notes of readers first, then the log
        time.sleep(_LOOK_AGAIN)
    session.seen = None
    raise LogLeft(Errors.E192.format(path=path.parent, file=f"{path.name}{LOG}"))


def _has_log(path: Path) -> bool:
    """RETURNS (bool): Whether there may be changes that are not in the database itself."""
    log = path.with_name(f"{path.name}{LOG}")
    try:
        return log.stat().st_size > 0
    except FileNotFoundError:
        return False


def _look_at(path: Path) -> Tuple[int, ...]:
    """RETURNS (Tuple[int, ...]): Another one if the database was changed, or somebody has it open."""
    if not path.exists():
        return ()
    about, is_open = path.stat(), path.with_name(f"{path.name}{LOG}").exists()
    return (about.st_ino, about.st_mtime_ns, about.st_size, is_open)


def _prepare(uri: str) -> Connection:
    connection = sqlite3.connect(
        uri, uri=True, timeout=PATIENCE, isolation_level=None, check_same_thread=False
    )
    try:
        connection.execute("PRAGMA synchronous = FULL")
        connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
    except BaseException:
        connection.close()
        raise
    return connection


def create_database(path: Path, schema: str) -> None:
    """Create an empty database.

    schema (str): SQL.
    """
    with translate_errors(path, is_writing=True):
        connection = sqlite3.connect(path, isolation_level=None)
        try:
            connection.execute("PRAGMA journal_mode = WAL")
            connection.executescript(schema)
        finally:
            connection.close()


@contextmanager
def translate_errors(path: Path, *, is_writing: bool = False) -> Iterator[None]:
    """Turn what SQLite raises into an error that says what to do."""
    try:
        yield
    except sqlite3.OperationalError as err:
        problem = str(err)
        if "locked" in problem or "busy" in problem:
            raise ELQError(Errors.E161.format(path=path.parent)) from None
        # of a quota that is used up, SQLite says the same as of a disk that is broken
        is_failing = is_writing and "disk I/O error" in problem
        if is_failing or "full" in problem or "readonly" in problem or "unable to open" in problem:
            raise ELQError(Errors.E162.format(path=path.parent, problem=problem)) from None
        raise Damaged(path, f"cannot be read ({err})") from None
    except (sqlite3.DatabaseError, UnicodeDecodeError) as err:  # its messages quote what it has read
        raise Damaged(path, f"cannot be read ({err})") from None


@contextmanager
def _changing(session: _Session, connection: Connection) -> Iterator[None]:
    """What is written inside is committed at the end of the block, or dropped if it fails."""
    connection.execute("BEGIN IMMEDIATE")
    session.is_writing = True
    try:
        yield
        connection.execute("COMMIT")
    finally:
        session.is_writing = False
        _end(session, connection)


def _end(session: _Session, connection: Connection) -> None:
    """End a transaction without changes, unless it has ended already, or another process has begun it."""
    if session.connection is connection and connection.in_transaction:
        connection.execute("ROLLBACK")


def _fold_log(connection: Connection) -> None:
    """Move what was committed from the log to the database itself, as far as readers allow it. It is safe in
    either; but a copy of the folder is whole without the log only if the log is empty.
    """
    if _try_to_fold(connection, wait=0.0) > _LONG_LOG:
        # where somebody reads at any moment, the log would grow for ever
        _try_to_fold(connection, wait=_WAIT)


def _try_to_fold(connection: Connection, *, wait: float) -> int:
    """RETURNS (int): How many pages the log still has."""
    connection.execute(f"PRAGMA busy_timeout = {int(1000 * wait)}")
    try:
        is_busy, pages, _ = connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
        return pages if is_busy else 0
    except sqlite3.OperationalError:
        return 0  # another process does it
    finally:
        connection.execute(f"PRAGMA busy_timeout = {int(1000 * PATIENCE)}")


def _hold_sessions() -> None:
    """Close all connections that are not in the middle of something: a forked process must not have any."""
    _forking.acquire()
    for session in list(_sessions):
        session.lock.acquire()
        _held.append(session)
        connection = session.connection
        if connection is not None and not connection.in_transaction:
            connection.close()
            session.connection = None
    for hold, _ in _others:
        hold()


def hold_while_forking(hold: Callable[[], None], release: Callable[[], None]) -> None:
    """Call something before a process forks, or ends, and after that. Whoever reads or writes a database has
    come to an end by then, so that nobody waits for the other.
    """
    with _forking:
        _watch()
        _others.append((hold, release))


def _close_all() -> None:
    _hold_sessions()
    _release_sessions()


def _release_sessions() -> None:
    for _, release in _others:
        release()
    while _held:
        _held.pop().lock.release()
    _forking.release()


def _drop_inherited() -> None:
    for session in _held:
        if session.connection is not None:
            _inherited.append(session.connection)
            session.connection = None
            session.is_writing = False
    _release_sessions()


@lru_cache(maxsize=1)
def _watch() -> None:
    # SQLite tidies up when the last connection is closed: the log goes
    atexit.register(_close_all)
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(
            before=_hold_sessions, after_in_parent=_release_sessions, after_in_child=_drop_inherited
        )
