"""The context encoder of `elq_blink`: a transformer that reads a text once for each mention, marked."""

from typing import Any, Callable, List, Tuple

import numpy as np
from spacy.tokens import Doc
from thinc.api import Model, to_numpy

from ...errors import ELQError, Errors
from ...model.towers import projection
from ...model.transformer import encode_pieces
from ...types import Array
from .marking import Marks, cut_pieces, find_pieces, mark_mentions

# docs, and (mentions, 2) half-open token ranges, counted over all of them
MentionInput = Tuple[List[Doc], Array]
POOLINGS = ("cls", "mean")
# mentions of about the same length, so that hardly anything is padding
_MENTIONS_AT_ONCE = 32


def build_context_tower(
    context_encoder: Model,
    pooling: str = "cls",
    max_length: int = 64,
    start_mark: str = "[unused0]",
    end_mark: str = "[unused1]",
) -> Model[MentionInput, Array]:
    """The context tower, the model of `elq_blink`: encodes each mention, marked, with the text around it.

    context_encoder (Model): `spacy-transformers.TransformerModel.v3`. Its `get_spans` is not used.
    pooling (str): The vector of a mention: "cls", that of the first word piece, as in BLINK, or "mean", the
        mean of all word pieces, which suits sentence encoders.
    max_length (int): Word pieces read per mention, the marks included. Longer text is cut around the mention.
    start_mark (str): The word piece put before a mention, by default BLINK's.
    end_mark (str): The word piece put after a mention, by default BLINK's.
    RETURNS (Model[MentionInput, Array]): From docs and mentions to (mentions, width) vectors, as wide as the
        entity vectors (`nO`), in host memory.
    """
    settings = {
        "pooling": (pooling in POOLINGS, pooling, " or ".join(map(repr, POOLINGS))),
        "max_length": (max_length >= 5, max_length, "at least 5"),
    }
    for setting, (is_valid, value, expected) in settings.items():
        if not is_valid:
            raise ELQError(
                Errors.E002.format(setting=setting, name="elq_blink", value=value, expected=expected)
            )
    return Model(
        "elq_context_tower",
        _forward,
        init=_init,
        layers=[context_encoder, projection()],
        dims={"nO": None},
        attrs={
            "pooling": pooling,
            "max_length": max_length,
            "start_mark": start_mark,
            "end_mark": end_mark,
        },
    )


def _init(model: Model, X: Any = None, Y: Any = None) -> None:
    encoder, project = model.layers
    encoder.initialize()
    _find_marks(model)  # which must be there
    project.set_dim("nI", encoder.get_dim("nO"))
    project.set_dim("nO", model.get_dim("nO"))
    project.initialize()


def _find_marks(model: Model) -> Marks:
    """RETURNS (Marks): The numbers of the marks in the encoder's vocabulary."""
    tokenizer: Any = model.layers[0].tokenizer  # type: ignore[attr-defined]
    own = [model.attrs["start_mark"], model.attrs["end_mark"]]
    start, end = tokenizer.convert_tokens_to_ids(own)
    # not from the vocabulary, which the tokenizer builds again on every call
    for mark, id_ in zip(own, (start, end), strict=True):
        if id_ in (None, tokenizer.unk_token_id):
            raise ELQError(Errors.E079.format(mark=mark, name=model.layers[0].attrs["name"]))
    return Marks(tokenizer.cls_token_id, tokenizer.sep_token_id, start, end, tokenizer.pad_token_id or 0)


def _forward(
    model: Model[MentionInput, Array], inputs: MentionInput, is_train: bool
) -> Tuple[Array, Callable[[Array], Any]]:
    ops: Any = model.ops
    encoder, project = model.layers
    ids, lengths = _mark(model, *inputs)
    order = np.argsort(lengths, kind="stable")
    batches = [order[i : i + _MENTIONS_AT_ONCE] for i in range(0, len(order), _MENTIONS_AT_ONCE)]
    pooled = ops.alloc2f(len(ids), encoder.get_dim("nO"))
    callbacks = []
    for chosen in batches:
        pooled[chosen], backprop_batch = _encode(model, ids[chosen], lengths[chosen], is_train)
        callbacks.append(backprop_batch)
    vectors, bp_vectors = project(pooled, is_train)

    def backprop(d_vectors: Array) -> Any:
        d_pooled = bp_vectors(ops.asarray(d_vectors, dtype="f"))
        for chosen, backprop_batch in zip(batches, callbacks, strict=True):
            backprop_batch(d_pooled[chosen])
        return inputs

    return to_numpy(vectors), backprop


def _mark(model: Model, docs: List[Doc], spans: Array) -> Tuple[Array, Array]:
    pieces = cut_pieces(docs, model.layers[0].tokenizer)  # type: ignore[attr-defined]
    owners, mentions = find_pieces(docs, spans, pieces)
    return mark_mentions(
        pieces, owners, mentions, marks=_find_marks(model), max_length=model.attrs["max_length"]
    )


def _encode(model: Model, ids: Array, lengths: Array, is_train: bool) -> Tuple[Any, Callable[[Any], None]]:
    """RETURNS: (mentions, width) and a callback from its gradient, for mentions of about one length."""
    ops: Any = model.ops
    ids = ids[:, : lengths.max()]
    mask = np.arange(ids.shape[1]) < lengths[:, None]
    weights = ops.asarray(_weights(mask, model.attrs["pooling"]), dtype="f")
    encoder: Any = model.layers[0]
    states, bp_states = encode_pieces(encoder, ids, lengths, is_train=is_train)

    def backprop(d_pooled: Any) -> None:
        bp_states(weights[:, :, None] * d_pooled[:, None, :])

    return (states * weights[:, :, None]).sum(axis=1), backprop


def _weights(mask: Array, pooling: str) -> Array:
    """RETURNS (Array): (mentions, pieces) how much of each piece there is in the vector of a mention."""
    if pooling == "mean":
        return mask / mask.sum(axis=1, keepdims=True)
    weights = np.zeros(mask.shape)
    weights[:, 0] = 1.0
    return weights
