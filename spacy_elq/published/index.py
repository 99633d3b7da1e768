"""An index of entities that were encoded elsewhere."""

from pathlib import Path
from typing import Iterable, Optional

import numpy as np
from tqdm import tqdm

from ..errors import ELQError, Errors
from ..index.backend import build_backend, default_factory, plan_backend, read_hnsw_settings
from ..index.build import describe_encoder, fill_database, making
from ..index.entity_index import EntityIndex
from ..index.files import SEARCH, VECTORS, WORK, bytes_to_copy, check_disk, publish
from ..types import Encoder, Entity
from .tensors import read_matrix

_ROWS = 4096


def import_index(
    entities: Iterable[Entity],
    vectors: Path,
    output: Path,
    encoder: Encoder,
    *,
    search: Optional[Path] = None,
    factory: Optional[str] = None,
    progress: bool = False,
) -> EntityIndex:
    """Make an index of vectors that were encoded elsewhere.

    entities (Iterable[Entity]): The catalogue.
    vectors (Path): Their vectors, a file of `torch.save` with a matrix: it is copied piece by piece.
    encoder (Encoder): What encoded them, and will encode entities that come later.
    search (Optional[Path]): A FAISS file over the vectors, used as it is; None builds one by `factory`.
    RETURNS (EntityIndex): The index.
    """
    shape = read_matrix(vectors).shape
    if search is None:
        settings, bytes_ = plan_backend(shape, factory=factory or default_factory(*shape))
    else:
        settings, bytes_ = read_hnsw_settings(search, shape), bytes_to_copy([search], output)
    check_disk(output, 4 * shape[0] * shape[1] + bytes_)
    with making(output.absolute()) as path:
        work = fill_database(path, entities, describe_encoder(encoder, path.parent))
        if len(work) != shape[0]:
            raise ELQError(Errors.E051.format(vectors=shape[0], entities=len(work)))
        files = {role: path.with_name(f"{WORK}-{role}") for role in (VECTORS, SEARCH)}
        _copy_vectors(vectors, files[VECTORS], progress=progress)
        if search is None:
            copied = np.load(files[VECTORS], mmap_mode="r")
            build_backend(copied, files[SEARCH], settings=settings, progress=progress)
        else:
            files[SEARCH] = search
        work.set_meta(backend=settings)
        publish(path.parent, work, {role: file_ for role, file_ in files.items() if file_.exists()})
    return EntityIndex.open(output)


def _copy_vectors(source: Path, target: Path, *, progress: bool) -> None:
    """Copy a matrix that torch wrote into a file of numpy."""
    shape = read_matrix(source).shape
    header = {"descr": "<f4", "fortran_order": False, "shape": shape}
    bar = tqdm(total=shape[0], desc="Vectors", unit=" entities", disable=not progress)
    with target.open("wb") as file_, bar:
        np.lib.format.write_array_header_1_0(file_, header)
        for begin in range(0, shape[0], _ROWS):
            # mapped anew: pages that were read count as memory as long as their mapping is there
            rows = np.ascontiguousarray(read_matrix(source)[begin : begin + _ROWS])
            file_.write(rows.data)
            bar.update(len(rows))
