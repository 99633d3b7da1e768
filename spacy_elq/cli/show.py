"""`spacy elq show`."""

import json
from pathlib import Path
from typing import Optional

import typer

from ..errors import ELQError, Errors
from ._util import command


@command("show")
def show_cli(
    index_path: Path = typer.Argument(..., help="The index"),
    id_: Optional[str] = typer.Argument(None, metavar="[ID]", help="Id of an entity"),
    name: Optional[str] = typer.Option(None, "--name", "-n", help="A name: shows all entities that have it"),
) -> None:
    """Show an entity of an index, all entities with a name, or what the index is.

    Entities are written as JSON, one per line, as in a catalogue.
    """
    from ..catalogue import entity_to_dict
    from ..index import EntityIndex

    index = EntityIndex.open(index_path)
    if id_ is None and name is None:
        shown = [{"entities": len(index), "changes": index.changes, **index.meta}]
    elif id_ is not None and id_ not in index:
        raise ELQError(Errors.E168.format(path=index_path, found=id_))
    else:
        found = [index[id_]] if id_ is not None else index.find(str(name))
        if not found:
            raise ELQError(Errors.E184.format(path=index_path, found=name))
        shown = [entity_to_dict(entity) for entity in found]
    for record in shown:
        typer.echo(json.dumps(record, ensure_ascii=False))
    index.close()
