"""The component `elq_tagme`: TAGME (Ferragina and Scaiella, 2010), linking by counts of hyperlinks alone."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Callable, ClassVar, Dict, Iterable, Iterator, List, Optional, Sequence, Tuple, Union

import numpy as np
import srsly
from spacy import util
from spacy.pipeline.pipe import Pipe
from spacy.tokens import Doc, Span

from ...core.decode import Decoder, accept_mentions, keep_mentions
from ...core.spans import ranges
from ...errors import ELQError, Errors, Rule
from ...files import loading
from ...index import find_place, record_place
from ...pipeline import legacy
from ...pipeline.annotate import write_links
from ...pipeline.batch import check_spans, to_docs
from ...pipeline.scorer import ScoresLinks, linker_score
from ...pipeline.settings import LINKER_RULES, OPTIONAL_TEXT, HasSettings
from ...types import Alternative, Array, Link
from .dictionary import AnchorDictionary
from .spotting import find_spots, name_key

# how many spots on either side vote, so that a long text takes no more time than many short ones
_WINDOW = 30

Relatedness = Callable[[Array, Array], Array]

_SHARE: Rule = (lambda x: 0.0 <= x <= 1.0, "a number from 0 to 1")


class ELQTagme(HasSettings, ScoresLinks, Pipe):
    """Finds the names of a dictionary in short text and links them by how often they are hyperlinks, to which
    entities, and which entities are linked from the same pages. There is nothing to train.
    """

    rules: ClassVar[Dict[str, Rule]] = {
        **LINKER_RULES,
        "dictionary": OPTIONAL_TEXT,
        "min_link_probability": _SHARE,
        "min_commonness": _SHARE,
        "vote_margin": _SHARE,
    }
    blocks: ClassVar[Dict[str, type]] = {"decoder": Decoder}
    without_effect: ClassVar[Dict[str, str]] = {
        **{
            f"decoder.only_{kind}": "the dictionary is used as a whole." for kind in ("labels", "tags", "ids")
        },
        **{
            f"decoder.{name}": "its score is no probability."
            for name in ("slope", "bias", "entity_threshold", "nil")
        },
        "decoder.word_edges": "its mentions are anchor texts.",
    }
    decoder: Decoder

    def __init__(
        self,
        name: str = "elq_tagme",
        *,
        dictionary: Optional[str] = None,
        decoder: Decoder = Decoder(candidates=50, max_length=6),  # noqa: B008  (frozen)
        scorer: Optional[Callable] = linker_score,
        min_link_probability: float = 0.001,
        min_commonness: float = 0.02,
        vote_margin: float = 0.3,
        label: str = "ENTITY",
        existing_ents: str = "overwrite",
    ) -> None:
        """Make the component. The dictionary is opened when it is needed. For the settings see
        `make_elq_tagme`.
        """
        self.name = name
        self.scorer = scorer
        self.decoder = decoder
        self.dictionary = dictionary
        self.min_link_probability = min_link_probability
        self.min_commonness = min_commonness
        self.vote_margin = vote_margin
        self.label = label
        self.existing_ents = existing_ents
        self.remember_config()
        self._dictionary: Optional[AnchorDictionary] = None
        # the `dictionary` for which it was opened
        self._path_seen: Optional[str] = None

    @property
    def index(self) -> AnchorDictionary:
        """RETURNS (AnchorDictionary): The dictionary, which knows the entities as the index of `elq_linker`
        does.
        """
        if self._dictionary is None:
            if self.dictionary is None:
                raise ELQError(Errors.E070.format(name=self.name))
            self._dictionary, self._path_seen = AnchorDictionary.open(self.dictionary), self.dictionary
        return self._dictionary

    # ------------------------------------------------------------------ prediction

    def __call__(self, doc: Doc) -> Doc:
        """RETURNS (Doc): The doc with its links."""
        self.set_annotations([doc], self.predict([doc]))
        return doc

    def pipe(self, stream: Iterable[Doc], *, batch_size: int = 128) -> Iterator[Doc]:
        """Link a stream of docs, a batch at a time.

        YIELDS (Doc): The docs in order.
        """
        error_handler = self.get_error_handler()
        for docs in util.minibatch(stream, size=batch_size):
            try:
                self.set_annotations(docs, self.predict(docs))
                yield from docs
            except Exception as err:
                error_handler(self.name, self, docs, err)

    def predict(self, docs: Iterable[Doc]) -> List[List[Link]]:
        """Find and link the mentions of a batch, without changing the docs.

        docs (Iterable[Doc]): The docs.
        RETURNS (List[List[Link]]): Per doc, the links by position. The score is ρ, that of an alternative its
            commonness.
        """
        docs = list(docs)
        spans, anchors = find_spots(docs, self.index.find, max_length=self.decoder.max_length)
        probabilities = self.index.link_probability(anchors)
        kept = np.flatnonzero(probabilities >= self.min_link_probability)
        kept = kept[is_whole(spans[kept], probabilities[kept])]
        spans, probabilities = spans[kept], probabilities[kept]
        places = to_docs(docs, spans)
        owners = np.asarray([owner for owner, _, _ in places], dtype="int64")
        choice = self._choose(anchors[kept], owners)
        rho = (probabilities + coherence(owners, choice.entities[choice.chosen], self.index.relatedness)) / 2
        accepted = self._accept(spans, np.log(np.maximum(rho, 1e-30)), owners)
        links: List[List[Link]] = [[] for _ in docs]
        for i, (owner, start, end) in enumerate(places):
            if accepted[i]:
                links[owner].append(self._make_link(start, end, choice, i, float(rho[i])))
        return links

    def _accept(self, spans: Array, scores: Array, owners: Array) -> Array:
        """RETURNS (Array): (spots,) whether each becomes a link."""
        kept = keep_mentions(
            scores,
            owners,
            log_threshold=self.decoder.log_least,
            max_mentions=0,
            limit=self.decoder.mention_limit,
        )
        accepted = np.zeros(len(spans), dtype=bool)
        accepted[kept] = accept_mentions(spans[kept], scores[kept], owners[kept], self.decoder)
        return accepted

    def link_spans(self, docs: Sequence[Doc], spans: Sequence[Sequence[Span]]) -> List[List[Link]]:
        """Link given mentions: boundaries are taken as given, the entity of each is decided.

        docs (Sequence[Doc]): The docs.
        spans (Sequence[Sequence[Span]]): The mentions of each doc; they may overlap.
        RETURNS (List[List[Link]]): Per doc, the links in the order of the spans. The score is the
            commonness of the entity. A span that is no name of the dictionary gets no link.
        """
        check_spans(docs, spans)
        given = [(owner, span) for owner, own in enumerate(spans) for span in own]
        keys = np.asarray([name_key(span.text) for _, span in given], dtype="uint64")
        anchors = self.index.find(keys)
        known = np.flatnonzero(anchors >= 0)
        choice = self._choose(anchors[known], np.asarray([given[i][0] for i in known], dtype="int64"))
        links: List[List[Link]] = [[] for _ in docs]
        for i, (owner, span) in enumerate(given[j] for j in known):
            score = float(choice.commonness[choice.chosen[i]])
            links[owner].append(self._make_link(span.start, span.end, choice, i, score))
        return links

    def _choose(self, anchors: Array, docs: Array) -> "Choice":
        """RETURNS (Choice): The candidates of spots, given by anchor and doc, and which are taken."""
        sizes, entities, commonness = self.index.senses(
            anchors, min_commonness=self.min_commonness, candidates=self.decoder.candidates
        )
        votes = collect_votes(docs, sizes, entities, commonness, relatedness=self.index.relatedness)
        return Choice(sizes, entities, commonness, choose(votes, sizes, margin=self.vote_margin))

    def _make_link(self, start: int, end: int, choice: "Choice", spot: int, score: float) -> Link:
        positions = choice.of(spot)
        entities = [self.index.entity(int(choice.entities[i])) for i in positions]
        alternatives = [
            Alternative(entity.id, entity.title, float(choice.commonness[i]), entity.label or self.label)
            for i, entity in zip(positions, entities, strict=True)
        ]
        best = entities[0]
        label, catalogue = best.label or self.label, str(self.index.path)
        return Link(start, end, best.id, best.title, label, score, alternatives, catalogue=catalogue)

    def set_annotations(self, docs: Iterable[Doc], links: List[List[Link]]) -> None:
        """Write links to the docs: entities, scores, titles and alternatives.

        docs (Iterable[Doc]): The docs.
        links (List[List[Link]]): What `predict` returned for them.
        """
        write_links(docs, links, existing_ents=self.existing_ents)

    # ------------------------------------------------------------------ on disk

    def to_bytes(self, *, exclude: Iterable[str] = ()) -> bytes:
        """Serialize to bytes, without the dictionary: only its place and its stamp.

        exclude (Iterable[str]): Fields to leave out: dictionary.
        RETURNS (bytes): The serialized component.
        """
        serialize: Dict[str, Callable[[], Any]] = {
            "dictionary": lambda: srsly.json_dumps(self._record(None)),
        }
        return util.to_bytes(serialize, exclude)

    def from_bytes(self, bytes_data: bytes, *, exclude: Iterable[str] = ()) -> "ELQTagme":
        """Load from bytes and open the dictionary they name.

        bytes_data (bytes): What `to_bytes` returned.
        exclude (Iterable[str]): Fields to leave out: dictionary.
        RETURNS (ELQTagme): The component.
        """
        deserialize: Dict[str, Callable[[Any], Any]] = {
            "dictionary": lambda b: self._open(srsly.json_loads(b), None),
        }
        util.from_bytes(bytes_data, deserialize, exclude)
        return self

    def to_disk(self, path: Union[str, Path], *, exclude: Iterable[str] = ()) -> None:
        """Save to a folder, with the place of the dictionary.

        path (Union[str, Path]): The folder.
        exclude (Iterable[str]): Fields to leave out: dictionary.
        """
        self.warn_unsaved()
        folder = Path(path)
        serialize: Dict[str, Callable[[Path], Any]] = {
            "dictionary": lambda p: srsly.write_json(p, self._record(folder)),
        }
        util.to_disk(path, serialize, exclude)

    def from_disk(self, path: Union[str, Path], *, exclude: Iterable[str] = ()) -> "ELQTagme":
        """Load from a folder and open the dictionary it names.

        path (Union[str, Path]): The folder.
        exclude (Iterable[str]): Fields to leave out: dictionary.
        RETURNS (ELQTagme): The component.
        """
        folder = Path(path)
        legacy.compare_settings(self, folder)
        deserialize: Dict[str, Callable[[Path], Any]] = {
            "dictionary": lambda p: self._open(_read_record(p), folder),
        }
        util.from_disk(path, deserialize, exclude)
        return self

    def _record(self, folder: Optional[Path]) -> Dict[str, Any]:
        """RETURNS (Dict[str, Any]): Where the dictionary is, from `folder` and from the root, what it must
        be, and the `dictionary` that it was opened for.
        """
        if self._dictionary is None and self.dictionary is None:
            return {}
        paths, stamp = record_place(self.index.path, folder), self.index.stamp
        return {"given": self._path_seen, "paths": paths, "stamp": stamp}

    def _open(self, record: Dict[str, Any], folder: Optional[Path]) -> None:
        # another one that was named when loading is opened when it is needed
        if not record or self.dictionary != record["given"]:
            return
        place = find_place(record["paths"], folder, message=Errors.E074, name=self.name)
        dictionary = AnchorDictionary.open(place)
        if dictionary.stamp != record["stamp"]:
            raise ELQError(
                Errors.E076.format(
                    path=place, name=self.name, found=dictionary.stamp, expected=record["stamp"]
                )
            )
        self._dictionary, self._path_seen = dictionary, self.dictionary


def _read_record(path: Path) -> Dict[str, Any]:
    """RETURNS (Dict[str, Any]): What `_record` returned, read from JSON."""
    with loading(path):
        record = srsly.read_json(path)
        if record != {} and not {"given", "paths", "stamp"} <= set(dict(record)):
            raise ValueError("it does not say where the dictionary is")
        return record


@dataclass(frozen=True)
class Choice:
    """The candidates of spots, those of each spot together, the most common first, and which were chosen.

    sizes (Array): (spots,) how many candidates each spot has, at least one.
    entities, commonness (Array): (candidates,) positions in the catalogue, and the share of the name's links.
    chosen (Array): (spots,) the candidate of each, counted over all candidates.
    """

    sizes: Array
    entities: Array
    commonness: Array
    chosen: Array

    def of(self, spot: int) -> List[int]:
        """RETURNS (List[int]): The candidates of a spot, the chosen one first."""
        begin = int(self.sizes[:spot].sum())
        best = int(self.chosen[spot])
        return [best, *(i for i in range(begin, begin + int(self.sizes[spot])) if i != best)]


def is_whole(spans: Array, probabilities: Array) -> Array:
    """Find the spots that are not mere parts of a longer spot that is at least as likely a link.

    spans (Array): (spots, 2) half-open token ranges, each once, by start.
    probabilities (Array): (spots,) link probabilities.
    RETURNS (Array): (spots,) bool.
    """
    longest = int((spans[:, 1] - spans[:, 0]).max(initial=0))
    begins = np.searchsorted(spans[:, 0], spans[:, 0] - longest)
    sizes = np.searchsorted(spans[:, 0], spans[:, 0], side="right") - begins
    inner, outer = np.repeat(np.arange(len(spans)), sizes), ranges(begins, sizes)
    is_part = (inner != outer) & (spans[outer, 1] >= spans[inner, 1])
    is_part &= probabilities[outer] >= probabilities[inner]
    return np.bincount(inner, is_part, minlength=len(spans)) == 0


def collect_votes(
    docs: Array, sizes: Array, entities: Array, commonness: Array, *, relatedness: Relatedness
) -> Array:
    """The votes for each candidate: every other spot of the doc gives the mean, over its own candidates, of
    relatedness times commonness.

    docs, sizes (Array): (spots,) the doc of each spot, ascending, and how many candidates it has.
    entities, commonness (Array): (candidates,) of the spots in order.
    relatedness (Relatedness): From two arrays of entities to how related they are, pair by pair.
    RETURNS (Array): (candidates,) the sum of votes.
    """
    begins = np.cumsum(sizes) - sizes
    one, other = _pairs(docs)
    blocks = sizes[one] * sizes[other]
    inside = ranges(np.zeros(len(blocks), dtype="int64"), blocks)
    width = np.repeat(sizes[other], blocks)
    first = np.repeat(begins[one], blocks) + inside // width
    second = np.repeat(begins[other], blocks) + inside % width
    related = relatedness(entities[first], entities[second])
    weights = commonness / np.repeat(sizes, sizes)
    votes = np.bincount(first, related * weights[second], minlength=len(entities))
    return votes + np.bincount(second, related * weights[first], minlength=len(entities))


def choose(votes: Array, sizes: Array, *, margin: float) -> Array:
    """Disambiguate by threshold: the most common of the candidates that have about the most votes.

    votes (Array): (candidates,) those of each spot together, the most common first.
    sizes (Array): (spots,) how many candidates each spot has, at least one.
    margin (float): How far below the most votes counts as about the same, as a share of them.
    RETURNS (Array): (spots,) the candidate chosen, counted over all candidates.
    """
    if not len(sizes):
        return np.zeros(0, dtype="int64")
    begins = np.cumsum(sizes) - sizes
    most = np.repeat(np.maximum.reduceat(votes, begins), sizes)
    positions = np.where(votes >= (1 - margin) * most, np.arange(len(votes)), len(votes))
    return np.minimum.reduceat(positions, begins)


def coherence(docs: Array, entities: Array, relatedness: Relatedness) -> Array:
    """How related the entity of each spot is to the other entities of its doc, on average.

    docs, entities (Array): (spots,) the doc of each spot, ascending, and its entity.
    RETURNS (Array): (spots,) from 0 to 1; 0 where there is no other entity.
    """
    if not len(docs):
        return np.zeros(0)
    # an entity that a doc names twice counts once, where it is named first
    pairs = docs * (entities.max() + 1) + entities
    _, first, inverse = np.unique(pairs, return_index=True, return_inverse=True)
    order = np.argsort(first)
    places = first[order]
    one, other = _pairs(docs[places])
    related = relatedness(entities[places[one]], entities[places[other]])
    count = np.bincount(np.append(one, other), minlength=len(places))
    total = np.bincount(np.append(one, other), np.append(related, related), minlength=len(places))
    means = np.empty(len(places))
    means[order] = total / np.maximum(count, 1)
    return means[inverse]


def _pairs(docs: Array) -> Tuple[Array, Array]:
    """RETURNS (Tuple[Array, Array]): (pairs,) all pairs of items of one doc that stand near each other, the
    earlier and the later one.
    """
    places = np.arange(len(docs))
    ends = np.minimum(np.searchsorted(docs, docs, side="right"), places + 1 + _WINDOW)
    return np.repeat(places, ends - places - 1), ranges(places + 1, ends - places - 1)
