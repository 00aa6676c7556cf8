"""Special functions of mathematics that models use, elementwise."""

from __future__ import annotations

from treadle.errors import at, user_source
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


def erf(x: ArrayLike, /) -> Array:
    """The error function."""
    return unary.erf(as_inexact("erf", x))


def erfc(x: ArrayLike, /) -> Array:
    """``1 - erf(x)``, accurate for large x."""
    return unary.erfc(as_inexact("erfc", x))


def erf_inv(x: ArrayLike, /) -> Array:
    """The inverse of the error function."""
    return unary.erf_inv(as_inexact("erf_inv", x))


def lgamma(x: ArrayLike, /) -> Array:
    """The logarithm of the absolute value of the gamma function."""
    return unary.lgamma(as_inexact("lgamma", x))


def digamma(x: ArrayLike, /) -> Array:
    """The derivative of the logarithm of the gamma function."""
    return unary.digamma(as_inexact("digamma", x))


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


def logistic(x: ArrayLike, /) -> Array:
    """``1 / (1 + exp(-x))``, the sigmoid."""
    return unary.logistic(as_inexact("logistic", x))


def rsqrt(x: ArrayLike, /) -> Array:
    """``1 / sqrt(x)``."""
    return unary.rsqrt(as_inexact("rsqrt", x))
