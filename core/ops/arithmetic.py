"""The four operations and the sign: what every other derivative is written with."""

from __future__ import annotations

from typing import Any

import numpy as np

from treadle.ops.elementwise import elementwise, linear_in


def _divide(x: Any, y: Any) -> Any:
    """Division that truncates integers, and gives -1 (all ones) by zero."""
    if x.dtype.kind not in "iu":
        return np.divide(x, y)
    zero = y == 0
    safe = np.where(zero, np.ones_like(y), y)
    quotient = np.floor_divide(x, safe)
    inexact = (quotient < 0) & (quotient * safe != x)
    quotient = quotient + inexact.astype(quotient.dtype)
    return np.where(zero, np.array(-1).astype(quotient.dtype), quotient)


neg = elementwise(
    "neg",
    np.negative,
    [lambda g, out, x: neg(g)],
    transpose=linear_in(lambda ct, x: neg(ct)),
)

add = elementwise(
    "add",
    np.add,
    [lambda g, out, x, y: g, lambda g, out, x, y: g],
    transpose=linear_in(lambda ct, x, y: ct, lambda ct, x, y: ct),
)

sub = elementwise(
    "sub",
    np.subtract,
    [lambda g, out, x, y: g, lambda g, out, x, y: neg(g)],
    transpose=linear_in(lambda ct, x, y: ct, lambda ct, x, y: neg(ct)),
)

mul = elementwise(
    "mul",
    np.multiply,
    [lambda g, out, x, y: mul(g, y), lambda g, out, x, y: mul(x, g)],
    transpose=linear_in(lambda ct, x, y: mul(ct, y), lambda ct, x, y: mul(x, ct)),
)

div = elementwise(
    "div",
    _divide,
    [lambda g, out, x, y: div(g, y), lambda g, out, x, y: neg(mul(g, div(out, y)))],
    transpose=linear_in(lambda ct, x, y: div(ct, y), None),
)
