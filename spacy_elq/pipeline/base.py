"""What linkers over an entity index share, however they find mentions: candidates and their joint
scores, the linking loss, annotations, scores, and the index on disk.
"""

import logging
import warnings
from contextlib import contextmanager
from functools import partial
from itertools import islice
from pathlib import Path
from typing import (
    Any,
    Callable,
    ClassVar,
    Collection,
    Dict,
    Iterable,
    Iterator,
    List,
    Mapping,
    Optional,
    Sequence,
    Tuple,
    Union,
)

import numpy as np
import srsly
from spacy import util
from spacy.language import Language
from spacy.pipeline import EntityLinker
from spacy.pipeline.trainable_pipe import TrainablePipe
from spacy.tokens import Doc
from spacy.training import Example
from spacy.vocab import Vocab
from thinc.api import Model

from ..core.decode import (
    NIL_POSITION,
    Decoder,
    add_nil,
    doubt_candidates,
    joint_scores,
    link_mentions,
)
from ..core.losses import LINKING_LOSSES, Loss, absent_linking_loss
from ..core.negatives import Negatives
from ..core.similarity import Prior, add_prior, name_degrees
from ..errors import ELQError, Errors, Rule, Warnings, describe_difference
from ..files import loading
from ..index import AnyIndex, EntityIndex, Within, copy_index, find_place, open_index, record_place
from ..model.entity_encoder import open_encoder
from ..types import Alternative, Array, Encoder, Entity, Link
from ..util import settle_threads
from . import legacy
from .annotate import write_links
from .batch import find_owners, span_texts, to_docs
from .gold import collect_gold
from .restrict import by_restriction, pick, restrict_block, restrictions
from .scorer import ScoresLinks, is_link_score
from .settings import INDEX_PATH, LINKER_RULES, HasSettings, update_settings

logger = logging.getLogger("spacy")
# folder of the index inside a pipeline that carries it
BUNDLE = "index"


