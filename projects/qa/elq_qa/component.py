"""The component `elq_passages`: behind a linker, it puts passages for the text on `doc._.passages`."""

from functools import cached_property
from pathlib import Path
from typing import Any, Dict, List

from spacy.language import Language
from spacy.tokens import Doc

from .links import links_of
from .retrieve import Retriever, Setting, open_retriever

if not Doc.has_extension("passages"):
    Doc.set_extension("passages", default=None)


@Language.factory(
    "elq_passages",
    default_config={"work": "work", "count": 10, "boost": 4.0, "articles": 0, "graph": ""},
    assigns=["doc._.passages"],
    requires=["doc.ents"],
)
class PassageRetriever:
    """Retrieves passages for a doc from its linked entities."""

    def __init__(
        self,
        nlp: Language,
        name: str = "elq_passages",
        *,
        work: str = "work",
        count: int = 10,
        boost: float = 4.0,
        articles: int = 0,
        graph: str = "",
    ) -> None:
        """Make the component. The folders are opened when they are needed.

        work (str): The folder with passages, words, search, tfidf and graph.
        count (int): How many passages a doc gets at most.
        boost (float): How much BM25 rises for passages of linked entities. 0 restricts the passages to those
            of the seeds instead: linked entities, and what `articles` and `graph` add to them. A doc without
            seeds gets the best passages by BM25.
        articles (int): How many of the best articles by TF-IDF are seeds, behind the linked entities.
        graph (str): Whether passages of neighbours follow, and their order: "claims", "bm25", or "" for none.
        """
        self.name, self.work, self.count = name, work, count
        self.setting = Setting("doc", articles, graph, boost)

    @cached_property
    def retriever(self) -> Retriever:
        """RETURNS (Retriever): What finds the passages."""
        return open_retriever(Path(self.work))

    def __getstate__(self) -> Dict[str, Any]:
        """RETURNS (Dict[str, Any]): The settings; every process opens the folders by itself."""
        return {key: value for key, value in self.__dict__.items() if key != "retriever"}

    def __call__(self, doc: Doc) -> Doc:
        """RETURNS (Doc): The doc. `doc._.passages` is a list of dicts with `entity`, `title`, `text` and
        `score`, the BM25 without boost, in the order in which they should be read.
        """
        view = self.retriever.view(doc.text, articles=self.setting.articles)
        ids = [link["id"] for link in links_of(doc)]
        found = self.retriever.retrieve(view, ids, self.setting, count=self.count)
        if not len(found):
            found = self.retriever.retrieve(view, ids, Setting(), count=self.count)
        passages: List[Dict[str, Any]] = [
            {**self.retriever.passages[i]._asdict(), "score": round(float(view.scores[i]), 3)}
            for i in found.tolist()
        ]
        doc._.passages = passages
        return doc
