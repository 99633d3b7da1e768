import os
import pickle
import threading

import numpy as np
import pytest
from index_world import (
    NAMES,
    QUERIES,
    Texts,
    ask,
    assert_same,
    in_child,
    make_entity,
    make_index,
)

from spacy_elq.core.similarity import Prior
from spacy_elq.errors import ELQError
from spacy_elq.index import EntityIndex, EntityIndexes, build_index, check_index, encode_catalogue, open_index
from spacy_elq.index import entity_index as index_module
from spacy_elq.types import Entity

IDS = [f"E{i}" for i in range(30)]
NOBODY = 65534
needs_root = pytest.mark.skipif(
    not hasattr(os, "geteuid") or os.geteuid() != 0, reason="only root can become a user who may not write"
)
# the second hides 3 to 5 of the first, the third 5 of both
WHOLE = [make_entity(i) for i in range(3)] + [make_entity(i, 1) for i in (3, 4, 6, 7)]
WHOLE += [make_entity(i, 2) for i in (5, 9)]


@pytest.fixture
def folders(quick_path):
    parts = [
        [make_entity(i) for i in range(6)],
        [make_entity(i, 1) for i in range(3, 8)],
        [make_entity(i, 2) for i in (5, 9)],
    ]
    return [make_index(quick_path / str(i), part).path for i, part in enumerate(parts)]


@pytest.fixture
def several(folders):
    return open_index(folders)


@pytest.fixture
def whole(quick_path):
    """The same entities in one index."""
    return make_index(quick_path / "whole", WHOLE)


def test_a_later_index_hides_entities_of_an_earlier_one(several, whole):
    assert_same(ask(several, ids=IDS), ask(whole, ids=IDS))
    assert isinstance(several, EntityIndexes)
    assert sorted(entity.id for entity in several) == sorted(entity.id for entity in WHOLE)


@pytest.mark.parametrize("within", [None, {"labels": ["GPE"]}, {"tags": ["tag-0"]}, {"ids": ["E5", "E1"]}])
@pytest.mark.parametrize("prior", [Prior(), Prior(popularity_weight=0.5), Prior(name_weight=2.0)])
def test_candidates_come_from_all_of_them(several, whole, within, prior):
    names = ["title 1" if i % 2 else "alias 5" for i in range(len(QUERIES))]
    found = several.search(QUERIES, 4, names=names, prior=prior, within=within)
    expected = whole.search(QUERIES, 4, names=names, prior=prior, within=within)
    for (a, s), (b, t) in zip(zip(*found, strict=True), zip(*expected, strict=True), strict=True):
        assert [h[0] for h in several.heads(a[a >= 0])] == [h[0] for h in whole.heads(b[b >= 0])]
        np.testing.assert_allclose(s[a >= 0], t[b >= 0], rtol=1e-5)


def test_names_are_found_in_all_of_them(several, whole):
    for within in (None, {"tags": ["tag-1"]}):
        owners, positions, degrees = several.match_names(NAMES[:5], alias_share=0.75, within=within)
        named = zip(owners.tolist(), [h[0] for h in several.heads(positions)], degrees.tolist(), strict=True)
        owners, positions, degrees = whole.match_names(NAMES[:5], alias_share=0.75, within=within)
        expected = zip(owners.tolist(), [h[0] for h in whole.heads(positions)], degrees, strict=True)
        assert sorted(named) == sorted(expected)
        assert (
            several.are_names(NAMES, within=within).tolist() == whole.are_names(NAMES, within=within).tolist()
        )


def test_positions_tell_where_an_entity_is(several, folders):
    positions = several.positions(["E0", "E3", "E5", "E404"])
    assert positions[3] == -1
    assert several.sources(positions[:3]) == [str(folder) for folder in folders]
    assert [several.entity(int(p)) for p in positions[:3]] == [
        make_entity(0),
        make_entity(3, 1),
        make_entity(5, 2),
    ]
    assert several.heads(positions[:3][::-1])[0][0] == "E5"
    shape = positions[:2].reshape(2, 1)
    assert several.vectors_at(shape).shape == (2, 1, several.width)
    np.testing.assert_array_equal(
        several.vectors_at(shape)[1, 0], Texts().encode([make_entity(3, 1)], batch_size=1)[0]
    )
    np.testing.assert_allclose(several.popularity_at(shape)[1, 0], np.log1p(make_entity(3, 1).popularity))


def test_an_entity_is_that_of_the_last_index(several):
    assert several["E5"] == make_entity(5, 2)
    assert several["E4"] == make_entity(4, 1)
    assert several["E0"] == make_entity(0)
    assert "E9" in several
    assert "E404" not in several
    with pytest.raises(KeyError):
        several["E404"]


