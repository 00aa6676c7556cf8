"""Elementwise functions of two operands (and `clamp`), beyond the four operations."""

from __future__ import annotations

from typing import Any

import numpy as np

from treadle.ops.arithmetic import add, div, mul, neg, sub
from treadle.ops.compare import eq, ge, gt, le, lt, select, where_zero
from treadle.ops.elementwise import elementwise, inexact, real
from treadle.ops.unary import ceil, floor, log


def _remainder(x: Any, y: Any) -> Any:
    if x.dtype.kind not in "iu":
        return np.fmod(x, y)
    return np.where(y == 0, x, np.fmod(x, np.where(y == 0, np.ones_like(y), y)))


def _truncated(x: Any) -> Any:
    return select(lt(x, 0.0), ceil(x), floor(x))


def _larger_share(x: Any, y: Any) -> Any:
    """1 where x > y, 1/2 where they are equal: ties share the derivative."""
    return select(gt(x, y), 1.0, select(eq(x, y), 0.5, _zero_like(x)))


def _zero_like(x: Any) -> Any:
    return x.dtype.type(0)


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


def _one_like(x: Any) -> Any:
    return x.dtype.type(1)


maximum = elementwise(
    "maximum",
    np.maximum,
    [
        lambda g, out, x, y: mul(g, _larger_share(x, y)),
        lambda g, out, x, y: mul(g, _larger_share(y, x)),
    ],
    accepts=real,
)
minimum = elementwise(
    "minimum",
    np.minimum,
    [
        lambda g, out, x, y: mul(g, _larger_share(y, x)),
        lambda g, out, x, y: mul(g, _larger_share(x, y)),
    ],
    accepts=real,
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

nextafter = elementwise("nextafter", np.nextafter, accepts=real)

clamp = elementwise(
    "clamp",
    lambda low, x, high: np.minimum(np.maximum(x, low), high),
    [
        lambda g, out, low, x, high: where_zero(lt(x, low), g),
        lambda g, out, low, x, high: where_zero(le(low, x), where_zero(ge(high, x), g)),
        lambda g, out, low, x, high: where_zero(gt(x, high), g),
    ],
    accepts=real,
)
