"""One-pass entity linking for questions, as a spaCy component (`elq_linker`)."""

from importlib import import_module
from typing import TYPE_CHECKING, Any, List

if TYPE_CHECKING:
    from .client import AsyncElqClient, ElqClient
    from .index import EntityIndex
    from .model.entity_encoder import EntityEncoder
    from .pipeline.settings import update_settings
    from .types import Entity, Link

__version__ = "0.3.0"
__all__ = [
    "AsyncElqClient",
    "ElqClient",
    "Entity",
    "EntityEncoder",
    "EntityIndex",
    "Link",
    "__version__",
    "update_settings",
]

# imported when they are asked for: torch, transformers and FAISS take seconds
_HOMES = {
    "AsyncElqClient": ".client",
    "ElqClient": ".client",
    "Entity": ".types",
    "EntityEncoder": ".model.entity_encoder",
    "EntityIndex": ".index",
    "Link": ".types",
    "update_settings": ".pipeline.settings",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOMES[name], __name__), name)


def __dir__() -> List[str]:
    return sorted(__all__)
