"""VectorNet, the network of VCG: scores the candidates of an n-gram, and the n-gram as a mention."""

from typing import Any, Callable, Dict, List, Tuple

import numpy as np
import torch
from thinc.api import ArgsKwargs, Model, PyTorchWrapper_v2
from torch.nn import Conv1d, Dropout, Embedding, Linear, ModuleList, ReLU, Sequential

from ...types import Array
from .characters import COUNT, LENGTH
from .features import NUMBERS, Features

# mention logits of n-grams, and scores of candidates
Scores = Tuple[Array, Array]
# length of the vector that says where a token or a character is
_PLACE = 3
_REPEATS = 3


class _Convolutions(torch.nn.Module):
    """Convolutions over a sequence: one to make the channels, then, several times with the same weights, one
    that looks at every second place and one that looks at neighbours.
    """

    def __init__(self, width: int, channels: int) -> None:
        super().__init__()
        self._first = Conv1d(width, channels, 3, padding=1)
        self._dilated = Conv1d(channels, channels, 3, padding=2, dilation=2)
        self._near = Conv1d(channels, channels, 3, padding=1)

    def forward(self, X: torch.Tensor) -> torch.Tensor:
        """RETURNS (torch.Tensor): (texts, channels, places) from (texts, width, places)."""
        Y = torch.relu(self._first(X))
        for _ in range(_REPEATS):
            Y = torch.relu(self._near(torch.relu(self._dilated(Y))))
        return Y


