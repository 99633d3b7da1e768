"""The answer of `/entity_linking`, as clients of the published ELQ read it."""

import math
from typing import Any, Dict, List, Mapping, Optional, Sequence

from ..types import Entity


def to_published(
    text: str,
    links: Sequence[Mapping[str, Any]],
    entities: Mapping[str, Entity],
    *,
    ids: str,
    positions: Mapping[str, int],
) -> Dict[str, Any]:
    """Turn links into what the published service returns for a question.

    text (str): The question.
    links (Sequence[Mapping[str, Any]]): Its links, with their alternatives.
    entities (Mapping[str, Entity]): The entities of all alternatives by id.
    ids (str): "id", or the id system whose ids are wanted.
    positions (Mapping[str, int]): The position of each entity in the index, which the service calls its id.
    RETURNS (Dict[str, Any]): For each mention and each of its candidates: score (a logarithm), id, title and
        mention; the words of each mention.
    """
    words = _word_offsets(text)
    answer: Dict[str, Any] = {"id": 0, "text": text}
    answer["scores"] = [[_log(c["score"]) for c in link["alternatives"]] for link in links]
    answer["dbpedia_ids"] = [
        [_pick_id(c["id"], entities.get(c["id"]), ids) for c in link["alternatives"]] for link in links
    ]
    answer["pred_tuples_string"] = [
        [[c["title"], link["mention"]] for c in link["alternatives"]] for link in links
    ]
    answer["pred_triples"] = [
        [
            [positions.get(c["id"], -1) for c in link["alternatives"]],
            *_word_range(words, link["start"], link["end"]),
        ]
        for link in links
    ]
    return {"detection_res": [answer]}


def _pick_id(id_: str, entity: Optional[Entity], ids: str) -> str:
    if ids == "id":
        return id_
    return entity.ids.get(ids, "") if entity is not None else ""


def _log(score: float) -> float:
    return math.log(max(score, 1e-12))


def _word_offsets(text: str) -> List[int]:
    """RETURNS (List[int]): Where the words of a text begin."""
    return [i for i, char in enumerate(text) if not char.isspace() and (i == 0 or text[i - 1].isspace())]


def _word_range(words: Sequence[int], start: int, end: int) -> List[int]:
    """RETURNS (List[int]): The half-open range of words that characters touch."""
    first = max(0, sum(word <= start for word in words) - 1)
    return [first, max(first + 1, sum(word < end for word in words))]
