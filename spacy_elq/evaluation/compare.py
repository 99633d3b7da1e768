"""Gold links and predicted ones side by side: what is right, and what kind of error the others are."""

from dataclasses import dataclass
from typing import Dict, Iterable, List, Optional

from spacy.tokens import Doc, Span

from ..corpora.base import KIND
from ..corpora.gold import LOST, gold_spans
from ..index import EntityIndex
from ..pipeline.scorer import is_linked, mention_of, pair_links

# what a link can be, and what it is called. Weak match counts the first two as right
STATES = {
    "right": "right",
    "boundary": "boundary differs",
    "wrong": "wrong entity",
    "spurious": "spurious",
    "missed": "missed",
}
_NO_ERRORS = {"right", "boundary"}


@dataclass(frozen=True)
class ComparedLink:
    """A gold or predicted link.

    start, end (int): Half-open range of characters.
    title (str): Of the entity, "" if it is not known.
    score (Optional[float]): Of a predicted link, if its linker has scores.
    state (str): A key of `STATES`.
    """

    start: int
    end: int
    id: str
    title: str
    score: Optional[float]
    state: str


@dataclass(frozen=True)
class ComparedQuestion:
    """A question with its gold links and what was found.

    number (int): Its place in the data, from 1.
    lost (int): Gold links that do not fit the tokens; they count as missed.
    """

    number: int
    text: str
    kind: str
    gold: List[ComparedLink]
    found: List[ComparedLink]
    lost: int = 0

    @property
    def states(self) -> List[str]:
        """RETURNS (List[str]): What differs from gold, in the order of `STATES`; "right" if nothing does."""
        own = {link.state for link in (*self.gold, *self.found)} | ({"missed"} if self.lost else set())
        return [state for state in STATES if state in own - {"right"}] or ["right"]

    @property
    def is_right(self) -> bool:
        """RETURNS (bool): Whether it has no error by weak match."""
        return _NO_ERRORS.issuperset(self.states)


def compare(number: int, found: Doc, gold: Doc, titles: Dict[str, str]) -> ComparedQuestion:
    """Compare the links of a doc with gold.

    titles (Dict[str, str]): By id, for links without a title of their own.
    RETURNS (ComparedQuestion): The links of both, by position.
    """
    wanted = sorted(gold_spans(gold), key=mention_of)
    ents = [ent for ent in found.ents if is_linked(ent)]
    of_gold, of_found = _find_states(wanted, ents)
    return ComparedQuestion(
        number=number,
        text=found.text,
        kind=str(gold.user_data.get(KIND, "")),
        gold=[_compared(span, titles, state) for span, state in zip(wanted, of_gold, strict=True)],
        found=[_compared(ent, titles, state) for ent, state in zip(ents, of_found, strict=True)],
        lost=int(gold.user_data.get(LOST, 0)),
    )


def collect_titles(docs: Iterable[Doc]) -> Dict[str, str]:
    """RETURNS (Dict[str, str]): By id, the titles of all entities that linked docs name, as links or as
    alternatives.
    """
    titles: Dict[str, str] = {}
    for ent in (ent for doc in docs for ent in doc.ents):
        own = {"id": ent.kb_id_, "title": ent._.elq_title}
        for entity in (own, *(ent._.elq_alternatives or ())):
            if entity["title"]:
                titles[entity["id"]] = entity["title"]
    return titles


def look_up_titles(ids: Iterable[str], index: EntityIndex) -> Dict[str, str]:
    """RETURNS (Dict[str, str]): The titles of the entities that an index has, by id."""
    ids = list(dict.fromkeys(ids))
    pairs = zip(ids, index.positions(ids).tolist(), strict=True)
    return {id_: index.entity(position).title for id_, position in pairs if position >= 0}


def _find_states(gold: List[Span], found: List[Span]) -> List[List[str]]:
    """RETURNS (List[List[str]]): What each gold link is, and each predicted one."""
    mentions = [[mention_of(span) for span in spans] for spans in (gold, found)]
    states = [["missed"] * len(gold), ["spurious"] * len(found)]
    for g, p in pair_links(*mentions):
        if g is not None and p is not None:
            a, b = mentions[0][g], mentions[1][p]
            states[0][g] = states[1][p] = "right" if a == b else "boundary" if a[2] == b[2] else "wrong"
    return states


def _compared(span: Span, titles: Dict[str, str], state: str) -> ComparedLink:
    start, end, id_ = mention_of(span)
    title = span._.elq_title or titles.get(id_, "")
    return ComparedLink(start, end, id_, title, span._.elq_score, state)
