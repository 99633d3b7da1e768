"""`spacy elq dictionary`."""

from pathlib import Path
from typing import List

import typer
from wasabi import msg

from ._util import command


@command("dictionary")
def dictionary_cli(
    anchors: Path = typer.Argument(
        ..., help="Texts of hyperlinks: text, entity id and count, separated by tabs (.tsv, .tsv.gz)"
    ),
    catalogue: Path = typer.Argument(..., help="The catalogue, entities.jsonl"),
    output_path: Path = typer.Argument(..., help="Folder of the dictionary"),
    sentences: List[Path] = typer.Option(
        [],
        "--sentences",
        "-s",
        help="Text with links (.jsonl, .jsonl.gz, as for `spacy elq convert`); may be given several times",
    ),
) -> None:
    """Build the dictionary for `elq_tagme`: which texts are links, and to which entities.

    Titles and aliases in the catalogue count as one link each, in addition to the anchors. The sentences show
    how often the same words are not a link, and which entities are linked from the same page (the field
    "page"; without it, every sentence is its own page). Without sentences, all names are equally likely to be
    links, and no entities are related. An existing dictionary is replaced only when the new one is complete.
    """
    from ..baselines.tagme.dictionary import build_dictionary

    dictionary, report = build_dictionary(anchors, catalogue, output_path, sentences=sentences, progress=True)
    msg.good(f"{output_path}: {dictionary.stamp['anchors']} names of {len(dictionary)} entities")
    msg.text(
        f"{report.anchors} anchors; {report.links} links in {report.sentences} sentences of {report.pages} pages"
    )
    if report.unknown:
        ids = ", ".join(report.examples)
        msg.warn(f"{report.unknown} anchors have an entity that is not in the catalogue, such as {ids}")
    if report.foreign:
        msg.warn(f"{report.foreign} links of the sentences have an entity that is not in the catalogue")
    if not sentences:
        msg.warn("No sentences: every name counts as a link wherever it occurs, and no entities are related")
