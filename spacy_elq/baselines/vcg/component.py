"""The component `elq_vcg`: VCG (Sorokin and Gurevych, 2018), linking by the question, the names and the
relations of the candidates.
"""

import logging
import warnings
from pathlib import Path
from typing import Any, Callable, ClassVar, Dict, Iterable, List, Optional, Sequence, Tuple, Union

import numpy as np
import srsly
from spacy import util
from spacy.language import Language
from spacy.pipeline.trainable_pipe import TrainablePipe
from spacy.tokens import Doc, Span
from spacy.training import Example, validate_examples, validate_get_examples
from spacy.vocab import Vocab
from thinc.api import Model, Optimizer

from ...core.decode import Decoder
from ...errors import ELQError, Errors, Rule, Warnings, whole_number
from ...files import loading
from ...index import find_place, record_place
from ...pipeline.annotate import write_links
from ...pipeline.batch import check_spans, to_batch, to_docs
from ...pipeline.gold import Gold, collect_gold
from ...pipeline.scorer import ScoresLinks, linker_score
from ...pipeline.settings import LINKER_RULES, OPTIONAL_TEXT, HasSettings
from ...types import Alternative, Array, Link
from ...util import settle_threads
from ..tagme.spotting import name_key
from .decode import best_candidates, choose_group, order_candidates, shares
from .features import Features, read_features
from .losses import candidate_margin_loss, ramp, weighted_mention_loss
from .mentions import Ngrams, find_ngrams, to_ngrams
from .network import Scores, set_dropout
from .relations import LONGEST, Relations

logger = logging.getLogger("spacy")
_EFFECTLESS = "its score is the probability of the mention."


