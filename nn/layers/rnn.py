"""Recurrent layers: cells over time, in both directions, one above the other.

Each takes ``(x, carry=None, *, lengths=None)`` and gives its outputs and its last
carry; so they stand for each other.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Self

import treadle as td
import treadle.numpy as tnp
from treadle import rng, tree
from treadle.errors import StructureError, at, user_source
from treadle.nn import check
from treadle.nn.layers.dropout import Dropout
from treadle.nn.module import Module
from treadle.nn.show import text_of

_LENGTHS = """\
RNN: lengths are integers, one for each example: of shape {batch}; got {found}{at}"""


class RNN(Module):
    """A recurrent cell over time.

    Shapes: ``(..., time, in_features) -> (..., time, hidden_size), carry``, with the
    carry after the last step. The output of a step is its new carry; if that is a
    tuple, the first part of it (``hidden`` of an LSTM).

    Args:
      cell: a Module that is called as ``cell(x, carry)`` and gives the next carry, and
        whose ``initial(batch)`` gives the first: `LSTMCell`, `GRUCell`, `SimpleCell`.
      time_axis: the axis of x and of the outputs that is time.
      reverse: go from the last step to the first; outputs stand where their inputs do.

    Of a call, `carry` is the first one, by default zeros, and `lengths`, integers of
    the leading axes (...), are how many steps each example has. What comes after them
    has no influence: the last carry is that after the last step there is, outputs are
    0 beyond it, and in reverse the first step is the last that there is.

    >>> from treadle import nn, rng
    >>> import treadle.numpy as tnp
    >>> rnn = nn.RNN(nn.LSTMCell(3, 5, key=rng.key(0)))
    >>> outputs, (hidden, cell) = rnn(tnp.ones((2, 7, 3)), lengths=tnp.array([7, 4]))
    >>> outputs.shape, hidden.shape, outputs[1, 4:].any().item()
    ((2, 7, 5), (2, 5), False)
    """

    cell: Any
    time_axis: int
    reverse: bool

    def __init__(
        self, cell: Any, *, time_axis: int | None = None, reverse: bool = False
    ) -> None:
        if not callable(cell) or not hasattr(cell, "initial"):
            raise TypeError(
                "RNN takes a cell, a Module with `__call__(x, carry)` and "
                f"`initial(batch)`; got {type(cell).__name__}{at(user_source())}"
            )
        self.cell, self.reverse = cell, reverse
        self.time_axis = -2 - _spatial_rank(cell) if time_axis is None else time_axis

    def __call__(
        self,
        x: tnp.ArrayLike,
        carry: Any = None,
        *,
        lengths: tnp.ArrayLike | None = None,
    ) -> tuple[td.Array, Any]:
        frames = self._frames(check.as_array(x))
        batch = frames.shape[1:-1]
        start = self.cell.initial(batch)
        if carry is not None:
            start = self._given(carry, start)
        if lengths is None:
            last, outputs = td.scan(self._step, start, frames, reverse=self.reverse)
        else:
            examples = batch[: len(batch) - _spatial_rank(self.cell)]
            running = _running(check.as_array(lengths), examples, frames.shape[0])
            # What stands in padding may be anything, NaN too: it must not reach sums.
            frames = tnp.where(_like(running, frames), frames, 0)
            last, outputs = td.scan(
                self._step_if, start, (frames, running), reverse=self.reverse
            )
        return tnp.moveaxis(outputs, 0, self.time_axis), last

    def _given(self, carry: Any, zeros: Any) -> Any:
        """A first carry in the dtypes of the cell's own."""
        try:
            return tree.map(lambda zero, c: tnp.asarray(c, zero.dtype), zeros, carry)
        except StructureError:
            wanted = tree.map(td.typeof, zeros)
            raise ValueError(
                f"RNN: a carry of {type(self.cell).__name__} is as "
                f"`cell.initial(batch)` gives it, {text_of(wanted)}; got "
                f"{text_of(carry)}{at(user_source())}"
            ) from None

    def _frames(self, x: td.Array) -> td.Array:
        """The input with time first."""
        places = range(-x.ndim, x.ndim)
        if self.time_axis not in places or self.time_axis in (-1, x.ndim - 1):
            raise ValueError(
                "RNN takes arrays of shape (..., time, in_features), with time at axis "
                f"{self.time_axis}; got {td.typeof(x)}{at(user_source())}"
            )
        return tnp.moveaxis(x, self.time_axis, 0)

    def _step(self, carry: Any, x: td.Array) -> tuple[Any, td.Array]:
        carry = self.cell(x, carry)
        return carry, _output(carry)

    def _step_if(self, carry: Any, row: Any) -> tuple[Any, td.Array]:
        x, running = row
        new, output = self._step(carry, x)
        return (
            tree.map(lambda a, b: tnp.where(_like(running, a), a, b), new, carry),
            tnp.where(_like(running, output), output, 0),
        )


