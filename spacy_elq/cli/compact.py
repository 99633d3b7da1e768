"""`spacy elq compact`."""

from pathlib import Path

import typer
from wasabi import msg

from ._util import command


@command("compact")
def compact_cli(
    index_path: Path = typer.Argument(..., help="The index"),
    force: bool = typer.Option(
        False, "--force", "-F", help="Build the back end again even if nothing has changed, after damage"
    ),
) -> None:
    """Fold what was added and removed into the vectors and the back end of an index.

    Others can search and change the index meanwhile. Until then, new vectors are searched one by one, which
    takes longer the more there are. Entities are not encoded again.
    """
    from ..index import compact_index

    if compact_index(index_path, force=force, progress=True):
        msg.good(f"{index_path}: compacted")
    else:
        msg.info(f"{index_path}: nothing to do")
