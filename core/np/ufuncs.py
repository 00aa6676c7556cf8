"""What NumPy's ufuncs are besides functions: `add.reduce`, `subtract.outer` and kin.

Each is set on the plain functions of two operands, which stay what they are. The order
is NumPy's, from the first element to the last; what has a reduction of its own (sums,
products, extremes, truth values) is that one.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from treadle import dtypes
from treadle.api.boundary import boundary
from treadle.api.loops import scan
from treadle.api.while_loops import fori_loop
from treadle.dtypes import DTypeLike
from treadle.errors import at, user_source
from treadle.np import binary, powers, reductions, running
from treadle.np.at import At
from treadle.np.creation import arange, full
from treadle.np.join import concatenate
from treadle.np.operands import (
    ArrayLike,
    Axis,
    all_axes,
    as_array,
    broadcast_to_shape,
    cast,
    one_axis,
    operand,
)
from treadle.np.places import where as choose
from treadle.np.shapes import moveaxis, ravel, reshape
from treadle.np.ufunc import Ufunc
from treadle.ops import cumulative
from treadle.run.array import Array
from treadle.trace.value import is_traced, typeof

_REDUCED: dict[Any, Callable[..., Array]] = {
    binary.add: reductions.sum,
    binary.multiply: reductions.prod,
}
_EXTREMES: dict[Any, Callable[..., Array]] = {
    binary.maximum: reductions.max,
    binary.minimum: reductions.min,
}
_ACCUMULATED: dict[Any, Callable[..., Array]] = {
    binary.add: running.cumsum,
    binary.multiply: running.cumprod,
}
_RUNNING = {
    binary.maximum: cumulative.cummax,
    binary.minimum: cumulative.cummin,
    binary.logaddexp: cumulative.cumlogsumexp,
}
_UPDATES = {
    binary.add: "add",
    binary.subtract: "subtract",
    binary.multiply: "multiply",
    binary.divide: "divide",
    powers.power: "power",
    binary.maximum: "max",
    binary.minimum: "min",
}
_IDENTITIES: dict[Any, Any] = {
    binary.add: 0,
    binary.multiply: 1,
    binary.logical_and: True,
    binary.logical_or: False,
    binary.logical_xor: False,
    binary.bitwise_and: -1,
    binary.bitwise_or: 0,
    binary.bitwise_xor: 0,
    binary.logaddexp: -math.inf,
    binary.logaddexp2: -math.inf,
    binary.hypot: 0,
}
_ANY_ORDER = {*_IDENTITIES, *_EXTREMES, binary.fmax, binary.fmin}
"""Those that may combine elements of several axes."""
_TRUTHS = {binary.logical_and, binary.logical_or, binary.logical_xor}
_OTHERS = (
    binary.subtract,
    binary.divide,
    binary.floor_divide,
    binary.remainder,
    binary.fmod,
    powers.power,
    powers.float_power,
    binary.arctan2,
    binary.nextafter,
    binary.copysign,
    binary.heaviside,
    binary.left_shift,
    binary.right_shift,
    binary.equal,
    binary.not_equal,
    binary.less,
    binary.less_equal,
    binary.greater,
    binary.greater_equal,
)


class _Fold:
    """A function of two operands of which the first is what came before.

    dtype: of that; the function gives it again.
    """

    def __init__(self, function: Any, name: str, x: Any) -> None:
        self.function, self.name = function, name
        one = cast(np.ones((), np.int8), x.dtype)
        self.dtype = typeof(function(one, one)).dtype
        if typeof(function(cast(one, self.dtype), one)).dtype != self.dtype or (
            self.dtype == dtypes.bool_ != x.dtype and function not in _TRUTHS
        ):
            raise TypeError(
                f"{name}: {function.__name__} gives {self.dtype} for {x.dtype}, and "
                f"can't go on from there{at(user_source())}\nConvert the elements: "
                f"`{name}(x, dtype={str(self.dtype)!r})`."
            )

    def __call__(self, before: Any, x: Any) -> Any:
        return self.function(before, x)

    def begun(self, x: Any) -> Any:
        return cast(x, self.dtype)

    def reduced(self, rows: Any, initial: Any, masks: Any) -> Any:
        """Rows combined from the first to the last, those that masks leave."""
        identity = _IDENTITIES.get(self.function)
        if initial is None and (masks is not None or rows.shape[0] == 0):
            if identity is None:
                raise ValueError(
                    f"{self.name}: {self.function.__name__} has no identity: for no "
                    f"elements, and with `where`, say `initial`{at(user_source())}"
                )
            # -1 is all bits, of unsigned integers, too.
            initial = np.asarray(identity).astype(self.dtype)
        if initial is None:
            first, rows = self.begun(rows[0]), rows[1:]
        else:
            first = broadcast_to_shape(self.begun(initial), rows.shape[1:])
        if masks is None:
            return scan(lambda c, row: (self(c, row), None), first, rows)[0]

        def step(c: Any, row: Any) -> Any:
            return choose(row[1], self(c, row[0]), c), None

        return scan(step, first, (rows, masks))[0]


def _rows(x: Any, axes: tuple[int, ...]) -> Any:
    """One axis of those, before all others."""
    x = moveaxis(x, axes, tuple(range(len(axes))))
    return reshape(x, (math.prod(x.shape[: len(axes)]), *x.shape[len(axes) :]))


def _given(name: str, x: Any, dtype: DTypeLike | None) -> Any:
    x = as_array(operand(name, x))
    return x if dtype is None else cast(x, dtypes.canonical(dtype))


def reduce(
    function: Any,
    x: ArrayLike,
    axis: Axis = 0,
    dtype: DTypeLike | None = None,
    keepdims: bool = False,
    initial: ArrayLike | None = None,
    where: ArrayLike | None = None,
) -> Array:
    name = f"{function.__name__}.reduce"
    if function in _REDUCED:
        return _REDUCED[function](x, axis, dtype, keepdims, initial, where)
    given = _given(name, x, dtype)
    if function in _EXTREMES:
        return _EXTREMES[function](given, axis, keepdims, initial, where)
    axes = all_axes(name, axis, given.ndim)
    if len(axes) > 1 and function not in _ANY_ORDER:
        raise ValueError(
            f"{name}: the order of several axes matters, got axis={axis} for an array "
            f"of shape {given.shape}{at(user_source())}\nReduce one axis at a time."
        )
    masks = None
    if where is not None:
        masks = _rows(broadcast_to_shape(as_array(where), given.shape), axes)
    out = _Fold(function, name, given).reduced(_rows(given, axes), initial, masks)
    if keepdims:
        out = reshape(out, [1 if i in axes else n for i, n in enumerate(given.shape)])
    return out


def accumulate(
    function: Any, x: ArrayLike, axis: int = 0, dtype: DTypeLike | None = None
) -> Array:
    name = f"{function.__name__}.accumulate"
    given = _given(name, x, dtype)
    number = one_axis(name, axis, given.ndim)
    if function in _ACCUMULATED:
        return _ACCUMULATED[function](given, number, dtype)
    fold = _Fold(function, name, given)
    if function in _RUNNING and fold.dtype == given.dtype != dtypes.bool_:
        return _RUNNING[function](given, axis=number, reverse=False)
    rows = _rows(given, (number,))
    if rows.shape[0] == 0:
        return cast(given, fold.dtype)

    def step(before: Any, row: Any) -> Any:
        after = fold(before, row)
        return after, after

    first = fold.begun(rows[0])
    rest = scan(step, first, rows[1:])[1]
    return moveaxis(concatenate([reshape(first, (1, *first.shape)), rest]), 0, number)


def reduceat(
    function: Any,
    x: ArrayLike,
    indices: ArrayLike,
    axis: int = 0,
    dtype: DTypeLike | None = None,
) -> Array:
    name = f"{function.__name__}.reduceat"
    given = _given(name, x, dtype)
    if function in _REDUCED and dtype is None:
        given = cast(given, reductions.accumulator(given.dtype, given.size))
    number = one_axis(name, axis, given.ndim)
    fold, rows = _Fold(function, name, given), _rows(given, (number,))
    starts = _starts(name, indices)
    first = fold.begun(rows[starts if is_traced(starts) else np.asarray(starts)])
    ends = concatenate([starts[1:], full((1,), rows.shape[0], "int32")])
    # A piece that ends before it begins is its first element.
    lengths = binary.subtract(ends, starts)
    column = reshape(lengths, (lengths.size, *[1] * (rows.ndim - 1)))

    def step(i: Any, out: Any) -> Any:
        return choose(
            binary.less(i, column), fold(out, rows[binary.add(starts, i)]), out
        )

    longest = reductions.max(lengths, initial=1)
    out = fori_loop(1, longest if is_traced(longest) else int(longest), step, first)
    return moveaxis(out, 0, number)


def _starts(name: str, indices: Any) -> Any:
    """Where pieces begin.

    Raises:
      TypeError, ValueError: if that are no integers along one axis.
    """
    indices = np.asarray(indices) if type(indices) in (list, tuple) else indices
    starts = as_array(operand(name, indices))
    if not dtypes.is_integer(starts.dtype):
        raise TypeError(
            f"{name}: indices are integers, got {starts.dtype}{at(user_source())}"
        )
    if starts.ndim != 1:
        raise ValueError(
            f"{name}: indices have one axis, got an array of shape {starts.shape}"
            f"{at(user_source())}"
        )
    return cast(starts, dtypes.int32)


def outer(function: Any, x: ArrayLike, y: ArrayLike) -> Array:
    name = f"{function.__name__}.outer"
    first, second = as_array(operand(name, x)), as_array(operand(name, y))
    return function(reshape(first, (*first.shape, *[1] * second.ndim)), second)


def at_places(
    function: Any, x: ArrayLike, indices: Any, y: ArrayLike, *, inplace: bool = True
) -> Array:
    name = f"{function.__name__}.at"
    array = as_array(operand(name, x))
    if inplace:
        way = _UPDATES.get(function)
        better = f"`x = x.at[i].{way}(y)`, or " if way else ""
        raise NotImplementedError(
            f"{name}: arrays don't change{at(user_source())}\nTake what is returned: "
            f"{better}`x = tnp.{name}(x, i, y, inplace=False)`."
        )
    if function in _UPDATES and array.dtype != dtypes.bool_:
        return getattr(At(array)[indices], _UPDATES[function])(y)
    flat = ravel(array)
    # What is out of range has the place after the last one, and is dropped.
    numbers = At(reshape(arange(array.size), array.shape))[indices]
    places = numbers.get(mode="fill", fill_value=array.size)
    values = ravel(broadcast_to_shape(as_array(operand(name, y)), places.shape))

    def step(out: Any, update: Any) -> Any:
        i, value = update
        return At(out)[i].set(function(out[i], value)), None

    return reshape(scan(step, flat, (ravel(places), values))[0], array.shape)


def _equip(function: Ufunc) -> None:
    """Sets what NumPy's ufuncs have on a function."""
    function.nin, function.nout = 2, 1
    function.identity = _IDENTITIES.get(function)
    for name, method in _METHODS.items():
        made = partial(method, function)
        made.__doc__ = getattr(Ufunc, name).__doc__
        setattr(function, name, made)


_METHODS: dict[str, Callable[..., Array]] = {
    "reduce": boundary(reduce),
    "accumulate": boundary(accumulate),
    "reduceat": boundary(reduceat),
    "outer": boundary(outer),
    "at": boundary(at_places),
}

for _function in (*_ANY_ORDER, *_OTHERS):
    _equip(_function)
