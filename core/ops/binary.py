"""Elementwise functions of two operands (and `clamp`), beyond the four operations."""

from __future__ import annotations

from typing import Any

import numpy as np

from treadle import dtypes
from treadle.ops.arithmetic import add, div, mul, neg, sub
from treadle.ops.compare import eq, gt, lt, select
from treadle.ops.elementwise import elementwise, inexact, number, real
from treadle.ops.unary import ceil, floor, log
from treadle.trace.lowering import Elementwise
from treadle.trace.value import typeof


def _remainder(x: Any, y: Any) -> Any:
    if x.dtype.kind not in "iu":
        return np.fmod(x, y)
    return np.where(y == 0, x, np.fmod(x, np.where(y == 0, np.ones_like(y), y)))


def _extreme(beats: Any, of_others: Any) -> Any:
    """The meaning of maximum or minimum. Of equal ones it is the first (which of two
    real zeros NumPy takes depends on the processor); not-a-number beats all."""

    def run(x: Any, y: Any) -> Any:
        if not dtypes.is_float(x.dtype):
            return of_others(x, y)
        return np.where(beats(y, x) | (y != y), y, x)

    return run


def _truncated(x: Any) -> Any:
    return select(lt(x, 0.0), ceil(x), floor(x))


def _larger_share(x: Any, y: Any) -> Any:
    """1 where x > y, 1/2 where they are equal: ties share the derivative."""
    one, half, zero = map(typeof(x).dtype.type, (1, 0.5, 0))
    return select(gt(x, y), one, select(eq(x, y), half, zero))


rem = elementwise(
    "rem",
    _remainder,
    [lambda g, out, x, y: g, lambda g, out, x, y: neg(mul(g, _truncated(div(x, y))))],
    accepts=real,
)

pow_ = elementwise(
    "pow",
    np.power,
    [
        lambda g, out, x, y: mul(g, mul(y, pow_(x, sub(y, 1.0)))),
        lambda g, out, x, y: mul(g, mul(log(select(eq(x, 0.0), _one_like(x), x)), out)),
    ],
    accepts=inexact,
)


def _power_of_integers(x: Any, y: Any) -> Any:
    result = np.ones(np.broadcast_shapes(x.shape, y.shape), x.dtype)
    if dtypes.is_integer(y.dtype) and not dtypes.is_unsigned(y.dtype):
        y = y & np.iinfo(y.dtype).max
    while np.any(y):
        result = np.where(y & 1, result * x, result)
        x, y = x * x, y >> 1
    return result


power_of_integers = elementwise(
    "power_of_integers", _power_of_integers, accepts=dtypes.is_integer
)
"""By squaring, over the bits of the exponent but for its sign. It wraps around."""


def _one_like(x: Any) -> Any:
    return typeof(x).dtype.type(1)


maximum = elementwise(
    "maximum",
    _extreme(np.greater, np.maximum),
    [
        lambda g, out, x, y: mul(g, _larger_share(x, y)),
        lambda g, out, x, y: mul(g, _larger_share(y, x)),
    ],
    accepts=number,
)
minimum = elementwise(
    "minimum",
    _extreme(np.less, np.minimum),
    [
        lambda g, out, x, y: mul(g, _larger_share(y, x)),
        lambda g, out, x, y: mul(g, _larger_share(x, y)),
    ],
    accepts=number,
)

atan2 = elementwise(
    "atan2",
    np.arctan2,
    [
        lambda g, out, y, x: mul(g, div(x, add(mul(x, x), mul(y, y)))),
        lambda g, out, y, x: neg(mul(g, div(y, add(mul(x, x), mul(y, y))))),
    ],
    accepts=real,
)


def _nextafter(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    found = np.nextafter(x, y)
    # Of two zeros the second, as in C: NumPy gives the first for float16.
    return np.where(x == y, y, found) if found.dtype == np.float16 else found


# It is x, but for what no limit sees; y gives the direction only.
nextafter = elementwise(
    "nextafter", _nextafter, [lambda g, out, x, y: g, None], accepts=real
)

clamp = elementwise(
    "clamp",
    lambda low, x, high: minimum.run(maximum.run(x, low), high),
    [
        lambda g, out, low, x, high: _kept(mul(g, _larger_share(low, x)), low, x, high),
        lambda g, out, low, x, high: _kept(mul(g, _larger_share(x, low)), low, x, high),
        lambda g, out, low, x, high: mul(g, _larger_share(maximum(x, low), high)),
    ],
    accepts=number,
    lowering=Elementwise(
        lambda w, low, x, high: w("minimum", w("maximum", x, low), high)
    ),
)
"""``minimum(maximum(x, low), high)``, with the derivatives of these."""


def _kept(g: Any, low: Any, x: Any, high: Any) -> Any:
    return mul(g, _larger_share(high, maximum(x, low)))
