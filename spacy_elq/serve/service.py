"""What the server does, without HTTP: texts to links, and the catalogue."""

from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, Dict, Iterator, List, Mapping, Optional, Sequence, Tuple

from spacy.language import Language
from spacy.tokens import Doc

from ..catalogue import entity_to_dict
from ..errors import ELQError, Errors
from ..evaluation.pipelines import load_pipeline
from ..pipeline.annotate import WITHIN
from ..pipeline.explain import Explanation
from ..pipeline.stream import doc_links
from ..types import Entity

# labels that a page can offer
_LABELS = 50
_WARM_UP = "who is the president of france"


@dataclass(frozen=True)
class Ask:
    """A text to link, and how.

    text (str): The text.
    threshold (Optional[float]): Least score of a link, or None for the pipeline's.
    alternatives (int): Number of candidates of each link.
    within (Optional[Dict[str, List[str]]]): The part of the catalogue that counts.
    """

    text: str
    threshold: Optional[float] = None
    alternatives: int = 3
    within: Optional[Dict[str, List[str]]] = None


@dataclass(frozen=True)
class Answer:
    """The links of a text, or why there are none.

    links (Optional[List[Dict[str, Any]]]): What `spacy elq link` writes, or None.
    error (Optional[str]): What went wrong with this text.
    """

    links: Optional[List[Dict[str, Any]]]
    error: Optional[str] = None


