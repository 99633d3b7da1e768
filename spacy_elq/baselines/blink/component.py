"""The component `elq_blink`: the two-stage linker of the paper's comparison (BLINK, Wu et al. 2020). Another
component suggests mentions; each is read in its text, marked, and compared with the entities of an index.
"""

from typing import Any, Callable, Dict, Iterable, List, Optional, Sequence, Tuple

import numpy as np
from spacy.language import Language
from spacy.tokens import Doc, Span
from spacy.training import Example, validate_examples, validate_get_examples
from spacy.vocab import Vocab
from thinc.api import Config, Model, Optimizer, set_dropout_rate

from ...core.negatives import Negatives
from ...corpora.gold import GOLD_KEY
from ...errors import ELQError, Errors
from ...index import EntityIndex
from ...pipeline.base import IndexedLinker
from ...pipeline.batch import to_batch
from ...pipeline.gold import collect_gold
from ...pipeline.scorer import SCORE_WEIGHTS, linker_score
from ...pipeline.settings import Rule
from ...types import Array, Link
from .context import MentionInput
from .extractor import MENTIONS_KEY

DEFAULT_CONFIG = Config().from_str(
    """
[elq_blink]
threshold = 0.05
first_threshold = null
candidates = 10
name_weight = 0.0
alias_share = 1.0
popularity_weight = 0.0
temperature = 1.0
mentions_key = "mentions"
label = "ENTITY"
existing_ents = "overwrite"
spans_key = null
gold_key = "gold_links"
linking_loss = "softmax"
bundle_index = false
index_path = null

[elq_blink.model]
@architectures = "spacy-elq.ContextTower.v1"

[elq_blink.model.context_encoder]
@architectures = "spacy-transformers.TransformerModel.v3"
name = "bert-base-uncased"
tokenizer_config = {"use_fast": true}
transformer_config = {}
mixed_precision = false
grad_scaler_config = {}

[elq_blink.model.context_encoder.get_spans]
@span_getters = "spacy-transformers.doc_spans.v1"

[elq_blink.negatives]
@misc = "spacy-elq.HardNegatives.v1"
hard = 10
in_batch = true

[elq_blink.scorer]
@scorers = "spacy-elq.linker_scorer.v1"
"""
)["elq_blink"]


@Language.factory(
    "elq_blink",
    assigns=["doc.ents", "token.ent_iob", "token.ent_type", "token.ent_kb_id"],
    default_config=DEFAULT_CONFIG,
    default_score_weights=SCORE_WEIGHTS,
)
def make_elq_blink(
    nlp: Language,
    name: str,
    model: Model[MentionInput, Array],
    negatives: Callable,
    scorer: Optional[Callable],
    threshold: float,
    first_threshold: Optional[float],
    candidates: int,
    name_weight: float,
    alias_share: float,
    popularity_weight: float,
    temperature: float,
    mentions_key: str,
    label: str,
    existing_ents: str,
    spans_key: Optional[str],
    gold_key: str,
    linking_loss: str,
    bundle_index: bool,
    index_path: Optional[str],
) -> "ELQBlink":
    """Build an `elq_blink`; see `ELQBlink` for the settings."""
    return ELQBlink(
        nlp.vocab,
        model,
        name,
        negatives=negatives,
        scorer=scorer,
        threshold=threshold,
        first_threshold=first_threshold,
        candidates=candidates,
        name_weight=name_weight,
        alias_share=alias_share,
        popularity_weight=popularity_weight,
        temperature=temperature,
        mentions_key=mentions_key,
        label=label,
        existing_ents=existing_ents,
        spans_key=spans_key,
        gold_key=gold_key,
        linking_loss=linking_loss,
        bundle_index=bundle_index,
        index_path=index_path,
    )


