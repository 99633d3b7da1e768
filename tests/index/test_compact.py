import os
import shutil
import threading
import warnings

import numpy as np
import pytest
from index_world import Texts, ask, assert_same, encode, make_entity, make_index, names

from spacy_elq.errors import ELQError
from spacy_elq.index import EntityIndex, check_index, compact_index, copy_index
from spacy_elq.index import backend as backend_module
from spacy_elq.index import compact as module
from spacy_elq.index import entity_index as index_module
from spacy_elq.index.files import SEARCH, VECTORS, maintaining, named_files

IDS = [f"E{i}" for i in range(30)]


@pytest.fixture
def index(quick_path):
    return make_index(quick_path, [make_entity(i) for i in range(12)], factory="HNSW8")


def change(index):
    index.add([make_entity(3, 1), make_entity(20), make_entity(21)], Texts())
    index.remove(["E1", "E21"])


def files_of(index):
    return {role: path.name for role, path in named_files(index._database).items()}


def test_answers_stay_and_the_changes_are_in_the_files(index):
    change(index)
    before, old = ask(index, ids=IDS), files_of(index)
    assert index.changes == 5
    assert index.compact() is True
    assert index.changes == 0
    assert_same(ask(index, ids=IDS), before)
    assert_same(ask(EntityIndex.open(index.path), ids=IDS), before)
    assert not set(old.values()) & set(files_of(index).values())
    assert names(index.path) == ["entities.db", "search.faiss", "vectors.npy"]
    assert len(np.load(named_files(index._database)[VECTORS])) == 12
    assert check_index(index.path) == []


def test_positions_stay(index):
    change(index)
    before = index.positions(IDS)
    index.compact()
    np.testing.assert_array_equal(index.positions(IDS), before)
    change(index)
    index.compact()
    assert index.positions(["E20"])[0] == 16
    assert check_index(index.path) == []


def test_without_changes_there_is_nothing_to_do(index):
    old = files_of(index)
    assert index.compact() is False
    assert files_of(index) == old
    assert index.compact(force=True) is True
    assert files_of(index) != old
    assert len(index) == 12


@pytest.mark.parametrize("changes", ["added", "removed"])
def test_one_kind_of_change_is_enough(index, changes):
    if changes == "added":
        index.add([make_entity(50)], Texts())
    else:
        index.remove(["E0"])
    assert index.compact() is True
    assert check_index(index.path) == []


def test_vectors_without_a_back_end_stay_without(quick_path):
    index = EntityIndex.open(encode(quick_path, [make_entity(i) for i in range(5)]))
    change(index)
    assert index.compact()
    assert names(index.path) == ["entities.db", "vectors.npy"]
    assert "backend" not in index.meta
    assert sorted(entity.id for entity in index) == ["E0", "E2", "E20", "E3", "E4"]


def test_the_default_back_end_changes_with_the_size(quick_path, monkeypatch):
    flat = make_index(quick_path, [make_entity(i) for i in range(40)])
    monkeypatch.setattr(backend_module, "EXACT_UP_TO", 40)
    assert flat.meta["backend"] == {"factory": "Flat"}
    flat.add([make_entity(i) for i in range(100, 150)], Texts())
    flat.compact()
    assert flat.meta["backend"]["factory"].startswith("PCAR8,PQ4x4fs")
    assert names(flat.path) == ["entities.db", "search.faiss", "vectors.npy"]
    found, _ = flat.search(flat.vectors[:5], 1)
    np.testing.assert_array_equal(found[:, 0], (flat.vectors[:5] @ flat.vectors.T).argmax(axis=1))
    flat.remove([f"E{i}" for i in range(100, 150)])
    flat.compact()
    assert flat.meta["backend"] == {"factory": "Flat"}
    assert names(flat.path) == ["entities.db", "vectors.npy"]


@pytest.mark.parametrize("factory", ["IVF4,Flat", "PQ4x4", "SQ8", "PCA4,Flat", "HNSW8", "IVF2,PQ4x4"])
@pytest.mark.parametrize("left", [0, 1])
@pytest.mark.filterwarnings("ignore:.*W003")
def test_an_index_can_become_empty_whatever_its_back_end(quick_path, factory, left):
    index = make_index(quick_path, [make_entity(i) for i in range(80)], factory=factory)
    index.remove([f"E{i}" for i in range(left, 80)])
    kinds = {"W090"} if (factory, left) not in NEVER_REFUSED else set()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        assert index.compact()
    found = [str(warning.message) for warning in caught if "W003" not in str(warning.message)]
    assert {message.split()[1][:4] for message in found} == kinds
    assert all(f"'{factory}' for {left} entities" in message for message in found)
    assert index.meta["backend"]["factory"] == ("Flat" if kinds else factory)
    assert check_index(index.path) == []
    assert len(index) == left
    index.add([make_entity(i) for i in range(100, 105)], Texts())
    assert index.compact()
    found, _ = index.search(index.vectors[:5], 1)
    np.testing.assert_array_equal(found[:, 0], index.all_positions()[:5])


