"""Updates of arrays, which never change: `x.at[index].set(v)` is a new array."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from treadle import dtypes
from treadle.dims import is_dim, same_shape
from treadle.errors import at as at_line
from treadle.errors import user_source
from treadle.np import binary, powers
from treadle.np.creation import array
from treadle.np.index import GROUP, KNOWN, Selection, Span, parse, together, within
from treadle.np.indexing import (
    MODES,
    getitem,
    place_group,
    read_mode,
    without_truths,
)
from treadle.np.masks import Masked, has_traced_mask
from treadle.np.operands import (
    ArrayLike,
    Shape,
    broadcast_to_shape,
    broadcasts,
    cast,
    operand,
)
from treadle.ops.compare import select
from treadle.ops.dynamic import dynamic_slice, dynamic_update_slice
from treadle.ops.movement import full, reshape, reverse
from treadle.ops.scatter import (
    scatter_add,
    scatter_max,
    scatter_min,
    scatter_mul,
    scatter_set,
)
from treadle.ops.shape import iota
from treadle.run.array import Array
from treadle.trace.op import Op
from treadle.trace.value import typeof


class At:
    """``x.at``: waits for an index.

    >>> import treadle.numpy as tnp
    >>> tnp.zeros(3).at[1].set(5.0)
    Array([0., 5., 0.], dtype=float32)
    """

    __slots__ = ("_x",)

    def __init__(self, x: Any) -> None:
        self._x = x

    def __getitem__(self, index: Any) -> Place:
        return Place(self._x, index)

    def __repr__(self) -> str:
        return f"<{self._x!r}.at: index it, then call set, add, multiply…>"


class Place:
    """``x.at[index]``: waits for what to do there.

    The methods return a new array. A value, which may be a list, is broadcast to the
    shape of ``x[index]`` and converted to the dtype of x. An element that the index
    names several times gets all the updates (of `set`, the last).

    What is out of range: Python's and NumPy's indices are known, and an error in every
    mode (IndexError). Arrays of Treadle's, traced or not, follow `mode`, eagerly and
    compiled alike:

      "drop", "fill": are not updated; read `fill_value`.
      "clip": mean the nearest element.
      "wrap": are counted on from the other end.
      "promise_in_bounds": there are none (and if there are, updates drop, reads clip).

    Without a mode, updates drop and reads clip. `unique_indices` and
    `indices_are_sorted` may be promised, and change nothing.

    A mask may be traced if the value does not depend on how many places it has.
    """

    __slots__ = ("_index", "_x")

    def __init__(self, x: Any, index: Any) -> None:
        self._x, self._index = x, index

    def set(
        self,
        value: ArrayLike,
        *,
        mode: str = "drop",
        unique_indices: bool = False,
        indices_are_sorted: bool = False,
    ) -> Array:
        """Replaces the elements."""
        return _update(self._x, self._index, value, _SET, mode)

    def add(
        self,
        value: ArrayLike,
        *,
        mode: str = "drop",
        unique_indices: bool = False,
        indices_are_sorted: bool = False,
    ) -> Array:
        """Adds to the elements."""
        return _update(self._x, self._index, value, _ADD, mode)

    def subtract(
        self,
        value: ArrayLike,
        *,
        mode: str = "drop",
        unique_indices: bool = False,
        indices_are_sorted: bool = False,
    ) -> Array:
        """Subtracts from the elements."""
        # In the dtype of x, in which what is negative is added to whole numbers, too.
        dtype = typeof(self._x).dtype
        negated = binary.subtract(dtype.type(0), cast(_operand(value), dtype))
        return _update(self._x, self._index, negated, _ADD, mode)

    def multiply(
        self,
        value: ArrayLike,
        *,
        mode: str = "drop",
        unique_indices: bool = False,
        indices_are_sorted: bool = False,
    ) -> Array:
        """Multiplies the elements."""
        return _update(self._x, self._index, value, _MULTIPLY, mode)

    mul = multiply

    def divide(
        self,
        value: ArrayLike,
        *,
        mode: str = "drop",
        unique_indices: bool = False,
        indices_are_sorted: bool = False,
    ) -> Array:
        """Divides the elements."""
        return binary.divide(self._x, self._among_ones(value, mode))

    def power(
        self,
        value: ArrayLike,
        *,
        mode: str = "drop",
        unique_indices: bool = False,
        indices_are_sorted: bool = False,
    ) -> Array:
        """Raises the elements to a power."""
        return powers.power(self._x, self._among_ones(value, mode))

    def min(
        self,
        value: ArrayLike,
        *,
        mode: str = "drop",
        unique_indices: bool = False,
        indices_are_sorted: bool = False,
    ) -> Array:
        """The smaller of each element and the value."""
        return _update(self._x, self._index, value, _MIN, mode)

    def max(
        self,
        value: ArrayLike,
        *,
        mode: str = "drop",
        unique_indices: bool = False,
        indices_are_sorted: bool = False,
    ) -> Array:
        """The larger of each element and the value."""
        return _update(self._x, self._index, value, _MAX, mode)

    def apply(
        self,
        function: Callable[[Any], Any],
        *,
        mode: str = "drop",
        unique_indices: bool = False,
        indices_are_sorted: bool = False,
    ) -> Array:
        """Replaces each element by an elementwise function of it."""
        _check_mode(mode)
        t = typeof(self._x)
        if has_traced_mask(self._index):
            how = _Combine(lambda old, new: function(old), scatter_set)
            return _update(self._x, self._index, t.dtype.type(0), how, mode)
        # Nothing is read where nothing will be written.
        fill = None if t.size else t.dtype.type(0)
        old = getitem(self._x, self._index, fill, mode == "wrap")
        return self.set(function(old), mode=mode)

    def get(
        self,
        mode: str = "clip",
        fill_value: ArrayLike | None = None,
        *,
        unique_indices: bool = False,
        indices_are_sorted: bool = False,
    ) -> Array:
        """Reads the elements.

        Args:
          mode: what an index out of range reads where it is an array of Treadle's.
          fill_value: a scalar, for mode "fill"; by default not-a-number, the lowest
            signed integer, the highest unsigned one, or True.

        >>> import treadle.numpy as tnp
        >>> tnp.arange(3).at[tnp.array([2, 3])].get(mode="fill", fill_value=-1)
        Array([ 2, -1], dtype=int32)
        """
        reading = read_mode("at[].get", mode, typeof(self._x).dtype, fill_value)
        return getitem(self._x, self._index, **reading)

    def _among_ones(self, value: Any, mode: str) -> Any:
        value = _operand(value)
        dtype = dtypes.promote(
            *[(t.dtype, t.weak) for t in (typeof(self._x), typeof(value))]
        )[0]
        ones = full(typeof(self._x).shape, 1, dtype)
        return _update(ones, self._index, value, _MULTIPLY, mode)


class _Combine(NamedTuple):
    """How a value meets an element: one by one, and at places that may repeat."""

    one: Callable[[Any, Any], Any]
    scatter: Op


_SET = _Combine(lambda old, new: new, scatter_set)
_ADD = _Combine(binary.add, scatter_add)
_MULTIPLY = _Combine(binary.multiply, scatter_mul)
_MIN = _Combine(binary.minimum, scatter_min)
_MAX = _Combine(binary.maximum, scatter_max)


def _operand(value: Any) -> Any:
    return array(value) if type(value) in (list, tuple) else operand("x.at[...]", value)


def _check_mode(mode: str) -> None:
    if mode not in MODES:
        raise ValueError(
            f"x.at[...]: mode {mode!r} is none of {', '.join(map(repr, MODES))}"
            f"{at_line(user_source())}"
        )


def _update(x: Any, expression: Any, value: Any, how: _Combine, mode: str) -> Any:
    _check_mode(mode)
    value = cast(_operand(value), typeof(x).dtype)
    if has_traced_mask(expression):
        block = Masked.of(x, expression)
        old = getitem(x, block.around)
        new = block.chosen(how.one(old, block.aligned(value)), old)
        return _update(x, block.around, new, _SET, mode)
    opened, expression = without_truths(x, expression)
    out = _update_opened(opened, expression, value, how, mode)
    return out if opened is x else reshape(out, shape=typeof(x).shape)


def _update_opened(
    x: Any, expression: Any, value: Any, how: _Combine, mode: str
) -> Any:
    shape = typeof(x).shape
    selection = parse(shape, expression, mode)
    regular = all(type(a) is not Span or abs(a.step) == 1 for a in selection.axes)
    if not regular:
        return _update_flat(x, expression, value, how, mode)
    if GROUP in selection.order:
        return _update_group(x, selection, value, how)
    return _update_region(x, selection, value, how)


def _fitted(value: Any, shape: Shape) -> Any:
    """The value with the shape of the elements that it meets."""
    have = typeof(value).shape
    if not broadcasts(have, shape):
        raise ValueError(
            f"x.at[...]: a value of shape {have} does not broadcast to the shape "
            f"{shape} of x[...]{at_line(user_source())}"
        )
    return broadcast_to_shape(value, shape)


def _update_region(x: Any, selection: Selection, value: Any, how: _Combine) -> Any:
    """A block: slices beside integers and traced scalars."""
    shape = typeof(x).shape
    lengths = [a.length if type(a) is Span else 1 for a in selection.axes]
    value = reshape(_fitted(value, selection.shape()), shape=tuple(lengths))
    flipped = tuple(
        [i for i, a in enumerate(selection.axes) if type(a) is Span and a.step < 0]
    )
    if flipped:
        value = reverse(value, axes=flipped)
    starts = [_start(a) for a in selection.axes]
    if any([not is_dim(n) and n == 0 for n in shape]):
        return x
    # Of nothing, too: for other sizes it is something, and gradients are added up in
    # the same order.
    if how is _ADD and not selection.dynamic:
        return _added(x, value, starts)
    known = how is _SET and not selection.dynamic
    if not known:
        old = dynamic_slice(x, *starts, sizes=tuple(lengths))
        value = how.one(old, value)
        for i in selection.dynamic:
            value = select(within(starts[i], shape[i]), value, old)
    return dynamic_update_slice(x, value, *starts)


def _added(x: Any, value: Any, starts: list[Any]) -> Any:
    """x with a value added to the block that begins at these places."""
    shape, lengths = typeof(x).shape, typeof(value).shape
    if typeof(x).dtype == dtypes.bool_ or same_shape(shape, lengths):
        old = dynamic_slice(x, *starts, sizes=lengths)
        return dynamic_update_slice(x, _ADD.one(old, value), *starts)
    axes = [a for a, n in enumerate(lengths) if not same_shape((n,), (shape[a],))]
    return scatter_add(
        x,
        value,
        *[starts[a] for a in axes],
        axes=tuple(axes),
        sizes=tuple([lengths[a] for a in axes]),
        batch_dims=0,
        mode="clip",
    )


def _start(a: Any) -> Any:
    """Where an index begins, as a typed scalar."""
    if type(a) is Span:
        a = a.start if a.step > 0 else a.start + (a.length - 1) * a.step
    return cast(a, dtypes.of_scalar(a)) if type(a) in KNOWN else a


def _update_group(x: Any, selection: Selection, value: Any, how: _Combine) -> Any:
    """Index arrays; a slice that is not the whole axis is a window."""
    shape = typeof(x).shape
    indexed: list[int] = []
    sizes: list[int | None] = []
    positions: list[Any] = []
    flipped: list[int] = []
    for i, a in enumerate(selection.axes):
        if type(a) is not Span:
            indexed.append(i)
            sizes.append(None)
            positions.append(a)
            continue
        if a.step < 0:
            flipped.append(i)
        if not same_shape((a.length,), (shape[i],)):
            indexed.append(i)
            sizes.append(a.length)
            positions.append(_start(a) if is_dim(a.length) or a.length else 0)
    indices = together(positions)
    lead = selection.lead
    value = _fitted(value, selection.shape())
    value = reshape(value, shape=selection.shape(new=False))
    if any([not is_dim(n) and n == 0 for n in shape]):
        return x
    value = place_group(value, len(lead), selection.order, back=True)
    if flipped:
        spans = [i for i, a in enumerate(selection.axes) if type(a) is Span]
        value = reverse(
            value, axes=tuple([len(lead) + spans.index(i) for i in flipped])
        )
    places = {
        "axes": tuple(indexed),
        "sizes": tuple(sizes),
        "batch_dims": 0,
        "mode": "drop",
    }
    return how.scatter(x, value, *indices, **places)


def _update_flat(x: Any, expression: Any, value: Any, how: _Combine, mode: str) -> Any:
    """Any index at all: each element of x by its number."""
    t = typeof(x)
    dtype = dtypes.of_index(t.size)
    numbers = reshape(iota(shape=(t.size,), axis=0, dtype=dtype), shape=t.shape)
    fill = None if mode in ("clip", "wrap") else dtype.type(-1)
    places = getitem(numbers, expression, fill, mode == "wrap")
    value = _fitted(value, typeof(places).shape)
    n = typeof(places).size
    if not is_dim(t.size) and t.size == 0:
        return x
    out = how.scatter(
        reshape(x, shape=(t.size,)),
        reshape(value, shape=(n,)),
        reshape(places, shape=(n,)),
        axes=(0,),
        sizes=(None,),
        batch_dims=0,
        mode="drop",
    )
    return reshape(out, shape=t.shape)
