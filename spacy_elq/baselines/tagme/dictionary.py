"""The dictionary of anchors: which words are links and to what, and which entities are linked together."""

from array import array
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any, Dict, Hashable, Iterable, Iterator, List, Sequence, Tuple, Union

import numpy as np
from tqdm import tqdm

from ...catalogue import read_catalogue
from ...core.spans import ranges
from ...corpora import Question, guess_format, read_anchors, read_questions
from ...errors import ELQError, Errors
from ...index.build import making
from ...index.database import DATABASE, Damaged, Database
from ...index.files import WORK, find_files, publish
from ...names import entity_names, normalize_name
from ...types import Array, Entity
from .spotting import enumerate_runs, hash_words, name_key

KIND = "dictionary"
ANCHORS, COUNTS, BEGINS, SENSES, WEIGHTS = (
    f"{stem}.npy" for stem in ("anchors", "counts", "begins", "senses", "weights")
)
INLINKS = "inlinks.npy"
# longer names are taken to be links wherever they stand
_COUNTED_WORDS = 10
_SENTENCES_AT_ONCE = 2000


@dataclass
class DictionaryReport:
    """What went into a dictionary.

    anchors, unknown (int): Lines of the anchors file, and those whose entity is not in the catalogue.
    examples (List[str]): A few of these entities, to look at.
    sentences, pages, links (int): What the sentences have; links to entities of the catalogue only.
    foreign (int): Links of the sentences to other entities.
    """

    anchors: int = 0
    unknown: int = 0
    examples: List[str] = field(default_factory=list)
    sentences: int = 0
    pages: int = 0
    links: int = 0
    foreign: int = 0


class AnchorDictionary:
    """Names with their counts, the entities they stand for, and the in-links of entities. All of it
    memory-mapped.
    """

    def __init__(self, path: Path, database: Database) -> None:
        """Use `AnchorDictionary.open`."""
        self.path = path
        self._database = database
        with database.reading():
            self.meta: Dict[str, Any] = {key: database.get_meta(key) for key in ("catalogue", "pages")}
            files = find_files(database)
        arrays = (ANCHORS, COUNTS, BEGINS, SENSES, WEIGHTS, INLINKS)
        mapped = [np.asarray(np.load(files[role], mmap_mode="r")) for role in arrays]
        self._keys, self._counts, self._begins, self._senses, self._weights, self._inlinks = mapped

    @classmethod
    def open(cls, path: Union[str, Path]) -> "AnchorDictionary":
        """Open a dictionary.

        path (Union[str, Path]): The folder.
        RETURNS (AnchorDictionary): The dictionary.
        RAISES (ELQError): If it is missing, damaged or of another format.
        """
        path = Path(path).absolute()
        if not (path / DATABASE).is_file():
            is_old = (path / "meta.json").is_file()
            raise ELQError((Errors.E073 if is_old else Errors.E071).format(path=path))
        try:
            database = Database.open(path / DATABASE)
            if database.get_meta("kind") != KIND:
                raise ELQError(Errors.E071.format(path=path))
            return cls(path, database)
        except Damaged as err:
            raise ELQError(Errors.E072.format(path=path, file=err.file, problem=err.problem)) from None
        except FileNotFoundError as err:
            name = Path(str(err.filename)).name
            raise ELQError(Errors.E072.format(path=path, file=name, problem="is missing")) from None

    def __reduce__(self) -> Any:
        """Pickle the path, not the data: another process maps the same pages."""
        return (AnchorDictionary.open, (self.path,))

    def __len__(self) -> int:
        """RETURNS (int): The number of entities."""
        return len(self._database)

    @property
    def stamp(self) -> Dict[str, Any]:
        """RETURNS (Dict[str, Any]): What tells this dictionary from others: catalogue, entities, names."""
        return {"catalogue": self.meta["catalogue"], "count": len(self), "anchors": len(self._keys)}

    @property
    def keys(self) -> Array:
        """RETURNS (Array): (anchors,) what each name is looked up by, ascending; see `name_key`."""
        return self._keys

    def entity(self, position: int) -> Entity:
        """RETURNS (Entity): The entity at a position."""
        return self._database.get(position)

    def positions(self, ids: Sequence[str]) -> Array:
        """RETURNS (Array): (ids,) the position of each id, or -1 for an unknown one."""
        return self._database.positions(ids)

    def ids(self) -> List[str]:
        """RETURNS (List[str]): The ids of all entities, by position."""
        return self._database.ids()[0]

    def find(self, keys: Array) -> Array:
        """RETURNS (Array): (keys,) the anchor of each key (see `name_key`), or -1."""
        places = np.minimum(np.searchsorted(self._keys, keys), len(self._keys) - 1)
        return np.where(self._keys[places] == keys, places, -1)

    def link_probability(self, anchors: Array) -> Array:
        """RETURNS (Array): (anchors,) how often each is a link, of all times that it occurs."""
        return self._counts[0, anchors] / self._counts[1, anchors]

    def senses(
        self, anchors: Array, *, min_commonness: float = 0.0, candidates: int = 50
    ) -> Tuple[Array, Array, Array]:
        """Find the candidates of anchors.

        min_commonness (float): Minimum commonness of a candidate; the most common one is always kept.
        candidates (int): Maximum number of candidates, most common first.
        RETURNS (Tuple[Array, Array, Array]): (anchors,) how many candidates each has, and, for all of them
            in this order, the most common of each anchor first, the position of the entity and its
            commonness: how many of the anchor's links lead to it.
        """
        begins = self._begins[anchors]
        sizes = np.minimum(self._begins[anchors + 1] - begins, candidates)
        places = ranges(begins, sizes)
        owners = np.repeat(np.arange(len(anchors)), sizes)
        commonness = self._weights[places] / self._counts[0, anchors][owners]
        kept = (commonness >= min_commonness) | (places == begins[owners])
        counts = np.bincount(owners[kept], minlength=len(anchors))
        return counts, self._senses[places[kept]].astype("int64"), commonness[kept]

    def relatedness(self, first: Array, second: Array) -> Array:
        """RETURNS (Array): (pairs,) how related two entities are, by the pages that link to them; see
        `milne_witten`.
        """
        pages = max(self.meta["pages"], 1)
        return milne_witten(*count_pages(self._inlinks, first, second, pages=pages), pages=pages)


