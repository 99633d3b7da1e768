"""Passages for a question, as GraphRetriever (Min et al., 2019) finds them: from linked entities and the best
articles to their neighbours in the graph.
"""

from dataclasses import dataclass
from itertools import chain, zip_longest
from pathlib import Path
from typing import Iterable, List, NamedTuple, Sequence

import numpy as np

from .graph import Graph
from .passages import Passages
from .search import Search, best
from .tfidf import Tfidf
from .types import Array, QAError
from .words import Words

GRAPHS = ("", "claims", "bm25")
# how many neighbours are followed to their own neighbours
WIDTH = 100


@dataclass(frozen=True)
class Setting:
    """How passages are found.

    linker (str): Whose links are seeds, "" for none.
    articles (int): How many of the best articles by TF-IDF are seeds, behind the links.
    graph (str): The order of the neighbours: "claims", as the graph has them; "bm25", by the score of their
        first passages; "" for none.
    boost (float): If not 0, passages are ranked by BM25, with this much more for those of linked entities;
        `articles` and `graph` do not matter then.
    """

    linker: str = ""
    articles: int = 0
    graph: str = ""
    boost: float = 0.0

    def __post_init__(self) -> None:
        """Check the order of the neighbours."""
        if self.graph not in GRAPHS:
            raise QAError(f"graph is {self.graph!r}. Expected one of {', '.join(map(repr, GRAPHS))}.")

    @property
    def name(self) -> str:
        """RETURNS (str): A name for files: "tagme+tfidf-claims"; "bm25" without any seeds."""
        if self.boost:
            return f"{self.linker}-boost"
        seeds = "+".join(filter(None, (self.linker, "tfidf" if self.articles else "")))
        return "-".join(filter(None, (seeds or "bm25", self.graph)))


class View(NamedTuple):
    """What all systems need of a question.

    scores (Array): (passages,) BM25.
    articles (Array): Entities of the best articles by TF-IDF, best first.
    """

    scores: Array
    articles: Array


class Retriever:
    """Finds passages."""

    def __init__(self, passages: Passages, search: Search, tfidf: Tfidf, graph: Graph) -> None:
        """Make it of the parts that the commands write."""
        self.passages, self.search, self.tfidf, self.graph = passages, search, tfidf, graph

    @property
    def stamp(self) -> str:
        """RETURNS (str): What changes if the passages, BM25 or the graph do."""
        return f"{len(self.passages)} {self.tfidf.size} {len(self.graph)} {self.search.stamp}"

    def view(self, question: str, *, articles: int = 10) -> View:
        """RETURNS (View): The scores of a question, and its best articles."""
        scores = self.tfidf.scores(question) if articles else np.empty(0)
        return View(self.search.scores(question), best(scores, articles))

    def retrieve(self, view: View, links: Sequence[str], setting: Setting, *, count: int = 80) -> Array:
        """Find the passages of a question.

        view (View): What `view` returned for it.
        links (Sequence[str]): Ids of linked entities, best first; unknown ones are left out.
        RETURNS (Array): Positions of at most `count` passages, in the order in which they are read.
        """
        linked = np.asarray(self.passages.positions(links), dtype="int64")
        if setting.boost:
            return best(self._boosted(view.scores, linked, setting.boost), count)
        if not (setting.linker or setting.articles):
            return best(view.scores, count)
        seeds = np.asarray(
            list(dict.fromkeys(chain(linked, view.articles[: setting.articles]))), dtype="int64"
        )
        near, far = self._neighbours(seeds, view.scores, setting.graph, count)
        passages = self.passages
        found = order(
            passages.firsts(seeds),
            passages.firsts(np.concatenate([near, far])),
            best(view.scores, count, among=passages.others(seeds)),
            best(view.scores, count, among=passages.others(near[:WIDTH])),
        )
        return np.asarray(found[:count], dtype="int64")

    def _neighbours(self, seeds: Array, scores: Array, kind: str, count: int) -> List[Array]:
        """RETURNS (List[Array]): The entities one hop away, and those two hops away if there are not `count`
        yet.
        """
        if not kind:
            return [seeds[:0], seeds[:0]]
        near = self._sorted(self.graph.around(seeds), scores, kind)
        if len(near) >= count:
            return [near[:count], near[:0]]
        far = self.graph.around(near[:WIDTH], seen=[*seeds, *near])
        return [near, self._sorted(far, scores, kind)[:count]]

    def _sorted(self, entities: Array, scores: Array, kind: str) -> Array:
        if kind == "claims":
            return entities
        return entities[np.argsort(-scores[self.passages.firsts(entities)], kind="stable")]

    def _boosted(self, scores: Array, linked: Array, boost: float) -> Array:
        own = np.concatenate([self.passages.firsts(linked), self.passages.others(linked)])
        boosted = scores.copy()
        boosted[own] += np.float32(boost)
        return boosted


def order(
    firsts: Iterable[int], neighbours: Iterable[int], others: Iterable[int], rest: Iterable[int]
) -> List[int]:
    """The order of passages: the first ones of the seeds; first ones of neighbours in turn with other
    passages of the seeds; what is left of either; the rest.

    RETURNS (List[int]): The passages, each once.
    """
    turns = chain.from_iterable(zip_longest(neighbours, others))
    return [int(i) for i in dict.fromkeys(chain(firsts, turns, rest)) if i is not None]


def open_retriever(work: Path) -> Retriever:
    """RETURNS (Retriever): The retriever over the folders that the commands wrote."""
    words = Words(work / "words")
    return Retriever(
        Passages(work / "passages"),
        Search(work / "search", words),
        Tfidf(work / "tfidf", words),
        Graph(work / "graph"),
    )
