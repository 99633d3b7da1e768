import json
import os
import pickle
import shutil
import sqlite3
from functools import partial

import numpy as np
import pytest
from conftest import ENTITIES
from index_world import (
    QUERIES,
    Texts,
    ask,
    assert_same,
    encode,
    make_entity,
    make_index,
    names,
    write_catalogue,
)

from spacy_elq.core.similarity import Prior
from spacy_elq.errors import ELQError
from spacy_elq.index import EntityIndex, Within, build_index, build_index_loader, check_index, copy_index
from spacy_elq.index import build as module
from spacy_elq.index.backend import build_backend, plan_backend
from spacy_elq.index.files import NOTES, SEARCH, VECTORS, WORK, named_files, note_files

IDS = [f"E{i}" for i in range(15)]
HNSW = {"factory": "HNSW128", "efConstruction": 200, "efSearch": 256}


@pytest.fixture
def vectors(quick_path):
    return encode(quick_path, [make_entity(i) for i in range(12)])


@pytest.fixture
def hnsw(vectors, quick_path):
    return build_index(vectors, quick_path / "index", factory="HNSW128")


def no_room(monkeypatch, free):
    monkeypatch.setattr(shutil, "disk_usage", lambda path: shutil._ntuple_diskusage(10**9, 10**9, free))


def refuse(*args, **kwargs):
    raise AssertionError


# Opening


def test_the_stamp_tells_what_is_in_the_index(index, vectors_path, entity_encoder):
    assert index.stamp == EntityIndex.open(vectors_path).stamp
    assert index.stamp == {
        "catalogue": index.meta["catalogue"],
        "encoder": entity_encoder.fingerprint,
        "width": 48,
    }
    assert len(index) == len(ENTITIES)


def test_the_stamp_stays_when_entities_change(hnsw):
    before = hnsw.stamp
    hnsw.add([make_entity(50)], Texts())
    hnsw.remove(["E1"])
    hnsw.compact()
    assert hnsw.stamp == before


def test_an_index_knows_its_folder(hnsw):
    assert hnsw.paths == [hnsw.path]
    assert hnsw.sources(np.asarray([1, 2])) == [str(hnsw.path)] * 2


@pytest.mark.parametrize("make", [lambda path: None, lambda path: path.mkdir(), lambda path: path.touch()])
def test_a_missing_folder_is_an_error_with_the_commands_to_type(tmp_path, make):
    make(tmp_path / "nowhere")
    with pytest.raises(ELQError, match=r"is not an entity index.*elq encode.*elq index") as error:
        EntityIndex.open(tmp_path / "nowhere")
    assert str(tmp_path / "nowhere") in str(error.value)


def test_a_folder_in_place_of_the_database(tmp_path, vectors):
    (tmp_path / "entities.db").mkdir()
    with pytest.raises(ELQError, match=f"E030.*{tmp_path}"):
        EntityIndex.open(tmp_path)
    with pytest.raises(ELQError, match=f"E162.*{tmp_path}.*entities.db is a folder"):
        build_index(vectors, tmp_path)


def write_foreign(path):
    path.unlink()
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE entities (id)")
    connection.close()


