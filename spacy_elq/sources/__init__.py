"""Where a catalogue comes from: Wikidata dumps, tables, knowledge bases of spaCy."""

from .build import FORMATS, build_catalogue, guess_format
from .knowledge_base import read_spacy_kb
from .output import Report, write_entities
from .tables import read_table

__all__ = [
    "FORMATS",
    "Report",
    "build_catalogue",
    "guess_format",
    "read_spacy_kb",
    "read_table",
    "write_entities",
]