class Bidirectional(Module):
    """Two recurrent cells over time, one from each end, with their outputs joined.

    Shapes: ``(..., time, in_features) -> (..., time, 2 hidden_size), carries``, with a
    pair of carries: after the last step, and after the first. Called as `RNN` is;
    `lengths` is where the second one begins.

    Args:
      forward, backward: the cells.
      time_axis: as for `RNN`.
      merge: makes one of both outputs; by default they stand side by side.

    >>> from treadle import nn, rng
    >>> import treadle.numpy as tnp
    >>> k1, k2 = rng.split(rng.key(0))
    >>> both = nn.Bidirectional(nn.GRUCell(3, 5, key=k1), nn.GRUCell(3, 5, key=k2))
    >>> outputs, (last, first) = both(tnp.ones((2, 7, 3)))
    >>> outputs.shape
    (2, 7, 10)
    """

    forward: RNN
    backward: RNN
    merge: Callable[[td.Array, td.Array], td.Array]

    def __init__(
        self,
        forward: Any,
        backward: Any,
        *,
        time_axis: int | None = None,
        merge: Callable[[td.Array, td.Array], td.Array] | None = None,
    ) -> None:
        self.forward = RNN(forward, time_axis=time_axis)
        self.backward = RNN(backward, time_axis=time_axis, reverse=True)
        self.merge = merge or _side_by_side

    def __call__(
        self,
        x: tnp.ArrayLike,
        carry: Any = None,
        *,
        lengths: tnp.ArrayLike | None = None,
    ) -> tuple[td.Array, tuple[Any, Any]]:
        starts = _carries("Bidirectional", carry, 2)
        ahead, last = self.forward(x, starts[0], lengths=lengths)
        back, first = self.backward(x, starts[1], lengths=lengths)
        return self.merge(ahead, back), (last, first)