NEVER_REFUSED = {("SQ8", 1), ("HNSW8", 0), ("HNSW8", 1)}


def test_many_vectors_are_not_searched_one_by_one_for_want_of_a_back_end(index, monkeypatch):
    def refuse(*args, **kwargs):
        raise backend_module.Unbuildable("E034")

    change(index)
    monkeypatch.setattr(module, "build_backend", refuse)
    monkeypatch.setattr(module, "EXACT_UP_TO", 11)
    with pytest.raises(ELQError, match="E034"):
        index.compact()
    monkeypatch.setattr(module, "EXACT_UP_TO", 12)
    with pytest.warns(UserWarning, match=rf"W090.*'HNSW8' for 12.*elq index {index.path} {index.path}"):
        index.compact()


@pytest.mark.parametrize("name", ["vectors-20240115.npy", "orders-20240115.jsonl", "new.db"])
def test_other_files_in_the_folder_stay(index, often, name):
    (index.path / name).write_text("mine")
    index.add([make_entity(i) for i in range(20, 30)], Texts())
    assert index.changes == 0
    index.compact(force=True)
    assert (index.path / name).read_text() == "mine"
    assert len([path for path in index.path.iterdir() if path.suffix == ".faiss"]) == 1


def test_a_back_end_that_was_asked_for_stays_with_its_settings(quick_path, monkeypatch):
    index = make_index(
        quick_path, [make_entity(i) for i in range(40)], factory="HNSW8", widths={"efSearch": 9}
    )
    monkeypatch.setattr(backend_module, "EXACT_UP_TO", 40)
    index.add([make_entity(i) for i in range(100, 110)], Texts())
    index.compact()
    assert index.meta["backend"] == {"factory": "HNSW8", "efConstruction": 200, "efSearch": 9}


@pytest.mark.parametrize("rows", [1, 5, 100])
def test_vectors_are_written_piece_by_piece(index, monkeypatch, rows):
    monkeypatch.setattr(module, "_ROWS", rows)
    change(index)
    before = ask(index, ids=IDS)
    index.compact()
    assert_same(ask(index, ids=IDS), before)


def test_what_others_change_meanwhile_is_kept(index, monkeypatch):
    write = module.write_vectors

    def meanwhile(*args, **kwargs):
        write(*args, **kwargs)
        other = EntityIndex.open(index.path)
        thread = threading.Thread(
            target=lambda: (
                other.add([make_entity(0, 1), make_entity(30)], Texts()),
                other.remove(["E20", "E5"]),
            )
        )
        thread.start()
        thread.join()

    change(index)
    monkeypatch.setattr(module, "write_vectors", meanwhile)
    index.compact()
    entities = [make_entity(i) for i in (2, 4, 6, 7, 8, 9, 10, 11, 30)]
    expected = make_index(index.path.parent / "new", [*entities, make_entity(3, 1), make_entity(0, 1)])
    assert_same(ask(index, ids=IDS), ask(expected, ids=IDS))
    assert_same(ask(EntityIndex.open(index.path), ids=IDS), ask(expected, ids=IDS))
    assert check_index(index.path) == []
    monkeypatch.undo()
    index.compact()
    assert_same(ask(index, ids=IDS), ask(expected, ids=IDS))
    assert check_index(index.path) == []


def test_an_open_index_goes_on_in_its_state(index):
    change(index)
    reader = EntityIndex.open(index.path)
    with reader.reading():
        before = ask(reader, ids=IDS)
        index.compact()
        index.remove(["E2"])
        assert_same(ask(reader, ids=IDS), before)
    assert "E2" not in reader


def test_a_compaction_that_fails_leaves_no_files(index, monkeypatch):
    change(index)
    before, old = ask(index, ids=IDS), files_of(index)

    def fail(*args, **kwargs):
        raise KeyboardInterrupt

    monkeypatch.setattr(module, "build_backend", fail)
    with pytest.raises(KeyboardInterrupt):
        index.compact()
    assert files_of(index) == old
    assert names(index.path) == ["entities.db", "search.faiss", "vectors.npy"]
    assert_same(ask(index, ids=IDS), before)


def test_no_room_is_said_before_anything_is_written(index, monkeypatch):
    change(index)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: shutil._ntuple_diskusage(9, 9, 10))
    with pytest.raises(ELQError, match="E083"):
        index.compact()
    assert names(index.path) == ["entities.db", "search.faiss", "vectors.npy"]


def test_a_disk_that_becomes_full_is_said(index, monkeypatch):
    change(index)
    before = ask(index, ids=IDS)

    def full(path, *args, **kwargs):
        path.write_bytes(b"half")
        raise OSError(28, os.strerror(28))

    with monkeypatch.context() as patch:
        patch.setattr(module, "write_vectors", full)
        with pytest.raises(ELQError, match=r"E162.*No space left"):
            index.compact()
    assert_same(ask(index, ids=IDS), before)
    assert names(index.path) == ["entities.db", "search.faiss", "vectors.npy"]
    assert index.compact()