DAMAGES = {
    "empty": lambda path: path.write_bytes(b""),
    "random": lambda path: path.write_bytes(np.random.default_rng(0).bytes(9999)),
    "header": lambda path: path.write_bytes(b"xQLite" + path.read_bytes()[6:]),
    "half": lambda path: path.write_bytes(path.read_bytes()[: path.stat().st_size // 2]),
    "one page": lambda path: path.write_bytes(path.read_bytes()[:4096]),
    "a hundred bytes": lambda path: path.write_bytes(path.read_bytes()[:100]),
    "foreign": write_foreign,
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_database_is_named_and_can_be_replaced(hnsw, vectors, damage):
    hnsw.close()
    DAMAGES[damage](hnsw.path / "entities.db")
    with pytest.raises(ELQError, match=f"E031.*{hnsw.path}.*entities.db"):
        EntityIndex.open(hnsw.path).search(QUERIES, 3)
    assert check_index(hnsw.path)
    build_index(vectors, hnsw.path)
    assert len(EntityIndex.open(hnsw.path)) == 12
    assert check_index(hnsw.path) == []


def test_a_damaged_index_is_not_removed_before_there_is_another(hnsw, vectors):
    hnsw.close()
    DAMAGES["header"](hnsw.path / "entities.db")
    before = sorted(path.name for path in hnsw.path.iterdir())
    with pytest.raises(ELQError, match="E034"):
        build_index(vectors, hnsw.path, factory="Nonsense")
    with pytest.raises(ELQError, match="E031"):
        build_index(hnsw.path, hnsw.path)
    assert sorted(path.name for path in hnsw.path.iterdir()) == before


@pytest.mark.parametrize(("role", "code"), [(VECTORS, "E031"), (SEARCH, "E164")])
@pytest.mark.parametrize("data", [b"", b"x", None])
def test_damaged_files_are_named(hnsw, role, code, data):
    hnsw.close()
    path = named_files(hnsw._database)[role]
    size = path.stat().st_size
    path.write_bytes(np.random.default_rng(1).bytes(size) if data is None else data)
    with pytest.raises(ELQError, match=f"{code}.*{hnsw.path}.*{path.name}"):
        EntityIndex.open(hnsw.path)


def test_vectors_of_another_catalogue_are_damage(hnsw):
    path = named_files(hnsw._database)[VECTORS]
    np.save(path, np.zeros((11, 8), dtype="float32"))
    entries = hnsw.meta["files"]
    entries[VECTORS]["bytes"] = path.stat().st_size
    hnsw._database.set_meta(files=entries)
    with pytest.raises(ELQError, match=r"E031.*has 11 vectors instead of 12"):
        EntityIndex.open(hnsw.path)


@pytest.mark.parametrize("key", ["base", "files"])
def test_an_index_that_is_not_complete(hnsw, key):
    hnsw._database.set_meta(**{key: None})
    with pytest.raises(ELQError, match=r"E031.*is not complete, or not an index"):
        EntityIndex.open(hnsw.path)


def test_pickle_opens_the_index_again(vectors, quick_path, monkeypatch):
    build_index(vectors, quick_path / "index")
    monkeypatch.chdir(quick_path)
    opened = EntityIndex.open("index")
    data = pickle.dumps(opened)
    assert len(data) < 1000
    monkeypatch.chdir("/")
    assert_same(ask(pickle.loads(data), ids=IDS), ask(opened, ids=IDS))


def test_the_loader_opens_when_it_is_called(index, tmp_path):
    assert build_index_loader(index.path)().stamp == index.stamp
    loader = build_index_loader(tmp_path / "nowhere")
    with pytest.raises(ELQError, match="nowhere"):
        loader()


# Building


def test_meta_says_how_it_is_searched(hnsw, vectors, quick_path):
    assert hnsw.meta["backend"] == HNSW
    assert build_index(vectors, quick_path / "default").meta["backend"] == {"factory": "Flat"}
    assert "backend" not in EntityIndex.open(vectors).meta


def test_the_vectors_stay_usable(vectors, hnsw):
    source = EntityIndex.open(vectors)
    assert source.stamp == hnsw.stamp
    np.testing.assert_array_equal(source.vectors, hnsw.vectors)


def test_an_index_can_be_built_from_another(hnsw, quick_path):
    flat = build_index(hnsw.path, quick_path / "flat", factory="Flat")
    assert flat.meta["backend"] == {"factory": "Flat"}
    assert flat.stamp == hnsw.stamp
    assert_same(ask(flat, ids=IDS), ask(hnsw, ids=IDS))
    assert check_index(flat.path) == []


def test_an_index_with_changes_can_be_built_from(hnsw, quick_path):
    hnsw.add([make_entity(3, 1), make_entity(14)], Texts())
    hnsw.remove(["E1"])
    for factory in ("Flat", None):
        built = build_index(hnsw.path, quick_path / "other", factory=factory)
        assert_same(ask(built, ids=IDS), ask(hnsw, ids=IDS))
        built.add([make_entity(13)], Texts())
        built.compact()
        assert check_index(built.path) == []
    assert "E13" not in hnsw


def test_an_index_can_be_rebuilt_from_itself(hnsw):
    before = ask(hnsw, ids=IDS)
    assert_same(ask(build_index(hnsw.path, hnsw.path, factory="Flat"), ids=IDS), before)
    assert_same(ask(hnsw, ids=IDS), before)
    assert names(hnsw.path) == ["entities.db", "vectors.npy"]


def test_an_open_index_sees_its_replacement_and_a_reader_inside_a_block_does_not(hnsw, quick_path):
    smaller = encode(quick_path / "small", [make_entity(i) for i in range(5)])
    with hnsw.reading():
        before = ask(hnsw, ids=IDS)
        new = build_index(smaller, hnsw.path, factory="Flat")
        assert_same(ask(hnsw, ids=IDS), before)
    assert (len(new), len(hnsw)) == (5, 5)
    assert_same(ask(hnsw, ids=IDS), ask(new, ids=IDS))
    assert names(hnsw.path) == ["entities.db", "vectors.npy"]


@pytest.mark.parametrize("factory", ["Nonsense", "IVF1000,Flat"])
@pytest.mark.filterwarnings("ignore:.*W003")
def test_a_failed_build_leaves_the_old_index(hnsw, vectors, factory):
    before = ask(hnsw, ids=IDS)
    with pytest.raises(ELQError, match=factory):
        build_index(vectors, hnsw.path, factory=factory)
    assert_same(ask(EntityIndex.open(hnsw.path), ids=IDS), before)
    assert names(hnsw.path) == ["entities.db", "search.faiss", "vectors.npy"]
    assert (hnsw.path / ".lock").exists(), "others may hold it"


def test_a_failed_build_leaves_no_folder(vectors, quick_path):
    with pytest.raises(ELQError, match="E034"), pytest.warns(UserWarning, match="W003"):
        build_index(vectors, quick_path / "index", factory="IVF1000,Flat")
    assert not (quick_path / "index").exists()


def test_a_failed_build_leaves_a_folder_with_other_files(vectors, quick_path):
    (quick_path / "index").mkdir()
    (quick_path / "index" / "README.md").touch()
    with pytest.raises(ELQError, match="E034"):
        build_index(vectors, quick_path / "index", factory="Nonsense")
    assert names(quick_path / "index") == ["README.md"]


def test_a_killed_build_leaves_the_old_index(hnsw, vectors, monkeypatch):
    def killed(*args, **kwargs):
        raise KeyboardInterrupt

    before = ask(hnsw, ids=IDS)
    with monkeypatch.context() as patch:
        patch.setattr(module, "publish", killed)
        with pytest.raises(KeyboardInterrupt):
            build_index(vectors, hnsw.path, factory="Flat")
    assert_same(ask(EntityIndex.open(hnsw.path), ids=IDS), before)
    assert names(hnsw.path) == ["entities.db", "search.faiss", "vectors.npy"]


def test_missing_vectors_make_no_index_folder(tmp_path):
    with pytest.raises(ELQError, match="nowhere"):
        build_index(tmp_path / "nowhere", tmp_path / "index")
    assert not (tmp_path / "index").exists()


@pytest.mark.parametrize("factory", ["HNSW16_SQ8", None])
def test_an_index_of_the_same_kind_is_searched_otherwise_without_building_it(
    vectors, quick_path, monkeypatch, factory
):
    first = build_index(vectors, quick_path / "index", factory="HNSW16_SQ8", widths={"rescore": 50})
    monkeypatch.setattr(module, "build_backend", refuse)
    build_index(first.path, first.path, factory=factory, widths={"efSearch": 9})
    expected = {"factory": "HNSW16_SQ8", "efConstruction": 200, "efSearch": 9, "rescore": 50}
    assert EntityIndex.open(first.path).meta["backend"] == expected


def test_an_index_of_another_kind_is_built_anew(hnsw, quick_path):
    index = build_index(hnsw.path, quick_path / "other", factory="HNSW16_SQ8")
    sizes = [meta["files"][SEARCH]["bytes"] for meta in (index.meta, hnsw.meta)]
    assert sizes[0] < sizes[1]
    assert index.meta["backend"]["rescore"] == 100


@pytest.mark.parametrize("factory", ["Flat", "HNSW8"])
def test_vectors_may_be_stored_in_16_bits(quick_path, factory):
    entities = [make_entity(i) for i in range(40)]
    exact = make_index(quick_path, entities, factory=factory)
    small = build_index(exact.path, quick_path / "small", dtype="float16")
    assert small.vectors.dtype == "float16"
    assert small.vectors.nbytes == exact.vectors.nbytes / 2
    assert small.meta["backend"] == exact.meta["backend"]
    assert names(small.path) == names(exact.path)
    assert check_index(small.path) == []
    queries = np.random.default_rng(0).normal(size=(6, exact.width)).astype("float32")

    def same(found, expected):
        assert found[1].dtype == expected[1].dtype == "float32"
        np.testing.assert_allclose(found[1], expected[1], atol=0.02)

    same(small.search(queries, 5), exact.search(queries, 5))
    # also those that are found by name, those that count, and those that are added
    more = {"names": ["name 3"] * 6, "prior": Prior(name_weight=2.0)}
    within = Within.make({"tags": ["tag-1"]})
    same(small.search(queries, 5, within=within, **more), exact.search(queries, 5, within=within, **more))
    for index in (small, exact):
        index.add([make_entity(50)], Texts())
    same(small.search(queries, 5), exact.search(queries, 5))
    # it stays small, unless it is asked otherwise
    small.compact()
    assert small.vectors.dtype == "float16"
    same(small.search(queries, 5), exact.search(queries, 5))
    assert build_index(small.path, small.path).vectors.dtype == "float16"
    assert build_index(small.path, small.path, dtype="float32").vectors.dtype == "float32"
    with pytest.raises(ELQError, match=r"E002.*`dtype`.*'int4', expected float32 or float16"):
        build_index(small.path, small.path, dtype="int4")


def test_no_room_on_the_disk_is_said_before_anything_is_written(vectors, quick_path, monkeypatch):
    no_room(monkeypatch, 3000)
    with pytest.raises(ELQError, match=r"E083.*new/index.*about 1. KB are needed, 3 KB are free"):
        build_index(vectors, quick_path / "new" / "index", factory="HNSW128")
    assert not (quick_path / "new" / "index").exists()
    assert len(build_index(vectors, quick_path / "new" / "index", factory="Flat")) == 12, "needs no room"


def test_the_room_for_vectors_counts_where_they_have_to_be_copied(vectors, quick_path, monkeypatch):
    no_room(monkeypatch, 500)
    monkeypatch.setattr("spacy_elq.index.files._device", lambda path: "vectors" in str(path))
    with pytest.raises(ELQError, match="E083"):
        build_index(vectors, quick_path / "index", factory="Flat")


def test_nobody_else_builds_in_the_same_folder(vectors, quick_path):
    with module.making(quick_path / "index"), pytest.raises(ELQError, match="E163"):
        build_index(vectors, quick_path / "index")


# Copying


@pytest.mark.parametrize("links", [True, False])
def test_a_copy_is_equal_and_stands_alone(hnsw, quick_path, monkeypatch, links):
    def refuse(*args):
        raise OSError

    if not links:
        monkeypatch.setattr(os, "link", refuse)
    hnsw.add([make_entity(14)], Texts())
    before, meta = ask(hnsw, ids=IDS), hnsw.meta
    copy_index(hnsw, quick_path / "a" / "copy")
    shutil.rmtree(hnsw.path)
    copied = EntityIndex.open(quick_path / "a" / "copy")
    found = copied.meta
    sums = [{role: entry["sum"] for role, entry in x.pop("files").items()} for x in (meta, found)]
    assert sums[0] == sums[1]
    assert found == meta
    assert_same(ask(copied, ids=IDS), before)


def test_a_copy_takes_no_space_where_links_are_possible(hnsw, quick_path):
    copy_index(hnsw, quick_path / "copy")
    copied = EntityIndex.open(quick_path / "copy")
    for role in (VECTORS, SEARCH):
        assert named_files(copied._database)[role].samefile(named_files(hnsw._database)[role])


def test_what_becomes_of_a_copy_does_not_change_the_original(hnsw, quick_path):
    before = ask(hnsw, ids=IDS)
    copy_index(hnsw, quick_path / "copy")
    copied = EntityIndex.open(quick_path / "copy")
    copied.add([make_entity(2, 1)], Texts())
    copied.remove(["E3"])
    copied.compact()
    assert_same(ask(hnsw, ids=IDS), before)
    assert check_index(hnsw.path) == check_index(copied.path) == []


def test_copying_again_or_onto_itself_changes_nothing(hnsw, quick_path):
    before = ask(hnsw, ids=IDS)
    for folder in (hnsw.path, quick_path / "copy", quick_path / "copy"):
        copy_index(hnsw, folder)
        assert names(folder) == ["entities.db", "search.faiss", "vectors.npy"]
        assert_same(ask(EntityIndex.open(folder), ids=IDS), before)


def test_copying_again_mends_a_copy_that_was_killed(hnsw, quick_path):
    copy = quick_path / "copy"
    copy.mkdir()
    for name in ("vectors-01234567.npy", WORK, f"{WORK}-wal", ".spacy-elq-entities.db"):
        (copy / name).write_bytes(b"half")
    note_files(copy, [copy / "vectors-01234567.npy"])
    copy_index(hnsw, copy)
    assert names(copy) == ["entities.db", "search.faiss", "vectors.npy"]
    assert check_index(copy) == []


def test_a_copy_replaces_the_index_that_was_there(hnsw, vectors, quick_path):
    copy_index(build_index(vectors, quick_path / "flat"), quick_path / "copy")
    reader = EntityIndex.open(quick_path / "copy")
    copy_index(hnsw, quick_path / "copy")
    assert reader.meta["backend"] == HNSW
    assert names(quick_path / "copy") == ["entities.db", "search.faiss", "vectors.npy"]


def test_other_files_stay_where_an_index_is_made(vectors, quick_path):
    folder = quick_path / "data"
    folder.mkdir()
    mine = ["entities-20240115.jsonl", "embeddings-20240115.npy", "vectors-20240115.npy", "new.db"]
    for name in (*mine, "meta.json"):
        (folder / name).write_text('{"format": "mine"}')
    for _ in range(2):
        build_index(vectors, folder, factory="HNSW8").close()
        left = ["embeddings.npy", "entities.jsonl", "vectors.npy", "new.db", "meta.json"]
        assert names(folder) == sorted([*left, "entities.db", "search.faiss", "vectors.npy"])
    assert check_index(folder) == []


# Links


def write_links(folder, mine):
    """Links to the file of somebody else under the names that our files have while they are made."""
    for name in (WORK, f"{WORK}.faiss", f"{WORK}.vectors.npy", ".spacy-elq-entities.db", NOTES):
        (folder / name).symlink_to(mine)


@pytest.mark.parametrize("is_damaged", [True, False])
def test_a_link_does_not_lead_to_the_file_of_somebody_else(vectors, quick_path, is_damaged):
    (quick_path / "mine.txt").write_text("mine")
    folder = quick_path / "foreign"
    folder.mkdir()
    write_links(folder, quick_path / "mine.txt")
    if is_damaged:
        (folder / "entities.db").write_bytes(b"garbage" * 100)
    assert len(build_index(vectors, folder, factory="HNSW8")) == 12
    assert (quick_path / "mine.txt").read_text() == "mine"
    assert names(folder) == ["entities.db", "search.faiss", "vectors.npy"]


@pytest.mark.parametrize("place", ["encoder", "encoder/deep/weights.bin"])
@pytest.mark.parametrize("how", ["copy", "build"])
def test_a_link_in_the_encoder_is_not_copied(hnsw, quick_path, place, how):
    (quick_path / "private").mkdir()
    link = hnsw.path / place
    link.parent.mkdir(parents=True, exist_ok=True)
    link.symlink_to(quick_path / "private")
    work = partial(copy_index, hnsw) if how == "copy" else partial(build_index, hnsw.path)
    with pytest.raises(ELQError, match=rf"E193.*{link} is a link"):
        work(quick_path / "copy")
    assert not (quick_path / "copy").exists()


def test_a_link_to_the_encoder_stays_where_an_index_is_built_anew(hnsw, quick_path):
    (quick_path / "model").mkdir()
    (hnsw.path / "encoder").symlink_to(quick_path / "model")
    build_index(hnsw.path, hnsw.path, factory="Flat")
    assert (hnsw.path / "encoder").is_symlink()


def test_a_copy_of_an_index_of_links_stands_alone(hnsw, quick_path):
    linked = quick_path / "linked"
    linked.mkdir()
    for path in (hnsw.path / "entities.db", *named_files(hnsw._database).values()):
        (linked / path.name).symlink_to(path)
    copy_index(EntityIndex.open(linked), quick_path / "a" / "copy")
    assert not [path for path in (quick_path / "a" / "copy").iterdir() if path.is_symlink()]
    shutil.rmtree(hnsw.path)
    assert check_index(quick_path / "a" / "copy") == []


# The format of spacy-elq 0.2


def write_old(folder, entities, *, factory=None, **meta):
    """An index as spacy-elq 0.2 wrote it."""
    folder.mkdir(parents=True)
    texts = write_catalogue(folder / "records.jsonl", entities)
    array = Texts().encode(entities, batch_size=1)
    np.save(folder / "vectors.npy", array)
    for role in ("offsets.npy", "ids.npy", "names.npy", "popularity.npy"):
        np.save(folder / role, np.zeros(3))
    settings = None
    if factory is not None:
        settings, _ = plan_backend(array.shape, factory=factory)
        build_backend(array, folder / "search.faiss", settings=settings, progress=False)
    files = {}
    for path in sorted(folder.iterdir()):
        name = f"{path.stem}-0123abcd{path.suffix}"
        path.rename(folder / name)
        files[path.name] = {"name": name, "bytes": (folder / name).stat().st_size}
    assert texts.name in files
    content = {"format": 2, "catalogue": "c", "encoder": {"name": "texts", "fingerprint": "texts"}}
    if settings is not None:
        content["backend"] = settings
    (folder / "meta.json").write_text(json.dumps({**content, "files": files, **meta}))
    return folder


OLD = [make_entity(i) for i in range(12)]


@pytest.mark.parametrize("factory", [None, "Flat", "HNSW128"])
@pytest.mark.parametrize("in_place", [True, False])
def test_an_old_index_is_converted_without_encoding(quick_path, hnsw, monkeypatch, factory, in_place):
    old = write_old(quick_path / "old", OLD, factory=factory)
    if factory is not None:
        monkeypatch.setattr(
            module, "build_backend", lambda *args, **kwargs: None if factory == "Flat" else 1 / 0
        )
    with pytest.raises(ELQError, match=f"E032.*elq index {old} NEW-FOLDER"):
        EntityIndex.open(old)
    target = old if in_place else quick_path / "new"
    converted = build_index(old, target)
    assert_same(ask(converted, ids=IDS), ask(hnsw, ids=IDS))
    assert converted.meta["backend"]["factory"] == (factory or "Flat")
    assert converted.meta["encoder"] == {"name": "texts", "fingerprint": "texts"}
    assert check_index(target) == []
    converted.add([make_entity(14)], Texts())
    assert "E14" in EntityIndex.open(target)


def test_the_old_format_is_left_alone_where_there_is_a_new_one_already(quick_path, hnsw):
    write_old(quick_path / "old", OLD[:3])
    copy_index(hnsw, quick_path / "old")
    assert len(build_index(quick_path / "old", quick_path / "new")) == 12


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (lambda old, meta: meta.update(format=1), r"meta\.json has the format 1, expected 2"),
        (lambda old, meta: meta.pop("format"), r"meta\.json cannot be read"),
        (lambda old, meta: meta.pop("files"), r"meta\.json cannot be read"),
        (lambda old, meta: meta.pop("encoder"), r"meta\.json cannot be read"),
        (lambda old, meta: meta.update(encoder={}), r"meta\.json cannot be read"),
        (lambda old, meta: meta.update(encoder=None), r"meta\.json cannot be read"),
        (lambda old, meta: meta["files"].pop("records.jsonl"), r"meta\.json cannot be read"),
        (lambda old, meta: meta["files"].pop("vectors.npy"), r"meta\.json cannot be read"),
        (lambda old, meta: meta["files"]["ids.npy"].pop("bytes"), r"meta\.json cannot be read"),
        (
            lambda old, meta: meta["files"]["vectors.npy"].update(bytes=7),
            "vectors-0123abcd.npy has 512 bytes",
        ),
        (
            lambda old, meta: meta["files"]["ids.npy"].update(name="../x.npy"),
            "names '../x.npy', which is not",
        ),
        (
            lambda old, meta: meta["files"]["ids.npy"].update(name="/etc/passwd"),
            "'/etc/passwd', which is not",
        ),
        (lambda old, meta: (old / "ids-0123abcd.npy").unlink(), "names 'ids-0123abcd.npy', which is not"),
    ],
)
def test_an_old_index_that_is_damaged_is_refused(quick_path, change, problem):
    old = write_old(quick_path / "old", OLD)
    (quick_path / "x.npy").touch()
    meta = json.loads((old / "meta.json").read_text())
    change(old, meta)
    (old / "meta.json").write_text(json.dumps(meta))
    with pytest.raises(ELQError, match=f"E031.*{old}.*{problem}"):
        build_index(old, quick_path / "new")
    assert not (quick_path / "new").exists()


@pytest.mark.parametrize("text", ["", "{", "[]", "7", "null", "\udcff", "[" * 100_000])
def test_an_old_index_whose_meta_cannot_be_read_is_refused(quick_path, text):
    old = write_old(quick_path / "old", OLD)
    (old / "meta.json").write_bytes(text.encode("utf8", "surrogateescape"))
    with pytest.raises(ELQError, match=r"E031.*meta\.json cannot be read"):
        build_index(old, quick_path / "new")


def test_old_vectors_of_another_catalogue_are_refused(quick_path):
    old = write_old(quick_path / "old", OLD)
    short = write_old(quick_path / "short", OLD[:5])
    shutil.copyfile(short / "vectors-0123abcd.npy", old / "vectors-0123abcd.npy")
    meta = json.loads((old / "meta.json").read_text())
    meta["files"]["vectors.npy"]["bytes"] = (old / "vectors-0123abcd.npy").stat().st_size
    (old / "meta.json").write_text(json.dumps(meta))
    with pytest.raises(ELQError, match=r"5 vectors (for|instead of) 12"):
        build_index(old, quick_path / "new")
    assert not (quick_path / "new").exists()


@pytest.mark.parametrize("source", ["itself", "other"])
def test_an_old_index_survives_a_build_in_its_place_that_fails(quick_path, vectors, source):
    old = write_old(quick_path / "old", OLD, factory="HNSW8")
    before = sorted(path.name for path in old.iterdir())
    with pytest.raises(ELQError, match="E034"):
        build_index(old if source == "itself" else vectors, old, factory="Nonsense")
    assert sorted(path.name for path in old.iterdir() if path.name != ".lock") == before
    assert len(build_index(old, quick_path / "new")) == 12


LIKE_OURS = {"format": 2, "catalogue": "c", "files": {"records.jsonl": {"name": "records-0123abcd.jsonl"}}}


@pytest.mark.parametrize(
    "content",
    [
        {"mine": 1},
        {"format": "csv"},
        [],
        {**LIKE_OURS, "format": 3},
        {**LIKE_OURS, "catalogue": 5},
        {**LIKE_OURS, "files": []},
        {**LIKE_OURS, "files": {"records.jsonl": "records-0123abcd.jsonl"}},
        {**LIKE_OURS, "files": {"records.jsonl": {"name": "other-0123abcd.jsonl"}}},
        {**LIKE_OURS, "files": {"records.jsonl": {"name": 5}}},
        {**LIKE_OURS, "files": {"../x.jsonl": {"name": "../x-0123abcd.jsonl"}}},
    ],
)
def test_the_meta_file_of_others_stays(quick_path, hnsw, vectors, content):
    (hnsw.path / "meta.json").write_text(json.dumps(content))
    for name in ("records-0123abcd.jsonl", "other-0123abcd.jsonl"):
        (hnsw.path / name).touch()
    build_index(vectors, hnsw.path)
    assert (hnsw.path / "meta.json").exists()
    assert (hnsw.path / "records-0123abcd.jsonl").exists()


@pytest.mark.parametrize("format_", [2, "dictionary 1"])
def test_what_the_old_format_names_goes_with_it(hnsw, vectors, format_):
    (hnsw.path / "meta.json").write_text(json.dumps({**LIKE_OURS, "format": format_}))
    for name in ("records-0123abcd.jsonl", "other-0123abcd.jsonl"):
        (hnsw.path / name).touch()
    build_index(vectors, hnsw.path)
    assert names(hnsw.path) == ["entities.db", "other.jsonl", "vectors.npy"]


def test_an_old_index_in_place_leaves_nothing_of_the_old_format(quick_path):
    old = write_old(quick_path / "old", OLD, factory="HNSW8")
    build_index(old, old)
    assert names(old) == ["entities.db", "search.faiss", "vectors.npy"]
