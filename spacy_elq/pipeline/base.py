"""What a linker over an entity index is made of, whatever finds its mentions: candidates and their joint
scores, the linking loss, annotations, scores, and the index on disk.
"""

import logging
import math
import warnings
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, Callable, Dict, Iterable, List, Optional, Sequence, Tuple, Union

import numpy as np
import srsly
from spacy import util
from spacy.pipeline.pipe import deserialize_config
from spacy.pipeline.trainable_pipe import TrainablePipe
from spacy.tokens import Doc
from spacy.training import Example
from spacy.vocab import Vocab
from thinc.api import Model

from .. import util as threads
from ..core.decode import accept_mentions, joint_scores
from ..core.losses import LINKING_LOSSES
from ..core.negatives import Negatives
from ..errors import ELQError, Errors, Warnings
from ..index import EntityIndex, copy_index, find_place, record_place
from ..types import Alternative, Array, Link
from .annotate import EXISTING_ENTS, write_links
from .batch import find_owners, span_texts, to_docs
from .gold import collect_gold
from .scorer import ScoresLinks
from .settings import Rule, check_settings, threshold_rules

logger = logging.getLogger("spacy")


class IndexedLinker(ScoresLinks, TrainablePipe):
    """A linker whose candidates are the entities of an index that are nearest to the vector of a mention."""

    def __init__(
        self,
        vocab: Vocab,
        model: Model,
        name: str,
        *,
        negatives: Negatives,
        scorer: Optional[Callable],
        index_path: Optional[str],
        settings: Dict[str, Any],
    ) -> None:
        """Make the component. It has no index yet: `initialize`, `set_index` or `from_disk` give one.

        settings (Dict[str, Any]): What `cfg` holds. The other arguments are those of `ELQLinker`.
        """
        self.vocab = vocab
        self.model = model
        self.name = name
        self.negatives = negatives
        self.scorer = scorer
        self.index: Optional[EntityIndex] = None
        self.index_path = index_path
        self.cfg: Dict[str, Any] = settings
        self.check_settings()

    def check_settings(self) -> None:
        """Check the values in `cfg`, also after they were changed."""
        rules: Dict[str, Rule] = {
            **threshold_rules(self.cfg),
            "candidates": (lambda x: x >= 1, "at least 1"),
            "name_weight": (lambda x: x >= 0, "at least 0"),
            "alias_share": (lambda x: 0.5 <= x <= 1, "between 0.5 and 1"),
            "popularity_weight": (lambda x: x >= 0, "at least 0"),
            "temperature": (lambda x: x > 0, "above 0"),
            "existing_ents": (lambda x: x in EXISTING_ENTS, f"one of {', '.join(EXISTING_ENTS)}"),
            "linking_loss": (lambda x: x in LINKING_LOSSES, f"one of {', '.join(LINKING_LOSSES)}"),
        }
        check_settings(self.name, self.cfg, {**rules, **self._rules()})

    def _rules(self) -> Dict[str, Rule]:
        """RETURNS (Dict[str, Rule]): What the settings that only this linker has may be."""
        return {}

    # ------------------------------------------------------------------ the index

    def set_index(self, index: EntityIndex) -> None:
        """Attach an index. Its catalogue may be any; its vectors must be what the model was trained for.

        index (EntityIndex): An index that can be searched.
        """
        expected = self.index.stamp["encoder"] if self.index is not None else None
        self._attach(index, encoder=expected)

    def _attach(self, index: EntityIndex, *, encoder: Optional[str]) -> None:
        width = self.model.get_dim("nO") if self.model.has_dim("nO") else index.width
        if index.width != width:
            raise ELQError(
                Errors.E003.format(path=index.path, found=index.width, name=self.name, expected=width)
            )
        found = index.stamp["encoder"]
        if encoder is not None and encoder != found:
            raise ELQError(Errors.E004.format(path=index.path, found=found, name=self.name, expected=encoder))
        self.index = index

    def _require_index(self) -> EntityIndex:
        if self.index is None:
            raise ELQError(Errors.E001.format(name=self.name))
        return self.index

    # ------------------------------------------------------------------ from mentions to links

    def _link(
        self, index: EntityIndex, docs: Sequence[Doc], spans: Array, vectors: Array, log_probs: Array
    ) -> Tuple[Array, Array]:
        """Find the candidates of mentions.

        spans, vectors (Array): (mentions, 2) token ranges, counted over the batch, and (mentions, width).
        log_probs (Array): (mentions,) log probability that each is one.
        RETURNS (Tuple[Array, Array]): (mentions, candidates) positions and log joint probabilities.
        """
        search = self._search(index, self._names(docs, spans))
        positions, similarities = search(vectors, self.cfg["candidates"])
        return positions, joint_scores(log_probs, similarities.astype("float64") / self.cfg["temperature"])

    def _link_best(
        self, index: EntityIndex, docs: Sequence[Doc], spans: Array, vectors: Array, log_probs: Array
    ) -> List[List[Link]]:
        """Link mentions: those that reach the threshold become links, best first, without overlap.

        The joint probability of a mention is at most its own. Those that would be links if it were just that
        are looked up; if they are not good enough then, those that would be links instead, and so on. The
        links are the same as if all had been looked up, as they are where every mention is shown.

        spans, vectors (Array): (mentions, 2) token ranges, counted over the batch, by position, and
            (mentions, width).
        log_probs (Array): (mentions,) log probability that each is one.
        RETURNS (List[List[Link]]): Per doc, the links by position; if `spans_key` is set, also the
            mentions that were not accepted.
        """
        owners, _ = find_owners(docs, spans)
        shape = (len(spans), min(self.cfg["candidates"], len(index)))
        positions, joint = np.full(shape, -1), np.full(shape, -np.inf)
        joint[:, 0] = log_probs
        is_known = np.zeros(len(spans), dtype=bool)
        accepted = self._accept(spans, joint, owners)
        asked = np.arange(len(spans)) if self.cfg["spans_key"] else accepted
        while len(asked):
            found = self._link(index, docs, spans[asked], vectors[asked], log_probs[asked])
            positions[asked], joint[asked] = found
            is_known[asked] = True
            accepted = self._accept(spans, joint, owners)
            asked = accepted[~is_known[accepted]]
        is_link = np.zeros(len(spans), dtype=bool)
        is_link[accepted] = True
        shown = np.arange(len(spans)) if self.cfg["spans_key"] else accepted
        return self._make_links(index, docs, spans[shown], positions[shown], joint[shown], is_link[shown])

    def _accept(self, spans: Array, joint: Array, owners: Array) -> Array:
        """RETURNS (Array): The positions of the mentions that become links, ascending."""
        log_threshold = math.log(self.cfg["threshold"])
        return np.flatnonzero(
            accept_mentions(
                spans, joint[:, 0], owners, log_threshold=log_threshold, log_first=self._log_least()
            )
        )

    def _log_least(self) -> float:
        """RETURNS (float): The log joint probability below which nothing becomes a link."""
        return math.log(self.cfg["first_threshold"] or self.cfg["threshold"])

    def _attach_first(self, index_loader: Optional[Callable[[], EntityIndex]]) -> EntityIndex:
        """Attach the index of a training, whatever encoder made it, and let the model be as wide.

        RETURNS (EntityIndex): The index.
        """
        if index_loader is not None:
            self._attach(index_loader(), encoder=None)
        index = self._require_index()
        self.model.set_dim("nO", index.width)
        return index

    def _search(self, index: EntityIndex, names: List[str]) -> Callable[[Array, int], Tuple[Array, Array]]:
        """RETURNS (Callable): The index's search for mentions of these names, with the weights set here."""
        weights = {key: self.cfg[key] for key in ("name_weight", "alias_share", "popularity_weight")}
        return partial(index.search, names=names, **weights)

    def _names(self, docs: Sequence[Doc], spans: Array) -> List[str]:
        """RETURNS (List[str]): The texts of mentions, if names count for linking."""
        return span_texts(docs, spans) if self.cfg["name_weight"] else []

    def _make_links(
        self,
        index: EntityIndex,
        docs: Sequence[Doc],
        spans: Array,
        positions: Array,
        joint: Array,
        accepted: Array,
    ) -> List[List[Link]]:
        links: List[List[Link]] = [[] for _ in docs]
        found = positions >= 0
        heads = iter(index.heads(positions[found]))
        places, probs, counts = to_docs(docs, spans), np.exp(joint).tolist(), found.sum(axis=1).tolist()
        for (owner, start, end), own, count, is_link in zip(places, probs, counts, accepted, strict=True):
            if not count:
                continue
            known = list(islice(heads, count))
            best_id, best_title, label = known[0]
            links[owner].append(
                Link(
                    start=start,
                    end=end,
                    entity_id=best_id,
                    title=best_title,
                    label=label or self.cfg["label"],
                    score=own[0],
                    alternatives=[
                        Alternative(id_, title, prob)
                        for (id_, title, _), prob in zip(known, own, strict=False)
                    ],
                    accepted=bool(is_link),
                )
            )
        return links

    def set_annotations(self, docs: Iterable[Doc], links: List[List[Link]]) -> None:
        """Write links to the docs: entities, scores, titles, alternatives and, if set, the span group.

        docs (Iterable[Doc]): The docs.
        links (List[List[Link]]): What `predict` returned for them.
        """
        write_links(docs, links, existing_ents=self.cfg["existing_ents"], spans_key=self.cfg["spans_key"])

    # ------------------------------------------------------------------ training

    def _linking_loss(
        self, index: EntityIndex, docs: Sequence[Doc], spans: Array, vectors: Array, gold: Array
    ) -> Tuple[float, Array]:
        """L_ED of gold mentions.

        spans, vectors (Array): (mentions, 2) token ranges, counted over the batch, and (mentions, width).
        gold (Array): (mentions,) positions of their entities.
        RETURNS (Tuple[float, Array]): The loss, and d_vectors.
        """
        names = self._names(docs, spans)
        pool, competes, targets = self.negatives(vectors, gold, self._search(index, names))
        entities = index.vectors[pool]
        similarities = (vectors @ entities.T).astype("float64")
        matches = index.match_names(names, alias_share=self.cfg["alias_share"])
        similarities += self.cfg["name_weight"] * _bear_name(matches, pool, len(vectors))
        similarities += self.cfg["popularity_weight"] * index.log_popularity[pool]
        similarities[~competes] = -np.inf
        loss, d_similarities = LINKING_LOSSES[self.cfg["linking_loss"]](similarities, targets)
        return loss, (d_similarities @ entities).astype(vectors.dtype)

    def _report_gold(self, examples: Iterable[Example]) -> None:
        """Say how much of the gold cannot be used, and why."""
        total = misfits = 0
        unknown: List[str] = []
        index = self._require_index()
        for example in examples:
            gold = collect_gold([example], index.positions, key=self.cfg["gold_key"])
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
        """Serialize to bytes. The index is not in them, only where it is and what it must be.

        exclude (Iterable[str]): Fields to leave out: vocab, cfg, model, index.
        RETURNS (bytes): The serialized component.
        """
        serialize: Dict[str, Callable[[], Any]] = {
            "cfg": lambda: srsly.json_dumps(self.cfg),
            "index": lambda: srsly.json_dumps(self._index_record(None)),
            "vocab": lambda: self.vocab.to_bytes(exclude=exclude),
            "model": self.model.to_bytes,
        }
        return util.to_bytes(serialize, exclude)

    def from_bytes(self, bytes_data: bytes, *, exclude: Iterable[str] = ()) -> "IndexedLinker":
        """Load from bytes and open the index they name.

        bytes_data (bytes): What `to_bytes` returned.
        exclude (Iterable[str]): Fields to leave out: vocab, cfg, model, index.
        RETURNS (IndexedLinker): The component.
        """
        deserialize: Dict[str, Callable[[Any], Any]] = {
            "cfg": lambda b: self.cfg.update(srsly.json_loads(b)),
            "vocab": lambda b: self.vocab.from_bytes(b, exclude=exclude),
            "model": self.model.from_bytes,
            "index": lambda b: self._open_index(srsly.json_loads(b), None),
        }
        util.from_bytes(bytes_data, deserialize, exclude)
        return self

    def to_disk(self, path: Union[str, Path], *, exclude: Iterable[str] = ()) -> None:
        """Save to a folder, with the place of the index, or with the index if `bundle_index` is set.

        path (Union[str, Path]): The folder.
        exclude (Iterable[str]): Fields to leave out: vocab, cfg, model, index.
        """
        folder = Path(path)
        serialize: Dict[str, Callable[[Path], Any]] = {
            "cfg": lambda p: srsly.write_json(p, self.cfg),
            "index.json": lambda p: srsly.write_json(p, self._index_record(folder)),
            "vocab": lambda p: self.vocab.to_disk(p, exclude=exclude),
            "model": lambda p: self.model.to_disk(p),
        }
        excluded = [*exclude, "index.json"] if "index" in exclude else exclude
        util.to_disk(path, serialize, excluded)
        if self.cfg["bundle_index"] and "index" not in exclude and self.index is not None:
            copy_index(self.index, folder / "index")

    def from_disk(self, path: Union[str, Path], *, exclude: Iterable[str] = ()) -> "IndexedLinker":
        """Load from a folder and open the index it names.

        path (Union[str, Path]): The folder.
        exclude (Iterable[str]): Fields to leave out: vocab, cfg, model, index.
        RETURNS (IndexedLinker): The component.
        """
        folder = Path(path)
        deserialize: Dict[str, Callable[[Path], Any]] = {
            "cfg": lambda p: self.cfg.update(deserialize_config(p)),
            "vocab": lambda p: self.vocab.from_disk(p, exclude=exclude),
            "model": lambda p: self.model.from_bytes(p.read_bytes()),
            "index.json": lambda p: self._open_index(srsly.read_json(p), folder),
        }
        excluded = [*exclude, "index.json"] if "index" in exclude else exclude
        util.from_disk(path, deserialize, excluded)
        return self

    def _index_record(self, folder: Optional[Path]) -> Dict[str, Any]:
        """Where the index is, from the root and from `folder`, so that both can be moved together."""
        if self.index is None:
            return {}
        if folder is not None and self.cfg["bundle_index"]:
            return {"paths": ["index"], "stamp": self.index.stamp}
        return {"paths": record_place(self.index.path, folder), "stamp": self.index.stamp}

    def _open_index(self, record: Dict[str, Any], folder: Optional[Path]) -> None:
        if not record:
            return
        stamp = record["stamp"]
        if self.index_path is not None:
            self._attach(EntityIndex.open(self.index_path), encoder=stamp["encoder"])
            return
        place = find_place(record["paths"], folder, message=Errors.E006, name=self.name)
        index = EntityIndex.open(place)
        self._attach(index, encoder=stamp["encoder"])
        if index.stamp != stamp:
            raise ELQError(
                Errors.E005.format(
                    path=index.path,
                    found=f"{index.stamp['catalogue']}, {index.stamp['count']} entities",
                    name=self.name,
                    expected=f"{stamp['catalogue']}, {stamp['count']} entities",
                )
            )


def _bear_name(matches: Tuple[Array, Array, Array], pool: Array, n_mentions: int) -> Array:
    """RETURNS (Array): (mentions, pool) how well an entity of the pool bears the mention's text as name."""
    bear = np.zeros((n_mentions, len(pool)))
    owners, entities, degrees = matches
    columns = np.minimum(np.searchsorted(pool, entities), len(pool) - 1)
    inside = pool[columns] == entities
    bear[owners[inside], columns[inside]] = degrees[inside]
    return bear


threads.install()
