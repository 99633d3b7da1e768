import gzip
import json
import pickle
import shutil

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tagme_world import ANCHORS, ET, PS, PV, VS, build, sentence

from spacy_elq.baselines.tagme.dictionary import (
    AnchorDictionary,
    build_dictionary,
    count_pages,
    milne_witten,
    ranges,
)
from spacy_elq.baselines.tagme.spotting import name_key
from spacy_elq.errors import ELQError


def anchors_of(dictionary, *names):
    return dictionary.find(np.asarray([name_key(name) for name in names], dtype="uint64"))


def senses_of(dictionary, name, **settings):
    sizes, entities, commonness = dictionary.senses(anchors_of(dictionary, name), **settings)
    assert sizes.tolist() == [len(entities)]
    ids = [dictionary.entity(int(position)).id for position in entities]
    return list(zip(ids, commonness.tolist(), strict=True))


def write_lines(path, *lines):
    path.write_text("".join(line + "\n" for line in lines), encoding="utf8")
    return path


# ---------------------------------------------------------------------- what is in it


def test_link_probability(dictionary):
    # see the table in tagme_world
    names = ["mercury", "quicksilver", "venus", "sun", "thermometer", "venus flytrap", "sun records"]
    probabilities = dictionary.link_probability(anchors_of(dictionary, *names))
    assert probabilities.tolist() == [0.5, 1.0, 0.5, 0.5, 0.25, 1.0, 0.25]


def test_commonness(dictionary):
    # 5 + 1 and 3 + 1 of 10 links
    assert senses_of(dictionary, "mercury") == [("P", 0.6), ("E", 0.4)]
    assert senses_of(dictionary, "mercury (element)") == [("E", 1.0)]


def test_rare_senses_are_left_out_but_never_the_most_common(dictionary):
    assert senses_of(dictionary, "mercury", min_commonness=0.5) == [("P", 0.6)]
    assert senses_of(dictionary, "mercury", min_commonness=0.7) == [("P", 0.6)]
    assert senses_of(dictionary, "mercury", candidates=1) == [("P", 0.6)]


def test_senses_of_several_anchors_stand_one_after_the_other(dictionary):
    anchors = anchors_of(dictionary, "sun", "mercury", "venus")
    sizes, entities, commonness = dictionary.senses(anchors, min_commonness=0.4)
    assert sizes.tolist() == [1, 2, 1]
    assert entities.tolist() == [3, 0, 1, 2]
    assert commonness.tolist() == [1.0, 0.6, 0.4, 1.0]


def test_relatedness(dictionary):
    first, second = np.asarray([[0, 2], [0, 3], [2, 3], [1, 4], [0, 1], [0, 4], [0, 0], [5, 5]]).T
    expected = [PV, PS, VS, ET, 0.0, 0.0, 1.0, 0.0]
    np.testing.assert_allclose(dictionary.relatedness(first, second), expected)


def test_unknown_names_are_not_found(dictionary):
    assert anchors_of(dictionary, "jupiter", "", "a").tolist() == [-1, -1, -1]


def test_entities_are_found_by_id(dictionary):
    assert len(dictionary) == 7
    assert dictionary.positions(["S", "X"]).tolist() == [3, -1]
    assert dictionary.entity(3).title == "Sun"


def test_popularity_decides_between_equals(world, tmp_path):
    lines = [
        '{"id": "A", "title": "Jaguar (cat)", "popularity": 1}',
        '{"id": "B", "title": "Jaguar (car)", "popularity": 2}',
    ]
    catalogue = write_lines(tmp_path / "entities.jsonl", *lines)
    anchors = write_lines(tmp_path / "anchors.tsv", "Panthera onca\tA\t1")
    dictionary, _ = build_dictionary(anchors, catalogue, tmp_path / "out")
    assert senses_of(dictionary, "jaguar") == [("B", 0.5), ("A", 0.5)]


def test_a_letter_or_a_number_is_no_name(tmp_path):
    catalogue = write_lines(
        tmp_path / "entities.jsonl", '{"id": "A", "title": "1984", "aliases": ["X", "O 2"]}'
    )
    anchors = write_lines(tmp_path / "anchors.tsv", "20 12\tA\t3", "é\tA\t4", "novel\tA\t1")
    dictionary, _ = build_dictionary(anchors, catalogue, tmp_path / "out")
    assert anchors_of(dictionary, "1984", "x", "20 12", "e").tolist() == [-1, -1, -1, -1]
    assert (anchors_of(dictionary, "o 2", "novel") >= 0).all()


def test_without_sentences_every_name_is_a_link_and_nothing_is_related(world, tmp_path):
    dictionary = build(world, tmp_path / "out", sentences=[])
    assert dictionary.link_probability(anchors_of(dictionary, "mercury", "sun")).tolist() == [1.0, 1.0]
    assert dictionary.relatedness(np.asarray([0]), np.asarray([2])).tolist() == [0.0]