class IndexedLinker(HasSettings, ScoresLinks, TrainablePipe):
    """A linker whose candidates are the entities of an index nearest to the vector of a mention.

    index (Optional[AnyIndex]): What it searches; see `set_index`.
    bundled (bool): Whether `to_disk` puts a copy of the index into the pipeline: after `spacy elq bundle`,
        and if the pipeline was loaded with its index inside.
    """

    rules: ClassVar[Dict[str, Rule]] = {**LINKER_RULES, "index_path": INDEX_PATH}
    blocks: ClassVar[Dict[str, type]] = {"prior": Prior, "decoder": Decoder, "loss": Loss}
    negatives: Negatives
    prior: Prior
    decoder: Decoder
    loss: Loss
    bundled: bool

    def __init__(
        self,
        vocab: Vocab,
        model: Model,
        name: str,
        *,
        negatives: Negatives,
        scorer: Optional[Callable],
        **settings: Any,
    ) -> None:
        """Make the component. It has no index yet: `initialize`, `set_index` or `from_disk` give one.

        settings (Any): The blocks and the other settings; see `ELQLinker`.
        """
        self.name = name
        self.vocab = vocab
        self.model = model
        self.negatives = negatives
        self.scorer = scorer
        self._index: Optional[AnyIndex] = None
        self.bundled = False
        self._encoder: Optional[Encoder] = None
        # that of the pipeline, once it has joined one
        self._meta: Dict[str, Any] = {}
        # the `index_path` for which the index was attached
        self._path_seen: Union[str, List[str], None] = None
        for setting, value in settings.items():
            setattr(self, setting, value)
        self.remember_config()

    # ------------------------------------------------------------------ the index

    @property
    def index(self) -> Optional[AnyIndex]:
        """RETURNS (Optional[AnyIndex]): What it searches, or None if it has no index yet."""
        return self._index

    @index.setter
    def index(self, index: Optional[AnyIndex]) -> None:
        """Attach an index, as `set_index` does, or take it away.

        index (Optional[AnyIndex]): The index, or None.
        """
        if index is None:
            self._index = None
        else:
            self.set_index(index)

    def set_index(self, index: AnyIndex) -> None:
        """Attach an index of any catalogue, made with the encoder that the model was trained for.

        index (AnyIndex): An index that can be searched.
        """
        before = self.index.stamp if self.index is not None else None
        self._attach(index, encoder=self.index.meta["encoder"] if self.index is not None else None)
        self._forget_scores(before)

    def _attach(self, index: AnyIndex, *, encoder: Optional[Mapping[str, Any]]) -> None:
        width = self.model.get_dim("nO") if self.model.has_dim("nO") else index.width
        if index.width != width:
            raise ELQError(
                Errors.E003.format(path=index.path, found=index.width, name=self.name, expected=width)
            )
        found = index.meta["encoder"]
        if encoder is not None and encoder["fingerprint"] != found["fingerprint"]:
            difference = describe_difference(found, encoder)
            raise ELQError(Errors.E004.format(path=index.path, name=self.name, difference=difference))
        self._index = index
        self._path_seen = self.index_path
        settle_threads()  # before a worker is forked: loading an encoder has used threads already

    def join(self, nlp: Language) -> None:
        """Share the meta of a pipeline, so that its scores go when an index of another catalogue comes.

        nlp (Language): The pipeline that the component is made for.
        """
        # the dict itself, which spaCy updates in place: unlike a weak reference it can be pickled
        self._meta = nlp.meta

    def _forget_scores(self, stamp: Optional[Dict[str, Any]]) -> None:
        """Drop the scores in the pipeline's meta if they were measured with another index than the present.

        stamp (Optional[Dict[str, Any]]): That of the index they were measured with, if there was one.
        """
        scores = self._meta.get("performance")
        if stamp is None or not scores or self._require_index().stamp["catalogue"] == stamp["catalogue"]:
            return
        kept = {key: value for key, value in scores.items() if not is_link_score(key)}
        if len(kept) < len(scores):
            self._meta["performance"] = kept
            logger.info("%s: dropped the scores of the catalogue before from the meta", self.name)

    def _attach_first(self, index_loader: Optional[Callable[[], AnyIndex]]) -> None:
        """Attach the index for training, made by any encoder, and set the width of the model to its width.

        index_loader (Optional[Callable[[], AnyIndex]]): Opens the index; without it, that of `index_path`
            is opened, unless there is one already and `index_path` has not changed since.
        """
        if index_loader is not None:
            self._attach(index_loader(), encoder=None)
        elif self.index_path is not None and (self.index is None or self.index_path != self._path_seen):
            self._attach(open_index(self.index_path), encoder=None)
        self.model.set_dim("nO", self._require_index().width)

    def _require_index(self) -> AnyIndex:
        if self.index is None:
            raise ELQError(Errors.E001.format(name=self.name))
        return self.index

    # ------------------------------------------------------------------ the catalogue

    def add_entities(self, entities: Iterable[Union[Entity, Mapping[str, Any]]]) -> int:
        """Add entities to the catalogue, or replace those whose ids are there. The next doc is linked to
        them, also in other processes that have the index open. If one of them is not valid, none is added.

        entities (Iterable[Union[Entity, Mapping[str, Any]]]): Records of the catalogue, such as
            {"id": "P900", "title": "Nimbus 9", "description": "…", "aliases": ["nine"], "tags": ["shop-7"]}.
        RETURNS (int): How many there are.
        """
        return self._require_index().add(entities, self._require_encoder())

    def remove_entities(self, ids: Iterable[str]) -> int:
        """Remove entities from the catalogue.

        ids (Iterable[str]): Their ids; unknown ones are ignored.
        RETURNS (int): How many there were.
        """
        return self._require_index().remove(ids)

    @contextmanager
    def within(
        self,
        *,
        labels: Optional[Collection[str]] = None,
        tags: Optional[Collection[str]] = None,
        ids: Optional[Collection[str]] = None,
    ) -> Iterator[None]:
        """Link to a part of the catalogue only, for a block of code: `with linker.within(tags=["shop-7"]):`.
        Other threads do not see it. Every condition that is given must hold, for one of its values.

        labels, tags, ids (Optional[Collection[str]]): What an entity must have one of.
        """
        with restrict_block(self, Within.make({"labels": labels, "tags": tags, "ids": ids})):
            yield

    def _require_encoder(self) -> Encoder:
        """RETURNS (Encoder): What made the vectors of the index, loaded when it is first needed."""
        index = self._require_index()
        if self._encoder is None or self._encoder.fingerprint != index.meta["encoder"]["fingerprint"]:
            self._encoder = open_encoder(index.meta["encoder"], index.path)
        return self._encoder

    # ------------------------------------------------------------------ from mentions to links

    def _link(
        self,
        index: AnyIndex,
        docs: Sequence[Doc],
        spans: Array,
        vectors: Array,
        log_probs: Array,
        none: Optional[Array] = None,
    ) -> Tuple[Array, Array]:
        """Find the candidates of mentions and their joint probabilities.

        spans, vectors (Array): (mentions, 2) token ranges, counted over the batch, and (mentions, width).
        log_probs (Array): (mentions,) log probability that each is one.
        none (Optional[Array]): (mentions,) the score of "none of these".
        RETURNS (Tuple[Array, Array]): (mentions, candidates) positions and log joint probabilities. "None of
            these" is the first or the last candidate.
        """
        positions, similarities = self._find_candidates(index, docs, spans, vectors)
        similarities /= self.prior.temperature
        if none is not None:
            positions, similarities = add_nil(positions, similarities, self._compete(similarities, none))
        return positions, joint_scores(log_probs, similarities)

    def _compete(self, similarities: Array, none: Array) -> Array:
        """RETURNS (Array): (mentions,) the score of "none of these", as the softmax sees it."""
        least = self.decoder.entity_threshold
        return doubt_candidates(similarities, none / self.prior.temperature, least=least)

    def _find_candidates(
        self, index: AnyIndex, docs: Sequence[Doc], spans: Array, vectors: Array
    ) -> Tuple[Array, Array]:
        """Find the candidates of mentions, each in the part of the catalogue that counts for its doc.

        spans, vectors (Array): (mentions, 2) token ranges, counted over the batch, and (mentions, width).
        RETURNS (Tuple[Array, Array]): (mentions, candidates) positions and similarities, best first.
        """
        names = self._names(docs, spans)
        positions = np.full((len(spans), self.decoder.candidates), -1, dtype="int64")
        similarities = np.full(positions.shape, -np.inf)
        for within, own in self._restrictions(docs, spans):
            search = self._search(index, pick(names, own))
            found, scores = search(vectors[own], self.decoder.candidates, within=within)
            positions[own, : found.shape[1]] = found
            similarities[own, : found.shape[1]] = scores
        return positions, similarities

    def _restrictions(self, docs: Sequence[Doc], spans: Array) -> Iterable[Tuple[Optional[Within], Array]]:
        """RETURNS (Iterable[Tuple[Optional[Within], Array]]): What part of the catalogue counts, and the
        spans that it counts for.
        """
        withins = restrictions(self, docs, self.decoder.within)
        if len(set(withins)) <= 1:  # nearly always
            return [(withins[0] if withins else None, np.arange(len(spans)))]
        return by_restriction(find_owners(docs, spans)[0], withins)

    def _link_best(
        self,
        index: AnyIndex,
        docs: Sequence[Doc],
        spans: Array,
        vectors: Array,
        log_probs: Array,
        none: Optional[Array] = None,
    ) -> List[List[Link]]:
        """Link mentions; see `link_mentions`.

        spans, vectors (Array): (mentions, 2) token ranges, counted over the batch, by position, and
            (mentions, width).
        log_probs (Array): (mentions,) log probability that each is one.
        none (Optional[Array]): (mentions,) the score of "none of these".
        RETURNS (List[List[Link]]): Per doc, the links by position; if all mentions are shown, also those
            that were not accepted.
        """

        def look_up(asked: Array) -> Tuple[Array, Array]:
            own = None if none is None else none[asked]
            return self._link(index, docs, spans[asked], vectors[asked], log_probs[asked], own)

        owners, _ = find_owners(docs, spans)
        positions, joint, is_link = link_mentions(
            spans, log_probs, owners, look_up, decoder=self.decoder, look_up_all=self._shows_all
        )
        if not self.decoder.nil:
            # what the catalogue lacks gets no link, nor do its parts
            is_link = is_link & (positions[:, 0] != NIL_POSITION)
        shown = np.arange(len(spans)) if self._shows_all else np.flatnonzero(is_link)
        scores = self.decoder.calibrate(joint[shown])
        return self._make_links(index, docs, spans[shown], positions[shown], scores, is_link[shown])

    @property
    def _shows_all(self) -> bool:
        """RETURNS (bool): Whether mentions that are not accepted are shown too."""
        return False

    def _search(self, index: AnyIndex, names: List[str]) -> Callable[..., Tuple[Array, Array]]:
        """RETURNS (Callable): The index's search for mentions of these names, with the weights set here."""
        return partial(index.search, names=names, prior=self.prior)

    def _names(self, docs: Sequence[Doc], spans: Array) -> List[str]:
        """RETURNS (List[str]): The texts of mentions, if names count for linking."""
        return span_texts(docs, spans) if self.prior.name_weight else []

    def _make_links(
        self,
        index: AnyIndex,
        docs: Sequence[Doc],
        spans: Array,
        positions: Array,
        scores: Array,
        accepted: Array,
    ) -> List[List[Link]]:
        links: List[List[Link]] = [[] for _ in docs]
        found = positions >= 0
        heads, sources = iter(index.heads(positions[found])), iter(index.sources(positions[found]))
        places, probs = to_docs(docs, spans), scores.tolist()
        counts = found.sum(axis=1).tolist()
        are_nil = (positions[:, :1] == NIL_POSITION).ravel().tolist()
        rows = zip(places, probs, counts, are_nil, accepted, strict=True)
        for (owner, start, end), own, count, is_nil, is_link in rows:
            if not count and not is_nil:
                continue
            known = list(islice(heads, count))
            catalogue = next(iter(list(islice(sources, count))), "")
            best_id, best_title, label = (EntityLinker.NIL, "", "") if is_nil else known[0]
            links[owner].append(
                Link(
                    start=start,
                    end=end,
                    entity_id=best_id,
                    title=best_title,
                    label=label or self.label,
                    score=own[0],
                    alternatives=[
                        Alternative(id_, title, prob, label or self.label)
                        for (id_, title, label), prob in zip(known, own[is_nil:], strict=False)
                    ],
                    accepted=bool(is_link),
                    catalogue=catalogue,
                )
            )
        return links

    def set_annotations(self, docs: Iterable[Doc], links: List[List[Link]]) -> None:
        """Write links to the docs: entities, scores, titles and alternatives.

        docs (Iterable[Doc]): The docs.
        links (List[List[Link]]): What `predict` returned for them.
        """
        write_links(docs, links, existing_ents=self.existing_ents)

    # ------------------------------------------------------------------ training

    def _linking_loss(
        self, index: AnyIndex, docs: Sequence[Doc], spans: Array, vectors: Array, gold: Array, none: Array
    ) -> Tuple[float, Array, Array]:
        """L_ED of gold mentions.

        spans, vectors (Array): (mentions, 2) token ranges, counted over the batch, and (mentions, width).
        gold (Array): (mentions,) positions of their entities.
        none (Array): (mentions, 1) the scores of "none of these", or (mentions, 0) if there are none.
        RETURNS (Tuple[float, Array, Array]): The loss, d_vectors and d_none.
        """
        names = self._names(docs, spans)
        pool, competes, targets = self.negatives(vectors, gold, self._search(index, names))
        entities = index.vectors_at(pool)
        matches = index.match_names(names, alias_share=self.prior.alias_share)
        degrees = name_degrees(*matches, pool=pool, mentions=len(vectors))
        similarities = add_prior(
            (vectors @ entities.T).astype("float64"),
            self.prior,
            degrees=degrees,
            log_popularity=index.popularity_at(pool),
        )
        similarities[~competes] = -np.inf
        d_none = np.zeros_like(none)
        if none.shape[1]:
            loss, d_similarities, d_none[:, 0] = absent_linking_loss(
                similarities,
                none[:, 0],
                targets,
                named=degrees > 0,
                linking=self.loss.linking,
                share=self.loss.absent,
            )
        else:
            loss, d_similarities = LINKING_LOSSES[self.loss.linking](similarities, targets)
        return loss, (d_similarities @ entities).astype(vectors.dtype), d_none

    def _report_gold(self, examples: Iterable[Example]) -> None:
        """Say how much of the gold cannot be used, and why."""
        total = misfits = 0
        unknown: List[str] = []
        index = self._require_index()
        for example in examples:
            gold = collect_gold([example], index.positions)
            total += len(gold.ids) + gold.misfits
            misfits += gold.misfits
            unknown += [gold.ids[i] for i in np.flatnonzero(gold.positions < 0)]
        logger.info("%s: %d gold mentions, %d entities in the index", self.name, total, len(index))
        if misfits:
            warnings.warn(Warnings.W001.format(misfit=misfits, total=total), stacklevel=2)
        if unknown:
            ids = ", ".join(sorted(set(unknown))[:3])
            message = Warnings.W002.format(unknown=len(unknown), total=total, ids=ids)
            warnings.warn(message, stacklevel=2)

    def rehearse(self, *args: Any, **kwargs: Any) -> Dict[str, float]:
        """Not supported: there are no labels whose distribution could be remembered."""
        raise ELQError(Errors.E007.format(name=self.name))

    def add_label(self, label: str) -> int:
        """Not supported: labels belong to the catalogue."""
        raise ELQError(Errors.E008.format(name=self.name))

    # ------------------------------------------------------------------ on disk

    def to_bytes(self, *, exclude: Iterable[str] = ()) -> bytes:
        """Serialize to bytes, without the index: only its place and its stamp.

        exclude (Iterable[str]): Fields to leave out: vocab, model, index.
        RETURNS (bytes): The serialized component.
        """
        serialize: Dict[str, Callable[[], Any]] = {
            "index": lambda: srsly.json_dumps(self._index_record(None)),
            "vocab": lambda: self.vocab.to_bytes(exclude=exclude),
            "model": self.model.to_bytes,
        }
        return util.to_bytes(serialize, exclude)

    def from_bytes(self, bytes_data: bytes, *, exclude: Iterable[str] = ()) -> "IndexedLinker":
        """Load from bytes and open the index they name.

        bytes_data (bytes): What `to_bytes` returned.
        exclude (Iterable[str]): Fields to leave out: vocab, model, index.
        RETURNS (IndexedLinker): The component.
        """
        deserialize: Dict[str, Callable[[Any], Any]] = {
            "vocab": lambda b: self.vocab.from_bytes(b, exclude=exclude),
            "model": lambda b: self._load_model(b, Path(self.name, "model")),
            "index": lambda b: self._open_index(_read_record(b, Path(self.name, "index")), None),
        }
        util.from_bytes(bytes_data, deserialize, exclude)
        return self

    def to_disk(self, path: Union[str, Path], *, exclude: Iterable[str] = ()) -> None:
        """Save to a folder, with the place of the index, or with the index if it is `bundled`.

        path (Union[str, Path]): The folder.
        exclude (Iterable[str]): Fields to leave out: vocab, model, index.
        """
        self.warn_unsaved()
        folder = Path(path)
        serialize: Dict[str, Callable[[Path], Any]] = {
            "index.json": lambda p: srsly.write_json(p, self._index_record(folder)),
            "vocab": lambda p: self.vocab.to_disk(p, exclude=exclude),
            "model": lambda p: self.model.to_disk(p),
        }
        util.to_disk(path, serialize, exclude)
        if self.bundled and "index" not in exclude and self.index is not None:
            for path, name in zip(self.index.paths, _bundle_names(len(self.index.paths)), strict=True):
                copy_index(EntityIndex.open(path), folder / name)

    def from_disk(self, path: Union[str, Path], *, exclude: Iterable[str] = ()) -> "IndexedLinker":
        """Load from a folder and open the index it names, or that of `index_path`.

        path (Union[str, Path]): The folder.
        exclude (Iterable[str]): Fields to leave out: vocab, model, index.
        RETURNS (IndexedLinker): The component.
        """
        folder = Path(path)
        legacy.compare_settings(self, folder)
        deserialize: Dict[str, Callable[[Path], Any]] = {
            "vocab": lambda p: self.vocab.from_disk(p, exclude=exclude),
            "model": lambda p: self._load_model(p.read_bytes(), p),
            "index.json": lambda p: self._open_index(_read_record(p.read_bytes(), p), folder),
        }
        util.from_disk(path, deserialize, exclude)
        return self

    def _load_model(self, data: bytes, path: Path) -> None:
        with loading(path):
            self.model.from_bytes(data)

    def _index_record(self, folder: Optional[Path]) -> Dict[str, Any]:
        """RETURNS (Dict[str, Any]): Where the index is, from `folder` and from the root, so that both can be
        moved together, what it must be, and the `index_path` that it was attached for.
        """
        if self.index is None:
            return {}
        places = [record_place(path, folder) for path in self.index.paths]
        if folder is not None and self.bundled:
            places = [[name] for name in _bundle_names(len(places))]
        # a path that was set later has not been opened: loading the pipeline does
        seen = self.index_path if self.index_path == self._path_seen else None
        record = {"stamp": self.index.stamp, "encoder": self.index.meta["encoder"], "index_path": seen}
        return {"paths": places[0], "more": places[1:], **record}

    def _open_index(self, record: Dict[str, Any], folder: Optional[Path]) -> None:
        encoder = record.get("encoder") or ({"fingerprint": record["stamp"]["encoder"]} if record else None)
        places = [record["paths"], *record.get("more", [])] if record else []
        self.bundled = bool(record) and places == [[name] for name in _bundle_names(len(places))]
        # a path that was not there when the pipeline was saved is where the index is now
        if self.index_path is not None and self.index_path != record.get("index_path"):
            self._attach(open_index(self.index_path), encoder=encoder)
            self._forget_scores(record.get("stamp"))
        elif record:
            found = [find_place(paths, folder, message=Errors.E006, name=self.name) for paths in places]
            self._attach(open_index(found), encoder=encoder)
            if self.index_path is None:
                self._check_catalogue(record["stamp"])
            self._forget_scores(record["stamp"])

    def _check_catalogue(self, stamp: Dict[str, Any]) -> None:
        index = self._require_index()
        if index.stamp["catalogue"] != stamp["catalogue"]:
            raise ELQError(
                Errors.E005.format(
                    path=index.path,
                    found=index.stamp["catalogue"],
                    name=self.name,
                    expected=stamp["catalogue"],
                )
            )


def _bundle_names(count: int) -> List[str]:
    """RETURNS (List[str]): The folders of so many indexes inside a pipeline."""
    return [BUNDLE, *(f"{BUNDLE}-{i}" for i in range(2, count + 1))]


def _read_record(data: bytes, path: Path) -> Dict[str, Any]:
    """RETURNS (Dict[str, Any]): What `_index_record` returned, read from JSON."""
    with loading(path):
        record = srsly.json_loads(data)
        if record != {} and not (
            [type(record[key]) for key in ("paths", "stamp")] == [list, dict]
            and all(isinstance(place, str) for place in record["paths"])
            and {"encoder", "catalogue"} <= set(record["stamp"])
        ):
            raise ValueError("it does not say where the index is")
        return record


def bundle_index(nlp: Language, name: str) -> None:
    """Make a pipeline carry its index: from now on, `nlp.to_disk` puts a copy inside.

    nlp (Language): The pipeline.
    name (str): Its linker.
    """
    linker = nlp.get_pipe(name)
    if not isinstance(linker, IndexedLinker):
        raise ELQError(Errors.E077.format(setting="index_path", name=name))
    linker.bundled = True
    # the index comes along: no other place may be looked at
    update_settings(nlp, name, {"index_path": None})
