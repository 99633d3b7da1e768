"""The FAISS back end: which entities are close to a query. The one module that imports faiss."""

import re
from pathlib import Path
from typing import Any, Dict, Optional, Tuple

import faiss
import numpy as np
from tqdm import tqdm

from ..errors import ELQError, Errors
from ..types import Array

EXACT = "Flat"
LARGE = "HNSW128"
# Up to here an exact search costs less than the encoder's forward pass.
EXACT_UP_TO = 50_000
HNSW_SETTINGS = {"efConstruction": 200, "efSearch": 256}
# of the lists of an IVF index, one in so many is looked at
IVF_SHARE = 16
_CHUNK = 8192
_TRAINING_VECTORS = 100_000


def default_factory(count: int) -> str:
    """RETURNS (str): The factory string for a catalogue of this size when the user names none."""
    return EXACT if count <= EXACT_UP_TO else LARGE


def build_backend(vectors: Array, path: Path, *, factory: str, progress: bool) -> Dict[str, Any]:
    """Build a FAISS index over all vectors and write it. `Flat` needs no file: it reads the vectors.

    vectors (Array): (entities, width) float32.
    factory (str): Any factory string of FAISS.
    RETURNS (Dict[str, Any]): The settings of the back end.
    """
    if factory == EXACT:
        return {"factory": factory}
    count, width = vectors.shape
    try:
        index = faiss.index_factory(width, factory, faiss.METRIC_INNER_PRODUCT)
        settings = _apply_settings(index)
        if not index.is_trained:
            chosen = np.random.default_rng(0).permutation(count)[:_TRAINING_VECTORS]
            index.train(np.ascontiguousarray(vectors[np.sort(chosen)]))
        with tqdm(total=count, desc=f"Index ({factory})", unit=" entities", disable=not progress) as bar:
            for begin in range(0, count, _CHUNK):
                chunk = np.ascontiguousarray(vectors[begin : begin + _CHUNK])
                index.add(chunk)
                bar.update(len(chunk))
        faiss.write_index(index, str(path))
    except RuntimeError as err:
        raise ELQError(
            Errors.E034.format(factory=factory, count=count, width=width, problem=_first_line(err))
        ) from None
    return {"factory": factory, **settings}


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


def _misfit(path: Path, problem: str) -> ELQError:
    advice = "Name the index that belongs to the vectors, or leave out --index to build one"
    return ELQError(Errors.E050.format(path=path, problem=f"{problem}. {advice}"))


def _first_line(err: RuntimeError) -> str:
    """RETURNS (str): What FAISS says, without the place in its source."""
    return re.sub(r"^Error in .* at \S+:\d+: ", "", str(err).splitlines()[0])


class FaissBackend:
    """Finds the entities with the largest inner product. It only finds: the caller scores."""

    def __init__(self, vectors: Array, path: Optional[Path]) -> None:
        """Use a FAISS file, or the vectors themselves where there is none.

        vectors (Array): (entities, width) float32, memory-mapped.
        path (Optional[Path]): What `build_backend` wrote.
        """
        self._vectors = vectors
        self._index = None
        if path is not None:
            self._index = faiss.read_index(str(path), faiss.IO_FLAG_MMAP_IFC)

    def search(self, queries: Array, k: int) -> Array:
        """Find the `k` best entities of each query.

        queries (Array): (queries, width) float32.
        RETURNS (Array): (queries, k) positions, -1 where fewer were found.
        """
        queries = np.ascontiguousarray(queries, dtype="float32")
        if self._index is not None:
            return self._index.search(queries, k)[1]
        return faiss.knn(queries, self._vectors, k, metric=faiss.METRIC_INNER_PRODUCT)[1]


def _apply_settings(index: Any) -> Dict[str, int]:
    """Set how wide the search of an index is; what is set is written with it.

    RETURNS (Dict[str, int]): The settings.
    """
    settings: Dict[str, int] = {}
    hnsw = getattr(faiss.downcast_index(index), "hnsw", None)
    if hnsw is not None:
        for name, value in HNSW_SETTINGS.items():
            setattr(hnsw, name, value)
        settings.update(HNSW_SETTINGS)
    ivf = faiss.try_extract_index_ivf(index)
    if ivf is not None:
        ivf.nprobe = max(1, ivf.nlist // IVF_SHARE)
        settings["nprobe"] = ivf.nprobe
    return settings
