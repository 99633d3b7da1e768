"""The graph of entities: claims of a knowledge base, hyperlinks, rows of tables, as compressed arrays.

A folder has `begins.npy` (entities + 1) and `neighbours.npy` (edges,).
"""

from pathlib import Path
from typing import Iterable, List, Sequence, Tuple

import numpy as np

from .data import read_lines
from .passages import Passages
from .types import Array, QAError

# the columns of the two entities, by file: what is said of an entity first comes first
SOURCES = {"kb.tsv.xz": (0, 2), "links.tsv.gz": (0, 1), "tables.tsv.gz": (0, 2)}


def read_edges(folder: Path, passages: Passages) -> Iterable[List[Tuple[int, int]]]:
    """YIELDS (List[Tuple[int, int]]): The edges of each file, by positions of entities; unknown ones are left
    out.
    """
    for name, (head, tail) in SOURCES.items():
        rows = [line.split("\t") for line in list(read_lines(folder / name))[1:]]
        pairs = ((passages.position(row[head]), passages.position(row[tail])) for row in rows)
        yield [pair for pair in pairs if min(pair) >= 0]


def build_graph(edges: Iterable[Sequence[Tuple[int, int]]], size: int, folder: Path) -> "Graph":
    """Write the graph.

    edges (Iterable[Sequence[Tuple[int, int]]]): From head to tail, a list for each source. An entity gets the
        tails of each list and then the heads, in the order given, each neighbour once.
    size (int): How many entities there are.
    RETURNS (Graph): The graph.
    """
    tables = [np.asarray(own, dtype="int64").reshape(-1, 2) for own in edges]
    both = [directed for table in tables for directed in (table, table[:, ::-1])]
    pairs = np.concatenate([np.empty((0, 2), dtype="int64"), *both])
    pairs = pairs[pairs[:, 0] != pairs[:, 1]]
    _, firsts = np.unique(pairs[:, 0] * size + pairs[:, 1], return_index=True)
    pairs = pairs[np.sort(firsts)]
    pairs = pairs[np.argsort(pairs[:, 0], kind="stable")]
    folder.mkdir(parents=True, exist_ok=True)
    np.save(folder / "neighbours.npy", pairs[:, 1].astype("int32"))
    np.save(folder / "begins.npy", np.searchsorted(pairs[:, 0], np.arange(size + 1)))
    return Graph(folder)


class Graph:
    """A folder of the graph."""

    def __init__(self, folder: Path) -> None:
        """Open a folder that `build_graph` wrote."""
        if not (folder / "begins.npy").is_file():
            raise QAError(f"{folder} has no graph. Make it: python -m elq_qa graph")
        self._begins: Array = np.load(folder / "begins.npy")
        self._neighbours: Array = np.load(folder / "neighbours.npy", mmap_mode="r")

    def __len__(self) -> int:
        """RETURNS (int): The number of neighbours of all entities."""
        return len(self._neighbours)

    def neighbours(self, entity: int) -> Array:
        """RETURNS (Array): The neighbours of an entity, in the order of the files."""
        return self._neighbours[self._begins[entity] : self._begins[entity + 1]]

    def around(self, entities: Iterable[int], *, seen: Iterable[int] = ()) -> Array:
        """RETURNS (Array): The neighbours of entities, breadth-first: those of the first one first, each
        once, without the entities and those seen.
        """
        entities = list(map(int, entities))
        found = np.concatenate([np.empty(0, dtype="int32"), *map(self.neighbours, entities)])
        _, firsts = np.unique(found, return_index=True)
        found = found[np.sort(firsts)]
        return found[~np.isin(found, [*entities, *map(int, seen)])]
