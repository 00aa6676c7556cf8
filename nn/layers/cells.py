"""Recurrent cells: one step in time. `RNN` runs them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import treadle as td
import treadle.numpy as tnp
from treadle import rng
from treadle.errors import at, user_source
from treadle.nn import check, init
from treadle.nn.functions.activation import sigmoid
from treadle.nn.module import Module


class SimpleCell(Module):
    """A step of an Elman network (1990): ``tanh(x @ weight_ih + hidden @ weight_hh +
    bias)``.

    Shapes: ``(..., in_features), (..., hidden_size) -> (..., hidden_size)``.

    Args:
      activation: `tanh`, `relu`, or another function.
      bias: whether there is one.
      weight_ih_init, weight_hh_init, bias_init: draw the parameters, by default evenly
        from ±1/sqrt(hidden_size), as PyTorch does.
      dtype: in which the cell computes; by default that of its parameters.
      param_dtype: in which the parameters are made.

    >>> from treadle import nn, rng
    >>> import treadle.numpy as tnp
    >>> cell = nn.SimpleCell(3, 5, key=rng.key(0))
    >>> cell(tnp.ones((2, 3)), cell.initial((2,))).shape
    (2, 5)
    """

    in_features: int
    hidden_size: int
    activation: Callable[[td.Array], td.Array]
    dtype: Any
    weight_ih: td.Array
    weight_hh: td.Array
    bias: td.Array | None

    def __init__(
        self,
        in_features: int,
        hidden_size: int,
        *,
        activation: Callable[[td.Array], td.Array] = tnp.tanh,
        bias: bool = True,
        weight_ih_init: init.Initializer | None = None,
        weight_hh_init: init.Initializer | None = None,
        bias_init: init.Initializer | None = None,
        dtype: Any = None,
        param_dtype: Any = tnp.float32,
        key: rng.Key,
    ) -> None:
        self.in_features, self.hidden_size = in_features, hidden_size
        self.activation, self.dtype = activation, check.dtype(dtype)
        draw = _Gates(1, hidden_size, param_dtype)
        keys = rng.split(key, 3)
        self.weight_ih = draw(weight_ih_init, keys[0], in_features)
        self.weight_hh = draw(weight_hh_init, keys[1], hidden_size)
        self.bias = draw(bias_init, keys[2]) if bias else None

    def initial(self, batch: tuple[int, ...] = ()) -> td.Array:
        """A hidden state of zeros, for examples of the given leading axes."""
        return tnp.zeros((*batch, self.hidden_size), _computed(self))

    def __call__(self, x: tnp.ArrayLike, hidden: tnp.ArrayLike) -> td.Array:
        x, hidden = _checked(self, x, hidden)
        x, w_ih, w_hh, bias = check.operands(
            "SimpleCell", self.dtype, x, self.weight_ih, self.weight_hh, self.bias
        )
        x = x @ w_ih + hidden.astype(w_hh.dtype) @ w_hh
        return self.activation(x if bias is None else x + bias)


class LSTMCell(Module):
    """A step of long short-term memory (Hochreiter and Schmidhuber 1997).

    Shapes: ``(..., in_features), carry -> carry``; a carry is a pair (hidden, cell) of
    arrays (..., hidden_size). The weights hold the gates in the order input, forget,
    cell, output, as in PyTorch: (in_features, 4 hidden_size), (hidden_size, 4
    hidden_size).

    Args:
      proj_size: the size of the hidden part of the carry, if it is another one than
        hidden_size: it is projected by `weight_hr`, (hidden_size, proj_size) (Sak
        2014). `weight_hh` is (proj_size, 4 hidden_size) then.
      bias: whether there is one.
      weight_ih_init, weight_hh_init, weight_hr_init, bias_init: draw the parameters,
        those of each gate by itself; by default evenly from ±1/sqrt(hidden_size), as
        PyTorch does.
      dtype: in which the cell computes; by default that of its parameters.
      param_dtype: in which the parameters are made.

    >>> from treadle import nn, rng
    >>> import treadle.numpy as tnp
    >>> cell = nn.LSTMCell(3, 5, key=rng.key(0))
    >>> hidden, state = cell(tnp.ones((2, 3)), cell.initial((2,)))
    >>> hidden.shape
    (2, 5)
    """

    in_features: int
    hidden_size: int
    proj_size: int | None
    dtype: Any
    weight_ih: td.Array
    weight_hh: td.Array
    weight_hr: td.Array | None
    bias: td.Array | None

    def __init__(
        self,
        in_features: int,
        hidden_size: int,
        *,
        proj_size: int | None = None,
        bias: bool = True,
        weight_ih_init: init.Initializer | None = None,
        weight_hh_init: init.Initializer | None = None,
        weight_hr_init: init.Initializer | None = None,
        bias_init: init.Initializer | None = None,
        dtype: Any = None,
        param_dtype: Any = tnp.float32,
        key: rng.Key,
    ) -> None:
        self.in_features, self.hidden_size = in_features, hidden_size
        self.proj_size, self.dtype = proj_size, check.dtype(dtype)
        draw = _Gates(4, hidden_size, param_dtype)
        keys = rng.split(key, 4)
        self.weight_ih = draw(weight_ih_init, keys[0], in_features)
        self.weight_hh = draw(weight_hh_init, keys[1], proj_size or hidden_size)
        self.weight_hr = None
        if proj_size is not None:
            project = weight_hr_init or init.bias_uniform(hidden_size)
            self.weight_hr = project(keys[3], (hidden_size, proj_size), param_dtype)
        self.bias = draw(bias_init, keys[2]) if bias else None

    def initial(self, batch: tuple[int, ...] = ()) -> tuple[td.Array, td.Array]:
        """A carry of zeros, for examples of the given leading axes."""
        cell = tnp.zeros((*batch, self.hidden_size), _computed(self))
        if self.proj_size is None:
            return cell, cell
        return tnp.zeros((*batch, self.proj_size), cell.dtype), cell

    def __call__(
        self, x: tnp.ArrayLike, carry: tuple[tnp.ArrayLike, tnp.ArrayLike]
    ) -> tuple[td.Array, td.Array]:
        if not isinstance(carry, tuple) or len(carry) != 2:
            raise TypeError(
                "LSTMCell takes x, then a carry (hidden, cell), as `cell.initial(...)` "
                f"makes it; got {type(carry).__name__} for that{at(user_source())}"
            )
        x, hidden = _checked(self, x, carry[0], self.proj_size)
        cell = check.last_axis("LSTMCell", carry[1], self.hidden_size, "hidden_size")
        x, w_ih, w_hh, w_hr, bias = check.operands(
            "LSTMCell",
            self.dtype,
            x,
            self.weight_ih,
            self.weight_hh,
            self.weight_hr,
            self.bias,
        )
        gates = x @ w_ih + hidden.astype(w_hh.dtype) @ w_hh
        i, f, g, o = _parts(gates if bias is None else gates + bias, self.hidden_size)
        cell = sigmoid(f) * cell.astype(gates.dtype) + sigmoid(i) * tnp.tanh(g)
        hidden = sigmoid(o) * tnp.tanh(cell)
        return hidden if w_hr is None else hidden @ w_hr, cell


class GRUCell(Module):
    """A step of a gated recurrent unit (Cho 2014), in PyTorch's variant.

    Shapes: ``(..., in_features), (..., hidden_size) -> (..., hidden_size)``. The
    weights hold the gates in the order reset, update, new; `bias_n` is added to the
    hidden part of the last one before the reset gate multiplies it.

    Args:
      bias: whether there are `bias` and `bias_n`.
      weight_ih_init, weight_hh_init, bias_init, bias_n_init: draw the parameters,
        those of each gate by itself; by default evenly from ±1/sqrt(hidden_size), as
        PyTorch does.
      dtype: in which the cell computes; by default that of its parameters.
      param_dtype: in which the parameters are made.

    >>> from treadle import nn, rng
    >>> import treadle.numpy as tnp
    >>> cell = nn.GRUCell(3, 5, key=rng.key(0))
    >>> cell(tnp.ones((2, 3)), cell.initial((2,))).shape
    (2, 5)
    """

    in_features: int
    hidden_size: int
    dtype: Any
    weight_ih: td.Array
    weight_hh: td.Array
    bias: td.Array | None
    bias_n: td.Array | None

    def __init__(
        self,
        in_features: int,
        hidden_size: int,
        *,
        bias: bool = True,
        weight_ih_init: init.Initializer | None = None,
        weight_hh_init: init.Initializer | None = None,
        bias_init: init.Initializer | None = None,
        bias_n_init: init.Initializer | None = None,
        dtype: Any = None,
        param_dtype: Any = tnp.float32,
        key: rng.Key,
    ) -> None:
        self.in_features, self.hidden_size = in_features, hidden_size
        self.dtype = check.dtype(dtype)
        draw = _Gates(3, hidden_size, param_dtype)
        keys = rng.split(key, 4)
        self.weight_ih = draw(weight_ih_init, keys[0], in_features)
        self.weight_hh = draw(weight_hh_init, keys[1], hidden_size)
        self.bias = self.bias_n = None
        if bias:
            self.bias = draw(bias_init, keys[2])
            self.bias_n = _Gates(1, hidden_size, param_dtype)(bias_n_init, keys[3])

    def initial(self, batch: tuple[int, ...] = ()) -> td.Array:
        """A hidden state of zeros, for examples of the given leading axes."""
        return tnp.zeros((*batch, self.hidden_size), _computed(self))

    def __call__(self, x: tnp.ArrayLike, hidden: tnp.ArrayLike) -> td.Array:
        x, hidden = _checked(self, x, hidden)
        x, w_ih, w_hh, bias, bias_n = check.operands(
            "GRUCell",
            self.dtype,
            x,
            self.weight_ih,
            self.weight_hh,
            self.bias,
            self.bias_n,
        )
        hidden = hidden.astype(w_hh.dtype)
        from_x = x @ w_ih if bias is None else x @ w_ih + bias
        x_r, x_z, x_n = _parts(from_x, self.hidden_size)
        h_r, h_z, h_n = _parts(hidden @ w_hh, self.hidden_size)
        reset, update = sigmoid(x_r + h_r), sigmoid(x_z + h_z)
        new = tnp.tanh(x_n + reset * (h_n if bias_n is None else h_n + bias_n))
        return new + update * (hidden - new)


class _Gates:
    """Draws the parameters of a number of gates, each by itself, side by side."""

    def __init__(self, count: int, size: int, dtype: Any) -> None:
        self.count, self.size, self.dtype = count, size, dtype

    def __call__(
        self, initializer: init.Initializer | None, key: rng.Key, *inputs: int
    ) -> td.Array:
        if initializer is None:  # even, whatever the shape
            shape = (*inputs, self.count * self.size)
            return init.bias_uniform(self.size)(key, shape, self.dtype)
        keys = rng.split(key, self.count)
        parts = [initializer(k, (*inputs, self.size), self.dtype) for k in keys]
        return tnp.concatenate(parts, -1)


def _computed(cell: Any) -> Any:
    """The dtype in which a cell computes."""
    if cell.dtype is not None:
        return cell.dtype
    return tnp.result_type(cell.weight_ih, cell.weight_hh)


def _checked(
    cell: Any, x: Any, hidden: Any, size: int | None = None
) -> tuple[td.Array, td.Array]:
    name = type(cell).__name__
    x = check.last_axis(name, x, cell.in_features, "in_features")
    if size is not None:
        return x, check.last_axis(name, hidden, size, "proj_size")
    return x, check.last_axis(name, hidden, cell.hidden_size, "hidden_size")


def _parts(x: td.Array, size: int) -> list[td.Array]:
    return [x[..., i : i + size] for i in range(0, x.shape[-1], size)]
