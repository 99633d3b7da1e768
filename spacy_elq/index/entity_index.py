"""EntityIndex: the entity side of the linker, opened from a folder."""

import shutil
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, Callable, Dict, List, Mapping, Optional, Sequence, Tuple, Union

import numpy as np

from ..core.similarity import Prior, add_prior
from ..errors import ELQError, Errors
from ..types import Array, Entity
from .backend import FaissBackend, build_backend, default_factory, plan_backend
from .pieces import Pieces
from .records import ROLES, Records, map_array
from .store import bytes_to_copy, check_disk, commit, link_or_copy, read_meta, work_folder, write_meta

VECTORS, SEARCH = "vectors.npy", "search.faiss"
# the vectors of all their candidates are in memory at once
_QUERIES_AT_ONCE = 128
# with popularity, this many times the candidates are retrieved
_WIDER = 5


class EntityIndex:
    """Ids, records and vectors of the entities, and the search over them. None of it is read into memory: the
    tables and what finds candidates are mapped, records and the vectors of candidates are read one by one.
    """

    def __init__(self, path: Path, meta: Dict[str, Any]) -> None:
        """Use `EntityIndex.open`."""
        self.path = path
        self.meta = meta
        files = {role: path / entry["name"] for role, entry in meta["files"].items()}
        self.vectors: Array = map_array(files[VECTORS])
        self._records = Records(*(files[role] for role in ROLES))
        self._backend: Optional[FaissBackend] = None
        self._rows: Optional[Pieces] = None
        if "backend" in meta:
            self._backend = FaissBackend(self.vectors, files.get(SEARCH), meta["backend"])
        if SEARCH in files:
            # what searches the vectors themselves has them mapped and read anyway
            self._rows = Pieces(files[VECTORS])
            self._first_row = files[VECTORS].stat().st_size - self.vectors.nbytes

    @classmethod
    def open(cls, path: Union[str, Path]) -> "EntityIndex":
        """Open an index, or the vectors of a catalogue that has no back end yet.

        path (Union[str, Path]): The folder.
        RETURNS (EntityIndex): The index.
        RAISES (ELQError): If it is missing, damaged or of another format.
        """
        path = Path(path).absolute()
        return cls(path, read_meta(path))

    def __reduce__(self) -> Any:
        """Pickle the path, not the data: another process maps the same pages."""
        return (EntityIndex.open, (self.path,))

    def __len__(self) -> int:
        """RETURNS (int): The number of entities."""
        return len(self._records)

    @property
    def width(self) -> int:
        """RETURNS (int): The length of an entity vector."""
        return int(self.vectors.shape[1])

    @property
    def stamp(self) -> Dict[str, Any]:
        """RETURNS (Dict[str, Any]): What identifies the index: catalogue, encoder, size."""
        return {
            "catalogue": self.meta["catalogue"],
            "encoder": self.meta["encoder"]["fingerprint"],
            "count": len(self),
            "width": self.width,
        }

    def entity(self, position: int) -> Entity:
        """RETURNS (Entity): The entity at a position."""
        return self._records.get(position)

    def heads(self, positions: Array) -> List[Tuple[str, str, str]]:
        """RETURNS (List[Tuple[str, str, str]]): Id, title and label of entities, quicker than `entity`."""
        return self._records.heads(positions)

    def positions(self, ids: Sequence[str]) -> Array:
        """RETURNS (Array): (ids,) the position of each id, or -1 for an unknown one."""
        return self._records.positions(ids)

    def vectors_at(self, positions: Array) -> Array:
        """RETURNS (Array): (positions, width) the vectors at positions."""
        return self.vectors[positions]

    def are_names(self, texts: Sequence[str]) -> Array:
        """RETURNS (Array): (texts,) whether the text is a name of any entity, as written or as a title."""
        return self._records.are_names(texts)

    def match_names(self, texts: Sequence[str], *, alias_share: float = 1.0) -> Tuple[Array, Array, Array]:
        """RETURNS (Tuple[Array, Array, Array]): (matches,) the position of the text, ascending, the position
        of an entity with that name, and how well they match: 1 for its title, `alias_share` for another
        name, 0.5 for a similar spelling.
        """
        return self._records.match_names(texts, alias_share=alias_share)

    @property
    def log_popularity(self) -> Array:
        """RETURNS (Array): (entities,) the logarithm of 1 + popularity."""
        return self._records.log_popularity

    def search(
        self,
        queries: Array,
        k: int,
        *,
        names: Sequence[str] = (),
        prior: Prior = Prior(),  # noqa: B008  (frozen)
    ) -> Tuple[Array, Array]:
        """Find candidates: the back end finds them, the stored vectors score them.

        queries (Array): (queries, width).
        k (int): Candidates per query; fewer where the catalogue is smaller.
        names (Sequence[str]): The text of each query, where the prior weighs names.
        prior (Prior): Names and popularity. Entities whose name equals the text of a query become
            candidates even if their vectors are far away.
        RETURNS (Tuple[Array, Array]): (queries, k) positions and similarities, exact inner products and what
            the prior adds, best first; -1 and minus infinity where the back end found fewer.
        """
        if self._backend is None:
            raise ELQError(Errors.E033.format(path=self.path))
        if queries.shape[1] != self.width:
            raise ELQError(Errors.E035.format(found=queries.shape[1], expected=self.width, path=self.path))
        k = min(k, len(self))
        if not len(queries):
            return np.zeros((0, k), dtype="int64"), np.zeros((0, k), dtype="float32")
        queries = np.ascontiguousarray(queries, dtype="float32")
        chunks = [
            self._search_chunk(queries[begin : begin + _QUERIES_AT_ONCE], k, prior)
            for begin in range(0, len(queries), _QUERIES_AT_ONCE)
        ]
        positions, similarities = (np.concatenate(arrays) for arrays in zip(*chunks, strict=True))
        if prior.name_weight:
            matches = self.match_names(names, alias_share=prior.alias_share)
            return self._add_named(queries, matches, prior, (positions, similarities))
        return positions, similarities

    def _search_chunk(self, queries: Array, k: int, prior: Prior) -> Tuple[Array, Array]:
        assert self._backend is not None
        wider = min(_WIDER * k, len(self)) if prior.popularity_weight else k
        positions = self._backend.search(queries, min(max(wider, self._backend.rescore), len(self)))
        similarities = np.matmul(self._read_vectors(positions), queries[:, :, None])[:, :, 0]
        similarities[positions < 0] = -np.inf
        if prior.popularity_weight:
            _drop_beyond(similarities, wider)
            similarities = add_prior(similarities, prior, log_popularity=self.log_popularity[positions])
        return _best(positions, similarities, k)

    def _read_vectors(self, positions: Array) -> Array:
        """RETURNS (Array): (*positions.shape, width) the vectors at positions; any one for -1."""
        if self._rows is None:
            return self.vectors[positions]
        size = self.vectors.itemsize * self.width
        begins = self._first_row + size * np.maximum(positions, 0).ravel()
        data = self._rows.read_all(begins.tolist(), size)
        return np.frombuffer(data, dtype=self.vectors.dtype).reshape(*positions.shape, self.width)

    def _add_named(
        self,
        queries: Array,
        matches: Tuple[Array, Array, Array],
        prior: Prior,
        candidates: Tuple[Array, Array],
    ) -> Tuple[Array, Array]:
        """Put the entities with the names of the queries among the candidates, as many as there were."""
        owners, entities, degrees = matches
        positions, similarities = candidates
        if not len(owners):
            return candidates
        counts = np.bincount(owners, minlength=len(queries))
        columns = np.arange(len(owners)) - np.repeat(np.cumsum(counts) - counts, counts)
        named = np.full((len(queries), int(counts.max())), -1, dtype="int64")
        scores = np.full(named.shape, -np.inf, dtype="float32")
        named[owners, columns] = entities
        exact = np.einsum("qw,qw->q", queries[owners], self._read_vectors(entities))
        popularity = self.log_popularity[entities]
        scores[owners, columns] = add_prior(exact, prior, degrees=degrees, log_popularity=popularity)
        twice = (positions[:, :, None] == named[:, None, :]).any(axis=2)
        return _best(
            np.concatenate([np.where(twice, -1, positions), named], axis=1),
            np.concatenate([np.where(twice, -np.inf, similarities), scores], axis=1),
            positions.shape[1],
        )


