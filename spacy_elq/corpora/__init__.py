"""Readers of question sets: from a file to questions with character spans."""

from .base import Question, QuestionSpan, Report, questions_to_docs
from .choose import choose_questions, read_ids, read_translation, translate_ids
from .formats import FORMATS, guess_format, read_anchors, read_links, read_questions, read_triples

__all__ = [
    "FORMATS",
    "Question",
    "QuestionSpan",
    "Report",
    "choose_questions",
    "guess_format",
    "questions_to_docs",
    "read_anchors",
    "read_ids",
    "read_links",
    "read_questions",
    "read_translation",
    "read_triples",
    "translate_ids",
]
