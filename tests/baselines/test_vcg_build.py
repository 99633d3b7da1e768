import gzip
import lzma
import pickle
import shutil

import numpy as np
import pytest
from vcg_world import LINKS, TRIPLES, WIDTH, build_world, write_relations

from spacy_elq.baselines.reduce import reduce_width, scale_to_width
from spacy_elq.baselines.tagme.spotting import hash_words, name_key
from spacy_elq.baselines.vcg.build import (
    build_relations,
    list_edges,
    list_runs,
    relation_words,
    sort_runs,
)
from spacy_elq.baselines.vcg.characters import LENGTH, UNKNOWN, encode_characters
from spacy_elq.baselines.vcg.relations import BEGINS, EXACT, KEYS, SENSES, Relations
from spacy_elq.baselines.vcg.words import Words, phrase_vectors
from spacy_elq.errors import ELQError


@pytest.fixture
def files(tmp_path):
    """Files that a test may change."""
    return write_relations(tmp_path)


def positions_of(relations, *ids):
    return relations.positions(list(ids))


def ids_of(relations, positions):
    return [relations.entity(int(position)).id for position in positions]


# ---------------------------------------------------------------------- names


def found_by(relations, *names, limit=50):
    keys = np.asarray([name_key(name) for name in names], dtype="uint64")
    sizes, entities = relations.candidates(relations.find(keys), limit=limit)
    parts = np.split(entities, np.cumsum(sizes)[:-1])
    return [ids_of(relations, part) for part in parts]


def test_names_that_are_equal_come_first(relations):
    # Paris, then "paris texas", which is longer by a word, as its name "Paris" is not
    assert found_by(relations, "paris", "jaguar") == [["E1", "E2"], ["E9", "E10"]]
    assert found_by(relations, "paris", limit=1) == [["E1"]]


def test_names_are_found_by_parts_of_them(relations):
    assert found_by(relations, "new york", "city of light", "light", "city") == [
        ["E5"],
        ["E1"],
        ["E1"],
        ["E1", "E5"],
    ]


def test_what_is_in_no_name_is_not_found(relations):
    keys = [name_key(name) for name in ("berlin", "new city", "paris", "york paris")]
    assert (relations.find(np.asarray(keys, dtype="uint64")) >= 0).tolist() == [False, False, True, False]


def test_whole_names(relations):
    keys = np.asarray([name_key(name) for name in ("paris", "york", "new york city")], dtype="uint64")
    assert relations.are_names(relations.find(keys)).tolist() == [True, False, True]


def runs_of(*names):
    keys, bearers, longer, lengths = list_runs(names, np.arange(len(names)))
    texts = {name_key(" ".join(part)): " ".join(part) for name in names for part in parts_of(name.split())}
    rows = zip(keys.tolist(), bearers.tolist(), longer.tolist(), lengths.tolist(), strict=True)
    return sorted((texts[key], *rest) for key, *rest in rows)


def parts_of(words):
    return [words[i:j] for i in range(len(words)) for j in range(i + 1, len(words) + 1)]


def test_runs_are_at_most_two_words_shorter_and_four_long():
    assert runs_of("p q r s") == [
        ("p q", 0, 2, 7),
        ("p q r", 0, 1, 7),
        ("p q r s", 0, 0, 7),
        ("q r", 0, 2, 7),
        ("q r s", 0, 1, 7),
        ("r s", 0, 2, 7),
    ]
    assert [row[0] for row in runs_of("p q r s t u")] == ["p q r s", "q r s t", "r s t u"]
    assert runs_of("p q r s t u v") == []
    assert runs_of("x", "x y") == [("x", 0, 0, 1), ("x", 1, 1, 3), ("x y", 1, 0, 3), ("y", 1, 1, 3)]


