"""`spacy elq convert`."""

from pathlib import Path
from typing import Optional

import typer
from wasabi import msg

from ._util import command


@command("convert")
def convert_cli(
    input_path: Path = typer.Argument(
        ...,
        help="Question set: marked text (.txt), JSONL with character spans (.jsonl, .jsonl.gz) or EL4QA (.json)",
    ),
    output_path: Path = typer.Argument(..., help="The .spacy file to write; a folder with --chunk"),
    format: Optional[str] = typer.Option(
        None,
        "--format",
        "-f",
        help="Format of the input (marked, jsonl, el4qa, elq); by default from its suffix",
    ),
    lang: str = typer.Option("en", "--lang", "-l", help="Language code of the tokenizer"),
    entities: Optional[Path] = typer.Option(
        None, "--entities", "-e", help="Catalogue, to translate gold ids of another system (--ids) to its own"
    ),
    ids: str = typer.Option(
        "wikidata", "--ids", "-i", help='The system that gold ids are of, a key of "ids" in the catalogue'
    ),
    only: Optional[Path] = typer.Option(
        None, "--only", "-o", help="Take these questions only: a JSON list of question ids, or one a line"
    ),
    without: Optional[Path] = typer.Option(None, "--without", "-w", help="Leave these questions out"),
    chunk: int = typer.Option(
        0, "--chunk", "-c", min=0, help="Write a folder of files with so many questions each"
    ),
    limit: int = typer.Option(0, "--limit", "-n", min=0, help="Stop after so many questions; 0 takes all"),
) -> None:
    """Convert a question set with gold links to spaCy's binary format, for training and evaluation.

    Marked text has a question a line, mentions as [text](id), and lines "# kind" that name the kind of
    the questions below:

        # nickname

        what year did [shaq](Q169452) join the nba

    JSONL has "text" and "spans", each with "start", "end" (characters, half-open) and "id"; "complete":
    false says that not every mention is marked, so that training takes the rest for unknown. EL4QA is the
    JSON of WebQSP_EL and GraphQuestions_EL ("utterance", "entities", "entities_pos"); --format elq reads the
    same as the published code has it (tokenized/*.jsonl with "text", "mentions", "entity"; ids are titles).

    Gold links that do not fit the tokens are dropped and counted. All others go into the span group
    "gold_links" of each doc, and into doc.ents where they do not overlap.
    """
    from ..corpora.convert import convert

    report = convert(
        input_path,
        output_path,
        format=format,
        lang=lang,
        entities=entities,
        ids=ids,
        only=only,
        without=without,
        chunk=chunk,
        limit=limit,
    )
    msg.good(f"{output_path}: {report.questions} questions, {report.mentions} gold links")
    if any(report.kinds):
        kinds = ", ".join(f"{kind or 'none'} {n}" for kind, n in report.kinds.items())
        msg.text(f"Kinds: {kinds}")
    if report.left_out:
        msg.info(f"{report.left_out} questions left out (--only, --without)")
    if report.incomplete:
        msg.info(f"{report.incomplete} questions are partly marked: text without a mark counts as unknown")
    if report.unknown:
        msg.warn(f"{report.unknown} gold links have an id that the catalogue does not know; they keep it")
    if report.overlapping:
        msg.info(f"{report.overlapping} gold links overlap with others: in the span group only")
    if report.misfits:
        msg.warn(
            f"{report.misfits} gold links do not fit the tokens: not used for training, missed in tests. Such as"
        )
        for example in report.examples:
            msg.text(f"  {example}")
