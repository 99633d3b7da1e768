"""spaCy's own `entity_linker` beside ELQ: a knowledge base made of a dictionary of anchors and an index, the
candidates that its names have there, and the component as the commands see a linker.
"""

from functools import partial
from pathlib import Path
from typing import Callable, Dict, Iterable, List, Sequence

import numpy as np
from spacy.kb import Candidate, InMemoryLookupKB, KnowledgeBase
from spacy.pipeline import EntityLinker
from spacy.tokens import Doc, Span
from spacy.vocab import Vocab

from ..errors import ELQError, Errors
from ..index import EntityIndex
from ..pipeline.batch import check_spans
from ..pipeline.knowledge_base import IndexKnowledgeBase
from ..pipeline.scorer import ScoresLinks
from ..types import Alternative, Array, Entities, Entity, Link
from .reduce import reduce_width
from .tagme.dictionary import AnchorDictionary
from .tagme.spotting import name_key


def build_kb_loader(
    dictionary: Path, index: Path, width: int = 64, candidates: int = 20
) -> Callable[[Vocab], InMemoryLookupKB]:
    """A knowledge base for spaCy's own `entity_linker`, made from a dictionary of anchors and an index: for
    `[initialize.components.entity_linker.kb_loader]`.

    dictionary (Path): Folder of the dictionary, made by `spacy elq dictionary`. Its names become aliases,
        found by `spacy-elq.NameCandidates.v1`, and their commonness becomes the prior probabilities.
    index (Path): Folder of an index of the same catalogue. Its vectors, reduced to `width`, become the entity
        vectors.
    width (int): Length of the reduced vectors, equal to `entity_vector_length` of the component.
    candidates (int): Maximum number of entities per name, most common first.
    RETURNS (Callable[[Vocab], InMemoryLookupKB]): Makes the knowledge base.
    """
    return partial(load_kb, dictionary=dictionary, index=index, width=width, candidates=candidates)


def load_kb(vocab: Vocab, *, dictionary: Path, index: Path, width: int, candidates: int) -> InMemoryLookupKB:
    """Make a knowledge base of a dictionary and an index. The settings are those of `build_kb_loader`.

    RETURNS (InMemoryLookupKB): The knowledge base.
    RAISES (ELQError): If the two are not of the same catalogue.
    """
    anchors, entities = AnchorDictionary.open(dictionary), EntityIndex.open(index)
    if anchors.stamp["catalogue"] != entities.stamp["catalogue"]:
        raise ELQError(Errors.E080.format(dictionary=dictionary, index=index))
    return fill_kb(InMemoryLookupKB(vocab, width), anchors, entities, candidates=candidates)


def fill_kb(
    kb: InMemoryLookupKB, dictionary: AnchorDictionary, index: EntityIndex, *, candidates: int
) -> InMemoryLookupKB:
    """Put all entities and names into a knowledge base.

    RETURNS (InMemoryLookupKB): The same.
    """
    ids = [entity.id for entity in index]
    known, senses_of = set(ids), dictionary.ids()
    vectors = reduce_width(index.vectors, kb.entity_vector_length)
    kb.set_entities(entity_list=ids, freq_list=np.ones(len(ids)), vector_list=vectors)
    keys = dictionary.keys
    sizes, senses, commonness = dictionary.senses(np.arange(len(keys)), candidates=candidates)
    ends = np.cumsum(sizes)
    for key, begin, end in zip(keys.tolist(), (ends - sizes).tolist(), ends.tolist(), strict=True):
        # the index may have changed since
        pairs = [(senses_of[p], c) for p, c in zip(senses[begin:end], commonness[begin:end], strict=True)]
        own = [(id_, float(share)) for id_, share in pairs if id_ in known]
        kb.add_alias(_alias(key), [id_ for id_, _ in own], [share for _, share in own])
    return kb


def build_name_candidates() -> Callable[[KnowledgeBase, Span], Iterable[Candidate]]:
    """Look up candidates in a knowledge base made by `spacy-elq.DictionaryKB.v1`, ignoring case, accents,
    punctuation and articles: for `get_candidates` of spaCy's `entity_linker`.

    RETURNS (Callable[[KnowledgeBase, Span], Iterable[Candidate]]): Finds the candidates of a span.
    """
    return find_candidates


def find_candidates(kb: KnowledgeBase, span: Span) -> Iterable[Candidate]:
    """RETURNS (Iterable[Candidate]): The entities that the text of a span is a name of."""
    return kb.get_alias_candidates(_alias(name_key(span.text)))


def _alias(key: int) -> str:
    return f"{key:016x}"


class KBEntities:
    """The entities of a knowledge base, of which nothing is known but their ids."""

    def __init__(self, kb: InMemoryLookupKB) -> None:
        """List the entities.

        kb (InMemoryLookupKB): The knowledge base.
        """
        self._ids = sorted(kb.get_entity_strings())
        self._positions: Dict[str, int] = {id_: position for position, id_ in enumerate(self._ids)}

    def __len__(self) -> int:
        """RETURNS (int): The number of entities."""
        return len(self._ids)

    def entity(self, position: int) -> Entity:
        """RETURNS (Entity): The entity at a position; its title is its id."""
        return Entity(self._ids[position], self._ids[position])

    def positions(self, ids: Sequence[str]) -> Array:
        """RETURNS (Array): (ids,) the position of each id, or -1 for an unknown one."""
        return np.asarray([self._positions.get(id_, -1) for id_ in ids], dtype="int64")


class KBLinker(ScoresLinks):
    """spaCy's `entity_linker` as the commands see a linker. It has no threshold to choose."""

    def __init__(self, pipe: EntityLinker) -> None:
        """Make the adapter.

        pipe (EntityLinker): The component, with its knowledge base.
        """
        self.name = pipe.name
        # an index knows more of its entities than their ids
        self.index: Entities = (
            pipe.kb.index if isinstance(pipe.kb, IndexKnowledgeBase) else KBEntities(pipe.kb)
        )
        self._pipe = pipe

    def link_spans(self, docs: Sequence[Doc], spans: Sequence[Sequence[Span]]) -> List[List[Link]]:
        """Link given mentions.

        docs (Sequence[Doc]): Docs with sentences.
        spans (Sequence[Sequence[Span]]): The mentions of each doc; they may overlap.
        RETURNS (List[List[Link]]): Per doc, the links in the order of the spans, less those that have no
            candidate. Scores are prior probabilities.
        """
        check_spans(docs, spans)
        given = [(owner, span) for owner, own in enumerate(spans) for span in own]
        # entities of one doc cannot overlap
        alone = [_with_entity(docs[owner], span) for owner, span in given]
        links: List[List[Link]] = [[] for _ in docs]
        for (owner, span), id_ in zip(given, self._pipe.predict(alone), strict=True):
            if id_ != EntityLinker.NIL:
                links[owner].append(self._make_link(span, id_))
        return links

    def _make_link(self, span: Span, id_: str) -> Link:
        found = {c.entity_: float(c.prior_prob) for c in self._pipe.get_candidates(self._pipe.kb, span)}
        order = [id_, *sorted(found.keys() - {id_}, key=lambda other: -found[other])]
        alternatives = [Alternative(other, other, found[other], span.label_) for other in order]
        return Link(span.start, span.end, id_, id_, span.label_, found[id_], alternatives)


def _with_entity(doc: Doc, span: Span) -> Doc:
    """RETURNS (Doc): A copy of a doc that has a span as its only entity."""
    copy = doc.copy()
    copy.set_ents([Span(copy, span.start, span.end, label="ENTITY")])
    return copy
