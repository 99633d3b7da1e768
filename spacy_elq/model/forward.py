"""What a `transformer` component does at prediction, for a batch at once: word pieces, their alignment, a
forward pass over texts of similar length, and the output of each doc.
"""

from itertools import accumulate
from typing import Any, Dict, List, Sequence, Tuple

import numpy as np
from spacy.attrs import IDX
from spacy.tokens import Doc, Span
from spacy_transformers.data_classes import FullTransformerBatch, TransformerData, WordpieceBatch
from spacy_transformers.layers import TransformerModel
from spacy_transformers.truncate import truncate_oversize_splits
from thinc.api import get_array_module, torch2xp, xp2torch
from thinc.types import Ragged
from transformers.utils import ModelOutput

from ..types import Array

# What a pass of its own costs, in word pieces more of a pass that is made anyway: torch has to go through
# the weights, however few pieces there are. A transformer may say its own in `cost_of_pass`.
_COST_OF_PASS = 32
# the outputs that can be put together again from several passes
_STATES, _POOLED = "last_hidden_state", "pooler_output"


def can_predict(model: TransformerModel) -> bool:
    """RETURNS (bool): Whether `predict_batch` gives what the model itself would."""
    tokenizer = model.tokenizer
    is_usual = tokenizer.is_fast and tokenizer.padding_side == "right" and tokenizer.pad_token is not None
    return is_usual and "logger" not in model.attrs


def predict_batch(model: TransformerModel, docs: Sequence[Doc]) -> FullTransformerBatch:
    """Run a transformer over docs as spacy-transformers does, without its work on each token.

    Texts are run with others of similar length, which leaves less to pad. The output is the same but for the
    states of padding, to which nothing is aligned.

    docs (Sequence[Doc]): The docs, not all of them empty.
    RETURNS (FullTransformerBatch): The output, split by doc already.
    """
    spans = model.attrs["get_spans"](docs)
    windows = [span for own in spans for span in own]
    pieces, offsets = _tokenize(model.tokenizer, [span.text for span in windows])
    align = _align(spans, windows, offsets)
    pieces, align = truncate_oversize_splits(pieces, align, model.tokenizer.model_max_length)
    output = _run(model, pieces)
    data = _split(spans, pieces, _to_arrays(output), align)
    return FullTransformerBatch(spans, pieces, output, align, data)


def _tokenize(tokenizer: Any, texts: List[str]) -> Tuple[WordpieceBatch, List[Array]]:
    """RETURNS (Tuple[WordpieceBatch, List[Array]]): The word pieces of texts, padded, and (pieces, 2) the
    characters of each, without padding.
    """
    backend = tokenizer.backend_tokenizer
    if backend.padding is not None:
        backend.no_padding()
    if backend.truncation is not None:
        backend.no_truncation()
    encodings = backend.encode_batch(texts)
    lengths = [len(encoding) for encoding in encodings]
    longest = max(lengths)
    mask: Any = np.ones((len(texts), longest), dtype="float32")
    is_padded = min(lengths) < longest
    if is_padded:
        mask *= np.arange(longest) < np.asarray(lengths)[:, None]
    # a tokenizer takes its time to say what it pads with
    padding = (tokenizer.pad_token, tokenizer.pad_token_id) if is_padded else ("", 0)
    has_types = "token_type_ids" in tokenizer.model_input_names
    pieces = WordpieceBatch(
        strings=[e.tokens + [padding[0]] * (longest - len(e)) for e in encodings],
        input_ids=_pad([e.ids for e in encodings], longest, padding[1]),
        attention_mask=mask,
        lengths=lengths,
        token_type_ids=(
            _pad([e.type_ids for e in encodings], longest, tokenizer.pad_token_type_id) if has_types else None
        ),
    )
    return pieces, [np.asarray(encoding.offsets) for encoding in encodings]


def _pad(lists: List[List[int]], longest: int, value: int) -> Any:
    if len(lists) == 1:
        return np.asarray(lists, dtype="int64")
    array = np.full((len(lists), longest), value, dtype="int64")
    for row, numbers in zip(array, lists, strict=True):
        row[: len(numbers)] = numbers
    return array


def _align(spans: List[List[Span]], windows: List[Span], offsets: List[Array]) -> Ragged:
    """Align the tokens of docs to word pieces.

    A piece belongs to every token of which it has a character; the space behind a token is the token's.

    spans, windows (List[List[Span]], List[Span]): The windows, by doc and one after the other.
    offsets (List[Array]): The characters of the pieces of each window.
    RETURNS (Ragged): The places of the pieces of every token, ascending, in the padded batch.
    """
    # the characters of the docs that have windows are counted on, so that one search finds all tokens
    docs = [own[0].doc for own in spans if own]
    ends_of_docs = accumulate((len(doc.text) + 1 for doc in docs), initial=0)
    origins = dict(zip(map(id, docs), ends_of_docs, strict=False))
    tokens = np.concatenate([origins[id(doc)] + doc.to_array(IDX).astype("int64") for doc in docs])
    counts = [len(own) for own in offsets]
    origin = np.repeat([origins[id(span.doc)] + span.start_char for span in windows], counts)
    begins, ends = np.concatenate(offsets).T
    firsts = range(0, len(counts) * max(counts), max(counts))
    places = np.concatenate([np.arange(i, i + count) for i, count in zip(firsts, counts, strict=True)])
    real = ends > begins
    first = np.searchsorted(tokens, (origin + begins)[real], side="right") - 1
    last = np.searchsorted(tokens, (origin + ends - 1)[real], side="right") - 1
    owners, places = first, places[real]
    if (first != last).any():
        shares = last - first + 1
        owners, places = np.repeat(first, shares), np.repeat(places, shares)
        owners += np.arange(len(owners)) - np.repeat(np.cumsum(shares) - shares, shares)
    order = np.argsort(owners, kind="stable")
    data: Any = places[order].astype("int32")
    lengths: Any = np.bincount(owners, minlength=len(tokens)).astype("int32")
    return Ragged(data, lengths)


