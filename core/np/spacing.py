"""Evenly spaced numbers, and those whose logarithms or ratios are even."""

from __future__ import annotations

import math
from typing import Any, Literal, overload

from treadle import dtypes
from treadle.dims import is_dim
from treadle.dtypes import DTypeLike
from treadle.np.creation import placed, working_dtype
from treadle.np.elementwise import abs, exp, floor, log, sign
from treadle.np.operands import (
    ArrayLike,
    as_array,
    as_shape,
    broadcast_to_shape,
    cast,
    common_shape,
    promoted,
)
from treadle.np.powers import power
from treadle.np.shapes import moveaxis
from treadle.ops import compare
from treadle.ops.arithmetic import add, div, mul, sub
from treadle.ops.binary import maximum
from treadle.ops.movement import broadcast_in_dim
from treadle.ops.shape import iota
from treadle.run.array import Array
from treadle.trace.value import typeof


def _ends(name: str, start: Any, stop: Any) -> list[Any]:
    """Both in one dtype; Python's integers may be beyond the reach of the other's."""
    ends = [dtypes.as_float(v) if type(v) is int else v for v in (start, stop)]
    return promoted(name, *ends)


@overload
def linspace(
    start: ArrayLike,
    stop: ArrayLike,
    num: int = 50,
    endpoint: bool = True,
    dtype: DTypeLike | None = None,
    axis: int = 0,
    *,
    retstep: Literal[False] = False,
    device: Any = None,
) -> Array: ...
@overload
def linspace(
    start: ArrayLike,
    stop: ArrayLike,
    num: int = 50,
    endpoint: bool = True,
    dtype: DTypeLike | None = None,
    axis: int = 0,
    *,
    retstep: Literal[True],
    device: Any = None,
) -> tuple[Array, Array]: ...
def linspace(
    start: ArrayLike,
    stop: ArrayLike,
    num: int = 50,
    endpoint: bool = True,
    dtype: DTypeLike | None = None,
    axis: int = 0,
    *,
    retstep: bool = False,
    device: Any = None,
) -> Any:
    """Evenly spaced numbers from `start` to `stop` (which may be traced, and arrays).

    Args:
      num: how many; a number that is known while tracing.
      endpoint: whether `stop` is one of them.
      dtype: for an integer dtype they are rounded down.
      axis: along which axis they come, of arrays.
      retstep: return the distance between two, too.
    """
    (num,) = as_shape("linspace", num)
    first, last = _ends("linspace", start, stop)
    t = typeof(first)
    found = dtypes.to_float(t.dtype)
    want = found if dtype is None else dtypes.canonical(dtype)
    if dtypes.is_differentiable(want):
        # Python's numbers have the digits and the range of the wanted dtype.
        working = working_dtype(dtypes.promote((found, t.weak), (want, False))[0])
    else:
        working = dtypes.complex128 if dtypes.is_complex(found) else dtypes.float64
    first, last = cast(first, working), cast(last, working)
    shape = common_shape("linspace", (typeof(first).shape, typeof(last).shape))
    if shape:
        first, last = (broadcast_to_shape(v, shape) for v in (first, last))
    whole = not dtypes.is_differentiable(want)
    out = (_in_steps if whole else _evenly_spaced)(first, last, num, endpoint, working)
    if whole and want != dtypes.bool_:
        out = floor(out)
    out = cast(out, want)
    out = placed(moveaxis(out, 0, axis) if shape else out, device)
    if not retstep:
        return out
    steps = num - 1 if endpoint else num
    gap = as_array(sub(last, first))
    step = div(gap, cast(steps, working)) if steps > 0 else gap * math.nan
    return out, as_array(cast(step, found))


def _evenly_spaced(first: Any, last: Any, num: int, endpoint: bool, dtype: Any) -> Any:
    shape = (num, *typeof(first).shape)
    steps = num - 1 if endpoint else num
    inner = tuple(range(1, len(shape)))
    first, last = (
        v if not inner else broadcast_in_dim(v, shape=shape, dims=inner)
        for v in (first, last)
    )
    if not is_dim(steps) and steps <= 0:
        return first if inner else broadcast_in_dim(first, shape=shape, dims=())
    # A single number is the first one.
    last_place = maximum(cast(steps, dtypes.of_index(num)), 1)
    real_dtype = dtypes.to_real(dtype)
    place = iota(shape=shape, axis=0, dtype=real_dtype)
    part = cast(div(place, cast(last_place, real_dtype)), dtype)
    # The two weights are exact at both ends, and neither product can overflow.
    out = add(mul(first, sub(dtype.type(1), part)), mul(last, part))
    if not endpoint:
        return out
    place = iota(shape=shape, axis=0, dtype=dtypes.of_index(num))
    return compare.select(compare.eq(place, last_place), last, out)


