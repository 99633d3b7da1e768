"""Items of Wikidata: which of them become entities, and how."""

import re
from dataclasses import dataclass, field
from typing import Any, Dict, Iterable, List, Mapping, Optional, Tuple, Union

import numpy as np

from ..errors import ELQError, Errors
from ..types import Array, Entity

INSTANCE_OF, SUBCLASS_OF, FREEBASE_ID = "P31", "P279", "P646"
# the language of names that are the same everywhere
_ANY_LANGUAGE = "mul"
_ITEM = re.compile(r"Q[1-9]\d*")
# spaCy's labels for well-known classes. An item gets that of the nearest class above it
_CLASSES = {
    # human, fictional human, fictional character
    "PERSON": "Q5 Q15632617 Q95074",
    # ethnic group, religion
    "NORP": "Q41710 Q9174",
    # building, bridge, airport, road
    "FAC": "Q41176 Q12280 Q1248784 Q34442",
    # organization, business, company, university, political party, musical group, association football club,
    # sports team, government agency
    "ORG": "Q43229 Q4830453 Q783794 Q3918 Q7278 Q215380 Q476028 Q12973014 Q327333",
    # country, sovereign state, city, human settlement, town, village, administrative territorial entity
    "GPE": "Q6256 Q3624078 Q515 Q486972 Q3957 Q532 Q56061",
    # mountain, river, lake, island, ocean, sea, continent, landform, body of water, astronomical object
    "LOC": "Q8502 Q4022 Q23397 Q23442 Q9430 Q165 Q5107 Q271669 Q15324 Q6999",
    # product, vehicle, software
    "PRODUCT": "Q2424752 Q42889 Q7397",
    # event, war, battle, election
    "EVENT": "Q1656682 Q198 Q178561 Q40231",
    # work of art, creative work, film, television series, book, literary work, album, song, painting
    "WORK_OF_ART": "Q838948 Q17537576 Q11424 Q5398426 Q571 Q7725634 Q482994 Q7366 Q3305213",
    # treaty, statute
    "LAW": "Q131569 Q820655",
    "LANGUAGE": "Q34770",
}
LABELS = {id_: label for label, ids in _CLASSES.items() for id_ in ids.split()}


