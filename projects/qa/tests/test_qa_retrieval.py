"""The graph walk, the order of passages, runs and their figures."""

import json

import numpy as np
import pytest
import spacy
from elq_qa import runs as runs_module
from elq_qa.answers import has_answer, is_exact, normalize_answer, tokenize
from elq_qa.evaluate import compare, paired_interval, recall
from elq_qa.graph import build_graph, read_edges
from elq_qa.links import link_questions, links_of, read_links, stamp_pipeline, write_gold
from elq_qa.report import write_recall
from elq_qa.retrieve import Setting, open_retriever, order
from elq_qa.runs import COUNT, NEVER, System, read_run, retrieve_all
from elq_qa.systems import find_systems, make_pairs, make_settings
from elq_qa.types import QAError
from hypothesis import given
from hypothesis import strategies as st
from qa_world import ENTITIES, GOLD, QUESTIONS, make_world
from spacy.language import Language
from spacy.tokens import Span


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("world")
    make_world(path)
    return path


@pytest.fixture(scope="module")
def world(folder):
    return open_retriever(folder)


def test_claims_come_before_links_and_tables_and_heads_last(world):
    names = [x["id"] for x in ENTITIES]
    found = {names[i]: [names[j] for j in world.graph.neighbours(i)] for i in range(len(names))}
    assert found == {
        "planet": ["sun", "venus"],
        "god": ["rome", "stub"],
        "sun": ["planet", "venus"],
        "venus": ["sun", "planet"],
        "rome": ["god", "italy"],
        "italy": ["rome"],
        "stub": ["god"],
    }


def test_the_walk_is_breadth_first(world):
    assert world.graph.around([1, 0]).tolist() == [4, 6, 2, 3]
    assert world.graph.around([4, 6, 2, 3], seen=[1, 0]).tolist() == [5]
    assert world.graph.around([]).tolist() == []


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5)), max_size=20), st.data())
def test_the_walk_is_that_of_a_plain_loop(tmp_path_factory, edges, data):
    half = data.draw(st.integers(0, len(edges)))
    sources = [edges[:half], edges[half:]]
    graph = build_graph(sources, 6, tmp_path_factory.mktemp("graph"))
    plain = {i: [] for i in range(6)}
    for source in sources:
        for flip in (False, True):
            for pair in source:
                a, b = pair[::-1] if flip else pair
                if a != b and b not in plain[a]:
                    plain[a].append(b)
    assert {i: graph.neighbours(i).tolist() for i in range(6)} == plain
    seeds = data.draw(st.lists(st.integers(0, 5), unique=True))
    expected = list(dict.fromkeys(b for a in seeds for b in plain[a] if b not in seeds))
    assert graph.around(seeds).tolist() == expected


def test_edges_are_those_between_known_entities(tmp_path, world):
    import gzip
    import lzma

    with lzma.open(tmp_path / "kb.tsv.xz", "wt") as file_:
        file_.write("head\trelation\ttail\tsource\nplanet\tparent\tsun\tx\nplanet\tnear\tnobody\tx\n")
    with gzip.open(tmp_path / "links.tsv.gz", "wt") as file_:
        file_.write("page\tlinked\nsun\tvenus\n")
    with gzip.open(tmp_path / "tables.tsv.gz", "wt") as file_:
        file_.write("entity\tcolumns\tentity\ngod\trow: x\trome\n")
    assert list(read_edges(tmp_path, world.passages)) == [[(0, 2)], [(2, 3)], [(1, 4)]]


def test_the_order_of_passages():
    assert order([1, 2], [3, 2, 4, 5], [6, 3], [7, 1]) == [1, 2, 3, 6, 4, 5, 7]
    assert order([], [], [1, 2], []) == [1, 2]


# passages: 0-2 the planet's, 3 the god's, 4 the Sun's, 5 Venus's, 6 Rome's, 7 Italy's, 8 the stub's
@pytest.mark.parametrize(
    ("question", "links", "setting", "expected"),
    [
        # only the seeds: the opening, then the other passages by BM25
        (0, ["planet"], Setting("x"), [0, 1, 2]),
        # neighbours in the order of claims (Sun, Venus) in turn with the other passages
        (0, ["planet"], Setting("x", 0, "claims"), [0, 4, 1, 5, 2]),
        # two hops: Rome and the stub, then Italy
        (1, ["god"], Setting("x", 0, "claims"), [3, 6, 8, 7]),
        # Venus has words of the question, the Sun has none
        (2, ["planet"], Setting("x", 0, "bm25"), [0, 5, 1, 4, 2]),
        # the best article behind the link, which it is not twice
        (2, ["god"], Setting("x", 1), [3, 5]),
        (2, ["venus", "unknown"], Setting("x", 1), [5]),
        (2, ["god"], Setting("", 1), [5]),
        (2, [], Setting("x"), []),
        # the planet's second passage has a word of it: has
        (2, [], Setting(), [5, 1]),
        # every passage of the planet gets ahead of the others
        (2, ["planet"], Setting("x", boost=9.0), [1, 0, 2, 5]),
        (2, ["planet"], Setting("x", boost=0.1), [5, 1, 0, 2]),
    ],
)
def test_passages_of_a_question(world, question, links, setting, expected):
    view = world.view(QUESTIONS[question].text)
    if not setting.linker:
        links = []
    assert world.retrieve(view, links, setting).tolist() == expected
    assert world.retrieve(view, links, setting, count=2).tolist() == expected[:2]


