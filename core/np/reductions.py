"""Reductions over axes: sums, extremes, truth."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from treadle import dtypes
from treadle.arraytype import ArrayType
from treadle.dims import is_dim
from treadle.dtypes import DTypeLike
from treadle.errors import at, user_source
from treadle.np.binary import select_where
from treadle.np.operands import (
    ArrayLike,
    Axis,
    all_axes,
    as_array,
    cast,
    common_shape,
    one_axis,
    operand,
)
from treadle.ops import reduce
from treadle.ops.arithmetic import add, mul, sub
from treadle.ops.binary import maximum, minimum
from treadle.ops.compare import bitwise_and, bitwise_or
from treadle.ops.movement import expand, full, reshape
from treadle.run.array import Array
from treadle.trace.op import Op
from treadle.trace.value import typeof


def check_keepdims(name: str, keepdims: Any) -> None:
    """Whether axes are kept is told by a number. (What is `out` by its place elsewhere
    would be taken for it, and what comes behind for a value to begin with.)

    Raises:
      TypeError: for anything else.
    """
    if not isinstance(keepdims, bool | int | np.bool_):
        raise misplaced(name, "keepdims", "True or False", keepdims)


def misplaced(name: str, argument: str, kind: str, given: Any) -> TypeError:
    """What is given in the place that `out` has elsewhere."""
    return TypeError(
        f"{name}: `{argument}` is {kind}, not {given!r}{at(user_source())}\n"
        f"There is no `out` before it: give it by its name, `{argument}=`."
    )


def _reduced(op: Op, name: str, x: Any, axis: Axis, keepdims: bool) -> Any:
    check_keepdims(name, keepdims)
    t = typeof(x)
    axes = all_axes(name, axis, len(t.shape))
    # An empty tuple of axes (or a scalar) leaves the array as it is.
    out = op(x, axes=axes) if axes else as_array(x)
    if not keepdims:
        return out
    return reshape(out, shape=_kept(t.shape, axes))


def _kept(shape: tuple[int, ...], axes: tuple[int, ...]) -> tuple[int, ...]:
    return tuple([1 if i in axes else n for i, n in enumerate(shape)])


def _masked(name: str, x: Any, where: Any, neutral: Any) -> Any:
    """x with the elements that `where` leaves out replaced by a neutral value."""
    if where is None:
        return x
    common_shape(name, (typeof(x).shape, typeof(where).shape))
    return select_where(where, x, typeof(x).dtype.type(neutral))


def accumulator(dtype: np.dtype, terms: int) -> np.dtype:
    """Sums and products of small integers and booleans are int32 (uint32). A sum of
    booleans is a count: int64 if there are more terms than int32 can count."""
    if dtype == dtypes.bool_:
        return dtypes.of_index(terms)
    if dtypes.is_integer(dtype) and dtype.itemsize < 4:
        return dtypes.uint32 if dtypes.is_unsigned(dtype) else dtypes.int32
    return dtype


def _accumulated(name: str, x: Any, axis: Axis, dtype: Any) -> Any:
    """The elements in the dtype in which they are summed up."""
    x = operand(name, x)
    have = typeof(x).dtype
    if dtype is None:
        shape = typeof(x).shape
        axes = all_axes(name, axis, len(shape))
        want = accumulator(have, math.prod([shape[a] for a in axes]))
    else:
        want = dtypes.canonical(dtype)
    return x if have == want else cast(x, want)


def _scalar(name: str, initial: Any) -> Any:
    if typeof(operand(name, initial)).shape:
        raise ValueError(
            f"{name}: initial is one number, got {typeof(initial)}{at(user_source())}"
        )
    return initial


def sum(
    x: ArrayLike,
    axis: Axis = None,
    dtype: DTypeLike | None = None,
    keepdims: bool = False,
    initial: ArrayLike | None = None,
    where: ArrayLike | None = None,
) -> Array:
    """The sum over axes (all of them, by default).

    Booleans and small integers are summed as int32 (2³¹ booleans and more as int64).
    `where` selects elements; `initial` is added.
    """
    x = _masked("sum", _accumulated("sum", x, axis, dtype), where, 0)
    truth = typeof(x).dtype == dtypes.bool_
    op, join = (reduce.reduce_or, bitwise_or) if truth else (reduce.reduce_sum, add)
    out = _reduced(op, "sum", x, axis, keepdims)
    if initial is None:
        return out
    return join(out, cast(_scalar("sum", initial), typeof(out).dtype))


def prod(
    x: ArrayLike,
    axis: Axis = None,
    dtype: DTypeLike | None = None,
    keepdims: bool = False,
    initial: ArrayLike | None = None,
    where: ArrayLike | None = None,
) -> Array:
    """The product over axes (all of them, by default).

    Booleans and small integers are multiplied as int32 (2³¹ booleans and more as
    int64). `where` selects elements; `initial` is one factor more.
    """
    x = _masked("prod", _accumulated("prod", x, axis, dtype), where, 1)
    truth = typeof(x).dtype == dtypes.bool_
    op, join = (reduce.reduce_and, bitwise_and) if truth else (reduce.reduce_prod, mul)
    out = _reduced(op, "prod", x, axis, keepdims)
    if initial is None:
        return out
    return join(out, cast(_scalar("prod", initial), typeof(out).dtype))


def _has_elements(t: ArrayType, axes: tuple[int, ...], initial: Any) -> bool:
    """Whether an extreme is one of elements. If lengths that are not fixed may be 0,
    that is asked of those only without which there is no result."""
    if is_dim(t.size):
        return initial is not None or math.prod([t.shape[a] for a in axes]) > 0
    return t.size > 0


def _extreme(
    ops: tuple[Op, Op],
    name: str,
    x: Any,
    axis: Axis,
    keepdims: bool,
    initial: Any,
    where: ArrayLike | None,
) -> Any:
    """An extreme, by the op that reduces and the one for two elements."""
    op, pairwise = ops
    check_keepdims(name, keepdims)
    x = operand(name, x)
    t = typeof(x)
    if initial is not None:
        initial = cast(operand(name, initial), t.dtype)
        if where is not None:
            x = select_where(where, x, initial)
    if where is not None and initial is None:
        raise ValueError(_NO_ELEMENTS.format(name, "`where`", at(user_source())))
    axes = all_axes(name, axis, t.ndim)
    if _has_elements(t, axes, initial):
        out = _reduced(op, name, x, axis, keepdims)
        if initial is None:
            return out
        if t.dtype == dtypes.bool_:
            pairwise = bitwise_or if op is reduce.reduce_max else bitwise_and
        return pairwise(out, initial)
    kept = _kept(t.shape, axes)
    if initial is None and 0 in [t.shape[a] for a in axes]:
        shown = f"shape {t.shape}"
        raise ValueError(_NO_ELEMENTS.format(name, shown, at(user_source())))
    if not keepdims:
        kept = tuple([n for i, n in enumerate(t.shape) if i not in axes])
    return full(kept, 0, t.dtype) if initial is None else expand(initial, kept)


_NO_ELEMENTS = (
    "{0} of no elements has no value, and {1} may leave none{2}\n"
    "Pass `initial=`: the value that counts in any case."
)


def max(
    x: ArrayLike,
    axis: Axis = None,
    keepdims: bool = False,
    initial: ArrayLike | None = None,
    where: ArrayLike | None = None,
) -> Array:
    """The largest element over axes (all of them, by default).

    `where` selects elements; it needs `initial`.
    """
    return _extreme(
        (reduce.reduce_max, maximum), "max", x, axis, keepdims, initial, where
    )


def min(
    x: ArrayLike,
    axis: Axis = None,
    keepdims: bool = False,
    initial: ArrayLike | None = None,
    where: ArrayLike | None = None,
) -> Array:
    """The smallest element over axes (all of them, by default).

    `where` selects elements; it needs `initial`.
    """
    return _extreme(
        (reduce.reduce_min, minimum), "min", x, axis, keepdims, initial, where
    )


amax, amin = max, min


def any(
    x: ArrayLike,
    axis: Axis = None,
    keepdims: bool = False,
    where: ArrayLike | None = None,
) -> Array:
    """Whether some element is true (not zero).

    `where` selects elements.
    """
    x = _masked("any", cast(operand("any", x), dtypes.bool_), where, False)
    return _reduced(reduce.reduce_or, "any", x, axis, keepdims)


def all(
    x: ArrayLike,
    axis: Axis = None,
    keepdims: bool = False,
    where: ArrayLike | None = None,
) -> Array:
    """Whether every element is true (not zero).

    `where` selects elements.
    """
    x = _masked("all", cast(operand("all", x), dtypes.bool_), where, True)
    return _reduced(reduce.reduce_and, "all", x, axis, keepdims)


def _position(op: Op, name: str, x: Any, axis: int | None, keepdims: bool) -> Any:
    check_keepdims(name, keepdims)
    x = operand(name, x)
    t = typeof(x)
    if t.dtype == dtypes.bool_:
        x = cast(x, dtypes.uint8)
    if axis is None:
        out = op(reshape(x, shape=(t.size,)), axis=0)
        return reshape(out, shape=(1,) * t.ndim) if keepdims else out
    number = one_axis(name, axis, t.ndim)
    out = op(x, axis=number)
    return reshape(out, shape=_kept(t.shape, (number,))) if keepdims else out


def argmax(x: ArrayLike, axis: int | None = None, keepdims: bool = False) -> Array:
    """Where the largest element is along an axis (without one: in the flat array).

    The first, of equal ones. int32; along an axis of 2³¹ elements or more, int64.
    """
    return _position(reduce.argmax, "argmax", x, axis, keepdims)


def argmin(x: ArrayLike, axis: int | None = None, keepdims: bool = False) -> Array:
    """Where the smallest element is along an axis (without one: in the flat array).

    The first, of equal ones. int32; along an axis of 2³¹ elements or more, int64.
    """
    return _position(reduce.argmin, "argmin", x, axis, keepdims)


def count_nonzero(x: ArrayLike, axis: Axis = None, keepdims: bool = False) -> Array:
    """How many elements are not zero: int32; of 2³¹ elements or more, int64."""
    return sum(cast(operand("count_nonzero", x), dtypes.bool_), axis, None, keepdims)


def ptp(x: ArrayLike, axis: Axis = None, keepdims: bool = False) -> Array:
    """The largest element minus the smallest."""
    check_keepdims("ptp", keepdims)
    return sub(max(x, axis, keepdims), min(x, axis, keepdims))
