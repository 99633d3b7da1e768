import gc
import json
import multiprocessing
import os
import shutil

import numpy as np
import pytest
import torch
from conftest import ENTITIES
from index_world import names

from spacy_elq.catalogue import read_catalogue
from spacy_elq.errors import ELQError
from spacy_elq.index import EntityIndex, build_index, encode_catalogue
from spacy_elq.index import encode as module
from spacy_elq.index.files import named_files, note_files
from spacy_elq.model.entity_encoder import EntityEncoder
from spacy_elq.published.index import import_index

COMPLETE = ["entities.db", "vectors.npy"]
SHARDS = [["E1", "E2", "E3"], ["E4", "E5", "E6"], ["E7", "E8", "E9"], ["E10"]]


class Watched:
    """The real encoder, which notes its work and stops when told to."""

    def __init__(self, encoder, *, stop_after=99, on_shard=lambda: None):
        self._encoder = encoder
        self._stop_after = stop_after
        self._on_shard = on_shard
        self.shards = []
        self.batch_sizes = set()
        self.width = encoder.width
        self.fingerprint = encoder.fingerprint
        self.settings = encoder.settings

    def encode(self, entities, *, batch_size):
        if len(self.shards) == self._stop_after:
            raise KeyboardInterrupt
        self._on_shard()
        self.shards.append([entity.id for entity in entities])
        self.batch_sizes.add(batch_size)
        return self._encoder.encode(entities, batch_size=batch_size)


@pytest.fixture
def output(tmp_path):
    return tmp_path / "vectors"


@pytest.fixture
def run(catalogue_path, output, entity_encoder):
    """Encodes by shards of three; gives the shards that were encoded."""

    def encode(catalogue=catalogue_path, encoder=entity_encoder, shard_size=3, **watch):
        watched = Watched(encoder, **watch)
        try:
            encode_catalogue(catalogue, output, watched, shard_size=shard_size)
        except KeyboardInterrupt:
            assert len(watched.shards) == watch["stop_after"]
        return watched.shards

    return encode


@pytest.fixture
def changed_catalogue(tmp_path):
    path = tmp_path / "changed.jsonl"
    entities = [{**entity, "description": "Changed."} for entity in ENTITIES]
    path.write_text("\n".join(json.dumps(entity) for entity in entities))
    return path


def no_room(monkeypatch, free=100):
    monkeypatch.setattr(shutil, "disk_usage", lambda path: shutil._ntuple_diskusage(10**9, 10**9, free))


def test_every_entity_gets_its_vector(run, output, vectors_path):
    assert run() == SHARDS
    encoded = EntityIndex.open(output)
    expected = EntityIndex.open(vectors_path)
    assert encoded.stamp == expected.stamp
    assert [encoded.entity(i).id for i in range(10)] == [entity["id"] for entity in ENTITIES]
    np.testing.assert_allclose(encoded.vectors, expected.vectors, atol=1e-5)
    assert names(output) == COMPLETE, "the partial folder is gone"


def test_the_encoder_is_named_in_meta_with_its_place(run, output, entity_encoder, encoder_path):
    run()
    expected = {**entity_encoder.settings, "fingerprint": entity_encoder.fingerprint}
    expected["paths"] = [os.path.relpath(encoder_path, output)]
    assert EntityIndex.open(output).meta["encoder"] == expected


def test_the_batch_size_is_passed_on(catalogue_path, output, entity_encoder):
    watched = Watched(entity_encoder)
    encode_catalogue(catalogue_path, output, watched, batch_size=5)
    assert watched.batch_sizes == {5}
    assert len(watched.shards) == 1


class Dated:
    """An encoder that says which process encoded an entity, with how many threads."""

    width, fingerprint, settings = 2, "dated", {}

    def encode(self, entities, *, batch_size):
        return np.full((len(entities), 2), [os.getpid(), torch.get_num_threads()], dtype="float32")


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_processes_share_the_work(catalogue_path, output, entity_encoder, vectors_path, monkeypatch, method):
    monkeypatch.setattr(module, "multiprocessing", multiprocessing.get_context(method))
    encode_catalogue(catalogue_path, output, entity_encoder, shard_size=3, n_process=2)
    expected = EntityIndex.open(vectors_path).vectors
    np.testing.assert_allclose(EntityIndex.open(output).vectors, expected, atol=1e-5)


