"""The component `elq_blink`: the two-stage linker of the paper's comparison (BLINK, Wu et al. 2020). Another
component suggests mentions; each is read in its text, marked, and compared with the entities of an index.
"""

from typing import Any, Callable, ClassVar, Dict, Iterable, List, Optional, Sequence, Tuple

import numpy as np
from spacy.language import Language
from spacy.tokens import Doc, Span
from spacy.training import Example, validate_examples, validate_get_examples
from spacy.vocab import Vocab
from thinc.api import Model, Optimizer, set_dropout_rate

from ...core.decode import Decoder, keep_mentions
from ...core.losses import Loss
from ...core.negatives import Negatives
from ...core.similarity import Prior
from ...errors import ELQError, Errors, Rule
from ...index import AnyIndex
from ...pipeline.base import IndexedLinker
from ...pipeline.batch import check_spans, find_owners, to_batch
from ...pipeline.gold import collect_gold
from ...pipeline.scorer import linker_score
from ...pipeline.settings import SPAN_GROUP
from ...types import Array, Link
from .context import MentionInput
from .extractor import MENTIONS_KEY

_NOT_OURS = "mentions are found and scored by the component that suggests them."
_ALWAYS_ONE = 'its model does not know "none of these".'


class ELQBlink(IndexedLinker):
    """Links mentions suggested by an earlier component, with one encoder pass per mention."""

    rules: ClassVar[Dict[str, Rule]] = {**IndexedLinker.rules, "mentions_key": SPAN_GROUP}
    without_effect: ClassVar[Dict[str, str]] = {
        "prior.mention_name_weight": _NOT_OURS,
        "prior.phrase_weight": _NOT_OURS,
        "prior.text_weight": _NOT_OURS,
        "decoder.word_edges": _NOT_OURS,
        "decoder.entity_threshold": _ALWAYS_ONE,
        "decoder.nil": _ALWAYS_ONE,
        "loss.absent": _ALWAYS_ONE,
        "loss.mention_weight": _NOT_OURS,
        "loss.unmarked": _NOT_OURS,
    }

    def __init__(
        self,
        vocab: Vocab,
        model: Model[MentionInput, Array],
        name: str = "elq_blink",
        *,
        negatives: Negatives,
        prior: Prior = Prior(),  # noqa: B008  (the blocks are frozen)
        decoder: Decoder = Decoder(threshold=0.05),  # noqa: B008
        loss: Loss = Loss(),  # noqa: B008
        scorer: Optional[Callable] = linker_score,
        **settings: Any,
    ) -> None:
        """Make the component. It has no index yet: `initialize`, `set_index` or `from_disk` give one.

        settings (Any): `mentions_key`, `index_path`, `label`, `existing_ents`; see `make_elq_blink`.
        """
        defaults = {
            "mentions_key": MENTIONS_KEY,
            "index_path": None,
            "label": "ENTITY",
            "existing_ents": "overwrite",
        }
        super().__init__(
            vocab,
            model,
            name,
            negatives=negatives,
            scorer=scorer,
            prior=prior,
            decoder=decoder,
            loss=loss,
            **{**defaults, **settings},
        )

    # ------------------------------------------------------------------ prediction

    def predict(self, docs: Iterable[Doc]) -> List[List[Link]]:
        """Link the suggested mentions of a batch, without changing the docs.

        docs (Iterable[Doc]): The docs, with the span group `mentions_key`.
        RETURNS (List[List[Link]]): Per doc, the links by position.
        """
        docs = list(docs)
        index = self._require_index()
        spans, log_probs = self._suggested(docs)
        kept = self._keep(docs, spans, log_probs)
        spans, log_probs = spans[kept], log_probs[kept]
        if not len(spans):
            return [[] for _ in docs]
        vectors = self.model.predict((docs, spans))
        with index.reading():
            return self._link_best(index, docs, spans, vectors, log_probs)

    def _keep(self, docs: Sequence[Doc], spans: Array, log_probs: Array) -> Array:
        """RETURNS (Array): The suggestions that are worth a pass of the encoder, ascending."""
        fitting = np.flatnonzero(spans[:, 1] - spans[:, 0] <= self.decoder.max_length)
        kept = keep_mentions(
            log_probs[fitting],
            find_owners(docs, spans[fitting])[0],
            log_threshold=self.decoder.log_least,
            max_mentions=0,
            limit=self.decoder.mention_limit,
        )
        return fitting[kept]

    def _suggested(self, docs: Sequence[Doc]) -> Tuple[Array, Array]:
        """RETURNS (Tuple[Array, Array]): (mentions, 2) token ranges, counted over the batch, by position, and
        (mentions,) their log probabilities.
        """
        key = self.mentions_key
        if any(len(doc) and key not in doc.spans for doc in docs):
            raise ELQError(Errors.E078.format(key=key, name=self.name))
        groups = [doc.spans.get(key, []) for doc in docs]
        spans = to_batch(docs, groups)
        scores = [_scores(group) for group in groups]
        # probabilities of zero have a logarithm too
        log_probs = np.log(np.maximum(np.concatenate([np.zeros(0), *scores]), 1e-30))
        order = np.lexsort((spans[:, 1], spans[:, 0]))
        return spans[order], log_probs[order]

    def link_spans(self, docs: Sequence[Doc], spans: Sequence[Sequence[Span]]) -> List[List[Link]]:
        """Link given mentions: boundaries are taken as given, the entity of each is decided.

        docs (Sequence[Doc]): The docs.
        spans (Sequence[Sequence[Span]]): The mentions of each doc; they may overlap.
        RETURNS (List[List[Link]]): Per doc, the links in the order of the spans. The score is the
            probability of the entity among the candidates.
        """
        check_spans(docs, spans)
        index = self._require_index()
        array = to_batch(docs, spans)
        if not len(array):
            return [[] for _ in docs]
        vectors = self.model.predict((list(docs), array))
        with index.reading():
            positions, joint = self._link(index, docs, array, vectors, np.zeros(len(array)))
            are_links = np.ones(len(array), dtype=bool)
            return self._make_links(index, docs, array, positions, np.exp(joint), are_links)

    # ------------------------------------------------------------------ training

    def initialize(
        self,
        get_examples: Callable[[], Iterable[Example]],
        *,
        nlp: Optional[Language] = None,
        index_loader: Optional[Callable[[], AnyIndex]] = None,
    ) -> None:
        """Prepare for training: attach the index, load the encoder, check the gold links.

        get_examples (Callable[[], Iterable[Example]]): Gives the training examples.
        nlp (Optional[Language]): The pipeline.
        index_loader (Optional[Callable[[], AnyIndex]]): Opens the index.
        """
        validate_get_examples(get_examples, "ELQBlink.initialize")
        self._attach_first(index_loader)
        self.model.initialize()
        self._report_gold(get_examples())

    def update(
        self,
        examples: Iterable[Example],
        *,
        drop: float = 0.0,
        sgd: Optional[Optimizer] = None,
        losses: Optional[Dict[str, float]] = None,
    ) -> Dict[str, float]:
        """Learn from the gold mentions of a batch. Arguments and result are those of every trainable
        component.
        """
        losses = {} if losses is None else losses
        losses.setdefault(self.name, 0.0)
        examples = list(examples)
        validate_examples(examples, "ELQBlink.update")
        index = self._require_index()
        with index.reading():
            return self._update(index, examples, losses, drop=drop, sgd=sgd)

    def _update(
        self,
        index: AnyIndex,
        examples: List[Example],
        losses: Dict[str, float],
        *,
        drop: float,
        sgd: Optional[Optimizer],
    ) -> Dict[str, float]:
        gold = collect_gold(examples, index.positions)
        known = gold.positions >= 0
        if not known.any():
            return losses
        docs, spans = [example.predicted for example in examples], gold.spans[known]
        set_dropout_rate(self.model, drop)
        vectors, backprop = self.model.begin_update((docs, spans))
        none = np.zeros((len(spans), 0))
        loss, d_vectors, _ = self._linking_loss(index, docs, spans, vectors, gold.positions[known], none)
        backprop(d_vectors)
        if sgd is not None:
            self.finish_update(sgd)
        losses[self.name] += loss
        return losses


def _scores(group: Any) -> Array:
    """RETURNS (Array): (spans,) the probabilities of a span group, 1 where it has none."""
    scores = getattr(group, "attrs", {}).get("scores")
    return np.ones(len(group)) if scores is None else np.asarray(scores, dtype="float64")