def _run(model: TransformerModel, pieces: WordpieceBatch) -> Any:
    """RETURNS (Any): What the transformer gives for all windows, a `ModelOutput`."""
    shim: Any = model.layers[0].shims[0]
    transformer, config = model.transformer, model.transformer.config
    is_divisible = not (config.output_hidden_states or config.output_attentions)
    cost = getattr(transformer, "cost_of_pass", _COST_OF_PASS)
    groups = group_by_length(pieces.lengths, cost) if is_divisible and len(pieces) > 1 else []
    if len(groups) < 2:
        return shim.run(pieces)
    found = [_to_arrays(shim.run(_choose(pieces, group))) for group in groups]
    states = _alloc(found[0][_STATES], pieces.input_ids.shape)
    pooled = _alloc(found[0][_POOLED], (len(pieces),)) if _POOLED in found[0] else None
    for group, output in zip(groups, found, strict=True):
        states[group, : output[_STATES].shape[1]] = output[_STATES]
        if pooled is not None:
            pooled[group] = output[_POOLED]
    merged = {_STATES: states, _POOLED: pooled}
    return ModelOutput({key: xp2torch(array) for key, array in merged.items() if array is not None})


def group_by_length(lengths: Sequence[int], cost_of_pass: int) -> List[List[int]]:
    """Divide texts into groups that are run together so that all passes cost least.

    lengths (Sequence[int]): The word pieces of each text.
    cost_of_pass (int): What each group costs beside its word pieces, counted in them.
    RETURNS (List[List[int]]): The positions of the texts of each group, longer ones first.
    """
    order = np.argsort(lengths, kind="stable")
    ascending = np.asarray(lengths)[order]
    costs, cuts = np.zeros(len(order) + 1), [0]
    for end in range(1, len(order) + 1):
        options = costs[:end] + np.arange(end, 0, -1) * ascending[end - 1]
        cuts.append(int(options.argmin()))
        costs[end] = options[cuts[-1]] + cost_of_pass
    groups, end = [], len(order)
    while end:
        groups.append(order[cuts[end] : end].tolist())
        end = cuts[end]
    return groups


def _choose(pieces: WordpieceBatch, group: List[int]) -> WordpieceBatch:
    """RETURNS (WordpieceBatch): The pieces of some of the texts, padded to the longest of them."""
    lengths = [pieces.lengths[i] for i in group]
    width, types = max(lengths), pieces.token_type_ids
    return WordpieceBatch(
        strings=[pieces.strings[i][:width] for i in group],
        input_ids=pieces.input_ids[group, :width],
        attention_mask=pieces.attention_mask[group, :width],
        lengths=lengths,
        token_type_ids=None if types is None else types[group, :width],
    )


def _alloc(like: Any, shape: Tuple[int, ...]) -> Any:
    """RETURNS (Any): Zeros of this shape, of vectors like those of another array."""
    return get_array_module(like).zeros((*shape, like.shape[-1]), dtype=like.dtype)


def _to_arrays(output: Any) -> Dict[str, Any]:
    """RETURNS (Dict[str, Any]): What spacy-transformers keeps of the output of a transformer."""
    count = len(output[_STATES])
    arrays: Dict[str, Any] = {}
    for key, value in output.items():
        if hasattr(value, "shape"):
            arrays[key] = torch2xp(value)
        elif isinstance(value, tuple) and all(hasattr(x, "shape") and len(x) == count for x in value):
            arrays[key] = [torch2xp(x) for x in value]
    return arrays


def _split(
    spans: List[List[Span]], pieces: WordpieceBatch, output: Dict[str, Any], align: Any
) -> List[TransformerData]:
    """RETURNS (List[TransformerData]): The output of each doc."""
    if len(spans) == 1 and _is_covered(spans[0]):
        return [TransformerData(pieces, ModelOutput(output), align)]
    places = np.concatenate([[0], np.cumsum(align.lengths)])
    width = pieces.input_ids.shape[1]
    data: List[TransformerData] = []
    window = offset = 0
    for own in spans:
        if not own:
            data.append(TransformerData.empty())
            continue
        # the tokens of a doc that are in front of its first window or behind the last one are left out
        first, last = offset + own[0].start, offset + own[-1].end
        end = window + len(own)
        aligned = align.dataXd[places[first] : places[last]] - window * width
        states = ModelOutput()
        for key, value in output.items():
            states[key] = [x[window:end] for x in value] if isinstance(value, list) else value[window:end]
        data.append(TransformerData(pieces[window:end], states, Ragged(aligned, align.lengths[first:last])))
        offset, window = offset + len(own[0].doc), end
    return data


def _is_covered(windows: List[Span]) -> bool:
    """RETURNS (bool): Whether windows begin and end with their doc."""
    return windows[0].start == 0 and windows[-1].end == len(windows[0].doc)
