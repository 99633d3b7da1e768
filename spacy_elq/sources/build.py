"""From a source to entities.jsonl."""

import os
from dataclasses import fields
from functools import partial
from pathlib import Path
from typing import Any, Callable, Dict, List, Mapping, NamedTuple, Optional, Union

from ..errors import ELQError, Errors
from ..files import check_file, check_output
from .items import WikidataSettings
from .knowledge_base import CONTENTS, STRINGS, KBSettings, read_spacy_kb
from .output import Report, write_entities
from .tables import TableSettings, read_table
from .wikidata import build_from_wikidata


class Format(NamedTuple):
    """A format of sources.

    settings (Any): The class of its settings.
    read (Optional[Callable]): Reads the entities, where they are simply written.
    """

    settings: Any
    read: Optional[Callable[..., Any]] = None


FORMATS: Dict[str, Format] = {
    "wikidata": Format(WikidataSettings),
    "csv": Format(TableSettings, partial(read_table, format="csv")),
    "tsv": Format(TableSettings, partial(read_table, format="tsv")),
    "spacy-kb": Format(KBSettings, read_spacy_kb),
}
_SUFFIXES = {".json": "wikidata", ".csv": "csv", ".tsv": "tsv"}


def guess_format(path: Path) -> str:
    """RETURNS (str): The format that the name of a source suggests, or what is in its folder."""
    if (path / CONTENTS).is_file():
        return "spacy-kb"
    name = path.with_suffix("") if path.suffix.lower() in (".gz", ".bz2") else path
    format = _SUFFIXES.get(name.suffix.lower())
    if format is None or (name != path and format != "wikidata"):
        raise ELQError(Errors.E042.format(found=path.name, known=f"{', '.join(FORMATS)} (--format)"))
    return format


def build_catalogue(
    source: Union[str, Path],
    output: Union[str, Path],
    *,
    format: Optional[str] = None,
    settings: Optional[Mapping[str, Any]] = None,
    restart: bool = False,
    progress: bool = False,
) -> Report:
    """Make a catalogue.

    source (Union[str, Path]): A dump of Wikidata, a table, or the folder of a knowledge base.
    output (Union[str, Path]): The catalogue, entities.jsonl. It is there when it is complete, not before.
    format (Optional[str]): A key of `FORMATS`; None for what the name of the source suggests.
    settings (Optional[Mapping[str, Any]]): Fields of `WikidataSettings`, `TableSettings` or `KBSettings`.
    restart (bool): Whether to start over where an interrupted run over a dump would be continued.
    RETURNS (Report): What was written and left out.
    """
    source, output = Path(source), Path(output)
    if not os.path.lexists(source):
        raise ELQError(Errors.E022.format(path=source, hint=f"Expected one of: {', '.join(FORMATS)}."))
    format = format or guess_format(source)
    if format != "spacy-kb":
        check_file(source, f"Expected one of: {', '.join(FORMATS)}.")
    if format not in FORMATS:
        raise ELQError(Errors.E042.format(found=format, known=", ".join(FORMATS)))
    chosen = _make_settings(format, settings or {})
    check_output(output, *_inputs(source, chosen))
    read = FORMATS[format].read
    if read is None:
        return build_from_wikidata(source, output, settings=chosen, restart=restart, progress=progress)
    return write_entities(read(source, settings=chosen), output, source=source)


def _inputs(source: Path, settings: Any) -> List[Path]:
    """RETURNS (List[Path]): The files that are read."""
    if not isinstance(settings, KBSettings):
        return [source]
    described = [] if settings.descriptions is None else [Path(settings.descriptions)]
    return [source / CONTENTS, source / STRINGS, *described]


def _make_settings(format: str, settings: Mapping[str, Any]) -> Any:
    """RETURNS (Any): The settings of a format.

    RAISES (ELQError): For those of another format.
    """
    known = [field.name for field in fields(FORMATS[format].settings)]
    unknown = [f"`{name}`" for name in settings if name not in known]
    if unknown:
        names = ", ".join(unknown)
        raise ELQError(Errors.E136.format(format=format, settings=names, known=", ".join(known)))
    return FORMATS[format].settings(**settings)