def count_pages(inlinks: Array, first: Array, second: Array, *, pages: int) -> Tuple[Array, Array, Array]:
    """Count the pages that link to two entities.

    inlinks (Array): Position of an entity times the number of pages, plus the number of a page that links to
        it; each once, ascending.
    first, second (Array): (pairs,) positions of entities.
    RETURNS (Tuple[Array, Array, Array]): (pairs,) how many pages link to the first, to the second, to both.
    """
    entities = np.stack([first, second])
    begins = np.searchsorted(inlinks, entities * pages)
    sizes = np.searchsorted(inlinks, (entities + 1) * pages) - begins
    # the pages of the one that has fewer, looked up among those of the other
    fewer, pairs = sizes.argmin(axis=0), np.arange(len(first))
    counts = sizes[fewer, pairs]
    owners = np.repeat(pairs, counts)
    sources = inlinks[ranges(begins[fewer, pairs], counts)] % pages
    wanted = entities[1 - fewer, pairs][owners] * pages + sources
    places = np.minimum(np.searchsorted(inlinks, wanted), len(inlinks) - 1)
    both = np.bincount(owners, inlinks[places] == wanted, minlength=len(first))
    return sizes[0], sizes[1], both


def milne_witten(first: Array, second: Array, both: Array, *, pages: int) -> Array:
    """Relatedness as Milne and Witten have it: 1 - (log max(A, B) - log A∩B) / (log W - log min(A, B)).

    first, second (Array): (pairs,) on how many pages each of two entities is linked, A and B.
    both (Array): (pairs,) on how many both are.
    pages (int): How many pages there are, W.
    RETURNS (Array): (pairs,) at least 0, at most 1; 0 where no page links to both.
    """
    linked = np.maximum(both, 1)
    most, least = np.maximum(np.maximum(first, second), 1), np.maximum(np.minimum(first, second), 1)
    distance = np.log(most / linked)
    # where every page links to both, the distance is 0, and so would be the divisor
    return np.where(both > 0, np.maximum(1 - distance / np.maximum(np.log(pages / least), 1e-9), 0.0), 0.0)


def build_dictionary(
    anchors: Path,
    catalogue: Path,
    output: Path,
    *,
    sentences: Sequence[Path] = (),
    progress: bool = False,
) -> Tuple[AnchorDictionary, DictionaryReport]:
    """Make a dictionary.

    anchors (Path): Texts of hyperlinks, see `read_anchors`.
    catalogue (Path): The entities. Each of their names counts as one link.
    output (Path): Folder of the dictionary; one that is there is replaced at the end.
    sentences (Sequence[Path]): Text with links (.jsonl): how often a name is no link, and which entities
        are linked from one page.
    RETURNS (Tuple[AnchorDictionary, DictionaryReport]): The dictionary, and what went into it.
    """
    report = DictionaryReport()
    with making(Path(output).absolute()) as path:
        links = _Links()
        work = Database.create(path)
        with work.filling():
            digest = work.fill(links.add_names(read_catalogue(catalogue)))
        links.add_anchors(tqdm(read_anchors(anchors), desc="Anchors", disable=not progress), report)
        if report.anchors == report.unknown or links.is_empty():
            ids = ", ".join(report.examples)
            problem = f"their entities are not in {catalogue}, such as {ids}" if ids else "there is none"
            raise ELQError(Errors.E075.format(path=anchors, problem=problem))
        keys, begins, senses, weights = links.gather(work.popularity())
        questions = (x for path in sentences for x in read_questions(path, format=guess_format(path)))
        bar = tqdm(questions, desc="Sentences", unit=" sentences", disable=not progress)
        plain, inlinks = _read_sentences(bar, links.positions, keys, report)
        counts = np.add.reduceat(weights, begins[:-1])
        arrays = {
            ANCHORS: keys,
            COUNTS: np.stack([counts, counts + plain]),
            BEGINS: begins,
            SENSES: senses,
            WEIGHTS: weights,
            INLINKS: inlinks,
        }
        files = {role: path.with_name(f"{WORK}-{role}") for role in arrays}
        for role, values in arrays.items():
            np.save(files[role], values)
        work.set_meta(kind=KIND, catalogue=digest, pages=report.pages)
        publish(path.parent, work, files)
    return AnchorDictionary.open(output), report


