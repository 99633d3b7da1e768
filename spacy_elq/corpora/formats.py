"""The formats of question sets that `elq convert` reads, and that of anchors."""

import gzip
import json
import lzma
import math
import re
import shutil
import zlib
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO, Any, Callable, Dict, Iterable, Iterator, List, Optional, Tuple, Union

from ..errors import ELQError, Errors
from ..files import check_file, check_text, parse_json, replace_file
from .base import Question, QuestionSpan

_MARK = re.compile(r"\[([^\[\]]+)\]\(([^()\s]+)\)")
_HEADING = re.compile(r"#+(?:\s(.*))?", re.DOTALL)
_ESCAPED = re.compile(r"\\+#")
_OPENERS: Dict[str, Callable] = {".gz": gzip.open, ".xz": lzma.open}


def read_marked(path: Path) -> Iterator[Question]:
    r"""Plain text, one question per line, mentions marked as `[text](id)`.

    A line "# kind" names the kind of the questions below it, "#" alone ends it. A line that begins with "\#"
    is a question that begins with "#".
    """
    kind = ""
    for number, line in read_lines(path):
        heading = parse_heading(line)
        if heading is None:
            yield _parse_marked(path, number, line, kind)
        else:
            kind = heading


def parse_heading(line: str) -> Optional[str]:
    """RETURNS (Optional[str]): What a heading says, or None for any other line. Behind the hash of a heading
    is white space or nothing: "#hashtag" is text.
    """
    heading = _HEADING.fullmatch(line)
    return (heading[1] or "").strip() if heading else None


def write_marked(questions: Iterable[Question], path: Path) -> int:
    """Write questions as `read_marked` reads them, grouped by kind, those without a kind first. An existing
    file is replaced when all are written.

    RETURNS (int): How many were left out because marked text cannot hold them; see `to_marked`.
    """
    left_out = 0
    with replace_file(path) as new, new.open("wb") as file_, ExitStack() as stack:
        # the questions of each other kind wait on disk: there may be more than memory holds
        parts: Dict[str, IO[bytes]] = {"": file_}
        for question in questions:
            line, kind = to_marked(question), " ".join(question.kind.split())
            if line is None:
                left_out += 1
                continue
            if kind not in parts:
                parts[kind] = stack.enter_context(TemporaryFile())
                parts[kind].write(f"# {kind}\n".encode())
            parts[kind].write(f"{line}\n".encode())
        for part in list(parts.values())[1:]:
            part.seek(0)
            shutil.copyfileobj(part, file_)
    return left_out


def to_marked(question: Question) -> Optional[str]:
    """RETURNS (Optional[str]): A question as a line of marked text, or None if it would be read as something
    else: a mention has square brackets, an id has parentheses or white space, mentions overlap, the text is
    blank or has several lines.
    """
    line, at = "", 0
    given = sorted(question.spans, key=lambda span: span.start)
    for span in given:
        line += f"{question.text[at : span.start]}[{question.text[span.start : span.end]}]({span.id})"
        at = span.end
    line += question.text[at:]
    if parse_heading(line) is not None or _ESCAPED.match(line):
        line = f"\\{line}"
    if not line.strip() or "\n" in line or line.endswith("\r") or line.startswith("\ufeff"):
        return None
    text, spans = _unmark(line)
    return line if "](" not in text and (text, spans) == (question.text, given) else None


def read_jsonl(path: Path) -> Iterator[Question]:
    """JSONL: `text`, `spans` with `start`, `end` (characters, half-open) and `id`; optional `kind`, `qid`,
    `page`, and `complete: false` where not every mention is marked. The file may be compressed (.gz).
    """
    for number, record in _records(path):
        if not isinstance(record.get("text"), str):
            raise _error(path, number, "expected an object with a string `text`", json.dumps(record))
        given = record.get("spans")
        if not isinstance(given, (list, type(None))):
            raise _error(path, number, "`spans` must be a list", str(given))
        complete = record.get("complete", True)
        if not isinstance(complete, bool):
            raise _error(path, number, "`complete` must be true or false", str(complete))
        spans = [_parse_span(path, number, span) for span in given or []]
        _check_spans(path, number, record["text"], spans)
        kind, qid, page = str(record.get("kind") or ""), _id(record, "qid"), _id(record, "page")
        yield Question(record["text"], spans, kind, qid, complete, page)


