"""Make the relations of a catalogue: names by their parts, vectors of entities, relations and words."""

import re
from array import array
from dataclasses import dataclass, field
from pathlib import Path
from typing import Dict, Iterable, Iterator, List, Optional, Sequence, Tuple

import numpy as np
from tqdm import tqdm

from ...core.spans import ranges
from ...corpora import read_links, read_triples
from ...errors import ELQError, Errors
from ...index import EntityIndex
from ...index.build import making
from ...index.database import Database
from ...index.files import WORK, publish
from ...model.entity_encoder import EntityEncoder, open_encoder
from ...names import entity_names
from ...types import Array, Entity
from ..reduce import reduce_width, scale_to_width
from ..tagme.spotting import enumerate_runs, hash_words
from . import relations as roles
from .characters import encode_characters
from .relations import KIND, LONGER, LONGEST, Relations, signature_keys
from .transe import train_transe
from .words import Words, phrase_vectors

LINK = "hyperlink"
# how many entities an n-gram leads to, and how many relations are kept of an entity
_CANDIDATES, _EDGES = 100, 25
_NAMES_AT_ONCE = 200_000
_TITLES_AT_ONCE = 100_000
# as many related entities, or relations, count as 1
_MANY = 1000
_WORD = re.compile(r"[^\W_]+")


@dataclass
class RelationsReport:
    """What went into the relations.

    triples, links (int): Lines of the two files.
    unknown (int): Those with an entity that is not in the catalogue.
    examples (List[str]): A few of these entities, to look at.
    entities (int): How many entities have relations.
    kinds (int): How many relations there are, each counted in one direction.
    """

    triples: int = 0
    links: int = 0
    unknown: int = 0
    examples: List[str] = field(default_factory=list)
    entities: int = 0
    kinds: int = 0


def build_relations(
    triples: Path,
    index: Path,
    output: Path,
    *,
    links: Optional[Path] = None,
    encoder: Optional[str] = None,
    width: int = 50,
    epochs: int = 50,
    seed: int = 0,
    progress: bool = False,
) -> Tuple[Relations, RelationsReport]:
    """Make the relations of the entities of an index.

    triples (Path): Head, relation and tail per line, see `read_triples`.
    index (Path): The index. Its vectors stand for entities without triples.
    output (Path): Folder of the relations; one that is there is replaced at the end.
    links (Optional[Path]): Hyperlinks from page to page, one more relation; see `read_links`.
    encoder (Optional[str]): Folder of the encoder whose word piece embeddings become the word vectors; None
        for that of the index.
    width (int): Length of all vectors.
    epochs, seed (int): How often TransE sees each triple, and what its chance begins with.
    RETURNS (Tuple[Relations, RelationsReport]): The relations, and what went into them.
    """
    source = EntityIndex.open(index)
    stamp = source.meta["encoder"]
    own = EntityEncoder(encoder) if encoder else open_encoder(stamp, source.path)
    pieces, tokenizer = _read_words(own, width)
    report = RelationsReport()
    with making(Path(output).absolute()) as path, source.reading():
        names = _Names()
        work = Database.create(path)
        bar = tqdm(source, desc="Entities", total=len(source), disable=not progress)
        with work.filling():
            digest = work.fill(names.add_all(bar))
        popularity = np.expm1(work.popularity())
        graph = _read_graph(names.positions, report, triples, links)
        kinds, entities = _train(graph, source, width=width, epochs=epochs, seed=seed, progress=progress)
        edges, firsts, degrees = list_edges(graph.both, len(names.titles), popularity)
        arrays = {
            **names.gather(popularity, progress=progress),
            roles.LABELS: _encode_titles(names.titles),
            roles.ENTITIES: entities,
            roles.DEGREES: degrees,
            roles.EDGES: edges,
            roles.FIRSTS: firsts,
            roles.SIGNATURES: _sign(graph, names.titles),
            roles.KINDS: np.concatenate([kinds, -kinds]),
            roles.PHRASES: np.tile(phrase_vectors(Words(pieces, tokenizer), graph.labels), (2, 1)),
            roles.PIECES: pieces,
        }
        files = {role: path.with_name(f"{WORK}-{role}") for role in arrays}
        for role, values in arrays.items():
            np.save(files[role], values)
        counts = {"triples": len(graph.triples), "width": width, "seed": seed}
        work.set_meta(kind=KIND, catalogue=digest, tokenizer=tokenizer, **counts)
        publish(path.parent, work, files)
    return Relations.open(output), report


def _read_words(encoder: EntityEncoder, width: int) -> Tuple[Array, str]:
    """RETURNS (Tuple[Array, str]): (pieces, width) the embeddings of word pieces, and the tokenizer."""
    embeddings, tokenizer = encoder.embeddings()
    return scale_to_width(reduce_width(embeddings, width)), tokenizer


# ---------------------------------------------------------------------- names


