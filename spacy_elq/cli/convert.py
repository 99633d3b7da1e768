"""`spacy elq convert`."""

from pathlib import Path
from typing import Optional

import typer
from spacy.tokens import DocBin
from spacy.util import get_lang_class
from tqdm import tqdm
from wasabi import msg

from ..corpora import FORMATS, Report, guess_format, questions_to_docs, read_questions
from ..errors import ELQError, Errors
from ._util import command


@command("convert")
def convert_cli(
    input_path: Path = typer.Argument(
        ..., help="Question set: marked text (.txt) or JSONL with character spans (.jsonl)"
    ),
    output_path: Path = typer.Argument(..., help="The .spacy file to write"),
    format: Optional[str] = typer.Option(
        None,
        "--format",
        "-f",
        help=f"Format of the input ({', '.join(FORMATS)}); by default from its suffix",
    ),
    lang: str = typer.Option("en", "--lang", "-l", help="Language code of the tokenizer"),
) -> None:
    """Convert a question set with gold links to spaCy's binary format, for training and evaluation.

    Marked text has a question a line, mentions as [text](id), and lines "# kind" that name the kind of
    the questions below:

        # nickname

        what year did [shaq](Q169452) join the nba

    JSONL has "text" and "spans", each with "start", "end" (characters, half-open) and "id".

    Gold links that do not fit the tokens are dropped and counted. All others go into the span group
    "gold_links" of each doc, and into doc.ents where they do not overlap.
    """
    report = convert(input_path, output_path, format=format, lang=lang)
    msg.good(f"{output_path}: {report.questions} questions, {report.mentions} gold links")
    if any(report.kinds):
        kinds = ", ".join(f"{kind or 'none'} {n}" for kind, n in report.kinds.items())
        msg.text(f"Kinds: {kinds}")
    if report.overlapping:
        msg.info(f"{report.overlapping} gold links overlap with others: in the span group only")
    if report.misfits:
        msg.warn(f"{report.misfits} gold links do not fit the tokens and were dropped, such as")
        for example in report.examples:
            msg.text(f"  {example}")


def convert(input_path: Path, output_path: Path, *, format: Optional[str] = None, lang: str = "en") -> Report:
    """Convert a question set.

    RETURNS (Report): What was read and dropped.
    """
    try:
        nlp = get_lang_class(lang)()
    except ImportError as err:
        raise ELQError(Errors.E046.format(found=lang, problem=str(err).splitlines()[0])) from None
    questions = read_questions(input_path, format=format or guess_format(input_path))
    report = Report()
    bar = tqdm(questions, desc="Convert", unit=" questions", mininterval=1.0)
    docs = DocBin(store_user_data=True)
    for doc in questions_to_docs(bar, nlp, report):
        docs.add(doc)
    output_path.parent.mkdir(parents=True, exist_ok=True)
    docs.to_disk(output_path)
    return report
