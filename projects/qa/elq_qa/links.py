"""Links of questions: any pipeline that sets `doc.ents` is a linker. What it finds is kept in a file, so that
retrieval needs no linker.
"""

import json
from pathlib import Path
from typing import Dict, Iterable, List, Sequence

from spacy.language import Language
from spacy.tokens import Doc, Span
from tqdm import tqdm

from .data import read_records
from .types import Question, Row

Links = Dict[str, List[Row]]


def links_of(doc: Doc) -> List[Row]:
    """RETURNS (List[Row]): The linked entities of a doc, best first: `id`, `score`, `mention`. Without
    scores, all are 1.0 and in the order of the text.
    """
    found = [{"id": ent.kb_id_, "score": _score(ent), "mention": ent.text} for ent in doc.ents if ent.kb_id_]
    return sorted(found, key=lambda link: -link["score"])


def _score(ent: Span) -> float:
    score = ent._.elq_score if ent.has_extension("elq_score") else None
    return 1.0 if score is None else round(float(score), 4)


def link_questions(
    nlp: Language, questions: Sequence[Question], path: Path, *, stamp: str = "", batch_size: int = 64
) -> Links:
    """Link a question set and write it to a file; what the file has already is not linked again.

    nlp (Language): A pipeline that sets `doc.ents`.
    path (Path): JSONL with `qid` and `links`, a line for each question. Beside it is a file with the stamp.
    stamp (str): Of the pipeline; a file of another one is written anew.
    RETURNS (Links): The links of each question.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    stamp_path = path.with_suffix(".stamp")
    if not stamp_path.is_file() or stamp_path.read_text(encoding="utf8") != stamp:
        path.unlink(missing_ok=True)
        stamp_path.write_text(stamp, encoding="utf8")
    done = read_links(path) if path.is_file() else {}
    waiting = [question for question in questions if question.qid not in done]
    stream = nlp.pipe(((x.text, x.qid) for x in waiting), as_tuples=True, batch_size=batch_size)
    with path.open("a", encoding="utf8") as file_:
        for doc, qid in tqdm(stream, desc=path.stem, total=len(waiting), unit=" questions"):
            done[qid] = links_of(doc)
            file_.write(_to_line(qid, done[qid]))
    return done


def stamp_pipeline(pipeline: str) -> str:
    """RETURNS (str): What changes if the files of a pipeline are written again; "" for an installed
    package.
    """
    paths = sorted(path for path in Path(pipeline).rglob("*") if path.is_file())
    return "".join(f"{path} {path.stat().st_size} {path.stat().st_mtime_ns}\n" for path in paths)


def write_gold(questions: Iterable[Question], gold: Dict[str, List[str]], path: Path) -> None:
    """Write the gold entities of questions as a linker's file; questions without are left out."""
    path.parent.mkdir(parents=True, exist_ok=True)
    known = [(x.qid, gold[x.gold]) for x in questions if x.gold in gold]
    lines = [_to_line(qid, [{"id": id_, "score": 1.0, "mention": ""} for id_ in ids]) for qid, ids in known]
    path.write_text("".join(lines), encoding="utf8")


def read_links(path: Path) -> Links:
    """RETURNS (Links): The links of each question in a file."""
    return {record["qid"]: record["links"] for record in read_records(path)}


def _to_line(qid: str, links: List[Row]) -> str:
    return json.dumps({"qid": qid, "links": links}, ensure_ascii=False) + "\n"
