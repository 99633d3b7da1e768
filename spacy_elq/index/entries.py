"""The entries of a database that describe an index. A database may come from anywhere: that an entry is what
was written, as its digest says, does not mean that it can be used.
"""

from typing import Any, Callable, Dict, List

from ..errors import ELQError
from .connections import Damaged
from .database import Database
from .files import VECTORS
from .milvus import check_uri, is_remote

# settings of a back end that need not be whole numbers
_FRACTIONS = ("rescore", "k_factor", "timeout")
# those that are texts
_TEXTS = ("factory", "uri", "collection")


def find_invalid(database: Database) -> List[str]:
    """RETURNS (List[str]): The entries that an index needs and that are not there, or cannot be used."""
    values = {key: database.get_meta(key) for key in _RULES}
    lacking = [key for key in ("base", "files", "catalogue", "encoder") if values[key] is None]
    wrong = [key for key, value in values.items() if value is not None and not _RULES[key](value)]
    if not lacking and not wrong and VECTORS not in values["files"] and not is_remote(values["backend"]):
        wrong = ["files"]
    if not lacking and not wrong and is_remote(values["backend"]) and values["synced"] is None:
        lacking = ["synced"]
    return lacking + wrong


def check_entries(database: Database) -> None:
    """Check that an index can be used as its entries say.

    RAISES (Damaged): If it cannot.
    """
    if invalid := find_invalid(database):
        raise Damaged(database.path, f"has no valid entry `{invalid[0]}`")


def _is_base(value: Any) -> bool:
    return isinstance(value, dict) and type(value.get("next")) is int and value["next"] >= 0


def _are_files(value: Any) -> bool:
    return isinstance(value, dict)


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _is_encoder(value: Any) -> bool:
    if not isinstance(value, dict) or not isinstance(value.get("fingerprint"), str):
        return False
    paths = value.get("paths", [])
    return isinstance(paths, list) and all(isinstance(path, str) for path in paths)


def _is_backend(value: Any) -> bool:
    if not isinstance(value, dict) or not isinstance(value.get("factory"), str):
        return False
    if is_remote(value) and not _is_collection(value):
        return False
    return all(_is_width(key, width) for key, width in value.items() if key not in _TEXTS)


def _is_collection(value: Dict[str, Any]) -> bool:
    """RETURNS (bool): Whether settings say where a collection of Milvus is, and what it holds."""
    if not all(isinstance(value.get(key), str) for key in ("uri", "collection")):
        return False
    try:
        check_uri(value["uri"])
    except ELQError:
        return False
    return type(value.get("width")) is int and value["width"] > 0 and value.get("timeout", 0) > 0


def _is_synced(value: Any) -> bool:
    keys = ("next", "version", "seen")
    return isinstance(value, dict) and all(type(value.get(key)) is int for key in keys)


def _is_width(key: str, value: Any) -> bool:
    """RETURNS (bool): Whether it is a setting that FAISS takes, which has 32 bits for most of them."""
    return isinstance(value, (int, float) if key in _FRACTIONS else int) and 0 <= value < 2**31


_RULES: Dict[str, Callable[[Any], bool]] = {
    "base": _is_base,
    "files": _are_files,
    "catalogue": _is_text,
    "encoder": _is_encoder,
    "backend": _is_backend,
    "synced": _is_synced,
}
