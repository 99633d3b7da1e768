"""The FAISS back end: which entities are close to a query. The one module that imports faiss."""

import math
import re
import warnings
from pathlib import Path
from typing import Any, Dict, Iterator, List, Mapping, Optional, Sequence, Tuple

import faiss
import numpy as np
from tqdm import tqdm

from ..errors import ELQError, Errors, Warnings
from ..types import Array

EXACT = "Flat"
# Up to here an exact search of one query takes about a millisecond.
EXACT_UP_TO = 10_000
# Of larger catalogues all entities are looked at by codes of a few bytes, the best of them by 4 bits a
# number. From here on the codes are smaller and stand in lists: a power of two, about so many times the root
# of the number of entities. A query looks into so many times the root of the number of lists.
LARGE_FROM, LISTS_PER_ROOT, PROBES_PER_ROOT = 1_000_000, 6, 10
# how many twelfths of the directions of vectors the first and the second code keep
CODED, CODED_IF_LARGE = (5, 7), (4, 6)
HNSW_SETTINGS = {"efConstruction": 200, "efSearch": 256}
# a small graph over compressed vectors has to be searched more widely than the paper's
COMPRESSED_EF_SEARCH = 400
# candidates that are scored exactly, for back ends that compress the vectors
RESCORE = 100
# the same where a second code refines the first, and how many times as many the second code rescores
REFINED, REFINED_IF_LARGE = (200, 5), (100, 20)
# one in this many lists of an IVF index is searched where nothing refines what is found
IVF_SHARE = 16
_VECTORS_PER_LIST = 39  # fewer are too few to learn the lists from, says FAISS
# Of the entities that count, at most this share of all is scanned one by one, if their vectors can be kept.
# For more, the nearest of all are searched, so widely that several times the candidates should count, and
# most of those that are scored exactly; and at most so many times wider
SCAN_SHARE, SURPLUS, RESCORED, WIDEST = 0.15, 4, 0.8, 16
# the vectors of so many rows are read anew for every scan; those of more are kept, of a few sets of entities
_UNKEPT, _KEPT_SETS, _KEPT_BYTES = 2000, 4, 64_000_000
# a scan for fewer queries than these, and not for many vectors, is quicker one by one than as one product
_BLAS_FROM, _FEW = 16, 500
_CHUNK = 8192
_TRAINING_VECTORS = 100_000


class Unbuildable(ELQError):
    """FAISS does not build this kind of index, or not over so few vectors."""


def default_factory(count: int, width: int) -> str:
    """RETURNS (str): The factory string for a catalogue of this size when the user names none."""
    if count <= EXACT_UP_TO:
        return EXACT
    is_large = count >= LARGE_FROM
    first, second = (_main_directions(width, part) for part in (CODED_IF_LARGE if is_large else CODED))
    code = f"PQ{first // 2}x4fs"
    if is_large:
        lists = 2 ** round(math.log2(LISTS_PER_ROOT * math.sqrt(count)))
        code = f"IVF{lists},{code}r"  # "r": what tells an entity from the centre of its list
    return f"PCAR{first},{code},Refine(PCA{second},SQ4)"


