"""Name and version of the package."""

__title__ = "spacy-elq"
__version__ = "0.1.0"
