"""Along an axis: running totals, differences of neighbours, and their inverses."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from treadle import dtypes
from treadle.dtypes import DTypeLike
from treadle.errors import at, user_source
from treadle.np.binary import mod, select_where
from treadle.np.elementwise import abs, isnan
from treadle.np.join import concatenate
from treadle.np.operands import (
    ArrayLike,
    all_axes,
    as_array,
    as_inexact,
    broadcast_to_shape,
    cast,
    none,
    one_axis,
    operand,
    promoted,
    static_integer,
)
from treadle.np.order import along
from treadle.np.reductions import accumulator
from treadle.np.reductions import sum as sum_of
from treadle.np.shapes import moveaxis, ravel, reshape
from treadle.ops import cumulative
from treadle.ops.movement import full
from treadle.ops.shape import slice_axis
from treadle.run.array import Array
from treadle.trace.op import Op
from treadle.trace.value import typeof


def _running(
    op: Op, name: str, given: tuple[Any, ...], nan: float | None = None
) -> Any:
    """nan: what counts in the place of not-a-number, if that is passed over."""
    x, axis, dtype, reverse = given
    x = operand(name, x)
    x, number = along(name, x if typeof(x).ndim else ravel(x), axis)
    have = typeof(x).dtype
    if nan is not None and dtypes.is_differentiable(have):
        x = select_where(isnan(x), have.type(nan), x)
    if dtype is None:
        want = accumulator(have, typeof(x).shape[number])
    else:
        want = dtypes.canonical(dtype)
    if have != want:
        x = cast(x, want)
    return op(x, axis=number, reverse=reverse)


def cumsum(
    x: ArrayLike,
    axis: int | None = None,
    dtype: DTypeLike | None = None,
    reverse: bool = False,
) -> Array:
    """The running sum along an axis (None: of the flat array).

    `reverse` runs from the end.
    """
    return _running(cumulative.cumsum, "cumsum", (x, axis, dtype, reverse))


def cumprod(
    x: ArrayLike,
    axis: int | None = None,
    dtype: DTypeLike | None = None,
    reverse: bool = False,
) -> Array:
    """The running product along an axis (None: of the flat array).

    `reverse` runs from the end.
    """
    return _running(cumulative.cumprod, "cumprod", (x, axis, dtype, reverse))


def nancumsum(
    x: ArrayLike,
    axis: int | None = None,
    dtype: DTypeLike | None = None,
    reverse: bool = False,
) -> Array:
    """The running sum of what is a number along an axis (None: of the flat array).

    `reverse` runs from the end.
    """
    return _running(cumulative.cumsum, "nancumsum", (x, axis, dtype, reverse), 0)


def nancumprod(
    x: ArrayLike,
    axis: int | None = None,
    dtype: DTypeLike | None = None,
    reverse: bool = False,
) -> Array:
    """The running product of what is a number along an axis (None: of the flat array).

    `reverse` runs from the end.
    """
    return _running(cumulative.cumprod, "nancumprod", (x, axis, dtype, reverse), 1)


def cumulative_sum(
    x: ArrayLike,
    /,
    *,
    axis: int | None = None,
    dtype: DTypeLike | None = None,
    include_initial: bool = False,
) -> Array:
    """The running sum along an axis (of a vector: along its only one).

    Args:
      include_initial: begin with 0, so that the result is longer by one.

    >>> import treadle.numpy as tnp
    >>> tnp.cumulative_sum(tnp.array([2, 3]), include_initial=True)
    Array([0, 2, 5], dtype=int32)
    """
    return _from_start("cumulative_sum", cumsum, 0, x, axis, dtype, include_initial)


def cumulative_prod(
    x: ArrayLike,
    /,
    *,
    axis: int | None = None,
    dtype: DTypeLike | None = None,
    include_initial: bool = False,
) -> Array:
    """The running product along an axis (of a vector: along its only one).

    Args:
      include_initial: begin with 1, so that the result is longer by one.
    """
    return _from_start("cumulative_prod", cumprod, 1, x, axis, dtype, include_initial)


def _from_start(
    name: str,
    total: Callable[..., Array],
    first: int,
    x: Any,
    axis: Any,
    dtype: Any,
    initial: bool,
) -> Any:
    shape = typeof(operand(name, x)).shape
    if not shape or (axis is None and len(shape) > 1):
        raise ValueError(
            f"{name} of an array of shape {shape} needs an axis{at(user_source())}\n"
            "Give it one of the array's: `axis=`."
        )
    number = one_axis(name, 0 if axis is None else axis, len(shape))
    out = total(x, number, dtype)
    if not initial:
        return out
    start = full((*shape[:number], 1, *shape[number + 1 :]), first, out.dtype)
    return concatenate([start, out], number)


# Differences --------------------------------------------------------------------------


def diff(
    x: ArrayLike,
    n: int = 1,
    axis: int = -1,
    prepend: ArrayLike | None = None,
    append: ArrayLike | None = None,
) -> Array:
    """The differences of neighbours along an axis, taken n times.

    Args:
      prepend, append: what is put before and after x first: an array, or a scalar.
    """
    x = operand("diff", x)
    number = one_axis("diff", axis, typeof(x).ndim)
    n = static_integer("diff", "n", n)
    if n < 0:
        raise ValueError(f"diff: n is {n}; it must not be negative{at(user_source())}")
    if n and (prepend is not None or append is not None):
        ends = [_end(v, x, number) for v in (prepend, append)]
        x = concatenate([*ends[0], x, *ends[1]], number)
    for _ in range(n):
        length = typeof(x).shape[number]
        later = slice_axis(x, number, min(1, length), length)
        earlier = slice_axis(x, number, 0, max(length - 1, 0))
        x = later != earlier if typeof(x).dtype == dtypes.bool_ else later - earlier
    return as_array(x)


def _end(value: Any, x: Any, axis: int) -> list[Any]:
    if value is None:
        return []
    value = operand("diff", value)
    if typeof(value).ndim:
        return [value]
    _, value = promoted("diff", x, value)
    shape = typeof(x).shape
    return [broadcast_to_shape(value, (*shape[:axis], 1, *shape[axis + 1 :]))]


def ediff1d(
    x: ArrayLike, to_end: ArrayLike | None = None, to_begin: ArrayLike | None = None
) -> Array:
    """The differences of neighbours in the flat array, between other numbers."""
    flat = ravel(operand("ediff1d", x))
    dtype = typeof(flat).dtype
    first, last = (
        [] if v is None else [ravel(cast(operand("ediff1d", v), dtype))]
        for v in (to_begin, to_end)
    )
    return concatenate([*first, diff(flat), *last])


def gradient(
    f: ArrayLike,
    *spacing: ArrayLike,
    axis: int | Sequence[int] | None = None,
    edge_order: int = 1,
) -> Any:
    """The slopes of samples along each axis, by central differences.

    Args:
      spacing: how far apart samples are: nothing (1), one number for all axes, or for
        each axis a number or the vector of its coordinates.
      axis: along which axes; all of them, by default.
      edge_order: 1 or 2: of which order the slopes at the ends are exact.

    Returns:
      an array for one axis, a list of them for several.

    >>> import treadle.numpy as tnp
    >>> tnp.gradient(tnp.array([1.0, 2.0, 4.0, 7.0]))
    Array([1. , 1.5, 2.5, 3. ], dtype=float32)
    """
    f = as_inexact("gradient", f)
    shape = typeof(f).shape
    axes = all_axes("gradient", axis, len(shape))
    if isinstance(axis, Sequence):
        axes = tuple([one_axis("gradient", a, len(shape)) for a in axis])
    steps = list(spacing) or [1.0]
    if len(steps) == 1:
        steps = steps * len(axes)
    if len(steps) != len(axes):
        raise TypeError(
            f"gradient: {len(spacing)} spacings for {len(axes)} axes{at(user_source())}"
        )
    if edge_order not in (1, 2):
        raise ValueError(
            f"gradient: edge_order is 1 or 2, got {edge_order!r}{at(user_source())}"
        )
    out = []
    for a, step in zip(axes, steps, strict=True):
        if shape[a] < edge_order + 1:
            raise ValueError(
                f"gradient: axis {a} of shape {shape} has too few elements: "
                f"{edge_order + 1} are needed{at(user_source())}"
            )
        out.append(_slopes(f, a, step, edge_order))
    return out[0] if len(out) == 1 else out


def _slopes(f: Any, axis: int, step: Any, edge_order: int) -> Any:
    step, shape = operand("gradient", step), typeof(f).shape

    def part(start: int | None, stop: int | None) -> Any:
        return f[(slice(None),) * axis + (slice(start, stop),)]

    if not typeof(step).ndim:
        inner = (part(2, None) - part(None, -2)) / (2 * step)
        if edge_order == 1:
            first = (part(1, 2) - part(0, 1)) / step
            last = (part(-1, None) - part(-2, -1)) / step
        else:
            first = (-1.5 * part(0, 1) + 2 * part(1, 2) - 0.5 * part(2, 3)) / step
            last = 0.5 * part(-3, -2) - 2 * part(-2, -1) + 1.5 * part(-1, None)
            last = last / step
        return concatenate([first, inner, last], axis)
    if typeof(step).shape != (shape[axis],):
        raise ValueError(
            f"gradient: coordinates of shape {typeof(step).shape} for an axis of "
            f"length {shape[axis]}{at(user_source())}"
        )
    gaps = diff(step)
    beside = reshape(gaps, (-1, *[1] * (len(shape) - axis - 1)))
    a, b = beside[:-1], beside[1:]
    inner = part(2, None) * (a / (b * (a + b))) - part(None, -2) * (b / (a * (a + b)))
    inner = inner + part(1, -1) * ((b - a) / (a * b))
    if edge_order == 1:
        first = (part(1, 2) - part(0, 1)) / gaps[0]
        last = (part(-1, None) - part(-2, -1)) / gaps[-1]
    else:
        starts = part(0, 1), part(1, 2), part(2, 3)
        first = _end_slope(*starts, gaps[0], gaps[1])
        ends = part(-1, None), part(-2, -1), part(-3, -2)
        last = -_end_slope(*ends, gaps[-1], gaps[-2])
    return concatenate([first, inner, last], axis)


def _end_slope(f0: Any, f1: Any, f2: Any, a: Any, b: Any) -> Any:
    """The slope at the first of three samples, a and b apart."""
    return (
        f1 * ((a + b) / (a * b))
        - f0 * ((2 * a + b) / (a * (a + b)))
        - f2 * (a / (b * (a + b)))
    )


def trapezoid(
    y: ArrayLike, x: ArrayLike | None = None, dx: ArrayLike = 1.0, axis: int = -1
) -> Array:
    """The integral of samples along an axis by the trapezoidal rule.

    Args:
      x: where the samples are, a vector or of the shape of y; by default `dx` apart.
    """
    y = as_inexact("trapezoid", y)
    number = one_axis("trapezoid", axis, typeof(y).ndim)
    y = moveaxis(y, number, -1)
    if x is not None:
        x = operand("trapezoid", x)
        dx = diff(x if typeof(x).ndim == 1 else moveaxis(x, number, -1))
    return sum_of((y[..., 1:] + y[..., :-1]) * dx, -1) * 0.5


def unwrap(
    x: ArrayLike,
    discont: float | None = None,
    axis: int = -1,
    period: float = 2 * math.pi,
) -> Array:
    """Angles without jumps: where neighbours along an axis differ by more than
    `discont` (half a period, by default), whole periods are added to what follows."""
    array = promoted("unwrap", x, period)[0]
    number = one_axis("unwrap", axis, typeof(array).ndim)
    if dtypes.is_unsigned(typeof(array).dtype):
        raise TypeError(
            f"unwrap of {typeof(array)}: steps between neighbours have signs"
            f"{at(user_source())}\nConvert it: `x.astype(tnp.int32)`."
        )
    if none(typeof(array).shape[number]):
        return as_array(array)
    steps = diff(array, axis=number)
    if dtypes.is_integer(typeof(array).dtype):
        half: float = int(period) // 2
        ambiguous, low = 2 * half == period, -half
    else:
        half, ambiguous, low = period / 2, True, -period / 2
    moved = mod(steps - low, period) + low
    if ambiguous:
        moved = select_where((moved == low) & (steps > 0), half, moved)
    limit = period / 2 if discont is None else discont
    jumps = select_where(abs(steps) < limit, 0, moved - steps)
    rest = slice_axis(array, number, 1, typeof(array).shape[number])
    start = slice_axis(array, number, 0, 1)
    return concatenate([start, rest + cumsum(jumps, number)], number)
