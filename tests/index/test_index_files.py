import errno
import os
import shutil
import threading

import pytest
from index_world import encode, in_child, make_entity, make_index, names

from spacy_elq.errors import ELQError
from spacy_elq.index import EntityIndex
from spacy_elq.index import files as module
from spacy_elq.index.database import Database
from spacy_elq.index.files import (
    NOTES,
    SEARCH,
    VECTORS,
    WORK,
    allocate,
    bytes_to_copy,
    check_disk,
    check_files,
    describe_file,
    drop_unused,
    file_path,
    find_files,
    find_place,
    is_database,
    link_or_copy,
    maintaining,
    named_files,
    new_number,
    note_files,
    publish,
    record_place,
    sum_folder,
    sync_folder,
)

ENTITIES = [make_entity(i) for i in range(5)]


@pytest.fixture
def index(quick_path):
    return make_index(quick_path, ENTITIES, factory="HNSW4")


@pytest.fixture
def database(index):
    return Database.open(index.path / "entities.db")


def set_files(database, entries):
    database.set_meta(files=entries)


# Names


def test_a_file_is_named_by_role_and_number(tmp_path):
    assert file_path(tmp_path, "vectors.npy", 0x1F) == tmp_path / "vectors-0000001f.npy"


def test_a_number_is_one_that_no_file_has(tmp_path, monkeypatch):
    (tmp_path / "search-00000007.faiss").touch()
    numbers = iter([7, 7, 9])
    monkeypatch.setattr(module.secrets, "randbits", lambda bits: next(numbers))
    assert new_number(tmp_path) == 9


def test_files_are_found_by_role(index, database):
    paths = find_files(database)
    assert set(paths) == {VECTORS, SEARCH}
    assert paths == named_files(database)
    assert all(path.parent == index.path and path.is_file() for path in paths.values())


@pytest.mark.parametrize(
    "role", ["../../x.npy", "/x.npy", "a/b.npy", "mine.npy", "VECTORS.npy", "x-1.npy", ""]
)
def test_a_database_does_not_lead_to_other_files(database, role):
    set_files(database, {role: {"number": 1, "bytes": 1, "sum": ""}})
    for use in (find_files, named_files, lambda x: list(check_files(x))):
        with pytest.raises(ELQError, match="names a file that is none of ours"):
            use(database)
    with pytest.raises(ELQError, match=f"E031.*{database.path.parent}"):
        EntityIndex.open(database.path.parent)


@pytest.mark.parametrize(
    "entry",
    [
        {"number": "../x", "bytes": 1, "sum": ""},
        {"number": 1, "bytes": None, "sum": ""},
        {"number": 1, "sum": ""},
        {"number": 1, "bytes": 1},
        {"number": 1, "bytes": 1, "sum": 7},
        {"number": True, "bytes": 1, "sum": ""},
        {"number": 1, "bytes": True, "sum": ""},
        {"number": 2**32, "bytes": 1, "sum": ""},
        {"number": -1, "bytes": 1, "sum": ""},
        {"number": 1, "bytes": -1, "sum": ""},
        {},
        7,
        None,
        "x",
    ],
)
def test_what_is_said_of_a_file_must_be_numbers(database, entry):
    set_files(database, {"vectors.npy": entry})
    with pytest.raises(ELQError, match="names a file that is none of ours"):
        find_files(database)
    with pytest.raises(ELQError, match=f"E031.*{database.path.parent}"):
        EntityIndex.open(database.path.parent)


@pytest.mark.parametrize("files", [[1], "x", 7])
def test_the_list_of_files_must_be_one(database, files):
    set_files(database, files)
    with pytest.raises(ELQError, match=f"E031.*{database.path.parent}.*has a list of files that is none"):
        EntityIndex.open(database.path.parent)


@pytest.mark.parametrize(("role", "code"), [(VECTORS, "E031"), (SEARCH, "E164")])
@pytest.mark.parametrize("change", [-1, 1])
def test_a_file_of_another_size_is_named(database, role, code, change):
    path = named_files(database)[role]
    data = path.read_bytes()
    path.write_bytes(data[:-1] if change < 0 else data + b"x")
    with pytest.raises(ELQError, match=f"{code}.*{path.name} has .* bytes instead of {len(data)}"):
        find_files(database)
    with pytest.raises(ELQError, match=code):
        EntityIndex.open(path.parent)


@pytest.mark.parametrize(("role", "code"), [(VECTORS, "E031"), (SEARCH, "E164")])
def test_a_missing_file_is_named(database, role, code):
    path = named_files(database)[role]
    path.unlink()
    with pytest.raises(FileNotFoundError):
        find_files(database)
    with pytest.raises(ELQError, match=f"{code}.*{path.name} is missing"):
        EntityIndex.open(path.parent)