# By path


@pytest.mark.parametrize("damage", ["missing", "short", "other"])
def test_a_damaged_back_end_is_made_again(index, damage):
    change(index)
    before = ask(index, ids=IDS)
    index.close()
    path = named_files(index._database)[SEARCH]
    if damage == "missing":
        path.unlink()
    else:
        path.write_bytes(b"x" * (path.stat().st_size - (damage == "short")))
    with pytest.raises(ELQError, match=f"E164.*{path.name}.*elq compact {index.path} --force"):
        EntityIndex.open(index.path)
    assert check_index(index.path)[0].remedy == f"python -m spacy elq compact {index.path} --force"
    assert compact_index(index.path, force=True)
    assert check_index(index.path) == []
    assert_same(ask(EntityIndex.open(index.path), ids=IDS), before)


@pytest.mark.parametrize("damage", ["missing", "other"])
def test_damaged_vectors_cannot_be_compacted(index, damage):
    change(index)
    index.close()
    path = named_files(index._database)[VECTORS]
    path.unlink() if damage == "missing" else path.write_bytes(b"x" * path.stat().st_size)
    with pytest.raises(ELQError, match=f"E031.*{path.name}"):
        compact_index(index.path, force=True)


def test_what_is_no_index_cannot_be_compacted(index, quick_path):
    with pytest.raises(ELQError, match=f"E030.*{quick_path}/nowhere"):
        compact_index(quick_path / "nowhere")
    old = quick_path / "old"
    old.mkdir()
    (old / "meta.json").write_text("{}")
    with pytest.raises(ELQError, match=f"E032.*elq index {old} NEW-FOLDER"):
        compact_index(old)
    index._database.set_meta(files={})
    with pytest.raises(ELQError, match=r"E031.*is not complete"):
        compact_index(index.path)


# By itself


@pytest.fixture
def often(monkeypatch):
    monkeypatch.setattr(index_module, "COMPACT_FROM", 3)
    monkeypatch.setattr(index_module, "COMPACT_SHARE", 0.2)


def test_many_changes_are_folded_in_by_themselves(index, often):
    index.add([make_entity(20), make_entity(21), make_entity(22)], Texts())
    assert index.changes == 3
    index.add([make_entity(23)], Texts())
    assert index.changes == 0, "4 are more than 3, and than a fifth of 16"
    index.remove(["E1", "E2", "E3", "E4"])
    assert index.changes == 0


def test_the_share_counts_in_large_catalogues(quick_path, often):
    index = make_index(quick_path, [make_entity(i) for i in range(40)])
    index.remove([f"E{i}" for i in range(6)])
    assert index.changes == 6
    index.remove(["E6"])
    assert index.changes == 0


def test_another_process_that_compacts_is_no_hindrance(index, often, recwarn):
    with maintaining(index.path):
        assert index.add([make_entity(i) for i in range(20, 30)], Texts()) == 10
    assert index.changes == 10
    assert not recwarn.list
    assert index.remove(["E20"]) == 1
    assert index.changes == 0


def test_what_was_asked_for_is_done_although_there_is_no_room(index, often, monkeypatch):
    monkeypatch.setattr(shutil, "disk_usage", lambda path: shutil._ntuple_diskusage(9, 9, 10))
    with pytest.warns(UserWarning, match=r"W009.*E083"):
        assert index.add([make_entity(i) for i in range(20, 30)], Texts()) == 10
    assert "E25" in index


def test_two_compactors_do_not_disturb_each_other(index):
    change(index)
    with maintaining(index.path), pytest.raises(ELQError, match="E163"):
        index.compact()
    assert index.compact()


def flip(path, place=-3):
    data = bytearray(path.read_bytes())
    data[place] ^= 4
    path.unlink()
    path.write_bytes(bytes(data))


@pytest.mark.parametrize("force", [False, True])
def test_damaged_vectors_do_not_get_a_new_sum(index, force):
    index.remove(["E1"])
    flip(named_files(index._database)[VECTORS])
    before = files_of(index)
    with pytest.raises(ELQError, match=r"E031.*vectors-.* has other bytes than were written"):
        compact_index(index.path, force=force)
    assert files_of(index) == before
    assert [damage.file for damage in check_index(index.path)] == [VECTORS]


def test_damaged_vectors_of_changes_do_not_get_into_the_files(index):
    change(index)
    with index._database.writing() as connection:
        connection.execute("UPDATE changes SET vector = zeroblob(length(vector))")
    with pytest.raises(ELQError, match=r"E031.*entities.db has damaged vectors"):
        index.compact()


@pytest.mark.parametrize(("role", "code"), [(VECTORS, "E031"), (SEARCH, "E164")])
def test_a_damaged_index_is_not_copied(index, role, code, tmp_path):
    flip(named_files(index._database)[role])
    with pytest.raises(ELQError, match=rf"{code}.*{role.partition('.')[0]}-.* has other bytes"):
        copy_index(index, tmp_path / "copy")
    assert not (tmp_path / "copy").exists()
