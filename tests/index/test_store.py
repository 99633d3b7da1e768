import json
import os

import pytest

from spacy_elq.errors import ELQError
from spacy_elq.index.store import FORMAT, commit, link_or_copy, read_meta, write_json


def make_work(folder, **files):
    """A working folder with one file for each role, such as vectors="abc" for vectors.npy."""
    work = folder / "partial"
    work.mkdir(parents=True)
    for stem, content in files.items():
        (work / f"{stem}.npy").write_text(content)
    return work


def commit_files(folder, **files):
    work = make_work(folder, **files)
    commit(folder, work, {"catalogue": "c"}, [f"{stem}.npy" for stem in files])


def names(folder):
    return {path.name for path in folder.iterdir()}


def content(folder, role):
    return (folder / read_meta(folder)["files"][role]["name"]).read_text()


@pytest.fixture
def stored(tmp_path):
    commit_files(tmp_path, vectors="old", ids="12345")
    return tmp_path


def test_commit_names_every_file_in_meta(stored):
    meta = read_meta(stored)
    assert (meta["format"], meta["catalogue"]) == (FORMAT, "c")
    assert {role: entry["bytes"] for role, entry in meta["files"].items()} == {"vectors.npy": 3, "ids.npy": 5}
    assert content(stored, "vectors.npy") == "old"
    assert names(stored) == {"meta.json"} | {entry["name"] for entry in meta["files"].values()}


def test_commit_makes_the_folder(tmp_path):
    commit(tmp_path / "a" / "b", make_work(tmp_path, vectors="new"), {}, ["vectors.npy"])
    assert content(tmp_path / "a" / "b", "vectors.npy") == "new"


def test_commit_replaces_all_that_was_there_before(stored):
    before = names(stored)
    commit_files(stored, vectors="new", ids="1")
    assert content(stored, "vectors.npy") == "new"
    assert len(names(stored)) == 3
    assert names(stored) & before == {"meta.json"}


def test_commit_drops_a_search_file_that_is_named_no_more(stored):
    (stored / "search-0123abcd.faiss").write_text("old")
    commit_files(stored, vectors="new", ids="1")
    assert not [name for name in names(stored) if name.startswith("search")]


def test_commit_leaves_the_files_of_others_alone(stored):
    others = {"README.md", "my-notes.txt", "vectors.npy"}
    for name in others:
        (stored / name).write_text("mine")
    (stored / "vectors-folder").mkdir()
    commit_files(stored, vectors="new", ids="1")
    assert others | {"vectors-folder"} < names(stored)


def test_killed_before_meta_the_old_files_are_what_counts(stored, monkeypatch):
    replace = os.replace

    def killed(source, target):
        if target.name == "meta.json":
            raise KeyboardInterrupt
        replace(source, target)

    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", killed)
        with pytest.raises(KeyboardInterrupt):
            commit(stored, make_work(stored, vectors="new"), {}, ["vectors.npy"])
    assert content(stored, "vectors.npy") == "old"
    (stored / "partial").rmdir()
    commit_files(stored, vectors="newer", ids="1")
    assert content(stored, "vectors.npy") == "newer"
    assert len([name for name in names(stored) if name.startswith("vectors")]) == 1


def test_json_is_the_old_or_the_new_file_but_never_half(tmp_path, monkeypatch):
    path = tmp_path / "meta.json"
    write_json(path, {"title": "Zürich"})
    assert json.loads(path.read_text(encoding="utf8")) == {"title": "Zürich"}
    monkeypatch.setattr(os, "replace", lambda *args: pytest.fail("killed"))
    with pytest.raises(pytest.fail.Exception):
        write_json(path, {"title": "new"})
    assert json.loads(path.read_text(encoding="utf8")) == {"title": "Zürich"}


def test_json_that_cannot_be_written_leaves_the_old_one(tmp_path):
    path = tmp_path / "meta.json"
    write_json(path, 1)
    with pytest.raises(TypeError):
        write_json(path, {"a": object()})
    assert json.loads(path.read_text()) == 1


def test_a_second_name_costs_no_space(tmp_path):
    source, target = tmp_path / "a", tmp_path / "b"
    source.write_text("x")
    link_or_copy(source, target)
    assert source.samefile(target)


def test_a_copy_where_the_file_system_has_no_links(tmp_path, monkeypatch):
    def refuse(*args):
        raise OSError

    monkeypatch.setattr(os, "link", refuse)
    source, target = tmp_path / "a", tmp_path / "b"
    source.write_text("x")
    link_or_copy(source, target)
    assert target.read_text() == "x"
    assert not source.samefile(target)


@pytest.mark.parametrize("folder", ["nowhere", "."])
def test_no_meta_is_no_index(tmp_path, folder):
    with pytest.raises(ELQError, match="not an entity index") as error:
        read_meta(tmp_path / folder)
    assert str(tmp_path / folder) in str(error.value)
    assert "spacy elq encode" in str(error.value)
    assert "spacy elq index" in str(error.value)


@pytest.mark.parametrize("text", ["", "{", "not json", "\udcff"])
def test_meta_that_is_not_json_is_damage(stored, text):
    (stored / "meta.json").write_bytes(text.encode("utf8", "surrogateescape"))
    with pytest.raises(ELQError, match=r"is damaged: meta\.json is not valid JSON.*spacy elq index VECTORS"):
        read_meta(stored)


@pytest.mark.parametrize(
    ("meta", "found"),
    [
        ({"format": FORMAT - 1, "files": {}}, str(FORMAT - 1)),
        ({"format": FORMAT + 1, "files": {}}, str(FORMAT + 1)),
        ({}, "None"),
        ([], "None"),
        (None, "None"),
    ],
)
def test_another_format_is_named(stored, meta, found):
    (stored / "meta.json").write_text(json.dumps(meta))
    with pytest.raises(
        ELQError, match=rf"has format {found}, .* reads format {FORMAT}\. .* elq index VECTORS"
    ):
        read_meta(stored)


def test_meta_without_files_is_damage(stored):
    (stored / "meta.json").write_text(json.dumps({"format": FORMAT}))
    with pytest.raises(ELQError, match="is damaged"):
        read_meta(stored)


@pytest.mark.parametrize("role", ["vectors.npy", "ids.npy"])
def test_a_missing_file_is_named(stored, role):
    name = read_meta(stored)["files"][role]["name"]
    (stored / name).unlink()
    with pytest.raises(ELQError, match=f"is damaged: {name} is missing.*spacy elq index VECTORS"):
        read_meta(stored)


@pytest.mark.parametrize(("text", "bytes_"), [("1234", 4), ("123456", 6), ("", 0)])
def test_a_file_of_another_size_is_named(stored, text, bytes_):
    name = read_meta(stored)["files"]["ids.npy"]["name"]
    (stored / name).write_text(text)
    problem = f"is damaged: {name} has {bytes_} bytes instead of 5.*spacy elq index VECTORS"
    with pytest.raises(ELQError, match=problem):
        read_meta(stored)
