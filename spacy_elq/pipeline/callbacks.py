"""Callbacks for the training config."""

from functools import partial
from pathlib import Path
from typing import Any, Callable, Dict, List, Mapping, Optional, Union

from spacy.language import Language

from ..errors import Rule, check_setting
from ..index import open_index
from ..model.transformer import TransformerModel
from .settings import flatten_settings, update_settings

Callback = Callable[[Language], Language]


def build_freeze_layers(
    component: Union[str, List[str]] = "transformer", layers: int = 0
) -> Callable[[Language], Language]:
    """Freeze the word embeddings of a transformer, and optionally its lower layers.

    Word embeddings are half of the parameters of a small encoder. Frozen, they need no optimizer step, and
    words of entities that training never saw keep their pretrained meaning.

    component (Union[str, List[str]]): Name of a component with a transformer, or several names.
    layers (int): Number of layers above the embeddings to freeze too.
    RETURNS (Callable[[Language], Language]): The callback.
    """
    names = [component] if isinstance(component, str) else component
    return partial(freeze_layers, components=names, layers=layers)


def freeze_layers(nlp: Language, *, components: List[str], layers: int) -> Language:
    """Freeze the word embeddings of transformers, and a number of layers above them.

    RETURNS (Language): The same pipeline.
    """
    for name in components:
        nodes = nlp.get_pipe(name).model.walk()  # type: ignore[attr-defined]
        transformer = next(node.transformer for node in nodes if isinstance(node, TransformerModel))
        total = len(transformer.encoder.layer)
        rule: Rule = (range(total).__contains__, f"fewer than {total} layers")
        check_setting("freeze_layers", "layers", layers, rule)
        for part in [transformer.embeddings, *transformer.encoder.layer[:layers]]:
            part.requires_grad_(False)
    return nlp


def build_adjust_linker(
    component: str = "elq_linker",
    index: Optional[Union[str, Path, List[str]]] = None,
    settings: Mapping[str, Any] = {},
) -> Callable[[Language], Language]:
    """Change a linker that is sourced from a trained pipeline, for which `[components]` can say nothing but
    `source`: give it another index, or other settings than those it was saved with.

    component (str): Name of the linker.
    index (Optional[Union[str, Path, List[str]]]): Folder of an index made with the same entity encoder, or
        several; without it, the linker keeps the index it has.
    settings (Mapping[str, Any]): New values, in blocks as in `[components]`; the others stay as they are.
    RETURNS (Callable[[Language], Language]): The callback.
    """
    return partial(adjust_linker, component=component, index=index, settings=settings)


def adjust_linker(
    nlp: Language,
    *,
    component: str,
    index: Optional[Union[str, Path, List[str]]],
    settings: Mapping[str, Any],
) -> Language:
    """Give a linker another index and other settings.

    RETURNS (Language): The same pipeline.
    """
    if index is not None:
        nlp.get_pipe(component).set_index(open_index(index))  # type: ignore[attr-defined]
    update_settings(nlp, component, flatten_settings(settings))
    return nlp


def build_run_callbacks(callbacks: Dict[str, Any]) -> Callable[[Language], Language]:
    """Run several callbacks where spaCy takes one.

    callbacks (Dict[str, Any]): The callbacks by any name, in their order.
    RETURNS (Callable[[Language], Language]): The callback.
    """
    return partial(run_callbacks, callbacks=list(callbacks.values()))


def run_callbacks(nlp: Language, *, callbacks: List[Callback]) -> Language:
    """Call callbacks one after the other.

    RETURNS (Language): What the last one returns.
    """
    for callback in callbacks:
        nlp = callback(nlp)
    return nlp
