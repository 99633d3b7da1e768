"""How transformers are run: torch without what prediction does not need, or ONNX Runtime in int8. The one
module that knows ONNX.
"""

import contextlib
import copy
import logging
import os
import time
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Callable, ContextManager, Dict, Iterator, List, Mapping, Tuple

import torch
from spacy.tokens import Doc
from spacy_transformers.data_classes import FullTransformerBatch, HFObjects, WordpieceBatch
from spacy_transformers.layers import TransformerModel
from spacy_transformers.layers.hf_shim import HFShim
from spacy_transformers.layers.transformer_model import forward
from thinc.api import get_torch_default_device
from thinc.types import ArgsKwargs
from thinc.util import convert_recursive
from transformers.modeling_outputs import BaseModelOutput

from ..errors import ELQError, Errors
from .forward import can_predict, predict_batch

PRECISIONS = ("int8", "float32")
_INPUTS = ("input_ids", "attention_mask")
# ONNX Runtime adds and normalizes quicker in two steps than in one
_SLOW_FUSION = "SkipLayerNormFusion"
# a session that is dropped waits for its threads, and a forked process has none of its parent's
_SESSIONS_OF_PARENT: List[Any] = []


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


class OnnxTransformer(torch.nn.Module):
    """An encoder of transformers as ONNX Runtime runs it, for prediction only."""

    # its weights are small and laid out in advance, see `forward.predict_batch`
    cost_of_pass = 3

    def __init__(self, config: Any, data: bytes = b"") -> None:
        """Keep the graph; it is loaded when it is needed, in the process that needs it.

        config (Any): The configuration of the encoder.
        data (bytes): What `to_onnx` made.
        """
        super().__init__()
        self.config = config
        self.register_buffer("graph", torch.frombuffer(bytearray(data or b"\0"), dtype=torch.uint8))
        self._session: Any = None
        self._made_for: Any = None

    @classmethod
    def from_config(cls, config: Any) -> "OnnxTransformer":
        """RETURNS (OnnxTransformer): One without a graph, for `load_state_dict`."""
        return cls(config)

    @property
    def device(self) -> torch.device:
        """RETURNS (torch.device): Where it is run: the CPU."""
        return torch.device("cpu")

    def load_state_dict(self, state_dict: Any, *args: Any, **kwargs: Any) -> Any:
        """Load a graph, of whatever size."""
        self.graph = torch.empty_like(state_dict["graph"])
        self._session = None
        return super().load_state_dict(state_dict, *args, **kwargs)

    def forward(self, **inputs: torch.Tensor) -> BaseModelOutput:
        """RETURNS (BaseModelOutput): (texts, pieces, width) from (texts, pieces) ids and which are real."""
        if torch.is_grad_enabled():
            raise ELQError(Errors.E090)
        arrays = {key: inputs[key].numpy().astype("int64") for key in _INPUTS}
        (states,) = self._open().run(None, arrays)
        return BaseModelOutput(last_hidden_state=torch.from_numpy(states))  # type: ignore[arg-type]

    def _open(self) -> Any:
        """RETURNS (Any): A session of this process with as many threads as torch has."""
        wanted = (os.getpid(), torch.get_num_threads())
        if self._session is None or self._made_for != wanted:
            if self._session is not None and self._made_for[0] != wanted[0]:
                _SESSIONS_OF_PARENT.append(self._session)
            runtime = _import_runtime()
            options = runtime.SessionOptions()
            options.intra_op_num_threads, options.inter_op_num_threads = wanted[1], 1
            self._session = runtime.InferenceSession(
                self.graph.numpy().tobytes(),
                options,
                providers=["CPUExecutionProvider"],
                disabled_optimizers=[_SLOW_FUSION],
            )
            self._made_for = wanted
        return self._session

    def __getstate__(self) -> Dict[str, Any]:
        """RETURNS (Dict[str, Any]): All but the session, which belongs to its process."""
        return {**self.__dict__, "_session": None}


def build_transformer_model(
    name: str,
    get_spans: Callable,
    tokenizer_config: Dict[str, Any] = {},  # noqa: B006  (as spacy-transformers has it; never changed)
    transformer_config: Dict[str, Any] = {},  # noqa: B006
    mixed_precision: bool = False,
    grad_scaler_config: Dict[str, Any] = {},  # noqa: B006
) -> TransformerModel:
    """`spacy-transformers.TransformerModel.v3`, quicker at prediction, and `mixed_precision` trains in
    bfloat16 on a CPU that can. The settings and files are the same.

    RETURNS (TransformerModel): The model of a `transformer` component.
    """
    model = TransformerModel(name, get_spans, tokenizer_config, transformer_config)
    model._func = _forward
    wrapper: Any = model.layers[0]
    wrapper.shims[0] = PredictionShim(
        wrapper.shims[0]._hfmodel,
        mixed_precision=mixed_precision,
        grad_scaler_config=grad_scaler_config,
    )
    return model