def test_a_sentence_without_a_page_is_a_page(world, tmp_path):
    records = [sentence("", "[Mercury](P) and [Venus](V)"), sentence("", "[Mercury](P)")]
    path = write_lines(tmp_path / "s.jsonl", *map(json.dumps, records))
    dictionary, report = build_dictionary(
        world / "anchors.tsv", world / "entities.jsonl", tmp_path / "out", sentences=[path]
    )
    assert (report.sentences, report.pages, report.links) == (2, 2, 3)
    # linked from 2 and 1 of 2 pages, 1 in common: 1 - (log 2 - log 1) / (log 2 - log 1)
    assert dictionary.relatedness(np.asarray([0]), np.asarray([2])).tolist() == [0.0]
    joined = write_lines(tmp_path / "t.jsonl", *(json.dumps({**r, "page": "x"}) for r in records))
    dictionary = build(world, tmp_path / "out", sentences=[joined])
    # linked from the only page there is
    assert dictionary.relatedness(np.asarray([0]), np.asarray([2])).tolist() == [1.0]


def test_links_that_are_longer_than_the_anchor_are_plain_text_to_it(world, tmp_path):
    path = write_lines(tmp_path / "s.jsonl", json.dumps(sentence("1", "a [Venus flytrap](F)")))
    dictionary = build(world, tmp_path / "out", sentences=[path])
    # 4 links, and once within another
    assert dictionary.link_probability(anchors_of(dictionary, "venus", "venus flytrap")).tolist() == [
        0.8,
        1.0,
    ]


def test_a_link_that_stands_nowhere_as_words_takes_nothing_away(world, tmp_path):
    # the text of the link is a part of a word
    record = {"text": "sunrise", "spans": [{"start": 0, "end": 3, "id": "S"}]}
    dictionary = build(
        world, tmp_path / "out", sentences=[write_lines(tmp_path / "s.jsonl", json.dumps(record))]
    )
    assert dictionary.link_probability(anchors_of(dictionary, "sun")).tolist() == [1.0]


def test_files_may_be_compressed(world, tmp_path):
    for name in ("anchors.tsv", "sentences.jsonl"):
        (tmp_path / f"{name}.gz").write_bytes(gzip.compress((world / name).read_bytes()))
    dictionary, report = build_dictionary(
        tmp_path / "anchors.tsv.gz",
        world / "entities.jsonl",
        tmp_path / "out",
        sentences=[tmp_path / "sentences.jsonl.gz"],
    )
    assert (report.anchors, report.unknown, report.sentences) == (6, 0, 9)
    assert dictionary.link_probability(anchors_of(dictionary, "thermometer")).tolist() == [0.25]


def test_what_is_not_in_the_catalogue_is_counted(world, tmp_path):
    anchors = write_lines(tmp_path / "a.tsv", ANCHORS.strip(), "mars\tM\t3", "Mars\tM\t4", "pluto\tO\t1")
    sentences = write_lines(tmp_path / "s.jsonl", json.dumps(sentence("1", "[Mars](M) and the [Sun](S)")))
    dictionary, report = build_dictionary(
        anchors, world / "entities.jsonl", tmp_path / "out", sentences=[sentences]
    )
    assert (report.anchors, report.unknown, report.examples) == (9, 3, ["M", "O"])
    assert (report.links, report.foreign) == (1, 1)
    assert anchors_of(dictionary, "mars").tolist() == [-1]


# ---------------------------------------------------------------------- bad input


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("venus\tV\tmany", r"line 2: the count must be a number above 0: many"),
        ("venus\tV\t", r"line 2: the count must be a number above 0: "),
        ("venus\tV\t0", r"line 2: the count must be a number above 0: 0"),
        ("venus\tV\t-3", r"line 2: the count must be a number above 0: -3"),
        ("venus\tV\tnan", r"line 2: the count must be a number above 0: nan"),
        ("venus\tV\tinf", r"line 2: the count must be a number above 0: inf"),
        ("venus\tV", r"line 2: expected text, entity id and count, separated by tabs: venus"),
        ("venus\tV\t1\t2", r"line 2: expected text, entity id and count, separated by tabs"),
    ],
)
def test_a_bad_line_is_named(world, tmp_path, line, problem):
    anchors = write_lines(tmp_path / "anchors.tsv", "sun\tS\t1", line)
    with pytest.raises(ELQError, match=rf"E040.*anchors\.tsv, {problem}"):
        build_dictionary(anchors, world / "entities.jsonl", tmp_path / "out")


@pytest.mark.parametrize(
    ("lines", "problem"),
    [
        ([], "there is none"),
        (["venus\tQ313\t3", "sun\tQ525\t1"], r"not in .*entities\.jsonl, such as Q313, Q525"),
    ],
)
def test_a_dictionary_without_anchors_is_an_error(world, tmp_path, lines, problem):
    anchors = write_lines(tmp_path / "anchors.tsv", *lines)
    with pytest.raises(ELQError, match=rf"E075.*anchors\.tsv has no anchors.*{problem}"):
        build_dictionary(anchors, world / "entities.jsonl", tmp_path / "out")


