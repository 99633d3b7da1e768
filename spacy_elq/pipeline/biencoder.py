"""The component `elq_pairs`: trains the question encoder and the entity encoder together, the stage before
`elq_linker`. It annotates nothing.
"""

from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any, Callable, ClassVar, Dict, Iterable, List, Optional, Tuple, Union

import numpy as np
from spacy import util
from spacy.language import Language
from spacy.pipeline.trainable_pipe import TrainablePipe
from spacy.tokens import Doc
from spacy.training import Example, validate_examples, validate_get_examples
from spacy.vocab import Vocab
from thinc.api import Model, Optimizer, set_dropout_rate

from ..core.losses import softmax_linking_loss
from ..core.spans import pool_spans, to_row_spans
from ..errors import ELQError, Errors, Rule, whole_number
from ..files import loading
from ..index import AnyIndex, Database, open_catalogue
from ..model.towers import PairInput, TowerOutput
from ..types import Array, Entity, Rows
from .batch import span_texts
from .gold import Gold, collect_gold
from .settings import HasSettings

# hard negatives are drawn from this many times as many of the nearest entities: some of these are right too
_DRAWN_FROM = 5


class ELQPairs(HasSettings, TrainablePipe):
    """Pulls a mention in its context towards its entity and away from the other entities of the batch."""

    rules: ClassVar[Dict[str, Rule]] = {
        "same_name": whole_number(0),
        "hard": whole_number(0),
        "title_only": (lambda x: 0 <= x <= 1, "a number from 0 to 1"),
    }

    def __init__(
        self,
        vocab: Vocab,
        model: Model[PairInput, TowerOutput],
        name: str = "elq_pairs",
        *,
        same_name: int = 1,
        hard: int = 0,
        title_only: float = 0.0,
    ) -> None:
        """Make the component. It has no catalogue yet: `initialize` gives one. For the settings see
        `make_elq_pairs`.
        """
        self.name = name
        self.vocab = vocab
        self.model = model
        self.same_name = same_name
        self.hard = hard
        self.title_only = title_only
        self.remember_config()
        self._records: Optional[Database] = None
        self._index: Optional[AnyIndex] = None
        self._random = np.random.default_rng(0)

    def initialize(
        self,
        get_examples: Callable[[], Iterable[Example]],
        *,
        nlp: Optional[Language] = None,
        catalogue: Optional[Path] = None,
        index_loader: Optional[Callable[[], AnyIndex]] = None,
    ) -> None:
        """Prepare for training.

        get_examples (Callable[[], Iterable[Example]]): Gives the training examples.
        nlp (Optional[Language]): The pipeline.
        catalogue (Optional[Path]): The catalogue (entities.jsonl) with the entities of the gold links.
        index_loader (Optional[Callable[[], AnyIndex]]): Opens the index where hard negatives are searched,
            made with the encoders that training starts from.
        """
        validate_get_examples(get_examples, "ELQPairs.initialize")
        if catalogue is None:
            raise ELQError(Errors.E047.format(name=self.name))
        if self.hard and index_loader is None:
            raise ELQError(Errors.E244.format(name=self.name, hard=self.hard))
        self._records = open_catalogue(Path(catalogue))
        self._index = index_loader() if index_loader is not None else None
        self.model.initialize(X=[example.x for example in islice(get_examples(), 10)])  # type: ignore[arg-type]

    def predict(self, docs: Iterable[Doc]) -> None:
        """Nothing to predict."""

    def set_annotations(self, docs: Iterable[Doc], scores: None) -> None:
        """Nothing to write."""

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
        validate_examples(examples, "ELQPairs.update")
        records = self._require_records()
        gold = collect_gold(examples, records.positions)
        docs = [example.predicted for example in examples]
        if not (gold.positions >= 0).any():
            return losses
        texts = span_texts(docs, gold.spans)
        wrong = [self._same_name(records, texts, gold), self._similar(records, docs, gold)]
        pool = np.unique(np.concatenate([gold.positions[gold.positions >= 0], *wrong]))
        set_dropout_rate(self.model, drop)
        output, backprop = self.model.begin_update((docs, self._draw_texts(records, pool)))
        loss, gradients = _get_loss(output, gold, pool)
        backprop(gradients)  # type: ignore[arg-type]
        if sgd is not None:
            self.finish_update(sgd)
        losses[self.name] += loss
        return losses

    def _draw_texts(self, records: Database, pool: Array) -> List[Entity]:
        """RETURNS (List[Entity]): The entities, some without their description."""
        is_bare = self._random.random(len(pool)) < self.title_only
        entities = [records.get(int(position)) for position in pool]
        return [replace(e, description="") if bare else e for e, bare in zip(entities, is_bare, strict=True)]

    def _same_name(self, records: Database, texts: List[str], gold: Gold) -> Array:
        """RETURNS (Array): Positions of wrong entities with the names of the mentions, drawn at random."""
        owners, entities, _ = records.match_names(texts)
        wrong = (entities != gold.positions[owners]) & (gold.positions[owners] >= 0)
        return self._draw(owners[wrong], entities[wrong], most=self.same_name)

    def _similar(self, records: Database, docs: List[Doc], gold: Gold) -> Array:
        """RETURNS (Array): Positions of wrong entities that the index finds for the mentions, drawn at random
        from the nearest.
        """
        if not self.hard or self._index is None:
            return np.zeros(0, dtype="int64")
        # in training the listener has the output of the transformer, which is not on the docs
        rows = self.model.layers[0](docs, True)[0]
        mentions, kept, _ = _pool_gold(self._project(rows), gold)
        with self._index.reading():
            found = self._index.search(mentions, _DRAWN_FROM * self.hard)[0]
            ids = [id_ for id_, _, _ in self._index.heads(found[found >= 0])]
        owners, entities = np.nonzero(found >= 0)[0], records.positions(ids)
        wrong = (entities >= 0) & (entities != gold.positions[kept][owners])
        return self._draw(owners[wrong], entities[wrong], most=self.hard)

    def _draw(self, owners: Array, entities: Array, *, most: int) -> Array:
        """RETURNS (Array): Of the entities of each owner, so many at random."""
        order = np.lexsort((self._random.random(len(owners)), owners))
        owners, entities = owners[order], entities[order]
        rank = np.arange(len(owners)) - np.searchsorted(owners, owners)
        return entities[rank < most]

    def _project(self, rows: Rows) -> Rows:
        """RETURNS (Rows): With vectors as wide as those of the entities."""
        return rows.with_vectors(self.model.layers[1].predict(rows.vectors))

    def score(self, examples: Iterable[Example], **kwargs: Any) -> Dict[str, Any]:
        """Link the gold mentions among all gold entities of the examples.

        RETURNS (Dict[str, Any]): `elq_pairs_acc`, how many come out right.
        """
        records = self._require_records()
        hits: List[Array] = []
        examples = list(examples)
        pool = np.unique(collect_gold(examples, records.positions).positions)
        pool = pool[pool >= 0]
        entities = self._encode(records, pool)
        for batch in util.minibatch(examples, 128):
            gold = collect_gold(batch, records.positions)
            rows = self._project(self.model.layers[0].predict([example.predicted for example in batch]))
            mentions, kept, _ = _pool_gold(rows, gold)
            if len(mentions):
                hits.append(pool[(mentions @ entities.T).argmax(axis=1)] == gold.positions[kept])
        flat = np.concatenate(hits) if hits else np.zeros(0)
        return {"elq_pairs_acc": float(flat.mean()) if len(flat) else None}

    def _encode(self, records: Database, pool: Array, batch_size: int = 128) -> Array:
        tower = self.model.layers[2]
        parts = [
            tower.predict([records.get(int(p)) for p in pool[begin : begin + batch_size]])
            for begin in range(0, len(pool), batch_size)
        ]
        return np.concatenate(parts) if parts else np.zeros((0, tower.get_dim("nO")), dtype="float32")

    def to_disk(self, path: Union[str, Path], *, exclude: Iterable[str] = ()) -> None:
        """Save to a folder; its subfolder `encoder` is the entity encoder, for `spacy elq encode`.

        path (Union[str, Path]): The folder.
        exclude (Iterable[str]): Fields to leave out: vocab, model, encoder.
        """
        self.warn_unsaved()
        serialize: Dict[str, Callable[[Path], Any]] = {
            "vocab": lambda p: self.vocab.to_disk(p, exclude=exclude),
            "model": lambda p: self.model.to_disk(p),
            "encoder": lambda p: self.model.layers[2].attrs["encoder"].to_disk(p),
        }
        util.to_disk(path, serialize, exclude)

    def from_disk(self, path: Union[str, Path], *, exclude: Iterable[str] = ()) -> "ELQPairs":
        """Load from a folder.

        path (Union[str, Path]): The folder.
        exclude (Iterable[str]): Fields to leave out: vocab, model.
        RETURNS (ELQPairs): The component.
        """
        deserialize: Dict[str, Callable[[Path], Any]] = {
            "vocab": lambda p: self.vocab.from_disk(p, exclude=exclude),
            "model": self._load_model,
        }
        util.from_disk(path, deserialize, exclude)
        return self

    def _load_model(self, path: Path) -> None:
        with loading(path):
            self.model.from_disk(path)

    def _require_records(self) -> Database:
        if self._records is None:
            raise ELQError(Errors.E047.format(name=self.name))
        return self._records


def _pool_gold(rows: Rows, gold: Gold) -> Tuple[Array, Array, Callable[[Array], Array]]:
    """RETURNS (Tuple): Vectors of the gold mentions that can be used, which they are, and the callback."""
    row_spans = to_row_spans(rows, gold.spans)
    kept = (gold.positions >= 0) & (row_spans[:, 1] > row_spans[:, 0])
    mentions, backprop = pool_spans(rows.vectors, row_spans[kept])
    return mentions, kept, backprop


def _get_loss(output: TowerOutput, gold: Gold, pool: Array) -> Tuple[float, Tuple[Array, Array]]:
    """RETURNS (Tuple[float, Tuple[Array, Array]]): The loss, d_vectors and d_entities."""
    rows, entities = output
    mentions, kept, bp_mentions = _pool_gold(rows, gold)
    targets = np.searchsorted(pool, gold.positions[kept])
    similarities = (mentions @ entities.T).astype("float64")
    loss, d_similarities = softmax_linking_loss(similarities, targets)
    return loss, (
        bp_mentions((d_similarities @ entities).astype(mentions.dtype)),
        (d_similarities.T @ mentions).astype(entities.dtype),
    )
