"""From a question set to spaCy's binary format."""

import shutil
from collections import ChainMap
from itertools import islice
from pathlib import Path
from typing import Iterable, Iterator, List, Optional, Sequence

from spacy.tokens import Doc, DocBin
from spacy.util import get_lang_class
from tqdm import tqdm

from ..errors import ELQError, Errors
from ..files import check_folder, check_output, replace_file
from .base import Report, questions_to_docs
from .choose import choose_questions, read_ids, read_translation, translate_ids
from .formats import guess_format, read_questions


def convert(
    input_path: Path,
    output_path: Path,
    *,
    format: Optional[str] = None,
    lang: str = "en",
    entities: Sequence[Path] = (),
    ids: str = "wikidata",
    only: Optional[Path] = None,
    without: Optional[Path] = None,
    chunk: int = 0,
    limit: int = 0,
) -> Report:
    """Convert a question set.

    entities (Sequence[Path]): Catalogues for translating gold ids; of equal ids, the last one's counts.
    RETURNS (Report): What was read and dropped.
    """
    try:
        nlp = get_lang_class(lang)()
    except ImportError as err:
        raise ELQError(Errors.E046.format(found=lang, problem=str(err).splitlines()[0])) from None
    if chunk:
        check_folder(output_path)
    else:
        check_output(output_path, input_path)
    report = Report()
    questions = read_questions(input_path, format=format or guess_format(input_path))
    if only is not None or without is not None:
        chosen, dropped = (read_ids(path) if path else None for path in (only, without))
        questions = choose_questions(questions, report, only=chosen, without=dropped)
    if entities:
        known = [read_translation(path, ids) for path in entities]
        questions = translate_ids(questions, dict(ChainMap(*reversed(known))), report)
    questions = islice(questions, limit or None)
    bar = tqdm(questions, desc="Convert", unit=" questions", mininterval=1.0)
    docs = questions_to_docs(bar, nlp, report)
    if chunk:
        _write_chunks(docs, output_path, chunk)
    else:
        with replace_file(output_path) as new:
            _to_doc_bin(docs).to_disk(new)
    return report


def _write_chunks(docs: Iterable[Doc], folder: Path, size: int) -> None:
    """Write files of `size` docs, numbered. Those of an earlier conversion go when the new ones are there."""
    work = folder / "partial"
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir(parents=True)
    try:
        for number, batch in enumerate(_batches(docs, size)):
            _to_doc_bin(batch).to_disk(work / f"{number:05}.spacy")
        names = sorted(path.name for path in work.iterdir())
        for name in names:
            (work / name).replace(folder / name)
        for old in folder.glob("[0-9][0-9][0-9][0-9][0-9].spacy"):
            if old.name not in names:
                old.unlink()
    finally:
        shutil.rmtree(work, ignore_errors=True)


def _batches(docs: Iterable[Doc], size: int) -> Iterator[List[Doc]]:
    iterator = iter(docs)
    while batch := list(islice(iterator, size)):
        yield batch


def _to_doc_bin(docs: Iterable[Doc]) -> DocBin:
    doc_bin = DocBin(store_user_data=True)
    for doc in docs:
        doc_bin.add(doc)
    return doc_bin
