"""What happens to questions between a file and the docs: which are taken, and by which ids they speak."""

from dataclasses import replace
from pathlib import Path
from typing import Dict, Iterable, Iterator, Optional, Set

from ..catalogue import read_catalogue
from ..errors import ELQError, Errors
from ..files import check_file, parse_json
from .base import Question, QuestionSpan, Report


def read_ids(path: Path) -> Set[str]:
    """RETURNS (Set[str]): The question ids of a JSON list, or of a text file with one per line."""
    check_file(path, "Expected a list of question ids.")
    try:
        text = path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as err:
        raise _error(path, f"not UTF-8 ({err.reason})", repr(err.object[:80])) from None
    if not text.lstrip().startswith("["):
        return {line.strip() for line in text.splitlines() if line.strip()}
    try:
        return {str(id_) for id_ in parse_json(text)}
    except ValueError as err:
        raise _error(path, f"not valid JSON ({err})", text[:80]) from None


def _error(path: Path, problem: str, found: str) -> ELQError:
    return ELQError(Errors.E040.format(path=path, where="line 1", problem=problem, found=found))


def choose_questions(
    questions: Iterable[Question],
    report: Report,
    *,
    only: Optional[Set[str]] = None,
    without: Optional[Set[str]] = None,
) -> Iterator[Question]:
    """YIELDS (Question): Those whose id is in `only`, if given, and not in `without`."""
    for question in questions:
        if (only is None or question.id in only) and (without is None or question.id not in without):
            yield question
        else:
            report.left_out += 1


def read_translation(catalogue: Path, system: str) -> Dict[str, str]:
    """RETURNS (Dict[str, str]): From ids of another system (`ids` in a catalogue) to its own."""
    translation = {
        entity.ids[system]: entity.id for entity in read_catalogue(catalogue) if system in entity.ids
    }
    if not translation:
        raise ELQError(Errors.E048.format(path=catalogue, system=system))
    return translation


def translate_ids(
    questions: Iterable[Question], translation: Dict[str, str], report: Report
) -> Iterator[Question]:
    """Give gold links the catalogue's ids. One that the catalogue does not have keeps its own.

    YIELDS (Question): The questions.
    """
    for question in questions:
        report.unknown += sum(span.id not in translation for span in question.spans)
        spans = [
            QuestionSpan(span.start, span.end, translation.get(span.id, span.id)) for span in question.spans
        ]
        yield replace(question, spans=spans)
