"""The recipe of an entity encoder: how it encodes entities, in a small file beside its weights."""

import json
import math
from dataclasses import asdict, dataclass, fields, replace
from numbers import Integral, Real
from pathlib import Path
from typing import Any, Callable, Dict, Optional, Tuple

from ..errors import ELQError, Errors

RECIPE = "elq_encoder.json"
POOLINGS = ("mean", "cls")


@dataclass(frozen=True)
class Recipe:
    """How an encoder encodes entities. For the settings see `EntityEncoder`.

    fingerprint (str): For a folder with int8 weights only: the fingerprint of the encoder they were made
        from.
    sha256 (str): Checksum of those weights.
    """

    pooling: str = "mean"
    max_length: int = 128
    aliases: bool = False
    ent_token: Optional[str] = None
    norm: float = 0.0
    int8: bool = False
    fingerprint: str = ""
    sha256: str = ""

    def __post_init__(self) -> None:
        """Make numbers of one type: 4 and 4.0 are the same norm, but not the same text in a fingerprint."""
        object.__setattr__(self, "max_length", int(self.max_length))
        object.__setattr__(self, "norm", float(self.norm))

    @property
    def is_int8_only(self) -> bool:
        """RETURNS (bool): Whether the folder has no weights but those in int8."""
        return bool(self.fingerprint)

    @property
    def texts(self) -> Dict[str, Any]:
        """RETURNS (Dict[str, Any]): The settings that change the vectors."""
        return {key: getattr(self, key) for key in ("pooling", "max_length", "aliases", "ent_token", "norm")}

    def updated(self, **settings: Any) -> "Recipe":
        """RETURNS (Recipe): The same with the settings that are not None."""
        given = {key: value for key, value in settings.items() if value is not None}
        for key, value in given.items():
            is_valid, expected = _RULES[key]
            if not is_valid(value):
                raise ELQError(Errors.E002.format(setting=key, name="encode", value=value, expected=expected))
        return replace(self, **given)


# whether a value is valid, and what a valid one is called in a message
_RULES: Dict[str, Tuple[Callable[[Any], bool], str]] = {
    "pooling": (lambda x: x in POOLINGS, " or ".join(map(repr, POOLINGS))),
    "max_length": (lambda x: isinstance(x, Integral) and not isinstance(x, bool), "a whole number"),
    "aliases": (lambda x: isinstance(x, bool), "true or false"),
    "ent_token": (lambda x: x is None or isinstance(x, str), "a word piece"),
    "norm": (
        lambda x: isinstance(x, Real) and not isinstance(x, bool) and 0 <= float(x) < math.inf,
        "a number, at least 0",
    ),
    "int8": (lambda x: isinstance(x, bool), "true or false"),
    "fingerprint": (lambda x: isinstance(x, str), "text"),
    "sha256": (lambda x: isinstance(x, str), "text"),
}
# what suits encoders that have no file of their own
KNOWN = {
    "sentence-transformers/all-MiniLM-L6-v2": Recipe(aliases=True, norm=4.0),
    "thenlper/gte-small": Recipe(aliases=True, norm=8.0),
}


def read_recipe(name: str) -> Recipe:
    """Read how an encoder encodes entities.

    name (str): A local folder, or the name of a model on the Hugging Face hub.
    RETURNS (Recipe): That of the folder or of a known model, else the defaults.
    RAISES (ELQError): If the file in the folder is damaged.
    """
    path = Path(name) / RECIPE
    if not path.is_file():
        return Recipe() if Path(name).exists() else KNOWN.get(name, Recipe())
    try:
        found = json.loads(path.read_text(encoding="utf8"))
    except (ValueError, RecursionError):
        raise ELQError(Errors.E150.format(path=path, problem="it is not valid JSON")) from None
    if problem := _find_problem(found):
        raise ELQError(Errors.E150.format(path=path, problem=problem))
    return Recipe(**found)


def write_recipe(folder: Path, recipe: Recipe) -> None:
    """Write a recipe into the folder of an encoder."""
    always = recipe.texts
    other = {key: value for key, value in asdict(recipe).items() if key not in always and value}
    text = json.dumps({**always, **other}, indent=2, ensure_ascii=False)
    (folder / RECIPE).write_text(text + "\n", encoding="utf8")


def _find_problem(found: Any) -> str:
    """RETURNS (str): What is wrong with the content of a file, "" if nothing is."""
    if not isinstance(found, dict):
        return "it is not a JSON object"
    known = [field.name for field in fields(Recipe)]
    if unknown := [key for key in found if key not in known]:
        return f"unknown settings {', '.join(unknown)}; known are {', '.join(known)}"
    for key, value in found.items():
        is_valid, expected = _RULES[key]
        if not is_valid(value):
            return f"`{key}` is {value!r}, expected {expected}"
    if bool(found.get("fingerprint")) != bool(found.get("sha256")):
        return "`fingerprint` and `sha256` belong together"
    return ""
