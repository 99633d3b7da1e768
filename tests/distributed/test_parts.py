import secrets
import socket

import fsspec
import pytest

from spacy_elq.distributed import parts as module
from spacy_elq.distributed.parts import Parts, check_visible, digest, fetched, is_url, part_name, replacing
from spacy_elq.errors import ELQError
from spacy_elq.index.encode import MARK

NAME = part_name(3, "0123456789abcdef", "npz")


@pytest.fixture(params=["path", "file", "memory"])
def url(request, tmp_path):
    """A folder that is not there yet, on each kind of file system that needs no server."""
    place = f"{tmp_path}/work"
    yield {"path": place, "file": f"file://{place}", "memory": f"memory://{secrets.token_hex(4)}"}[
        request.param
    ]
    fsspec.filesystem("memory").store.clear()


@pytest.mark.parametrize(
    ("path", "expected"), [("s3://bucket/a", True), ("memory://a", True), ("/a/b", False), ("a:b", False)]
)
def test_urls_and_paths(path, expected):
    assert is_url(path) is expected


def test_parts_are_written_read_and_dropped(url):
    parts = Parts(url)
    parts.claim()
    parts.claim()
    assert parts.names() == set()
    parts.write(NAME, b"abc")
    assert parts.names() == {NAME}
    assert parts.read(NAME) == b"abc"
    parts.write(NAME, b"new")
    assert parts.read(NAME) == b"new"
    parts.remove([NAME])
    assert parts.names() == set()
    parts.write(NAME, b"abc")
    parts.drop()
    files, place = fsspec.core.url_to_fs(url)
    assert not files.exists(place)


def test_what_is_not_complete_is_no_part_and_goes_with_the_others(url):
    parts = Parts(url)
    parts.claim()
    files, place = fsspec.core.url_to_fs(url)
    files.pipe_file(f"{place}/{NAME}.01234567", b"half")
    assert parts.names() == set()
    parts.drop()
    assert not files.exists(place)


def test_a_failed_write_leaves_the_old_part_and_nothing_else(url):
    parts = Parts(url)
    parts.claim()
    parts.write(NAME, b"old")

    def fail():
        with replacing(f"{url}/{NAME}") as file_:
            file_.write(b"half")
            raise ZeroDivisionError

    with pytest.raises(ELQError, match=r"E227.*ZeroDivisionError"):
        fail()
    assert parts.read(NAME) == b"old"
    assert parts._list() == {MARK, NAME}


def test_the_folder_of_somebody_else_is_refused(url):
    files, place = fsspec.core.url_to_fs(url)
    files.makedirs(place)
    files.pipe_file(f"{place}/notes.txt", b"mine")
    with pytest.raises(ELQError, match=r"E227.*other files than unfinished work \(notes.txt\)"):
        Parts(url).claim()
    assert files.cat_file(f"{place}/notes.txt") == b"mine"


def test_a_file_that_is_put_there_meanwhile_stays(url):
    parts = Parts(url)
    parts.claim()
    parts.write(NAME, b"abc")
    files, place = fsspec.core.url_to_fs(url)
    files.pipe_file(f"{place}/notes.txt", b"mine")
    parts.drop()
    assert files.cat_file(f"{place}/notes.txt") == b"mine"
    assert parts.names() == set()


def test_a_worker_says_what_it_does_not_see(url, tmp_path):
    parts = Parts(url)
    with pytest.raises(ELQError, match=f"E223.*{socket.gethostname()}"):
        parts.check()
    parts.claim()
    parts.check()
    check_visible(str(tmp_path))
    with pytest.raises(ELQError, match=f"E223.*{tmp_path}/nothing"):
        check_visible(str(tmp_path), f"{tmp_path}/nothing")


def test_a_file_system_that_is_not_there():
    with pytest.raises(ELQError, match=r"E227.*nosuch://a/b.*ValueError: Protocol not known"):
        Parts("nosuch://a/b")


def test_a_file_system_without_its_driver(monkeypatch):
    def refuse(path):
        raise ImportError("Install s3fs to access S3")

    monkeypatch.setattr(module, "url_to_fs", refuse)
    with pytest.raises(ELQError, match=r"E227.*s3://a/b.*Install s3fs"):
        Parts("s3://a/b")


def test_a_local_file_is_not_copied(tmp_path):
    (tmp_path / "a.txt").write_text("x")
    with fetched(str(tmp_path / "a.txt")) as path:
        assert path == tmp_path / "a.txt"


def test_a_remote_file_is_copied_for_a_while(tmp_path):
    (tmp_path / "a.txt").write_text("x")
    with fetched(f"file://{tmp_path}/a.txt") as path:
        assert path.read_text() == "x"
        assert path.name == "a.txt"
        assert path.parent != tmp_path
    assert not path.exists()
    with pytest.raises(ELQError, match=r"E227.*FileNotFoundError"), fetched(f"file://{tmp_path}/no.txt"):
        pass


def test_a_digest_depends_on_every_value_and_on_nothing_else():
    assert digest({"a": 1, "b": [2]}, "x") == digest({"b": [2], "a": 1}, "x")
    assert len({digest("x"), digest("y"), digest("x", 1), digest(["x", 1])}) == 4
    assert part_name(12, digest("x"), "jsonl") == f"part-000000000012-{digest('x')}.jsonl"