class _Links:
    """Names and the entities that they were seen to stand for."""

    def __init__(self) -> None:
        self.positions: Dict[str, int] = {}
        self._keys, self._senses, self._weights = array("Q"), array("q"), array("d")

    def add_names(self, entities: Iterable[Entity]) -> Iterator[Entity]:
        """Note the names of entities that pass by.

        YIELDS (Entity): The entities.
        """
        for entity in entities:
            position = self.positions[entity.id] = len(self.positions)
            for name in sorted(entity_names(entity)):
                self._add(name, position, 1.0)
            yield entity

    def add_anchors(self, anchors: Iterable[Tuple[str, str, float]], report: DictionaryReport) -> None:
        """Add anchors whose entities are known; count the others."""
        for text, id_, count in anchors:
            report.anchors += 1
            position = self.positions.get(id_)
            if position is not None:
                self._add(normalize_name(text), position, count)
                continue
            report.unknown += 1
            if len(report.examples) < 3 and id_ not in report.examples:
                report.examples.append(id_)

    def _add(self, name: str, position: int, count: float) -> None:
        # a letter or a number is no name, as in TAGME
        if len(name) > 1 and not name.replace(" ", "").isdigit():
            self._keys.append(name_key(name))
            self._senses.append(position)
            self._weights.append(count)

    def is_empty(self) -> bool:
        """RETURNS (bool): Whether nothing was noted that can be looked up."""
        return not self._keys

    def gather(self, popularity: Array) -> Tuple[Array, Array, Array, Array]:
        """Add up what was noted.

        popularity (Array): (entities,) decides between entities that a name stands for equally often.
        RETURNS (Tuple[Array, Array, Array, Array]): (anchors,) keys, ascending; (anchors + 1,) where the
            senses of each begin; (senses,) positions of entities, the most common of an anchor first, and
            how many links lead there.
        """
        keys, senses = np.asarray(self._keys), np.asarray(self._senses)
        order = np.lexsort((senses, keys))
        keys, senses = keys[order], senses[order]
        new = np.ones(len(keys), dtype=bool)
        new[1:] = (np.diff(keys) != 0) | (np.diff(senses) != 0)
        weights = np.add.reduceat(np.asarray(self._weights)[order], np.flatnonzero(new))
        keys, senses = keys[new], senses[new]
        order = np.lexsort((senses, -popularity[senses], -weights, keys))
        keys, begins = np.unique(keys, return_index=True)
        return keys, np.append(begins, len(order)), senses[order], weights[order]


def _read_sentences(
    sentences: Iterable[Question], positions: Dict[str, int], keys: Array, report: DictionaryReport
) -> Tuple[Array, Array]:
    """Count how often names are not links, and collect the in-links of entities.

    positions (Dict[str, int]): Of the entities.
    keys (Array): (anchors,) of the names, ascending.
    RETURNS (Tuple[Array, Array]): (anchors,) how often each stands there without a link, and the in-links:
        position of the entity times the number of pages, plus the page, ascending.
    """
    plain = np.zeros(len(keys))
    pages: Dict[Hashable, int] = {}
    entities, sources = array("q"), array("q")
    iterator = iter(sentences)
    while batch := list(islice(iterator, _SENTENCES_AT_ONCE)):
        hashes, texts, _ = hash_words([sentence.text for sentence in batch])
        plain += _count(keys, enumerate_runs(hashes, texts, max_length=_COUNTED_WORDS)[1])
        linked = [name_key(x.text[span.start : span.end]) for x in batch for span in x.spans]
        plain -= _count(keys, np.asarray(linked, dtype="uint64"))
        for sentence in batch:
            # a sentence that belongs to no page is one
            page = pages.setdefault(sentence.page or report.sentences, len(pages))
            report.sentences += 1
            known = [positions[span.id] for span in sentence.spans if span.id in positions]
            entities.extend(known)
            sources.extend([page] * len(known))
            report.links += len(known)
            report.foreign += len(sentence.spans) - len(known)
    report.pages = len(pages)
    inlinks = np.unique(np.asarray(entities) * len(pages) + np.asarray(sources))
    return np.maximum(plain, 0.0), inlinks


def _count(keys: Array, found: Array) -> Array:
    """RETURNS (Array): (keys,) how often each key, ascending, is among those found."""
    places = np.minimum(np.searchsorted(keys, found), len(keys) - 1)
    return np.bincount(places[keys[places] == found], minlength=len(keys))
