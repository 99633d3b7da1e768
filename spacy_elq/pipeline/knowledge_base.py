"""An index as spaCy's own `entity_linker` and spacy-llm's linking task want it: candidates for the text of a
mention, by name.
"""

from dataclasses import replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any, Callable, Dict, Iterable, List, Optional, Sequence, Tuple, Union

import numpy as np
import srsly
from spacy.kb import Candidate, KnowledgeBase
from spacy.pipeline import EntityLinker
from spacy.tokens import Span
from spacy.vocab import Vocab

from ..errors import ELQError, Errors
from ..index import EntityIndex, find_place, record_place
from ..types import Array, Entity

_RECORD = "index.json"
# what a language model reads of an entity that is not in the index
_UNDESCRIBED = "This entity doesn't have a description."


def build_index_kb(path: Optional[Path] = None, candidates: int = 20) -> Callable[..., "IndexKnowledgeBase"]:
    """A knowledge base over an index, for spaCy's own `entity_linker`. It needs two blocks: with a path in
    `[initialize.components.entity_linker.kb_loader]`, and without one in
    `[components.entity_linker.generate_empty_kb]`, so that the trained pipeline can be loaded.

    path (Optional[Path]): Folder of the index; null for a saved pipeline, which knows the path.
    candidates (int): Maximum number of entities for the text of a mention, most popular first.
    RETURNS (Callable[..., IndexKnowledgeBase]): Makes the knowledge base.
    """
    return partial(load_index_kb, path=path, candidates=candidates)


def load_index_kb(
    vocab: Vocab, entity_vector_length: int = 1, *, path: Optional[Path] = None, candidates: int = 20
) -> "IndexKnowledgeBase":
    """Make a knowledge base; the settings are those of `build_index_kb`.

    entity_vector_length (int): Without an index, the width that its vectors will have.
    RETURNS (IndexKnowledgeBase): The knowledge base.
    """
    index = EntityIndex.open(path) if path is not None else None
    return IndexKnowledgeBase(vocab, index, width=entity_vector_length, candidates=candidates)


class IndexKnowledgeBase(KnowledgeBase):
    """A knowledge base whose entities, names and vectors are those of an index. Only its path is saved.

    The candidates of a mention are the entities with its text as a name or, if there are none, with a similar
    spelling of one. Prior probabilities are shares of the popularity; those of similar spellings are halved.
    """

    def __init__(
        self, vocab: Vocab, index: Optional[EntityIndex], *, width: int = 1, candidates: int = 20
    ) -> None:
        """Make a knowledge base.

        vocab (Vocab): The shared vocabulary.
        index (Optional[EntityIndex]): The index, or None if it is loaded later.
        width (int): The length of a vector as long as there is no index.
        candidates (int): Maximum number of entities for a mention.
        """
        super().__init__(vocab, width if index is None else index.width)
        self._index = index
        self.candidates = candidates

    def __reduce__(self) -> Any:
        """Pickle the path of the index, not its data."""
        path = None if self._index is None else self._index.path
        return _restore, (self.vocab, path, self.entity_vector_length, self.candidates)

    def __len__(self) -> int:
        """RETURNS (int): The number of entities."""
        return 0 if self._index is None else len(self._index)

    def is_empty(self) -> bool:
        """RETURNS (bool): Whether there are no entities; spaCy asks before training and prediction."""
        return len(self) == 0

    @property
    def index(self) -> EntityIndex:
        """RETURNS (EntityIndex): The index.

        RAISES (ELQError): If there is none yet.
        """
        if self._index is None:
            raise ELQError(Errors.E137)
        return self._index

    def get_candidates(self, mention: Span) -> List[Candidate]:
        """RETURNS (List[Candidate]): The candidates of a mention, most probable first."""
        return self.get_candidates_batch([mention])[0]

    def get_candidates_batch(self, mentions: Iterable[Span]) -> List[List[Candidate]]:
        """RETURNS (List[List[Candidate]]): The candidates of each mention, most probable first; [] where the
        text is no name.
        """
        texts = [mention.text for mention in mentions]
        found: List[List[Candidate]] = [[] for _ in texts]
        with self.index.reading():
            owners, positions, priors = find_named(self.index, texts, limit=self.candidates)
            popularity = np.expm1(self.index.popularity_at(positions)).tolist()
            vectors = self.index.vectors_at(positions)
            heads = self.index.heads(positions)
        for i, (owner, prior) in enumerate(zip(owners.tolist(), priors.tolist(), strict=True)):
            entity, alias = (self.vocab.strings.add(text) for text in (heads[i][0], texts[owner]))
            found[owner].append(Candidate(self, entity, popularity[i], vectors[i].tolist(), alias, prior))
        return found

    def get_vector(self, entity: str) -> List[float]:
        """RETURNS (List[float]): The vector of an entity; zeros for an unknown id, as in spaCy's own."""
        return self.get_vectors([entity])[0]

    def get_vectors(self, entities: Iterable[str]) -> List[List[float]]:
        """RETURNS (List[List[float]]): The vectors of entities, by their ids."""
        with self.index.reading():
            positions = self.index.positions(list(entities))
            vectors = np.zeros((len(positions), self.entity_vector_length), dtype="float32")
            vectors[positions >= 0] = self.index.vectors_at(positions[positions >= 0])
        return vectors.tolist()

    def to_bytes(self, **kwargs: Any) -> bytes:
        """RETURNS (bytes): Where the index is."""
        return srsly.json_dumps(self._record(None)).encode("utf8")

    def from_bytes(self, bytes_data: bytes, *, exclude: Iterable[str] = ()) -> "IndexKnowledgeBase":
        """Open the index that `to_bytes` named.

        RETURNS (IndexKnowledgeBase): The same.
        """
        return self._open(srsly.json_loads(bytes_data), None)

    def to_disk(self, path: Union[str, Path], exclude: Iterable[str] = ()) -> None:
        """Save where the index is, from this folder and from the root, so that both can be moved together."""
        Path(path).mkdir(parents=True, exist_ok=True)
        srsly.write_json(Path(path) / _RECORD, self._record(Path(path)))

    def from_disk(self, path: Union[str, Path], exclude: Iterable[str] = ()) -> "IndexKnowledgeBase":
        """Open the index that `to_disk` named.

        RETURNS (IndexKnowledgeBase): The same.
        """
        return self._open(srsly.read_json(Path(path) / _RECORD), Path(path))

    def _record(self, folder: Optional[Path]) -> Dict[str, Any]:
        paths = [] if self._index is None else record_place(self._index.path, folder)
        return {"paths": paths, "width": self.entity_vector_length, "candidates": self.candidates}

    def _open(self, record: Dict[str, Any], folder: Optional[Path]) -> "IndexKnowledgeBase":
        index = None
        if record["paths"]:
            place = find_place(record["paths"], folder, message=Errors.E138, name="")
            index = EntityIndex.open(place)
            if index.width != record["width"]:
                expected = record["width"]
                raise ELQError(Errors.E139.format(path=place, found=index.width, expected=expected))
        IndexKnowledgeBase.__init__(
            self, self.vocab, index, width=record["width"], candidates=record["candidates"]
        )
        return self


