"""Encoders that ONNX Runtime runs, in int8 or float32. The one module that knows ONNX."""

import contextlib
import copy
import logging
import os
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Callable, Dict, Iterator, List

import numpy as np
import torch
from transformers.modeling_outputs import BaseModelOutput

from ..errors import ELQError, Errors
from ..types import Array
from .transformer import TransformerModel, replace_module, use_fast_prediction

PRECISIONS = ("int8", "float32")
_INPUTS = ("input_ids", "attention_mask")
# ONNX Runtime adds and normalizes quicker in two steps than in one
_SLOW_FUSION = "SkipLayerNormFusion"
# a session that is dropped waits for its threads, and a forked process has none of its parent's
_SESSIONS_OF_PARENT: List[Any] = []


class OnnxTransformer(torch.nn.Module):
    """An encoder of transformers as ONNX Runtime runs it, for prediction only."""

    # its weights are small and laid out in advance, see `transformer.predict_batch`
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

    def to_bytes(self) -> bytes:
        """RETURNS (bytes): The graph."""
        return self.graph.numpy().tobytes()

    def load_state_dict(self, state_dict: Any, *args: Any, **kwargs: Any) -> Any:
        """Load a graph of any size."""
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
            runtime = import_runtime()
            options = runtime.SessionOptions()
            options.intra_op_num_threads, options.inter_op_num_threads = wanted[1], 1
            self._session = runtime.InferenceSession(
                self.to_bytes(),
                options,
                providers=["CPUExecutionProvider"],
                disabled_optimizers=[_SLOW_FUSION],
            )
            self._made_for = wanted
        return self._session

    def __getstate__(self) -> Dict[str, Any]:
        """RETURNS (Dict[str, Any]): All but the session, which belongs to its process."""
        return {**self.__dict__, "_session": None}


def build_onnx_transformer_model(name: str, get_spans: Callable) -> TransformerModel:
    """The model of a `transformer` component made by `spacy elq quantize`. It is for prediction only.

    name (str): The model that it was made from, for reference.
    get_spans (Callable): As in `spacy-transformers.TransformerModel.v3`.
    RETURNS (TransformerModel): The model, for prediction only.
    """
    return use_fast_prediction(TransformerModel(name, get_spans), model_cls=OnnxTransformer)


def replace_transformer(model: TransformerModel, *, precision: str) -> TransformerModel:
    """Convert a model that torch runs to one that ONNX Runtime runs.

    model (TransformerModel): The model of a trained `transformer` component.
    precision (str): One of `PRECISIONS`.
    RETURNS (TransformerModel): A new model with the same tokenizer and windows.
    """
    old = model.transformer
    module = OnnxTransformer(old.config, to_onnx(old, precision=precision))
    new = build_onnx_transformer_model(model.attrs["name"], model.attrs["get_spans"])
    return replace_module(new, module, like=model)


def to_onnx(transformer: Any, *, precision: str = "int8") -> bytes:
    """Write an encoder as a graph of ONNX, its parts fused as ONNX Runtime has kernels for them.

    transformer (Any): An encoder of transformers.
    precision (str): "int8" keeps the weights of matrices so, channel by channel, and the word embeddings;
        activations are quantized when they come. "float32" changes nothing.
    RETURNS (bytes): The graph.
    """
    import_runtime(converts=True)
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


def read_bert(graph: bytes) -> Dict[str, Array]:
    """Read the parameters of a BERT that was exported to ONNX.

    graph (bytes): An ONNX model. Its matrices have lost their names, but each is the second factor of a
        product that still has one.
    RETURNS (Dict[str, Array]): The parameters by their names in transformers. The pooler, which the
        export left out and no sentence encoder uses, is zero.
    """
    import onnx
    from onnx import numpy_helper

    model = onnx.load_from_string(graph)
    constants = {x.name: numpy_helper.to_array(x) for x in model.graph.initializer}
    weights = {name: x for name, x in constants.items() if name.startswith(("embeddings.", "encoder.layer."))}
    for node in model.graph.node:
        if node.op_type == "MatMul" and node.input[1] in constants:
            # /encoder/layer.0/attention/self/query/MatMul
            name = node.name.removesuffix("/MatMul").strip("/").replace("/", ".")
            weights[f"{name}.weight"] = np.ascontiguousarray(constants[node.input[1]].T)
    width = weights["embeddings.word_embeddings.weight"].shape[1]
    weights["pooler.dense.weight"] = np.zeros((width, width), dtype="float32")
    weights["pooler.dense.bias"] = np.zeros(width, dtype="float32")
    weights.pop("embeddings.position_ids", None)
    return weights


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


@contextlib.contextmanager
def _no_hints() -> Iterator[None]:
    """ONNX Runtime recommends preparations that were made already."""
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        yield
    finally:
        logging.disable(before)


def import_runtime(*, converts: bool = False) -> Any:
    """Import ONNX Runtime.

    converts (bool): Whether it is to write a graph, which needs the package `onnx` as well.
    RETURNS (Any): The package, or an error that says how to install both.
    """
    # it reports to its makers unless told not to, before it is imported
    os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")
    try:
        import onnxruntime

        if converts:
            import onnx  # noqa: F401
    except ImportError as err:
        raise ELQError(Errors.E091.format(problem=err)) from None
    return onnxruntime
