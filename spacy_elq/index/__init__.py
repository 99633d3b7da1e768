"""The entity index: a database of entities, their vectors and what searches them, on disk."""

from .build import build_index, copy_index, making, open_catalogue, register_encoder
from .check import Damage, check_index
from .compact import compact_index
from .database import Database
from .encode import encode_catalogue
from .entity_index import EntityIndex, build_index_loader
from .files import find_place, record_place
from .several import AnyIndex, EntityIndexes, open_index
from .within import Within

__all__ = [
    "AnyIndex",
    "Damage",
    "Database",
    "EntityIndex",
    "EntityIndexes",
    "Within",
    "build_index",
    "build_index_loader",
    "check_index",
    "compact_index",
    "copy_index",
    "encode_catalogue",
    "find_place",
    "making",
    "open_catalogue",
    "open_index",
    "record_place",
    "register_encoder",
]
