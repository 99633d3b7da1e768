"""The entity index: records, vectors and what searches them, on disk and memory-mapped."""

from .backend import read_hnsw_settings
from .encode import encode_catalogue, import_index
from .entity_index import EntityIndex, build_index, build_index_loader, copy_index
from .records import Records, open_catalogue
from .store import find_place, record_place

__all__ = [
    "EntityIndex",
    "Records",
    "build_index",
    "build_index_loader",
    "copy_index",
    "encode_catalogue",
    "find_place",
    "import_index",
    "open_catalogue",
    "read_hnsw_settings",
    "record_place",
]
