"""Rows: recurrent cells of convolutions, against Flax's."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import flax.linen
import jax.numpy as jnp
import numpy as np

import treadle.numpy as tnp
from tests.oracles.layers.references import Arrays, Formula
from tests.oracles.layers.rows import Row, Taken, random
from treadle import nn, rng


def as_ours(name: str) -> Taken:
    """Gates there are input, cell, forget, output."""

    def take(values: Arrays) -> np.ndarray:
        i, g, f, o = np.split(values[name], 4, -1)
        return np.concatenate([i, f, g, o], -1)

    return take


def step(kernel: Sequence[int]) -> Any:
    cell = flax.linen.ConvLSTMCell(5, kernel)

    def run(weights: Any, x: Any, hidden: Any, state: Any) -> Any:
        # It adds 1 to the forget gate by itself.
        bias = weights["bias"] - jnp.repeat(jnp.array([0.0, 0, 1, 0]), 5)
        parameters = {
            "ih": {"kernel": weights["ih"], "bias": bias},
            "hh": {"kernel": weights["hh"], "bias": jnp.zeros(20)},
        }
        (state, hidden), _ = cell.apply({"params": parameters}, (state, hidden), x)
        return hidden, state

    return run


def weights(kernel: Sequence[int]) -> dict[str, np.ndarray]:
    return {
        "ih": random(*kernel, 3, 20) / 4,
        "hh": random(*kernel, 5, 20, seed=1) / 4,
        "bias": random(20),
    }


TAKEN = {
    "conv_ih.weight": as_ours("ih"),
    "conv_ih.bias": as_ours("bias"),
    "conv_hh.weight": as_ours("hh"),
}


def cell_row(space: Sequence[int], kernel: Sequence[int]) -> Row:
    run = step(kernel)
    return Row(
        f"ConvLSTMCell {len(kernel)}-D",
        lambda: nn.ConvLSTMCell(3, 5, kernel, key=rng.key(0)),
        lambda: Formula(lambda *a: jnp.concatenate(run(*a), -1), weights(kernel)),
        (random(4, *space, 3), random(4, *space, 5), random(4, *space, 5, seed=1)),
        TAKEN,
        call=lambda cell, x, h, c: tnp.concatenate(cell(x, (h, c)), -1),
    )


def over_time(values: Any, frames: Any, lengths: Any) -> Any:
    """Outputs of two-dimensional frames, and the last hidden state."""
    run = step((3, 2))
    hidden = state = jnp.zeros((*frames.shape[:1], *frames.shape[2:-1], 5))
    outputs = []
    for time in range(frames.shape[1]):
        there = (time < lengths)[:, None, None, None]
        new = run(values, frames[:, time], hidden, state)
        hidden, state = (
            jnp.where(there, new[0], hidden),
            jnp.where(there, new[1], state),
        )
        outputs.append(jnp.where(there, hidden, 0))
    return jnp.stack([*outputs, hidden], 1)


def over_time_here(layer: Any, frames: Any, lengths: Any) -> Any:
    outputs, (hidden, _) = layer(frames, lengths=lengths)
    return tnp.concatenate([outputs, tnp.expand_dims(hidden, -4)], -4)


ROWS = [
    cell_row((7,), (3,)),
    cell_row((6, 5), (3, 2)),
    cell_row((3, 4, 2), (3, 1, 2)),
    Row(
        "RNN of ConvLSTMCell, lengths",
        lambda: nn.RNN(nn.ConvLSTMCell(3, 5, (3, 2), key=rng.key(0))),
        lambda: Formula(over_time, weights((3, 2))),
        (random(4, 3, 6, 5, 3), np.array([3, 1, 2, 0], np.int32)),
        {f"cell.{path}": take for path, take in TAKEN.items()},
        call=over_time_here,
    ),
]
