"""The formats that `elq convert` reads."""

import json
import re
from pathlib import Path
from typing import Any, Callable, Dict, Iterator, List, Tuple

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
        given = record.get("spans")
        if not isinstance(given, (list, type(None))):
            raise _error(path, number, "`spans` must be a list", str(given))
        spans = [_parse_span(path, number, span) for span in given or []]
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
    suffix = path.suffix.lower()
    if suffix not in _SUFFIXES:
        raise ELQError(Errors.E042.format(found=path.suffix, known=f"{', '.join(FORMATS)} (--format)"))
    return _SUFFIXES[suffix]


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
    values: List[Any] = [span.get(key) for key in ("start", "end", "id")] if isinstance(span, dict) else []
    if [type(value) for value in values] != [int, int, str] or not values[2]:
        problem = "a span needs whole numbers `start` and `end`, and a string `id`"
        raise _error(path, number, problem, json.dumps(span))
    return QuestionSpan(*values)


def _lines(path: Path) -> Iterator[Tuple[int, str]]:
    """YIELDS (Tuple[int, str]): Number and text of the lines that are not blank."""
    with path.open("rb") as file_:
        for number, data in enumerate(file_, 1):
            try:
                line = data.decode("utf-8-sig").rstrip("\r\n")
            except UnicodeDecodeError as err:
                raise _error(path, number, f"not UTF-8 ({err.reason})", repr(data)) from None
            if line.strip():
                yield number, line


def _error(path: Path, number: int, problem: str, found: str) -> ELQError:
    return ELQError(Errors.E040.format(path=path, line=number, problem=problem, found=found[:120]))