# Sums


def test_what_is_kept_of_a_file(tmp_path):
    (tmp_path / "a").write_bytes(b"x" * (module._CHUNK + 1))
    (tmp_path / "b").write_bytes(b"x" * module._CHUNK + b"y")
    a, b = (describe_file(tmp_path / name, 7) for name in "ab")
    assert (a["number"], a["bytes"]) == (7, module._CHUNK + 1)
    assert a["sum"] != b["sum"], "the second chunk counts"


def test_files_are_compared_with_their_sums(database):
    assert list(check_files(database)) == []
    paths = named_files(database)
    for path in paths.values():
        path.write_bytes(path.read_bytes()[:-1] + b"\xff")
    problems = dict(check_files(database))
    assert set(problems) == {VECTORS, SEARCH}
    assert all("has other bytes than were written" in problem for problem in problems.values())
    paths[VECTORS].write_bytes(b"short")
    paths[SEARCH].unlink()
    problems = dict(check_files(database))
    assert "has 5 bytes instead of" in problems[VECTORS]
    assert "is missing" in problems[SEARCH]


def test_the_sums_of_a_folder(tmp_path):
    (tmp_path / "a" / "b").mkdir(parents=True)
    (tmp_path / "a" / "b" / "c.txt").write_text("c")
    (tmp_path / "d").write_text("d")
    assert list(sum_folder(tmp_path)) == ["a/b/c.txt", "d"]
    assert sum_folder(tmp_path / "nowhere") == {}


# One at a time


def test_only_one_makes_files_in_a_folder(tmp_path):
    with maintaining(tmp_path / "new"):
        with pytest.raises(ELQError, match="E163") as error, maintaining(tmp_path / "new"):
            pass
        assert str(tmp_path / "new") in str(error.value)

        def work():
            with pytest.raises(ELQError, match="E163"), maintaining(tmp_path / "new"):
                pass

        assert in_child(work) == 0
    with maintaining(tmp_path / "new"):
        pass


def test_a_process_that_is_killed_keeps_nobody(tmp_path):
    read, write = os.pipe()
    child = os.fork()
    if not child:
        with maintaining(tmp_path):
            os.write(write, b"x")
            threading.Event().wait(60)
        os._exit(0)
    os.read(read, 1)
    with pytest.raises(ELQError, match="E163"), maintaining(tmp_path):
        pass
    os.kill(child, 9)
    os.waitpid(child, 0)
    with maintaining(tmp_path):
        pass


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EACCES, errno.EROFS])
def test_what_cannot_be_written_is_said_with_the_path(tmp_path, code):
    with pytest.raises(ELQError, match=f"E162.*{os.strerror(code)}") as error, maintaining(tmp_path):
        raise OSError(code, os.strerror(code))
    assert str(tmp_path) in str(error.value)
    with pytest.raises(ELQError, match="E162"), maintaining(tmp_path):
        raise OSError(code, os.strerror(code), str(tmp_path / "vectors"))


@pytest.mark.parametrize(
    "error", [OSError(errno.ENOENT, "x"), OSError(errno.EACCES, "x", "/elsewhere/model"), KeyError("x")]
)
def test_other_errors_are_not_about_the_folder(tmp_path, error):
    with pytest.raises(type(error)) as found, maintaining(tmp_path):
        raise error
    assert found.value is error


def test_a_file_where_the_folder_should_be(tmp_path):
    (tmp_path / "file").touch()
    for path in (tmp_path / "file", tmp_path / "file" / "folder"):
        with pytest.raises(ELQError, match="E162"), maintaining(path):
            pass


# Publishing


MINE = ["README.md", "vectors.npy", "vectors-20240115.npy", "search-20240115.faiss", "new.db", "new.db-wal"]
MINE += ["entities.db.new", "entities.db.backup", "entities-20240115.jsonl", "embeddings-20240115.npy"]


def test_what_belongs_to_no_state_is_removed_and_the_files_of_others_are_not(index, database):
    noted = ["vectors-00000001.npy", "search-00000001.faiss"]
    ours = [*noted, WORK, f"{WORK}-wal", f"{WORK}.faiss", ".spacy-elq-entities.db"]
    for name in (*MINE, *ours):
        (index.path / name).write_text("x")
    used = [path.name for path in named_files(database).values()]
    note_files(index.path, [index.path / name for name in (*noted, *used)])
    drop_unused(index.path, database)
    left = {path.name for path in index.path.iterdir()}
    assert left >= {*MINE, "entities.db", *used}
    assert not left & {*ours, NOTES}
    drop_unused(index.path, None)
    assert all(path.exists() for path in named_files(database).values()), "they are not noted any more"
    note_files(index.path, named_files(database).values())
    drop_unused(index.path, None)
    assert not any(path.exists() for path in named_files(database).values())


