"""What VCG knows of the entities of a catalogue: names and parts of names, vectors, relations. On disk."""

from pathlib import Path
from typing import Any, Dict, List, Sequence, Tuple, Union

import numpy as np

from ...core.spans import ranges
from ...errors import ELQError, Errors
from ...index.database import DATABASE, Damaged, Database
from ...index.files import find_files
from ...types import Array, Entity
from .words import Words

KIND = "relations"
# keys of names and of parts of names, the entities of each, and whether it is the whole name of one
KEYS, BEGINS, SENSES, EXACT = "keys.npy", "begins.npy", "senses.npy", "exact.npy"
# of every entity: its title in characters, its vector, how much is related to it
LABELS, ENTITIES, DEGREES = "labels.npy", "entities.npy", "degrees.npy"
# the relations of each entity with another entity, where they begin, and the words of all of them
EDGES, FIRSTS, SIGNATURES = "edges.npy", "firsts.npy", "signatures.npy"
# of every relation: its vector, and that of its words; of every word piece its vector
KINDS, PHRASES, PIECES = "kinds.npy", "phrases.npy", "pieces.npy"
ROLES = (
    *(KEYS, BEGINS, SENSES, EXACT, LABELS, ENTITIES, DEGREES),
    *(EDGES, FIRSTS, SIGNATURES, KINDS, PHRASES, PIECES),
)
# names that are up to this many words longer than an n-gram are found by it
LONGER = 2
LONGEST = 4
_FACTOR = np.uint64(0x9E3779B97F4A7C15)


