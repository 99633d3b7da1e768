"""Split a question set at random: questions for training, for development and, the rest, for the test."""

import random
from pathlib import Path
from typing import Dict, List, Sequence

import typer

from spacy_elq.corpora import Question
from spacy_elq.corpora.formats import read_marked, write_marked


def main(
    source: Path = typer.Argument(..., help="Marked questions"),
    folder: Path = typer.Argument(..., help="Folder for train.txt, dev.txt and test.txt"),
    train: int = typer.Option(40, help="Questions for training"),
    dev: int = typer.Option(15, help="Questions for development"),
    seed: int = typer.Option(0, help="Another seed gives another split"),
) -> None:
    """Write the parts of a question set, each grouped by kind."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, questions in split(list(read_marked(source)), seed, train=train, dev=dev).items():
        write_marked(questions, folder / f"{name}.txt")


def split(questions: Sequence[Question], seed: int, *, train: int, dev: int) -> Dict[str, List[Question]]:
    """RETURNS (Dict[str, List[Question]]): Questions for training, development and test, drawn at random."""
    drawn = random.Random(seed).sample(questions, len(questions))
    return {"train": drawn[:train], "dev": drawn[train : train + dev], "test": drawn[train + dev :]}


if __name__ == "__main__":
    typer.run(main)
