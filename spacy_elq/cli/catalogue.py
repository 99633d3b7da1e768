"""`spacy elq catalogue`."""

from pathlib import Path
from typing import Dict, Optional

import typer
from wasabi import msg

from ._util import command, print_next


@command("catalogue")
def catalogue_cli(
    source: Path = typer.Argument(
        ...,
        help="Wikidata JSON dump (.json, .json.gz, .json.bz2), table (.csv, .tsv) or folder of a spaCy knowledge base",
    ),
    output_path: Path = typer.Argument(..., help="The catalogue to write, entities.jsonl"),
    format: Optional[str] = typer.Option(
        None,
        "--format",
        "-f",
        help="Format of the source (wikidata, csv, tsv, spacy-kb); by default from its name",
    ),
    lang: Optional[str] = typer.Option(
        None, "--lang", "-l", help="Wikidata: language of labels, descriptions and aliases [default: en]"
    ),
    types: Optional[str] = typer.Option(
        None, "--types", "-t", help="Wikidata: only instances of these classes, e.g. Q5,Q515"
    ),
    subclasses: Optional[bool] = typer.Option(
        None,
        "--subclasses/--no-subclasses",
        help="Wikidata: whether instances of subclasses count too, for --types and --labels; reads the dump twice [default: subclasses]",
    ),
    min_sitelinks: Optional[int] = typer.Option(
        None, "--min-sitelinks", "-s", min=0, help="Wikidata: only items with at least this many sitelinks"
    ),
    labels: Optional[str] = typer.Option(
        None,
        "--labels",
        "-L",
        help="Wikidata: entity labels by class, e.g. Q5=PERSON,Q515=CITY, in addition to spaCy's for well-known classes",
    ),
    restart: bool = typer.Option(
        False, "--restart", help="Wikidata: start over instead of continuing an interrupted run"
    ),
    id: Optional[str] = typer.Option(None, "--id", help="Table: column of the id [default: id]"),
    title: Optional[str] = typer.Option(None, "--title", help="Table: column of the title [default: title]"),
    description: Optional[str] = typer.Option(None, "--description", help="Table: column of the description"),
    aliases: Optional[str] = typer.Option(None, "--aliases", help="Table: column of the aliases"),
    label: Optional[str] = typer.Option(None, "--label", help="Table: column of the entity label"),
    tags: Optional[str] = typer.Option(None, "--tags", help="Table: column of the tags"),
    popularity: Optional[str] = typer.Option(None, "--popularity", help="Table: column of the popularity"),
    list_separator: Optional[str] = typer.Option(
        None, "--list-separator", help="Table: separates the aliases or tags in a cell [default: |]"
    ),
    descriptions: Optional[Path] = typer.Option(
        None,
        "--descriptions",
        "-d",
        help="spaCy knowledge base, which has no titles and descriptions: a file that has them by id (.jsonl, .csv, .tsv)",
    ),
) -> None:
    """Make a catalogue, entities.jsonl, from a Wikidata dump, a table or a spaCy knowledge base.

    Wikidata: an item becomes an entity if it has a label in the language, or else one for all languages ("mul").
    Its popularity is its number of sitelinks; "ids" has its Wikipedia title and Freebase id. The dump is read
    as a stream. An interrupted run continues with the same command: finished entities are kept in
    OUTPUT.partial. A compressed file cannot be entered in the middle, so the dump is decompressed from the
    beginning again, but lines that were read are not parsed.

    Table: the first row names the columns. By default, columns are used that have the names of the fields.

    spaCy knowledge base: the most probable alias becomes the title. Without descriptions, the linker can only
    tell entities apart by their names.

    The output is written when it is complete: an error never leaves half a file.
    """
    from ..sources import build_catalogue

    given = {
        "lang": lang,
        "types": None if types is None else tuple(part.strip() for part in types.split(",")),
        "subclasses": subclasses,
        "min_sitelinks": min_sitelinks,
        "labels": None if labels is None else _parse_labels(labels),
        "id": id,
        "title": title,
        "description": description,
        "aliases": aliases,
        "label": label,
        "tags": tags,
        "popularity": popularity,
        "list_separator": list_separator,
        "descriptions": descriptions,
    }
    settings = {key: value for key, value in given.items() if value is not None}
    report = build_catalogue(
        source, output_path, format=format, settings=settings, restart=restart, progress=True
    )
    msg.good(f"{output_path}: {report.entities} entities")
    for reason, count in report.left_out.items():
        msg.info(f"{count} items left out by their {reason}")
    if report.bare:
        msg.warn(f"{report.bare} entities have no description: only their names tell them apart")
    print_next(f"python -m spacy elq encode {output_path} VECTORS --encoder MODEL")


def _parse_labels(text: str) -> Dict[str, str]:
    pairs = [part.split("=") for part in text.split(",")]
    if any(len(pair) != 2 for pair in pairs):
        raise typer.BadParameter("expected classes with labels, such as Q5=PERSON", param_hint="--labels")
    return {class_.strip(): label.strip() for class_, label in pairs}
