"""The systems of the tables: every linker alone and with articles by TF-IDF, each with and without the
graph.
"""

from pathlib import Path
from typing import Dict, Iterator, List, Tuple

from .links import Links, read_links
from .retrieve import GRAPHS, Setting
from .runs import System

# how many articles by TF-IDF are seeds: as GraphRetriever has it, five for WebQuestions
ARTICLES = {"webquestions": 5, "nq": 10, "triviaqa": 10}
LINKERS = {
    "tagme": "TAGME",
    "elq_wikipedia": "ELQ (Wikipedia)",
    "elq_questions": "ELQ (Wikipedia, then WebQSP_EL)",
    "gold": "gold entities",
}
# the rise in BM25 of passages of linked entities; chosen on WebQuestions dev
BOOST = 4.0


def articles_for(name: str) -> int:
    """RETURNS (int): How many articles are seeds for a question set."""
    return ARTICLES[name.partition("_")[0]]


def make_settings(linker: str, articles: int, *, boost: float = BOOST) -> Iterator[Setting]:
    """YIELDS (Setting): The settings of a linker; of those without any if `linker` is ""."""
    seeds = [(linker, articles), (linker, 0)] if linker else [("", articles)]
    for own, count in seeds:
        yield from (Setting(own, count, graph) for graph in GRAPHS)
    yield Setting(linker, boost=boost) if linker else Setting()


def find_systems(name: str, folder: Path, *, boost: float = BOOST) -> List[System]:
    """RETURNS (List[System]): The systems for a question set, of those linkers that have a file in the
    folder.
    """
    found: Dict[str, Links] = {
        linker: read_links(folder / f"{linker}.jsonl")
        for linker in LINKERS
        if (folder / f"{linker}.jsonl").is_file()
    }
    count = articles_for(name)
    return [
        System(setting, links)
        for linker, links in [("", {}), *found.items()]
        for setting in make_settings(linker, count, boost=boost)
    ]


def make_pairs(articles: int) -> List[Tuple[str, str]]:
    """RETURNS (List[Tuple[str, str]]): Names of systems to compare: the ELQs with TAGME in the same setting,
    and every linker with no linker.
    """
    pairs = []
    for linker in LINKERS:
        for setting in make_settings(linker, articles):
            same = Setting("tagme", setting.articles, setting.graph, setting.boost)
            without = Setting("", setting.articles, setting.graph)
            pairs += [(setting.name, same.name)] if linker.startswith("elq") else []
            pairs += [(setting.name, without.name)] if setting.articles or setting.boost else []
    return pairs