def test_every_process_has_one_thread_and_none_works_for_one_shard(catalogue_path, output):
    encode_catalogue(catalogue_path, output, Dated(), shard_size=1, n_process=2)
    by, threads = np.array(EntityIndex.open(output).vectors).T
    assert set(threads) == {1}
    assert np.float32(os.getpid()) not in by
    encode_catalogue(catalogue_path, output, Dated(), shard_size=10, n_process=2)
    assert set(EntityIndex.open(output).vectors[:, 0]) == {np.float32(os.getpid())}


@pytest.mark.parametrize("stop_after", [0, 1, 3])
def test_a_stopped_run_goes_on_where_it_was(run, output, tmp_path, stop_after):
    run()
    whole = np.array(EntityIndex.open(output).vectors)
    shutil.rmtree(output)
    assert run(stop_after=stop_after) == SHARDS[:stop_after]
    with pytest.raises(ELQError, match="not an entity index"):
        EntityIndex.open(output)
    assert run() == SHARDS[stop_after:]
    np.testing.assert_array_equal(EntityIndex.open(output).vectors, whole)
    assert names(output) == COMPLETE


def test_a_run_may_be_stopped_twice(run):
    assert run(stop_after=1) == SHARDS[:1]
    assert run(stop_after=2) == SHARDS[1:3]
    assert run() == SHARDS[3:]


def test_a_complete_run_starts_anew(run):
    assert run() == run() == SHARDS


def test_another_catalogue_starts_anew(run, output, changed_catalogue):
    run(stop_after=2)
    assert run(changed_catalogue) == SHARDS
    assert EntityIndex.open(output).entity(0).description == "Changed."


def test_another_encoder_starts_anew(run, output, encoder_path, vectors_path):
    run(stop_after=2)
    other = EntityEncoder(str(encoder_path), max_length=48, pooling="cls")
    assert run(encoder=other) == SHARDS
    encoded = EntityIndex.open(output)
    assert encoded.stamp["encoder"] == other.fingerprint
    assert not np.allclose(encoded.vectors[0], EntityIndex.open(vectors_path).vectors[0])


def test_other_shards_start_anew(run):
    run(stop_after=2)
    assert [len(shard) for shard in run(shard_size=4)] == [4, 4, 2]


@pytest.mark.parametrize("name", ["vectors.npy", "entities.db"])
def test_without_one_of_its_files_the_work_starts_anew(run, output, vectors_path, name):
    run(stop_after=2)
    (output / "partial" / name).unlink()
    assert run() == SHARDS
    np.testing.assert_allclose(
        EntityIndex.open(output).vectors, EntityIndex.open(vectors_path).vectors, atol=1e-5
    )


def test_a_damaged_note_of_the_work_starts_anew(run, output):
    run(stop_after=2)
    gc.collect()
    for path in (output / "partial").glob("entities.db*"):
        path.unlink()
    (output / "partial" / "entities.db").write_bytes(b"{" * 5000)
    assert run() == SHARDS


def test_work_in_progress_is_not_an_index(run, output):
    run(stop_after=2)
    with pytest.raises(ELQError, match=r"E031.*partial.*is not complete, or not an index"):
        EntityIndex.open(output / "partial")


def test_the_earlier_vectors_stay_usable_until_the_new_are_complete(run, output, changed_catalogue):
    run()
    old, seen = EntityIndex.open(output).stamp, []
    run(changed_catalogue, stop_after=2, on_shard=lambda: seen.append(EntityIndex.open(output).stamp))
    assert seen == [old, old]
    assert EntityIndex.open(output).stamp == old
    assert run(changed_catalogue) == SHARDS[2:]
    assert EntityIndex.open(output).stamp != old
    assert names(output) == COMPLETE


def test_a_bad_catalogue_leaves_all_as_it_was(run, output, tmp_path, catalogue_path):
    run()
    run(stop_after=2)
    before = names(output)
    bad = tmp_path / "bad.jsonl"
    bad.write_text(catalogue_path.read_text() + "{")
    with pytest.raises(ELQError, match="line 11"):
        run(bad)
    assert names(output) == before
    assert "partial" in before
    assert run() == SHARDS[2:]


def test_what_a_killed_run_left_behind_is_no_hindrance(run, output):
    (output / "partial-new").mkdir(parents=True)
    (output / "partial-new" / "entities.db").write_text("half")
    (output / "partial-new" / module.MARK).touch()
    (output / "vectors-01234567.npy").write_text("half")
    note_files(output, [output / "vectors-01234567.npy"])
    assert run() == SHARDS
    assert names(output) == COMPLETE


# Whose the folder of unfinished work is


