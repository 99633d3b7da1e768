import json

import fsspec
import numpy as np
import pytest
from conftest import ENTITIES, run_spacy
from index_world import names

from spacy_elq.distributed.encode import encode_parts, from_npz, to_npz
from spacy_elq.distributed.parts import Parts
from spacy_elq.errors import ELQError
from spacy_elq.index import EntityIndex, encode_catalogue
from spacy_elq.model.entity_encoder import EntityEncoder

COMPLETE = ["entities.db", "vectors.npy"]


class Watched:
    """The real encoder, which notes its work and stops when told to."""

    def __init__(self, encoder, *, stop_after=99):
        self._encoder = encoder
        self._stop_after = stop_after
        self.shards = []
        self.width, self.fingerprint, self.settings = encoder.width, encoder.fingerprint, encoder.settings

    def encode(self, entities, *, batch_size):
        if len(self.shards) == self._stop_after:
            raise KeyboardInterrupt
        self.shards.append([entity.id for entity in entities])
        return self._encoder.encode(entities, batch_size=batch_size)


@pytest.fixture
def memory():
    yield fsspec.filesystem("memory")
    fsspec.filesystem("memory").store.clear()


@pytest.fixture
def whole(catalogue_path, entity_encoder, tmp_path):
    """The vectors of a single process, in the same shards."""
    return np.array(
        encode_catalogue(catalogue_path, tmp_path / "whole", entity_encoder, shard_size=3).vectors
    )


@pytest.fixture
def run(catalogue_path, entity_encoder):
    """Encodes by shards of three; gives the shards that were encoded."""

    def encode(output, *, catalogue=catalogue_path, encoder=entity_encoder, stop_after=99, **settings):
        watched = Watched(encoder, stop_after=stop_after)
        try:
            encode_parts(catalogue, output, lambda: watched, shard_size=3, **settings)
        except KeyboardInterrupt:
            assert len(watched.shards) == stop_after
        return watched.shards

    return encode


def download(url, folder):
    files, place = fsspec.core.url_to_fs(url)
    files.get(f"{place}/", str(folder), recursive=True)
    return EntityIndex.open(folder)


def test_from_and_to_memory(run, memory, catalogue_path, whole, tmp_path):
    memory.pipe_file("/in/entities.jsonl", catalogue_path.read_bytes())
    assert len(run("memory://out/vectors", catalogue="memory://in/entities.jsonl")) == 4
    index = download("memory://out/vectors", tmp_path / "copy")
    np.testing.assert_array_equal(index.vectors, whole)
    assert [index.entity(i).id for i in range(10)] == [entity["id"] for entity in ENTITIES]
    assert names(tmp_path / "copy") == COMPLETE, "nothing is left of the work"
    assert "paths" not in index.meta["encoder"], "where it is from a folder that is gone"
    assert index.meta["encoder"]["name"]


def test_a_stopped_run_goes_on_where_it_was(run, memory, whole, tmp_path):
    assert len(run("memory://out", stop_after=2)) == 2
    assert not memory.exists("/out/entities.db")
    assert len(Parts("memory://out/partial").names()) == 2
    assert run("memory://out") == [["E7", "E8", "E9"], ["E10"]]
    np.testing.assert_array_equal(download("memory://out", tmp_path / "copy").vectors, whole)


def test_a_damaged_part_is_encoded_again(run, memory, whole, tmp_path):
    run("memory://out", stop_after=2)
    first = min(Parts("memory://out/partial").names())
    memory.pipe_file(f"/out/partial/{first}", b"half")
    assert run("memory://out") == [["E1", "E2", "E3"], ["E7", "E8", "E9"], ["E10"]]
    np.testing.assert_array_equal(download("memory://out", tmp_path / "copy").vectors, whole)


