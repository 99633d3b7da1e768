"""The entity index: records, vectors and what searches them, on disk and memory-mapped."""

from .encode import encode_catalogue
from .entity_index import EntityIndex, build_index, build_index_loader, copy_index

__all__ = ["EntityIndex", "build_index", "build_index_loader", "copy_index", "encode_catalogue"]
