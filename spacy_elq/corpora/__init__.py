"""Readers of question sets: from a file to questions with character spans."""

from .base import Question, QuestionSpan, Report, questions_to_docs
from .formats import FORMATS, guess_format, read_questions

__all__ = [
    "FORMATS",
    "Question",
    "QuestionSpan",
    "Report",
    "guess_format",
    "questions_to_docs",
    "read_questions",
]
