"""Passages, their words, and the searches over them."""

import numpy as np
import pytest
from elq_qa.data import read_articles, read_gold, read_lines, read_merges, read_questions
from elq_qa.graph import Graph
from elq_qa.passages import Passages, build_passages, split_article
from elq_qa.search import Search, best, build_search
from elq_qa.tfidf import Tfidf, hash_grams
from elq_qa.types import QAError
from elq_qa.words import Words, build_words, find_words
from hypothesis import given
from hypothesis import strategies as st
from qa_world import ARTICLES, ENTITIES, QUESTIONS, make_passages, make_world


@given(st.text(alphabet="ab.!? \n", max_size=200), st.integers(1, 6))
def test_passages_have_the_words_of_the_text_in_order(text, size):
    passages = split_article(text, words=size)
    assert " ".join(passages).split() == text.split()
    assert all(0 < len(passage.split()) <= size for passage in passages)


def test_a_sentence_stays_whole_if_it_can():
    assert split_article("One two three. Four five.\nSix.", words=4) == ["One two three.", "Four five. Six."]
    assert split_article("a b c d e f. g", words=4) == ["a b c d", "e f. g"]


def test_the_opening_of_an_entity_is_its_first_passage(tmp_path):
    passages = make_passages(tmp_path)
    assert [x.text for x in passages][:3] == [
        "Mercury is the planet nearest to the Sun.",
        "Mercury has no moons. Its year has 88 days.",
        "Craters cover it.",
    ]
    assert len(passages) == 9
    assert passages[8] == ("stub", "Caduceus", "")
    assert list(passages.texts())[1].startswith("Mercury (planet)\nMercury has")
    assert passages[1].full == list(passages.texts())[1]
    assert passages.firsts(np.asarray([0, 1])).tolist() == [0, 3]
    assert passages.others(np.asarray([1, 0])).tolist() == [1, 2]
    assert passages.positions(["god", "unknown", "planet", "god"]) == [1, 0]
    assert passages.title(2) == "Sun"


def test_a_folder_that_is_not_complete_is_none(tmp_path):
    make_world(tmp_path)

    def fail():
        yield from ENTITIES
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        build_passages(fail(), ARTICLES, tmp_path / "passages")
    with pytest.raises(QAError, match="python -m elq_qa passages"):
        Passages(tmp_path / "passages")
    words = Words(tmp_path / "words")
    with pytest.raises(QAError, match="python -m elq_qa search"):
        Search(tmp_path / "nothing", words)
    with pytest.raises(QAError, match="python -m elq_qa articles"):
        Tfidf(tmp_path / "nothing", words)
    with pytest.raises(QAError, match="python -m elq_qa graph"):
        Graph(tmp_path / "nothing")
    with pytest.raises(QAError, match="python -m elq_qa words"):
        Words(tmp_path / "nothing")


def test_a_catalogue_of_titles_has_empty_passages(tmp_path):
    passages = build_passages([{"id": "a", "title": "A"}], {}, tmp_path)
    assert list(passages) == [("a", "A", "")]


def test_words_are_compared_without_case_accents_and_endings(tmp_path):
    assert find_words("Zoë's CRATERS, 88") == ["zoe", "s", "craters", "88"]
    words = build_words(["Craters cover it", "the Café"], tmp_path)
    assert words.number("crater CAFE unheard").tolist() == [words.stems["crater"], words.stems["cafe"]]
    assert [words.stop_words[words.stems[x]] for x in ("it", "the", "crater")] == [True, True, False]
    assert [x.tolist() for x in words.of_passages()] == [[0, 1, 2], [3, 4]]


def test_bm25_is_the_formula(tmp_path):
    world = make_world(tmp_path)
    kept = [
        [x for x in own.tolist() if not world.search.words.stop_words[x]]
        for own in world.search.words.of_passages()
    ]
    average = np.mean([len(own) for own in kept])
    expected = np.zeros(len(kept))
    for number in set(world.search.words.number("days year mercury mercury").tolist()):
        having = sum(number in own for own in kept)
        idf = np.log(1 + (len(kept) - having + 0.5) / (having + 0.5))
        for i, own in enumerate(kept):
            count = own.count(number)
            expected[i] += idf * count / (count + 0.9 * (1 - 0.4 + 0.4 * len(own) / average))
    assert world.search.scores("the days of a YEAR, mercury mercury") == pytest.approx(expected, abs=1e-5)
    assert not world.search.scores("xyzzy the").any()


