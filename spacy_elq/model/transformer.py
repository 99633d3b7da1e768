"""Transformers of spacy-transformers, quicker at prediction: word pieces and their alignment for a batch at
once, forward passes over texts of similar length, torch without what prediction does not need. The one module
that knows spacy-transformers; `tests/model/test_contract.py` pins what it relies on.
"""

import contextlib
import time
from typing import Any, Callable, ContextManager, Dict, List, Mapping, Sequence, Tuple

import numpy as np
import torch
from spacy.tokens import Doc, Span
from spacy_transformers.data_classes import FullTransformerBatch, HFObjects, TransformerData, WordpieceBatch
from spacy_transformers.layers import TransformerListener, TransformerModel, split_trf_batch
from spacy_transformers.layers.hf_shim import HFShim
from spacy_transformers.layers.transformer_model import forward
from spacy_transformers.truncate import truncate_oversize_splits
from thinc.api import get_array_module, get_torch_default_device, torch2xp, xp2torch
from thinc.types import ArgsKwargs, Ragged
from thinc.util import convert_recursive
from transformers.utils import ModelOutput

from ..types import Array
from ..util import settle_threads
from .wordpieces import align_tokens, group_by_length, pad, visible_text

__all__ = [
    "PredictionShim",
    "TransformerData",
    "TransformerListener",
    "TransformerModel",
    "build_transformer_model",
    "can_predict",
    "encode_pieces",
    "predict_batch",
    "replace_module",
    "split_mixed_precision",
    "split_trf_batch",
    "time_forward",
    "use_bfloat16",
    "use_fast_prediction",
    "with_gradient",
]

# What a pass of its own costs, in word pieces more of a pass that is made anyway: torch has to go through
# the weights, however few pieces there are. A transformer may say its own in `cost_of_pass`.
_COST_OF_PASS = 32
# the outputs that can be put together again from several passes
_STATES, _POOLED = "last_hidden_state", "pooler_output"


def split_mixed_precision(mixed_precision: bool) -> Tuple[bool, bool]:
    """Say what mixed precision means here. thinc knows it on a GPU only, and refuses it elsewhere.

    mixed_precision (bool): The setting of an architecture.
    RETURNS (Tuple[bool, bool]): Whether thinc shall use it, on a GPU, and whether training shall compute in
        bfloat16, on a CPU that has instructions for it (a torch that cannot tell takes float32).
    """
    if get_torch_default_device().type != "cpu":
        return mixed_precision, False
    capabilities: Mapping[str, Any] = getattr(torch.cpu, "get_capabilities", dict)()
    return False, mixed_precision and any(has for name, has in capabilities.items() if "bf16" in name)


def use_bfloat16(enabled: bool) -> ContextManager:
    """RETURNS (ContextManager): In it torch multiplies matrices in bfloat16 and adds up in float32."""
    return torch.autocast("cpu", torch.bfloat16) if enabled else contextlib.nullcontext()


class PredictionShim(HFShim):
    """Goes to evaluation mode once. thinc's goes there and back for every batch, module by module. Mixed
    precision on a CPU is for training alone: at prediction all weights would be converted for every batch.
    """

    def __init__(
        self,
        model: HFObjects,
        *,
        mixed_precision: bool = False,
        grad_scaler_config: Any = None,
        **kwargs: Any,
    ) -> None:
        """Arguments are those of `HFShim`."""
        on_gpu, self._bfloat16 = split_mixed_precision(mixed_precision)
        scaler = dict(grad_scaler_config or {}) if on_gpu else {}
        super().__init__(model, mixed_precision=on_gpu, grad_scaler_config=scaler, **kwargs)

    def begin_update(self, inputs: ArgsKwargs) -> Tuple[Any, Callable]:
        """RETURNS (Tuple[Any, Callable]): The output of the transformer, in float32, and the callback."""
        with use_bfloat16(self._bfloat16):
            output, backprop = super().begin_update(inputs)
        return type(output)(convert_recursive(torch.is_tensor, torch.Tensor.float, output)), backprop

    def predict(self, inputs: ArgsKwargs) -> Any:
        """RETURNS (Any): The output of the transformer; it stays in evaluation mode until it is trained."""
        if self._model.training:
            self._model.eval()
        mixed = torch.autocast("cuda") if self._mixed_precision else contextlib.nullcontext()
        with torch.inference_mode(), mixed:
            return self._model(*inputs.args, **inputs.kwargs)

    def run(self, pieces: WordpieceBatch) -> Any:
        """RETURNS (Any): The output for word pieces: what the layer of this shim gives, only sooner."""
        arrays = {
            "input_ids": pieces.input_ids,
            "attention_mask": pieces.attention_mask,
            "token_type_ids": pieces.token_type_ids,
        }
        device = self._model.device
        tensors = {key: torch.from_numpy(x).to(device) for key, x in arrays.items() if x is not None}
        return self.predict(ArgsKwargs((), tensors))


