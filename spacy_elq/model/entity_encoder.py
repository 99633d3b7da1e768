"""The entity encoder: `[CLS] title [ENT] description [SEP]` to a vector."""

import copy
import hashlib
import json
import os
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Callable, Dict, List, Mapping, Optional, Sequence, Tuple

import numpy as np
import torch
from thinc.api import ArgsKwargs, Model, PyTorchWrapper_v2
from thinc.types import Floats2d
from torch.nn.utils.rnn import pad_sequence

from ..errors import ELQError, Errors, describe_difference
from ..types import Array, Entity
from ..util import settle_threads
from .fetch import hub_options, is_hub_name
from .onnx import OnnxTransformer, import_runtime, to_onnx
from .prefix import first_pieces
from .pretrained import load_pretrained, read_graph, write_graph
from .recipe import Recipe, read_recipe, write_recipe
from .transformer import split_mixed_precision, use_bfloat16

BERT_ENT = "[unused2]"
# where the encoder of an index may be, from its folder: bundled, or imported with a published model
BUNDLE, IMPORTED = "encoder", "../../entity_encoder"
_NOT_THE_MODEL = ("_name_or_path", "transformers_version", "torch_dtype", "dtype")


class _Pooled(torch.nn.Module):
    """A transformer whose word pieces become one vector."""

    def __init__(self, transformer: torch.nn.Module, pooling: str, norm: float) -> None:
        super().__init__()
        self.transformer = transformer
        self._pooling = pooling
        self._norm = norm
        self.in_bfloat16 = False

    def forward(self, ids: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        """RETURNS (torch.Tensor): (entities, width) from (entities, pieces) ids and where they are real."""
        with use_bfloat16(self.in_bfloat16 and self.training):
            states = self.transformer(input_ids=ids, attention_mask=mask.long()).last_hidden_state.float()
        if self._pooling == "cls":
            vectors = states[:, 0]
        else:
            weights = mask.unsqueeze(-1).to(states.dtype)
            vectors = (states * weights).sum(dim=1) / weights.sum(dim=1)
        if self._norm:
            vectors = vectors * (self._norm / vectors.norm(dim=1, keepdim=True))
        return vectors.float()


class EntityEncoder:
    """A transformer over title and description."""

    def __init__(
        self,
        name: str,
        *,
        pooling: Optional[str] = None,
        max_length: Optional[int] = None,
        aliases: Optional[bool] = None,
        ent_token: Optional[str] = None,
        norm: Optional[float] = None,
        int8: Optional[bool] = None,
        bfloat16: bool = False,
    ) -> None:
        """Load the encoder. A setting that is None is that of its recipe (the file `elq_encoder.json` in its
        folder), or else the default.

        name (str): A local folder, or the name of a model on the Hugging Face hub.
        pooling (Optional[str]): "mean" of all word pieces, which suits sentence encoders, or "cls", the
            vector of the first word piece, which matches the paper. The default is "mean".
        max_length (Optional[int]): Maximum number of word pieces, special ones included. The default is 128.
        aliases (Optional[bool]): Whether to put the aliases between the title and the description. The
            default is False.
        ent_token (Optional[str]): The word piece between title and description. The default is `[unused2]` if
            the vocabulary has it (BERT), else the separator token.
        norm (Optional[float]): Scale every vector to this length: sentence encoders are trained to compare
            angles. The default is 0, which leaves the vectors as they are and matches the paper.
        int8 (Optional[bool]): Whether ONNX Runtime computes the vectors in 8-bit integers. They are close to
            those of torch and work with the same questions. The default is False.
        bfloat16 (bool): Whether torch computes the vectors in bfloat16 on a CPU that has instructions for it;
            on others, it computes in float32. The vectors are nearly the same.
        """
        saved = read_recipe(name)
        recipe = saved.updated(
            pooling=pooling,
            max_length=max_length,
            aliases=aliases,
            ent_token=ent_token,
            norm=norm,
            int8=int8,
        )
        if saved.is_int8_only:
            _check_int8_only(name, recipe, saved)
        if bfloat16 and recipe.int8:
            expected = "false, or int8 false"
            raise ELQError(
                Errors.E002.format(setting="bfloat16", name="encode", value=bfloat16, expected=expected)
            )
        self._name = str(Path(name).absolute()) if Path(name).exists() else name
        self._tokenizer, self._config, self._model, self._unsaved = load_pretrained(
            name, with_weights=not saved.is_int8_only
        )
        room = getattr(self._config, "max_position_embeddings", recipe.max_length)
        if not 4 <= recipe.max_length <= room:
            raise ELQError(Errors.E037.format(found=recipe.max_length, room=room))
        self._recipe = replace(recipe, ent_token=self._find_ent_token(recipe.ent_token))
        # before the first use, which leaves traces of its own in the tokenizer
        self._tokenizer_state = self._tokenizer.backend_tokenizer.to_str()
        transformer = self._model
        if recipe.int8:
            graph = read_graph(name, saved.sha256) if self._model is None else to_onnx(self._model)
            transformer = OnnxTransformer(self._config, graph)
        elif split_mixed_precision(bfloat16)[1]:
            transformer = copy.deepcopy(self._model).to(torch.bfloat16)
        self.module = _Pooled(transformer, recipe.pooling, recipe.norm)
        self._fingerprint = saved.fingerprint

    @property
    def width(self) -> int:
        """RETURNS (int): The length of a vector."""
        return int(self._config.hidden_size)

    @property
    def settings(self) -> Dict[str, Any]:
        """RETURNS (Dict[str, Any]): How it was made; the name of a local folder is its absolute path."""
        int8 = {"int8": True} if self._recipe.int8 else {}
        return {"name": self._name, **self._recipe.texts, **int8}

    @property
    def fingerprint(self) -> str:
        """RETURNS (str): A digest of the weights and of everything else that changes the vectors."""
        # weights that need no gradient stay as they are; the others could be trained between two calls
        if self._model is not None and any(x.requires_grad for x in self._model.parameters()):
            return self._compute_fingerprint()
        if not self._fingerprint:
            self._fingerprint = self._compute_fingerprint()
        return self._fingerprint

    def _compute_fingerprint(self) -> str:
        config = {key: v for key, v in self._config.to_dict().items() if key not in _NOT_THE_MODEL}
        described = [self._recipe.texts, config, self._tokenizer_state]
        digest = hashlib.sha256(json.dumps(described, sort_keys=True, default=str).encode("utf8"))
        for key, value in sorted(self._saved_weights().items()):
            digest.update(key.encode("utf8"))
            digest.update(value.float().contiguous().cpu().numpy().tobytes())
        return digest.hexdigest()[:16]

    def encode(self, entities: List[Entity], *, batch_size: int) -> Array:
        """Encode entities in batches of similar length.

        RETURNS (Array): (entities, width) float32, in the order given.
        """
        ids = self.word_pieces(entities) if entities else []
        order = np.argsort([len(x) for x in ids], kind="stable")
        vectors = np.zeros((len(ids), self.width), dtype="float32")
        for begin in range(0, len(order), batch_size):
            chosen = order[begin : begin + batch_size]
            vectors[chosen] = self._forward([ids[i] for i in chosen])
        return vectors

    def embeddings(self) -> Tuple[Array, str]:
        """Read the vectors that word pieces have before the first layer.

        RETURNS (Tuple[Array, str]): (pieces, width) float32, and the tokenizer of the pieces, in JSON.
        RAISES (ELQError): If there are only int8 weights.
        """
        if self._model is None:
            raise ELQError(Errors.E216.format(name=self._name))
        table = self._model.get_input_embeddings().weight
        return table.detach().float().cpu().numpy(), self._tokenizer_state

    def word_pieces(self, entities: List[Entity]) -> List[List[int]]:
        """RETURNS (List[List[int]]): The ids of `[CLS] title [ENT] description [SEP]`, cut to length."""
        tokenizer, room = self._tokenizer, self._recipe.max_length - 2
        ent = tokenizer.convert_tokens_to_ids(self._recipe.ent_token)
        titles = first_pieces(tokenizer, [partial(_begin, (), entity.title) for entity in entities], room)
        texts = [
            partial(_begin, entity.aliases if self._recipe.aliases else (), entity.description)
            for entity in entities
        ]
        return [
            [tokenizer.cls_token_id, *[*title, ent, *text][:room], tokenizer.sep_token_id]
            for title, text in zip(titles, first_pieces(tokenizer, texts, room), strict=True)
        ]

    def to_tensors(self, ids: List[List[int]]) -> Tuple[torch.Tensor, torch.Tensor]:
        """RETURNS (Tuple[torch.Tensor, torch.Tensor]): (entities, pieces) padded ids, and which are real."""
        tensors = [torch.tensor(x) for x in ids]
        padded = pad_sequence(tensors, batch_first=True, padding_value=self._tokenizer.pad_token_id or 0)
        lengths = torch.tensor([len(x) for x in ids])
        mask = torch.arange(padded.shape[1])[None] < lengths[:, None]
        device: Any = self.module.transformer.device
        return padded.to(device), mask.to(device)

    def to_disk(self, path: Path, *, int8: bool = False) -> None:
        """Save as a folder that `EntityEncoder` can load, with the settings as its recipe. The fingerprint of
        what is loaded is that of this one.

        path (Path): The folder.
        int8 (bool): Whether to save only weights in 8-bit integers, which ONNX Runtime runs: a quarter of
            the size, but transformers cannot load them. An encoder that was loaded from such a folder is
            always saved like that.
        """
        path = Path(path)
        path.mkdir(parents=True, exist_ok=True)
        recipe = replace(self._recipe, fingerprint="", sha256="")
        if int8 or self._model is None:
            sha256 = write_graph(path, self._to_graph())
            recipe = replace(recipe, int8=True, fingerprint=self.fingerprint, sha256=sha256)
        else:
            self._model.save_pretrained(path, state_dict=self._saved_weights())
        # as they were loaded: transformers changes both when they are used or saved
        self._config.save_pretrained(path)
        self._tokenizer.save_pretrained(path)
        (path / "tokenizer.json").write_text(self._tokenizer_state, encoding="utf8")
        write_recipe(path, recipe)

    def write_recipe(self, folder: Path) -> None:
        """Write the settings of this encoder as the recipe of a folder that already has its weights."""
        write_recipe(folder, self._recipe)

    def _saved_weights(self) -> Dict[str, torch.Tensor]:
        return {key: x for key, x in self._model.state_dict().items() if key not in self._unsaved}

    def _to_graph(self) -> bytes:
        transformer = self.module.transformer
        return transformer.to_bytes() if isinstance(transformer, OnnxTransformer) else to_onnx(self._model)

    @torch.inference_mode()
    def _forward(self, ids: List[List[int]]) -> Array:
        settle_threads()
        self.module.eval()  # in case it was trained in between
        return self.module(*self.to_tensors(ids)).cpu().numpy()

    def _find_ent_token(self, wanted: Optional[str]) -> str:
        vocab = self._tokenizer.get_vocab()
        if wanted is None:
            return BERT_ENT if BERT_ENT in vocab else self._tokenizer.sep_token
        if wanted not in vocab:
            expected = "a piece of its vocabulary"
            raise ELQError(
                Errors.E002.format(setting="ent_token", name="encode", value=wanted, expected=expected)
            )
        return wanted


def _check_int8_only(name: str, wanted: Recipe, saved: Recipe) -> None:
    """Check that nothing is wanted of int8 weights but what they were made for."""
    if wanted.texts != saved.texts:
        problem = describe_difference(wanted.texts, saved.texts)
        raise ELQError(Errors.E153.format(name=name, problem=problem))
    if not wanted.int8:
        raise ELQError(Errors.E153.format(name=name, problem="int8: False here, True expected"))
    import_runtime()


def _begin(aliases: Sequence[str], description: str, size: int) -> str:
    """RETURNS (str): The first characters of the aliases and the description of an entity."""
    parts: List[str] = []
    length = 0
    for alias in aliases:
        if length >= size + 2:  # with the separator, which stands between two only
            break
        parts.append(alias[:size])
        length += len(alias) + 2
    names = f"{', '.join(parts)}. " if parts else ""
    return (names + description[:size])[:size]


def open_encoder(
    stamp: Mapping[str, Any], folder: Optional[Path], *, name: Optional[str] = None
) -> EntityEncoder:
    """Load the encoder that made an index, with the same settings.

    stamp (Mapping[str, Any]): What the index stores of it: the settings, the "fingerprint" and, optionally,
        "paths", places relative to the folder of the index or absolute.
    folder (Optional[Path]): The folder of the index: if the encoder is bundled, it is inside.
    name (Optional[str]): The only place to look in, a local folder or the name of a model on the hub.
    RETURNS (EntityEncoder): The first that is found and has the same fingerprint.
    RAISES (ELQError): If it is nowhere, or if what is there is another one.
    """
    settings = {key: stamp[key] for key in (*Recipe().texts, "int8") if key in stamp}
    places = [name] if name is not None else _list_places(stamp, folder)
    found: List[str] = []
    for place in places:
        if name is None and not Path(place).is_dir() and not _is_on_hub(place):
            continue
        encoder = EntityEncoder(place, **settings)
        if encoder.fingerprint == stamp["fingerprint"]:
            return encoder
        here = {**encoder.settings, "fingerprint": encoder.fingerprint}
        found.append(describe_difference(here, stamp))
    if found:
        raise ELQError(Errors.E152.format(found="; ".join(found)))
    raise ELQError(Errors.E151.format(places=", ".join(places)))


def _list_places(stamp: Mapping[str, Any], folder: Optional[Path]) -> List[str]:
    """RETURNS (List[str]): Where the encoder of an index may be, without repetitions."""
    paths, names = stamp.get("paths", []), [stamp["name"]] if "name" in stamp else []
    if not isinstance(paths, list) or not all(isinstance(place, str) for place in [*paths, *names]):
        raise ELQError(Errors.E194.format(found={key: stamp.get(key) for key in ("name", "paths")}))
    if folder is not None:
        paths = [str(folder.absolute() / path) for path in (BUNDLE, IMPORTED, *paths)]
    return list(dict.fromkeys(os.path.normpath(path) for path in [*paths, *names]))


def _is_on_hub(name: str) -> bool:
    """RETURNS (bool): Whether it is the name of a model that the cache has, or perhaps the hub."""
    try:
        hub_options(name)
    except ELQError:
        return False
    return is_hub_name(name)


def build_entity_tower(
    name: str,
    pooling: str = "mean",
    max_length: int = 64,
    aliases: bool = False,
    norm: float = 0.0,
    frozen_layers: int = 0,
    mixed_precision: bool = False,
) -> Model[List[Entity], Floats2d]:
    """A trainable entity encoder, for `elq_pairs`: encodes the title and description of an entity.

    name (str): A local folder, or the name of a model on the Hugging Face hub.
    pooling (str): "mean" of all word pieces, which suits sentence encoders, or "cls", the vector of the first
        word piece, which matches the paper.
    max_length (int): Maximum number of word pieces, special ones included.
    aliases (bool): Whether to put the aliases between the title and the description.
    norm (float): Scale every vector to this length, which suits sentence encoders. 0 leaves the vectors as
        they are, which matches the paper.
    frozen_layers (int): Layers that are not trained, counted from the bottom. The word embeddings never are.
    mixed_precision (bool): As in `spacy-elq.TransformerModel.v1`.
    RETURNS (Model[List[Entity], Floats2d]): From entities to (entities, width); its `attrs["encoder"]` is the
        `EntityEncoder`.
    """
    encoder = EntityEncoder(
        name, pooling=pooling, max_length=max_length, aliases=aliases, norm=norm, int8=False
    )
    transformer: Any = encoder.module.transformer
    layers = len(transformer.encoder.layer)
    if not 0 <= frozen_layers < layers:
        expected = f"at least 0 and less than the {layers} layers of the encoder"
        raise ELQError(
            Errors.E002.format(
                setting="frozen_layers", name="elq_pairs", value=frozen_layers, expected=expected
            )
        )
    transformer.requires_grad_(True)
    for part in [transformer.embeddings, *transformer.encoder.layer[:frozen_layers]]:
        part.requires_grad_(False)
    on_gpu, encoder.module.in_bfloat16 = split_mixed_precision(mixed_precision)
    model = PyTorchWrapper_v2(encoder.module, convert_inputs=_convert_entities, mixed_precision=on_gpu)
    model.attrs["encoder"] = encoder
    model.set_dim("nO", encoder.width)
    return model


def _convert_entities(
    model: Model, entities: List[Entity], is_train: bool
) -> Tuple[ArgsKwargs, Callable[[ArgsKwargs], List[Entity]]]:
    encoder = model.attrs["encoder"]
    tensors = encoder.to_tensors(encoder.word_pieces(entities))
    return ArgsKwargs(args=tensors, kwargs={}), lambda d_inputs: []