def test_order_is_difference_then_length_then_popularity():
    # entity 0 has the key by a longer name, too; 2 is as long as 3, and more popular
    keys = np.asarray([7, 7, 7, 7, 7, 5], dtype="uint64")
    bearers = np.asarray([0, 0, 1, 2, 3, 3])
    longer = np.asarray([2, 1, 0, 1, 1, 1], dtype="int8")
    lengths = np.asarray([5, 9, 20, 6, 6, 6])
    popularity = np.asarray([0.0, 0.0, 3.0, 1.0])
    found = sort_runs(keys, bearers, longer, lengths, popularity=popularity)
    assert found[KEYS].tolist() == [5, 7]
    assert found[BEGINS].tolist() == [0, 1, 5]
    assert found[SENSES].tolist() == [3, 1, 2, 3, 0]
    assert found[EXACT].tolist() == [False, True]


def test_an_ngram_leads_to_a_hundred_entities():
    count = 120
    found = sort_runs(
        np.zeros(count, dtype="uint64"),
        np.arange(count),
        np.zeros(count, dtype="int8"),
        np.ones(count),
        popularity=np.arange(count, dtype="float64"),
    )
    assert found[SENSES].tolist() == list(range(119, 19, -1))


# ---------------------------------------------------------------------- relations, see the table of vcg_world


def test_relations_of_an_entity(relations):
    sizes, kinds, others = relations.edges(positions_of(relations, "E1", "E6", "E10"))
    assert sizes.tolist() == [3, 0, 1]
    # most entities first
    assert list(zip(kinds.tolist(), ids_of(relations, others), strict=True)) == [
        (4, "E5"),
        (5, "E7"),
        (9, "E5"),
        (3, "E9"),
    ]


def test_numbers_of_entities_and_relations(relations):
    found = relations.degrees(positions_of(relations, "E1", "E5", "E6"))
    np.testing.assert_allclose(found, np.log1p([[3, 3], [2, 3], [0, 0]]) / np.log1p(1000), rtol=1e-6)


def test_links_count_as_related_entities():
    both = np.asarray([(0, 0, 1), (1, 1, 0)])
    _, _, degrees = list_edges(both, 2, np.asarray([0.0, 8.0]))
    np.testing.assert_allclose(degrees, np.log1p([[1, 1], [9, 1]]) / np.log1p(1000), rtol=1e-6)


def test_many_is_one():
    _, _, degrees = list_edges(np.asarray([(0, 0, 1)]), 2, np.asarray([5000.0, 0.0]))
    assert degrees[0, 0] == 1.0


def test_relations_of_an_entity_are_at_most_25_with_the_most_popular_other():
    both = [(0, kind, 1) for kind in range(30)] + [(0, 29, 2)]
    edges, firsts, degrees = list_edges(np.asarray(sorted(both)), 3, np.asarray([0.0, 1.0, 2.0]))
    assert firsts.tolist() == [0, 25, 25, 25]
    # that with two entities first
    assert edges[0].tolist() == [29, 2]
    assert edges[1:, 0].tolist() == list(range(24))
    assert degrees[0, 1] == pytest.approx(np.log1p(30) / np.log1p(1000))


def test_signatures(relations):
    def has(id_, word):
        (key,), _, _ = hash_words([word])
        return bool(relations.have_words(positions_of(relations, id_), np.asarray([key]))[0])

    # titles of what is related, and the names of relations in both directions
    assert all(has("E1", word) for word in ("georgia", "york", "capital", "hyperlink", "jaguar"))
    assert has("E7", "capital")
    assert has("E10", "named")
    assert not has("E1", "paris")
    assert not has("E6", "capital")


@pytest.mark.parametrize(
    ("relation", "words"),
    [
        ("place of birth", ["place", "of", "birth"]),
        ("/people/person/place_of_birth", ["place", "of", "birth"]),
        ("/a/b./c/D_e/", ["d", "e"]),
        ("P31", ["p31"]),
    ],
)
def test_words_of_a_relation(relation, words):
    assert relation_words(relation) == words


# ---------------------------------------------------------------------- vectors