class StackedRNN(Module):
    """Recurrent layers, each over the outputs of the one before, with dropout between.

    Shapes: ``(..., time, in_features) -> (..., time, out_features), carries``, with a
    tuple of the carry of each layer. Called as `RNN` is.

    Args:
      layers: of `RNN`, `Bidirectional`, and what is called as they are. `make` makes
        them.
      dropout: the rate of the `Dropout` between layers.

    >>> from treadle import nn, rng
    >>> import treadle.numpy as tnp
    >>> k1, k2 = rng.split(rng.key(0))
    >>> cells = nn.GRUCell(3, 5, key=k1), nn.LSTMCell(5, 4, key=k2)
    >>> rnn = nn.StackedRNN([nn.RNN(cell) for cell in cells], dropout=0.1)
    >>> outputs, carries = nn.inference(rnn)(tnp.ones((2, 7, 3)))
    >>> outputs.shape, len(carries)
    ((2, 7, 4), 2)
    """

    layers: tuple[Any, ...]
    dropout: Dropout

    def __init__(self, layers: Sequence[Any], *, dropout: float = 0.0) -> None:
        self.layers, self.dropout = tuple(layers), Dropout(dropout)

    @classmethod
    def make(
        cls,
        cell: Callable[..., Any],
        sizes: Sequence[int],
        *,
        bidirectional: bool = False,
        dropout: float = 0.0,
        time_axis: int | None = None,
        key: rng.Key,
    ) -> Self:
        """Layers of one kind of cell, as PyTorch's LSTM, GRU and RNN are.

        Args:
          cell: makes a cell: a class such as `LSTMCell`, or
            ``functools.partial(nn.LSTMCell, proj_size=3)``.
          sizes: the number of features, and the hidden size of each layer.
          bidirectional: whether each layer is a `Bidirectional`.
          dropout: the rate of the `Dropout` between layers.
          time_axis: as for `RNN`.

        >>> from treadle import nn, rng
        >>> import treadle.numpy as tnp
        >>> key = rng.key(0)
        >>> rnn = nn.StackedRNN.make(nn.GRUCell, (3, 5, 5), bidirectional=True, key=key)
        >>> rnn(tnp.ones((2, 7, 3)))[0].shape
        (2, 7, 10)
        """
        if len(sizes) < 2:
            raise ValueError(
                f"StackedRNN.make takes two or more sizes, got {tuple(sizes)}"
                f"{at(user_source())}"
            )
        layers: list[Any] = []
        width = sizes[0]
        for size, k in zip(sizes[1:], rng.split(key, len(sizes) - 1), strict=True):
            if bidirectional:
                cells = [cell(width, size, key=each) for each in rng.split(k)]
                layers.append(Bidirectional(*cells, time_axis=time_axis))
            else:
                cells = [cell(width, size, key=k)]
                layers.append(RNN(*cells, time_axis=time_axis))
            width = sum(_output(each.initial()).shape[-1] for each in cells)
        return cls(layers, dropout=dropout)

    def __call__(
        self,
        x: tnp.ArrayLike,
        carry: Any = None,
        *,
        lengths: tnp.ArrayLike | None = None,
    ) -> tuple[td.Array, tuple[Any, ...]]:
        out: Any = x
        carries = []
        starts = _carries("StackedRNN", carry, len(self.layers))
        for i, (layer, start) in enumerate(zip(self.layers, starts, strict=True)):
            out, last = layer(self.dropout(out) if i else out, start, lengths=lengths)
            carries.append(last)
        return out, tuple(carries)


def _spatial_rank(cell: Any) -> int:
    return getattr(cell, "spatial_rank", 0)


def _output(carry: Any) -> td.Array:
    return carry[0] if isinstance(carry, tuple) else carry


def _side_by_side(ahead: td.Array, back: td.Array) -> td.Array:
    return tnp.concatenate([ahead, back], -1)


def _like(running: td.Array, x: td.Array) -> td.Array:
    """A mask of examples with the axes that an array has more."""
    return running.reshape(*running.shape, *(1,) * (x.ndim - running.ndim))


def _running(lengths: td.Array, batch: tuple[int, ...], time: int) -> td.Array:
    """Which examples have a step at each time: (time, *batch)."""
    if lengths.shape != batch or not td.dtypes.is_integer(lengths.dtype):
        raise ValueError(
            _LENGTHS.format(batch=batch, found=td.typeof(lengths), at=at(user_source()))
        )
    steps = tnp.arange(time).reshape(time, *(1,) * len(batch))
    return steps < lengths


def _carries(layer: str, carry: Any, count: int) -> Sequence[Any]:
    if carry is None:
        return (None,) * count
    if isinstance(carry, tuple | list) and len(carry) == count:
        return carry
    found = f"{len(carry)} of them" if isinstance(carry, tuple | list) else repr(carry)
    raise ValueError(
        f"{layer}: a carry has {count} parts, as a call gives it; got {found:.60}"
        f"{at(user_source())}"
    )
