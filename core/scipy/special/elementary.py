"""Logistic and power transforms, and the terms of entropies."""

from __future__ import annotations

import math
from functools import partial
from typing import Any

from treadle.api.custom import custom_jvp
from treadle.np.made import floating_function
from treadle.np.operands import ArrayLike, as_inexact, cast
from treadle.ops import unary
from treadle.ops.arithmetic import add, div, mul, neg, sub
from treadle.ops.compare import (
    bitwise_and,
    bitwise_not,
    bitwise_or,
    eq,
    gt,
    is_finite,
    le,
    lt,
    ne,
    select,
)
from treadle.run.array import Array
from treadle.scipy.operands import floats, in_single, single_at_least

expit = floating_function(
    unary.logistic, "expit", "``1 / (1 + exp(-x))``, the logistic sigmoid."
)


def logit(p: ArrayLike, /) -> Array:
    """``log(p / (1 - p))``, the inverse of `expit`."""
    (p,), dtype = single_at_least([as_inexact("logit", p)])
    return cast(_logit(p), dtype)


def _logit_of(p: Any) -> Any:
    return unary.log(div(p, sub(1.0, p)))


_logit = custom_jvp(_logit_of)


@_logit.defjvp
def _logit_jvp(primals: Any, tangents: Any) -> Any:
    """Infinite at 0 and 1, where that of the formula is none."""
    ((p,), (dp,)) = primals, tangents
    return _logit(p), div(dp, mul(p, sub(1.0, p)))


def xlogy(x: ArrayLike, y: ArrayLike, /) -> Array:
    """``x * log(y)``, 0 where x is 0 (unless y is not a number).

    >>> import treadle as td
    >>> td.scipy.special.xlogy(0.0, 0.0)
    Array(0., dtype=float32)
    """
    return _product(unary.log, 0.0, *floats("xlogy", x, y))


def xlog1py(x: ArrayLike, y: ArrayLike, /) -> Array:
    """``x * log1p(y)``, 0 where x is 0 (unless y is not a number)."""
    return _product(unary.log1p, -1.0, *floats("xlog1py", x, y))


def _product(log: Any, least: float, x: Any, y: Any) -> Any:
    """x times a logarithm that is finite above `least`, but for infinity."""
    beyond = bitwise_or(le(y, least), eq(y, math.inf))
    zero = bitwise_and(eq(x, 0.0), beyond)
    # The branch not taken must be finite, for the derivative.
    return select(zero, mul(x, 0.0), mul(x, log(select(zero, 1.0, y))))


def entr(x: ArrayLike, /) -> Array:
    """``-x * log(x)``: 0 at 0, and minus infinity for negative numbers."""
    x = as_inexact("entr", x)
    value = neg(xlogy(x, select(lt(x, 0.0), 1.0, x)))
    return select(lt(x, 0.0), -math.inf, value)


def rel_entr(x: ArrayLike, y: ArrayLike, /) -> Array:
    """``x * log(x / y)``: 0 where x is 0 and y is not negative, infinite elsewhere
    outside of positive numbers."""
    x, y = floats("rel_entr", x, y)
    both = bitwise_and(gt(x, 0.0), gt(y, 0.0))
    nothing = bitwise_and(eq(x, 0.0), bitwise_not(lt(y, 0.0)))
    above, below = select(both, x, 1.0), select(both, y, 1.0)
    value = select(both, mul(x, _log_of_ratio(above, below)), math.inf)
    value = select(nothing, 0.0, value)
    return select(ne(add(x, y), add(x, y)), math.nan, value)


@custom_jvp
def _log_of_ratio(x: Any, y: Any) -> Any:
    """log(x / y) of positive numbers, whose quotient may overflow."""
    ratio = div(x, y)
    # Accurate where x is near y; what overflows or underflows isn't.
    usual = bitwise_and(is_finite(ratio), gt(ratio, 0.0))
    apart = sub(unary.log(x), unary.log(y))
    return select(usual, unary.log(select(usual, ratio, 1.0)), apart)


@_log_of_ratio.defjvp
def _log_of_ratio_jvp(primals: Any, tangents: Any) -> Any:
    (x, y), (dx, dy) = primals, tangents
    return _log_of_ratio(x, y), sub(div(dx, x), div(dy, y))


def kl_div(x: ArrayLike, y: ArrayLike, /) -> Array:
    """``x * log(x / y) - x + y``, elsewhere as `rel_entr`."""
    return in_single(_kl_div_of, "kl_div", x, y)


def _kl_div_of(x: Any, y: Any) -> Any:
    relative = rel_entr(x, y)
    apart = select(eq(relative, math.inf), 0.0, sub(x, y))
    return sub(relative, apart)


def boxcox(x: ArrayLike, lmbda: ArrayLike, /) -> Array:
    """``(x ** lmbda - 1) / lmbda``, ``log(x)`` where lmbda is 0."""
    return in_single(partial(_power_of, unary.log), "boxcox", x, lmbda)


def boxcox1p(x: ArrayLike, lmbda: ArrayLike, /) -> Array:
    """`boxcox` of ``1 + x``, accurate near 0."""
    return in_single(partial(_power_of, unary.log1p), "boxcox1p", x, lmbda)


_SMALL = 1e-30


def _power_of(logarithm: Any, x: Any, lmbda: Any) -> Any:
    log = logarithm(x)
    # The power of so small a number underflows beside 1.
    zero = lt(unary.abs_(lmbda), _SMALL)
    safe = select(zero, 1.0, lmbda)
    # By log² / 2 it goes on, so that there is a derivative by lmbda at 0.
    finite = select(is_finite(log), log, 0.0)
    near = add(log, mul(mul(finite, finite), mul(lmbda, 0.5)))
    return select(zero, near, div(unary.expm1(mul(safe, log)), safe))
