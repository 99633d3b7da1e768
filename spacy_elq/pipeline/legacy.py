"""Pipelines and configs of spacy-elq 0.1, whose settings were not in blocks: they load, with a warning."""

import functools
import math
import warnings
from pathlib import Path
from typing import Any, Dict, List, Mapping, Optional, Sequence

import srsly
from spacy.language import Language

from ..errors import ELQError, Errors, Warnings

_GOLD_KEY = "gold_links"
_DECODER = {
    name: f"decoder.{name}"
    for name in ("threshold", "first_threshold", "candidates", "max_length", "mention_limit")
}
_PRIOR = {
    name: f"prior.{name}"
    for name in ("name_weight", "alias_share", "popularity_weight", "mention_name_weight", "temperature")
}
_LOSS = {"linking_loss": "loss.linking", "mention_weight": "loss.mention_weight", "unmarked": "loss.unmarked"}
_GONE = dict.fromkeys(("gold_key", "bundle_index", "max_mentions"))
# by factory, where each setting is now, None for those that are gone
MOVED: Dict[str, Dict[str, Optional[str]]] = {
    "elq_linker": {**_DECODER, **_PRIOR, **_LOSS, **_GONE},
    "elq_blink": {**_DECODER, **_PRIOR, **_LOSS, **_GONE, "spans_key": None},
    "elq_tagme": {**_DECODER, **_GONE},
    "elq_span_extractor": {"gold_key": None},
    "elq_pairs": {"gold_key": None},
}
_BLOCKS = {
    "decoder": "spacy-elq.Decoder.v1",
    "loss": "spacy-elq.Loss.v1",
    "prior": "spacy-elq.Prior.v1",
}


def move_settings(factory: str, config: Mapping[str, Any]) -> Dict[str, Any]:
    """Move the settings of a component of 0.1 to where they are now.

    factory (str): Its factory.
    config (Mapping[str, Any]): Its config, of 0.1 or of today.
    RETURNS (Dict[str, Any]): The config of today.
    """
    places = MOVED.get(factory, {})
    moved = {key: value for key, value in config.items() if key not in places}
    for key in old_settings(factory, config):
        block, _, setting = (places[key] or "").partition(".")
        if block:
            own = moved.setdefault(block, {})
            moved[block] = {"@misc": _BLOCKS[block], **own, setting: config[key]}
    return moved


def old_settings(factory: str, config: Mapping[str, Any]) -> List[str]:
    """RETURNS (List[str]): The settings of a config that are not where they are expected."""
    return [key for key in config if key in MOVED.get(factory, {})]


def compare_settings(component: Any, folder: Path) -> None:
    """Warn where a pipeline of 0.1 has other settings in its folder than in its config, which counts.

    folder (Path): That of the component, where 0.1 kept its settings a second time.
    """
    path = folder / "cfg"
    if not path.is_file():
        return
    # most settings kept their names when they moved to a block
    stored = {_LOSS.get(key, key).rpartition(".")[2]: value for key, value in srsly.read_json(path).items()}
    # by their blocks: a method of the component may have the name of a setting
    places = [*(getattr(component, block) for block in component.blocks), component]
    known = {key: getattr(_find_owner(places, key), key, value) for key, value in stored.items()}
    differing = [
        f"`{key}` is {known[key]!r}, not {value!r}"
        for key, value in stored.items()
        if not _is_same(known[key], value)
    ]
    if differing:
        message = Warnings.W005.format(name=component.name, differing="; ".join(differing))
        warnings.warn(message, stacklevel=2)


def _find_owner(places: Sequence[Any], key: str) -> Any:
    """RETURNS (Any): The first of the places that has a setting, or the last of them."""
    return next((place for place in places if hasattr(place, key)), places[-1])


def _is_same(one: Any, other: Any) -> bool:
    """RETURNS (bool): Whether two settings are equal, up to the digits that JSON leaves out."""
    if isinstance(one, float) and isinstance(other, float):
        return math.isclose(one, other, rel_tol=1e-6)
    return one == other


def _warn(factory: str, name: str, config: Mapping[str, Any]) -> None:
    old = old_settings(factory, config)
    if config.get("gold_key", _GOLD_KEY) != _GOLD_KEY:
        raise ELQError(Errors.E014.format(name=name, value=config["gold_key"]))
    places = MOVED[factory]
    moved = ", ".join(f"`{key}` is now `{places[key]}`" if places[key] else f"`{key}` is gone" for key in old)
    warnings.warn(Warnings.W004.format(name=name, moved=moved), stacklevel=2)


def accept_old_configs() -> None:
    """Let `nlp.add_pipe` and `spacy.load` accept components of 0.1.

    spaCy checks a config against the signature of the factory before the factory sees it, and has no hook
    there: the check has to be preceded.
    """
    create_pipe = Language.create_pipe
    if hasattr(create_pipe, "accepts_elq_0_1"):
        return

    @functools.wraps(create_pipe)
    def create(self: Language, factory_name: str, name: Optional[str] = None, **kwargs: Any) -> Any:
        config, raw = kwargs.get("config"), kwargs.get("raw_config")
        # anything but a dict is for spaCy to refuse
        if factory_name in MOVED and isinstance(config, dict) and old_settings(factory_name, config):
            _warn(factory_name, name or factory_name, config)
            kwargs["config"] = move_settings(factory_name, config)
            kwargs["raw_config"] = raw and type(raw)(move_settings(factory_name, raw))
        return create_pipe(self, factory_name, name, **kwargs)

    create.accepts_elq_0_1 = True  # type: ignore[attr-defined]
    Language.create_pipe = create  # type: ignore[method-assign]


accept_old_configs()