def write_jsonl(questions: Iterable[Question], path: Path) -> int:
    """Write questions as `read_jsonl` reads them. An existing file is replaced when all are written.

    RETURNS (int): 0, since nothing has to be left out.
    """
    with replace_file(path) as new, new.open("w", encoding="utf8") as file_:
        for question in questions:
            spans = [{"start": span.start, "end": span.end, "id": span.id} for span in question.spans]
            record: Dict[str, Any] = {"text": question.text, "spans": spans, "kind": question.kind}
            if question.id:
                record["qid"] = question.id
            if not question.complete:
                record["complete"] = False
            if question.page:
                record["page"] = question.page
            file_.write(json.dumps(record, ensure_ascii=False) + "\n")
    return 0


def read_el4qa(path: Path) -> Iterator[Question]:
    """The JSON of WebQSP_EL and GraphQuestions_EL: a list of objects with `question_id`, `utterance`,
    `entities` (Wikidata ids) and `entities_pos` (their character ranges, half-open).
    """
    text = "\n".join(line for _, line in read_lines(path))
    try:
        records = parse_json(text)
    except ValueError as err:
        raise _error(path, getattr(err, "lineno", 1), f"not valid JSON ({err})", text) from None
    if not isinstance(records, list):
        raise _error(path, 1, "expected a list of questions", type(records).__name__)
    for number, record in enumerate(records, 1):
        where = f"question {number}"
        _check_text(path, where, record)
        if not isinstance(record, dict) or not isinstance(record.get("utterance"), str):
            raise _error(path, where, "expected an object with a string `utterance`", json.dumps(record))
        ids, ranges = record.get("entities") or [], record.get("entities_pos") or []
        if not isinstance(ids, list) or not isinstance(ranges, list) or len(ids) != len(ranges):
            problem = "`entities` and `entities_pos` must be lists of one length"
            raise _error(path, where, problem, json.dumps([ids, ranges]))
        spans = _parse_ranges(path, where, record["utterance"], ids, ranges)
        yield Question(record["utterance"], spans, id=_id(record, "question_id"))


def read_elq(path: Path) -> Iterator[Question]:
    """The training files of the published ELQ code (`tokenized/*.jsonl`): `id`, `text`, `mentions` (character
    ranges, half-open) and `entity`, the titles of their entities, which become the ids.

    The word pieces beside them (`tokenized_text_ids`, `tokenized_mention_idxs`) repeat the same.
    """
    for number, record in _records(path):
        if not isinstance(record.get("text"), str):
            raise _error(path, number, "expected a string `text`", json.dumps(record))
        titles, ranges = record.get("entity"), record.get("mentions")
        if not isinstance(titles, list) or not isinstance(ranges, list) or len(titles) != len(ranges):
            problem = "`entity` and `mentions` must be lists of one length"
            raise _error(path, number, problem, json.dumps([titles, ranges]))
        spans = _parse_ranges(path, number, record["text"], titles, ranges)
        yield Question(record["text"], spans, id=_id(record, "id"))


FORMATS: Dict[str, Callable[[Path], Iterator[Question]]] = {
    "marked": read_marked,
    "jsonl": read_jsonl,
    "el4qa": read_el4qa,
    "elq": read_elq,
}
WRITERS: Dict[str, Callable[[Iterable[Question], Path], int]] = {
    "marked": write_marked,
    "jsonl": write_jsonl,
}
_SUFFIXES = {".txt": "marked", ".md": "marked", ".jsonl": "jsonl", ".json": "el4qa"}


def guess_format(path: Path) -> str:
    """RETURNS (str): The format that a file's name suggests."""
    name = path.with_suffix("") if path.suffix.lower() == ".gz" else path
    suffix = name.suffix.lower()
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
    check_file(path, "Expected a question set.")
    return FORMATS[format](path)


def read_anchors(path: Path) -> Iterator[Tuple[str, str, float]]:
    """Read the texts of hyperlinks: text, entity id and count, separated by tabs. The file may be compressed.

    YIELDS (Tuple[str, str, float]): The three of each line.
    """
    check_file(path, "Expected lines of text, entity id and count.")
    for number, line in read_lines(path):
        fields = line.split("\t")
        if len(fields) != 3:
            raise _error(path, number, "expected text, entity id and count, separated by tabs", line)
        try:
            count = float(fields[2])
        except ValueError:
            count = math.nan
        if not 0 < count < math.inf:
            raise _error(path, number, "the count must be a number above 0", fields[2])
        yield fields[0], fields[1], count


def read_triples(path: Path) -> Iterator[Tuple[str, ...]]:
    """Read relations between entities: head, relation and tail, separated by tabs, then anything. A line of
    just these words is a heading. The file may be compressed.

    YIELDS (Tuple[str, ...]): The three of each line.
    """
    return _read_columns(path, ("head", "relation", "tail"))


