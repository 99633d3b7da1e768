"""The component `elq_linker`: finds and links the mentions of a doc in one pass of the encoder."""

from dataclasses import replace
from itertools import islice
from typing import Any, Callable, ClassVar, Dict, Iterable, List, Optional, Sequence, Tuple, Union

import numpy as np
from spacy.language import Language
from spacy.tokens import Doc, Span
from spacy.training import Example, validate_examples, validate_get_examples
from spacy.vocab import Vocab
from thinc.api import Model, Optimizer, set_dropout_rate

from ..core.decode import Decoder, joint_scores, keep_mentions, log_sigmoid
from ..core.losses import Loss, mention_loss
from ..core.negatives import Negatives
from ..core.similarity import Prior, mention_bonus, name_shares
from ..core.spans import (
    are_inside_any,
    average_spans,
    enumerate_spans,
    overlap_any,
    pool_spans,
    score_spans,
    to_row_spans,
)
from ..errors import Rule
from ..index import AnyIndex
from ..model.towers import LEARNS_NAMES, TowerOutput
from ..types import Alternative, Array, Link, Rows
from .annotate import write_links
from .base import IndexedLinker
from .batch import check_spans, check_type, span_texts, to_batch
from .boundaries import (
    are_sound,
    are_texts,
    are_written_so,
    begin_with_article,
    count_words,
    token_kinds,
)
from .explain import Explanation, explain_candidates, most_likely, with_probabilities
from .gold import Gold, collect_gold
from .restrict import pick
from .scorer import linker_score
from .settings import OPTIONAL_TEXT

# the column of the score of "none of these", if the model has it
_NONE = 3
# what is taken from that score if the mention is a name
_NAMED = 4.0
# where no mention of a doc reaches the threshold, `spans_key` shows this many of the best
_SHOWN = 50


