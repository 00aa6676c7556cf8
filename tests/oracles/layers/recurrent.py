"""Rows: recurrent cells and layers, against PyTorch's."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import torch
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

import treadle.numpy as tnp
from tests.oracles.layers.references import Torch
from tests.oracles.layers.rows import Row, Taken, random
from treadle import nn, rng, tree

KEY = rng.key(0)
LENGTHS = np.array([4, 6, 1, 3], np.int32)


def theirs(kind: str, *args: Any, call: Any, **options: Any) -> Torch:
    """A module without the second biases that ours has no place for: all but that of
    the new gate of a GRU."""
    module = getattr(torch.nn, kind)(*args, **options)
    for name, p in module.named_parameters():
        if "bias_hh" in name:
            n = 2 * len(p) // 3 if kind.startswith("GRU") else len(p)
            with torch.no_grad():
                p[:n] = 0
    return Torch(module, call)


def weights(prefix: str, suffix: str, kind: str) -> dict[str, Taken]:
    """For a cell at a place of ours, and a layer and direction as they name it."""

    def turned(name: str) -> Taken:
        return lambda values: values[name + suffix].T

    found: dict[str, Taken] = {
        f"{prefix}weight_ih": turned("weight_ih"),
        f"{prefix}weight_hh": turned("weight_hh"),
        f"{prefix}bias": lambda values: values["bias_ih" + suffix],
    }
    if kind.startswith("GRU"):
        found[f"{prefix}bias_n"] = lambda v: np.split(v["bias_hh" + suffix], 3)[2]
    if kind == "LSTM proj":
        found[f"{prefix}weight_hr"] = turned("weight_hr")
    return found


def both_directions(kind: str) -> dict[str, Taken]:
    return {
        path: take
        for layer in (0, 1)
        for way, suffix in (("forward", ""), ("backward", "_reverse"))
        for path, take in weights(
            f"layers.{layer}.{way}.cell.", f"_l{layer}{suffix}", kind
        ).items()
    }


def run_theirs(module: Any, x: Any, lengths: Any = None) -> Any:
    """Outputs and last carries, side by side."""
    if lengths is None:
        outputs, last = module(x)
    else:
        packed = pack_padded_sequence(x, lengths, True, enforce_sorted=False)
        packed, last = module(packed)
        outputs, _ = pad_packed_sequence(packed, True, total_length=x.shape[1])
    last = last if isinstance(last, tuple) else (last,)
    parts = [part[i] for i in range(len(last[0])) for part in last]
    return torch.cat([outputs.flatten(1), *parts], 1)


def run_ours(layer: Any, x: Any, lengths: Any = None) -> Any:
    outputs, last = layer(x, lengths=lengths)
    flat = outputs.reshape(*outputs.shape[:-2], -1)
    return tnp.concatenate([flat, *tree.leaves(last)], -1)


def lstm_step(cell: Any, x: Any, h: Any, c: Any) -> Any:
    return tnp.concatenate(cell(x, (h, c)), -1)


def stacked(name: str, cell: Any, kind: str, *inputs: Any, **options: Any) -> Row:
    return Row(
        f"StackedRNN {name}",
        lambda: nn.StackedRNN.make(cell, (3, 5, 5), bidirectional=True, key=KEY),
        lambda: theirs(
            kind.split()[0],
            3,
            5,
            2,
            batch_first=True,
            bidirectional=True,
            call=run_theirs,
            **options,
        ),
        inputs,
        both_directions(kind),
        call=run_ours,
    )


def one_way(name: str, ours: Any, kind: str, *inputs: Any) -> Row:
    return Row(
        name,
        ours,
        lambda: theirs(kind, 3, 5, batch_first=True, call=run_theirs),
        inputs,
        weights("cell.", "_l0", kind),
        call=run_ours,
    )


def relu_cell(*args: Any, **options: Any) -> Any:
    return nn.SimpleCell(*args, activation=nn.relu, **options)


FRAMES = random(4, 6, 3)
ROWS = [
    Row(
        "SimpleCell",
        lambda: nn.SimpleCell(3, 5, key=KEY),
        lambda: theirs("RNNCell", 3, 5, call=None),
        (random(4, 3), random(4, 5)),
        weights("", "", "RNN"),
    ),
    Row(
        "GRUCell",
        lambda: nn.GRUCell(3, 5, key=KEY),
        lambda: theirs("GRUCell", 3, 5, call=None),
        (random(4, 3), random(4, 5)),
        weights("", "", "GRU"),
    ),
    Row(
        "LSTMCell",
        lambda: nn.LSTMCell(3, 5, key=KEY),
        lambda: theirs(
            "LSTMCell", 3, 5, call=lambda m, x, h, c: torch.cat(m(x, (h, c)), -1)
        ),
        (random(4, 3), random(4, 5), random(4, 5, seed=1)),
        weights("", "", "LSTM"),
        call=lstm_step,
    ),
    one_way("RNN lstm", lambda: nn.RNN(nn.LSTMCell(3, 5, key=KEY)), "LSTM", FRAMES),
    one_way(
        "RNN gru, lengths",
        lambda: nn.RNN(nn.GRUCell(3, 5, key=KEY)),
        "GRU",
        FRAMES,
        LENGTHS,
    ),
    Row(
        "Bidirectional lengths",
        lambda: nn.Bidirectional(
            nn.LSTMCell(3, 5, key=KEY), nn.LSTMCell(3, 5, key=KEY)
        ),
        lambda: theirs(
            "LSTM", 3, 5, batch_first=True, bidirectional=True, call=run_theirs
        ),
        (FRAMES, LENGTHS),
        weights("forward.cell.", "_l0", "LSTM")
        | weights("backward.cell.", "_l0_reverse", "LSTM"),
        call=run_ours,
    ),
    stacked("lstm", nn.LSTMCell, "LSTM", FRAMES, LENGTHS),
    stacked("gru", nn.GRUCell, "GRU", FRAMES),
    stacked("relu", relu_cell, "RNN", FRAMES, LENGTHS, nonlinearity="relu"),
    stacked(
        "lstm, projected",
        partial(nn.LSTMCell, proj_size=2),
        "LSTM proj",
        FRAMES,
        LENGTHS,
        proj_size=2,
    ),
]
