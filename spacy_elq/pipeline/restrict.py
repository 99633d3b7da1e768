"""Which part of the catalogue counts: for a pipeline, a block of code, a doc."""

from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Dict, Iterator, List, Mapping, Optional, Sequence, Tuple

import numpy as np
from spacy.tokens import Doc

from ..index import Within
from ..types import Array
from .annotate import WITHIN

# by the id of the component: each thread, and each task of asyncio, has its own
_blocks: ContextVar[Optional[Mapping[int, Within]]] = ContextVar("elq_within", default=None)


@contextmanager
def restrict_block(owner: object, within: Optional[Within]) -> Iterator[None]:
    """Restrict the catalogue of a component for all that is done inside, in this thread."""
    known = dict(_blocks.get() or {})
    inside = join(known.get(id(owner)), within)
    if inside is not None:
        known[id(owner)] = inside
    token = _blocks.set(known)
    try:
        yield
    finally:
        _blocks.reset(token)


def restrictions(owner: object, docs: Sequence[Doc], setting: Any) -> List[Optional[Within]]:
    """RETURNS (List[Optional[Within]]): What counts for each doc: setting, block and doc must all hold."""
    general = join(Within.make(setting), (_blocks.get() or {}).get(id(owner)))
    return [join(general, Within.make(getattr(doc._, WITHIN))) for doc in docs]


def join(first: Optional[Within], second: Optional[Within]) -> Optional[Within]:
    """RETURNS (Optional[Within]): Both restrictions at once."""
    if first is None or second is None:
        return first or second
    return first & second


def by_restriction(
    owners: Array, withins: Sequence[Optional[Within]]
) -> Iterator[Tuple[Optional[Within], Array]]:
    """Group mentions by what counts for their docs.

    owners (Array): (mentions,) the doc of each mention.
    YIELDS (Tuple[Optional[Within], Array]): The restriction, and the mentions.
    """
    groups: Dict[Optional[Within], List[int]] = {}
    for doc, within in enumerate(withins):
        groups.setdefault(within, []).append(doc)
    for within, docs in groups.items():
        mentions = np.flatnonzero(np.isin(owners, docs))
        if len(mentions):
            yield within, mentions


def pick(names: List[str], mentions: Array) -> List[str]:
    """RETURNS (List[str]): The names of some mentions; none if there are none at all."""
    if not names or len(names) == len(mentions):
        return names
    return [names[i] for i in mentions.tolist()]