class ELQBlink(IndexedLinker):
    """Links the mentions that an earlier component suggested, with one pass of an encoder for each."""

    def __init__(
        self,
        vocab: Vocab,
        model: Model[MentionInput, Array],
        name: str = "elq_blink",
        *,
        negatives: Negatives,
        scorer: Optional[Callable] = linker_score,
        threshold: float = 0.05,
        first_threshold: Optional[float] = None,
        candidates: int = 10,
        name_weight: float = 0.0,
        alias_share: float = 1.0,
        popularity_weight: float = 0.0,
        temperature: float = 1.0,
        mentions_key: str = MENTIONS_KEY,
        label: str = "ENTITY",
        existing_ents: str = "overwrite",
        spans_key: Optional[str] = None,
        gold_key: str = GOLD_KEY,
        linking_loss: str = "softmax",
        bundle_index: bool = False,
        index_path: Optional[str] = None,
    ) -> None:
        """Make the component. It has no index yet: `initialize`, `set_index` or `from_disk` give one.

        model (Model): The context tower.
        threshold (float): Least joint probability of a link: the score of the suggested mention times the
            probability of the entity among the candidates.
        mentions_key (str): Span group with the suggested mentions, their probabilities in its
            `attrs["scores"]`; without these they are certain.

        The other settings are those of `ELQLinker`.
        """
        settings = {
            "threshold": threshold,
            "first_threshold": first_threshold,
            "candidates": candidates,
            "name_weight": name_weight,
            "alias_share": alias_share,
            "popularity_weight": popularity_weight,
            "temperature": temperature,
            "mentions_key": mentions_key,
            "label": label,
            "existing_ents": existing_ents,
            "spans_key": spans_key,
            "gold_key": gold_key,
            "linking_loss": linking_loss,
            "bundle_index": bundle_index,
        }
        super().__init__(
            vocab,
            model,
            name,
            negatives=negatives,
            scorer=scorer,
            index_path=index_path,
            settings=settings,
        )

    def _rules(self) -> Dict[str, Rule]:
        return {"mentions_key": (lambda x: bool(x), "the name of a span group")}

    # ------------------------------------------------------------------ prediction

    def predict(self, docs: Iterable[Doc]) -> List[List[Link]]:
        """Link the suggested mentions of a batch, without changing the docs.

        docs (Iterable[Doc]): The docs, with the span group `mentions_key`.
        RETURNS (List[List[Link]]): Per doc, the links by position; if `spans_key` is set, also the
            mentions that were not accepted.
        """
        docs = list(docs)
        index = self._require_index()
        spans, log_probs = self._suggested(docs)
        if not self.cfg["spans_key"]:
            # a mention below the threshold can only be shown, never linked
            likely = log_probs >= self._log_least()
            spans, log_probs = spans[likely], log_probs[likely]
        if not len(spans):
            return [[] for _ in docs]
        vectors = self.model.predict((docs, spans))
        return self._link_best(index, docs, spans, vectors, log_probs)

    def _suggested(self, docs: Sequence[Doc]) -> Tuple[Array, Array]:
        """RETURNS (Tuple[Array, Array]): (mentions, 2) token ranges, counted over the batch, by position, and
        (mentions,) their log probabilities.
        """
        key = self.cfg["mentions_key"]
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
        """Link given mentions: the entity of each is decided, the mention is believed.

        docs (Sequence[Doc]): The docs.
        spans (Sequence[Sequence[Span]]): The mentions of each doc; they may overlap.
        RETURNS (List[List[Link]]): Per doc, the links in the order of the spans. The score is the
            probability of the entity among the candidates.
        """
        index = self._require_index()
        array = to_batch(docs, spans)
        if not len(array):
            return [[] for _ in docs]
        vectors = self.model.predict((list(docs), array))
        positions, joint = self._link(index, docs, array, vectors, np.zeros(len(array)))
        return self._make_links(index, docs, array, positions, joint, np.ones(len(array), dtype=bool))

    # ------------------------------------------------------------------ training

    def initialize(
        self,
        get_examples: Callable[[], Iterable[Example]],
        *,
        nlp: Optional[Language] = None,
        index_loader: Optional[Callable[[], EntityIndex]] = None,
    ) -> None:
        """Prepare for training: attach the index, load the encoder, check the gold links.

        get_examples (Callable[[], Iterable[Example]]): Gives the training examples.
        nlp (Optional[Language]): The pipeline.
        index_loader (Optional[Callable[[], EntityIndex]]): Opens the index.
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
        gold = collect_gold(examples, index.positions, key=self.cfg["gold_key"])
        known = gold.positions >= 0
        if not known.any():
            return losses
        docs, spans = [example.predicted for example in examples], gold.spans[known]
        set_dropout_rate(self.model, drop)
        vectors, backprop = self.model.begin_update((docs, spans))
        loss, d_vectors = self._linking_loss(index, docs, spans, vectors, gold.positions[known])
        backprop(d_vectors)
        if sgd is not None:
            self.finish_update(sgd)
        losses[self.name] += loss
        return losses


def _scores(group: Any) -> Array:
    """RETURNS (Array): (spans,) the probabilities of a span group, 1 where it has none."""
    scores = getattr(group, "attrs", {}).get("scores")
    return np.ones(len(group)) if scores is None else np.asarray(scores, dtype="float64")
