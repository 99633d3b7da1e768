"""Explanations of links: where the score of each mention comes from, read from a file."""

from pathlib import Path
from typing import Any, Dict, List, NamedTuple, Optional

from ..errors import ELQError, Errors
from ..files import check_file, check_text, parse_json

_HINT = "Remove it, or evaluate again: python -m spacy elq evaluate PIPELINE DATA METRICS"


class ExplainedCandidate(NamedTuple):
    """An entity that was retrieved for a mention.

    vector, name, popularity (float): What each adds to the similarity.
    probability (float): Among the candidates of the mention.
    """

    id: str
    title: str
    label: str
    vector: float
    name: float
    popularity: float
    similarity: float
    probability: float


class ExplainedMention(NamedTuple):
    """A mention, whether it became a link or not.

    parts (Dict[str, float]): What makes up its mention score, by name.
    none (Optional[float]): Probability that the catalogue does not have its entity.
    joint (float): Joint probability of the mention and its best entity.
    score (float): The same after calibration.
    """

    text: str
    parts: Dict[str, float]
    mention_probability: float
    none: Optional[float]
    joint: float
    score: float
    is_link: bool
    candidates: List[ExplainedCandidate]


class Explanation(NamedTuple):
    """What a linker says of a question."""

    text: str
    threshold: float
    mentions: List[ExplainedMention]


def read_explained(path: Path) -> List[Explanation]:
    """Read explanations, one JSON object per line.

    RETURNS (List[Explanation]): In the order of the questions.
    RAISES (ELQError): If the file is missing or holds something else.
    """
    check_file(path, _HINT)
    explanations = []
    try:
        for line in path.read_text(encoding="utf8").split("\n"):
            if line.strip():
                explanations.append(_explanation(parse_json(line)))
    except (ValueError, TypeError, KeyError, AttributeError) as err:
        where = f"line {len(explanations) + 1} is not an explanation"
        problem = f"{where} ({type(err).__name__}: {err})"
        raise ELQError(Errors.E023.format(path=path, problem=problem, hint=_HINT)) from None
    return explanations


def _explanation(record: Any) -> Explanation:
    check_text(record)
    mentions = [_mention(mention) for mention in record["mentions"]]
    return Explanation(str(record["text"]), float(record["threshold"]), mentions)


def _mention(record: Any) -> ExplainedMention:
    none = record.get("none")
    return ExplainedMention(
        text=str(record["text"]),
        parts={str(name): float(value) for name, value in record.get("parts", {}).items()},
        mention_probability=float(record["mention_probability"]),
        none=None if none is None else float(none),
        joint=float(record["joint"]),
        score=float(record["score"]),
        is_link=bool(record["is_link"]),
        candidates=[_candidate(candidate) for candidate in record.get("candidates", [])],
    )


def _candidate(record: Any) -> ExplainedCandidate:
    numbers = ("vector", "name", "popularity", "similarity", "probability")
    values = {key: float(record[key]) for key in numbers}
    id_, title, label = str(record["id"]), str(record["title"]), str(record.get("label", ""))
    return ExplainedCandidate(id_, title, label, **values)