class LinkService:
    """A pipeline and its catalogue, as a server uses them. One thread may link at a time; any may read or
    change the catalogue.
    """

    def __init__(self, nlp: Language, linker: Any) -> None:
        """Make the service.

        nlp (Language): The pipeline.
        linker (Any): Its linker.
        """
        self.nlp = nlp
        self.linker = linker
        self._labels: Tuple[Any, List[str]] = (None, [])

    @classmethod
    def load(cls, pipeline: str) -> "LinkService":
        """RETURNS (LinkService): That of a pipeline, which has linked its first text."""
        service = cls(*load_pipeline(pipeline))
        service.link([Ask(_WARM_UP)])
        return service

    # ------------------------------------------------------------------ links

    def link(self, asks: Sequence[Ask]) -> List[Answer]:
        """Link texts. What is wrong with one of them does not touch the others.

        RETURNS (List[Answer]): An answer for each.
        """
        answers: Dict[int, Answer] = {}
        for threshold in dict.fromkeys(ask.threshold for ask in asks):
            own = [i for i, ask in enumerate(asks) if ask.threshold == threshold]
            try:
                with self._with_threshold(threshold):
                    answers.update(zip(own, self._link_together([asks[i] for i in own]), strict=True))
            except ELQError as err:
                answers.update(dict.fromkeys(own, Answer(None, str(err))))
        return [answers[i] for i in range(len(asks))]

    def _link_together(self, asks: Sequence[Ask]) -> List[Answer]:
        try:
            docs = list(self.nlp.pipe([self._make_doc(ask) for ask in asks], batch_size=len(asks)))
            return [_answer(doc, ask) for doc, ask in zip(docs, asks, strict=True)]
        except Exception as err:  # a text can make any component of a pipeline raise anything
            if len(asks) == 1:
                return [Answer(None, str(err) if isinstance(err, ELQError) else type(err).__name__)]
            return [answer for ask in asks for answer in self._link_together([ask])]

    def explain(self, ask: Ask) -> List[Dict[str, Any]]:
        """RETURNS (List[Dict[str, Any]]): The likely mentions of a text and the parts of their scores."""
        if not hasattr(self.linker, "explain"):
            raise ELQError(Errors.E202.format(name=self.linker.name, what="explain"))
        with self._with_threshold(ask.threshold):
            doc = self._before_linker(ask)
            return [self._to_dict(doc, explanation) for explanation in self.linker.explain(doc)]

    def _to_dict(self, doc: Doc, explanation: Explanation) -> Dict[str, Any]:
        """RETURNS (Dict[str, Any]): An explanation in plain types, with offsets and labels as links have."""
        values, span = explanation.to_dict(), doc[explanation.start : explanation.end]
        for candidate in values["candidates"]:
            candidate["label"] = candidate["label"] or self.linker.label
        return {**values, "start": span.start_char, "end": span.end_char}

    def candidates(self, ask: Ask, start: int, end: int) -> Tuple[Tuple[int, int], List[Dict[str, Any]]]:
        """RETURNS (Tuple[Tuple[int, int], List[Dict[str, Any]]]): The characters of the tokens that `start`
        and `end` touch, and the candidates of that mention, best first.
        """
        doc = self._before_linker(ask)
        span = doc.char_span(start, end, alignment_mode="expand") if start < end <= len(ask.text) else None
        if span is None or not len(span):
            raise ELQError(Errors.E203.format(start=start, end=end, length=len(ask.text)))
        links = self.linker.link_spans([doc], [[span]])[0]
        found = [alternative.to_dict() for alternative in links[0].alternatives] if links else []
        return (span.start_char, span.end_char), found[: ask.alternatives]

    def _make_doc(self, ask: Ask) -> Doc:
        doc = self.nlp.make_doc(ask.text)
        if ask.within:
            doc._.set(WITHIN, ask.within)
        return doc

    def _before_linker(self, ask: Ask) -> Doc:
        """RETURNS (Doc): A doc that the components before the linker have processed."""
        doc = self._make_doc(ask)
        for name, pipe in self.nlp.pipeline:
            if name == self.linker.name:
                break
            doc = pipe(doc)
        return doc

    @contextmanager
    def _with_threshold(self, threshold: Optional[float]) -> Iterator[None]:
        decoder = getattr(self.linker, "decoder", None)
        if threshold is None:
            yield
        elif decoder is None:
            raise ELQError(Errors.E202.format(name=self.linker.name, what="a threshold"))
        else:
            self.linker.decoder = replace(decoder, threshold=threshold, first_threshold=None)
            try:
                yield
            finally:
                self.linker.decoder = decoder

    # ------------------------------------------------------------------ the catalogue

    @property
    def index(self) -> Any:
        """RETURNS (Any): The index of the linker."""
        index = getattr(self.linker, "index", None)
        if index is None or not hasattr(index, "find"):
            raise ELQError(Errors.E202.format(name=self.linker.name, what="an entity index"))
        return index

    def get_entity(self, id_: str) -> Optional[Dict[str, Any]]:
        """RETURNS (Optional[Dict[str, Any]]): The record of an entity, or None if there is none."""
        try:
            return entity_to_dict(self.index[id_])
        except KeyError:
            return None

    def look_up(self, ids: Sequence[str]) -> Tuple[Dict[str, Entity], Dict[str, int]]:
        """RETURNS (Tuple[Dict[str, Entity], Dict[str, int]]): The entities with ids, and their positions."""
        with self.index.reading():
            positions = {
                id_: int(position)
                for id_, position in zip(ids, self.index.positions(ids), strict=True)
                if position >= 0
            }
            return {id_: self.index.entity(position) for id_, position in positions.items()}, positions

    def find_entities(self, name: str, *, within: Optional[Mapping[str, Any]], limit: int) -> List[Dict]:
        """RETURNS (List[Dict]): Records of the entities with a name, or with a similar spelling if there is
        none, most popular first.
        """
        return [entity_to_dict(entity) for entity in self.index.find(name, within=within)[:limit]]

    def put_entities(self, records: Sequence[Mapping[str, Any]]) -> Dict[str, int]:
        """Add or replace entities, in one transaction.

        RETURNS (Dict[str, int]): How many are new, took the place of others, and are there now.
        """
        added = self.index.put(records, self.linker._require_encoder())
        return {"added": added.new, "replaced": added.replaced, "entities": len(self.index)}

    def remove_entities(self, ids: Sequence[str]) -> Dict[str, int]:
        """Remove entities, in one transaction; unknown ids are ignored.

        RETURNS (Dict[str, int]): How many there were, and how many are there now.
        """
        return {"removed": self.index.remove(ids), "entities": len(self.index)}

    def describe(self) -> Dict[str, Any]:
        """RETURNS (Dict[str, Any]): What a page shows of the pipeline and its catalogue."""
        meta, decoder = self.nlp.meta, getattr(self.linker, "decoder", None)
        index: Any = getattr(self.linker, "index", None)
        known = index is not None and hasattr(index, "stamp")
        return {
            "pipeline": f"{meta['lang']}_{meta['name']}",
            "version": meta["version"],
            "linker": self.linker.name,
            "threshold": None if decoder is None else decoder.threshold,
            "explains": hasattr(self.linker, "explain"),
            "entities": len(index) if known else None,
            "changes": index.changes if known else None,
            "stamp": dict(index.stamp) if known else None,
            "labels": self._find_labels() if known else [],
        }

    def _find_labels(self) -> List[str]:
        """RETURNS (List[str]): The labels of the catalogue, the most frequent first."""
        index = self.index
        state = (len(index), index.changes)
        if self._labels[0] != state:
            self._labels = (state, index.labels()[:_LABELS])
        return self._labels[1]


def _answer(doc: Doc, ask: Ask) -> Answer:
    return Answer(list(doc_links(doc, ask.alternatives)))
