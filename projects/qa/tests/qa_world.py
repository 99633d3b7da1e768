"""A world that can be checked by hand: seven entities, nine passages, a graph, four questions."""

from pathlib import Path

import pytest

pytest.importorskip("bm25s", reason="needs projects/qa/requirements.txt")
pytest.importorskip("Stemmer", reason="needs projects/qa/requirements.txt")

from elq_qa.graph import build_graph
from elq_qa.passages import build_passages
from elq_qa.retrieve import Retriever
from elq_qa.search import build_search
from elq_qa.tfidf import build_tfidf
from elq_qa.types import Question
from elq_qa.words import build_words

ENTITIES = [
    {"id": "planet", "title": "Mercury (planet)", "description": "Mercury is the planet nearest to the Sun."},
    {"id": "god", "title": "Mercury (mythology)", "description": "Mercury is a Roman god of shopkeepers."},
    {"id": "sun", "title": "Sun", "description": "The Sun is a star."},
    {"id": "venus", "title": "Venus", "description": "Venus is a planet with thick clouds."},
    {"id": "rome", "title": "Rome", "description": "Rome is the capital of Italy."},
    {"id": "italy", "title": "Italy", "description": "Italy is a country."},
    {"id": "stub", "title": "Caduceus"},
]
ARTICLES = {
    "planet": ["Mercury has no moons. Its year has 88 days.", "Craters cover it."],
    "nobody": ["An article of no entity."],
}
# by position: what the planet, the god and Rome are said to be near to
EDGES = [[(0, 2), (3, 2), (1, 4)], [(4, 5), (0, 3)], [(1, 6), (2, 0)]]
QUESTIONS = [
    Question("q0", "how many days has mercury in a year", ("88 days",), "WebQTest-0"),
    Question("q1", "which country is the roman god mercury from", ("Italy",), "WebQTest-1"),
    Question("q2", "what has thick clouds", ("Venus",)),
    Question("q3", "xyzzy", ("Nothing",)),
]
GOLD = {"WebQTest-0": ["planet"], "WebQTest-1": ["god", "unknown"]}


def make_passages(folder: Path):
    return build_passages(ENTITIES, ARTICLES, folder / "passages")


def make_world(folder: Path) -> Retriever:
    """Writes what the commands write."""
    passages = make_passages(folder)
    words = build_words(passages.texts(), folder / "words")
    return Retriever(
        passages,
        build_search(words, folder / "search"),
        build_tfidf(words, passages.begins, folder / "tfidf", grams=1 << 12),
        build_graph(EDGES, len(ENTITIES), folder / "graph"),
    )
