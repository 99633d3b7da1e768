"""The entries of a database that describe an index. A database may come from anywhere: that an entry is what
was written, as its digest says, does not mean that it can be used.
"""

from typing import Any, Callable, Dict, List

from .connections import Damaged
from .database import Database
from .files import VECTORS

# settings of a back end that need not be whole numbers
_FRACTIONS = ("rescore", "k_factor")


def find_invalid(database: Database) -> List[str]:
    """RETURNS (List[str]): The entries that an index needs and that are not there, or cannot be used."""
    values = {key: database.get_meta(key) for key in _RULES}
    lacking = [key for key in ("base", "files", "catalogue", "encoder") if values[key] is None]
    wrong = [key for key, value in values.items() if value is not None and not _RULES[key](value)]
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
    return isinstance(value, dict) and VECTORS in value


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
    return all(_is_width(key, width) for key, width in value.items() if key != "factory")


def _is_width(key: str, value: Any) -> bool:
    """RETURNS (bool): Whether it is a setting that FAISS takes, which has 32 bits for most of them."""
    return isinstance(value, (int, float) if key in _FRACTIONS else int) and 0 <= value < 2**31


_RULES: Dict[str, Callable[[Any], bool]] = {
    "base": _is_base,
    "files": _are_files,
    "catalogue": _is_text,
    "encoder": _is_encoder,
    "backend": _is_backend,
}