class _Names:
    """Names of entities, by the runs of words in them."""

    def __init__(self) -> None:
        self.positions: Dict[str, int] = {}
        self.titles: List[str] = []
        self._names: List[str] = []
        self._bearers = array("q")

    def add_all(self, entities: Iterable[Entity]) -> Iterator[Entity]:
        """Note the names of entities that pass by.

        YIELDS (Entity): The entities.
        """
        for entity in entities:
            position = self.positions[entity.id] = len(self.titles)
            self.titles.append(entity.title)
            own = sorted(entity_names(entity))
            self._names.extend(own)
            self._bearers.extend([position] * len(own))
            yield entity

    def gather(self, popularity: Array, *, progress: bool) -> Dict[str, Array]:
        """Sort the runs of words.

        popularity (Array): (entities,) decides between names of the same length.
        RETURNS (Dict[str, Array]): The arrays of `Relations.find` and `Relations.candidates`, by role.
        """
        bearers = np.asarray(self._bearers)
        starts = range(0, len(self._names), _NAMES_AT_ONCE)
        parts = [
            list_runs(self._names[begin : begin + _NAMES_AT_ONCE], bearers[begin : begin + _NAMES_AT_ONCE])
            for begin in tqdm(starts, desc="Names", disable=not progress)
        ]
        columns = [np.concatenate(column) for column in zip(*parts, strict=True)]
        return sort_runs(*columns, popularity=popularity)


def list_runs(names: Sequence[str], bearers: Array) -> Tuple[Array, Array, Array, Array]:
    """List the runs of words by which names are found: the whole name, and what one or two words less leave.

    names (Sequence[str]): Normalized names.
    bearers (Array): (names,) the entity of each.
    RETURNS (Tuple[Array, Array, Array, Array]): (runs,) key, entity, how many words longer the name is, and
        its length in characters.
    """
    hashes, owners, _ = hash_words(names)
    counts = np.bincount(owners, minlength=len(names))
    runs, keys = enumerate_runs(hashes, owners, max_length=LONGEST)
    of_run = owners[runs[:, 0]]
    longer = counts[of_run] - (runs[:, 1] - runs[:, 0])
    kept = longer <= LONGER
    lengths = np.asarray([len(name) for name in names], dtype="int32")
    return keys[kept], bearers[of_run[kept]], longer[kept].astype("int8"), lengths[of_run[kept]]


def sort_runs(
    keys: Array, bearers: Array, longer: Array, lengths: Array, *, popularity: Array
) -> Dict[str, Array]:
    """RETURNS (Dict[str, Array]): The arrays of `Relations.find` and `Relations.candidates`, by role, from
    what `list_runs` returned.
    """
    # an entity is found by the nearest of its names
    order = np.lexsort((lengths, longer, bearers, keys))
    keys, bearers, longer, lengths = keys[order], bearers[order], longer[order], lengths[order]
    new = np.append(True, (keys[1:] != keys[:-1]) | (bearers[1:] != bearers[:-1]))[: len(keys)]
    keys, bearers, longer, lengths = keys[new], bearers[new], longer[new], lengths[new]
    order = np.lexsort((bearers, -popularity[bearers], lengths, longer, keys))
    keys, bearers, longer = keys[order], bearers[order], longer[order]
    kept = _ranks(keys) < _CANDIDATES
    unique, begins = np.unique(keys[kept], return_index=True)
    return {
        roles.KEYS: unique,
        roles.BEGINS: np.append(begins, kept.sum()),
        roles.SENSES: bearers[kept].astype("int32"),
        roles.EXACT: longer[kept][begins] == 0,
    }


def _ranks(keys: Array) -> Array:
    """RETURNS (Array): (keys,) how many equal ones are before each, of keys in order."""
    return np.arange(len(keys)) - np.searchsorted(keys, keys)


def _encode_titles(titles: Sequence[str]) -> Array:
    """RETURNS (Array): (entities, characters) see `encode_characters`."""
    parts = []
    for begin in range(0, len(titles), _TITLES_AT_ONCE):
        own = titles[begin : begin + _TITLES_AT_ONCE]
        ends = np.cumsum([len(title) for title in own])
        parts.append(encode_characters("".join(own), np.append(0, ends[:-1]), ends))
    return np.concatenate(parts)


# ---------------------------------------------------------------------- relations


@dataclass(frozen=True)
class Graph:
    """The relations between the entities of a catalogue.

    triples (Array): (triples, 3) positions of head and tail, and between them the number of the relation.
    labels (List[List[str]]): The words of each relation.
    """

    triples: Array
    labels: List[List[str]]

    @property
    def both(self) -> Array:
        """RETURNS (Array): (2 · triples, 3) entity, relation and other entity, each once. The inverse of a
        relation is another one.
        """
        inverse = self.triples[:, ::-1] + [0, len(self.labels), 0]
        return np.unique(np.concatenate([self.triples, inverse]), axis=0)