def test_work_of_a_version_that_did_not_mark_it_is_resumed(run, output):
    run(stop_after=2)
    (output / "partial" / module.MARK).unlink()
    assert run(stop_after=1) == SHARDS[2:3]
    assert (output / "partial" / module.MARK).is_file(), "it is marked from then on"
    assert run() == SHARDS[3:]
    assert names(output) == COMPLETE


@pytest.mark.parametrize("folder", ["partial", "partial-new"])
def test_an_empty_folder_with_the_name_is_used(run, output, folder):
    (output / folder).mkdir(parents=True)
    assert run() == SHARDS
    assert names(output) == COMPLETE


@pytest.mark.parametrize("folder", ["partial", "partial-new"])
@pytest.mark.parametrize(
    ("files", "problem"),
    [
        (["notes.txt"], r"has other files than an unfinished encoding \(notes.txt\)"),
        ([".spacy-elq", "a", "b", "c", "d"], r"has other files than an unfinished encoding \(a, b, c\)"),
        (["entities.db", "vectors.npy"], r"is not marked as an unfinished encoding \(no file .spacy-elq\)"),
        (["vectors.npy"], "is not marked as an unfinished encoding"),
    ],
)
def test_the_folder_of_somebody_else_is_refused(run, output, folder, files, problem):
    (output / folder).mkdir(parents=True)
    for name in files:
        (output / folder / name).write_text("mine")
    with pytest.raises(ELQError, match=f"E191.*{output / folder} {problem}.*choose another output"):
        run()
    assert sorted(path.name for path in (output / folder).iterdir()) == sorted(files)


@pytest.mark.parametrize("folder", ["partial", "partial-new"])
@pytest.mark.parametrize("kind", ["file", "link", "link to nothing"])
def test_what_is_no_folder_is_refused(run, output, tmp_path, folder, kind):
    output.mkdir()
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "notes.txt").write_text("mine")
    if kind == "file":
        (output / folder).write_text("mine")
    else:
        (output / folder).symlink_to(tmp_path / ("mine" if kind == "link" else "nothing"))
    with pytest.raises(ELQError, match=f"E191.*{output / folder} is a link or a file, expected a folder"):
        run()
    assert (tmp_path / "mine" / "notes.txt").read_text() == "mine"


def test_a_link_in_the_work_does_not_lead_to_the_file_of_somebody_else(run, output, tmp_path):
    run(stop_after=2)
    (tmp_path / "mine.npy").write_text("mine")
    (output / "partial" / "vectors.npy").unlink()
    (output / "partial" / "vectors.npy").symlink_to(tmp_path / "mine.npy")
    with pytest.raises(ELQError, match=r"E191.*other files than an unfinished encoding \(vectors.npy\)"):
        run()
    assert (tmp_path / "mine.npy").read_text() == "mine"


def test_a_file_that_is_put_into_the_work_meanwhile_stays(run, output):
    note = output / "partial" / "notes.txt"
    run(on_shard=lambda: note.write_text("mine"))
    assert EntityIndex.open(output).vectors.shape == (10, 48)
    assert [path.name for path in (output / "partial").iterdir()] == ["notes.txt"]


@pytest.mark.parametrize("name", ["entities-20240115.jsonl", "vectors-20240115.npy"])
def test_other_files_in_the_output_stay(run, output, catalogue_path, name):
    output.mkdir()
    shutil.copy(catalogue_path, output / name)
    assert run(output / name) == SHARDS
    assert (output / name).read_bytes() == catalogue_path.read_bytes()


def test_reuse_encodes_only_what_has_other_texts(tmp_path, run, output, entity_encoder):
    run()
    before = EntityIndex.open(output)
    entities = [dict(entity) for entity in ENTITIES][::-1]
    entities[2]["description"] = "Another one."
    entities[4]["popularity"] = 7
    entities[5] = {"id": "E99", "title": "Newcomer"}
    path = tmp_path / "grown.jsonl"
    path.write_text("".join(json.dumps(entity) + "\n" for entity in entities), encoding="utf8")
    watched = Watched(entity_encoder)
    grown = encode_catalogue(path, tmp_path / "grown", watched, shard_size=3, reuse=output)
    assert watched.shards == [[entities[2]["id"]], ["E99"]]
    afresh = encode_catalogue(path, tmp_path / "afresh", entity_encoder)
    np.testing.assert_allclose(grown.vectors, afresh.vectors, atol=1e-5)
    ids = [entity["id"] for i, entity in enumerate(entities) if i not in (2, 5)]
    taken = grown.vectors[grown.positions(ids)]
    np.testing.assert_array_equal(taken, before.vectors[before.positions(ids)])
    assert grown.popularity_at(np.arange(10))[4] > 0


