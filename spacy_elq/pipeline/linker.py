"""The component `elq_linker`: finds and links the mentions of a doc in one pass of the encoder."""

from itertools import islice
from typing import Callable, Dict, Iterable, List, Optional, Sequence, Tuple

import numpy as np
from spacy.language import Language
from spacy.tokens import Doc, Span
from spacy.training import Example, validate_examples, validate_get_examples
from spacy.vocab import Vocab
from thinc.api import Config, Model, Optimizer, set_dropout_rate

from ..core.decode import keep_mentions, log_sigmoid
from ..core.losses import mention_loss
from ..core.negatives import Negatives
from ..core.spans import enumerate_spans, overlap_any, pool_spans, score_spans, to_row_spans
from ..corpora.gold import GOLD_KEY
from ..index import EntityIndex
from ..model.towers import TowerOutput
from ..types import Array, Link, Rows
from .base import IndexedLinker
from .batch import span_texts, to_batch
from .gold import Gold, collect_gold
from .scorer import SCORE_WEIGHTS, linker_score
from .settings import Rule

# names of more words are no surer mentions
_MOST_WORDS = 4
UNMARKED = ("ignore", "unnamed", "proper", "negative")

DEFAULT_CONFIG = Config().from_str(
    """
[elq_linker]
threshold = 0.2
first_threshold = null
max_length = 10
max_mentions = 50
mention_limit = 0
candidates = 10
name_weight = 0.0
alias_share = 1.0
popularity_weight = 0.0
temperature = 1.0
mention_name_weight = 0.0
label = "ENTITY"
existing_ents = "overwrite"
spans_key = null
gold_key = "gold_links"
mention_weight = 1.0
unmarked = "ignore"
linking_loss = "softmax"
bundle_index = false
index_path = null

[elq_linker.model]
@architectures = "spacy-elq.QuestionTower.v1"

[elq_linker.model.tok2vec]
@architectures = "spacy.HashEmbedCNN.v2"
pretrained_vectors = null
width = 96
depth = 4
embed_size = 2000
window_size = 1
maxout_pieces = 3
subword_features = true

[elq_linker.negatives]
@misc = "spacy-elq.HardNegatives.v1"
hard = 10
in_batch = true

[elq_linker.scorer]
@scorers = "spacy-elq.linker_scorer.v1"
"""
)["elq_linker"]


@Language.factory(
    "elq_linker",
    assigns=["doc.ents", "token.ent_iob", "token.ent_type", "token.ent_kb_id"],
    default_config=DEFAULT_CONFIG,
    default_score_weights=SCORE_WEIGHTS,
)
def make_elq_linker(
    nlp: Language,
    name: str,
    model: Model[List[Doc], TowerOutput],
    negatives: Callable,
    scorer: Optional[Callable],
    threshold: float,
    first_threshold: Optional[float],
    max_length: int,
    max_mentions: int,
    mention_limit: int,
    candidates: int,
    name_weight: float,
    alias_share: float,
    popularity_weight: float,
    temperature: float,
    mention_name_weight: float,
    label: str,
    existing_ents: str,
    spans_key: Optional[str],
    gold_key: str,
    mention_weight: float,
    unmarked: str,
    linking_loss: str,
    bundle_index: bool,
    index_path: Optional[str],
) -> "ELQLinker":
    """Build an `elq_linker`; see `ELQLinker` for the settings."""
    return ELQLinker(
        nlp.vocab,
        model,
        name,
        negatives=negatives,
        scorer=scorer,
        threshold=threshold,
        first_threshold=first_threshold,
        max_length=max_length,
        max_mentions=max_mentions,
        mention_limit=mention_limit,
        candidates=candidates,
        name_weight=name_weight,
        alias_share=alias_share,
        popularity_weight=popularity_weight,
        temperature=temperature,
        mention_name_weight=mention_name_weight,
        label=label,
        existing_ents=existing_ents,
        spans_key=spans_key,
        gold_key=gold_key,
        mention_weight=mention_weight,
        unmarked=unmarked,
        linking_loss=linking_loss,
        bundle_index=bundle_index,
        index_path=index_path,
    )