def test_tfidf_counts_words_and_pairs(tmp_path):
    world = make_world(tmp_path)
    scores = world.tfidf.scores("thick clouds")
    # thick, clouds, thick clouds: each in one of seven articles
    idf = np.log((7 - 1 + 0.5) / (1 + 0.5))
    assert scores[3] == pytest.approx(3 * idf**2 * np.log(2) ** 2, rel=1e-5)
    assert np.flatnonzero(scores).tolist() == [3]
    # in more than half of the articles: no weight, instead of a negative one
    assert not world.tfidf.scores("mercury planet is").max() < 0


def test_pairs_do_not_cross_texts_or_stop_words():
    words, stop_words = np.asarray([1, 2, 0, 3, 1, 2]), np.asarray([True, False, False, False])
    hashes, owners = hash_grams(words, np.asarray([0, 0, 0, 0, 1, 1]), stop_words, grams=1 << 20)
    assert owners.tolist() == [0, 0, 0, 1, 1, 0, 1]
    assert hashes[5] == hashes[6]
    assert len(set(hashes.tolist())) == 4
    assert hashes.max() < 1 << 20


@pytest.mark.parametrize("chunk", [1, 8, 1 << 20])
def test_articles_are_counted_whatever_the_chunk(tmp_path, monkeypatch, chunk):
    monkeypatch.setattr("elq_qa.tfidf._CHUNK", chunk)
    monkeypatch.setattr("elq_qa.words._CHUNK", chunk)
    scores = make_world(tmp_path / "a").tfidf.scores("mercury year days has")
    monkeypatch.undo()
    assert make_world(tmp_path / "b").tfidf.scores("mercury year days has").tolist() == scores.tolist()


@given(st.lists(st.integers(0, 4), max_size=30), st.integers(1, 10))
def test_best_is_a_stable_sort(scores, count):
    scores = np.asarray(scores, dtype="float32")
    expected = sorted(range(len(scores)), key=lambda i: (-scores[i], i))
    assert best(scores, count).tolist() == [i for i in expected if scores[i] > 0][:count]
    among = np.arange(len(scores))[::2]
    assert best(scores, count, among=among).tolist() == [i for i in expected if i % 2 == 0][:count]


def test_tantivy_finds_what_bm25s_finds(tmp_path):
    tantivy_search = pytest.importorskip(
        "elq_qa.tantivy_search", reason="needs tantivy", exc_type=ImportError
    )
    passages = make_passages(tmp_path)
    found = tantivy_search.build_tantivy(passages.texts(), tmp_path / "tantivy")
    search = build_search(build_words(passages.texts(), tmp_path / "words"), tmp_path / "search")
    for question in QUESTIONS:
        scores = search.scores(question.text)
        assert sorted(found.search(question.text, 9)) == np.flatnonzero(scores).tolist()
        assert found.search(question.text, 1) == best(scores, 1).tolist()


def test_raw_files_are_read(tmp_path):
    import gzip
    import json
    import lzma

    question = {"qid": "q", "question": "who", "answers": ["a", "b"], "webqsp_el": "WebQTest-0"}
    with gzip.open(tmp_path / "set.jsonl.gz", "wt") as file_:
        file_.write(json.dumps(question) + "\n\n")
    assert read_questions(tmp_path / "set.jsonl") == [("q", "who", ("a", "b"), "WebQTest-0")]
    with pytest.raises(QAError, match=r"other\.jsonl is not a file"):
        read_questions(tmp_path / "other.jsonl")
    (tmp_path / "merges.tsv").write_text("old\tnew\n")
    merges = read_merges(tmp_path / "merges.tsv")
    with lzma.open(tmp_path / "articles.jsonl.xz", "wt") as file_:
        file_.write('{"id": "old", "text": "1"}\n{"id": "new", "text": "2"}\n')
    assert read_articles([tmp_path / "articles.jsonl.xz"], merges) == {"new": ["1", "2"]}
    spans = [{"id": "x"}, {"id": "y"}, {"id": "x"}]
    (tmp_path / "webqsp_el_test.jsonl").write_text(json.dumps({"qid": "WebQTest-0", "spans": spans}) + "\n")
    assert read_gold(tmp_path) == {"WebQTest-0": ["x", "y"]}
    assert read_gold(tmp_path, "webqsp_el_train") == {}
    assert list(read_lines(tmp_path / "merges.tsv")) == ["old\tnew"]
