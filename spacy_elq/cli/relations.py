"""`spacy elq relations`."""

from pathlib import Path
from typing import Optional

import typer
from wasabi import msg

from ._util import command, print_next


@command("relations")
def relations_cli(
    triples: Path = typer.Argument(
        ...,
        help="Relations between entities: head, relation and tail, separated by tabs (.tsv, .tsv.gz, .tsv.xz)",
    ),
    index: Path = typer.Argument(..., help="Folder of the index"),
    output_path: Path = typer.Argument(..., help="Folder of the relations"),
    links: Optional[Path] = typer.Option(
        None, "--links", "-l", help="Hyperlinks, one more relation: page and linked entity, separated by tabs"
    ),
    encoder: Optional[str] = typer.Option(
        None, help="Folder of the encoder that gives the word vectors, if not that of the index"
    ),
    width: int = typer.Option(50, min=1, help="Length of the vectors"),
    epochs: int = typer.Option(50, min=1, help="How often TransE sees each relation"),
    seed: int = typer.Option(0, help="Seed of TransE"),
) -> None:
    """Make what `elq_vcg` knows of entities: their names by words, their relations, and vectors.

    Entities and relations get vectors by TransE; an entity without relations gets its vector in the index,
    reduced to the same length. Words get the embeddings of the encoder's word pieces. Existing relations are
    replaced only when the new ones are complete.
    """
    from ..baselines.vcg.build import build_relations

    _, report = build_relations(
        triples,
        index,
        output_path,
        links=links,
        encoder=encoder,
        width=width,
        epochs=epochs,
        seed=seed,
        progress=True,
    )
    msg.good(f"{output_path}: {report.kinds} relations of {report.entities} entities")
    msg.text(f"{report.triples} triples, {report.links} hyperlinks")
    if report.unknown:
        ids = ", ".join(report.examples)
        msg.warn(f"{report.unknown} of them have an entity that is not in the index, such as {ids}")
    print_next(f"python -m spacy elq init-config elq_vcg vcg.cfg --relations {output_path}")
