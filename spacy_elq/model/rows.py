"""The thinc layer that gives rows with their token alignment, over a transformer or any tok2vec."""

from typing import Any, Callable, List, Optional, Tuple

import numpy as np
from spacy.attrs import IS_SPACE
from spacy.tokens import Doc
from thinc.api import Model, chain, to_numpy
from thinc.types import Floats2d

from ..errors import ELQError, Errors
from ..types import Array, Rows
from ..util import settle_threads
from .transformer import (
    TransformerData,
    TransformerListener,
    TransformerModel,
    split_trf_batch,
    with_gradient,
)


def build_word_piece_listener(upstream: str = "*") -> Model[List[Doc], List[TransformerData]]:
    """Listen to a `transformer` component and use its word pieces as rows, without pooling them to tokens.

    upstream (str): Name of the component to listen to, or `"*"` for any.
    RETURNS (Model): The listener, with which `QuestionTower` uses word pieces as rows.
    """
    return TransformerListener(upstream_name=upstream)


def with_rows(tok2vec: Model) -> Model[List[Doc], Rows]:
    """Turn the output of `tok2vec` into rows.

    tok2vec (Model): Gives one array per doc with a vector per token (any spaCy tok2vec), or
        transformer output (a listener of this package, or a `TransformerModel` of its own).
    RETURNS (Model[List[Doc], Rows]): The layer. Its `backprop` takes d_vectors (rows, width).
    """
    if isinstance(tok2vec, TransformerModel):
        # the same structure that `nlp.replace_listeners` puts in place of a listener
        tok2vec = chain(tok2vec, split_trf_batch())
    return Model("elq_rows", _forward, init=_init, layers=[tok2vec], dims={"nO": None})


def _init(model: Model, X: Optional[List[Doc]] = None, Y: Any = None) -> None:
    tok2vec = model.layers[0]
    tok2vec.initialize(X=X)
    # a chain with a transformer in it does not know its own width, but the transformer does
    model.set_dim("nO", next(node.get_dim("nO") for node in tok2vec.walk() if node.has_dim("nO")))


def _forward(
    model: Model[List[Doc], Rows], docs: List[Doc], is_train: bool
) -> Tuple[Rows, Callable[[Floats2d], Any]]:
    settle_threads()
    tok2vec = model.layers[0]
    if not is_train and isinstance(tok2vec, TransformerListener) and any(map(_was_missed, docs)):
        # the listener would give zeros, and zeros would give links
        raise ELQError(Errors.E011)
    outputs, bp_outputs = tok2vec(docs, is_train)
    spaces = np.concatenate([doc.to_array(IS_SPACE) for doc in docs]).astype(bool)
    lengths = np.asarray([len(doc) for doc in docs], dtype="int64")
    if not all(isinstance(X, TransformerData) or hasattr(X, "shape") for X in outputs):
        raise ELQError(Errors.E010.format(found=type(outputs[0]).__name__))
    of_pieces = isinstance(outputs[0], TransformerData)
    get_rows: Callable = _rows_from_word_pieces if of_pieces else _rows_from_tokens
    rows, backprop = get_rows(model, outputs, spaces, lengths)
    return rows, lambda d_vectors: bp_outputs(backprop(d_vectors))


def _was_missed(doc: Doc) -> bool:
    return len(doc) > 0 and doc._.trf_data is None


def _rows_from_tokens(
    model: Model, outputs: List[Floats2d], spaces: Array, lengths: Array
) -> Tuple[Rows, Callable[[Floats2d], List[Floats2d]]]:
    width = model.get_dim("nO")
    positions = np.arange(lengths.sum())
    rows = Rows(
        vectors=model.ops.xp.concatenate([X.reshape((len(X), width)) for X in outputs]),
        starts=positions,
        ends=positions + 1,
        bounds=~spaces,
        blocks=np.zeros(len(spaces), dtype=bool),
        lengths=lengths,
    )

    def backprop(d_vectors: Floats2d) -> List[Floats2d]:
        return model.ops.unflatten(d_vectors, model.ops.asarray1i(lengths.tolist()))

    return rows, backprop


