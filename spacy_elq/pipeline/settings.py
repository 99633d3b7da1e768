"""Settings of components: checked attributes, alone or in blocks such as `decoder`. On disk they live in one
place, the config of the pipeline.
"""

import difflib
import warnings
from dataclasses import asdict, fields, is_dataclass, replace
from typing import Any, Callable, ClassVar, Dict, List, Mapping

from spacy.language import Language

from ..errors import ELQError, Errors, Rule, Warnings, check_setting

EXISTING_ENTS = ("keep", "overwrite", "replace")
SPAN_GROUP: Rule = (lambda x: isinstance(x, str) and bool(x), "the name of a span group")
OPTIONAL_TEXT: Rule = (lambda x: x is None or (isinstance(x, str) and bool(x)), "null or a text")
INDEX_PATH: Rule = (
    lambda x: (
        x is None or (bool(x) and all(isinstance(path, str) for path in ([x] if isinstance(x, str) else x)))
    ),
    "null, the folder of an index, or a list of them",
)
# what every linker has
LINKER_RULES: Dict[str, Rule] = {
    "label": (lambda x: isinstance(x, str) and bool(x), "a label"),
    "existing_ents": (lambda x: x in EXISTING_ENTS, f"one of {', '.join(EXISTING_ENTS)}"),
}


class HasSettings:
    """A component whose settings are attributes: `linker.existing_ents`, and `linker.threshold` for
    `linker.decoder.threshold`. Invalid values and unknown names are errors.
    """

    name: str
    # set by `nlp.set_error_handler`
    error_handler: Callable
    # what the config of the pipeline says
    _configured: Dict[str, Any]
    # plain settings and what they may be
    rules: ClassVar[Dict[str, Rule]] = {}
    # blocks, and settings of them that have no effect in this component, with the reason
    blocks: ClassVar[Dict[str, type]] = {}
    without_effect: ClassVar[Dict[str, str]] = {}

    def __setattr__(self, name: str, value: Any) -> None:
        """Set an attribute; settings are checked."""
        block = self._block_of(name)
        if block is not None:
            self.__setattr__(block, replace(getattr(self, block), **{name: value}))
            return
        self._check(name, value)
        super().__setattr__(name, value)

    def __getattr__(self, name: str) -> Any:
        """RETURNS (Any): A setting of one of the blocks."""
        block = self._block_of(name)
        if block is None:
            hint = "; settings are attributes: linker.threshold, linker.decoder" if name == "cfg" else ""
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}{hint}")
        return getattr(getattr(self, block), name)

    @property
    def cfg(self) -> Dict[str, Any]:
        """Missing, unlike in other components: settings live in the config of the pipeline only."""
        raise AttributeError

    @property
    def settings(self) -> Dict[str, Any]:
        """RETURNS (Dict[str, Any]): All settings in plain types, those of a block under its name."""
        blocks = {name: asdict(getattr(self, name)) for name in self.blocks}
        return {**{name: getattr(self, name) for name in self.rules}, **blocks}

    def remember_config(self) -> None:
        """Take the present settings for those of the pipeline's config."""
        self._configured = self.settings

    def warn_unsaved(self) -> None:
        """Warn of settings that were set by hand: the config is what is saved."""
        now, before = flatten_settings(self.settings), flatten_settings(self._configured)
        changed = [name for name in now if now[name] != before[name]]
        if changed:
            warnings.warn(Warnings.W006.format(name=self.name, settings=", ".join(changed)), stacklevel=3)

    @classmethod
    def _block_of(cls, name: str) -> Any:
        return next((block for block, type_ in cls.blocks.items() if name in _names(type_)), None)

    def _check(self, name: str, value: Any) -> None:
        if name in self.rules:
            check_setting(self.name, name, value, self.rules[name])
        elif name in self.blocks:
            self._check_block(name, value)
        elif not (name.startswith("_") or hasattr(type(self), name) or name in _annotated(type(self))):
            raise self._unknown(name)

    def _check_block(self, name: str, value: Any) -> None:
        if not isinstance(value, self.blocks[name]):
            expected = f"a block made by spacy-elq.{self.blocks[name].__name__}.v1"
            raise ELQError(Errors.E002.format(setting=name, name=self.name, value=value, expected=expected))
        default = self.blocks[name]()
        for path, reason in self.without_effect.items():
            block, _, setting = path.partition(".")
            if block == name and getattr(value, setting) != getattr(default, setting):
                raise ELQError(
                    Errors.E012.format(
                        setting=path, name=self.name, reason=reason, default=getattr(default, setting)
                    )
                )

    def _unknown(self, name: str) -> ELQError:
        known = self._all_names()
        near = difflib.get_close_matches(name, known, n=1)
        hint = f" Did you mean `{near[0]}`?" if near else ""
        return ELQError(
            Errors.E013.format(
                name=self.name,
                setting=name,
                hint=hint,
                settings=", ".join(known),
                example=f"{near[0] if near else known[0]} = …",
            )
        )

    def _all_names(self) -> List[str]:
        return [name for type_ in self.blocks.values() for name in _names(type_)] + list(self.rules)


def flatten_settings(settings: Mapping[str, Any]) -> Dict[str, Any]:
    """RETURNS (Dict[str, Any]): The same with dotted names, `decoder.threshold` for a setting of a block."""
    blocks = {key: value for key, value in settings.items() if isinstance(value, dict)}
    dotted = {f"{block}.{name}": value for block, own in blocks.items() for name, value in own.items()}
    return {**{key: value for key, value in settings.items() if key not in blocks}, **dotted}


def _names(block: type) -> List[str]:
    return [field.name for field in fields(block)] if is_dataclass(block) else []


def _annotated(type_: type) -> Dict[str, Any]:
    """RETURNS (Dict[str, Any]): The attributes that a class and those above it declare."""
    return {
        name: kind for base in type_.__mro__ for name, kind in getattr(base, "__annotations__", {}).items()
    }


def update_settings(nlp: Language, name: str, settings: Mapping[str, Any]) -> None:
    """Change settings of a component, in use and in the config that is saved with the pipeline.

    nlp (Language): The pipeline.
    name (str): The component.
    settings (Mapping[str, Any]): Values by name, `decoder.threshold` for a setting of a block.
    RAISES (ELQError): If a name is unknown or a value is not valid. Nothing is changed then.
    """
    component: Any = nlp.get_pipe(name)
    config = nlp.get_pipe_config(name)
    changed: Dict[str, Any] = {}
    for path, value in settings.items():
        block, _, setting = path.rpartition(".")
        if not isinstance(component, HasSettings) or (block or setting) not in component.settings:
            raise ELQError(Errors.E077.format(setting=path, name=name))
        if not block:
            changed[setting] = value
        elif setting not in component.settings[block]:
            raise ELQError(Errors.E077.format(setting=path, name=name))
        else:
            changed[block] = replace(changed.get(block, getattr(component, block)), **{setting: value})
    for attribute, value in changed.items():
        component._check(attribute, value)
    for attribute, value in changed.items():
        setattr(component, attribute, value)
        if is_dataclass(value):
            config[attribute].update(vars(value))
        else:
            config[attribute] = value
        component._configured[attribute] = component.settings[attribute]
