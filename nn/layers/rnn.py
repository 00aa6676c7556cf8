"""Recurrent cells: one step in time. Run them by `td.scan`."""

from __future__ import annotations

import treadle as td
import treadle.numpy as tnp
from treadle import rng
from treadle.errors import at, user_source
from treadle.nn import check, init
from treadle.nn.functions.activation import sigmoid
from treadle.nn.module import Module


class LSTMCell(Module):
    """A step of long short-term memory (Hochreiter and Schmidhuber 1997).

    Shapes: ``(..., in_features), carry -> carry``; a carry is a pair (hidden, cell) of
    arrays (..., hidden_size). The weights hold the gates in the order input, forget,
    cell, output, as in PyTorch: (in_features, 4 hidden_size), (hidden_size, 4
    hidden_size). All parameters are drawn evenly from ±1/sqrt(hidden_size).

    >>> from treadle import nn, rng
    >>> import treadle as td, treadle.numpy as tnp
    >>> cell = nn.LSTMCell(3, 5, key=rng.key(0))
    >>> frames = tnp.ones((7, 2, 3))  # time first
    >>> advance = lambda carry, frame: (cell(frame, carry), None)
    >>> (hidden, _), _ = td.scan(advance, cell.initial((2,)), frames)
    >>> hidden.shape
    (2, 5)
    """

    in_features: int
    hidden_size: int
    weight_ih: td.Array
    weight_hh: td.Array
    bias: td.Array

    def __init__(self, in_features: int, hidden_size: int, *, key: rng.Key) -> None:
        self.in_features, self.hidden_size = in_features, hidden_size
        draw = init.uniform(hidden_size**-0.5)
        keys = rng.split(key, 3)
        self.weight_ih = draw(keys[0], (in_features, 4 * hidden_size))
        self.weight_hh = draw(keys[1], (hidden_size, 4 * hidden_size))
        self.bias = draw(keys[2], (4 * hidden_size,))

    def initial(self, batch: tuple[int, ...] = ()) -> tuple[td.Array, td.Array]:
        """A carry of zeros, for examples of the given leading axes."""
        zeros = tnp.zeros((*batch, self.hidden_size), self.bias.dtype)
        return zeros, zeros

    def __call__(
        self, x: td.Array, carry: tuple[td.Array, td.Array]
    ) -> tuple[td.Array, td.Array]:
        x = check.last_axis("LSTMCell", x, self.in_features, "in_features")
        if not isinstance(carry, tuple) or len(carry) != 2:
            raise TypeError(
                "LSTMCell takes a carry (hidden, cell), as `cell.initial(...)` makes "
                f"it; got {type(carry).__name__}{at(user_source())}"
            )
        hidden, cell = carry
        hidden = check.last_axis("LSTMCell", hidden, self.hidden_size, "hidden_size")
        gates = x @ self.weight_ih + hidden @ self.weight_hh + self.bias
        i, f, g, o = _parts(gates, self.hidden_size)
        cell = sigmoid(f) * cell + sigmoid(i) * tnp.tanh(g)
        return sigmoid(o) * tnp.tanh(cell), cell


class GRUCell(Module):
    """A step of a gated recurrent unit (Cho 2014), in PyTorch's variant.

    Shapes: ``(..., in_features), (..., hidden_size) -> (..., hidden_size)``. The
    weights hold the gates in the order reset, update, new; `bias_n` is added to the
    hidden part of the last one before the reset gate multiplies it.

    >>> from treadle import nn, rng
    >>> import treadle as td, treadle.numpy as tnp
    >>> cell = nn.GRUCell(3, 5, key=rng.key(0))
    >>> advance = lambda hidden, frame: (cell(frame, hidden), None)
    >>> hidden, _ = td.scan(advance, cell.initial((2,)), tnp.ones((7, 2, 3)))
    >>> hidden.shape
    (2, 5)
    """

    in_features: int
    hidden_size: int
    weight_ih: td.Array
    weight_hh: td.Array
    bias: td.Array
    bias_n: td.Array

    def __init__(self, in_features: int, hidden_size: int, *, key: rng.Key) -> None:
        self.in_features, self.hidden_size = in_features, hidden_size
        draw = init.uniform(hidden_size**-0.5)
        keys = rng.split(key, 4)
        self.weight_ih = draw(keys[0], (in_features, 3 * hidden_size))
        self.weight_hh = draw(keys[1], (hidden_size, 3 * hidden_size))
        self.bias = draw(keys[2], (3 * hidden_size,))
        self.bias_n = draw(keys[3], (hidden_size,))

    def initial(self, batch: tuple[int, ...] = ()) -> td.Array:
        """A hidden state of zeros, for examples of the given leading axes."""
        return tnp.zeros((*batch, self.hidden_size), self.bias.dtype)

    def __call__(self, x: tnp.ArrayLike, hidden: tnp.ArrayLike) -> td.Array:
        x = check.last_axis("GRUCell", x, self.in_features, "in_features")
        hidden = check.last_axis("GRUCell", hidden, self.hidden_size, "hidden_size")
        from_x = x @ self.weight_ih + self.bias
        from_hidden = hidden @ self.weight_hh
        x_r, x_z, x_n = _parts(from_x, self.hidden_size)
        h_r, h_z, h_n = _parts(from_hidden, self.hidden_size)
        reset, update = sigmoid(x_r + h_r), sigmoid(x_z + h_z)
        new = tnp.tanh(x_n + reset * (h_n + self.bias_n))
        return new + update * (hidden - new)


def _parts(x: td.Array, size: int) -> list[td.Array]:
    return [x[..., i : i + size] for i in range(0, x.shape[-1], size)]