def _main_directions(width: int, twelfths: int) -> int:
    """RETURNS (int): About this many twelfths of the dimensions of the vectors, an even number."""
    return min(16 * -(-width * twelfths // 192), width - width % 2)


def plan_backend(
    shape: Tuple[int, ...], *, factory: str, widths: Optional[Mapping[str, int]] = None
) -> Tuple[Dict[str, Any], int]:
    """Plan a back end before anything is built.

    shape (Tuple[int, ...]): (entities, width) of the vectors.
    factory (str): Any factory string of FAISS.
    widths (Optional[Mapping[str, int]]): How wide a search is, instead of the defaults: "efSearch" of a
        graph, "nprobe" of lists, "rescore" candidates that are scored exactly.
    RETURNS (Tuple[Dict[str, Any], int]): Its settings, and about how many bytes its file will have.
    """
    widths = widths or {}
    settings: Dict[str, Any] = {}
    bytes_ = 0
    if factory != EXACT:
        index = _create(shape, factory)
        settings, bytes_ = _default_settings(index, shape[0]), shape[0] * _bytes_per_entity(index)
    for name, value in widths.items():
        if name not in settings or value < 1:
            known = ", ".join(key for key in settings if key != "efConstruction") or "none"
            raise ELQError(Errors.E081.format(setting=name, value=value, factory=factory, known=known))
    return {"factory": factory, **settings, **widths}, bytes_


def build_backend(vectors: Array, path: Path, *, settings: Mapping[str, Any], progress: bool) -> None:
    """Build a FAISS index over all vectors and write it. `Flat` needs no file: it reads the vectors.

    vectors (Array): (entities, width) float32 or float16.
    settings (Mapping[str, Any]): What `plan_backend` returned.
    """
    factory = settings["factory"]
    if factory == EXACT:
        return
    index = _create(vectors.shape, factory)
    try:
        _apply_settings(index, settings)
        _assign_by(faiss.METRIC_L2, index)
        _train(index, vectors)
        if any(hasattr(part, "hnsw") or hasattr(part, "nsg") for part in _parts(index)):
            _keep_origin(index)  # the neighbours in a graph are those by inner product
        with tqdm(
            total=len(vectors), desc=f"Index ({factory})", unit=" entities", disable=not progress
        ) as bar:
            for begin in range(0, len(vectors), _CHUNK):
                chunk = np.ascontiguousarray(vectors[begin : begin + _CHUNK], dtype="float32")
                index.add(chunk)
                bar.update(len(chunk))
    except RuntimeError as err:
        raise _refused(factory, vectors.shape, err) from None
    _assign_by(faiss.METRIC_INNER_PRODUCT, index)
    _keep_origin(index)
    try:
        faiss.write_index(index, str(path))
    except RuntimeError as err:
        raise ELQError(Errors.E082.format(path=path, problem=_first_line(err))) from None


def read_hnsw_settings(path: Path, shape: Tuple[int, ...]) -> Dict[str, Any]:
    """Check that a FAISS file is whole, and an HNSW index of vectors of this shape by inner product.

    shape (Tuple[int, ...]): (entities, width).
    RETURNS (Dict[str, Any]): The settings of the back end.
    """
    if not path.is_file():
        raise ELQError(Errors.E022.format(path=path, hint="Expected a FAISS index."))
    try:
        opened = faiss.read_index(str(path), faiss.IO_FLAG_MMAP_IFC)
    except RuntimeError as err:
        problem = f"no FAISS index, or only a part of one ({_first_line(err)}); fetch it again"
        raise _misfit(path, problem) from None
    index = faiss.downcast_index(opened)
    if not isinstance(index, faiss.IndexHNSWFlat):
        raise _misfit(path, f"a FAISS index of the type {type(index).__name__}, not IndexHNSWFlat")
    if index.metric_type != faiss.METRIC_INNER_PRODUCT:
        problem = f"an index by L2 distance, of width {index.d}, as BLINK has; ELQ searches by inner product"
        raise _misfit(path, problem)
    if (index.ntotal, index.d) != shape:
        problem = f"an index of {index.ntotal} vectors of width {index.d} for {shape[0]} of width {shape[1]}"
        raise _misfit(path, problem)
    hnsw: Any = index.hnsw
    return {"factory": f"HNSW{hnsw.nb_neighbors(1)}"} | {name: getattr(hnsw, name) for name in HNSW_SETTINGS}


class Among:
    """The rows of the entities that count.

    rows (Array): Ascending.
    """

    def __init__(self, rows: Array) -> None:
        """Rows (Array): Ascending."""
        self.rows = rows
        self._is_inside: Optional[Array] = None

    def __len__(self) -> int:
        """RETURNS (int): How many there are."""
        return len(self.rows)

    def has(self, rows: Array, count: int) -> Array:
        """RETURNS (Array): Whether rows, or -1, are among them.

        count (int): The number of all rows.
        """
        if self._is_inside is None:
            self._is_inside = np.zeros(count + 1, dtype=bool)  # the last one is for -1
            self._is_inside[self.rows] = True
        return self._is_inside[rows]


class FaissBackend:
    """Finds the entities with the largest inner product. It does not score them: the caller does."""

    def __init__(self, vectors: Array, path: Optional[Path], settings: Mapping[str, Any]) -> None:
        """Open a FAISS file, or use the vectors themselves if there is none.

        vectors (Array): (entities, width) float32 or float16, memory-mapped. FAISS reads float32: of others,
            an exact search needs a copy.
        path (Optional[Path]): What `build_backend` wrote.
        settings (Mapping[str, Any]): What `plan_backend` returned.
        """
        self._vectors = vectors if path is not None else vectors.astype("float32", copy=False)
        self._index = None
        self._kept: List[Tuple[Among, Array]] = []
        self.rescore = int(settings.get("rescore", 0))
        if path is not None:
            self._index = faiss.read_index(str(path), faiss.IO_FLAG_MMAP_IFC)
            _apply_settings(self._index, settings)

    def search(self, queries: Array, k: int, *, wider: int = 1) -> Array:
        """Find the `k` best entities of each query.

        queries (Array): (queries, width) float32.
        wider (int): Of a back end with lists, how many times as many of them are looked into.
        RETURNS (Array): (queries, k) rows, -1 where fewer were found.
        """
        queries = np.ascontiguousarray(queries, dtype="float32")
        if self._index is not None:
            params = _look_into(self._index, wider) if wider > 1 else None
            return self._index.search(queries, k, params=params)[1]
        return faiss.knn(queries, self._vectors, k, metric=faiss.METRIC_INNER_PRODUCT)[1]

    def search_among(self, queries: Array, k: int, among: Among) -> Array:
        """Find the `k` best of the entities that count, for each query.

        queries (Array): (queries, width) float32.
        RETURNS (Array): (queries, found) rows, the best k and others; -1 where fewer were found.
        """
        count, k = len(self._vectors), min(k, len(among))
        are_few = len(among) <= SCAN_SHARE * count and len(among) * self._vectors.shape[1] * 4 <= _KEPT_BYTES
        if self._index is None or are_few:
            return self._scan(queries, k, among)
        wanted = max(SURPLUS * k, int(RESCORED * self.rescore))
        first = asked = min(max(self.rescore, wanted * count // len(among)), count)
        widest = min(asked * WIDEST, count)
        lacking = np.ones(len(queries), dtype=bool)
        found = np.full((len(queries), 1), -1, dtype="int64")
        while lacking.any() and asked <= widest:
            rows = self.search(queries[lacking], asked, wider=asked // first)
            rows[~among.has(rows, count)] = -1
            found = _fill(found, lacking, rows)
            # what is nearer than the last one found is all known, but for errors of the codes
            lacking = (found >= 0).sum(axis=1) < min(2 * k, len(among))
            asked *= 4
        if lacking.any():
            found = _fill(found, lacking, self._scan(queries[lacking], k, among))
        return found

    def _scan(self, queries: Array, k: int, among: Among) -> Array:
        """RETURNS (Array): (queries, k) rows, found by a look at each that counts."""
        queries = np.ascontiguousarray(queries, dtype="float32")
        found = faiss.knn(queries, self._gather(among), k, metric=faiss.METRIC_INNER_PRODUCT)[1]
        return among.rows[found]

    def _gather(self, among: Among) -> Array:
        """RETURNS (Array): (rows, width) the vectors of the entities that count; those of the sets that were
        used last are kept.
        """
        vectors = next((own for known, own in self._kept if known is among), None)
        if vectors is None:
            vectors = self._vectors[among.rows].astype("float32", copy=False)
        if len(among) > _UNKEPT and vectors.nbytes <= _KEPT_BYTES:
            others = [pair for pair in self._kept if pair[0] is not among]
            self._kept = [(among, vectors), *others[: _KEPT_SETS - 1]]
        return vectors


def scan(queries: Array, vectors: Array, k: int) -> Tuple[Array, Array]:
    """Find the `k` nearest of a few vectors by a look at each.

    queries, vectors (Array): (queries, width) and (vectors, width) float32.
    RETURNS (Tuple[Array, Array]): (queries, k) similarities and rows.
    """
    if len(queries) < _BLAS_FROM and k <= _FEW:
        return faiss.knn(queries, vectors, k, metric=faiss.METRIC_INNER_PRODUCT)
    similarities = queries @ vectors.T
    if k == len(vectors):
        return similarities, np.broadcast_to(np.arange(k), similarities.shape)
    rows = np.argpartition(-similarities, k - 1, axis=1)[:, :k]
    return np.take_along_axis(similarities, rows, axis=1), rows


def _fill(found: Array, places: Array, rows: Array) -> Array:
    """RETURNS (Array): What was found, with other rows at some places, as wide as needed."""
    width = max(found.shape[1], rows.shape[1])
    filled = np.full((len(found), width), -1, dtype="int64")
    filled[:, : found.shape[1]] = found
    filled[places] = -1
    filled[places, : rows.shape[1]] = rows
    return filled


def _create(shape: Tuple[int, ...], factory: str) -> Any:
    """RETURNS (Any): A FAISS index of this kind, empty."""
    try:
        return faiss.index_factory(shape[1], factory, faiss.METRIC_INNER_PRODUCT)
    except RuntimeError as err:
        raise _refused(factory, shape, err) from None


def _train(index: Any, vectors: Array) -> None:
    """Train an index on a sample of the vectors, the same sample every time."""
    count = len(vectors)
    wanted = max([_VECTORS_PER_LIST * part.nlist for part in _parts(index) if _is_ivf(part)], default=0)
    if wanted > count:
        lists = wanted // _VECTORS_PER_LIST
        fitting = max(1, count // _VECTORS_PER_LIST)
        warnings.warn(
            Warnings.W003.format(lists=lists, wanted=wanted, count=count, fitting=fitting), stacklevel=2
        )
    if not index.is_trained:
        chosen = np.random.default_rng(0).permutation(count)[: max(_TRAINING_VECTORS, wanted)]
        index.train(np.ascontiguousarray(vectors[np.sort(chosen)], dtype="float32"))


def _assign_by(metric: int, index: Any) -> None:
    """Let an index choose lists by another metric. Entities are in the list whose centre is nearest, so that
    the centre says most about them; a query looks into those whose centres have the largest inner product.
    """
    for part in filter(_is_ivf, _parts(index)):
        quantizer: Any = faiss.downcast_index(part.quantizer)
        if isinstance(quantizer, faiss.IndexFlat):
            quantizer.metric_type = metric
            part.cp.spherical = False


def _keep_origin(index: Any) -> None:
    """Take away what PCA subtracts, once all entities are in the index. From queries as well, it would change
    the order of inner products; from the entities alone it does not, and codes of vectors around the origin
    are more exact.
    """
    for part in _parts(index):
        if isinstance(part, faiss.IndexPreTransform):
            chain: Any = part.chain
            for i in range(chain.size()):
                transform: Any = faiss.downcast_VectorTransform(chain.at(i))
                transform.have_bias = False


def _inside(index: Any, names: Sequence[str]) -> Iterator[Any]:
    """YIELDS (Any): An index, and the indexes inside it under these names."""
    index = faiss.downcast_index(index)
    yield index
    for name in names:
        inner = getattr(index, name, None)
        if isinstance(inner, faiss.Index):
            yield from _inside(inner, names)


def _parts(index: Any) -> List[Any]:
    """RETURNS (List[Any]): An index and those that it searches, or finds its lists, with."""
    return list(_inside(index, ("index", "base_index", "refine_index", "quantizer")))


def _stored(index: Any) -> List[Any]:
    """RETURNS (List[Any]): An index and those inside it, down to those that hold the codes of the vectors."""
    return list(_inside(index, ("index", "base_index", "refine_index", "storage")))


def _is_ivf(index: Any) -> bool:
    return isinstance(index, faiss.IndexIVF)


def _look_into(index: Any, wider: int) -> Any:
    """RETURNS (Any): Parameters of a search in so many times as many lists, or None if there are no lists."""
    index = faiss.downcast_index(index)
    made: Any = faiss  # its classes take arguments by name, of which its types know nothing
    if _is_ivf(index):
        return made.SearchParametersIVF(nprobe=min(wider * index.nprobe, index.nlist))
    if isinstance(index, faiss.IndexPreTransform):
        inner = _look_into(index.index, wider)
        return inner and made.SearchParametersPreTransform(index_params=inner)
    if isinstance(index, faiss.IndexRefine):
        inner = _look_into(index.base_index, wider)
        return inner and made.IndexRefineSearchParameters(k_factor=index.k_factor, base_index_params=inner)
    return None


def _default_settings(index: Any, count: int) -> Dict[str, int]:
    """RETURNS (Dict[str, int]): How wide searches are by default, for this number of entities and the parts
    of the index.
    """
    settings: Dict[str, int] = {}
    rescore = RESCORE
    is_refined = isinstance(index, faiss.IndexRefine)
    is_lossy = _stored(index)[-1].sa_code_size() < 4 * index.d
    for part in _parts(index):
        if hasattr(part, "hnsw"):
            settings.update(HNSW_SETTINGS)
            settings["efSearch"] = COMPRESSED_EF_SEARCH if is_lossy else HNSW_SETTINGS["efSearch"]
        if _is_ivf(part):
            wide = min(part.nlist, round(PROBES_PER_ROOT * math.sqrt(part.nlist)))
            settings.setdefault("nprobe", wide if is_refined else max(1, part.nlist // IVF_SHARE))
        if isinstance(part, faiss.IndexRefine):
            rescore, settings["k_factor"] = REFINED if count < LARGE_FROM else REFINED_IF_LARGE
    return {**settings, "rescore": rescore} if is_lossy else settings


def _apply_settings(index: Any, settings: Mapping[str, Any]) -> None:
    """Set how wide an index searches, in every part that has such a setting."""
    for part in _parts(index):
        if _is_ivf(part) and "nprobe" in settings:
            part.nprobe = settings["nprobe"]
        if isinstance(part, faiss.IndexRefine) and "k_factor" in settings:
            part.k_factor = settings["k_factor"]
        for name in HNSW_SETTINGS if hasattr(part, "hnsw") else ():
            if name in settings:
                setattr(part.hnsw, name, settings[name])


def _bytes_per_entity(index: Any) -> int:
    """RETURNS (int): How many bytes of the file an entity takes: its code, links or id."""
    bytes_ = 0
    for part in _stored(index):
        if hasattr(part, "hnsw"):
            bytes_ += 4 * part.hnsw.cum_nb_neighbors(1) + 16
        if len(_stored(part)) == 1:
            bytes_ += int(part.sa_code_size()) + 8 * _is_ivf(part)
    return bytes_


def _refused(factory: str, shape: Tuple[int, ...], err: RuntimeError) -> Unbuildable:
    problem = _first_line(err)
    return Unbuildable(Errors.E034.format(factory=factory, count=shape[0], width=shape[1], problem=problem))


def _misfit(path: Path, problem: str) -> ELQError:
    advice = "Name the index that belongs to the vectors, or leave out --index to build one"
    return ELQError(Errors.E050.format(path=path, problem=f"{problem}. {advice}"))


def _first_line(err: RuntimeError) -> str:
    """RETURNS (str): What FAISS says, without the place in its source."""
    return re.sub(r"^Error in .* at \S+:\d+: ", "", str(err).splitlines()[0])