def test_those_of_the_last_index_are_found_first(several):
    assert [entity.description for entity in several.find("alias 5")] == [make_entity(5, 2).description]
    shared = [entity.id for entity in several.find("shared 1")]
    assert shared == [e.id for e in several._indexes[1].find("shared 1")]
    both = several.find("title 1", within={"ids": ["E6", "E1"]})
    assert [entity.id for entity in both] == ["E6"]


def test_what_is_hidden_in_one_index_is_seen_in_it_alone(several, folders):
    assert EntityIndex.open(folders[0])["E3"] == make_entity(3)
    assert several.match_names(["shared 0"])[1].tolist() == several.positions(["E0", "E1", "E2"]).tolist()


def test_changes_go_to_the_last_index(several, folders):
    assert several.add([make_entity(0, 3), make_entity(20)], Texts()) == 2
    assert several.path == folders[2]
    assert several["E0"] == make_entity(0, 3)
    assert several.sources(several.positions(["E0"])) == [str(folders[2])]
    assert EntityIndex.open(folders[0])["E0"] == make_entity(0)
    assert len(several) == len(WHOLE) + 1
    assert several.changes == 2
    assert several.put([make_entity(0, 4), make_entity(21)], Texts()) == (1, 1)
    assert several.put([make_entity(1, 4)], Texts()) == (1, 0), "what it hides is not replaced"


def test_what_is_removed_does_not_come_back_from_below(several, folders):
    before = len(several)
    assert several.remove(id_ for id_ in ["E5", "E5", "E404", "E0"]) == 2
    assert len(several) == before - 2
    assert "E5" not in several
    assert several.match_names(["alias 5"])[1].tolist() == []
    assert all("E5" not in EntityIndex.open(folder) for folder in folders)


def test_only_indexes_that_have_an_entity_are_changed(several, folders, monkeypatch):
    changed = []
    original = EntityIndex.remove
    monkeypatch.setattr(
        EntityIndex, "remove", lambda self, ids: changed.append(self.path) or original(self, ids)
    )
    assert several.remove(["E9"]) == 1
    assert changed == folders[2:]
    assert several.remove(["E4", "E404"]) == 1  # of the second, which hides that of the first
    assert changed == [folders[2], *folders[:2]]
    assert several.remove(["E404"]) == several.remove([]) == 0
    assert len(changed) == 3


def test_a_removal_that_fails_leaves_what_later_indexes_have(several, folders, monkeypatch):
    original = EntityIndex.remove

    def remove(self, ids):
        if self.path == folders[2]:
            raise ELQError("the disk is full")
        return original(self, ids)

    with monkeypatch.context() as patch:
        patch.setattr(EntityIndex, "remove", remove)
        with pytest.raises(ELQError, match="full"):
            several.remove(["E5"])
    assert several["E5"] == make_entity(5, 2)
    assert several.remove(["E5"]) == 1
    assert "E5" not in several


@needs_root
def test_an_index_that_is_read_only_stays_as_it_is(several, folders, caplog):
    """The shared index, to which every customer adds one, as the docs recommend."""
    caplog.set_level("INFO", logger="spacy")
    several.remove(["E0"])
    several.close()
    for path in (folders[2], *folders[2].iterdir()):
        os.chown(path, NOBODY, NOBODY)

    def use():
        own = open_index(folders)
        assert own._indexes[0].is_read_only
        assert not own._indexes[2].is_read_only
        assert own.add([make_entity(0, 7), make_entity(30)], Texts()) == 2
        assert own.remove(["E9", "E404", "E30"]) == 2
        before = ask(own, ids=IDS)
        with pytest.raises(ELQError, match=f"E183.*'E5'.*{folders[0]}, is not writable.*Nothing was removed"):
            own.remove(["E404", "E5"])
        assert_same(ask(own, ids=IDS), before)
        assert own._indexes[2]["E5"] == make_entity(5, 2)
        assert own.compact() is True
        expected = [f"{folder} is read-only and was not compacted" for folder in folders[:2]]
        assert caplog.messages == expected
        assert [index.changes for index in own._indexes] == [1, 0, 0]
        assert_same(ask(own, ids=IDS), before)

    assert in_child(use, user=NOBODY) == 0


def test_an_entity_of_an_earlier_index_is_there_again_when_only_the_later_one_loses_it(several, folders):
    EntityIndex.open(folders[2]).remove(["E5"])
    assert several["E5"] == make_entity(5, 1)
    EntityIndex.open(folders[1]).add([make_entity(1, 5)], Texts())
    assert several["E1"] == make_entity(1, 5)