def test_notes_are_added_and_one_that_is_not_complete_does_not_count(index, database):
    for name in (*MINE, "vectors-00000001.npy", "vectors-00000002.npy"):
        (index.path / name).write_text("x")
    for number in (1, 2):
        note_files(index.path, [file_path(index.path, VECTORS, number)])
    with (index.path / NOTES).open("ab") as file_:
        file_.write(b"../README.md\n/etc/passwd\n\xff\nREADME.md\nvectors-2024")
    drop_unused(index.path, database)
    left = {path.name for path in index.path.iterdir()}
    assert left >= set(MINE)
    assert not left & {"vectors-00000001.npy", "vectors-00000002.npy"}


def test_notes_are_not_written_into_the_file_of_somebody_else(tmp_path):
    (tmp_path / "mine.txt").write_text("mine")
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / NOTES).symlink_to("../mine.txt")
    note_files(tmp_path / "folder", [file_path(tmp_path, VECTORS, 1)])
    assert (tmp_path / "mine.txt").read_text() == "mine"
    assert (tmp_path / "folder" / NOTES).read_text() == "vectors-00000001.npy\n"


@pytest.mark.parametrize("is_damaged", [True, False])
def test_publishing_removes_no_files_of_others(quick_path, index, is_damaged):
    other = make_index(quick_path / "other", ENTITIES[:2])
    before = [path.name for path in named_files(index._database).values()]
    index.close()
    for name in MINE:
        (index.path / name).write_text("x")
    if is_damaged:
        (index.path / "entities.db").write_bytes(b"random bytes" * 500)
    work = Database.open(other.path / "entities.db")
    publish(index.path, work, {VECTORS: named_files(work)[VECTORS]})
    left = {path.name for path in index.path.iterdir()}
    assert left >= set(MINE)
    assert left.isdisjoint(before) != is_damaged, "what a damaged database had named is not known"
    assert not [name for name in left if name.startswith(".spacy-elq")]


def test_a_database_elsewhere_is_not_replaced_by_way_of_a_link(quick_path, index):
    other = make_index(quick_path / "other", ENTITIES[:2])
    linked = quick_path / "linked"
    linked.mkdir()
    (linked / "entities.db").symlink_to(index.path / "entities.db")
    work = Database.open(other.path / "entities.db")
    publish(linked, work, {VECTORS: named_files(work)[VECTORS]})
    assert len(EntityIndex.open(linked)) == 2
    assert len(EntityIndex.open(index.path)) == 5
    assert all(path.exists() for path in named_files(index._database).values())


def test_a_database_of_ours_is_known_by_its_first_bytes(quick_path, index):
    assert is_database(index.path / "entities.db")
    assert not is_database(index.path / "nothing.db")
    (quick_path / "short").write_bytes(b"x" * 70)
    assert not is_database(quick_path / "short")


def test_a_published_index_replaces_all_that_was_there(index, quick_path):
    before = set(index.meta["files"][VECTORS].items())
    other = make_index(quick_path / "other", ENTITIES[:2])
    work = Database.open(other.path / "entities.db")
    epoch = work.counters().epoch
    publish(index.path, work, {VECTORS: named_files(work)[VECTORS]})
    assert len(index) == 2
    assert index._database.counters().epoch != epoch, "the same files, but another index"
    assert set(index.meta["files"][VECTORS].items()) != before
    index.close()
    assert names(index.path) == ["entities.db", "vectors.npy"]


@pytest.mark.parametrize("data", [b"random bytes" * 500, b"", b"SQLite format 3\0" + b"x" * 5000])
def test_a_damaged_index_is_replaced(quick_path, index, data):
    other = make_index(quick_path / "other", ENTITIES[:2])
    index.close()
    (index.path / "entities.db").write_bytes(data)
    work = Database.open(other.path / "entities.db")
    publish(index.path, work, {VECTORS: named_files(work)[VECTORS]})
    assert len(EntityIndex.open(index.path)) == 2


def test_a_second_name_costs_no_space(tmp_path):
    source, target = tmp_path / "a", tmp_path / "b"
    source.write_text("x")
    target.write_text("old")
    link_or_copy(source, target)
    assert source.samefile(target)


def test_the_file_gets_the_second_name_and_not_a_link_to_it(tmp_path):
    (tmp_path / "a").write_text("x")
    (tmp_path / "link").symlink_to("a")
    (tmp_path / "folder").mkdir()
    link_or_copy(tmp_path / "link", tmp_path / "folder" / "b")
    assert not (tmp_path / "folder" / "b").is_symlink()
    assert (tmp_path / "folder" / "b").read_text() == "x"


