import os
import signal
from functools import partial

import numpy as np
import pytest
from index_world import Texts, in_child, make_entity, make_index

from spacy_elq.errors import ELQError
from spacy_elq.index import (
    EntityIndex,
    build_index,
    check_index,
    compact_index,
    copy_index,
    register_encoder,
)
from spacy_elq.index.connections import LogLeft
from spacy_elq.index.files import SEARCH, VECTORS, named_files


@pytest.fixture
def index(quick_path):
    index = make_index(quick_path, [make_entity(i) for i in range(6)], factory="SQ8")
    index.add([make_entity(7)], Texts())
    index.remove(["E1"])
    index.close()
    return index


def test_a_sound_index_has_no_damage(index):
    assert check_index(index.path) == []
    assert check_index(str(index.path)) == []


@pytest.mark.parametrize("role", [VECTORS, SEARCH])
def test_every_file_is_looked_at(index, role):
    path = named_files(index._database)[role]
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    (damage,) = check_index(index.path)
    assert damage.file == role
    assert path.name in damage.problem
    command = f"python -m spacy elq compact {index.path} --force"
    assert damage.remedy == (command if role == SEARCH else "restore a copy, or encode the catalogue again")


def test_every_row_is_looked_at(index):
    with index._database.writing() as connection:
        connection.execute("UPDATE entities SET title = 'x' WHERE position IN (2, 3)")
    index.close()
    damages = check_index(index.path)
    assert [damage.problem for damage in damages] == [
        "the entity at position 2 is damaged",
        "the entity at position 3 is damaged",
    ]
    assert {damage.file for damage in damages} == {"entities.db"}


@pytest.mark.parametrize("data", [b"", b"x" * 5000, b"SQLite format 3\0"])
def test_a_database_that_cannot_be_read_is_damage(index, data):
    (index.path / "entities.db").write_bytes(data)
    (damage,) = check_index(index.path)
    assert damage.file == "entities.db"
    assert str(index.path) in damage.problem


@pytest.mark.parametrize("key", ["base", "files", "catalogue", "encoder"])
def test_an_entry_that_is_gone_is_damage(index, key):
    index._database.set_meta(**{key: None})
    assert f"there is no entry `{key}`" in [damage.problem for damage in check_index(index.path)]


@pytest.mark.parametrize("key", ["names", "popularity"])
def test_an_array_that_is_gone_is_damage(index, key):
    with index._database.writing() as connection:
        connection.execute("DELETE FROM arrays WHERE key = ?", [key])
    (damage,) = check_index(index.path)
    assert damage.problem == "what is known about names and popularity is not complete"


def test_a_missing_index_is_an_error(tmp_path):
    with pytest.raises(ELQError, match="E030"):
        check_index(tmp_path)
    (tmp_path / "meta.json").write_text("{}")
    with pytest.raises(ELQError, match=f"E032.*elq index {tmp_path} NEW-FOLDER"):
        check_index(tmp_path)


INVALID = [
    ("files", {}),
    ("base", "x"),
    ("base", {}),
    ("base", {"next": "x"}),
    ("base", {"next": True}),
    ("base", {"next": -1}),
    ("catalogue", 5),
    ("encoder", "x"),
    ("encoder", {}),
    ("encoder", {"fingerprint": 5}),
    ("encoder", {"fingerprint": "x", "paths": 5}),
    ("encoder", {"fingerprint": "x", "paths": ["x", 5]}),
    ("backend", "x"),
    ("backend", {}),
    ("backend", {"factory": 5}),
    ("backend", {"factory": "SQ8", "rescore": "x"}),
    ("backend", {"factory": "SQ8", "rescore": -1}),
    ("backend", {"factory": "SQ8", "rescore": 2**31}),
    ("backend", {"factory": "SQ8", "nprobe": 2.5}),
]


@pytest.mark.parametrize(("key", "value"), INVALID)
def test_an_entry_that_cannot_be_used_is_damage_and_not_opened(index, key, value):
    index._database.set_meta(**{key: value})
    index.close()
    assert check_index(index.path)[0].problem == f"the entry `{key}` is not valid"
    expected = "is not complete, or not an index" if key == "files" else f"has no valid entry `{key}`"
    for work in (EntityIndex.open, partial(compact_index, force=True)):
        with pytest.raises(ELQError, match=f"E031.*{index.path}.*{expected}"):
            work(index.path)