class Relations:
    """Names, vectors and relations of the entities of a catalogue. All of it memory-mapped."""

    def __init__(self, path: Path, database: Database) -> None:
        """Use `Relations.open`."""
        self.path = path
        self._database = database
        with database.reading():
            self.meta: Dict[str, Any] = {
                key: database.get_meta(key) for key in ("catalogue", "width", "triples")
            }
            files = find_files(database)
            tokenizer = database.get_meta("tokenizer")
        arrays = {role: np.asarray(np.load(files[role], mmap_mode="r")) for role in ROLES}
        self._keys, self._begins, self._senses = arrays[KEYS], arrays[BEGINS], arrays[SENSES]
        self._exact, self._labels, self._entities = arrays[EXACT], arrays[LABELS], arrays[ENTITIES]
        self._edges, self._firsts, self._signatures = arrays[EDGES], arrays[FIRSTS], arrays[SIGNATURES]
        self._degrees, self._kinds, self._phrases = arrays[DEGREES], arrays[KINDS], arrays[PHRASES]
        self.words = Words(arrays[PIECES], tokenizer)

    @classmethod
    def open(cls, path: Union[str, Path]) -> "Relations":
        """Open relations.

        path (Union[str, Path]): The folder.
        RETURNS (Relations): The relations.
        RAISES (ELQError): If they are missing or damaged.
        """
        path = Path(path).absolute()
        if not (path / DATABASE).is_file():
            raise ELQError(Errors.E213.format(path=path))
        try:
            database = Database.open(path / DATABASE)
            if database.get_meta("kind") != KIND:
                raise ELQError(Errors.E213.format(path=path))
            return cls(path, database)
        except Damaged as err:
            raise ELQError(Errors.E214.format(path=path, file=err.file, problem=err.problem)) from None
        except FileNotFoundError as err:
            name = Path(str(err.filename)).name
            raise ELQError(Errors.E214.format(path=path, file=name, problem="is missing")) from None

    def __reduce__(self) -> Any:
        """Pickle the path, not the data: another process maps the same pages."""
        return (Relations.open, (self.path,))

    def __len__(self) -> int:
        """RETURNS (int): The number of entities."""
        return len(self._database)

    @property
    def width(self) -> int:
        """RETURNS (int): The length of the vectors of entities, relations and words."""
        return int(self.meta["width"])

    @property
    def stamp(self) -> Dict[str, Any]:
        """RETURNS (Dict[str, Any]): What tells these relations from others."""
        return {**self.meta, "count": len(self)}

    def entity(self, position: int) -> Entity:
        """RETURNS (Entity): The entity at a position."""
        return self._database.get(position)

    def positions(self, ids: Sequence[str]) -> Array:
        """RETURNS (Array): (ids,) the position of each id, or -1 for an unknown one."""
        return self._database.positions(ids)

    def heads(self, positions: Array) -> List[Tuple[str, str, str]]:
        """RETURNS (List[Tuple[str, str, str]]): Id, title and label of entities."""
        return self._database.heads(positions)

    # ------------------------------------------------------------------ names

    def find(self, keys: Array) -> Array:
        """RETURNS (Array): (keys,) the n-gram of each key (see `name_key`), or -1 if it is in no name."""
        places = np.minimum(np.searchsorted(self._keys, keys), len(self._keys) - 1)
        return np.where(self._keys[places] == keys, places, -1)

    def are_names(self, ngrams: Array) -> Array:
        """RETURNS (Array): (n-grams,) whether each is the whole name of an entity."""
        return self._exact[ngrams]

    def candidates(self, ngrams: Array, *, limit: int) -> Tuple[Array, Array]:
        """Find the candidates of n-grams: names that are equal first, then those with one and two words more,
        shorter ones first, then the most popular.

        limit (int): Maximum number of candidates.
        RETURNS (Tuple[Array, Array]): (n-grams,) how many candidates each has, and (candidates,) the
            positions of the entities, those of each n-gram together.
        """
        begins = self._begins[ngrams]
        sizes = np.minimum(self._begins[ngrams + 1] - begins, limit)
        return sizes, self._senses[ranges(begins, sizes)].astype("int64")

    # ------------------------------------------------------------------ entities

    def labels(self, positions: Array) -> Array:
        """RETURNS (Array): (entities, characters) the titles; see `encode_characters`."""
        return self._labels[positions]

    def vectors(self, positions: Array) -> Array:
        """RETURNS (Array): (entities, width) float32."""
        return self._entities[positions].astype("float32")

    def degrees(self, positions: Array) -> Array:
        """RETURNS (Array): (entities, 2) how many entities and how many relations each has, from 0 to 1."""
        return self._degrees[positions]

    def edges(self, positions: Array) -> Tuple[Array, Array, Array]:
        """RETURNS (Tuple[Array, Array, Array]): (entities,) how many relations each has, at most 25, and, for
        all of them, the number of the relation and the position of an entity that it leads to.
        """
        begins = self._firsts[positions]
        sizes = self._firsts[positions + 1] - begins
        found = self._edges[ranges(begins, sizes)]
        return sizes, found[:, 0].astype("int64"), found[:, 1].astype("int64")

    def kinds(self, numbers: Array) -> Tuple[Array, Array]:
        """RETURNS (Tuple[Array, Array]): (relations, width) the vectors of relations, and of their words."""
        return self._kinds[numbers], self._phrases[numbers]

    def have_words(self, positions: Array, words: Array) -> Array:
        """RETURNS (Array): (pairs,) whether a word is in the signature of an entity: in the names of its
        relations, or in the titles of the entities that they lead to.
        """
        if not len(self._signatures):
            return np.zeros(len(positions), dtype=bool)
        wanted = signature_keys(positions, words)
        places = np.minimum(np.searchsorted(self._signatures, wanted), len(self._signatures) - 1)
        return self._signatures[places] == wanted


def signature_keys(positions: Array, words: Array) -> Array:
    """RETURNS (Array): (pairs,) what the word of an entity's signature is looked up by.

    positions (Array): (pairs,) of entities.
    words (Array): (pairs,) uint64, see `hash_words`.
    """
    return positions.astype("uint64") * _FACTOR + words
