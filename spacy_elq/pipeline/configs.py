"""The training configs that come with the package."""

import json
import re
from itertools import takewhile
from pathlib import Path
from textwrap import shorten
from typing import Dict, Mapping

from spacy.util import is_package, load_config
from thinc.api import Config

from ..errors import ELQError, Errors

_PACKAGE = Path(__file__).parent.parent


def find_configs() -> Dict[str, Path]:
    """RETURNS (Dict[str, Path]): The configs by name. An installed package has them inside, a checkout
    beside it.
    """
    inside = _PACKAGE / "configs"
    folder = inside if inside.is_dir() else _PACKAGE.parent / "configs"
    return {path.stem: path for path in sorted(folder.glob("*.cfg"))}


def read_config(name: str, paths: Mapping[str, str] = {}) -> str:
    """Read a training config, comments included.

    name (str): Its name, such as "elq"; "finetune" is short for "elq_finetune".
    paths (Mapping[str, str]): Values for its block [paths], such as "index". With a folder for "pipeline",
        the language and the tokenizer are those of that pipeline.
    RETURNS (str): The text of the file.
    """
    configs = find_configs()
    name = name if name in configs else f"elq_{name}"
    if name not in configs:
        name = name.removeprefix("elq_")
        problem = f"There is no training config {name!r}." if name else "Which training config?"
        raise ELQError(Errors.E116.format(problem=problem, names=describe_configs()))
    text = configs[name].read_text(encoding="utf8")
    begin, block, end = re.split(r"(?ms)^(\[paths\]\n.*?)(?=^\[)", text, maxsplit=1)
    for key, value in paths.items():
        # a function, since values may have backslashes
        line = f"{key} = {json.dumps(value)}"
        block, count = re.subn(rf"(?m)^{key} = .*$", lambda _, line=line: line, block)
        if not count:
            known = ", ".join(re.findall(r"(?m)^(\w+) =", block))
            raise ELQError(Errors.E118.format(name=name, path=key, paths=known))
    if "pipeline" not in paths:
        return begin + block + end
    saved = Path(paths["pipeline"]) / "config.cfg"
    if not saved.is_file() and not is_package(paths["pipeline"]):
        raise ELQError(Errors.E201.format(path=paths["pipeline"]))
    if saved.is_file():
        end = _adopt(end, load_config(saved, interpolate=True), config=name, path=saved.parent)
    return begin + block + end


def _adopt(text: str, pipeline: Config, *, config: str, path: Path) -> str:
    """Fit a config to the pipeline whose components it sources.

    text (str): The config, from [system] on.
    pipeline (Config): That of the pipeline.
    RETURNS (str): The config with the pipeline's language and tokenizer, which are not sourced.
    """
    pipes = pipeline["nlp"]["pipeline"]
    for name in re.findall(r"(?m)^\[components\.(\w+)\]\nsource = ", text):
        if name not in pipes:
            raise ELQError(Errors.E171.format(config=config, path=path, name=name, pipes=", ".join(pipes)))
    lang = f"lang = {json.dumps(pipeline['nlp']['lang'])}"
    tokenizer = Config({"nlp": {"tokenizer": pipeline["nlp"]["tokenizer"]}}).to_str()
    block = tokenizer[tokenizer.index("[nlp.tokenizer") :].strip() + "\n\n"
    text = re.sub(r"(?m)^lang = .*$", lambda _: lang, text, count=1)
    return re.sub(r"(?ms)^\[nlp\.tokenizer\]\n.*?(?=^\[nlp\.vectors\])", lambda _: block, text, count=1)


def describe_configs() -> str:
    """RETURNS (str): One line per config: its name and the first sentence of its comment."""
    configs = find_configs()
    width = max(map(len, configs), default=0)
    return "\n".join(f"  {name:{width}}  {_first_sentence(path)}" for name, path in configs.items())


def _first_sentence(path: Path) -> str:
    lines = takewhile(lambda line: line.startswith("#"), path.read_text(encoding="utf8").splitlines())
    text = " ".join(line.lstrip("# ") for line in lines)
    return shorten(re.split(r"(?<=\.)\s", text)[0], width=100, placeholder=" …")
