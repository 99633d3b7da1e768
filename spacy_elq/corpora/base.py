"""A question with its gold links, and how it becomes a doc."""

from collections import Counter
from dataclasses import dataclass, field
from typing import Iterable, Iterator, List, Optional

from spacy.language import Language
from spacy.tokens import Doc, Span
from spacy.util import filter_spans

from .gold import COMPLETE, GOLD_KEY, LOST

KIND = "kind"


@dataclass(frozen=True)
class QuestionSpan:
    """A gold link: half-open character range and entity id."""

    start: int
    end: int
    id: str


@dataclass(frozen=True)
class Question:
    """A text with its gold links.

    kind (str): What sort of question it is, for reports.
    id (str): Its id in the data set.
    complete (bool): Whether every mention is marked. Where not, text without a mark says nothing.
    page (str): The page that it comes from, for which entities are linked together.
    """

    text: str
    spans: List[QuestionSpan]
    kind: str = ""
    id: str = ""
    complete: bool = True
    page: str = ""


@dataclass
class Report:
    """What a conversion read and dropped.

    questions, mentions (int): What was written.
    misfits (int): Gold links dropped because they do not fit the tokens.
    overlapping (int): Gold links that are in the span group, but not in `doc.ents`.
    incomplete (int): Questions of which not every mention is marked.
    unknown (int): Gold links whose id could not be translated to the catalogue's.
    left_out (int): Questions left out as asked.
    kinds (Counter): How many questions of each kind.
    examples (List[str]): A few of the mentions dropped, to look at.
    """

    questions: int = 0
    mentions: int = 0
    misfits: int = 0
    overlapping: int = 0
    incomplete: int = 0
    unknown: int = 0
    left_out: int = 0
    kinds: Counter = field(default_factory=Counter)
    examples: List[str] = field(default_factory=list)


def questions_to_docs(
    questions: Iterable[Question], nlp: Language, report: Report, *, label: str = "ENTITY"
) -> Iterator[Doc]:
    """Tokenize questions and put their gold links on the docs.

    All of them go into the span group `gold_links`; `doc.ents` gets those that do not overlap. A
    mention that does not fit the tokens is dropped and counted, never shifted; the doc remembers how many,
    since a test must count them as missed.

    report (Report): Is filled.
    YIELDS (Doc): A doc per question.
    """
    for question in questions:
        doc = nlp.make_doc(question.text)
        spans = [_to_span(doc, span, label) for span in question.spans]
        fitting = [span for span in spans if span is not None]
        doc.spans[GOLD_KEY] = fitting
        doc.ents = filter_spans(fitting)
        if question.kind:
            doc.user_data[KIND] = question.kind
        if not question.complete:
            doc.user_data[COMPLETE] = False
        if len(fitting) < len(spans):
            doc.user_data[LOST] = len(spans) - len(fitting)
        report.questions += 1
        report.mentions += len(fitting)
        report.misfits += len(spans) - len(fitting)
        report.overlapping += len(fitting) - len(doc.ents)
        report.incomplete += not question.complete
        report.kinds[question.kind] += 1
        for given, made in zip(question.spans, spans, strict=True):
            if made is None and len(report.examples) < 5:
                mention = question.text[given.start : given.end]
                report.examples.append(f"{mention!r} in {question.text!r}")
        yield doc


def _to_span(doc: Doc, span: QuestionSpan, label: str) -> Optional[Span]:
    return doc.char_span(span.start, span.end, label=label, kb_id=span.id)