def test_articles_are_only_searched_if_they_are_asked_for(world, monkeypatch):
    assert world.view("thick clouds", articles=1).articles.tolist() == [3]
    monkeypatch.setattr(world.tfidf, "scores", None)
    assert world.view("thick clouds", articles=0).articles.tolist() == []


def test_what_is_left_of_the_neighbours_comes_last(world):
    # the other passages of a neighbour, the planet, behind the openings
    view = world.view("craters")
    found = world.retrieve(view, ["sun"], Setting("x", 0, "claims")).tolist()
    assert found == [4, 0, 5, 2, 1]


def test_a_setting_has_a_name_and_a_known_order():
    names = [x.name for x in [*make_settings("tagme", 5), *make_settings("", 5)]]
    assert names == [
        *("tagme+tfidf", "tagme+tfidf-claims", "tagme+tfidf-bm25"),
        *("tagme", "tagme-claims", "tagme-bm25", "tagme-boost"),
        *("tfidf", "tfidf-claims", "tfidf-bm25", "bm25"),
    ]
    with pytest.raises(QAError, match="Expected one of '', 'claims', 'bm25'"):
        Setting("tagme", graph="random")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("The  Beatles!", "beatles"),
        ("an Apple, a day", "apple day"),
        ("Theatre", "theatre"),
        ("U.S.", "us"),
        ("", ""),
    ],
)
def test_answers_are_compared_as_in_squad(text, expected):
    assert normalize_answer(text) == expected


def test_exact_match():
    assert is_exact("The Beatles", ["Queen", "beatles."])
    assert not is_exact("Beatles", ["Queen"])


@pytest.mark.parametrize(
    ("passage", "answer", "expected"),
    [
        ("It lasts 88 days.", "88 Days", True),
        ("It lasts 188 days.", "88 days", False),
        ("Roman gods", "man", False),
        ("Beyoncé", "BEYONCÉ", True),
        ("Destiny's Child", "Destiny 's Child", True),
        ("anything", "", False),
    ],
)
def test_an_answer_is_in_a_passage_by_tokens(passage, answer, expected):
    assert has_answer(tokenize(passage), [tokenize(answer)]) is expected


@Language.component("qa_test_linker")
def link_mercury(doc):
    """A linker without scores; what has no id is no link."""
    ids = {"mercury": "planet", "days": ""}
    doc.ents = [Span(doc, x.i, x.i + 1, "E", kb_id=ids[x.text]) for x in doc if x.text in ids]
    return doc


def make_linker():
    nlp = spacy.blank("en")
    nlp.add_pipe("qa_test_linker")
    return nlp


def test_any_pipeline_that_sets_ents_is_a_linker(tmp_path):
    path = tmp_path / "links" / "own.jsonl"
    nlp = make_linker()
    links = link_questions(nlp, QUESTIONS[:1], path)
    assert links == {"q0": [{"id": "planet", "score": 1.0, "mention": "mercury"}]}
    path.write_text(path.read_text().replace("planet", "kept"))
    assert link_questions(nlp, QUESTIONS, path)["q0"][0]["id"] == "kept"
    assert list(read_links(path)) == ["q0", "q1", "q2", "q3"]
    # another pipeline of that name
    assert link_questions(nlp, QUESTIONS, path, stamp="other")["q0"][0]["id"] == "planet"
    nlp.to_disk(tmp_path / "pipeline")
    stamp = stamp_pipeline(str(tmp_path / "pipeline"))
    nlp.to_disk(tmp_path / "pipeline")
    assert "" != stamp_pipeline(str(tmp_path / "pipeline")) != stamp
    assert stamp_pipeline("en_core_web_sm") == ""


def test_links_are_sorted_by_score():
    # the extension is set when a linker is imported
    import spacy_elq.pipeline.annotate  # noqa: F401

    doc = spacy.blank("en")("a b c")
    doc.ents = [Span(doc, i, i + 1, "E", kb_id=str(i)) for i in range(3)]
    if not Span.has_extension("elq_score"):
        Span.set_extension("elq_score", default=None)
    for ent, score in zip(doc.ents, (0.2, None, 0.5), strict=True):
        ent._.elq_score = score
    assert [(x["id"], x["score"]) for x in links_of(doc)] == [("1", 1.0), ("2", 0.5), ("0", 0.2)]


