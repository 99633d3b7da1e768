"""`spacy elq remove`."""

from pathlib import Path
from typing import List

import typer
from wasabi import msg

from ._util import command


@command("remove")
def remove_cli(
    index_path: Path = typer.Argument(..., help="The index"),
    ids: List[str] = typer.Argument(..., help="Ids of the entities to remove"),
) -> None:
    """Remove entities from an index, in one transaction.

    Pipelines that have the index open do not link to them any more from their next batch on. Unknown ids are
    ignored.
    """
    from ..index import EntityIndex

    index = EntityIndex.open(index_path)
    unknown = [id_ for id_ in ids if id_ not in index]
    count = index.remove(ids)
    if unknown:
        # what a terminal sends may be no text
        shown = ", ".join(unknown[:10]).encode("utf8", "backslashreplace").decode("utf8")
        msg.warn(f"Not in the index: {shown}")
    msg.good(f"{index_path}: {count} entities removed, {len(index)} left")
    index.close()
