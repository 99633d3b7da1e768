"""Any byte of any file: damage is found, or harmless."""

import random
import shutil
from pathlib import Path

import numpy as np
import pytest
from index_world import NAMES, QUERIES, Texts, ask, is_same, make_entity, make_index

from spacy_elq.core.similarity import Prior
from spacy_elq.errors import ELQError
from spacy_elq.index import EntityIndex, check_index, register_encoder

IDS = [f"E{i}" for i in range(20)]
FLIPS = 400


def write_index(folder, *, does_change):
    """An index with a back end, a bundled encoder, gaps, changes and removals."""
    index = make_index(folder, [make_entity(i) for i in range(40)], factory="HNSW8")
    if does_change:
        index.remove(["E7", "E8"])
        index.add([make_entity(3, 1)], Texts())
        index.compact()
        index.add([make_entity(i, 2) for i in (4, 50, 51)], Texts())
        index.remove(["E5", "E51"])
    (index.path / "encoder").mkdir()
    (index.path / "encoder" / "weights.bin").write_bytes(np.random.default_rng(0).bytes(500))
    register_encoder(index.path)
    index.close()
    assert check_index(index.path) == []
    return index.path


def files_of(folder):
    skipped = (".lock", "entities.db-wal", "entities.db-shm")
    return sorted(path for path in folder.rglob("*") if path.is_file() and path.name not in skipped)


def flip(path, place, mask):
    with path.open("r+b") as file_:
        file_.seek(place)
        byte = file_.read(1)[0]
        file_.seek(place)
        file_.write(bytes([byte ^ mask]))


def is_harmless(folder, expected):
    """Whether all answers are as before; an error, or another answer, is not."""
    index = EntityIndex.open(folder)
    try:
        return is_same(ask(index, ids=IDS), expected)
    finally:
        index.close()


def choose(rng, files):
    """A byte of any file; of the database, half of the time one that is likely to matter."""
    path = rng.choice([*files, *(path for path in files if path.name == "entities.db")])
    data = path.read_bytes()
    place = rng.randrange(len(data))
    if path.name == "entities.db":
        used = np.flatnonzero(np.frombuffer(data, dtype="uint8"))
        place = int(used[rng.randrange(len(used))]) if rng.random() < 0.8 else rng.randrange(len(data))
        place = rng.randrange(100) if rng.random() < 0.05 else place
    return path, place, rng.choice([1 << rng.randrange(8), rng.randrange(1, 256)])


@pytest.mark.parametrize("does_change", [True, False])
def test_a_flipped_byte_is_found_or_harmless(quick_path, does_change):
    folder = write_index(quick_path / "original", does_change=does_change)
    opened = EntityIndex.open(folder)
    expected = ask(opened, ids=IDS)
    opened.close()
    files = files_of(folder)
    assert [path.name.split("-")[0] for path in files] == ["weights.bin", "entities.db", "search", "vectors"]
    rng = random.Random(f"flips {does_change}")
    found = 0
    for _ in range(FLIPS // 2):
        path, place, mask = choose(rng, files)
        copy = Path(shutil.copytree(folder, quick_path / "copy"))
        where = copy / path.relative_to(folder)
        flip(where, place, mask)
        if check_index(copy):
            found += 1
        else:
            assert is_harmless(copy, expected), f"{path.name}, byte {place}, mask {mask}"
        shutil.rmtree(copy)
    assert found > FLIPS // 4


@pytest.mark.parametrize("role", ["vectors-*.npy", "search-*.faiss", "encoder/*"])
def test_every_byte_beside_the_database_counts(quick_path, role):
    folder = write_index(quick_path, does_change=True)
    (path,) = folder.glob(role)
    rng = random.Random(role)
    for _ in range(20):
        place, mask = rng.randrange(path.stat().st_size), rng.randrange(1, 256)
        flip(path, place, mask)
        assert len(check_index(folder)) == 1, f"byte {place}, mask {mask}"
        flip(path, place, mask)
    assert check_index(folder) == []


def test_a_damaged_database_is_an_error_of_ours_or_none(quick_path):
    """Opening, reading an entity and searching never end in a traceback of something below."""
    folder = write_index(quick_path / "original", does_change=True)
    path = folder / "entities.db"
    data = path.read_bytes()
    rng = random.Random(5)
    for _ in range(80):
        place, mask = choose(rng, [path])[1:]
        path.write_bytes(data)
        flip(path, place, mask)
        try:
            index = EntityIndex.open(folder)
            index.search(QUERIES, 3, names=NAMES, prior=Prior(name_weight=1.0, popularity_weight=1.0))
            list(index)
            index.close()
        except ELQError as err:
            assert str(folder) in str(err)  # noqa: PT017
        finally:
            for rest in folder.glob("entities.db-*"):
                rest.unlink()