class ELQVcg(HasSettings, ScoresLinks, TrainablePipe):
    """Finds n-grams that are names of entities, or parts of names, and lets a network decide which are
    mentions, and of what: by the question, the names and the relations of the candidates.
    """

    rules: ClassVar[Dict[str, Rule]] = {
        **LINKER_RULES,
        "relations": OPTIONAL_TEXT,
        "negative_weight": (lambda x: 0.0 <= x <= 1.0, "a number from 0 to 1"),
        "ramp": whole_number(0),
        "margin": (lambda x: 0 < x < np.inf, "a number above 0"),
    }
    blocks: ClassVar[Dict[str, type]] = {"decoder": Decoder}
    without_effect: ClassVar[Dict[str, str]] = {
        **{
            f"decoder.only_{kind}": "the relations are used as a whole." for kind in ("labels", "tags", "ids")
        },
        **{f"decoder.{name}": _EFFECTLESS for name in ("slope", "bias", "entity_threshold", "nil")},
        "decoder.word_edges": "its mentions are names, or parts of names.",
    }
    decoder: Decoder

    def __init__(
        self,
        vocab: Vocab,
        model: Model[Features, Scores],
        name: str = "elq_vcg",
        *,
        relations: Optional[str] = None,
        decoder: Decoder = Decoder(threshold=0.5, candidates=50, max_length=LONGEST),  # noqa: B008  (frozen)
        scorer: Optional[Callable] = linker_score,
        negative_weight: float = 0.43,
        ramp: int = 1050,
        margin: float = 0.5,
        label: str = "ENTITY",
        existing_ents: str = "overwrite",
    ) -> None:
        """Make the component. The relations are opened when they are needed. For the settings see
        `make_elq_vcg`.
        """
        self.name = name
        self.vocab = vocab
        self.model = model
        self.scorer = scorer
        self.decoder = decoder
        self.relations = relations
        self.negative_weight = negative_weight
        self.ramp = ramp
        self.margin = margin
        self.label = label
        self.existing_ents = existing_ents
        self.remember_config()
        self._relations: Optional[Relations] = None
        # the `relations` for which they were opened
        self._path_seen: Optional[str] = None
        # those that the model was trained with
        self._stamp: Optional[Dict[str, Any]] = None
        self._updates = 0

    @property
    def index(self) -> Relations:
        """RETURNS (Relations): The relations, which know the entities as the index of `elq_linker` does."""
        if self._relations is None:
            if self.relations is None:
                raise ELQError(Errors.E212.format(name=self.name))
            return self._attach(self.relations)
        return self._relations

    def _attach(self, path: Union[str, Path]) -> Relations:
        """RETURNS (Relations): Those of a folder, now in use.
        RAISES (ELQError): If the model cannot read them or was trained with others.
        """
        relations = Relations.open(path)
        expected = self.model.get_dim("nI")
        if relations.width != expected:
            raise ELQError(
                Errors.E219.format(
                    path=relations.path, found=relations.width, name=self.name, expected=expected
                )
            )
        if self._stamp not in (None, relations.stamp):
            raise ELQError(
                Errors.E218.format(
                    path=relations.path, found=relations.stamp, name=self.name, expected=self._stamp
                )
            )
        self._relations, self._path_seen = relations, self.relations
        settle_threads()  # before a worker is forked
        return relations

    # ------------------------------------------------------------------ prediction

    def predict(self, docs: Iterable[Doc]) -> List[List[Link]]:
        """Find and link the mentions of a batch, without changing the docs.

        docs (Iterable[Doc]): The docs.
        RETURNS (List[List[Link]]): Per doc, the links by position. The score is the probability of the
            mention, that of an alternative its share among the candidates.
        """
        docs = list(docs)
        ngrams = self._find(docs, block=True)
        if not len(ngrams.spans):
            return [[] for _ in docs]
        logits, scores = self._score(docs, ngrams)
        chosen = choose_group(ngrams.spans, logits.astype("float64"), ngrams.docs, self.decoder)
        probabilities = np.exp(-np.logaddexp(0.0, -logits[chosen].astype("float64")))
        return self._make_links(docs, ngrams, chosen, probabilities, scores)

    def link_spans(self, docs: Sequence[Doc], spans: Sequence[Sequence[Span]]) -> List[List[Link]]:
        """Link given mentions: boundaries are taken as given, the entity of each is decided.

        docs (Sequence[Doc]): The docs.
        spans (Sequence[Sequence[Span]]): The mentions of each doc; they may overlap.
        RETURNS (List[List[Link]]): Per doc, the links in the order of the spans. The score is the share of
            the entity among the candidates. A span that is in no name gets no link.
        """
        check_spans(docs, spans)
        keys = [name_key(span.text) for own in spans for span in own]
        names = self.index.find(np.asarray(keys, dtype="uint64"))
        known = np.flatnonzero(names >= 0)
        ngrams = to_ngrams(
            docs, self.index, to_batch(docs, spans)[known], names[known], candidates=self.decoder.candidates
        )
        if not len(known):
            return [[] for _ in docs]
        _, scores = self._score(docs, ngrams)
        best = shares(scores, ngrams.sizes)[best_candidates(scores, ngrams.sizes)]
        return self._make_links(docs, ngrams, np.arange(len(known)), best, scores)

    def _find(self, docs: Sequence[Doc], *, block: bool) -> Ngrams:
        settings = self.decoder
        return find_ngrams(
            docs, self.index, longest=settings.max_length, candidates=settings.candidates, block=block
        )

    def _score(self, docs: Sequence[Doc], ngrams: Ngrams) -> Scores:
        """RETURNS (Scores): (n-grams,) mention logits and (candidates,) scores."""
        settle_threads()
        return self.model.predict(read_features(docs, ngrams, self.index))

    def _make_links(
        self, docs: Sequence[Doc], ngrams: Ngrams, chosen: Array, probabilities: Array, scores: Array
    ) -> List[List[Link]]:
        """RETURNS (List[List[Link]]): Per doc, the links of the n-grams chosen.

        probabilities (Array): (chosen,) the score of each link.
        """
        order = order_candidates(scores, ngrams.sizes, chosen)
        heads = self.index.heads(ngrams.entities[order])
        own = shares(scores, ngrams.sizes)[order].tolist()
        alternatives = [
            Alternative(id_, title, share, label or self.label)
            for (id_, title, label), share in zip(heads, own, strict=True)
        ]
        ends = np.cumsum(ngrams.sizes[chosen]).tolist()
        links: List[List[Link]] = [[] for _ in docs]
        catalogue = str(self.index.path)
        rows = zip(
            to_docs(docs, ngrams.spans[chosen]), probabilities.tolist(), [0, *ends], ends, strict=False
        )
        for (owner, start, end), score, begin, stop in rows:
            best, others = alternatives[begin], alternatives[begin:stop]
            link = Link(start, end, best.id, best.title, best.label, score, others, catalogue=catalogue)
            links[owner].append(link)
        return links

    def set_annotations(self, docs: Iterable[Doc], links: List[List[Link]]) -> None:
        """Write links to the docs: entities, scores, titles and alternatives.

        docs (Iterable[Doc]): The docs.
        links (List[List[Link]]): What `predict` returned for them.
        """
        write_links(docs, links, existing_ents=self.existing_ents)

    # ------------------------------------------------------------------ training

    def initialize(
        self,
        get_examples: Callable[[], Iterable[Example]],
        *,
        nlp: Optional[Language] = None,
        relations: Optional[str] = None,
    ) -> None:
        """Prepare for training: open the relations, check the gold links.

        get_examples (Callable[[], Iterable[Example]]): Gives the training examples.
        nlp (Optional[Language]): The pipeline.
        relations (Optional[str]): Folder of the relations; without it, that of the setting `relations`.
        """
        validate_get_examples(get_examples, "ELQVcg.initialize")
        self._stamp, self._updates = None, 0
        if relations is not None:
            self._attach(relations)
        self._stamp = self.index.stamp
        self.model.initialize()
        self._report_gold(get_examples())

    def _report_gold(self, examples: Iterable[Example]) -> None:
        """Say how many gold links the network can learn and find: those among the candidates of an n-gram."""
        total = found = 0
        for batch in util.minibatch(examples, 128):
            docs = [example.predicted for example in batch]
            gold = collect_gold(batch, self.index.positions)
            ngrams = self._find(docs, block=False)
            _, _, reached = match_gold(ngrams, gold, count=len(self.index))
            total += len(gold.ids) + gold.misfits
            found += int(reached.sum())
        logger.info("%s: %d gold mentions, %d among the candidates", self.name, total, found)
        if total and found < total / 2:
            warnings.warn(Warnings.W012.format(found=found, total=total), stacklevel=2)

    def update(
        self,
        examples: Iterable[Example],
        *,
        drop: float = 0.0,
        sgd: Optional[Optimizer] = None,
        losses: Optional[Dict[str, float]] = None,
    ) -> Dict[str, float]:
        """Learn from a batch. Arguments and result are those of every trainable component."""
        losses = {} if losses is None else losses
        losses.setdefault(self.name, 0.0)
        examples = list(examples)
        validate_examples(examples, "ELQVcg.update")
        docs = [example.predicted for example in examples]
        ngrams = self._find(docs, block=False)
        if not len(ngrams.spans):
            return losses
        settle_threads()
        set_dropout(self.model, drop)
        scores, backprop = self.model.begin_update(read_features(docs, ngrams, self.index))
        loss, gradients = self.get_loss(examples, (ngrams, scores))
        backprop(gradients)
        self._updates += 1
        if sgd is not None:
            self.finish_update(sgd)
        losses[self.name] += loss
        return losses

    def get_loss(self, examples: Iterable[Example], scores: Tuple[Ngrams, Scores]) -> Tuple[float, Scores]:
        """The loss of a batch and its gradient. Negatives count little at first, so that the network learns
        to tell candidates apart before it learns to refuse.

        examples (Iterable[Example]): The batch.
        scores (Tuple[Ngrams, Scores]): Its n-grams, and the model's output for them.
        RETURNS (Tuple[float, Scores]): The loss, d_logits and d_scores.
        """
        ngrams, (logits, own) = scores
        gold = collect_gold(examples, self.index.positions)
        targets, is_known, _ = match_gold(ngrams, gold, count=len(self.index))
        weight = self.negative_weight * ramp(self._updates, self.ramp)
        known = np.flatnonzero(is_known)
        d_logits = np.zeros(len(logits))
        loss, d_logits[known] = weighted_mention_loss(
            logits[known].astype("float64"), targets[known] >= 0, negative_weight=weight
        )
        linking, d_scores = candidate_margin_loss(
            own.astype("float64"), ngrams.sizes, targets, margin=self.margin
        )
        return loss + linking, (d_logits, d_scores)

    def rehearse(self, *args: Any, **kwargs: Any) -> Dict[str, float]:
        """Not supported: there are no labels whose distribution could be remembered."""
        raise ELQError(Errors.E007.format(name=self.name))

    def add_label(self, label: str) -> int:
        """Not supported: labels belong to the catalogue."""
        raise ELQError(Errors.E008.format(name=self.name))

    # ------------------------------------------------------------------ on disk

    def to_bytes(self, *, exclude: Iterable[str] = ()) -> bytes:
        """Serialize to bytes, without the relations: only their place and their stamp.

        exclude (Iterable[str]): Fields to leave out: vocab, model, relations.
        RETURNS (bytes): The serialized component.
        """
        serialize: Dict[str, Callable[[], Any]] = {
            "relations": lambda: srsly.json_dumps(self._record(None)),
            "vocab": lambda: self.vocab.to_bytes(exclude=exclude),
            "model": self.model.to_bytes,
        }
        return util.to_bytes(serialize, exclude)

    def from_bytes(self, bytes_data: bytes, *, exclude: Iterable[str] = ()) -> "ELQVcg":
        """Load from bytes and open the relations they name.

        bytes_data (bytes): What `to_bytes` returned.
        exclude (Iterable[str]): Fields to leave out: vocab, model, relations.
        RETURNS (ELQVcg): The component.
        """
        deserialize: Dict[str, Callable[[Any], Any]] = {
            "vocab": lambda b: self.vocab.from_bytes(b, exclude=exclude),
            "model": lambda b: self._load_model(b, Path(self.name, "model")),
            "relations": lambda b: self._open(_read_record(b, Path(self.name, "relations.json")), None),
        }
        util.from_bytes(bytes_data, deserialize, exclude)
        return self

    def to_disk(self, path: Union[str, Path], *, exclude: Iterable[str] = ()) -> None:
        """Save to a folder, with the place of the relations.

        path (Union[str, Path]): The folder.
        exclude (Iterable[str]): Fields to leave out: vocab, model, relations.
        """
        self.warn_unsaved()
        folder = Path(path)
        serialize: Dict[str, Callable[[Path], Any]] = {
            "relations.json": lambda p: srsly.write_json(p, self._record(folder)),
            "vocab": lambda p: self.vocab.to_disk(p, exclude=exclude),
            "model": lambda p: self.model.to_disk(p),
        }
        util.to_disk(path, serialize, exclude)

    def from_disk(self, path: Union[str, Path], *, exclude: Iterable[str] = ()) -> "ELQVcg":
        """Load from a folder and open the relations it names.

        path (Union[str, Path]): The folder.
        exclude (Iterable[str]): Fields to leave out: vocab, model, relations.
        RETURNS (ELQVcg): The component.
        """
        folder = Path(path)
        deserialize: Dict[str, Callable[[Path], Any]] = {
            "vocab": lambda p: self.vocab.from_disk(p, exclude=exclude),
            "model": lambda p: self._load_model(p.read_bytes(), p),
            "relations.json": lambda p: self._open(_read_record(p.read_bytes(), p), folder),
        }
        util.from_disk(path, deserialize, exclude)
        return self

    def _load_model(self, data: bytes, path: Path) -> None:
        with loading(path):
            self.model.from_bytes(data)

    def _record(self, folder: Optional[Path]) -> Dict[str, Any]:
        """RETURNS (Dict[str, Any]): Where the relations are, from `folder` and from the root, what they must
        be, and the `relations` that they were opened for.
        """
        if self._relations is None and self.relations is None:
            return {}
        paths = record_place(self.index.path, folder)
        return {"given": self._path_seen, "paths": paths, "stamp": self._stamp or self.index.stamp}

    def _open(self, record: Dict[str, Any], folder: Optional[Path]) -> None:
        if not record:
            return
        # a trained model tells candidates apart already
        self._stamp, self._updates = record["stamp"], self.ramp
        # others that were named when loading are opened when they are needed, and must be the same
        if self.relations == record["given"]:
            self._attach(find_place(record["paths"], folder, message=Errors.E217, name=self.name))