def build_transformer_model(
    name: str,
    get_spans: Callable,
    tokenizer_config: Dict[str, Any] = {},  # noqa: B006  (as spacy-transformers has it; never changed)
    transformer_config: Dict[str, Any] = {},  # noqa: B006
    mixed_precision: bool = False,
    grad_scaler_config: Dict[str, Any] = {},  # noqa: B006
) -> TransformerModel:
    """A drop-in replacement for `spacy-transformers.TransformerModel.v3` with the same settings and files:
    faster at prediction, and `mixed_precision` also works on a CPU.

    name (str): A local folder, or the name of a model on the Hugging Face hub.
    get_spans (Callable): Splits docs into windows, such as `spacy-transformers.strided_spans.v1`.
    tokenizer_config (Dict[str, Any]): Settings passed to the tokenizer.
    transformer_config (Dict[str, Any]): Settings passed to the transformer.
    mixed_precision (bool): Whether to train with mixed precision: on a GPU as in spacy-transformers, on a CPU
        in bfloat16 if it has instructions for that.
    grad_scaler_config (Dict[str, Any]): Settings of thinc's gradient scaler, for mixed precision on a GPU.
    RETURNS (TransformerModel): The model of a `transformer` component.
    """
    model = TransformerModel(name, get_spans, tokenizer_config, transformer_config)
    return use_fast_prediction(model, mixed_precision=mixed_precision, grad_scaler_config=grad_scaler_config)


def use_fast_prediction(model: TransformerModel, **settings: Any) -> TransformerModel:
    """Let a model predict as this module does.

    settings (Any): For the shim, see `PredictionShim`.
    RETURNS (TransformerModel): The same model.
    """
    model._func = _forward
    wrapper: Any = model.layers[0]
    wrapper.shims[0] = PredictionShim(wrapper.shims[0]._hfmodel, **settings)
    return model


def replace_module(model: TransformerModel, module: Any, *, like: TransformerModel) -> TransformerModel:
    """Give a fresh model a transformer, and the tokenizer of another model.

    RETURNS (TransformerModel): The same model.
    """
    other: Any = like.layers[0].shims[0]
    objects = HFObjects(other._hfmodel.tokenizer, module, other._hfmodel.vocab_file_contents, {}, {})
    model.attrs["set_transformer"](model, objects)
    return model


def _forward(
    model: TransformerModel, docs: List[Doc], is_train: bool
) -> Tuple[FullTransformerBatch, Callable]:
    """As spacy-transformers has it, but for prediction."""
    settle_threads()
    if is_train or not can_predict(model):
        return forward(model, docs, is_train)
    return predict_batch(model, docs), lambda d_output: docs


def can_predict(model: TransformerModel) -> bool:
    """RETURNS (bool): Whether `predict_batch` gives what the model itself would."""
    tokenizer = model.tokenizer
    is_usual = tokenizer.is_fast and tokenizer.padding_side == "right" and tokenizer.pad_token is not None
    return is_usual and "logger" not in model.attrs


def predict_batch(model: TransformerModel, docs: Sequence[Doc]) -> FullTransformerBatch:
    """Run a transformer over docs as spacy-transformers does, without its work on each token.

    Texts are run with others of similar length, which leaves less to pad. The output is the same but for the
    states of padding, to which nothing is aligned, and for emoji that stick to words: see `visible_text`.

    docs (Sequence[Doc]): The docs, not all of them empty.
    RETURNS (FullTransformerBatch): The output, split by doc already.
    """
    spans = model.attrs["get_spans"](docs)
    windows = [span for own in spans for span in own]
    pieces, offsets = _tokenize(model.tokenizer, [visible_text(span) for span in windows])
    align = align_tokens(spans, windows, offsets)
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
        input_ids=pad([e.ids for e in encodings], longest, padding[1]),
        attention_mask=mask,
        lengths=lengths,
        token_type_ids=(
            pad([e.type_ids for e in encodings], longest, tokenizer.pad_token_type_id) if has_types else None
        ),
    )
    return pieces, [np.asarray(encoding.offsets) for encoding in encodings]


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


def encode_pieces(
    model: TransformerModel, ids: Array, lengths: Array, *, is_train: bool
) -> Tuple[Any, Callable[[Any], None]]:
    """Run the transformer over word pieces that were made elsewhere.

    ids (Array): (texts, pieces) numbers of the pieces, padded.
    lengths (Array): (texts,) how many pieces of each are real.
    RETURNS (Tuple[Any, Callable[[Any], None]]): (texts, pieces, width) states on the device of the model, and
        a callback that takes their gradient.
    """
    settle_threads()
    ops: Any = model.ops
    mask = np.arange(ids.shape[1]) < lengths[:, None]
    pieces = WordpieceBatch(
        strings=[],
        input_ids=ops.asarray(ids),
        attention_mask=ops.asarray(mask.astype("f")),
        lengths=lengths.tolist(),
        token_type_ids=None,
    )
    output, bp_output = model.layers[0](pieces, is_train)

    def backprop(d_states: Any) -> None:
        bp_output(ModelOutput(last_hidden_state=xp2torch(d_states)))

    return torch2xp(output.last_hidden_state), backprop


def with_gradient(data: TransformerData, d_states: Any) -> TransformerData:
    """RETURNS (TransformerData): The output of a doc with the gradient of its states in place of them."""
    return TransformerData(data.wordpieces, ModelOutput(last_hidden_state=d_states), data.align)


def time_forward(model: TransformerModel, batches: List[List[str]]) -> float:
    """Run the transformer alone, over the word pieces of texts, padded to the longest of each batch.

    RETURNS (float): The seconds of the forward passes.
    """
    transformer, seconds = model.transformer.eval(), 0.0
    with torch.inference_mode():
        for texts in batches:
            pieces = model.tokenizer(texts, padding=True, truncation=True, return_tensors="pt")
            begin = time.perf_counter()
            transformer(input_ids=pieces["input_ids"], attention_mask=pieces["attention_mask"])
            seconds += time.perf_counter() - begin
    return seconds
