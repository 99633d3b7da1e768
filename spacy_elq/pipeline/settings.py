"""Settings of components: what their values may be."""

from typing import Any, Callable, Dict, Mapping, Tuple

from ..errors import ELQError, Errors

# whether a value is valid, and how people are told what is
Rule = Tuple[Callable[[Any], bool], str]


def check_settings(name: str, settings: Mapping[str, Any], rules: Mapping[str, Rule]) -> None:
    """Check the settings for which there is a rule.

    name (str): The component.
    RAISES (ELQError): With the setting, its value and what was expected.
    """
    for setting, (is_valid, expected) in rules.items():
        value = settings[setting]
        if not is_valid(value):
            raise ELQError(Errors.E002.format(setting=setting, name=name, value=value, expected=expected))


def threshold_rules(settings: Mapping[str, Any]) -> Dict[str, Rule]:
    """RETURNS (Dict[str, Rule]): The rules for `threshold` and `first_threshold`."""
    threshold = settings["threshold"]
    return {
        "threshold": (lambda x: 0.0 < x <= 1.0, "a probability above 0 and up to 1"),
        "first_threshold": (
            lambda x: x is None or 0.0 < x <= threshold,
            f"null, or a probability above 0 and up to the threshold, {threshold}",
        ),
    }
