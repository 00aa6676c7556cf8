"""The four operations and the sign: what every other derivative is written with."""

from __future__ import annotations

from typing import Any

import numpy as np

from treadle.ops.elementwise import elementwise, floating, linear_in


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


def _signed(minus: str | None, product: Any, term: Any) -> tuple[Any, Any]:
    negated = neg(product) if minus == "product" else product
    return negated, neg(term) if minus == "term" else term


def _multiply_add(x: Any, y: Any, z: Any, *, minus: str | None) -> Any:
    product = x * y
    if minus == "product":
        return z - product
    return product - z if minus else product + z


multiply_add = elementwise(
    "multiply_add",
    _multiply_add,
    [
        lambda g, out, x, y, z, *, minus: _signed(minus, mul(g, y), g)[0],
        lambda g, out, x, y, z, *, minus: _signed(minus, mul(x, g), g)[0],
        lambda g, out, x, y, z, *, minus: _signed(minus, g, g)[1],
    ],
    accepts=floating,
)
"""x y + z, or what it is with the part that `minus` names ("product", "term")
negated. The compiler makes it of a product with one reader, which is not rounded."""
