"""A stream of records: texts in, links out."""

import json
from pathlib import Path
from typing import IO, Any, Dict, Iterable, Iterator, List, Tuple

from spacy.language import Language
from spacy.tokens import Doc

from ..errors import ELQError, Errors
from ..files import check_text, parse_json, replace_file

_CHUNK = 1 << 16


def read_waiting(stream: IO[bytes]) -> Iterator[List[bytes]]:
    """Read lines as they come: one read takes what is there, and only waits if there is nothing.

    stream (IO[bytes]): Buffered, such as `sys.stdin.buffer`.
    YIELDS (List[bytes]): The lines that were complete after a read; the last one may have no line end.
    """
    parts: List[bytes] = []
    while data := stream.read1(_CHUNK):  # type: ignore[attr-defined]
        parts.append(data)
        if b"\n" in data:
            *lines, rest = b"".join(parts).split(b"\n")
            parts = [rest] if rest else []
            yield lines
    if parts:
        yield [b"".join(parts)]


def read_records(
    lines: Iterable[bytes], *, is_jsonl: bool, name: str, first: int = 1
) -> Iterator[Dict[str, Any]]:
    """Read input lines.

    lines (Iterable[bytes]): The lines, with or without their ends.
    is_jsonl (bool): Whether they are JSON objects, or text.
    name (str): Of the input, for messages.
    first (int): The number of the first line.
    YIELDS (Dict[str, Any]): Objects with "text"; a blank line of text is an empty text, a blank line of
        JSONL is skipped.
    """
    for number, line in enumerate(lines, first):
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
    record = parse_json(text)
    if not isinstance(record["text"], str):
        raise TypeError("`text` is not a string")
    check_text(record)
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

    alternatives (int): How many of the candidates of each link are returned, the linked entity first.
    batch_size (int): Records in one batch.
    n_process (int): Worker processes.
    YIELDS (Dict[str, Any]): The records with "links" added.
    """
    pairs: Iterator[Tuple[str, Dict[str, Any]]] = ((record["text"], record) for record in records)
    for doc, record in nlp.pipe(pairs, as_tuples=True, batch_size=batch_size, n_process=n_process):
        yield {**record, "links": list(doc_links(doc, alternatives))}


def link_waiting(
    nlp: Language, stream: IO[bytes], *, is_jsonl: bool, name: str, **settings: Any
) -> Iterator[Dict[str, Any]]:
    """Link lines as they come: no line waits for later ones to fill a batch.

    stream (IO[bytes]): See `read_waiting`.
    is_jsonl, name (bool, str): See `read_records`.
    settings (Any): Those of `link`.
    YIELDS (Dict[str, Any]): The records with "links" added, in order.
    """
    first = 1
    for lines in read_waiting(stream):
        records = read_records(lines, is_jsonl=is_jsonl, name=name, first=first)
        yield from link(nlp, records, **settings)
        first += len(lines)


def write_results(results: Iterable[Dict[str, Any]], path: Path) -> None:
    """Write results to a file, one JSON object per line. An existing file is replaced when all are written.

    RAISES (ELQError): If a line of the input is invalid. The message says where the finished results are.
    """
    with replace_file(path, keep=True) as new, new.open("w", encoding="utf8") as file_:
        for result in results:
            file_.write(to_line(result))


def to_line(result: Dict[str, Any]) -> str:
    """RETURNS (str): A result as a line of JSONL."""
    return json.dumps(result, ensure_ascii=False) + "\n"


def doc_links(doc: Doc, alternatives: int) -> Iterator[Dict[str, Any]]:
    """YIELDS (Dict[str, Any]): The links of a doc in plain types; offsets are characters.

    alternatives (int): How many of the candidates of each link are returned, the linked entity first.
    """
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
                    for alternative in ent._.elq_alternatives[:alternatives]
                ],
            }