def test_entities_with_relations_have_vectors_by_transe(relations):
    lengths = np.linalg.norm(relations.vectors(positions_of(relations, "E1", "E3", "E10")), axis=1)
    np.testing.assert_allclose(lengths, np.sqrt(WIDTH), rtol=1e-3)


def test_entities_without_relations_have_those_of_the_index(relations, index):
    expected = scale_to_width(reduce_width(index.vectors, WIDTH))
    found = relations.vectors(positions_of(relations, "E2", "E6"))
    np.testing.assert_allclose(found, expected[index.positions(["E2", "E6"])], atol=2e-3)


def test_an_inverse_is_the_opposite(relations):
    vectors, phrases = relations.kinds(np.arange(10))
    np.testing.assert_array_equal(vectors[:5], -vectors[5:])
    np.testing.assert_array_equal(phrases[:5], phrases[5:])


def test_words_are_the_mean_of_their_pieces(relations, entity_encoder):
    embeddings, _ = entity_encoder.embeddings()
    table = scale_to_width(reduce_width(embeddings, WIDTH))
    vocab = entity_encoder._tokenizer.get_vocab()
    found = relations.words.vectors(["paris", "Paris", "ab", "", "paris"])
    np.testing.assert_allclose(found[0], table[vocab["paris"]], rtol=1e-6)
    np.testing.assert_array_equal(found[0], found[4])
    np.testing.assert_allclose(found[2], (table[vocab["a"]] + table[vocab["##b"]]) / 2, rtol=1e-5)
    assert not found[3].any()
    assert relations.words.vectors([]).shape == (0, WIDTH)


def test_words_are_forgotten_before_they_fill_memory(relations, entity_encoder, monkeypatch):
    monkeypatch.setattr("spacy_elq.baselines.vcg.words._KNOWN_WORDS", 1)
    embeddings, tokenizer = entity_encoder.embeddings()
    words = Words(embeddings, tokenizer)
    first = words.vectors(["paris", "new"])
    assert words.vectors(["york", "paris"])[1].tolist() == first[0].tolist()
    assert set(words._known) == {"york", "paris"}


def test_phrases_have_the_highest_values_of_their_words(relations):
    words = relations.words
    found = phrase_vectors(words, [["place", "of", "birth", "unread"]])
    expected = words.vectors(["<", "place", "of", "birth", "unread"]).max(axis=0)
    np.testing.assert_array_equal(found[0], expected)
    assert (
        phrase_vectors(words, [["a"]], longest=3)[0].tolist()
        == words.vectors(["<", "a", ">"]).max(axis=0).tolist()
    )


def test_scale():
    scaled = scale_to_width(np.asarray([[3.0, 4.0], [0.0, 5.0]]))
    assert np.square(scaled).mean() == pytest.approx(1.0)
    assert not scale_to_width(np.zeros((2, 2))).any()


def test_int8_encoders_have_no_embeddings(entity_encoder, monkeypatch):
    monkeypatch.setattr(entity_encoder, "_model", None)
    with pytest.raises(ELQError, match=r"E216.*--encoder"):
        entity_encoder.embeddings()


# ---------------------------------------------------------------------- characters


def decode(row):
    return "".join(" " if x == 0 else "?" if x == UNKNOWN else chr(int(x) + 31) for x in row).rstrip()


def encode(*texts):
    ends = np.cumsum([len(text) for text in texts])
    return [decode(row) for row in encode_characters("".join(texts), ends - [len(t) for t in texts], ends)]


def test_characters_have_marks_around_them_and_no_accents():
    assert encode("Béla Fleck", "", "日本") == ["<bela fleck>", "<>", "<??>"]


def test_characters_are_cut():
    assert encode("a" * 22, "b" * 23, "c" * 24, "d" * 30) == [
        f"<{'a' * 22}>",
        f"<{'b' * 23}>",
        f"<{'c' * 24}",
        f"<{'d' * 24}",
    ]
    assert encode_characters("x", np.asarray([0]), np.asarray([1])).shape == (1, LENGTH)


