"""Records and protocols that every other module may use."""

from dataclasses import dataclass, field, replace
from typing import Any, Dict, List, Optional, Protocol, Sequence, Tuple

from numpy.typing import NDArray
from spacy.tokens import Doc, Span

Array = NDArray[Any]


@dataclass(frozen=True)
class Entity:
    """A record of the catalogue.

    id (str): Identifier, unique in the catalogue: what `kb_id_` will hold.
    title (str): Name shown to people.
    description (str): A sentence or paragraph that distinguishes it from others.
    aliases (Tuple[str, ...]): Other names.
    label (str): Entity label for `ent.label_`, or "" for the component's setting.
    ids (Dict[str, str]): The same entity in other id systems.
    popularity (float): How often it is mentioned, such as the number of links to its page.
    tags (Tuple[str, ...]): What a search can be restricted to, such as a tenant or a collection.
    """

    id: str
    title: str
    description: str = ""
    aliases: Tuple[str, ...] = ()
    label: str = ""
    ids: Dict[str, str] = field(default_factory=dict)
    popularity: float = 0.0
    tags: Tuple[str, ...] = ()


@dataclass(frozen=True)
class Alternative:
    """A candidate entity of a mention, with the joint probability of both."""

    id: str
    title: str
    score: float
    label: str = ""

    def to_dict(self) -> Dict[str, Any]:
        """RETURNS (Dict[str, Any]): The same in plain types."""
        return {"id": self.id, "title": self.title, "label": self.label, "score": self.score}


@dataclass(frozen=True)
class Link:
    """The decision about one mention: a token range of a doc and its best entity.

    start, end (int): Half-open token range.
    entity_id, title, label (str): The best entity.
    score (float): Joint probability of mention and entity.
    alternatives (List[Alternative]): The candidates of the mention, best first; the first is the
        entity itself.
    accepted (bool): Whether it reached the threshold and overlaps with no better one.
    catalogue (str): Where the entity comes from: the folder of its index.
    """

    start: int
    end: int
    entity_id: str
    title: str
    label: str
    score: float
    alternatives: List[Alternative]
    accepted: bool = True
    catalogue: str = ""


@dataclass(frozen=True)
class Rows:
    """The question encoder's rows for a batch of docs, with their alignment to tokens.

    A row is a word piece (transformer) or a token (tok2vec). The rows of all docs stand in one array
    in reading order, and so do the tokens: token `t` of the batch has the rows `starts[t]:ends[t]`.

    vectors (Any): (rows, width), on the device of the layer that made it.
    starts, ends (Array): (tokens,) the half-open range of rows of each token.
    bounds (Array): (tokens,) whether a mention may start or end with the token.
    blocks (Array): (tokens,) whether no mention may contain the token: the encoder did not see it.
    lengths (Array): (docs,) the number of tokens of each doc.
    """

    vectors: Any
    starts: Array
    ends: Array
    bounds: Array
    blocks: Array
    lengths: Array

    def with_vectors(self, vectors: Any) -> "Rows":
        """RETURNS (Rows): The same alignment with other vectors."""
        return replace(self, vectors=vectors)


class Encoder(Protocol):
    """What turns entities into vectors."""

    @property
    def width(self) -> int:
        """RETURNS (int): The length of a vector."""

    @property
    def fingerprint(self) -> str:
        """RETURNS (str): Equal for two encoders that give the same vectors."""

    @property
    def settings(self) -> Dict[str, Any]:
        """RETURNS (Dict[str, Any]): How it was made, in plain types, to be read by people."""

    def encode(self, entities: List[Entity], *, batch_size: int) -> Array:
        """RETURNS (Array): (entities, width) float32, in the order given."""


class Entities(Protocol):
    """What knows the entities of a linker: an index, or a dictionary of anchors."""

    def __len__(self) -> int:
        """RETURNS (int): The number of entities."""

    def entity(self, position: int) -> Entity:
        """RETURNS (Entity): The entity at a position."""

    def positions(self, ids: Sequence[str]) -> Array:
        """RETURNS (Array): (ids,) the position of each id, or -1 for an unknown one."""


class Linker(Protocol):
    """A component that finds mentions and links them, as the commands see it.

    name (str): Its name in the pipeline.
    """

    name: str

    @property
    def index(self) -> Optional[Entities]:
        """RETURNS (Optional[Entities]): The entities that it links to, or None if it has none yet."""

    def link_spans(self, docs: Sequence[Doc], spans: Sequence[Sequence[Span]]) -> List[List[Link]]:
        """RETURNS (List[List[Link]]): Per doc, the links of the mentions that are given."""

    def link_gold(self, examples: Sequence[Any], *, batch_size: int = 128) -> List[List[Any]]:
        """RETURNS (List[List[Mention]]): Per example, what becomes of the gold mentions; see
        `spacy_elq.pipeline.scorer.link_gold`.
        """