def _forward(
    model: TransformerModel, docs: List[Doc], is_train: bool
) -> Tuple[FullTransformerBatch, Callable]:
    """As spacy-transformers has it, but for prediction."""
    if is_train or not can_predict(model):
        return forward(model, docs, is_train)
    return predict_batch(model, docs), lambda d_output: docs


def build_onnx_transformer_model(name: str, get_spans: Callable) -> TransformerModel:
    """The model of a `transformer` component that `spacy elq quantize` made.

    name (str): What it was made from, for the record.
    get_spans (Callable): As in `spacy-transformers.TransformerModel.v3`.
    RETURNS (TransformerModel): The model, for prediction only.
    """
    model = TransformerModel(name, get_spans)
    model._func = _forward
    wrapper: Any = model.layers[0]
    wrapper.shims[0] = PredictionShim(wrapper.shims[0]._hfmodel, model_cls=OnnxTransformer)
    return model


def replace_transformer(model: TransformerModel, *, precision: str) -> TransformerModel:
    """Make a model that is run by ONNX Runtime of one that torch runs.

    model (TransformerModel): The model of a trained `transformer` component.
    precision (str): One of `PRECISIONS`.
    RETURNS (TransformerModel): A new model with the same tokenizer and windows.
    """
    wrapper: Any = model.layers[0]
    old = wrapper.shims[0]._hfmodel
    new = build_onnx_transformer_model(model.attrs["name"], model.attrs["get_spans"])
    transformer = OnnxTransformer(old.transformer.config, to_onnx(old.transformer, precision=precision))
    objects = HFObjects(old.tokenizer, transformer, old.vocab_file_contents, {}, {})
    new.attrs["set_transformer"](new, objects)
    return new


def to_onnx(transformer: Any, *, precision: str = "int8") -> bytes:
    """Write an encoder as a graph of ONNX, its parts fused as ONNX Runtime has kernels for them.

    transformer (Any): An encoder of transformers.
    precision (str): "int8" keeps the weights of matrices so, channel by channel, and the word embeddings;
        activations are quantized when they come. "float32" changes nothing.
    RETURNS (bytes): The graph.
    """
    _import_runtime()
    from onnxruntime.transformers.fusion_options import FusionOptions
    from onnxruntime.transformers.optimizer import optimize_model

    fusions = FusionOptions("bert")
    fusions.enable_skip_layer_norm = fusions.enable_bias_skip_layer_norm = False
    with TemporaryDirectory(prefix="spacy-elq-") as folder, _no_hints():
        plain, fused = Path(folder) / "plain.onnx", Path(folder) / "fused.onnx"
        _export(transformer, plain)
        model = optimize_model(str(plain), model_type="bert", opt_level=1, optimization_options=fusions)
        model.save_model_to_file(str(fused))
        if precision == "int8":
            return _quantize(fused)
        return fused.read_bytes()


def _export(transformer: Any, path: Path) -> None:
    states = _States(transformer)
    ids = torch.ones((2, 7), dtype=torch.int64)
    mask = torch.tensor([[1] * 7, [1] * 5 + [0] * 2])
    with torch.no_grad():
        torch.onnx.export(
            states,
            (ids, mask),
            str(path),
            input_names=list(_INPUTS),
            output_names=["states"],
            dynamic_axes={key: {0: "texts", 1: "pieces"} for key in (*_INPUTS, "states")},
            opset_version=17,
            dynamo=False,
        )


class _States(torch.nn.Module):
    """A copy of an encoder that computes attention step by step, as it can be traced and fused again."""

    def __init__(self, transformer: Any) -> None:
        super().__init__()
        config = copy.deepcopy(transformer.config)
        self.transformer = type(transformer)._from_config(config, attn_implementation="eager")
        self.transformer.load_state_dict(transformer.state_dict())
        self.eval()

    def forward(self, ids: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        """RETURNS (torch.Tensor): (texts, pieces, width)."""
        return self.transformer(input_ids=ids, attention_mask=mask).last_hidden_state


def _quantize(path: Path) -> bytes:
    import onnx
    from onnxruntime.quantization import QuantType, quantize_dynamic

    target = path.with_name("int8.onnx")
    quantize_dynamic(
        path,
        target,
        per_channel=True,
        # seven bits: eight overflow in the 16-bit sums of processors without VNNI
        reduce_range=True,
        weight_type=QuantType.QInt8,
        extra_options={"DefaultTensorType": onnx.TensorProto.FLOAT},
    )
    return target.read_bytes()


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


@contextlib.contextmanager
def _no_hints() -> Iterator[None]:
    """ONNX Runtime recommends preparations that were made already."""
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        yield
    finally:
        logging.disable(before)


def _import_runtime() -> Any:
    try:
        import onnx  # noqa: F401
        import onnxruntime
    except ImportError as err:
        raise ELQError(Errors.E091.format(problem=err)) from None
    return onnxruntime