class _Question(torch.nn.Module):
    """A question with an n-gram: the highest value of each channel over its words."""

    def __init__(self, width: int, channels: int, dropout: float) -> None:
        super().__init__()
        self._places = Embedding(3, _PLACE, padding_idx=0)
        self._dropout = Dropout(dropout)
        self._convolutions = _Convolutions(width + _PLACE, channels)
        self._output = Sequential(Dropout(dropout), Linear(channels, channels // 2), ReLU())

    def forward(self, words: torch.Tensor, places: torch.Tensor) -> torch.Tensor:
        """RETURNS (torch.Tensor): (n-grams, channels / 2)."""
        X = self._dropout(torch.cat([words, self._places(places)], dim=2))
        return self._output(self._convolutions(X.transpose(1, 2)).amax(dim=2))


class _Characters(torch.nn.Module):
    """A name: the mean of each channel over its characters, weighted by what they are."""

    def __init__(self, width: int, channels: int, dropout: float) -> None:
        super().__init__()
        self._characters = Embedding(COUNT, width, padding_idx=0)
        self._places = Embedding(LENGTH + 1, _PLACE, padding_idx=0)
        self._dropout = Dropout(dropout)
        self._convolutions = _Convolutions(width + _PLACE, channels)
        self._weight = Conv1d(width + _PLACE, 1, 3, padding=1)
        self._output = Sequential(Dropout(dropout), Linear(channels, channels // 2), ReLU())

    def forward(self, names: torch.Tensor) -> torch.Tensor:
        """RETURNS (torch.Tensor): (names, channels / 2) from (names, characters)."""
        is_real = names > 0
        places = torch.arange(1, names.shape[1] + 1, device=names.device) * is_real
        X = self._dropout(torch.cat([self._characters(names), self._places(places)], dim=2)).transpose(1, 2)
        weights = self._weight(X).masked_fill(~is_real[:, None], -torch.inf).softmax(dim=2)
        return self._output((self._convolutions(X) * weights).sum(dim=2))


class _Scorer(torch.nn.Module):
    """Three layers, the others half as wide as the first."""

    def __init__(self, inputs: int, width: int, dropout: float) -> None:
        super().__init__()
        half = width // 2
        self._layers = Sequential(
            *(Linear(inputs, width), ReLU(), Dropout(dropout)),
            *(Linear(width, half), ReLU(), Linear(half, half), ReLU()),
        )

    def forward(self, X: torch.Tensor) -> torch.Tensor:
        """RETURNS (torch.Tensor): (rows, width / 2)."""
        return self._layers(X)


class VectorNet(torch.nn.Module):
    """Scores each candidate of an n-gram, and the n-gram as a mention."""

    def __init__(
        self, width: int, *, channels: int, characters: int, relations: int, candidates: int, mentions: int
    ) -> None:
        """Make the layers. For the settings see `build_vector_net`."""
        super().__init__()
        # the rate is set before each update
        dropout = 0.0
        self._dropout = Dropout(dropout)
        self._question = _Question(width, channels, dropout)
        self._names = _Characters(characters, channels, dropout)
        self._kind, self._phrase, self._entity = ModuleList(
            Sequential(Dropout(dropout), Linear(width, relations), ReLU()) for _ in range(3)
        )
        inputs = 3 * (channels // 2) + 4 * relations + NUMBERS
        self._candidates = _Scorer(inputs, candidates, dropout)
        self._mentions = _Scorer(2 * (channels // 2), mentions, dropout)
        self._score = Linear(candidates, 1)
        self._is_mention = Linear(candidates // 2 + mentions // 2 + 2, 1)
        self.apply(_initialize)

    def forward(self, X: Dict[str, torch.Tensor]) -> Tuple[torch.Tensor, torch.Tensor]:
        """RETURNS (Tuple[torch.Tensor, torch.Tensor]): (n-grams,) logits and (candidates,) scores, from the
        fields of `Features`.
        """
        sizes = X["sizes"]
        owners = torch.repeat_interleave(torch.arange(len(sizes), device=sizes.device), sizes)
        asked = torch.cat([self._question(X["words"], X["places"]), self._names(X["contexts"])], dim=1)
        own = self._encode_entities(X)[X["candidates"]]
        Y = self._candidates(torch.cat([asked[owners], own, X["numbers"]], dim=1))
        # of all candidates of an n-gram the highest value of each dimension
        best = _highest(Y, owners, Y.new_zeros(len(sizes), Y.shape[1]))
        scores = self._score(torch.cat([Y, best[owners]], dim=1))
        top = _highest(scores, owners, scores.new_full((len(sizes), 1), -torch.inf))
        # how many there are, of 50 and as a logarithm: the published code takes the number itself
        count = torch.log1p(sizes[:, None].to(Y.dtype)) / 4
        logits = self._is_mention(torch.cat([self._mentions(asked), best, top, count], dim=1))
        return logits[:, 0], scores[:, 0]

    def _encode_entities(self, X: Dict[str, torch.Tensor]) -> torch.Tensor:
        """RETURNS (torch.Tensor): (entities, width) relations, what they lead to, the entity, its title."""
        # what an entity lacks counts like a vector of zeros, as padding does in the published code
        parts = [
            self._pool(layer, X[name], X["owners"], len(X["entities"]))
            for layer, name in ((self._kind, "kinds"), (self._entity, "others"), (self._phrase, "phrases"))
        ]
        return torch.cat([*parts, self._entity(X["entities"]), self._names(X["labels"])], dim=1)

    @staticmethod
    def _pool(layer: torch.nn.Module, X: torch.Tensor, owners: torch.Tensor, count: int) -> torch.Tensor:
        nothing = layer(X.new_zeros(1, X.shape[1]))
        return _highest(layer(X), owners, nothing.expand(count, -1))

    def set_dropout(self, rate: float) -> None:
        """Set how much is dropped in training."""
        for module in self.modules():
            if isinstance(module, Dropout):
                module.p = rate


def _highest(X: torch.Tensor, owners: torch.Tensor, least: torch.Tensor) -> torch.Tensor:
    """RETURNS (torch.Tensor): (groups, width) the highest values of the rows of each group, at least `least`.

    owners (torch.Tensor): (rows,) the group of each.
    least (torch.Tensor): (groups, width).
    """
    return least.scatter_reduce(0, owners[:, None].expand(-1, X.shape[1]), X, "amax")


def _initialize(module: torch.nn.Module) -> None:
    """Set the weights of a layer as the published code does."""
    if isinstance(module, (Linear, Conv1d)):
        inputs = module.in_features if isinstance(module, Linear) else module.in_channels
        torch.nn.init.normal_(module.weight, std=inputs**-0.5)
        if module.bias is not None:
            torch.nn.init.zeros_(module.bias)
    elif isinstance(module, Embedding):
        torch.nn.init.normal_(module.weight, std=0.02)
        with torch.no_grad():
            module.weight[0] = 0.0


def build_vector_net(
    width: int = 50,
    channels: int = 32,
    characters: int = 50,
    relations: int = 75,
    candidates: int = 128,
    mentions: int = 16,
) -> Model[Features, Scores]:
    """The model of `elq_vcg`: VectorNet. The defaults are those of the published configuration.

    width (int): Length of the vectors of words, entities and relations, as `spacy elq relations` makes them.
    channels (int): Channels of the convolutions over words and over characters; the vector of a question or
        of a name is half as long.
    characters (int): Length of a character's vector.
    relations (int): Length of the vectors that those of relations and entities become.
    candidates (int): First layer that scores candidates; the next ones are half as wide.
    mentions (int): First layer that scores mentions; the next ones are half as wide.
    RETURNS (Model[Features, Scores]): From features to (n-grams,) mention logits and (candidates,) scores, in
        host memory.
    """
    network = VectorNet(
        width,
        channels=channels,
        characters=characters,
        relations=relations,
        candidates=candidates,
        mentions=mentions,
    )
    wrapped: Model = PyTorchWrapper_v2(network, convert_inputs=_to_tensors, convert_outputs=_to_arrays)
    wrapped.set_dim("nI", width)
    return wrapped


def _to_tensors(
    model: Model, features: Features, is_train: bool
) -> Tuple[ArgsKwargs, Callable[[ArgsKwargs], List[Any]]]:
    device = model.shims[0].device  # type: ignore[attr-defined]
    tensors = {name: _to_tensor(values).to(device) for name, values in vars(features).items()}
    return ArgsKwargs(args=(tensors,), kwargs={}), lambda d_inputs: []


def _to_tensor(values: Array) -> torch.Tensor:
    tensor = torch.from_numpy(np.ascontiguousarray(values))
    return tensor if values.dtype.kind == "f" else tensor.long()


def _to_arrays(
    model: Model, inputs_and_outputs: Any, is_train: bool
) -> Tuple[Scores, Callable[[Scores], ArgsKwargs]]:
    _, outputs = inputs_and_outputs

    def backprop(gradients: Scores) -> ArgsKwargs:
        tensors = tuple(torch.from_numpy(x).to(y) for x, y in zip(gradients, outputs, strict=True))
        return ArgsKwargs(args=(outputs,), kwargs={"grad_tensors": tensors})

    logits, scores = (output.detach().cpu().numpy() for output in outputs)
    return (logits, scores), backprop


def set_dropout(model: Model, rate: float) -> None:
    """Set how much the network drops in training."""
    for shim in model.shims:
        network: Any = shim._model
        network.set_dropout(rate)
