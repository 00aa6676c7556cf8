"""Recurrent cells, and layers that run them over time."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import treadle as td
import treadle.numpy as tnp
from tests.nn.oracle import agree_layer, close, random
from treadle import nn, rng, tree
from treadle.nn import init

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
    """Batches, a time axis of choice, a first carry: as a loop over steps in JAX."""

    def formula_lstm(w, u, b, xs):
        def advance(carry, x):
            carry = lstm(w, u, b, x, *carry)
            return carry, carry[0]

        return lax.scan(advance, (jnp.zeros((2, 5)),) * 2, xs)[1]

    def formula_gru(w, u, b, b_n, xs):
        def advance(h, x):
            h = gru(w, u, b, b_n, x, h)
            return h, h

        return lax.scan(advance, jnp.zeros((2, 5)), xs, reverse=True)[1]

    class Outputs(nn.Module):
        rnn: nn.RNN

        def __call__(self, xs):
            return self.rnn(xs)[0]

    xs = random(6, 2, 3)
    ahead = nn.RNN(nn.LSTMCell(3, 5, key=KEY), time_axis=0)
    back = nn.RNN(nn.GRUCell(3, 5, key=KEY), time_axis=0, reverse=True)
    agree_layer(Outputs(ahead), formula_lstm, xs, tolerance=1e-4)
    agree_layer(Outputs(back), formula_gru, xs, tolerance=1e-4)


CELLS = [
    nn.SimpleCell(3, 5, bias=False, key=KEY),
    nn.LSTMCell(3, 5, proj_size=2, bias=False, key=KEY),
    nn.GRUCell(3, 5, bias=False, key=KEY),
]
by_cell = pytest.mark.parametrize("cell", CELLS, ids=lambda cell: type(cell).__name__)


@by_cell
@pytest.mark.parametrize("reverse", [False, True])
def test_lengths_are_those_of_each_example_alone(cell, reverse):
    """Padding, be it NaN, reaches neither values nor gradients."""
    xs, lengths = random(4, 6, 3), [4, 6, 0, 1]
    padded = xs.copy()
    for x, n in zip(padded, lengths, strict=True):
        x[n:] = np.nan
    rnn = nn.RNN(cell, reverse=reverse)
    outputs, last = td.jit(rnn)(padded, lengths=np.array(lengths))
    for i, n in enumerate(lengths):
        alone, carry = rnn(xs[i, :n]) if n else (np.zeros((0, 1)), cell.initial())
        np.testing.assert_allclose(
            outputs[i, :n], np.broadcast_to(alone, outputs[i, :n].shape), atol=1e-6
        )
        assert not np.any(outputs[i, n:])
        for a, b in zip(tree.leaves(last), tree.leaves(carry), strict=True):
            np.testing.assert_allclose(a[i], b, atol=1e-6)

    def loss(cell, xs):
        outputs, last = nn.RNN(cell, reverse=reverse)(xs, lengths=np.array(lengths))
        return outputs.sum() + sum(x.sum() for x in tree.leaves(last))

    grads, of_xs = td.grad(loss, (0, 1))(cell, padded)
    clean, of_clean = td.grad(loss, (0, 1))(cell, xs)
    np.testing.assert_array_equal(of_xs, of_clean)
    tree.map(np.testing.assert_array_equal, grads, clean)


@by_cell
def test_a_sequence_in_two_pieces(cell):
    """The last carry is where the next call goes on."""
    xs, rnn = random(2, 6, 3), nn.RNN(cell)
    outputs, last = rnn(xs)
    first, carry = rnn(xs[:, :4])
    second, end = rnn(xs[:, 4:], carry)
    close(tnp.concatenate([first, second], 1), outputs)
    tree.map(close, end, last)


def test_a_cell_with_dropout_and_a_stack_with_it():
    """Each step and each layer draws: in inference, nothing does."""

    class Dropped(nn.Module):
        cell: nn.GRUCell
        drop: nn.Dropout

        def initial(self, batch=()):
            return self.cell.initial(batch)

        def __call__(self, x, carry):
            return self.cell(self.drop(x), carry)

    rnn = nn.StackedRNN(
        [nn.RNN(Dropped(CELLS[2], nn.Dropout(0.5))), nn.RNN(nn.GRUCell(5, 5, key=KEY))],
        dropout=0.5,
    )
    xs = tnp.ones((2, 6, 3))
    plain = nn.StackedRNN([nn.RNN(CELLS[2]), rnn.layers[1]])
    close(nn.inference(rnn)(xs)[0], plain(xs)[0])
    (noisy, _), _ = nn.stateful(rnn, key=KEY)(xs)
    (again, _), _ = td.jit(lambda rnn: nn.stateful(rnn, key=KEY)(xs))(rnn)
    close(noisy, again)
    assert tnp.abs(noisy - plain(xs)[0]).max() > 0.01


def test_parameters():
    """Initialisers see one gate at a time; a model computes in its own dtype."""
    options = {"weight_hh_init": init.glorot_uniform, "bias_init": init.ones}
    for make, gates in ((nn.SimpleCell, 1), (nn.LSTMCell, 4), (nn.GRUCell, 3)):
        cell = make(300, 200, key=KEY, **options)
        assert tnp.abs(cell.weight_hh).max() == pytest.approx(
            (6 / 400) ** 0.5, rel=0.01
        )
        assert cell.weight_hh.shape == (200, gates * 200) and (cell.bias == 1).all()
        turned = make(3, 4, weight_hh_init=init.orthogonal(), key=KEY).weight_hh
        for gate in tnp.split(turned, gates, -1):
            close(gate.T @ gate, np.eye(4, dtype=np.float32))
        half = make(3, 2, param_dtype=tnp.bfloat16, key=KEY)
        assert tree.leaves(half(tnp.ones(3), half.initial()))[0].dtype == tnp.bfloat16
        mixed = nn.RNN(make(3, 2, dtype=tnp.bfloat16, key=KEY))
        start = tree.map(lambda x: x.astype(tnp.float32), mixed.cell.initial((1,)))
        outputs, last = mixed(np.ones((1, 2, 3), np.float32), start)
        assert {x.dtype for x in tree.leaves((outputs, last))} == {
            np.dtype(tnp.bfloat16)
        }


def test_errors():
    cell = nn.LSTMCell(3, 5, key=KEY)
    with pytest.raises(TypeError, match=r"takes x, then a carry \(hidden, cell\)"):
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


def test_errors_of_layers():
    rnn = nn.RNN(nn.GRUCell(3, 5, key=KEY))
    with pytest.raises(TypeError, match=r"RNN takes a cell.*got Linear"):
        nn.RNN(nn.Linear(3, 5, key=KEY))
    with pytest.raises(ValueError, match=r"with time at axis -2; got f32\[3\]"):
        rnn(tnp.ones(3))
    with pytest.raises(ValueError, match=r"one for each example: of shape \(2,\)"):
        rnn(tnp.ones((2, 7, 3)), lengths=tnp.ones((2, 1), int))
    deep = nn.StackedRNN.make(nn.GRUCell, (3, 5, 5), key=KEY)
    with pytest.raises(ValueError, match="StackedRNN: a carry has 2 parts"):
        deep(tnp.ones((2, 7, 3)), tnp.ones((2, 5)))
    with pytest.raises(ValueError, match=r"takes two or more sizes, got \(3,\)"):
        nn.StackedRNN.make(nn.GRUCell, (3,), key=KEY)
