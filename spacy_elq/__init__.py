"""One-pass entity linking for questions, as a spaCy component (`elq_linker`)."""

from .about import __version__

__all__ = ["__version__"]
