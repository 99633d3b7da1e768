"""An index is checked, copied, opened and changed while others change it."""

from pathlib import Path

import pytest

from spacy_elq.errors import ELQError
from spacy_elq.index import (
    EntityIndex,
    build,
    check_index,
    connections,
    copy_index,
    entity_index,
    files,
    view,
)
from spacy_elq.index.build import build_index
from spacy_elq.index.connections import Busy
from spacy_elq.types import Entity

NEW = Entity(id="N1", title="Nimbus", description="A new thing.")


@pytest.fixture
def own(index, tmp_path):
    """An index of its own, with a file of the back end and a change."""
    made = build_index(index.path, tmp_path / "index", factory="SQ8")
    made.remove(["E10"])
    return made


def compacting_once(function, path):
    """A function that compacts the index before it is called for the first time."""
    done = []

    def call(*arguments, **settings):
        if not done:
            done.append(True)  # compacting calls it, too
            EntityIndex.open(path).compact()
        return function(*arguments, **settings)

    return call


def test_a_change_is_made_though_another_process_compacts(own, entity_encoder, monkeypatch, recwarn):
    monkeypatch.setattr(entity_index, "COMPACT_FROM", 0)
    monkeypatch.setattr(entity_index, "COMPACT_SHARE", 0.0)
    with files.maintaining(own.path):
        with pytest.raises(Busy, match="E163"):
            own.compact()
        assert own.add([NEW], entity_encoder) == 1
        assert own.remove(["E9"]) == 1
    assert "N1" in own
    assert own.changes == 3
    assert not [warning for warning in recwarn if "W009" in str(warning.message)]
    own.add([NEW], entity_encoder)
    assert own.changes == 0


def test_a_change_is_made_though_it_cannot_be_folded_in(own, entity_encoder, monkeypatch):
    monkeypatch.setattr(entity_index, "COMPACT_FROM", 0)
    monkeypatch.setattr(entity_index, "COMPACT_SHARE", 0.0)

    def fail(*arguments, **settings):
        raise ELQError("the disk is full")

    monkeypatch.setattr(entity_index, "compact", fail)
    with pytest.warns(UserWarning, match="W009.*the disk is full"):
        assert own.add([NEW], entity_encoder) == 1
    assert "N1" in own


def test_the_check_of_an_index_that_is_compacted_finds_nothing(own, monkeypatch):
    monkeypatch.setattr(files, "sum_file", compacting_once(files.sum_file, own.path))
    assert check_index(own.path) == []
    assert own.changes == 0


def test_a_copy_of_an_index_that_is_compacted_is_whole(own, tmp_path, monkeypatch):
    monkeypatch.setattr(build, "link_or_copy", compacting_once(build.link_or_copy, own.path))
    copy_index(own, tmp_path / "copy")
    assert own.changes == 0
    assert check_index(tmp_path / "copy") == []
    assert [entity.id for entity in EntityIndex.open(tmp_path / "copy")] == [entity.id for entity in own]


def test_a_copy_of_an_index_without_a_file_is_an_error(own, tmp_path):
    own.search(own.vectors[:1], 1)
    next(own.path.glob("vectors-*")).unlink()
    with pytest.raises(ELQError, match=r"E031.*vectors-.*is missing"):
        copy_index(own, tmp_path / "copy")
    assert not (tmp_path / "copy").exists()


def test_an_index_is_opened_while_it_is_compacted(own, monkeypatch):
    monkeypatch.setattr(view, "FaissBackend", compacting_once(view.FaissBackend, own.path))
    assert EntityIndex.open(own.path).changes == 0


def test_a_back_end_that_faiss_cannot_read_is_an_error(own):
    path: Path = next(own.path.glob("search-*"))
    data = bytearray(path.read_bytes())
    data[:4] = b"nope"
    path.write_bytes(data)
    with pytest.raises(ELQError, match=r"E164.*compact"):
        EntityIndex.open(own.path)


def test_the_log_is_folded_in_though_somebody_reads_at_any_moment(own, entity_encoder, monkeypatch):
    """A reader of an earlier state keeps the log; a writer waits for it if the log is long."""
    waits = []
    monkeypatch.setattr(connections, "_LONG_LOG", 0)
    monkeypatch.setattr(connections, "_WAIT", 0.01)
    fold = connections._try_to_fold

    def note(connection, *, wait):
        waits.append(wait)
        return fold(connection, wait=wait)

    monkeypatch.setattr(connections, "_try_to_fold", note)
    log = own.path / "entities.db-wal"
    reader = EntityIndex.open(own.path)
    with reader.reading():
        own.add([NEW], entity_encoder)
    assert waits == [0.0, 0.01]
    assert log.stat().st_size > 0
    own.remove(["N1"])
    assert waits == [0.0, 0.01, 0.0]
    assert log.stat().st_size == 0
