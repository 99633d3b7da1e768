"""`spacy elq convert`."""

from pathlib import Path
from typing import List, Optional

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
    entities: List[Path] = typer.Option(
        [],
        "--entities",
        "-e",
        help="Catalogue for translating gold ids of another system (--ids) to its own; may be given several times",
    ),
    ids: str = typer.Option(
        "wikidata", "--ids", "-i", help='Id system of the gold ids, a key of "ids" in the catalogue'
    ),
    only: Optional[Path] = typer.Option(
        None, "--only", "-o", help="Only use these questions: a JSON list of question ids, or one per line"
    ),
    without: Optional[Path] = typer.Option(None, "--without", "-w", help="Leave out these questions"),
    chunk: int = typer.Option(
        0, "--chunk", "-c", min=0, help="Write a folder of files with this many questions each"
    ),
    limit: int = typer.Option(0, "--limit", "-n", min=0, help="Stop after this many questions; 0 for all"),
) -> None:
    """Convert a question set with gold links to spaCy's binary format, for training and evaluation.

    Marked text has one question per line, with mentions as [text](id). A line "# kind" (with a space) names the
    kind of the questions below it, and "#" alone ends it:

        # nickname

        what year did [shaq](Q169452) join the nba

    JSONL has "text" and "spans", each with "start", "end" (characters, half-open) and "id"; "complete":
    false says that not every mention is marked, so that training treats the rest as unknown. EL4QA is the
    JSON of WebQSP_EL and GraphQuestions_EL ("utterance", "entities", "entities_pos"); --format elq reads the
    version used by the published code (tokenized/*.jsonl with "text", "mentions", "entity"; ids are titles).

    Gold links go into the span group "gold_links" of each doc, and into doc.ents where they do not overlap. Those
    that do not match token boundaries are counted: they are not used in training, and missed in evaluation.
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
        msg.info(f"{report.incomplete} questions are partly marked: unmarked text counts as unknown")
    if report.unknown:
        msg.warn(f"{report.unknown} gold links have an id that is not in the catalogue; they keep it")
    if report.overlapping:
        msg.info(f"{report.overlapping} gold links overlap with others: in the span group only")
    if report.misfits:
        msg.warn(
            f"{report.misfits} gold links do not match token boundaries: not used in training, missed in evaluation. Examples:"
        )
        for example in report.examples:
            msg.text(f"  {example}")
