"""A stream of records: texts in, links out."""

import json
from pathlib import Path
from typing import Any, Dict, Iterable, Iterator, Tuple

from spacy.language import Language
from spacy.tokens import Doc

from ..errors import ELQError, Errors
from ..files import check_text, parse_json, replace_file


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

    YIELDS (Dict[str, Any]): The records with "links" added.
    """
    pairs: Iterator[Tuple[str, Dict[str, Any]]] = ((record["text"], record) for record in records)
    for doc, record in nlp.pipe(pairs, as_tuples=True, batch_size=batch_size, n_process=n_process):
        yield {**record, "links": list(_links(doc, alternatives))}


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
