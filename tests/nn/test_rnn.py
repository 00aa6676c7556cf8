"""Recurrent cells: formulas, and a scan over time."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import pytest
from jax import lax

import treadle as td
import treadle.numpy as tnp
from tests.nn.oracle import agree_layer, random
from treadle import nn, rng

KEY = rng.key(0)


def lstm(w, u, b, x, h, c):
    i, f, g, o = jnp.split(x @ w + h @ u + b, 4, -1)
    c = jax.nn.sigmoid(f) * c + jax.nn.sigmoid(i) * jnp.tanh(g)
    return jax.nn.sigmoid(o) * jnp.tanh(c), c


def gru(w, u, b, b_n, x, h):
    x_r, x_z, x_n = jnp.split(x @ w + b, 3, -1)
    h_r, h_z, h_n = jnp.split(h @ u, 3, -1)
    z = jax.nn.sigmoid(x_z + h_z)
    n = jnp.tanh(x_n + jax.nn.sigmoid(x_r + h_r) * (h_n + b_n))
    return (1 - z) * n + z * h


class Unrolled(nn.Module):
    """The hidden states over time, (time, batch, hidden)."""

    cell: nn.Module

    def __call__(self, xs):
        def advance(carry, x):
            carry = self.cell(x, carry)
            return carry, carry[0] if isinstance(carry, tuple) else carry

        return td.scan(advance, self.cell.initial((2,)), xs)[1]


class Once(nn.Module):
    cell: nn.LSTMCell

    def __call__(self, x, h, c):
        return tnp.concatenate(self.cell(x, (h, c)), -1)


def test_lstm_cell():
    def formula(*args):
        return jnp.concatenate(lstm(*args), -1)

    layer = Once(nn.LSTMCell(3, 5, key=KEY))
    agree_layer(layer, formula, random(2, 3), random(2, 5), random(2, 5, seed=1))


def test_gru_cell():
    agree_layer(nn.GRUCell(3, 5, key=KEY), gru, random(2, 3), random(2, 5))


def test_over_time():
    def formula_lstm(w, u, b, xs):
        def advance(carry, x):
            carry = lstm(w, u, b, x, *carry)
            return carry, carry[0]

        return lax.scan(advance, (jnp.zeros((2, 5)),) * 2, xs)[1]

    def formula_gru(w, u, b, b_n, xs):
        def advance(h, x):
            h = gru(w, u, b, b_n, x, h)
            return h, h

        return lax.scan(advance, jnp.zeros((2, 5)), xs)[1]

    xs = random(6, 2, 3)
    agree_layer(Unrolled(nn.LSTMCell(3, 5, key=KEY)), formula_lstm, xs, tolerance=1e-4)
    agree_layer(Unrolled(nn.GRUCell(3, 5, key=KEY)), formula_gru, xs, tolerance=1e-4)


def test_errors():
    cell = nn.LSTMCell(3, 5, key=KEY)
    with pytest.raises(TypeError, match=r"takes a carry \(hidden, cell\)"):
        cell(tnp.ones(3), tnp.ones(5))
    with pytest.raises(ValueError, match=r"LSTMCell takes.*in_features=3"):
        cell(tnp.ones(4), cell.initial())
    with pytest.raises(ValueError, match=r"GRUCell takes.*in_features=3"):
        nn.GRUCell(3, 5, key=KEY)(tnp.ones(4), tnp.ones(5))


@pytest.mark.parametrize("cell", [nn.LSTMCell, nn.GRUCell])
def test_carries_of_another_size(cell):
    layer, other = cell(3, 5, key=rng.key(0)), cell(3, 4, key=rng.key(0))
    with pytest.raises(ValueError, match=rf"{cell.__name__} takes.*hidden_size=5\)"):
        layer(tnp.ones(3), other.initial())
