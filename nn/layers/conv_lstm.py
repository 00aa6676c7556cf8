"""A recurrent cell whose gates are convolutions: for sequences of images."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import treadle as td
import treadle.numpy as tnp
from treadle import rng
from treadle.errors import at, user_source
from treadle.nn import check, init
from treadle.nn.functions.activation import sigmoid
from treadle.nn.layers.conv import Conv1d, Conv2d, Conv3d
from treadle.nn.module import Module

_CONVOLUTIONS: dict[int, Any] = {1: Conv1d, 2: Conv2d, 3: Conv3d}


class ConvLSTMCell(Module):
    """A step of long short-term memory for images: the gates are convolutions of the
    input and of the hidden state (Shi 2015, without peepholes).

    Shapes: ``(..., *spatial, in_channels), carry -> carry``; a carry is a pair (hidden,
    cell) of arrays (..., *spatial, hidden_channels). The convolutions have the gates in
    the order input, forget, cell, output, as in `LSTMCell`. In `RNN`, time stands
    before the spatial axes: ``(..., time, *spatial, in_channels)``.

    Args:
      kernel_size: an int for each spatial axis: (3,) for sequences, (3, 3) for images,
        (3, 3, 3) for volumes. Zeros are added around, so that the carry keeps its size.
      bias: whether there is one.
      weight_ih_init, weight_hh_init, bias_init: draw the parameters, those of each gate
        by itself; by default evenly from ±1/sqrt(fan_in), as `Conv2d` does.
      precision: of the convolutions, as in `Conv2d`.
      dtype: in which the cell computes; by default that of its parameters.
      param_dtype: in which the parameters are made.

    Raises:
      ValueError: for a kernel of another number of axes.

    >>> from treadle import nn, rng
    >>> import treadle.numpy as tnp
    >>> rnn = nn.RNN(nn.ConvLSTMCell(3, 5, (3, 3), key=rng.key(0)))
    >>> outputs, (hidden, cell) = rnn(tnp.ones((2, 7, 8, 8, 3)))
    >>> outputs.shape, hidden.shape
    ((2, 7, 8, 8, 5), (2, 8, 8, 5))
    """

    in_channels: int
    hidden_channels: int
    dtype: Any
    conv_ih: Any
    conv_hh: Any

    def __init__(
        self,
        in_channels: int,
        hidden_channels: int,
        kernel_size: Sequence[int],
        *,
        bias: bool = True,
        weight_ih_init: init.Initializer = init.fan_in_uniform,
        weight_hh_init: init.Initializer = init.fan_in_uniform,
        bias_init: init.Initializer | None = None,
        precision: Any = None,
        dtype: Any = None,
        param_dtype: Any = tnp.float32,
        key: rng.Key,
    ) -> None:
        rank = len(kernel_size) if isinstance(kernel_size, Sequence) else 0
        if rank not in _CONVOLUTIONS:
            raise ValueError(
                "ConvLSTMCell: kernel_size is one, two or three ints, one for each "
                f"spatial axis; got {kernel_size!r}{at(user_source())}"
            )
        self.in_channels, self.hidden_channels = in_channels, hidden_channels
        self.dtype = check.dtype(dtype)
        keys = rng.split(key)
        conv, gates = _CONVOLUTIONS[rank], 4 * hidden_channels
        self.conv_ih = conv(
            in_channels,
            gates,
            kernel_size,
            bias=bias,
            weight_init=_of_gates(weight_ih_init),
            bias_init=bias_init and _of_gates(bias_init),
            precision=precision,
            dtype=dtype,
            param_dtype=param_dtype,
            key=keys[0],
        )
        self.conv_hh = conv(
            hidden_channels,
            gates,
            kernel_size,
            bias=False,
            weight_init=_of_gates(weight_hh_init),
            precision=precision,
            dtype=dtype,
            param_dtype=param_dtype,
            key=keys[1],
        )

    @property
    def spatial_rank(self) -> int:
        """How many spatial axes its inputs have."""
        return self.conv_ih.weight.ndim - 2

    def initial(self, batch: tuple[int, ...]) -> tuple[td.Array, td.Array]:
        """A carry of zeros, for the given leading and spatial axes."""
        dtype = self.dtype or self.conv_ih.weight.dtype
        zeros = tnp.zeros((*batch, self.hidden_channels), dtype)
        return zeros, zeros

    def __call__(
        self, x: tnp.ArrayLike, carry: tuple[tnp.ArrayLike, tnp.ArrayLike]
    ) -> tuple[td.Array, td.Array]:
        if not isinstance(carry, tuple) or len(carry) != 2:
            raise TypeError(
                "ConvLSTMCell takes x, then a carry (hidden, cell), as "
                f"`cell.initial(...)` makes it; got {type(carry).__name__}"
                f"{at(user_source())}"
            )
        name, size = "ConvLSTMCell", self.hidden_channels
        x = check.spatial(name, x, self.spatial_rank, self.in_channels)
        hidden = check.spatial(name, carry[0], self.spatial_rank, size)
        cell = check.spatial(name, carry[1], self.spatial_rank, size)
        gates = self.conv_ih(x) + self.conv_hh(hidden)
        i, f, g, o = tnp.split(gates, 4, -1)
        cell = sigmoid(f) * cell.astype(gates.dtype) + sigmoid(i) * tnp.tanh(g)
        return sigmoid(o) * tnp.tanh(cell), cell


def _of_gates(initializer: init.Initializer) -> init.Initializer:
    """Draws each of the four gates by itself."""

    def draw(
        key: rng.Key, shape: tuple[int, ...], dtype: Any = tnp.float32
    ) -> td.Array:
        each = (*shape[:-1], shape[-1] // 4)
        parts = [initializer(k, each, dtype) for k in rng.split(key, 4)]
        return tnp.concatenate(parts, -1)

    return draw