def read_links(path: Path) -> Iterator[Tuple[str, ...]]:
    """Read hyperlinks between entities: page and linked, separated by tabs, then anything. A line of just
    these words is a heading. The file may be compressed.

    YIELDS (Tuple[str, ...]): The two of each line.
    """
    return _read_columns(path, ("page", "linked"))


def _read_columns(path: Path, names: Tuple[str, ...]) -> Iterator[Tuple[str, ...]]:
    """YIELDS (Tuple[str, ...]): The first fields of each line, as many as there are names."""
    check_file(path, f"Expected lines of {', '.join(names)}.")
    for number, line in read_lines(path):
        fields = tuple(line.split("\t")[: len(names)])
        if len(fields) < len(names) or not all(fields):
            raise _error(path, number, f"expected {', '.join(names)}, separated by tabs", line)
        if fields != names:
            yield fields


def _parse_marked(path: Path, number: int, line: str, kind: str) -> Question:
    text, spans = _unmark(line)
    if "](" in text:
        raise _error(path, number, "a mark that is not of the form [text](id)", line)
    return Question(text, spans, kind)


def _unmark(line: str) -> Tuple[str, List[QuestionSpan]]:
    """RETURNS (Tuple[str, List[QuestionSpan]]): The text of a line, and its gold links."""
    line = line[1:] if _ESCAPED.match(line) else line
    text, spans, at = "", [], 0
    for mark in _MARK.finditer(line):
        text += line[at : mark.start()]
        spans.append(QuestionSpan(len(text), len(text) + len(mark[1]), mark[2]))
        text += mark[1]
        at = mark.end()
    return text + line[at:], spans


def _parse_span(path: Path, where: Union[int, str], span: Any) -> QuestionSpan:
    values: List[Any] = [span.get(key) for key in ("start", "end", "id")] if isinstance(span, dict) else []
    if [type(value) for value in values] != [int, int, str] or not values[2]:
        problem = "a span needs whole numbers `start` and `end`, and a string `id`"
        raise _error(path, where, problem, json.dumps(span))
    return QuestionSpan(*values)


def _parse_ranges(
    path: Path, where: Union[int, str], text: str, ids: List[Any], ranges: List[Any]
) -> List[QuestionSpan]:
    spans = [
        _parse_span(path, where, {"start": r[0], "end": r[1], "id": id_} if _is_pair(r) else r)
        for id_, r in zip(ids, ranges, strict=True)
    ]
    _check_spans(path, where, text, spans)
    return spans


def _check_spans(path: Path, where: Union[int, str], text: str, spans: List[QuestionSpan]) -> None:
    for span in spans:
        if not 0 <= span.start < span.end <= len(text):
            raise _error(path, where, "a span outside of the text", str(span))


def _id(record: Dict[str, Any], key: str) -> str:
    return "" if record.get(key) is None else str(record[key])


def _is_pair(value: Any) -> bool:
    return isinstance(value, list) and len(value) == 2


def _records(path: Path) -> Iterator[Tuple[int, Dict[str, Any]]]:
    """YIELDS (Tuple[int, Dict[str, Any]]): Number and object of the lines of JSONL."""
    for number, line in read_lines(path):
        try:
            record = parse_json(line)
        except ValueError as err:
            raise _error(path, number, f"not valid JSON ({err})", line) from None
        if not isinstance(record, dict):
            raise _error(path, number, "expected a JSON object", line)
        _check_text(path, number, record)
        yield number, record


def _check_text(path: Path, where: Union[int, str], record: Any) -> None:
    try:
        check_text(record)
    except ValueError as err:
        raise _error(path, where, f"text that is not valid Unicode ({err})", json.dumps(record)) from None


def read_lines(path: Path) -> Iterator[Tuple[int, str]]:
    """YIELDS (Tuple[int, str]): Number and text of the lines that are not blank."""
    number = 0
    try:
        with _OPENERS.get(path.suffix.lower(), open)(path, "rb") as file_:
            for number, data in enumerate(file_, 1):
                line = data.decode("utf-8-sig").rstrip("\r\n")
                if line.strip():
                    yield number, line
    except UnicodeDecodeError as err:
        raise _error(path, number, f"not UTF-8 ({err.reason})", repr(err.object)) from None
    except (EOFError, gzip.BadGzipFile, zlib.error, lzma.LZMAError) as err:
        tool = "xz" if path.suffix.lower() == ".xz" else "gzip"
        raise _error(path, number + 1, f"damaged or not compressed with {tool} ({err})", "") from None


def _error(path: Path, where: Union[int, str], problem: str, found: str) -> ELQError:
    # a number is a line number
    place = f"line {where}" if isinstance(where, int) else where
    return ELQError(Errors.E040.format(path=path, where=place, problem=problem, found=found[:120]))
