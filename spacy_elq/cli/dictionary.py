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
    """Make the dictionary of `elq_tagme`: which words are links, and to which entities.

    The names of the catalogue (titles and aliases) count as one link each, besides those of the anchors. The
    sentences tell how often the same words are no link, and which entities are linked from one page: give
    each the field "page", or it counts as a page of its own. Without sentences, all names are equally likely
    links, and entities are not related. A dictionary that is in the folder is replaced only when the new one is
    complete.
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
        msg.warn("No sentences: every name counts as a link wherever it stands, and no entities as related")