def _rows_from_word_pieces(
    model: Model, outputs: List[TransformerData], spaces: Array, lengths: Array
) -> Tuple[Rows, Callable[[Floats2d], List[TransformerData]]]:
    xp = model.ops.xp
    width = model.get_dim("nO")
    tensors = [_last_hidden_state(output, width, xp) for output in outputs]
    sizes = np.asarray([tensor.shape[0] * tensor.shape[1] for tensor in tensors])
    pieces, counts = _align(outputs, tensors, np.cumsum(sizes) - sizes, lengths)
    gather, starts, ends = _lay_out(pieces, counts)
    seen = counts > 0
    flat = xp.concatenate([tensor.reshape((-1, width)) for tensor in tensors])
    rows = Rows(
        vectors=flat[gather],
        starts=starts,
        ends=ends,
        bounds=seen & ~spaces,
        blocks=~seen & ~spaces,
        lengths=lengths,
    )

    def backprop(d_vectors: Floats2d) -> List[TransformerData]:
        d_flat: Any = model.ops.alloc2f(int(sizes.sum()), width)
        d_flat[gather] = d_vectors  # no piece is gathered twice
        d_tensors = xp.split(d_flat, np.cumsum(sizes)[:-1])
        return [
            with_gradient(output, d_tensor.reshape(tensor.shape))
            for output, tensor, d_tensor in zip(outputs, tensors, d_tensors, strict=True)
            if tensor.shape[1]  # docs without tokens have no output to go back to
        ]

    return rows, backprop


def _last_hidden_state(output: TransformerData, width: int, xp: Any) -> Any:
    """RETURNS: (windows, pieces, width), of size 0 for a doc without tokens."""
    if "last_hidden_state" in output.model_output:
        return output.model_output["last_hidden_state"]
    return xp.zeros((0, 0, width), dtype="f")


def _align(
    outputs: List[TransformerData], tensors: List[Any], offsets: Array, lengths: Array
) -> Tuple[Array, Array]:
    """The word pieces of every token, each token from one window only.

    Windows of a long doc overlap, so that a token has its pieces twice. It keeps those of the window
    in which it stands farthest from an edge.

    RETURNS (Tuple[Array, Array]): The positions of the pieces in the concatenated output, token by
        token, and (tokens,) how many each token has.
    """
    n_tokens = int(lengths.sum())
    pieces = np.concatenate(
        [_flat(o.align.dataXd) + offset for o, offset in zip(outputs, offsets, strict=True)]
    )
    counts = np.concatenate([_flat(output.align.lengths) for output in outputs])
    if not any(tensor.shape[0] > 1 for tensor in tensors):
        return pieces, counts
    tokens = np.repeat(np.arange(n_tokens), counts)
    windows, margins = _windows(outputs, tensors)
    best = np.lexsort((-margins[pieces], tokens))
    first = np.searchsorted(tokens, np.arange(n_tokens))
    # tokens without pieces get a window that nothing is compared with
    kept = np.append(windows[pieces[best]], -1)[first][tokens] == windows[pieces]
    return pieces[kept], np.bincount(tokens[kept], minlength=n_tokens)


def _windows(outputs: List[TransformerData], tensors: List[Any]) -> Tuple[Array, Array]:
    """RETURNS (Tuple[Array, Array]): Of every piece of the batch, the number of its window and the
    distance from the window's nearer edge.
    """
    widths = [np.full(tensor.shape[0], tensor.shape[1]) for tensor in tensors]
    sizes = np.concatenate(widths)
    filled = np.concatenate([output.wordpieces.lengths for output in outputs])
    windows = np.repeat(np.arange(len(sizes)), sizes)
    places = np.arange(sizes.sum()) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    return windows, np.minimum(places, filled[windows] - 1 - places)


def _lay_out(pieces: Array, counts: Array) -> Tuple[Array, Array, Array]:
    """Number the pieces that are used, in reading order; two tokens may share one.

    RETURNS (Tuple[Array, Array, Array]): The pieces to gather (rows,) and the half-open range of rows
        of every token. A token without pieces has an empty range after the rows of the one before.
    """
    last = np.cumsum(counts) - 1
    if (pieces[1:] > pieces[:-1]).all():  # nothing is shared, and all of it in order
        return pieces, last + 1 - counts, last + 1
    gather, row_of = np.unique(pieces, return_inverse=True)
    ends = np.zeros(len(counts), dtype="int64")
    ends[counts > 0] = row_of[last[counts > 0]] + 1
    ends = np.maximum.accumulate(ends) if len(ends) else ends
    starts = ends.copy()
    starts[counts > 0] = row_of[(last - counts + 1)[counts > 0]]
    return gather, starts, ends


def _flat(X: Any) -> Array:
    return to_numpy(X).reshape(-1).astype("int64")