def test_a_dictionary_without_names_is_an_error(tmp_path):
    catalogue = write_lines(tmp_path / "entities.jsonl", '{"id": "A", "title": "7"}')
    anchors = write_lines(tmp_path / "anchors.tsv", "8\tA\t1")
    with pytest.raises(ELQError, match="E075"):
        build_dictionary(anchors, catalogue, tmp_path / "out")


def test_missing_anchors(world, tmp_path):
    with pytest.raises(ELQError, match=r"E022.*no\.tsv.*text, entity id and count"):
        build_dictionary(tmp_path / "no.tsv", world / "entities.jsonl", tmp_path / "out")


def files_in(folder):
    """RETURNS: All files but those that SQLite keeps beside a database as long as it is open."""
    return sorted(path for path in folder.rglob("*") if not path.name.endswith(("-shm", "-wal")))


def test_an_error_leaves_the_old_dictionary(world, tmp_path):
    build(world, tmp_path / "out")
    before = files_in(tmp_path)
    bad = write_lines(tmp_path / "out.tsv", "sun\tS\tx")
    with pytest.raises(ELQError):
        build_dictionary(bad, world / "entities.jsonl", tmp_path / "out")
    bad.unlink()
    assert files_in(tmp_path) == before
    assert len(AnchorDictionary.open(tmp_path / "out")) == 7


def test_a_new_dictionary_takes_the_place_of_the_old_one(world, tmp_path):
    old = build(world, tmp_path / "out")
    new = build(world, tmp_path / "out", sentences=[])
    assert len(new) == len(old)
    roles = [path.name.partition("-")[0] for path in (tmp_path / "out").glob("*.npy")]
    assert sorted(roles) == ["anchors", "begins", "counts", "inlinks", "senses", "weights"]
    # who has the old one open goes on with it
    assert old.link_probability(anchors_of(old, "venus")).tolist() == [0.5]


# ---------------------------------------------------------------------- opening it


def test_missing_dictionary_names_the_command_that_makes_it(tmp_path):
    with pytest.raises(ELQError, match=r"E071.*nowhere is not a dictionary.*spacy elq dictionary"):
        AnchorDictionary.open(tmp_path / "nowhere")


def test_truncated_dictionary(dictionary, tmp_path):
    copy = shutil.copytree(dictionary.path, tmp_path / "copy")
    (name,) = (path.name for path in copy.glob("senses-*.npy"))
    (copy / name).write_bytes((copy / name).read_bytes()[:-8])
    with pytest.raises(ELQError, match=rf"E072.*is damaged: {name} has .* bytes.*elq dictionary"):
        AnchorDictionary.open(copy)
    (copy / name).unlink()
    with pytest.raises(ELQError, match=rf"E072.*is damaged: {name} is missing"):
        AnchorDictionary.open(copy)


def test_an_index_is_no_dictionary(index):
    with pytest.raises(ELQError, match=r"E071.* is not a dictionary"):
        AnchorDictionary.open(index.path)


def test_pickled_is_the_path(dictionary):
    data = pickle.dumps(dictionary)
    assert len(data) < 1000
    assert pickle.loads(data).stamp == dictionary.stamp


# ---------------------------------------------------------------------- arithmetic

pages_of = st.lists(st.sets(st.integers(0, 9)), min_size=1, max_size=5)


@given(pages_of, st.data())
def test_pages_are_counted_as_sets_count_them(sets, data):
    inlinks = np.asarray(sorted(e * 10 + page for e, own in enumerate(sets) for page in own), dtype="int64")
    entity = st.integers(0, len(sets) - 1)
    pairs = data.draw(st.lists(st.tuples(entity, entity), max_size=8))
    first, second = np.asarray(pairs, dtype="int64").reshape(-1, 2).T
    counts = np.stack(count_pages(inlinks, first, second, pages=10), axis=1)
    assert counts.tolist() == [[len(sets[a]), len(sets[b]), len(sets[a] & sets[b])] for a, b in pairs]


@given(st.sets(st.integers(0, 9)), st.sets(st.integers(0, 9)))
def test_relatedness_is_symmetric_and_between_0_and_1(a, b):
    counts = [np.asarray([len(pages)]) for pages in (a, b, a & b)]
    related = milne_witten(*counts, pages=10)
    assert related.tolist() == milne_witten(counts[1], counts[0], counts[2], pages=10).tolist()
    assert 0.0 <= related[0] <= 1.0
    assert (related[0] == 0.0) or a & b
    if a and a == b:
        assert related.tolist() == [1.0]


def test_ranges():
    assert ranges(np.asarray([5, 0, 7]), np.asarray([2, 0, 3])).tolist() == [5, 6, 7, 8, 9]
