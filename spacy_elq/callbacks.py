"""Callbacks for the training config."""

from typing import Any, Callable

from spacy.language import Language


def build_freeze_layers(component: str = "transformer", layers: int = 0) -> Callable[[Language], Language]:
    """Build an `[initialize.after_init]` callback that keeps the lower part of a transformer as it is.

    The word embeddings are half of the parameters of a small encoder. Frozen, they cost no optimizer
    step, and words of entities that training never saw keep the meaning they came with.

    component (str): Name of the `transformer` component.
    layers (int): How many layers above the embeddings to freeze too.
    RETURNS (Callable[[Language], Language]): The callback.
    """

    def freeze(nlp: Language) -> Language:
        pipe: Any = nlp.get_pipe(component)
        transformer = pipe.model.transformer
        for part in [transformer.embeddings, *transformer.encoder.layer[:layers]]:
            part.requires_grad_(False)
        return nlp

    return freeze