@dataclass(frozen=True)
class WikidataSettings:
    """Which items of a dump become entities.

    lang (str): Language of labels, descriptions and aliases, such as "en".
    types (Tuple[str, ...]): Only instances (P31) of these classes, such as "Q5"; () for all items.
    subclasses (bool): Whether instances of their subclasses (P279) count too, for `types` and for `labels`.
    min_sitelinks (int): Only items with as many sitelinks.
    labels (Mapping[str, str]): Entity labels by class, besides `LABELS`; "" for none.
    """

    lang: str = "en"
    types: Tuple[str, ...] = ()
    subclasses: bool = True
    min_sitelinks: int = 0
    labels: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Check the ids of classes."""
        for setting, ids in (("types", self.types), ("labels", self.labels)):
            for id_ in ids:
                if not _ITEM.fullmatch(id_):
                    expected = "ids of classes in Wikidata, such as Q5"
                    raise ELQError(Errors.E131.format(setting=setting, value=id_, expected=expected))


class Classes:
    """The classes of Wikidata, each with those right above it."""

    def __init__(self, pairs: Optional[Array] = None) -> None:
        """Sort the classes.

        pairs (Optional[Array]): (pairs, 2) the numbers of a class and of a class above it.
        """
        pairs = np.zeros((0, 2), dtype="int64") if pairs is None else pairs
        self._below, self._above = pairs[np.argsort(pairs[:, 0], kind="stable")].T

    def above(self, number: int) -> Dict[int, int]:
        """RETURNS (Dict[int, int]): The class itself and all classes above it, nearest first, and how many
        steps away they are.
        """
        steps = {number: 0}
        queue = [number]
        for current in queue:  # which grows
            begin, end = np.searchsorted(self._below, [current, current + 1])
            for parent in self._above[begin:end].tolist():
                if parent not in steps:
                    steps[parent] = steps[current] + 1
                    queue.append(parent)
        return steps


class ItemConverter:
    """Makes entities of items."""

    def __init__(self, settings: WikidataSettings, classes: Classes) -> None:
        """Prepare the conversion.

        settings (WikidataSettings): Which items to take.
        classes (Classes): Those of the dump, or none for no subclasses.
        """
        self._settings = settings
        self._classes = classes
        self._types = {int(id_[1:]) for id_ in settings.types}
        self._labels = {int(id_[1:]): label for id_, label in {**LABELS, **settings.labels}.items()}
        # by class: whether it is wanted, and how far away its label is
        self._known: Dict[int, Tuple[bool, int, str]] = {}

    def convert(self, item: Mapping[str, Any]) -> Union[Entity, str]:
        """RETURNS (Union[Entity, str]): The entity, or why there is none: "type", "sitelinks" or "label".

        RAISES (ValueError, TypeError): If its id, or what becomes one of `ids`, is none.
        """
        sitelinks = _mapping(item.get("sitelinks"))
        if len(sitelinks) < self._settings.min_sitelinks:
            return "sitelinks"
        kinds = [self._kind(number) for number in item_values(item, INSTANCE_OF)]
        if self._types and not any(is_wanted for is_wanted, _, _ in kinds):
            return "type"
        lang = self._settings.lang
        titles = [*_texts(item, "labels", lang), *_texts(item, "labels", _ANY_LANGUAGE)]
        if not titles:
            return "label"
        names = [*titles[1:], *_texts(item, "aliases", lang), *_texts(item, "aliases", _ANY_LANGUAGE)]
        ids = {
            "wikipedia": _mapping(sitelinks.get(f"{lang.replace('-', '_')}wiki")).get("title"),
            "freebase": next(iter(_best_values(item, FREEBASE_ID)), None),
        }
        if not _ITEM.fullmatch(item["id"]):
            raise ValueError(f"expected an id such as Q42, not {item['id']!r}")
        return Entity(
            id=item["id"],
            title=titles[0],
            description=next(iter(_texts(item, "descriptions", lang)), ""),
            aliases=tuple(name for name in dict.fromkeys(names) if name != titles[0]),
            label=min(kinds, key=lambda kind: kind[1], default=(False, 0, ""))[2],
            ids={key: _to_text(value) for key, value in ids.items() if value},
            popularity=len(sitelinks),
        )

    def _kind(self, number: int) -> Tuple[bool, int, str]:
        """RETURNS (Tuple[bool, int, str]): Whether instances of a class are wanted, the steps to the nearest
        class above that has a label, and this label.
        """
        if number not in self._known:
            above = self._classes.above(number)
            found = next((known for known in above if known in self._labels), None)
            steps, label = (1 << 30, "") if found is None else (above[found], self._labels[found])
            self._known[number] = (not self._types.isdisjoint(above), steps, label)
        return self._known[number]


def item_values(item: Mapping[str, Any], name: str) -> List[int]:
    """RETURNS (List[int]): The numbers of the items that are the best values of a property."""
    # old dumps have no `id`
    return [int(value.get("numeric-id") or value["id"][1:]) for value in _best_values(item, name)]


def _best_values(item: Mapping[str, Any], name: str) -> Iterable[Any]:
    """RETURNS (Iterable[Any]): The values of a property: the preferred ones, else the normal ones."""
    statements = _mapping(item.get("claims")).get(name) or []
    for rank in ("preferred", "normal"):
        snaks = [statement["mainsnak"] for statement in statements if statement.get("rank") == rank]
        if snaks:
            return [snak["datavalue"]["value"] for snak in snaks if snak.get("snaktype") == "value"]
    return []


def _texts(item: Mapping[str, Any], field: str, lang: str) -> List[str]:
    """RETURNS (List[str]): The label, the description or the aliases in a language; [] without any."""
    found = _mapping(item.get(field)).get(lang) or []
    entries = [found] if isinstance(found, dict) else found
    return [entry["value"] for entry in entries if entry["value"].strip()]


def _to_text(value: Any) -> str:
    """RETURNS (str): The value itself.

    RAISES (TypeError): If it is no text.
    """
    if not isinstance(value, str):
        raise TypeError(f"expected a text, not {value!r}")
    return value


def _mapping(value: Any) -> Dict[str, Any]:
    """RETURNS (Dict[str, Any]): The mapping; dumps have an empty list in place of an empty one."""
    return value if isinstance(value, dict) else {}
