"""`spacy elq link`."""

import json
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Dict, Iterable, Iterator, Optional, Tuple

import typer
from spacy.language import Language
from spacy.tokens import Doc
from tqdm import tqdm

from ..errors import ELQError, Errors
from ._util import command, load_pipeline, set_settings


@command("link")
def link_cli(
    pipeline: str = typer.Argument(..., help="Trained pipeline"),
    input_path: Path = typer.Argument(
        Path("-"),
        help='Text (a question a line) or JSONL with "text"; - for standard input',
        allow_dash=True,
    ),
    output_path: Path = typer.Argument(Path("-"), help="JSONL; - for standard output", allow_dash=True),
    jsonl: Optional[bool] = typer.Option(
        None,
        "--jsonl/--text",
        help="What the input is; by default by its suffix, text for standard input",
    ),
    threshold: Optional[float] = typer.Option(
        None, "--threshold", "-t", help="Least joint probability, instead of the pipeline's"
    ),
    alternatives: int = typer.Option(
        3, "--alternatives", "-n", help="Scored alternatives to write for each link"
    ),
    batch_size: int = typer.Option(64, "--batch-size", "-b", help="Questions in one batch"),
    n_process: int = typer.Option(1, "--n-process", "-p", help="Worker processes"),
) -> None:
    """Link text: a question in, a JSON object out, in the same order, as a stream.

        echo "who is the president of france" | python -m spacy elq link models/elq

    Each object has "text", "links" with "start", "end" (characters, half-open), "mention", "id", "title",
    "label", "score" and "alternatives", and whatever else the input object had.
    """
    nlp, linker = load_pipeline(pipeline)
    if threshold is not None:
        set_settings(nlp, linker, threshold=threshold, first_threshold=None)
    is_jsonl = input_path.suffix == ".jsonl" if jsonl is None else jsonl
    if str(input_path) != "-" and input_path.absolute() == output_path.absolute():
        raise ELQError(Errors.E045.format(path=input_path))
    with ExitStack() as stack:
        source: Iterable[bytes] = sys.stdin.buffer
        if str(input_path) != "-":
            if not input_path.is_file():
                raise ELQError(Errors.E022.format(path=input_path, hint="Expected text or JSONL."))
            source = stack.enter_context(input_path.open("rb"))
        target: Any = sys.stdout
        if str(output_path) != "-":
            output_path.parent.mkdir(parents=True, exist_ok=True)
            target = stack.enter_context(output_path.open("w", encoding="utf8"))
        records = read_records(source, is_jsonl=is_jsonl, name=str(input_path))
        results = link(nlp, records, alternatives=alternatives, batch_size=batch_size, n_process=n_process)
        for result in tqdm(results, desc="Link", unit=" questions", disable=target is sys.stdout):
            target.write(json.dumps(result, ensure_ascii=False) + "\n")
            target.flush()


def read_records(lines: Iterable[bytes], *, is_jsonl: bool, name: str) -> Iterator[Dict[str, Any]]:
    """Read input lines.

    YIELDS (Dict[str, Any]): Objects with "text"; a blank line of text is an empty text, a blank line of
        JSONL is skipped.
    """
    for number, line in enumerate(lines, 1):
        try:
            text = line.decode("utf-8-sig").rstrip("\r\n")
            if not is_jsonl:
                yield {"text": text}
            elif text.strip():
                yield _parse_record(text)
        except (ValueError, TypeError, KeyError) as err:
            expected = 'a JSON object with a string "text"' if is_jsonl else "text in UTF-8"
            problem = f"expected {expected} ({type(err).__name__}: {err})"
            found = line[:120].decode("utf8", errors="replace").strip()
            where = f"line {number}"
            raise ELQError(Errors.E040.format(path=name, where=where, problem=problem, found=found)) from None


def _parse_record(text: str) -> Dict[str, Any]:
    record = json.loads(text)
    if not isinstance(record["text"], str):
        raise TypeError("`text` is not a string")
    json.dumps(record, ensure_ascii=False).encode("utf8")
    return record


def link(
    nlp: Language,
    records: Iterable[Dict[str, Any]],
    *,
    alternatives: int = 3,
    batch_size: int = 64,
    n_process: int = 1,
) -> Iterator[Dict[str, Any]]:
    """Link a stream of records.

    YIELDS (Dict[str, Any]): The records with "links" added.
    """
    pairs: Iterator[Tuple[str, Dict[str, Any]]] = ((record["text"], record) for record in records)
    for doc, record in nlp.pipe(pairs, as_tuples=True, batch_size=batch_size, n_process=n_process):
        yield {**record, "links": list(_links(doc, alternatives))}


def _links(doc: Doc, alternatives: int) -> Iterator[Dict[str, Any]]:
    for ent in doc.ents:
        if ent._.elq_score is not None:
            yield {
                "start": ent.start_char,
                "end": ent.end_char,
                "mention": ent.text,
                "id": ent.kb_id_,
                "title": ent._.elq_title,
                "label": ent.label_,
                "score": round(ent._.elq_score, 6),
                "alternatives": [
                    {**alternative, "score": round(alternative["score"], 6)}
                    for alternative in ent._.elq_alternatives[1 : 1 + alternatives]
                ],
            }