def _in_steps(first: Any, last: Any, num: int, endpoint: bool, dtype: Any) -> Any:
    """By multiples of the distance between two, which are whole numbers where it is
    one: what comes next is rounded down."""
    steps = num - 1 if endpoint else num
    if not is_dim(steps) and steps <= 0:
        return _evenly_spaced(first, last, num, endpoint, dtype)
    shape = (num, *typeof(first).shape)
    step = div(sub(last, first), maximum(cast(steps, dtype), dtype.type(1)))
    inner = tuple(range(1, len(shape)))
    first, step, last = (
        broadcast_in_dim(v, shape=shape, dims=inner) for v in (first, step, last)
    )
    place = iota(shape=shape, axis=0, dtype=dtypes.to_real(dtype))
    out = add(first, mul(cast(place, dtype), step))
    if not endpoint:
        return out
    place = iota(shape=shape, axis=0, dtype=dtypes.of_index(num))
    end = maximum(cast(steps, dtypes.of_index(num)), 1)
    return compare.select(compare.eq(place, end), last, out)


def logspace(
    start: ArrayLike,
    stop: ArrayLike,
    num: int = 50,
    endpoint: bool = True,
    base: ArrayLike = 10.0,
    dtype: DTypeLike | None = None,
    axis: int = 0,
) -> Array:
    """Numbers whose logarithms are evenly spaced from `start` to `stop`."""
    if dtype is None:
        return power(base, linspace(start, stop, num, endpoint, axis=axis))
    want = dtypes.canonical(dtype)
    working = working_dtype(want) if dtypes.is_differentiable(want) else dtypes.float64
    return cast(power(base, linspace(start, stop, num, endpoint, working, axis)), want)


def geomspace(
    start: ArrayLike,
    stop: ArrayLike,
    num: int = 50,
    endpoint: bool = True,
    dtype: DTypeLike | None = None,
    axis: int = 0,
) -> Array:
    """Numbers from `start` to `stop`, each the same multiple of the one before.

    Real numbers have one sign; not-a-number is between those that have not. Complex
    ones turn from the one to the other by the smaller angle, on a logarithmic spiral.
    """
    first, last = _ends("geomspace", start, stop)
    found = dtypes.to_float(typeof(first).dtype)
    (count,) = as_shape("geomspace", num)
    working = working_dtype(found)
    shape = common_shape("geomspace", (typeof(first).shape, typeof(last).shape))
    ends = [as_array(cast(v, working)) for v in (first, last)]
    ends = [broadcast_to_shape(v, shape) for v in ends]
    turned = dtypes.is_complex(working)
    low, high = ends
    if turned:
        # The logarithm of the ratio has the smaller of both angles.
        low, high = mul(low, 0), log(div(high, low))
    else:
        low, high = (log(abs(v)) for v in ends)
    powers = linspace(low, high, count, endpoint)
    wide = tuple(range(1, powers.ndim))
    first, last = (broadcast_in_dim(v, shape=powers.shape, dims=wide) for v in ends)
    if turned:
        out = mul(exp(powers), first)
    else:
        one_sign = compare.eq(sign(first), sign(last))
        nan = working.type(math.nan)
        out = mul(exp(powers), compare.select(one_sign, sign(first), nan))
    # What is known is exact.
    place = iota(shape=powers.shape, axis=0, dtype=dtypes.of_index(count))
    if endpoint:
        end = cast(count - 1, typeof(place).dtype)
        out = compare.select(compare.eq(place, end), last, out)
    out = compare.select(compare.eq(place, 0), first, out)
    out = cast(out, found if dtype is None else dtypes.canonical(dtype))
    return moveaxis(out, 0, axis) if shape else out