def test_vectors_of_another_encoder_are_not_reused(tmp_path, run, output, catalogue_path, encoder_path):
    run()
    other = EntityEncoder(str(encoder_path), pooling="cls", max_length=48)
    with pytest.raises(ELQError, match="E038") as error:
        encode_catalogue(catalogue_path, tmp_path / "other", other, reuse=output)
    assert str(output) in str(error.value)
    assert "pooling: mean here, cls expected" in str(error.value)
    assert not (tmp_path / "other").exists()


@pytest.fixture
def torch_file(tmp_path):
    """Makes a file of vectors as torch saves them."""

    def save(vectors):
        torch.save(torch.from_numpy(np.array(vectors)), tmp_path / "vectors.t7")
        return tmp_path / "vectors.t7"

    return save


def test_vectors_of_elsewhere_are_copied_piece_by_piece(
    tmp_path, index, torch_file, catalogue_path, entity_encoder, monkeypatch
):
    monkeypatch.setattr("spacy_elq.published.index._ROWS", 3)
    path = torch_file(index.vectors)
    imported = import_index(read_catalogue(catalogue_path), path, tmp_path / "index", entity_encoder)
    np.testing.assert_array_equal(imported.vectors, index.vectors)
    assert imported.stamp == index.stamp
    assert (
        imported.search(index.vectors[4:5], 3)[0].tolist() == index.search(index.vectors[4:5], 3)[0].tolist()
    )


def test_vectors_of_another_catalogue_are_refused(
    tmp_path, index, torch_file, catalogue_path, entity_encoder
):
    path = torch_file(index.vectors[:9])
    with pytest.raises(ELQError, match="9 vectors for 10 entities"):
        import_index(read_catalogue(catalogue_path), path, tmp_path / "index", entity_encoder)


# No room on the disk


def test_no_room_for_the_entities_is_said_at_once(run, output, monkeypatch, catalogue_path):
    needed = 3 * catalogue_path.stat().st_size
    no_room(monkeypatch, free=needed - 1)
    with pytest.raises(ELQError, match=rf"E083.*{output}"):
        run()
    assert not output.exists()
    no_room(monkeypatch, free=needed)
    assert run() == SHARDS


def test_no_room_for_vectors_is_said_before_anything_is_encoded(run, output, monkeypatch):
    def refuse(*args):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "posix_fallocate", refuse)
        with pytest.raises(ELQError, match=rf"E162.*{output}.*No space left"):
            run(stop_after=0)
    assert run() == SHARDS


def test_work_that_is_taken_up_again_needs_room_for_the_entities_only(run, monkeypatch, catalogue_path):
    run(stop_after=2)
    no_room(monkeypatch, free=3 * catalogue_path.stat().st_size)
    assert run() == SHARDS[2:]


@pytest.mark.parametrize("factory", ["Flat", "HNSW128"])
def test_no_room_for_vectors_of_elsewhere(
    tmp_path, index, torch_file, catalogue_path, entity_encoder, monkeypatch, factory
):
    place = (torch_file(index.vectors), tmp_path / "index", entity_encoder)
    no_room(monkeypatch, free=10 * 48 * 4 - (factory == "Flat"))
    with pytest.raises(ELQError, match="E083"):
        import_index(read_catalogue(catalogue_path), *place, factory=factory)
    assert not (tmp_path / "index").exists()


def test_the_index_of_elsewhere_needs_no_room_where_it_is_a_link(
    tmp_path, index, torch_file, catalogue_path, entity_encoder, monkeypatch
):
    built = build_index(index.path, tmp_path / "built", factory="HNSW8")
    search = named_files(built._database)["search.faiss"]
    no_room(monkeypatch, free=10 * 48 * 4)
    place = (torch_file(index.vectors), tmp_path / "index", entity_encoder)
    imported = import_index(read_catalogue(catalogue_path), *place, search=search)
    assert imported.meta["backend"] == {"factory": "HNSW8", "efConstruction": 200, "efSearch": 256}
    shutil.rmtree(imported.path)
    monkeypatch.setattr("spacy_elq.index.files._device", lambda path: path == search)
    with pytest.raises(ELQError, match="E083"):
        import_index(read_catalogue(catalogue_path), *place, search=search)
