"""A question with its gold links, and how it becomes a doc."""

from collections import Counter
from dataclasses import dataclass, field
from typing import Iterable, Iterator, List, Optional

from spacy.language import Language
from spacy.tokens import Doc, Span
from spacy.util import filter_spans

from ..gold import GOLD_KEY

KIND = "kind"


@dataclass(frozen=True)
class QuestionSpan:
    """A gold link: half-open character range and entity id."""

    start: int
    end: int
    id: str


@dataclass(frozen=True)
class Question:
    """A text with its gold links; `kind` says what sort of question it is, for reports."""

    text: str
    spans: List[QuestionSpan]
    kind: str = ""


@dataclass
class Report:
    """What a conversion read and dropped.

    examples (List[str]): A few of the mentions dropped, to look at.
    """

    questions: int = 0
    mentions: int = 0
    misfits: int = 0
    overlapping: int = 0
    kinds: Counter = field(default_factory=Counter)
    examples: List[str] = field(default_factory=list)


def questions_to_docs(
    questions: Iterable[Question], nlp: Language, report: Report, *, label: str = "ENTITY"
) -> Iterator[Doc]:
    """Tokenize questions and put their gold links on the docs.

    All of them go into the span group `gold_links`; `doc.ents` gets those that do not overlap. A
    mention that does not fit the tokens is dropped and counted, never shifted.

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
        report.questions += 1
        report.mentions += len(fitting)
        report.misfits += len(spans) - len(fitting)
        report.overlapping += len(fitting) - len(doc.ents)
        report.kinds[question.kind] += 1
        for given, made in zip(question.spans, spans, strict=True):
            if made is None and len(report.examples) < 5:
                mention = question.text[given.start : given.end]
                report.examples.append(f"{mention!r} in {question.text!r}")
        yield doc


def _to_span(doc: Doc, span: QuestionSpan, label: str) -> Optional[Span]:
    return doc.char_span(span.start, span.end, label=label, kb_id=span.id)