class ELQLinker(IndexedLinker):
    """Finds the entity mentions of short, noisy text and links each to an entity of an index."""

    def __init__(
        self,
        vocab: Vocab,
        model: Model[List[Doc], TowerOutput],
        name: str = "elq_linker",
        *,
        negatives: Negatives,
        scorer: Optional[Callable] = linker_score,
        threshold: float = 0.2,
        first_threshold: Optional[float] = None,
        max_length: int = 10,
        max_mentions: int = 50,
        mention_limit: int = 0,
        candidates: int = 10,
        name_weight: float = 0.0,
        alias_share: float = 1.0,
        popularity_weight: float = 0.0,
        temperature: float = 1.0,
        mention_name_weight: float = 0.0,
        label: str = "ENTITY",
        existing_ents: str = "overwrite",
        spans_key: Optional[str] = None,
        gold_key: str = GOLD_KEY,
        mention_weight: float = 1.0,
        unmarked: str = "ignore",
        linking_loss: str = "softmax",
        bundle_index: bool = False,
        index_path: Optional[str] = None,
    ) -> None:
        """Make the component. It has no index yet: `initialize`, `set_index` or `from_disk` give one.

        vocab (Vocab): The shared vocabulary.
        model (Model): The question tower.
        name (str): Name of the component.
        negatives (Negatives): What gold entities compete with in training.
        scorer (Optional[Callable]): The scoring method.
        threshold (float): Least joint probability of a link, exp(γ) of the paper.
        first_threshold (Optional[float]): A lower one for the best link of a doc, for texts that nearly
            always name something, such as questions. None is the paper: the same for every link.
        max_length (int): Longest mention, in rows (word pieces or tokens).
        max_mentions (int): How many of the best mentions are scored in a doc where none reaches the
            threshold. They can be seen in `spans_key`; they never become entities.
        mention_limit (int): How many of the best mentions of a doc are linked at most, before overlaps are
            removed. 0 is no limit, the paper; its published code has 50.
        candidates (int): Entities retrieved for each mention. It is part of what `threshold` means.
        name_weight (float): What is added to the similarity of entities that bear the very text of the
            mention as their title, half of it for a similar spelling, in training and prediction. 0 is the
            paper.
        alias_share (float): The share of `name_weight` for another name than the title, at least that of a
            similar spelling. Below 1 it prefers the entity whose title is the plain name, which in
            Wikipedia is the best known one.
        popularity_weight (float): What is added to the similarity of an entity for each e-fold of its
            popularity in the catalogue, in training and prediction. 0 is the paper.
        temperature (float): What similarities are divided by, in prediction, before they become
            probabilities. Above 1 the entity counts less beside the mention, and doubt is shown sooner. 1 is
            the paper.
        mention_name_weight (float): What is added to the mention score of a span whose text is a name of
            any entity of the index, for each of its words up to the fourth: the longer a name, the less it
            stands there by chance. In training and prediction. 0 is the paper.
        label (str): Entity label where the entity has none of its own.
        existing_ents (str): What happens to entities of earlier components: "overwrite" drops those
            that overlap with a link, "keep" drops links that overlap with them, "replace" drops all.
        spans_key (Optional[str]): Also put every scored mention into `doc.spans[spans_key]`, with the
            joint probabilities in its `attrs["scores"]`.
        gold_key (str): Span group of reference docs with the gold links; without it, their entities.
        mention_weight (float): Weight of the mention loss next to the linking loss, 1 in the paper. The
            one is a mean over spans, of which hardly any is a mention, the other over mentions.
        unmarked (str): What the mention loss makes of text without a mark where not every mention is
            marked (`complete: false`, as in Wikipedia). "ignore" takes a span for wrong only if it overlaps
            with a marked mention; "unnamed" also if it is nobody's name in the index, or is written small
            in a text with capitals; "proper" does the same and takes no side on marked mentions that are
            written small, so that names are learnt, not common nouns; "negative" is always wrong.
        linking_loss (str): "softmax" as in the paper or "binary" as in its published code.
        bundle_index (bool): Whether `to_disk` puts a copy of the index into the pipeline.
        index_path (Optional[str]): Where `from_disk` finds the index, instead of the place recorded.
        """
        settings = {
            "threshold": threshold,
            "first_threshold": first_threshold,
            "max_length": max_length,
            "max_mentions": max_mentions,
            "mention_limit": mention_limit,
            "candidates": candidates,
            "name_weight": name_weight,
            "alias_share": alias_share,
            "popularity_weight": popularity_weight,
            "temperature": temperature,
            "mention_name_weight": mention_name_weight,
            "label": label,
            "existing_ents": existing_ents,
            "spans_key": spans_key,
            "gold_key": gold_key,
            "mention_weight": mention_weight,
            "unmarked": unmarked,
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
        return {
            "max_length": (lambda x: x >= 1, "at least 1"),
            "max_mentions": (lambda x: x >= 0, "at least 0"),
            "mention_limit": (lambda x: x >= 0, "at least 0"),
            "mention_name_weight": (lambda x: x >= 0, "at least 0"),
            "mention_weight": (lambda x: x >= 0, "at least 0"),
            "unmarked": (lambda x: x in UNMARKED, f"one of {', '.join(UNMARKED)}"),
        }

    # ------------------------------------------------------------------ prediction

    def predict(self, docs: Iterable[Doc]) -> List[List[Link]]:
        """Find and link the mentions of a batch, without changing the docs.

        docs (Iterable[Doc]): The docs.
        RETURNS (List[List[Link]]): Per doc, the links by position; if `spans_key` is set, also the
            scored mentions that were not accepted.
        """
        docs = list(docs)
        index = self._require_index()
        if not any(len(doc) for doc in docs):
            return [[] for _ in docs]
        rows, logits = self.model.predict(docs)
        spans = enumerate_spans(rows, max_length=self.cfg["max_length"])
        row_spans = to_row_spans(rows, spans)
        scores, _ = score_spans(logits, row_spans)
        log_least = self._log_least()
        # a name is looked up only where it could make the difference
        hopeful = log_sigmoid(scores + self.cfg["mention_name_weight"] * _count_words(spans)) >= log_least
        log_probs = log_sigmoid(scores + self._name_bonus(index, docs, spans, hopeful))
        owners = np.repeat(np.arange(len(docs)), rows.lengths)[spans[:, 0]]
        kept = keep_mentions(
            log_probs,
            owners,
            log_threshold=log_least,
            # a mention below the threshold can only be shown, never linked
            max_mentions=self.cfg["max_mentions"] if self.cfg["spans_key"] else 0,
            limit=self.cfg["mention_limit"],
        )
        vectors, _ = pool_spans(rows.vectors, row_spans[kept])
        return self._link_best(index, docs, spans[kept], vectors, log_probs[kept])

    def link_spans(self, docs: Sequence[Doc], spans: Sequence[Sequence[Span]]) -> List[List[Link]]:
        """Link given mentions: the entity of each is decided, the mention is believed.

        docs (Sequence[Doc]): Docs that the components before this one have processed.
        spans (Sequence[Sequence[Span]]): The mentions of each doc; they may overlap.
        RETURNS (List[List[Link]]): Per doc, the links in the order of the spans. The score is the
            probability of the entity among the candidates. A span of which the encoder saw nothing
            gets no link.
        """
        index = self._require_index()
        if not any(len(doc) for doc in docs):
            return [[] for _ in docs]
        rows, _ = self.model.predict(list(docs))
        array = to_batch(docs, spans)
        row_spans = to_row_spans(rows, array)
        seen = row_spans[:, 1] > row_spans[:, 0]
        array, row_spans = array[seen], row_spans[seen]
        vectors, _ = pool_spans(rows.vectors, row_spans)
        positions, joint = self._link(index, docs, array, vectors, np.zeros(len(array)))
        return self._make_links(index, docs, array, positions, joint, np.ones(len(array), dtype=bool))

    def _name_bonus(self, index: EntityIndex, docs: Sequence[Doc], spans: Array, asked: Array) -> Array:
        """RETURNS (Array): (spans,) what is added to the mention score of the spans that were asked for."""
        bonus = np.zeros(len(spans))
        if self.cfg["mention_name_weight"]:
            chosen = np.flatnonzero(asked)
            named = chosen[index.are_names(span_texts(docs, spans[chosen]))]
            bonus[named] = self.cfg["mention_name_weight"] * _count_words(spans[named])
        return bonus

    # ------------------------------------------------------------------ training

    def initialize(
        self,
        get_examples: Callable[[], Iterable[Example]],
        *,
        nlp: Optional[Language] = None,
        index_loader: Optional[Callable[[], EntityIndex]] = None,
    ) -> None:
        """Prepare for training: attach the index, build the model, check the gold links.

        get_examples (Callable[[], Iterable[Example]]): Gives the training examples.
        nlp (Optional[Language]): The pipeline.
        index_loader (Optional[Callable[[], EntityIndex]]): Opens the index.
        """
        validate_get_examples(get_examples, "ELQLinker.initialize")
        self._attach_first(index_loader)
        self.model.initialize(X=[example.x for example in islice(get_examples(), 10)])
        self._report_gold(get_examples())

    def update(
        self,
        examples: Iterable[Example],
        *,
        drop: float = 0.0,
        sgd: Optional[Optimizer] = None,
        losses: Optional[Dict[str, float]] = None,
    ) -> Dict[str, float]:
        """Learn from a batch.

        examples (Iterable[Example]): The batch.
        drop (float): The dropout rate.
        sgd (Optional[Optimizer]): The optimizer.
        losses (Optional[Dict[str, float]]): Updated under the component's name.
        RETURNS (Dict[str, float]): The losses.
        """
        losses = {} if losses is None else losses
        losses.setdefault(self.name, 0.0)
        examples = list(examples)
        validate_examples(examples, "ELQLinker.update")
        self._require_index()
        if not any(len(example.predicted) for example in examples):
            return losses
        set_dropout_rate(self.model, drop)
        output, backprop = self.model.begin_update([example.predicted for example in examples])
        loss, gradients = self.get_loss(examples, output)
        backprop(gradients)
        if sgd is not None:
            self.finish_update(sgd)
        losses[self.name] += loss
        return losses

    def get_loss(self, examples: Iterable[Example], scores: TowerOutput) -> Tuple[float, Tuple[Array, Array]]:
        """L_MD + L_ED and their gradient.

        examples (Iterable[Example]): The batch.
        scores (TowerOutput): The model's output for it: rows and (rows, 3) logits.
        RETURNS (Tuple[float, Tuple[Array, Array]]): The loss, and d_vectors and d_logits.
        """
        rows, logits = scores
        index = self._require_index()
        examples = list(examples)
        gold = collect_gold(examples, index.positions, key=self.cfg["gold_key"])
        docs = [example.predicted for example in examples]
        loss_md, d_logits = self._mention_loss(index, docs, rows, logits, gold)
        loss_ed, d_vectors = self._pooled_loss(index, docs, rows, gold)
        return loss_md + loss_ed, (d_vectors, d_logits)

    def _mention_loss(
        self, index: EntityIndex, docs: Sequence[Doc], rows: Rows, logits: Array, gold: Gold
    ) -> Tuple[float, Array]:
        spans = enumerate_spans(rows, max_length=self.cfg["max_length"])
        scores, bp_scores = score_spans(logits, to_row_spans(rows, spans))
        scores = scores + self._name_bonus(index, docs, spans, np.ones(len(spans), dtype=bool))
        known = self._is_known(index, docs, spans, gold)
        loss, d_known = mention_loss(scores[known], _is_member(spans, gold.spans)[known])
        weight = self.cfg["mention_weight"]
        d_scores = np.zeros_like(scores)
        d_scores[known] = weight * d_known
        return weight * loss, bp_scores(d_scores)

    def _is_known(self, index: EntityIndex, docs: Sequence[Doc], spans: Array, gold: Gold) -> Array:
        """RETURNS (Array): (spans,) whether gold says if a span is a mention; see the setting `unmarked`."""
        if self.cfg["unmarked"] == "negative" or gold.complete.all():
            return np.ones(len(spans), dtype=bool)
        owners = np.repeat(np.arange(len(docs)), [len(doc) for doc in docs])[spans[:, 0]]
        complete = gold.complete[owners]
        known = complete | overlap_any(spans, gold.spans)
        if self.cfg["unmarked"] == "ignore":
            return known
        texts = np.asarray(span_texts(docs, spans), dtype=object)
        has_capitals = np.asarray([not doc.text.islower() for doc in docs])[owners]
        is_small = has_capitals & np.asarray([text.islower() for text in texts], dtype=bool)
        asked = np.flatnonzero(~known & ~is_small)
        known[:] = True
        known[asked[index.match_names(list(texts[asked]))[0]]] = False
        if self.cfg["unmarked"] == "proper":
            known &= complete | ~is_small | (_is_member(spans, gold.spans) == 0)
        return known

    def _pooled_loss(
        self, index: EntityIndex, docs: Sequence[Doc], rows: Rows, gold: Gold
    ) -> Tuple[float, Array]:
        row_spans = to_row_spans(rows, gold.spans)
        usable = (gold.positions >= 0) & (row_spans[:, 1] > row_spans[:, 0])
        if not usable.any():
            return 0.0, np.zeros_like(rows.vectors)
        mentions, bp_mentions = pool_spans(rows.vectors, row_spans[usable])
        spans, positions = gold.spans[usable], gold.positions[usable]
        loss, d_mentions = self._linking_loss(index, docs, spans, mentions, positions)
        return loss, bp_mentions(d_mentions)


def _count_words(spans: Array) -> Array:
    """RETURNS (Array): (spans,) the words of each span, as far as they count for a name."""
    return np.minimum(spans[:, 1] - spans[:, 0], _MOST_WORDS)


def _is_member(spans: Array, gold: Array) -> Array:
    """RETURNS (Array): (spans,) 1.0 where a span is among the gold ones."""
    width = int(max(spans.max(initial=0), gold.max(initial=0))) + 1
    return np.isin(spans @ [width, 1], gold @ [width, 1]).astype("float64")