class ELQLinker(IndexedLinker):
    """Finds the entity mentions of short, noisy text and links each to an entity of an index."""

    rules: ClassVar[Dict[str, Rule]] = {**IndexedLinker.rules, "spans_key": OPTIONAL_TEXT}

    def __init__(
        self,
        vocab: Vocab,
        model: Model[List[Doc], TowerOutput],
        name: str = "elq_linker",
        *,
        negatives: Negatives,
        prior: Prior = Prior(),  # noqa: B008  (the blocks are frozen)
        decoder: Decoder = Decoder(),  # noqa: B008
        loss: Loss = Loss(),  # noqa: B008
        scorer: Optional[Callable] = linker_score,
        **settings: Any,
    ) -> None:
        """Make the component. It has no index yet: `initialize`, `set_index` or `from_disk` give one.

        settings (Any): `index_path`, `label`, `existing_ents`, `spans_key`; see `make_elq_linker`.
        """
        super().__init__(
            vocab,
            model,
            name,
            negatives=negatives,
            scorer=scorer,
            prior=prior,
            decoder=decoder,
            loss=loss,
            **{
                "index_path": None,
                "label": "ENTITY",
                "existing_ents": "overwrite",
                "spans_key": None,
                **settings,
            },
        )

    @property
    def _shows_all(self) -> bool:
        return self.spans_key is not None

    def set_annotations(self, docs: Iterable[Doc], links: List[List[Link]]) -> None:
        """Write links to the docs: entities, scores, titles, alternatives and, if set, the span group.

        docs (Iterable[Doc]): The docs.
        links (List[List[Link]]): What `predict` returned for them.
        """
        write_links(docs, links, existing_ents=self.existing_ents, spans_key=self.spans_key)

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
        with index.reading():
            return self._link_rows(index, docs, rows, logits)

    def _link_rows(self, index: AnyIndex, docs: Sequence[Doc], rows: Rows, logits: Array) -> List[List[Link]]:
        """RETURNS (List[List[Link]]): Per doc, the links, from what the model says about its rows."""
        spans, scores, bonus = self._score_mentions(
            index, docs, rows, logits, log_least=self.decoder.log_least
        )
        row_spans, log_probs = to_row_spans(rows, spans), log_sigmoid(scores + bonus)
        owners = np.repeat(np.arange(len(docs)), rows.lengths)[spans[:, 0]]
        kept = keep_mentions(
            log_probs,
            owners,
            log_threshold=self.decoder.log_least,
            # a mention below the threshold can only be shown, never linked
            max_mentions=_SHOWN if self._shows_all else 0,
            limit=self.decoder.mention_limit,
        )
        vectors, _ = pool_spans(rows.vectors, row_spans[kept])
        none = self._score_none(logits, row_spans[kept], bonus[kept] > 0)
        return self._link_best(index, docs, spans[kept], vectors, log_probs[kept], none)

    def _score_mentions(
        self, index: AnyIndex, docs: Sequence[Doc], rows: Rows, logits: Array, *, log_least: float
    ) -> Tuple[Array, Array, Array]:
        """Score what can be a mention.

        log_least (float): Log mention probability below which names do not matter.
        RETURNS (Tuple[Array, Array, Array]): (spans, 2) by position, (spans,) the model's mention scores, and
            (spans,) what their being names adds.
        """
        spans, kinds = enumerate_spans(rows, max_length=self.decoder.max_length), token_kinds(docs)
        row_spans = to_row_spans(rows, spans)
        scores, _ = score_spans(logits, row_spans)
        shares, _ = self._share_names(logits, row_spans)
        bonus = _bonus_of_names(self.prior, docs, kinds, spans, shares)
        # a name is looked up only where it could make the difference
        hopeful = log_sigmoid(scores + bonus) >= log_least
        if self.decoder.word_edges:
            sound = are_sound(kinds, spans)
            doubtful = np.flatnonzero(~sound & hopeful)
            sound[doubtful] = are_written_so(index, span_texts(docs, spans[doubtful]))
            spans, scores, bonus, hopeful = spans[sound], scores[sound], bonus[sound], hopeful[sound]
        is_name = self._are_names(index, docs, spans, hopeful & (bonus > 0))
        if self.prior.phrase_weight:
            is_name &= ~are_inside_any(spans, spans[is_name & ~begin_with_article(kinds, spans)])
        return spans, scores, bonus * is_name

    def link_spans(self, docs: Sequence[Doc], spans: Sequence[Sequence[Span]]) -> List[List[Link]]:
        """Link given mentions: boundaries are taken as given, the entity of each is decided.

        docs (Sequence[Doc]): Docs that the components before this one have processed.
        spans (Sequence[Sequence[Span]]): The mentions of each doc; they may overlap.
        RETURNS (List[List[Link]]): Per doc, the links in the order of the spans. The score is the
            probability of the entity among the candidates. A span of which the encoder saw nothing
            gets no link.
        """
        check_spans(docs, spans)
        index = self._require_index()
        if not any(len(doc) for doc in docs):
            return [[] for _ in docs]
        rows, logits = self.model.predict(list(docs))
        array = to_batch(docs, spans)
        row_spans = to_row_spans(rows, array)
        seen = row_spans[:, 1] > row_spans[:, 0]
        array, row_spans = array[seen], row_spans[seen]
        vectors, _ = pool_spans(rows.vectors, row_spans)
        with index.reading():
            bonus = _bonus_of_names(self.prior, docs, token_kinds(docs), array)
            none = self._score_none(logits, row_spans, self._are_names(index, docs, array, bonus > 0))
            positions, similarities = self._find_candidates(index, docs, array, vectors)
            similarities /= self.prior.temperature
            if none is not None:
                none = self._compete(similarities, none)
            joint = joint_scores(np.zeros(len(array)), similarities, none)
            are_links = np.ones(len(array), dtype=bool)
            return self._make_links(index, docs, array, positions, np.exp(joint), are_links)

    def candidates(self, span: Span) -> List[Alternative]:
        """RETURNS (List[Alternative]): The candidates of a mention, best first, with the probability of each
        if the span is a mention.
        """
        check_type("candidates", span, Span)
        links = self.link_spans([span.doc], [[span]])[0]
        return links[0].alternatives if links else []

    def explain(self, doc: Doc) -> List[Explanation]:
        """Say why a doc has the links it has: the parts of the score of each likely mention.

        doc (Doc): A doc that the components before this one have processed.
        RETURNS (List[Explanation]): The likely mentions by position, also those that are no links.
        """
        check_type("explain", doc, Doc)
        index = self._require_index()
        if not len(doc):
            return []
        rows, logits = self.model.predict([doc])
        with index.reading():
            spans, scores, bonus = self._score_mentions(index, [doc], rows, logits, log_least=-np.inf)
            likely = most_likely(scores + bonus)
            spans, scores, bonus = spans[likely], scores[likely], bonus[likely]
            row_spans = to_row_spans(rows, spans)
            vectors, _ = pool_spans(rows.vectors, row_spans)
            none, log_probs = self._score_none(logits, row_spans, bonus > 0), log_sigmoid(scores + bonus)
            positions, similarities = self._find_candidates(index, [doc], spans, vectors)
            similarities = similarities / self.prior.temperature
            if none is not None:
                none = self._compete(similarities, none)
            joint = joint_scores(log_probs, similarities, none)
            links = {(link.start, link.end) for link in self.predict([doc])[0] if link.accepted}
            names = span_texts([doc], spans)
            parts = explain_candidates(index, names, vectors, positions, prior=self.prior)
        shares = np.exp(joint - log_probs[:, None])
        columns = {
            "mention": scores,
            "name": bonus,
            "mention_probability": np.exp(log_probs),
            "joint": np.exp(joint[:, 0]),
            "score": self.decoder.calibrate(joint)[:, 0],
        }
        if none is not None:
            columns["none"] = np.maximum(0.0, 1.0 - shares.sum(axis=1))
        return [
            Explanation(
                start=start,
                end=end,
                text=names[i],
                threshold=self.decoder.threshold,
                is_link=(start, end) in links,
                candidates=with_probabilities(parts[i], shares[i]),
                **{name: float(values[i]) for name, values in columns.items()},
            )
            for i, (start, end) in enumerate(spans.tolist())
        ]

    def _are_names(self, index: AnyIndex, docs: Sequence[Doc], spans: Array, asked: Array) -> Array:
        """RETURNS (Array): (spans,) which of the spans that were asked for are names."""
        is_name = np.zeros(len(spans), dtype=bool)
        chosen = np.flatnonzero(asked)
        names = span_texts(docs, spans[chosen])
        for within, own in self._restrictions(docs, spans[chosen]):
            is_name[chosen[own]] = index.are_names(pick(names, own), within=within)
        return is_name

    # ------------------------------------------------------------------ training

    def initialize(
        self,
        get_examples: Callable[[], Iterable[Example]],
        *,
        nlp: Optional[Language] = None,
        index_loader: Optional[Callable[[], AnyIndex]] = None,
    ) -> None:
        """Prepare for training: attach the index, build the model, check the gold links.

        get_examples (Callable[[], Iterable[Example]]): Gives the training examples.
        nlp (Optional[Language]): The pipeline.
        index_loader (Optional[Callable[[], AnyIndex]]): Opens the index.
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
        docs = [example.predicted for example in examples]
        with index.reading():
            gold = collect_gold(examples, index.positions)
            loss_md, d_logits = self._mention_loss(index, docs, rows, logits, gold)
            loss_ed, d_vectors, d_none = self._pooled_loss(index, docs, rows, logits, gold)
        return loss_md + loss_ed, (d_vectors, d_logits + d_none)

    def _mention_loss(
        self, index: AnyIndex, docs: Sequence[Doc], rows: Rows, logits: Array, gold: Gold
    ) -> Tuple[float, Array]:
        spans = enumerate_spans(rows, max_length=self.decoder.max_length)
        row_spans = to_row_spans(rows, spans)
        scores, bp_scores = score_spans(logits, row_spans)
        shares, bp_shares = self._share_names(logits, row_spans)
        # what is sure at prediction would teach the model to mistrust phrases
        prior = replace(self.prior, phrase_weight=0.0, text_weight=0.0)
        bonus = _bonus_of_names(prior, docs, token_kinds(docs), spans)
        bonus = bonus * self._are_names(index, docs, spans, bonus > 0)
        scores = scores + bonus * shares
        known = self._is_known(index, docs, spans, gold)
        loss, d_known = mention_loss(scores[known], _is_member(spans, gold.spans)[known])
        weight = self.loss.mention_weight
        d_scores = np.zeros_like(scores)
        d_scores[known] = weight * d_known
        return weight * loss, bp_scores(d_scores) + bp_shares(d_scores * bonus)

    def _is_known(self, index: AnyIndex, docs: Sequence[Doc], spans: Array, gold: Gold) -> Array:
        """RETURNS (Array): (spans,) whether gold says if a span is a mention; see `Loss.unmarked`."""
        if self.loss.unmarked == "negative" or gold.complete.all():
            return np.ones(len(spans), dtype=bool)
        owners = np.repeat(np.arange(len(docs)), [len(doc) for doc in docs])[spans[:, 0]]
        complete = gold.complete[owners]
        known = complete | overlap_any(spans, gold.spans)
        if self.loss.unmarked == "ignore":
            return known
        texts = np.asarray(span_texts(docs, spans, gold.texts), dtype=object)
        has_capitals = np.asarray([not text.islower() for text in gold.texts])[owners]
        is_small = has_capitals & np.asarray([text.islower() for text in texts], dtype=bool)
        asked = np.flatnonzero(~known & ~is_small)
        known[:] = True
        known[asked[index.match_names(list(texts[asked]))[0]]] = False
        if self.loss.unmarked == "proper":
            known &= complete | ~is_small | (_is_member(spans, gold.spans) == 0)
        return known

    def _pooled_loss(
        self, index: AnyIndex, docs: Sequence[Doc], rows: Rows, logits: Array, gold: Gold
    ) -> Tuple[float, Array, Array]:
        """RETURNS (Tuple[float, Array, Array]): L_ED, d_vectors and d_logits."""
        d_logits = np.zeros_like(logits)
        row_spans = to_row_spans(rows, gold.spans)
        usable = (gold.positions >= 0) & (row_spans[:, 1] > row_spans[:, 0])
        if not usable.any():
            return 0.0, np.zeros_like(rows.vectors), d_logits
        mentions, bp_mentions = pool_spans(rows.vectors, row_spans[usable])
        none, bp_none = pool_spans(logits[:, self._none_columns], row_spans[usable])
        spans, positions = gold.spans[usable], gold.positions[usable]
        loss, d_mentions, d_none = self._linking_loss(index, docs, spans, mentions, positions, none)
        d_logits[:, self._none_columns] = bp_none(d_none)
        return loss, bp_mentions(d_mentions), d_logits

    # ------------------------------------------------------------------ the scores of a row

    @property
    def _none_columns(self) -> slice:
        """RETURNS (slice): The column of the score of "none of these", if the model has it."""
        return slice(_NONE, -1) if self._learns_names else slice(_NONE, None)

    @property
    def _learns_names(self) -> bool:
        return bool(self.model.attrs.get(LEARNS_NAMES))

    def _score_none(self, logits: Array, row_spans: Array, are_names: Union[Array, bool]) -> Optional[Array]:
        """Score "none of these".

        are_names (Union[Array, bool]): (spans,) whether a span is a name in the catalogue. "None of these"
            has learned nothing about those: see `absent_linking_loss`.
        RETURNS (Optional[Array]): (spans,), or None if the model does not know it.
        """
        scores = logits[:, self._none_columns]
        if not scores.shape[1]:
            return None
        return pool_spans(scores, row_spans)[0][:, 0] - _NAMED * np.asarray(are_names)

    def _share_names(self, logits: Array, row_spans: Array) -> Tuple[Union[Array, float], Callable]:
        """RETURNS (Tuple[Union[Array, float], Callable]): (spans,) what part of `mention_name_weight` counts,
        and a callback from their gradient to d_logits.
        """
        if not self._learns_names:
            return 1.0, lambda _: 0.0
        means, bp_means = average_spans(logits[:, -1], row_spans)
        shares, slopes = name_shares(means)

        def backprop(d_shares: Array) -> Array:
            d_logits = np.zeros_like(logits)
            d_logits[:, -1] = bp_means(d_shares * slopes)
            return d_logits

        return shares, backprop


def _bonus_of_names(
    prior: Prior, docs: Sequence[Doc], kinds: Array, spans: Array, shares: Union[Array, float] = 1.0
) -> Array:
    """RETURNS (Array): (spans,) what is added to the mention score of a span if it is a name."""
    lengths = np.asarray([len(doc) for doc in docs])
    words, whole = count_words(kinds, spans), are_texts(kinds, spans, lengths)
    return mention_bonus(prior, spans[:, 1] - spans[:, 0], words, whole, shares)


def _is_member(spans: Array, gold: Array) -> Array:
    """RETURNS (Array): (spans,) 1.0 where a span is among the gold ones."""
    width = int(max(spans.max(initial=0), gold.max(initial=0))) + 1
    return np.isin(spans @ [width, 1], gold @ [width, 1]).astype("float64")