def _read_record(data: bytes, path: Path) -> Dict[str, Any]:
    """RETURNS (Dict[str, Any]): What `_record` returned, read from JSON."""
    with loading(path):
        record = srsly.json_loads(data)
        if record != {} and not {"given", "paths", "stamp"} <= set(dict(record)):
            raise ValueError("it does not say where the relations are")
        return record


def match_gold(ngrams: Ngrams, gold: Gold, *, count: int) -> Tuple[Array, Array, Array]:
    """Find the n-grams that overlap with a gold mention and have its entity among their candidates.

    count (int): How many entities there are.
    RETURNS (Tuple[Array, Array, Array]): (n-grams,) the right candidate of each, counted over all
        candidates, or -1; (n-grams,) whether that is known: where not all mentions are marked, what overlaps
        with none may be one; (gold mentions,) whether an n-gram has it.
    """
    spans, known = gold.spans, ngrams.spans
    overlap = (known[:, None, 0] < spans[None, :, 1]) & (spans[None, :, 0] < known[:, None, 1])
    owners, mentions = np.nonzero(overlap & (gold.positions >= 0))
    wanted = owners * count + gold.positions[mentions]
    offered = ngrams.owners * count + ngrams.entities
    targets = np.full(len(known), -1)
    places = np.flatnonzero(np.isin(offered, wanted))[::-1]
    # the first of several is written last
    targets[ngrams.owners[places]] = places
    reached = np.bincount(mentions, np.isin(wanted, offered), minlength=len(spans)) > 0
    return targets, gold.complete[ngrams.docs] | overlap.any(axis=1), reached
