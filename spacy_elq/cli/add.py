"""`spacy elq add`."""

from pathlib import Path
from typing import Optional

import typer
from wasabi import msg

from ._util import command


@command("add")
def add_cli(
    index_path: Path = typer.Argument(..., help="The index"),
    catalogue: Path = typer.Argument(..., help="The entities to add, entities.jsonl"),
    encoder: Optional[str] = typer.Option(
        None, "--encoder", "-e", help="Where the entity encoder is now; by default the index knows"
    ),
    batch_size: int = typer.Option(64, "--batch-size", "-b", min=1, help="Entities in one forward pass"),
) -> None:
    """Add entities to an index, or replace those whose ids are there.

    All of them are added in one transaction, or none. Pipelines that have the index open link to them from their
    next batch on. New vectors are searched one by one until `spacy elq compact` folds them in, which happens by
    itself when they become many.
    """
    from ..catalogue import read_catalogue
    from ..index import EntityIndex
    from ..model.entity_encoder import open_encoder

    index = EntityIndex.open(index_path)
    entities = list(read_catalogue(catalogue))
    made_by = open_encoder(index.meta["encoder"], index.path, name=encoder)
    added = index.put(entities, made_by, batch_size=batch_size)
    msg.good(f"{index_path}: {added.new} entities added, {added.replaced} replaced; {len(index)} in all")
    index.close()