def _drop_beyond(similarities: Array, k: int) -> None:
    """Keep the `k` best of each query, in place; the others become minus infinity."""
    if similarities.shape[1] > k:
        least = -np.partition(-similarities, k - 1, axis=1)[:, k - 1 : k]
        similarities[similarities < least] = -np.inf


def _best(positions: Array, similarities: Array, k: int) -> Tuple[Array, Array]:
    """RETURNS (Tuple[Array, Array]): The `k` best candidates of each query, best first."""
    order = np.lexsort((positions, -similarities), axis=1)[:, :k]
    queries = np.arange(len(order))[:, None]
    return positions[queries, order], similarities[queries, order]


def build_index(
    vectors: Union[str, Path],
    output: Union[str, Path],
    *,
    factory: Optional[str] = None,
    widths: Optional[Mapping[str, int]] = None,
    progress: bool = False,
) -> EntityIndex:
    """Make encoded vectors searchable.

    vectors (Union[str, Path]): What `encode_catalogue` wrote, or another index. If the index has
        this factory string, or none is given, its back end and settings are kept.
    output (Union[str, Path]): Folder of the index; an existing index is replaced at the end.
    factory (Optional[str]): FAISS factory string, or None for that of the other index, or the default of
        this size.
    widths (Optional[Mapping[str, int]]): How wide a search is, see `plan_backend`; None for the defaults.
    RETURNS (EntityIndex): The new index.
    """
    source, output = EntityIndex.open(vectors), Path(output)
    known = source.meta.get("backend", {})
    factory = factory or known.get("factory") or default_factory(*source.vectors.shape)
    settings, bytes_ = plan_backend(source.vectors.shape, factory=factory, widths=widths)
    files = {role: source.path / entry["name"] for role, entry in source.meta["files"].items()}
    if known.get("factory") == factory:
        settings, bytes_ = {**settings, **known, **(widths or {})}, 0
    else:
        files.pop(SEARCH, None)
    check_disk(output, bytes_ + bytes_to_copy(files.values(), output))
    work = work_folder(output)
    try:
        if SEARCH not in files:
            build_backend(source.vectors, work / SEARCH, settings=settings, progress=progress)
        for role, path in files.items():
            link_or_copy(path, work / role)
        meta = {key: source.meta[key] for key in ("catalogue", "encoder")}
        roles = [role for role in (VECTORS, *ROLES, SEARCH) if (work / role).exists()]
        commit(output, work, {**meta, "backend": settings}, roles)
    except BaseException:
        shutil.rmtree(work, ignore_errors=True)
        with suppress(OSError):
            output.rmdir()  # where nothing else is in it
        raise
    return EntityIndex.open(output)


def copy_index(index: EntityIndex, folder: Path) -> None:
    """Put the files of an index into another folder, as hard links where that is possible."""
    folder.mkdir(parents=True, exist_ok=True)
    for entry in index.meta["files"].values():
        target = folder / entry["name"]
        if not target.exists() or target.stat().st_size != entry["bytes"]:
            link_or_copy(index.path / entry["name"], target)
    write_meta(folder, index.meta)


def build_index_loader(path: Path) -> Callable[[], EntityIndex]:
    """Open an index when training starts: for `[initialize.components.NAME.index_loader]`.

    path (Path): Folder of the index, made by `spacy elq index`.
    RETURNS (Callable[[], EntityIndex]): Opens the index.
    """
    return partial(EntityIndex.open, path)
