"""Hypergeometric functions of real numbers."""

from __future__ import annotations

import math
from typing import Any

import treadle.numpy as tnp
from treadle.api.custom import custom_jvp
from treadle.api.linear import jvp
from treadle.np.operands import ArrayLike, cast
from treadle.run.array import Array
from treadle.scipy.operands import floats, single_at_least
from treadle.scipy.special.gammas import gammaln, gammasgn
from treadle.scipy.special.loops import series


def hyp1f1(a: ArrayLike, b: ArrayLike, x: ArrayLike, /) -> Array:
    """Kummer's confluent function ``₁F₁(a; b; x)``, by its series. It is differentiable
    by all three.

    >>> import treadle as td
    >>> td.scipy.special.hyp1f1(1.0, 1.0, 1.0)
    Array(2.7183, dtype=float32)
    """
    args, dtype = single_at_least(floats("hyp1f1", a, b, x))
    return cast(_hyp1f1(*args), dtype)


def _hyp1f1_of(a: Any, b: Any, x: Any) -> Any:
    # Of negative x the terms would cancel each other.
    negative = x < 0
    first, y = tnp.where(negative, b - a, a), tnp.abs(x)
    start = tnp.ones_like(y + first + b)
    total = series(
        start,
        lambda t, k: t * (first + k - 1) / (b + k - 1) * (y / k),
        settled=tnp.maximum(-first, -b) + 1,
    )
    return tnp.where(negative, tnp.exp(tnp.where(negative, x, 0.0)) * total, total)


_hyp1f1 = custom_jvp(_hyp1f1_of)


@_hyp1f1.defjvp
def _hyp1f1_jvp(primals: Any, tangents: Any) -> Any:
    (a, b, x), (da, db, dx) = primals, tangents
    one = tnp.ones_like
    by_a = jvp(lambda a: _hyp1f1_of(a, b, x), (a,), (one(a),))[1]
    by_b = jvp(lambda b: _hyp1f1_of(a, b, x), (b,), (one(b),))[1]
    by_x = a / b * _hyp1f1(a + 1, b + 1, x)
    return _hyp1f1(a, b, x), by_a * da + by_b * db + by_x * dx


_NEAR_ONE = 0.9
_WHOLE = 1e-3
"""How close to a whole number c - a - b may be for the formula with 1 - x."""


def hyp2f1(a: ArrayLike, b: ArrayLike, c: ArrayLike, x: ArrayLike, /) -> Array:
    """Gauss' function ``₂F₁(a, b; c; x)`` for x up to 1; not a number beyond. It is
    differentiable by all four.

    The closer to 1, the longer is its series where c - a - b is close to a whole
    number.

    >>> import treadle as td
    >>> td.scipy.special.hyp2f1(1.0, 1.0, 2.0, 0.5)
    Array(1.3863, dtype=float32)
    """
    args, dtype = single_at_least(floats("hyp2f1", a, b, c, x))
    return cast(_hyp2f1(*args), dtype)


def _hyp2f1_of(a: Any, b: Any, c: Any, x: Any) -> Any:
    # Pfaff's formula: of negative x the terms would cancel each other, or grow.
    negative = x < 0
    inside = tnp.where(x < 1, x, 0.5)
    y = tnp.where(negative, inside / (inside - 1), inside)
    second = tnp.where(negative, c - b, b)
    value = _up_to_one(a, second, c, y)
    base = tnp.where(negative, 1 - inside, 1.0)
    value = tnp.where(negative, tnp.exp(-a * tnp.log(base)) * value, value)
    value = tnp.where(x == 1, _at_one(a, b, c), value)
    return tnp.where((x > 1) | (x != x), math.nan, value)


def _up_to_one(a: Any, b: Any, c: Any, x: Any) -> Any:
    rest = c - a - b
    apart = tnp.abs(rest - tnp.round(rest)) > _WHOLE
    mirrored = (x > _NEAR_ONE) & apart
    plain = _gauss(a, b, c, tnp.where(mirrored, 0.0, x))
    s = tnp.where(apart, rest, 0.5)
    y = tnp.where(mirrored, 1 - x, 0.05)
    one = _gammas((c, s), (c - a, c - b)) * _gauss(a, b, 1 - s, y)
    other = _gammas((c, -s), (a, b)) * _gauss(c - a, c - b, 1 + s, y)
    return tnp.where(mirrored, one + tnp.exp(s * tnp.log(y)) * other, plain)


def _gauss(a: Any, b: Any, c: Any, x: Any) -> Any:
    start = tnp.ones_like(a + b + c + x)
    return series(
        start,
        lambda t, k: t * ((a + k - 1) * (b + k - 1) / ((c + k - 1) * k)) * x,
        settled=tnp.maximum(tnp.maximum(-a, -b), -c) + 1,
    )


def _gammas(above: tuple[Any, ...], below: tuple[Any, ...]) -> Any:
    """A quotient of gamma functions, 0 where one below has a pole."""
    count = len(above)
    xs = tnp.stack(tnp.broadcast_arrays(*above, *below))
    pole = (xs <= 0) & (tnp.floor(xs) == xs)
    safe = tnp.where(pole, 1.0, xs)
    logs, signs = gammaln(safe), tnp.prod(gammasgn(safe), axis=0)
    log = tnp.sum(logs[:count], axis=0) - tnp.sum(logs[count:], axis=0)
    return tnp.where(tnp.any(pole[count:], axis=0), 0.0, signs * tnp.exp(log))


def _at_one(a: Any, b: Any, c: Any) -> Any:
    rest = c - a - b
    safe = tnp.where(rest > 0, rest, 1.0)
    value = _gammas((c, safe), (c - a, c - b))
    return tnp.where(rest > 0, value, math.inf)


_hyp2f1 = custom_jvp(_hyp2f1_of)


@_hyp2f1.defjvp
def _hyp2f1_jvp(primals: Any, tangents: Any) -> Any:
    (a, b, c, x), (da, db, dc, dx) = primals, tangents
    one = tnp.ones_like
    by_a = jvp(lambda a: _hyp2f1_of(a, b, c, x), (a,), (one(a),))[1]
    by_b = jvp(lambda b: _hyp2f1_of(a, b, c, x), (b,), (one(b),))[1]
    by_c = jvp(lambda c: _hyp2f1_of(a, b, c, x), (c,), (one(c),))[1]
    by_x = a * b / c * _hyp2f1(a + 1, b + 1, c + 1, x)
    tangent = by_a * da + by_b * db + by_c * dc + by_x * dx
    return _hyp2f1(a, b, c, x), tangent