def test_one_state_of_all_of_them(several, folders):
    with several.reading():
        before = ask(several, ids=IDS)
        other = open_index(folders)
        thread = threading.Thread(target=lambda: (other.remove(["E5", "E0"]), other.compact()))
        thread.start()
        thread.join()
        assert_same(ask(several, ids=IDS), before)
    assert "E5" not in several
    assert_same(ask(several, ids=IDS), ask(other, ids=IDS))


def test_all_of_them_are_compacted(several, folders):
    assert several.compact() is False
    several.remove(["E0"])
    before = ask(several, ids=IDS)
    assert several.compact() is True
    assert several.changes == 0
    assert_same(ask(several, ids=IDS), before)
    assert all(check_index(folder) == [] for folder in folders)


def test_they_are_pickled_by_their_paths(several, folders):
    loaded = pickle.loads(pickle.dumps(several))
    assert loaded.paths == folders
    assert_same(ask(loaded, ids=IDS), ask(several, ids=IDS))


def test_what_they_are(several, folders):
    stamps = [EntityIndex.open(folder).stamp for folder in folders]
    assert several.stamp == {**stamps[0], "catalogue": "+".join(stamp["catalogue"] for stamp in stamps)}
    assert several.meta == EntityIndex.open(folders[2]).meta
    assert several.width == 8
    several.check_encoder(Texts())
    several.close()
    assert len(several) == len(WHOLE)


def test_one_of_several_is_an_index(folders):
    assert isinstance(open_index(folders[:1]), EntityIndex)
    assert isinstance(open_index(folders[0]), EntityIndex)
    assert isinstance(open_index(str(folders[0])), EntityIndex)


def test_indexes_of_different_encoders_do_not_go_together(folders, quick_path):
    class Other(Texts):
        fingerprint = "other"

    catalogue = quick_path / "other.jsonl"
    catalogue.write_text('{"id": "x", "title": "x"}')
    encode_catalogue(catalogue, quick_path / "vectors", Other())
    other = build_index(quick_path / "vectors", quick_path / "other")
    with pytest.raises(ELQError, match=f"E167.*{folders[0]}.*{other.path}"):
        open_index([*folders, other.path])
    with pytest.raises(ELQError, match=r"E167.*texts with fingerprint other here, texts with fingerprint"):
        open_index([*folders, other.path])
    with pytest.raises(ELQError, match="E038"):
        open_index(folders).check_encoder(Other())


def test_what_is_hidden_is_no_reason_to_compact(several, monkeypatch):
    monkeypatch.setattr(index_module, "COMPACT_FROM", 2)
    monkeypatch.setattr(
        index_module, "compact", lambda *args, **kwargs: pytest.fail("3 of 6 are only hidden")
    )
    assert several.remove(["E0"]) == 1
    assert [index.changes for index in several._indexes] == [1, 0, 0]


@pytest.mark.parametrize("larger", ["earlier", "later"])
def test_shared_ids_are_found_from_either_side(quick_path, larger):
    few, many = [make_entity(3, 1)], [make_entity(i) for i in range(10)]
    parts = [many, few] if larger == "earlier" else [few, many]
    several = open_index([make_index(quick_path / str(i), part).path for i, part in enumerate(parts)])
    assert len(several) == 10
    assert several["E3"] == make_entity(3, 1 if larger == "earlier" else 0)


def test_a_spelling_is_doubted_only_where_it_is_nobodys_name_in_any_of_them(quick_path):
    parts = [[Entity("a", "Frida Kahlo")], [Entity("b", "Frieda Kalo")]]
    several = open_index([make_index(quick_path / str(i), part).path for i, part in enumerate(parts)])
    for share in (1.0, 0.5):
        found = several.match_names(["frida kahlo", "fridda kalo"], alias_share=share)
        assert [array.tolist() for array in found[::2]] == [[0, 1, 1], [1.0, 0.5, 0.5]]
        assert several.heads(found[1])[0][0] == "a"
    assert [entity.id for entity in several.find("frida kahlo")] == ["a"]
    prior = Prior(name_weight=100.0)
    positions, similarities = several.search(QUERIES[:1], 2, names=["frida kahlo"], prior=prior)
    assert [head[0] for head in several.heads(positions[0])] == ["a", "b"]
    assert similarities[0, 1] < 40


def test_names_are_not_looked_up_where_they_do_not_count(several, monkeypatch):
    monkeypatch.setattr(EntityIndexes, "match_names", lambda *args, **kwargs: pytest.fail("nobody asked"))
    assert several.search(QUERIES, 3, names=NAMES)[0].shape == (len(QUERIES), 3)
