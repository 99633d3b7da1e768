"""Callbacks for the training config."""

from functools import partial
from typing import Callable, List, Union

from spacy.language import Language

from ..errors import Rule, check_setting
from ..model.transformer import TransformerModel


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
