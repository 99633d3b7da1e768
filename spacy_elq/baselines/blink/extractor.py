"""The component `elq_span_extractor`: suggests mentions for a linker that cannot find them itself, with the
span extraction model of the paper's Appendix B.
"""

import math
from itertools import islice
from pathlib import Path
from typing import Any, Callable, ClassVar, Dict, Iterable, List, NamedTuple, Optional, Tuple, Union

import numpy as np
from spacy.language import Language
from spacy.pipeline.trainable_pipe import TrainablePipe
from spacy.scorer import PRFScore
from spacy.tokens import Doc, Span, SpanGroup
from spacy.training import Example, validate_examples, validate_get_examples
from spacy.vocab import Vocab
from thinc.api import Linear, Model, Optimizer, set_dropout_rate, to_numpy

from ...core.decode import keep_mentions
from ...core.spans import enumerate_spans
from ...corpora.gold import gold_spans
from ...errors import ELQError, Errors, Rule, whole_number
from ...model.rows import with_rows
from ...model.towers import TowerOutput
from ...pipeline.batch import to_docs
from ...pipeline.gold import collect_gold
from ...pipeline.settings import LINKER_RULES, SPAN_GROUP, HasSettings
from ...types import Array
from .boundaries import boundary_log_probs, boundary_loss, score_boundaries

MENTIONS_KEY = "mentions"


class Suggestion(NamedTuple):
    """A token range that may be a mention, half-open, and p_start · p_end."""

    start: int
    end: int
    score: float


def build_span_extractor(tok2vec: Model) -> Model[List[Doc], TowerOutput]:
    """The model of `elq_span_extractor`: scores every row as the start and as the end of a mention.

    tok2vec (Model): Gives the rows: `spacy-elq.WordPieceListener.v1`, or any spaCy tok2vec architecture.
    RETURNS (Model[List[Doc], TowerOutput]): Gives the rows and (rows, 2) start and end scores, in host
        memory. Its `backprop` takes the gradient of the scores.
    """
    return Model("elq_span_extractor", _forward, init=_init, layers=[with_rows(tok2vec), Linear(nO=2)])


def _init(model: Model, X: Optional[List[Doc]] = None, Y: Any = None) -> None:
    rows, scorer = model.layers
    rows.initialize(X=X)
    scorer.set_dim("nI", rows.get_dim("nO"))
    scorer.initialize()


def _forward(
    model: Model[List[Doc], TowerOutput], docs: List[Doc], is_train: bool
) -> Tuple[TowerOutput, Callable]:
    rows, bp_rows = model.layers[0](docs, is_train)
    logits, bp_logits = model.layers[1](rows.vectors, is_train)

    def backprop(d_logits: Any) -> Any:
        return bp_rows(bp_logits(model.ops.asarray(d_logits, dtype="f")))

    return (rows, to_numpy(logits)), backprop


