"""Make complete configs from overrides: what differs from a base config, in the same syntax.

The block `[base]` of an override names the base in `path`, relative to the override (it can be an override
itself), and in `without` the blocks and keys of the base that are left out.
"""

from pathlib import Path

import typer
from spacy.util import load_config
from thinc.api import Config


def main(
    overrides: Path = typer.Argument(..., help="Folder of the overrides"),
    output: Path = typer.Argument(..., help="Folder for complete configs of the same names"),
) -> None:
    """Write a complete config for each override."""
    output.mkdir(parents=True, exist_ok=True)
    for path in sorted(overrides.glob("*.cfg")):
        make_config(path).to_disk(output / path.name, interpolate=False)


def make_config(path: Path) -> Config:
    """RETURNS (Config): The config at a path, completed by its base if it names one."""
    overrides = load_config(path, interpolate=False)
    base = overrides.pop("base", None)
    if base is None:
        return overrides
    config = make_config(path.parent / base["path"])
    for name in base["without"]:
        _remove(config, name)
    for name, block in overrides.get("components", {}).items():
        if "source" in block:  # takes all settings from there: none of the base's may stay
            config["components"].pop(name, None)
    return config.merge(overrides)


def _remove(config: Config, name: str) -> None:
    *outer, last = name.split(".")
    block = config
    for key in outer:
        block = block[key]
    del block[last]


if __name__ == "__main__":
    typer.run(main)