def _read_graph(
    positions: Dict[str, int], report: RelationsReport, triples: Path, links: Optional[Path]
) -> Graph:
    """RETURNS (Graph): The relations of entities of the catalogue."""
    numbers: Dict[str, int] = {}
    rows = array("q")

    def add(head: str, relation: str, tail: str) -> None:
        missing = [id_ for id_ in (head, tail) if id_ not in positions]
        if not missing:
            number = numbers.setdefault(relation, len(numbers))
            rows.extend((positions[head], number, positions[tail]))
            return
        report.unknown += 1
        if len(report.examples) < 3 and missing[0] not in report.examples:
            report.examples.append(missing[0])

    for head, relation, tail in read_triples(triples):
        report.triples += 1
        add(head, relation, tail)
    for page, linked in read_links(links) if links is not None else ():
        report.links += 1
        add(page, LINK, linked)
    if not rows:
        ids = ", ".join(report.examples)
        problem = f"their entities are not in the index, such as {ids}" if ids else "there is none"
        raise ELQError(Errors.E215.format(path=triples, problem=problem))
    found = np.unique(np.asarray(rows).reshape(-1, 3), axis=0)
    report.kinds, report.entities = len(numbers), len(np.unique(found[:, [0, 2]]))
    return Graph(found, [relation_words(relation) for relation in numbers])


def relation_words(relation: str) -> List[str]:
    """RETURNS (List[str]): The words of a relation; of a path as Freebase has, those of its last part."""
    return [word.lower() for word in _WORD.findall(relation.rstrip("/").rsplit("/", 1)[-1])]


def _train(
    graph: Graph, index: EntityIndex, *, width: int, epochs: int, seed: int, progress: bool
) -> Tuple[Array, Array]:
    """RETURNS (Tuple[Array, Array]): (relations, width) and (entities, width) vectors: by TransE and, of
    entities without relations, by the vectors of the index.
    """
    related, inverse = np.unique(graph.triples[:, [0, 2]], return_inverse=True)
    pairs = inverse.reshape(-1, 2)
    numbered = np.stack([pairs[:, 0], graph.triples[:, 1], pairs[:, 1]], axis=1)
    vectors, kinds = train_transe(numbered, width=width, epochs=epochs, seed=seed, progress=progress)
    entities = scale_to_width(reduce_width(index.vectors, width))
    entities[related] = scale_to_width(vectors)
    return kinds * np.float32(np.sqrt(width)), entities.astype("float16")


def list_edges(both: Array, count: int, popularity: Array) -> Tuple[Array, Array, Array]:
    """List the relations of each entity, those with most entities first, each with the most popular of them.

    both (Array): (edges, 3) entity, relation and other entity, each once, ascending.
    count (int): How many entities there are.
    popularity (Array): (entities,) how many links lead to each, which count as related entities too.
    RETURNS (Tuple[Array, Array, Array]): (kept, 2) relation and other entity, (entities + 1,) where those of
        each entity begin, and (entities, 2) how many entities and relations it has, from 0 to 1.
    """
    owners, kinds, others = both.T
    order = np.lexsort((-popularity[others], kinds, owners))
    owners, kinds, others = owners[order], kinds[order], others[order]
    begins = np.flatnonzero(np.append(True, (np.diff(owners) != 0) | (np.diff(kinds) != 0)))
    sizes = np.diff(np.append(begins, len(owners)))
    owners, kinds, others = owners[begins], kinds[begins], others[begins]
    order = np.lexsort((kinds, -sizes, owners))
    kept = order[_ranks(owners[order]) < _EDGES]
    firsts = np.append(0, np.cumsum(np.bincount(owners[kept], minlength=count)))
    pairs = np.unique(both[:, [0, 2]], axis=0)
    related = np.bincount(pairs[:, 0], minlength=count) + popularity
    numbers = np.stack([related, np.bincount(owners, minlength=count)], axis=1)
    degrees = np.minimum(np.log1p(numbers) / np.log1p(_MANY), 1.0).astype("float32")
    return np.stack([kinds[kept], others[kept]], axis=1).astype("int32"), firsts, degrees


def _sign(graph: Graph, titles: Sequence[str]) -> Array:
    """RETURNS (Array): Ascending keys of the words in the signatures of entities; see `signature_keys`."""
    both = graph.both
    pairs = np.unique(both[:, [0, 2]], axis=0)
    others, inverse = np.unique(pairs[:, 1], return_inverse=True)
    by_title = _spread(pairs[:, 0], inverse, [titles[position] for position in others.tolist()])
    kinds = np.unique(np.stack([both[:, 0], both[:, 1] % len(graph.labels)], axis=1), axis=0)
    by_kind = _spread(kinds[:, 0], kinds[:, 1], [" ".join(words) for words in graph.labels])
    return np.unique(np.concatenate([by_title, by_kind]))


def _spread(owners: Array, texts_of: Array, texts: Sequence[str]) -> Array:
    """RETURNS (Array): The signature keys of entities with the words of the texts that belong to them.

    owners, texts_of (Array): (pairs,) the entity, and the number of its text.
    """
    hashes, places, _ = hash_words(texts)
    sizes = np.bincount(places, minlength=len(texts))
    begins = np.cumsum(sizes) - sizes
    words = hashes[ranges(begins[texts_of], sizes[texts_of])]
    return np.unique(signature_keys(np.repeat(owners, sizes[texts_of]), words))
