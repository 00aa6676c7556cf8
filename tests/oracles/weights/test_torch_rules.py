"""Modules of PyTorch into ours and back, by the rules of their layers."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch

import treadle as td
from treadle import nn, rng, weights

KEY = rng.key(0)
RANDOM = np.random.default_rng(0)
RELU = partial(nn.FeedForward, activation=nn.relu)
TRANSFORMER = {"nhead": 2, "dim_feedforward": 12, "dropout": 0.0, "batch_first": True}


def normal(*shape: int) -> np.ndarray:
    return RANDOM.standard_normal(shape).astype(np.float32)


class Pair(NamedTuple):
    """A module of theirs and one of ours, and the inputs of both."""

    theirs: Callable[[], torch.nn.Module]
    ours: Callable[[], nn.Module]
    inputs: tuple[np.ndarray, ...]
    images: bool = False
    names: dict[str, str] | None = None


class Own(nn.Module):
    """Layers in lists and dicts, beside an array of its own."""

    scale: td.Array
    blocks: list[nn.Linear]
    heads: dict[str, Any]

    def __init__(self) -> None:
        self.scale = nn.init.ones(None, (2, 4))
        self.blocks = [nn.Linear(4, 4, key=KEY) for _ in range(2)]
        self.heads = {"a": nn.Sequential(nn.relu, nn.Linear(4, 3, key=KEY))}

    def __call__(self, x: td.Array) -> td.Array:
        for row, block in enumerate(self.blocks):
            x = self.scale[row] * block(x)
        return self.heads["a"](x)


class TheirOwn(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.scale = torch.nn.Parameter(torch.randn(2, 4))
        self.fc = torch.nn.ModuleList([torch.nn.Linear(4, 4) for _ in range(2)])
        layers = torch.nn.ReLU(), torch.nn.Linear(4, 3)
        self.heads = torch.nn.ModuleDict({"a": torch.nn.Sequential(*layers)})

    def forward(self, x: Any) -> Any:
        for row, block in enumerate(self.fc):
            x = self.scale[row] * block(x)
        return self.heads["a"](x)


def recurrent(kind: str, cell: Any, **options: Any) -> Pair:
    return Pair(
        lambda: getattr(torch.nn, kind)(3, 5, 2, batch_first=True, **options),
        lambda: nn.StackedRNN.make(cell, (3, 5, 5), key=KEY, **options),
        (normal(2, 7, 3),),
    )


class Normed(torch.nn.Module):
    """What has run before has statistics of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = torch.nn.BatchNorm1d(4)
        self.norm(torch.randn(9, 4))

    def forward(self, x: Any) -> Any:
        return self.norm(x)


PAIRS = {
    "own": Pair(TheirOwn, Own, (normal(3, 4),), names={"blocks": "fc"}),
    "bilinear": Pair(
        lambda: torch.nn.Bilinear(3, 4, 5),
        lambda: nn.Bilinear(3, 4, 5, key=KEY),
        (normal(2, 3), normal(2, 4)),
    ),
    "embedding": Pair(
        lambda: torch.nn.Embedding(9, 4),
        lambda: nn.Embedding(9, 4, key=KEY),
        (np.array([[1, 8], [0, 3]]),),
    ),
    "images": Pair(
        lambda: torch.nn.Sequential(
            torch.nn.Conv2d(4, 6, 3, groups=2),
            torch.nn.GroupNorm(2, 6),
            torch.nn.PReLU(),
            torch.nn.ConvTranspose2d(6, 4, 3, stride=2, groups=2),
        ),
        lambda: nn.Sequential(
            nn.Conv2d(4, 6, 3, groups=2, padding=0, key=KEY),
            nn.GroupNorm(2, 6),
            nn.PReLU(),
            nn.ConvTranspose2d(6, 4, 3, stride=2, groups=2, padding=0, key=KEY),
        ),
        (normal(2, 4, 9, 8),),
        images=True,
    ),
    "statistics": Pair(
        Normed,
        lambda: nn.Sequential(nn.BatchNorm(4)),
        (normal(6, 4),),
        names={"layers.0": "norm"},
    ),
    "lstm": recurrent("LSTM", nn.LSTMCell, bidirectional=True),
    "lstm, projected": Pair(
        lambda: torch.nn.LSTM(3, 5, batch_first=True, proj_size=2),
        lambda: nn.RNN(nn.LSTMCell(3, 5, proj_size=2, key=KEY)),
        (normal(2, 7, 3),),
    ),
    "gru": recurrent("GRU", nn.GRUCell, bidirectional=True),
    "rnn": recurrent("RNN", nn.SimpleCell),
    "gru cell": Pair(
        lambda: torch.nn.GRUCell(3, 5),
        lambda: nn.GRUCell(3, 5, key=KEY),
        (normal(2, 3), normal(2, 5)),
    ),
    "encoder": Pair(
        lambda: torch.nn.TransformerEncoder(
            torch.nn.TransformerEncoderLayer(8, **TRANSFORMER), 2
        ),
        lambda: nn.TransformerEncoder(2, 8, 2, 12, pre_norm=False, mlp=RELU, key=KEY),
        (normal(3, 5, 8),),
    ),
    "decoder": Pair(
        lambda: torch.nn.TransformerDecoderLayer(8, norm_first=True, **TRANSFORMER),
        lambda: nn.TransformerDecoderBlock(8, 2, 12, mlp=RELU, key=KEY),
        (normal(3, 1, 8), normal(3, 4, 8)),
    ),
}


def values(module: torch.nn.Module) -> dict[str, np.ndarray]:
    return {name: value.numpy() for name, value in module.state_dict().items()}


def outputs(module: torch.nn.Module, pair: Pair) -> np.ndarray:
    with torch.no_grad():
        found = module(*(torch.tensor(x) for x in pair.inputs))
    return (found[0] if isinstance(found, tuple) else found).numpy()


@pytest.mark.filterwarnings("ignore:LSTM with projections:UserWarning")
@pytest.mark.parametrize("name", PAIRS)
def test_a_module_comes_in_and_goes_out(name: str) -> None:
    torch.manual_seed(0)
    pair = PAIRS[name]
    theirs, blank = pair.theirs().eval(), pair.ours()
    rules = weights.torch_rules(blank, pair.names)
    ours = nn.inference(weights.into(blank, values(theirs), rules))

    inputs = [np.moveaxis(x, 1, -1) if pair.images else x for x in pair.inputs]
    found = ours(*inputs)
    found = np.asarray(found[0] if isinstance(found, tuple) else found)
    found = np.moveaxis(found, -1, 1) if pair.images else found
    np.testing.assert_allclose(found, outputs(theirs, pair), 1e-5, 1e-5)

    again = pair.theirs().eval()
    gone = weights.of(ours, rules)
    missing = set(values(again)) - set(gone)
    assert all(part.endswith("num_batches_tracked") for part in missing)
    again.load_state_dict({k: torch.tensor(v) for k, v in gone.items()}, strict=False)
    np.testing.assert_allclose(outputs(again, pair), outputs(theirs, pair), 1e-5, 1e-5)


def test_what_is_missing_is_named_as_pytorch_does() -> None:
    theirs = values(torch.nn.LSTM(3, 5))
    del theirs["bias_hh_l0"]
    ours = nn.RNN(nn.LSTMCell(3, 5, key=KEY))
    with pytest.raises(ValueError, match="`bias_hh_l0`, which is missing"):
        weights.into(ours, theirs, weights.torch_rules(ours))
