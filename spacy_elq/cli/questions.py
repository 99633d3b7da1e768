"""`spacy elq questions`."""

from pathlib import Path
from typing import List, Optional

import typer
from wasabi import msg

from ._util import command, print_next


@command("questions")
def questions_cli(
    catalogue: Path = typer.Argument(..., help="Catalogue, entities.jsonl"),
    output_path: Path = typer.Argument(
        ..., help="Question set to write: marked text (.txt) or JSONL with character spans (.jsonl)"
    ),
    per_entity: int = typer.Option(4, "--per-entity", "-n", min=1, help="Questions about each entity"),
    seed: int = typer.Option(0, "--seed", "-s", help="Another seed gives other questions"),
    templates: Optional[List[Path]] = typer.Option(
        None,
        "--templates",
        "-t",
        help='File of templates to use instead of those of the package; repeat it for several files, "default" stands for those of the package',
    ),
) -> None:
    """Write questions for a catalogue, to train a linker before there are real ones.

    The names of each entity, its title and aliases in turn, are put into templates. Some questions have a typo
    in the name, several entities or only a name; most are in lower case. A name that several entities share
    is followed by a word or two of the description that only one of them has. A tenth of the questions name
    no entity. The same seed gives the same questions.

    A file of templates has one per line, with {} in place of a name. A heading names the labels that the templates
    below it are for, "# general" those for all entities, "# none" texts that name no entity, and "# fillers"
    words that are no entity and may stand in place of one:

        # general

        price of {}

        {} or {}

        # PERSON, AUTHOR

        when was {} born

        # none

        what time is it

    Measure the linker with real questions: those from templates are easier.
    """
    from ..corpora.generate import write_questions

    report = write_questions(
        catalogue, output_path, templates=templates or [], per_entity=per_entity, seed=seed, progress=True
    )
    total = report.kinds.total() - report.left_out
    msg.good(f"{output_path}: {total} questions about {report.entities} entities")
    msg.text("Kinds: " + ", ".join(f"{kind} {count}" for kind, count in report.kinds.items()))
    if report.nameless:
        msg.warn(
            f"{report.nameless} entities have no questions: they share all names with others, and no word of the description tells them apart"
        )
    if report.left_out:
        msg.warn(
            f"{report.left_out} questions left out: marked text has no ids with parentheses or white space. Write JSONL (.jsonl) instead"
        )
    print_next(f"python -m spacy elq convert {output_path} corpus/train.spacy")