def test_no_text():
    assert encode("") == ["<>"]


def test_titles(relations):
    labels = relations.labels(positions_of(relations, "E5", "E7"))
    assert [decode(row) for row in labels] == ["<new york city>", "<georgia (u.s. state)>"]


# ---------------------------------------------------------------------- the folder


def test_report(files, index):
    relations, report = build_world(files, index.path, files / "out")
    assert (report.triples, report.links, report.unknown) == (7, 3 + 1, 3)
    assert report.examples == ["X1", "X2"]
    assert (report.kinds, report.entities) == (5, 8)
    assert len(relations) == 10
    assert relations.stamp["triples"] == 7


def test_files_may_be_compressed(files, index):
    (files / "triples.tsv.xz").write_bytes(lzma.compress(TRIPLES.encode()))
    (files / "links.tsv.gz").write_bytes(gzip.compress(LINKS.encode()))
    settings = {"links": files / "links.tsv.gz", "width": WIDTH, "epochs": 1}
    _, report = build_relations(files / "triples.tsv.xz", index.path, files / "out", **settings)
    assert (report.triples, report.links) == (7, 4)


def test_without_links(files, index):
    _, report = build_world(files, index.path, files / "out", links=None)
    assert (report.links, report.kinds) == (0, 4)


def test_another_encoder_gives_the_words(files, index, entity_encoder, tmp_path):
    entity_encoder.to_disk(tmp_path / "encoder")
    names = build_world(files, index.path, files / "out", encoder=str(tmp_path / "encoder"))[0]
    assert names.words.vectors(["paris"]).any()
    with pytest.raises(ELQError, match=r"E036.*nowhere"):
        build_world(files, index.path, files / "out", encoder=str(tmp_path / "nowhere"))


@pytest.mark.parametrize(
    ("text", "problem"), [("", "there is none"), ("X1\tr\tX2\n", "not in the index, such as X1")]
)
def test_no_relations(files, index, text, problem):
    (files / "triples.tsv").write_text(text, encoding="utf8")
    with pytest.raises(ELQError, match=f"E215.*{problem}"):
        build_world(files, index.path, files / "out", links=None)
    assert not (files / "out").exists()


@pytest.mark.parametrize("line", ["E1\tcapital", "E1\t\tE2"])
def test_a_line_that_is_no_triple(files, index, line):
    (files / "triples.tsv").write_text(f"{TRIPLES}{line}\n", encoding="utf8")
    with pytest.raises(ELQError, match=r"E040.*line 9: expected head, relation, tail, separated by tabs"):
        build_world(files, index.path, files / "out")


def test_damaged_xz(files, index):
    (files / "triples.tsv.xz").write_bytes(b"no")
    with pytest.raises(ELQError, match=r"E040.*not compressed with xz"):
        build_relations(files / "triples.tsv.xz", index.path, files / "out", width=WIDTH)


def test_no_folder(tmp_path, dictionary):
    with pytest.raises(ELQError, match=r"E213.*spacy elq relations"):
        Relations.open(tmp_path)
    with pytest.raises(ELQError, match="E213"):
        Relations.open(dictionary.path)


def test_damaged_folder(relations, tmp_path):
    copy = tmp_path / "copy"
    shutil.copytree(relations.path, copy)
    next(copy.glob("edges-*.npy")).unlink()
    with pytest.raises(ELQError, match=r"E214.*edges-\w+.npy is missing"):
        Relations.open(copy)
    shutil.copytree(relations.path, tmp_path / "other")
    path = next((tmp_path / "other").glob("keys-*.npy"))
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(ELQError, match=r"E214.*keys-\w+.npy has \d+ bytes instead of"):
        Relations.open(tmp_path / "other")


def test_pickle_has_the_path_only(relations):
    data = pickle.dumps(relations)
    assert len(data) < 1000
    assert pickle.loads(data).stamp == relations.stamp