def test_a_copy_where_the_file_system_has_no_links(tmp_path, monkeypatch):
    def refuse(*args):
        raise OSError

    monkeypatch.setattr(os, "link", refuse)
    source, target = tmp_path / "a", tmp_path / "b"
    source.write_text("x")
    link_or_copy(source, target)
    assert target.read_text() == "x"
    assert not source.samefile(target)


def test_the_names_in_a_folder_are_synced_where_the_system_can(tmp_path, monkeypatch):
    synced = []
    monkeypatch.setattr(os, "fsync", lambda handle: synced.append(os.fstat(handle).st_ino))
    sync_folder(tmp_path)
    assert synced == [tmp_path.stat().st_ino]
    monkeypatch.delattr(os, "O_DIRECTORY")
    sync_folder(tmp_path)
    assert len(synced) == 1


# Disk space


@pytest.mark.parametrize("can_allocate", [True, False])
@pytest.mark.parametrize("before", [None, b"abc", b"x" * 300])
def test_a_file_gets_its_size_and_keeps_its_content(tmp_path, monkeypatch, can_allocate, before):
    if not can_allocate:
        monkeypatch.delattr(os, "posix_fallocate")
        monkeypatch.setattr(module, "_CHUNK", 64)
    path = tmp_path / "x"
    if before is not None:
        path.write_bytes(before)
    allocate(path, 200)
    data = path.read_bytes()
    assert len(data) == max(200, len(before or b""))
    assert data.startswith(before or b"")


def test_no_room_for_a_file(tmp_path, monkeypatch):
    def refuse(*args):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "posix_fallocate", refuse)
    with pytest.raises(ELQError, match=f"E162.*{tmp_path}.*No space left"):
        allocate(tmp_path / "x", 200)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: shutil._ntuple_diskusage(9, 9, 0))
    with pytest.raises(ELQError, match=r"E083.*about 1 KB are needed, 0 KB are free"):
        allocate(tmp_path / "x", 200)


def test_the_disk_of_a_folder_that_is_not_there_yet(tmp_path, monkeypatch):
    asked = []

    def usage(path):
        asked.append(path)
        return shutil._ntuple_diskusage(10**9, 10**9, 5_000_000)

    monkeypatch.setattr(shutil, "disk_usage", usage)
    check_disk(tmp_path / "a" / "b", 5_000_000)
    assert asked == [tmp_path]
    with pytest.raises(ELQError, match=r"E083.*a/b.*about 6 MB are needed, 5 MB are free"):
        check_disk(tmp_path / "a" / "b", 5_000_001)


@pytest.mark.parametrize(
    ("needed", "free", "expected"),
    [
        (1, 0, "about 1 KB are needed, 0 KB are free"),
        (1001, 1000, "about 2 KB are needed, 1 KB are free"),
        (1_000_000, 999_999, "about 1 MB are needed, 999 KB are free"),
        (12_345_678_901, 2_000_000, "about 12,346 MB are needed, 2 MB are free"),
    ],
)
def test_what_is_needed_never_looks_like_what_is_free(tmp_path, monkeypatch, needed, free, expected):
    monkeypatch.setattr(shutil, "disk_usage", lambda path: shutil._ntuple_diskusage(9, 9, free))
    with pytest.raises(ELQError, match=expected):
        check_disk(tmp_path, needed)


def test_only_what_is_on_another_disk_is_copied(tmp_path, monkeypatch):
    for name in "ab":
        (tmp_path / name).write_text("123")
    files = [tmp_path / "a", tmp_path / "b"]
    assert bytes_to_copy(files, tmp_path / "new") == 0
    monkeypatch.setattr(module, "_device", lambda path: path == tmp_path / "a")
    assert bytes_to_copy(files, tmp_path / "new") == 3


# Places


def test_a_place_is_found_again_from_the_folder_or_from_the_root(tmp_path):
    index, pipeline = tmp_path / "a" / "index", tmp_path / "a" / "pipeline"
    index.mkdir(parents=True)
    pipeline.mkdir()
    places = record_place(index, pipeline)
    assert places == ["../index", str(index)]
    assert find_place(places, pipeline, message="", name="x") == index
    (tmp_path / "a").rename(tmp_path / "b")
    assert find_place(places, tmp_path / "b" / "pipeline", message="", name="x") == tmp_path / "b" / "index"
    assert record_place(index, None) == [str(index)]
    with pytest.raises(ELQError, match=r"x: .*c/index, .*a/index"):
        find_place(places, tmp_path / "c" / "pipeline", message="{name}: {paths}", name="x")


def test_vectors_are_an_index_without_a_back_end(quick_path):
    vectors = encode(quick_path, ENTITIES)
    assert names(vectors) == ["entities.db", "vectors.npy"]
    assert "backend" not in EntityIndex.open(vectors).meta
