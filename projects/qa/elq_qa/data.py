"""The raw files: questions, articles, gold entities, and the lines of any compressed file."""

import gzip
import json
import lzma
from collections import defaultdict
from pathlib import Path
from typing import IO, Any, Dict, Iterator, List

from .types import QAError, Question

_OPEN: Dict[str, Any] = {".gz": gzip.open, ".xz": lzma.open}


def read_lines(path: Path) -> Iterator[str]:
    """YIELDS (str): The lines of a text file, plain, `.gz` or `.xz`, without their ends."""
    if not path.is_file():
        raise QAError(f"{path} is not a file. Name the data with --vars.data FOLDER.")
    file_: IO[str]
    with _OPEN.get(path.suffix, open)(path, "rt", encoding="utf8") as file_:
        for line in file_:
            yield line.rstrip("\n")


def read_records(path: Path) -> Iterator[Dict[str, Any]]:
    """YIELDS (Dict[str, Any]): The records of a JSONL file."""
    for line in read_lines(path):
        if line.strip():
            yield json.loads(line)


def read_questions(path: Path) -> List[Question]:
    """Read a question set.

    path (Path): JSONL with `qid`, `question`, `answers` and perhaps `webqsp_el`; with ".gz" behind if only
        that file is there.
    RETURNS (List[Question]): The questions.
    """
    packed = path.with_name(path.name + ".gz")
    return [
        Question(x["qid"], x["question"], tuple(x["answers"]), x.get("webqsp_el", ""))
        for x in read_records(packed if packed.is_file() and not path.is_file() else path)
    ]


def read_gold(folder: Path, names: str = "webqsp_el_*") -> Dict[str, List[str]]:
    """Read the gold entities of WebQSP_EL.

    names (str): Which files, without their suffix.
    RETURNS (Dict[str, List[str]]): From the id of each question to those of its entities, in the order of the
        text.
    """
    records = (x for path in sorted(folder.glob(f"{names}.jsonl")) for x in read_records(path))
    return {x["qid"]: list(dict.fromkeys(span["id"] for span in x["spans"])) for x in records}


def read_merges(path: Path) -> Dict[str, str]:
    """RETURNS (Dict[str, str]): From ids that went to those that stay."""
    return {old: new for old, new, *_ in (line.split("\t") for line in read_lines(path))}


def read_articles(paths: List[Path], merges: Dict[str, str]) -> Dict[str, List[str]]:
    """RETURNS (Dict[str, List[str]]): The articles of each entity, in the order of the files."""
    articles: Dict[str, List[str]] = defaultdict(list)
    for path in paths:
        for record in read_records(path):
            articles[merges.get(record["id"], record["id"])].append(record["text"])
    return articles
