"""Windows of signal processing, as float32 vectors."""

from __future__ import annotations

import math
from typing import Any

from treadle import dtypes
from treadle.np.binary import maximum
from treadle.np.creation import arange, ones
from treadle.np.elementwise import abs, cos, no_complex, sqrt
from treadle.np.operands import ArrayLike, as_inexact, as_shape, cast, operand
from treadle.ops import bessel
from treadle.run.array import Array
from treadle.trace.value import typeof


def _places(name: str, n: int) -> tuple[Any, int]:
    """The places of a window's elements from 0 on, and its length less 1."""
    (n,) = as_shape(name, n)
    return arange(n, dtype=dtypes.float32), n - 1


def bartlett(n: int) -> Array:
    """A triangle of n numbers from 0 to 1 to 0."""
    place, last = _places("bartlett", n)
    return 1 - abs(2 * place / last - 1) if last > 0 else ones(last + 1)


def _cosines(name: str, n: int, *weights: float) -> Any:
    place, last = _places(name, n)
    if last <= 0:
        return ones(last + 1)
    out: Any = weights[0]
    for k, weight in enumerate(weights[1:], 1):
        out = out + weight * cos(place * (2 * math.pi * k / last))
    return out


def hanning(n: int) -> Array:
    """A raised cosine of n numbers from 0 to 1 to 0."""
    return _cosines("hanning", n, 0.5, -0.5)


def hamming(n: int) -> Array:
    """A raised cosine of n numbers from 0.08 to 1 to 0.08."""
    return _cosines("hamming", n, 0.54, -0.46)


def blackman(n: int) -> Array:
    """Two cosines: n numbers from 0 to 1 to 0, with little beside its main lobe."""
    return _cosines("blackman", n, 0.42, -0.5, 0.08)


def kaiser(n: int, beta: ArrayLike) -> Array:
    """Kaiser's window of n numbers; the larger beta, the narrower."""
    place, last = _places("kaiser", n)
    if last <= 0:
        return ones(last + 1)
    beta = cast(operand("kaiser", beta), dtypes.float32)
    ratio = 2 * place / last - 1
    inside = maximum(1 - ratio * ratio, 0)
    return i0(beta * sqrt(inside)) / i0(beta)


def i0(x: ArrayLike, /) -> Array:
    """The modified Bessel function of the first kind and order 0.

    >>> import treadle.numpy as tnp
    >>> tnp.i0(1.0)
    Array(1.2661, dtype=float32)

    Raises:
      TypeError: for complex numbers.
    """
    x = as_inexact("i0", x)
    no_complex("i0", typeof(x))
    return bessel.i0(x)