def test_gold_entities_are_a_linker(tmp_path):
    write_gold(QUESTIONS, GOLD, tmp_path / "gold.jsonl")
    links = read_links(tmp_path / "gold.jsonl")
    assert {qid: [x["id"] for x in own] for qid, own in links.items()} == {
        "q0": ["planet"],
        "q1": ["god", "unknown"],
    }


def make_runs(world, folder, links):
    systems = [System(setting, links if setting.linker else {}) for setting in make_settings("tagme", 1)]
    return retrieve_all(world, QUESTIONS, [*systems, System(Setting(), {})], folder / "webquestions_test")


LINKS = {"q0": [{"id": "planet"}], "q1": [{"id": "god"}]}


def test_a_run_says_where_the_first_answer_is(world, tmp_path):
    runs = make_runs(world, tmp_path, LINKS)
    assert runs["tagme"].firsts.tolist() == [1, NEVER, NEVER, NEVER]
    assert runs["tagme-claims"].firsts.tolist() == [2, 1, NEVER, NEVER]
    assert runs["bm25"].firsts.tolist()[2:] == [0, NEVER]
    assert runs["tagme-claims"].passages.shape == (4, COUNT)
    assert runs["tagme-claims"].passages[1, :5].tolist() == [3, 6, 8, 7, -1]


def test_an_interrupted_run_goes_on(world, tmp_path, monkeypatch):
    monkeypatch.setattr(runs_module, "PART", 3)
    expected = make_runs(world, tmp_path / "a", LINKS)
    questions = []
    view = type(world).view

    def count(self, text):
        questions.append(text)
        if len(questions) == 4:
            raise KeyboardInterrupt
        return view(self, text)

    monkeypatch.setattr(type(world), "view", count)
    with pytest.raises(KeyboardInterrupt):
        make_runs(world, tmp_path / "b", LINKS)
    runs = make_runs(world, tmp_path / "b", LINKS)
    assert len(questions) == 5
    for name, run in runs.items():
        assert np.array_equal(run.passages, expected[name].passages)
        assert np.array_equal(run.firsts, expected[name].firsts)
    # other links of the last question: only its part is made again
    make_runs(world, tmp_path / "b", {**LINKS, "q3": [{"id": "sun"}]})
    assert len(questions) == 6
    # other parameters of BM25: all is made again
    monkeypatch.setattr(world.search, "stamp", "other")
    make_runs(world, tmp_path / "b", LINKS)
    assert len(questions) == 10


def test_a_run_that_is_not_there_is_named(tmp_path):
    with pytest.raises(QAError, match="python -m elq_qa retrieve"):
        read_run(tmp_path, "tagme")


def test_recall_and_its_interval():
    firsts = np.asarray([0, 4, 5, 80])
    assert recall(firsts) == {"5": 0.5, "20": 0.75, "40": 0.75, "80": 0.75}
    ours, theirs = np.ones(400), np.tile([0, 1], 200)
    low, high = paired_interval(ours, theirs)
    assert 0.42 < low < 0.48 < 0.52 < high < 0.58
    assert paired_interval(ours, ours) == (0.0, 0.0)
    (row,) = compare({"a": ours, "b": theirs}, [("a", "b"), ("a", "c"), ("c", "a")])
    assert (row["system"], row["than"], row["difference"]) == ("a", "b", 0.5)


def test_systems_are_compared_with_tagme_and_with_no_linker():
    pairs = make_pairs(5)
    assert ("elq_questions-claims", "tagme-claims") in pairs
    assert ("elq_wikipedia+tfidf-bm25", "tagme+tfidf-bm25") in pairs
    assert ("gold+tfidf", "tfidf") in pairs
    assert ("tagme-boost", "bm25") in pairs
    assert not any(a.startswith(("gold", "tagme")) and b.startswith("tagme") for a, b in pairs)


def test_recall_is_written_for_all_questions_and_those_with_gold(world, tmp_path):
    links = tmp_path / "links"
    links.mkdir()
    write_gold(QUESTIONS, GOLD, links / "gold.jsonl")
    systems = find_systems("webquestions_test", links)
    assert len(systems) == 11
    runs = retrieve_all(world, QUESTIONS, systems, tmp_path / "runs")
    write_recall("webquestions_test", QUESTIONS, runs, tmp_path)
    row = json.loads((tmp_path / "recall" / "webquestions_test.json").read_text())
    assert row["articles"] == 5
    assert row["all"]["questions"] == 4
    assert set(row["all"]["recall"]) == {"bm25", "tfidf", "tfidf-claims", "tfidf-bm25"}
    assert row["gold"]["questions"] == 2
    assert row["gold"]["recall"]["gold-claims"] == {"5": 1.0, "20": 1.0, "40": 1.0, "80": 1.0}
    assert row["gold"]["recall"]["gold"]["5"] == 0.5
    assert {x["system"] for x in row["gold"]["differences"]["5"]} >= {"gold+tfidf", "gold-boost"}