class ELQSpanExtractor(HasSettings, TrainablePipe):
    """Suggests the spans whose first and last tokens most likely begin and end a mention."""

    rules: ClassVar[Dict[str, Rule]] = {
        "top_k": whole_number(1),
        "threshold": (lambda x: 0.0 <= x <= 1.0, "a number from 0 to 1"),
        "max_length": whole_number(1),
        "spans_key": SPAN_GROUP,
        "label": LINKER_RULES["label"],
    }

    def __init__(
        self,
        vocab: Vocab,
        model: Model[List[Doc], TowerOutput],
        name: str = "elq_span_extractor",
        *,
        top_k: int = 5,
        threshold: float = 0.0,
        max_length: int = 10,
        spans_key: str = MENTIONS_KEY,
        label: str = "MENTION",
    ) -> None:
        """Make the component. For the settings see `make_elq_span_extractor`."""
        self.name = name
        self.vocab = vocab
        self.model = model
        self.top_k = top_k
        self.threshold = threshold
        self.max_length = max_length
        self.spans_key = spans_key
        self.label = label
        self.remember_config()

    def predict(self, docs: Iterable[Doc]) -> List[List[Suggestion]]:
        """Find the most likely spans of a batch, without changing the docs.

        docs (Iterable[Doc]): The docs.
        RETURNS (List[List[Suggestion]]): Per doc, by position.
        """
        docs = list(docs)
        suggestions: List[List[Suggestion]] = [[] for _ in docs]
        if not any(len(doc) for doc in docs):
            return suggestions
        rows, logits = self.model.predict(docs)
        spans = enumerate_spans(rows, max_length=self.max_length)
        scores = score_boundaries(boundary_log_probs(logits, rows)[0], spans)
        owners = np.repeat(np.arange(len(docs)), rows.lengths)[spans[:, 0]]
        log_threshold = math.log(self.threshold) if self.threshold else -math.inf
        kept = keep_mentions(scores, owners, log_threshold=log_threshold, max_mentions=0, limit=self.top_k)
        places = to_docs(docs, spans[kept])
        for (owner, start, end), score in zip(places, np.exp(scores[kept]).tolist(), strict=True):
            suggestions[owner].append(Suggestion(start, end, score))
        return suggestions

    def set_annotations(self, docs: Iterable[Doc], suggestions: List[List[Suggestion]]) -> None:
        """Write suggestions to the span group.

        docs (Iterable[Doc]): The docs.
        suggestions (List[List[Suggestion]]): What `predict` returned for them.
        """
        key, label = self.spans_key, self.label
        for doc, own in zip(docs, suggestions, strict=True):
            spans = [Span(doc, start, end, label=label) for start, end, _ in own]
            scores = np.asarray([suggestion.score for suggestion in own], dtype="float32")
            doc.spans[key] = SpanGroup(doc, name=key, attrs={"scores": scores}, spans=spans)

    def initialize(
        self, get_examples: Callable[[], Iterable[Example]], *, nlp: Optional[Language] = None
    ) -> None:
        """Prepare for training.

        get_examples (Callable[[], Iterable[Example]]): Gives the training examples.
        nlp (Optional[Language]): The pipeline.
        """
        validate_get_examples(get_examples, "ELQSpanExtractor.initialize")
        self.model.initialize(X=[example.x for example in islice(get_examples(), 10)])

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
        validate_examples(examples, "ELQSpanExtractor.update")
        if not any(len(example.predicted) for example in examples):
            return losses
        set_dropout_rate(self.model, drop)
        output, backprop = self.model.begin_update([example.predicted for example in examples])
        loss, d_logits = self.get_loss(examples, output)
        backprop(d_logits)  # type: ignore[arg-type]
        if sgd is not None:
            self.finish_update(sgd)
        losses[self.name] += loss
        return losses

    def get_loss(self, examples: Iterable[Example], scores: TowerOutput) -> Tuple[float, Array]:
        """The loss of a batch and its gradient.

        examples (Iterable[Example]): The batch.
        scores (TowerOutput): The model's output for it: rows and (rows, 2) logits.
        RETURNS (Tuple[float, Array]): The loss, and d_logits.
        """
        rows, logits = scores
        gold = collect_gold(examples, _no_positions)
        log_probs, bp_log_probs = boundary_log_probs(logits, rows)
        loss, d_log_probs = boundary_loss(log_probs, gold.spans)
        return loss, bp_log_probs(d_log_probs)

    def score(self, examples: Iterable[Example], **kwargs: Any) -> Dict[str, Any]:
        """Compare the suggestions with the gold mentions; boundaries must be equal.

        examples (Iterable[Example]): With predicted docs that went through the pipeline.
        RETURNS (Dict[str, Any]): `elq_spans_r`, how many gold mentions are suggested, and `elq_spans_p`, how
            many suggestions are gold mentions.
        """
        counts = PRFScore()
        for example in examples:
            gold = gold_spans(example.reference)
            found = example.predicted.spans.get(self.spans_key, [])
            counts.score_set(set(map(_characters, found)), set(map(_characters, gold)))
        return {"elq_spans_r": counts.recall, "elq_spans_p": counts.precision}

    def to_disk(self, path: Union[str, Path], *, exclude: Iterable[str] = ()) -> None:
        """Save to a folder.

        path (Union[str, Path]): The folder.
        exclude (Iterable[str]): Fields to leave out: vocab, model.
        """
        self.warn_unsaved()
        super().to_disk(path, exclude=exclude)

    def add_label(self, label: str) -> int:
        """Not supported: there is one label, a setting."""
        raise ELQError(Errors.E008.format(name=self.name))


def _characters(span: Span) -> Tuple[int, int]:
    return span.start_char, span.end_char


def _no_positions(ids: Any) -> Array:
    """Boundaries are learned whichever entity a mention has."""
    return np.full(len(ids), -1)
