"""Arithmetic of complex numbers as pairs of real ones.

Each rule takes the operands of an op, complex ones as pairs, and its params. Roundings
and special values are NumPy's: no product recovers an infinity from not-a-number.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from treadle import dtypes
from treadle.ops import complex as of_parts
from treadle.ops.arithmetic import add, div, mul, neg, sub
from treadle.ops.binary import maximum, minimum
from treadle.ops.cast import convert
from treadle.ops.compare import (
    bitwise_and,
    bitwise_or,
    eq,
    ge,
    gt,
    le,
    lt,
    ne,
    select,
)
from treadle.ops.cumulative import cumsum
from treadle.ops.dynamic import dynamic_slice, dynamic_update_slice
from treadle.ops.gather import gather
from treadle.ops.identity import (
    checkpoint_name,
    copy,
    optimization_barrier,
    stop_gradient,
)
from treadle.ops.movement import (
    broadcast_in_dim,
    reshape,
    reverse,
    transpose,
    zeros_like,
)
from treadle.ops.reduce import (
    argmax,
    argmin,
    reduce_max,
    reduce_min,
    reduce_or,
    reduce_sum,
)
from treadle.ops.scatter import scatter_add, scatter_set
from treadle.ops.shape import concatenate, iota, pad, slice_
from treadle.ops.unary import abs_
from treadle.ops.window import reduce_window_sum, window_pick, window_put
from treadle.trace.op import Op
from treadle.trace.value import typeof


class Pair(NamedTuple):
    """The real and the imaginary part of a complex value."""

    re: Any
    im: Any


def each(function: Callable[..., Any], *args: Any) -> Pair:
    """A function of both parts of the pairs among the operands."""
    return Pair(
        function(*[x.re if isinstance(x, Pair) else x for x in args]),
        function(*[x.im if isinstance(x, Pair) else x for x in args]),
    )


COMPONENTWISE = frozenset(
    {
        *(broadcast_in_dim, reshape, transpose, reverse, slice_, pad, concatenate),
        *(gather, dynamic_slice, dynamic_update_slice, scatter_add, scatter_set),
        *(neg, add, sub, copy, stop_gradient, checkpoint_name, optimization_barrier),
        *(reduce_sum, cumsum, reduce_window_sum, window_pick, window_put),
    }
)
"""Ops that do to the parts of complex numbers what they do to real ones."""


def multiply(x: Pair, y: Pair) -> Pair:
    return Pair(
        sub(mul(x.re, y.re), mul(x.im, y.im)), add(mul(x.re, y.im), mul(x.im, y.re))
    )


def divide(x: Pair, y: Pair) -> Pair:
    """Smith's division [1]: the squares of the divisor may be out of range.

    [1] R. L. Smith, Algorithm 116: Complex division, Comm. ACM 5 (1962).
    """
    wide = ge(abs_(y.re), abs_(y.im))
    large, small = select(wide, y.re, y.im), select(wide, y.im, y.re)
    nothing = eq(large, 0.0)
    ratio = select(nothing, small, div(small, large))
    # Times infinity is what a division by zero gives.
    size = select(nothing, abs_(y.re), add(large, mul(small, ratio)))
    scale = div(1.0, size)
    # Crosswise products: of a narrow divisor the roles of its parts are exchanged.
    a, b = select(wide, x.re, x.im), select(wide, x.im, x.re)
    c = mul(a, ratio)
    re, im = add(a, mul(b, ratio)), sub(select(wide, b, c), select(wide, c, b))
    re, im = select(nothing, x.re, re), select(nothing, x.im, im)
    return Pair(mul(re, scale), mul(im, scale))


def _select(condition: Any, x: Pair, y: Pair) -> Pair:
    return Pair(select(condition, x.re, y.re), select(condition, x.im, y.im))


choose = _select


def _convert(x: Any, *, dtype: np.dtype) -> Pair:
    part = dtypes.to_real(dtype)
    if isinstance(x, Pair):
        return Pair(convert(x.re, dtype=part), convert(x.im, dtype=part))
    re = convert(x, dtype=part)
    return Pair(re, zeros_like(typeof(re)))


def _iota(*, dtype: np.dtype, **params: Any) -> Pair:
    re = iota(dtype=dtypes.to_real(dtype), **params)
    return Pair(re, zeros_like(typeof(re)))


def is_nan(x: Pair) -> Any:
    return bitwise_or(ne(x.re, x.re), ne(x.im, x.im))


def _ordered(beyond: Op, by_imaginary: Op) -> Callable[[Pair, Pair], Any]:
    """A comparison by the real parts, and by the imaginary ones where these tie."""

    def rule(x: Pair, y: Pair) -> Any:
        plain = bitwise_and(eq(x.im, x.im), eq(y.im, y.im))
        first = bitwise_and(beyond(x.re, y.re), plain)
        tie = bitwise_and(eq(x.re, y.re), by_imaginary(x.im, y.im))
        return bitwise_or(first, tie)

    return rule


def _extreme(beats: Callable[[Pair, Pair], Any]) -> Callable[[Pair, Pair], Pair]:
    def rule(x: Pair, y: Pair) -> Pair:
        return choose(bitwise_or(beats(x, y), is_nan(x)), x, y)

    return rule


def _attained(reduce: Op, last: float, x: Pair, axes: tuple[int, ...]) -> Pair:
    """The extreme real part along axes, and the extreme imaginary part of those that
    have it. `last` is what every imaginary part beats."""
    re = reduce(x.re, axes=axes)
    first = eq(x.re, _spread(re, x, axes))
    im = reduce(select(first, x.im, typeof(x.im).dtype.type(last)), axes=axes)
    return Pair(re, im)


def _spread(found: Any, x: Pair, axes: tuple[int, ...]) -> Any:
    """What was found along axes, beside each of the elements."""
    t = typeof(x.re)
    kept = tuple([i for i in range(t.ndim) if i not in axes])
    return broadcast_in_dim(found, shape=t.shape, dims=kept)


def _extreme_of(reduce: Op, last: float) -> Callable[..., Pair]:
    """The extreme along axes. One that is not a number makes the result one."""

    def rule(x: Pair, *, axes: tuple[int, ...]) -> Pair:
        lost = reduce_or(is_nan(x), axes=axes)
        nan = typeof(x.re).dtype.type(np.nan)
        return each(lambda a: select(lost, nan, a), _attained(reduce, last, x, axes))

    return rule


def _place_of(reduce: Op, last: float) -> Callable[..., Any]:
    """The place of the first extreme along an axis, or of the first that is not a
    number."""

    def rule(x: Pair, *, axis: int) -> Any:
        extreme = _attained(reduce, last, x, (axis,))
        best = each(lambda a: _spread(a, x, (axis,)), extreme)
        found = bitwise_and(eq(x.re, best.re), eq(x.im, best.im))
        lost = is_nan(x)
        any_lost = _spread(reduce_or(lost, axes=(axis,)), x, (axis,))
        chosen = select(any_lost, lost, found)
        return argmax(convert(chosen, dtype=dtypes.int32), axis=axis)

    return rule


_ge, _le = _ordered(gt, ge), _ordered(lt, le)

RULES: dict[Op, Callable[..., Any]] = {
    of_parts.complex_: Pair,
    of_parts.real: lambda x: x.re,
    of_parts.imag: lambda x: x.im,
    of_parts.conj: lambda x: Pair(x.re, neg(x.im)),
    convert: _convert,
    iota: _iota,
    mul: multiply,
    div: divide,
    select: _select,
    eq: lambda x, y: bitwise_and(eq(x.re, y.re), eq(x.im, y.im)),
    ne: lambda x, y: bitwise_or(ne(x.re, y.re), ne(x.im, y.im)),
    lt: _ordered(lt, lt),
    le: _le,
    gt: _ordered(gt, gt),
    ge: _ge,
    maximum: _extreme(_ge),
    minimum: _extreme(_le),
    reduce_max: _extreme_of(reduce_max, -np.inf),
    reduce_min: _extreme_of(reduce_min, np.inf),
    argmax: _place_of(reduce_max, -np.inf),
    argmin: _place_of(reduce_min, np.inf),
}
"""What other ops do."""