def test_parts_of_another_catalogue_or_encoder_do_not_count(run, memory, encoder_path, tmp_path):
    changed = tmp_path / "changed.jsonl"
    changed.write_text("\n".join(json.dumps({**entity, "description": "Changed."}) for entity in ENTITIES))
    run("memory://out", stop_after=2)
    assert len(run("memory://out", catalogue=changed, stop_after=3)) == 3
    other = EntityEncoder(str(encoder_path), max_length=48, pooling="cls")
    assert len(run("memory://out", encoder=other)) == 4
    assert not memory.exists("/out/partial")


def test_only_new_texts_are_encoded_with_reuse(run, memory, entity_encoder, catalogue_path, tmp_path):
    entities = [{**entity, "description": "New."} if i == 4 else entity for i, entity in enumerate(ENTITIES)]
    grown = tmp_path / "grown.jsonl"
    grown.write_text("\n".join(map(json.dumps, entities)))
    known = tmp_path / "known"
    encode_catalogue(catalogue_path, known, entity_encoder, shard_size=3)
    assert [own for own in run("memory://out", catalogue=grown, reuse=known) if own] == [["E5"]]
    expected = encode_catalogue(grown, tmp_path / "afresh", entity_encoder, shard_size=3).vectors
    found = download("memory://out", tmp_path / "copy").vectors
    np.testing.assert_allclose(found, expected, atol=1e-5)


def test_a_part_with_other_rows_does_not_count(run, memory, catalogue_path, tmp_path, entity_encoder, whole):
    known = tmp_path / "known"
    encode_catalogue(catalogue_path, known, entity_encoder, shard_size=3)
    run("memory://out", reuse=known, stop_after=2)
    run("memory://out")
    np.testing.assert_allclose(download("memory://out", tmp_path / "copy").vectors, whole, atol=1e-5)


def test_vectors_of_another_width_do_not_count(run, memory, whole, tmp_path):
    run("memory://out", stop_after=2)
    first = min(Parts("memory://out/partial").names())
    memory.pipe_file(f"/out/partial/{first}", to_npz(np.arange(3), np.ones((3, 5), dtype="float32")))
    assert len(run("memory://out")) == 3
    np.testing.assert_array_equal(download("memory://out", tmp_path / "copy").vectors, whole)


def test_a_store_that_damages_what_is_written_is_an_error(run, memory, monkeypatch):
    monkeypatch.setattr("spacy_elq.distributed.encode.to_npz", lambda rows, vectors: b"half")
    with pytest.raises(ELQError, match=r"E227.*memory://out/partial/part-000000000000.*not what a worker"):
        run("memory://out")
    assert not memory.exists("/out/entities.db")


def test_several_processes_without_ray_need_a_local_folder(run, memory):
    with pytest.raises(ELQError, match=r"E227.*memory://out.*--ray local -p 2"):
        run("memory://out", n_process=2)


def test_without_ray_a_local_folder_is_encoded_as_ever(run, whole, tmp_path):
    assert len(run(tmp_path / "out")) == 4
    np.testing.assert_array_equal(EntityIndex.open(tmp_path / "out").vectors, whole)
    assert names(tmp_path / "out") == COMPLETE


def test_the_command_takes_urls(catalogue_path, encoder_path, memory, tmp_path):
    memory.pipe_file("/in/entities.jsonl", catalogue_path.read_bytes())
    options = ["--encoder", encoder_path, "-L", 48]
    done = run_spacy("elq", "encode", "memory://in/entities.jsonl", "memory://out", *options)
    assert done.returncode == 0, done.stderr
    assert "memory://out: 10 entities, vectors of width 48" in done.stdout
    assert download("memory://out", tmp_path / "copy").vectors.shape == (10, 48)


def test_npz_and_back():
    rows, vectors = np.array([0, 2]), np.ones((2, 3), dtype="float32")
    found = from_npz(to_npz(rows, vectors))
    np.testing.assert_array_equal(found[0], rows)
    np.testing.assert_array_equal(found[1], vectors)
    assert from_npz(to_npz(rows, vectors)[:-30]) is None
