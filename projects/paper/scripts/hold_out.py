"""Hold out a part of a question set: write the ids of every n-th question, for `spacy elq convert --only` and
`--without`.
"""

from pathlib import Path

import srsly
import typer


def main(
    questions: Path = typer.Argument(..., help="The question set, JSONL with qid"),
    output: Path = typer.Argument(..., help="The file of ids to write, one per line"),
    every: int = typer.Option(10, help="Hold out one question of so many"),
) -> None:
    """Hold out every n-th question."""
    records = list(srsly.read_jsonl(questions))
    output.write_text("".join(f"{record['qid']}\n" for record in records[::every]), encoding="utf8")


if __name__ == "__main__":
    typer.run(main)
