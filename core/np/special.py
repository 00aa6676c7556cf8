"""Special functions of mathematics that models use, elementwise."""

from __future__ import annotations

from treadle.errors import at, user_source
from treadle.np.elementwise import floating_function
from treadle.np.operands import ArrayLike, as_inexact
from treadle.ops import unary
from treadle.run.array import Array

__all__ = [
    "digamma",
    "erf",
    "erf_inv",
    "erfc",
    "lgamma",
    "logistic",
    "polygamma",
    "rsqrt",
]

erf = floating_function(unary.erf, "erf", "The error function.")
erfc = floating_function(unary.erfc, "erfc", "``1 - erf(x)``, accurate for large x.")
erf_inv = floating_function(
    unary.erf_inv, "erf_inv", "The inverse of the error function."
)
lgamma = floating_function(
    unary.lgamma, "lgamma", "The logarithm of the absolute value of the gamma function."
)
digamma = floating_function(
    unary.digamma, "digamma", "The derivative of the logarithm of the gamma function."
)


def polygamma(n: int, x: ArrayLike, /) -> Array:
    """The n-th derivative of `digamma`, elementwise; n is a Python int.

    Raises:
      TypeError, ValueError: if n is not an int, or not from 0 to 100.

    >>> import treadle.numpy as tnp
    >>> tnp.special.polygamma(1, 1.0)
    Array(1.6449, dtype=float32)
    """
    if isinstance(n, bool) or not isinstance(n, int):
        raise TypeError(
            f"polygamma: the order n is a Python int, got {n!r:.60}{at(user_source())}"
        )
    if not 0 <= n <= 100:
        raise ValueError(
            f"polygamma: the order n is between 0 and 100, got {n}{at(user_source())}"
        )
    x = as_inexact("polygamma", x)
    return unary.polygamma(x, n=n) if n else unary.digamma(x)


logistic = floating_function(
    unary.logistic, "logistic", "``1 / (1 + exp(-x))``, the sigmoid."
)
rsqrt = floating_function(unary.rsqrt, "rsqrt", "``1 / sqrt(x)``.")
