"""What requests and answers look like: the source of the OpenAPI page."""

from typing import Annotated, Any, Dict, List, Optional, Union

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

_QUESTION = "who played princess leia in star wars"
_LINK: Any = {
    "start": 11,
    "end": 24,
    "mention": "princess leia",
    "id": "Q51797",
    "title": "Princess Leia",
    "label": "ENTITY",
    "score": 0.94,
    "alternatives": [{"id": "Q51797", "title": "Princess Leia", "label": "ENTITY", "score": 0.94}],
}


def _check_text(text: str) -> str:
    """RETURNS (str): The text. Half of a surrogate pair can be written in JSON, but it is no text."""
    text.encode("utf8")
    return text


Text = Annotated[str, AfterValidator(_check_text)]
Name = Annotated[Text, Field(min_length=1, max_length=1_000)]
Names = Annotated[List[Name], Field(max_length=10_000)]


class Request(BaseModel):
    """What all requests have in common: unknown fields are errors."""

    model_config = ConfigDict(extra="forbid")


class WithinBody(Request):
    """The part of the catalogue that counts. All that are given must hold, each for one of its values."""

    labels: Optional[Names] = Field(None, description="Entities with one of these labels")
    tags: Optional[Names] = Field(None, description="Entities with one of these tags")
    ids: Optional[Names] = Field(None, description="Entities with one of these ids")


class LinkOptions(Request):
    """How texts are linked."""

    threshold: Optional[float] = Field(
        None, ge=0.0, le=1.0, description="Least score of a link; by default the pipeline's"
    )
    alternatives: int = Field(3, ge=0, le=100, description="Candidates of each link, the linked entity first")
    within: Optional[WithinBody] = Field(None, description="The part of the catalogue that counts")


class LinkRequest(LinkOptions):
    """One text or many."""

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={"examples": [{"text": _QUESTION}, {"text": [_QUESTION], "threshold": 0.5}]},
    )
    text: Union[Text, List[Text]] = Field(description="A text, or a list of them")


class ExplainRequest(LinkOptions):
    """A text to explain."""

    model_config = ConfigDict(extra="forbid", json_schema_extra={"examples": [{"text": _QUESTION}]})
    text: Text = Field(description="A text")


class CandidatesRequest(LinkOptions):
    """A mention in a text."""

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={"examples": [{"text": _QUESTION, "start": 11, "end": 24, "alternatives": 10}]},
    )
    text: Text = Field(description="A text")
    start: int = Field(ge=0, le=1_000_000, description="The mention's first character")
    end: int = Field(ge=1, le=1_000_000, description="The character behind the mention")


class QuestionBody(BaseModel):
    """What the service around the published ELQ is asked."""

    question: Text


class EntityBody(Request):
    """A record of the catalogue, as in entities.jsonl."""

    id: Name
    title: Name
    description: Text = Field("", max_length=100_000)
    aliases: Names = []
    label: Text = Field("", max_length=1_000)
    tags: Names = []
    ids: Dict[Name, Name] = Field({}, description="The same entity in other id systems")
    popularity: float = Field(0.0, ge=0.0, le=1e12)


class EntitiesBody(Request):
    """Entities to add or to replace."""

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={
            "examples": [
                {
                    "entities": [
                        {
                            "id": "P900",
                            "title": "Nimbus 9",
                            "description": "Running shoe for the road",
                            "aliases": ["nine"],
                            "label": "PRODUCT",
                        }
                    ]
                }
            ]
        },
    )
    entities: List[EntityBody] = Field(min_length=1, max_length=10_000)


class IdsBody(Request):
    """Entities to remove."""

    model_config = ConfigDict(extra="forbid", json_schema_extra={"examples": [{"ids": ["P900"]}]})
    ids: Annotated[List[Name], Field(min_length=1, max_length=10_000)]


class AlternativeBody(BaseModel):
    """A candidate of a mention."""

    id: str
    title: str
    label: str
    score: float


class LinkBody(BaseModel):
    """A link. Offsets are characters, half-open."""

    model_config = ConfigDict(json_schema_extra={"examples": [_LINK]})
    start: int
    end: int
    mention: str
    id: str
    title: str
    label: str
    score: float = Field(description="The probability that the link is right")
    alternatives: List[AlternativeBody]


class ResultBody(BaseModel):
    """The links of a text, or what went wrong with it."""

    text: str
    links: List[LinkBody]
    error: Optional[str] = None


class LinkAnswer(BaseModel):
    """The results, in the order of the texts."""

    results: List[ResultBody]


class CandidatesAnswer(BaseModel):
    """The candidates of a mention, best first. The mention consists of whole tokens."""

    start: int
    end: int
    mention: str
    candidates: List[AlternativeBody]


class ExplainAnswer(BaseModel):
    """The likely mentions of a text and the parts of their scores."""

    text: str
    mentions: List[Dict[str, Any]]


class EntitiesAnswer(BaseModel):
    """Records of the catalogue."""

    entities: List[Dict[str, Any]]


class AddedAnswer(BaseModel):
    """What became of entities."""

    added: int
    replaced: int
    entities: int


class RemovedAnswer(BaseModel):
    """How many entities were removed, and how many there are now."""

    removed: int
    entities: int


class ErrorAnswer(BaseModel):
    """What is wrong with a request."""

    detail: str
