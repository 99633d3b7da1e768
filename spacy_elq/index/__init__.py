"""The entity index: records, vectors and what searches them, on disk and memory-mapped."""

from .encode import encode_catalogue
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
    "open_catalogue",
    "record_place",
]