def test_settings_of_a_back_end_may_be_fractions_where_faiss_takes_them(index):
    index._database.set_meta(backend={"factory": "SQ8", "rescore": 50.0, "k_factor": 2.5})
    assert check_index(index.path) == []
    assert len(EntityIndex.open(index.path)) == 6


@pytest.mark.parametrize("files", [[1], "x", {VECTORS: {"number": 1, "bytes": 1}}])
def test_a_list_of_files_that_is_none_is_damage(index, files):
    index._database.set_meta(files=files)
    assert len(check_index(index.path)) == 1


@pytest.mark.parametrize("next_", [5, 10**15])
def test_vectors_that_do_not_fit_the_base_are_damage(index, next_):
    index._database.set_meta(base={"next": next_})
    index.close()
    (damage,) = check_index(index.path)
    assert damage.problem == "what is known about names and popularity is not complete"
    for work in (EntityIndex.open, partial(compact_index, force=True)):
        with pytest.raises(ELQError, match=rf"E031.*vectors-.* has 6 vectors instead of {next_}"):
            work(index.path)


# The log


def test_a_damaged_log_is_found_and_left_as_it_is(index):
    reader = EntityIndex.open(index.path)

    def work():
        with reader.reading():
            index.add([make_entity(8)], Texts())
            os.kill(os.getpid(), signal.SIGKILL)

    index.close()
    reader.close()
    assert in_child(work) == -signal.SIGKILL
    log = index.path / "entities.db-wal"
    data = bytearray(log.read_bytes())
    data[5000] ^= 1
    log.write_bytes(data)
    for _ in range(2):
        (damage,) = check_index(index.path)
        assert damage.file == "entities.db-wal"
        assert damage.problem == "is damaged from frame 2 on: the changes there are lost"
        assert "make the last changes again" in damage.remedy
    data[5000] ^= 1
    log.write_bytes(data)
    assert check_index(index.path) == []
    assert "E8" in EntityIndex.open(index.path)


def test_a_log_that_cannot_be_read_is_no_damage(index, monkeypatch):
    def refuse(path):
        raise LogLeft("E192")

    monkeypatch.setattr("spacy_elq.index.check.Database.open", refuse)
    with pytest.raises(ELQError, match="E192"):
        check_index(index.path)


# The encoder


@pytest.fixture
def bundled(index):
    folder = index.path / "encoder"
    (folder / "deep").mkdir(parents=True)
    (folder / "config.json").write_text("{}")
    (folder / "deep" / "weights.bin").write_bytes(np.arange(9).tobytes())
    register_encoder(index.path)
    return index


def test_the_encoder_is_looked_at_once_it_is_registered(bundled):
    assert check_index(bundled.path) == []
    weights = bundled.path / "encoder" / "deep" / "weights.bin"
    data = weights.read_bytes()
    for damage in (lambda: weights.write_bytes(data[:-1] + b"x"), weights.unlink):
        damage()
        (found,) = check_index(bundled.path)
        assert found.file == "encoder"
        assert "elq bundle --encoder" in found.remedy
    weights.write_bytes(data)
    assert check_index(bundled.path) == []
    (bundled.path / "encoder" / "more").touch()
    assert len(check_index(bundled.path)) == 1


def test_an_encoder_that_is_not_registered_is_not_looked_at(index):
    (index.path / "encoder").mkdir()
    assert check_index(index.path) == []


@pytest.mark.parametrize("how", ["copy", "build"])
def test_the_encoder_goes_where_the_index_goes(bundled, quick_path, how):
    target = quick_path / "copy"
    (target / "encoder").mkdir(parents=True)
    (target / "encoder" / "of another").touch()
    if how == "copy":
        copy_index(EntityIndex.open(bundled.path), target)
    else:
        build_index(bundled.path, target, factory="Flat")
    assert (target / "encoder" / "deep" / "weights.bin").read_bytes() == np.arange(9).tobytes()
    assert check_index(target) == []


def test_the_encoder_stays_when_the_index_is_built_anew_in_its_place(bundled):
    build_index(bundled.path, bundled.path, factory="Flat")
    assert check_index(bundled.path) == []
    assert (bundled.path / "encoder" / "config.json").exists()
