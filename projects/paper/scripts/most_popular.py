"""Cut a catalogue to its most popular entities."""

import heapq
from pathlib import Path

import srsly
import typer
from tqdm import tqdm


def main(
    catalogue: Path = typer.Argument(..., help="Catalogue in JSONL"),
    output: Path = typer.Argument(..., help="The smaller catalogue"),
    count: int = typer.Option(100_000, help="Number of entities"),
) -> None:
    """Write the entities with the highest popularity, in the order of the catalogue."""
    records = srsly.read_jsonl(catalogue)
    values = [record.get("popularity", 0) for record in tqdm(records, desc="Popularity", unit=" entities")]
    chosen = set(heapq.nlargest(count, range(len(values)), key=values.__getitem__))
    with output.open("w", encoding="utf8") as file_, catalogue.open(encoding="utf8") as lines:
        file_.writelines(line for place, line in enumerate(lines) if place in chosen)
    typer.echo(f"{len(chosen)} of {len(values)} entities")


if __name__ == "__main__":
    typer.run(main)