def _restore(vocab: Vocab, path: Optional[Path], width: int, candidates: int) -> IndexKnowledgeBase:
    """RETURNS (IndexKnowledgeBase): What was pickled."""
    return load_index_kb(vocab, width, path=path, candidates=candidates)


def find_named(index: EntityIndex, texts: Sequence[str], *, limit: int) -> Tuple[Array, Array, Array]:
    """Find the entities that texts are names of, with prior probabilities.

    limit (int): Maximum number of entities for a text.
    RETURNS (Tuple[Array, Array, Array]): (matches,) the position of the text, ascending, the position of an
        entity, and its share of the popularity of all entities with that name, best first; half of it for a
        similar spelling.
    """
    owners, positions, degrees = index.match_names(texts)
    weights = np.exp(index.popularity_at(positions).astype("float64"))
    priors = degrees * weights / np.bincount(owners, weights, minlength=len(texts))[owners]
    order = np.lexsort((positions, -priors, owners))
    owners, positions, priors = owners[order], positions[order], priors[order]
    # how many of the same text stand before each
    ranks = np.arange(len(owners)) - np.searchsorted(owners, owners, side="left")
    kept = ranks < limit
    return owners[kept], positions[kept], priors[kept]


def build_index_candidates(path: Path, candidates: int = 5) -> "IndexCandidates":
    """Candidates from an index for the entity linking task of spacy-llm, where a language model chooses among
    them by their descriptions: for `[initialize.components.llm.candidate_selector]`.

    path (Path): Folder of the index.
    candidates (int): Maximum number of entities for the text of a mention, most popular first.
    RETURNS (IndexCandidates): Finds the candidates of mentions.
    """
    return IndexCandidates(path, candidates=candidates)


class IndexCandidates:
    """What spacy-llm calls a candidate selector, over an index."""

    def __init__(self, path: Path, *, candidates: int = 5) -> None:
        """Make the selector; the index is opened when it is first used.

        path (Path): Folder of the index.
        candidates (int): Maximum number of entities for a mention.
        """
        self.path = path
        self.candidates = candidates

    @cached_property
    def index(self) -> EntityIndex:
        """RETURNS (EntityIndex): The index."""
        return EntityIndex.open(self.path)

    def __call__(self, mentions: Iterable[Span]) -> List[List[Entity]]:
        """Find candidates. spacy-llm uses their `id` and `description`.

        mentions (Iterable[Span]): The mentions.
        RETURNS (List[List[Entity]]): The entities that the text of each mention is a name of. Their
            descriptions begin with the title. Without any, there is one with the id "NIL".
        """
        texts = [mention.text for mention in mentions]
        found: List[List[Entity]] = [[] for _ in texts]
        with self.index.reading():
            owners, positions, _ = find_named(self.index, texts, limit=self.candidates)
            for owner, position in zip(owners.tolist(), positions.tolist(), strict=True):
                entity = self.index.entity(position)
                found[owner].append(replace(entity, description=_describe(entity)))
        return [own or [Entity(EntityLinker.NIL, EntityLinker.NIL, _UNDESCRIBED)] for own in found]

    def get_entity_description(self, entity_id: str) -> str:
        """RETURNS (str): Title and description of an entity; that there is none for an unknown one."""
        try:
            return _describe(self.index[entity_id])
        except KeyError:
            return _UNDESCRIBED


def _describe(entity: Entity) -> str:
    return f"{entity.title}: {entity.description}" if entity.description else entity.title
