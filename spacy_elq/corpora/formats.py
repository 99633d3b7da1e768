"""The formats that `elq convert` reads."""

import json
import re
from pathlib import Path
from typing import Any, Callable, Dict, Iterator

from ..errors import ELQError, Errors
from .base import Question, QuestionSpan

_MARK = re.compile(r"\[([^\[\]]+)\]\(([^()\s]+)\)")


def read_marked(path: Path) -> Iterator[Question]:
    """Plain text, a question a line, mentions marked as `[text](id)`.

    A line that begins with "#" names the kind of the questions below it.
    """
    kind = ""
    for number, line in _lines(path):
        if line.startswith("#"):
            kind = line.lstrip("#").strip()
            continue
        yield _parse_marked(path, number, line, kind)


def read_jsonl(path: Path) -> Iterator[Question]:
    """JSONL: `text`, `spans` with `start`, `end` (characters, half-open) and `id`; optional `kind`."""
    for number, line in _lines(path):
        try:
            record = json.loads(line)
        except ValueError as err:
            raise _error(path, number, f"not valid JSON ({err})", line) from None
        if not isinstance(record, dict) or not isinstance(record.get("text"), str):
            raise _error(path, number, "expected an object with a string `text`", line)
        spans = [_parse_span(path, number, span) for span in record.get("spans") or []]
        for span in spans:
            if not 0 <= span.start < span.end <= len(record["text"]):
                raise _error(path, number, "a span outside of the text", str(span))
        yield Question(record["text"], spans, str(record.get("kind") or ""))


FORMATS: Dict[str, Callable[[Path], Iterator[Question]]] = {
    "marked": read_marked,
    "jsonl": read_jsonl,
}
_SUFFIXES = {".txt": "marked", ".md": "marked", ".jsonl": "jsonl"}


def guess_format(path: Path) -> str:
    """RETURNS (str): The format that a file's name suggests."""
    if path.suffix not in _SUFFIXES:
        raise ELQError(Errors.E042.format(found=path.suffix, known=f"{', '.join(FORMATS)} (--format)"))
    return _SUFFIXES[path.suffix]


def read_questions(path: Path, *, format: str) -> Iterator[Question]:
    """Read a question set.

    path (Path): The file.
    format (str): A key of `FORMATS`.
    YIELDS (Question): The questions in order.
    """
    if format not in FORMATS:
        raise ELQError(Errors.E042.format(found=format, known=", ".join(FORMATS)))
    if not path.is_file():
        raise ELQError(Errors.E022.format(path=path, hint="Expected a question set."))
    return FORMATS[format](path)


def _parse_marked(path: Path, number: int, line: str, kind: str) -> Question:
    text, spans, at = "", [], 0
    for mark in _MARK.finditer(line):
        text += line[at : mark.start()]
        spans.append(QuestionSpan(len(text), len(text) + len(mark[1]), mark[2]))
        text += mark[1]
        at = mark.end()
    text += line[at:]
    if "](" in text:
        raise _error(path, number, "a mark that is not of the form [text](id)", line)
    return Question(text, spans, kind)


def _parse_span(path: Path, number: int, span: Any) -> QuestionSpan:
    try:
        return QuestionSpan(int(span["start"]), int(span["end"]), str(span["id"]))
    except (TypeError, KeyError, ValueError):
        problem = "a span needs `start`, `end` and `id`"
        raise _error(path, number, problem, json.dumps(span)) from None


def _lines(path: Path) -> Iterator[Any]:
    """YIELDS: Number and text of the lines that are not blank."""
    with path.open(encoding="utf8") as file_:
        for number, line in enumerate(file_, 1):
            if line.strip():
                yield number, line.rstrip("\n")


def _error(path: Path, number: int, problem: str, found: str) -> ELQError:
    return ELQError(Errors.E040.format(path=path, line=number, problem=problem, found=found[:120]))
