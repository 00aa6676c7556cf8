"""Windows of signal processing, as float32 vectors."""

from __future__ import annotations

import math
from typing import Any

from treadle import dtypes
from treadle.np.binary import maximum, select_where
from treadle.np.creation import arange, ones
from treadle.np.elementwise import abs, cos, exp, no_complex, sqrt
from treadle.np.operands import ArrayLike, as_inexact, as_shape, cast, operand
from treadle.ops.arithmetic import div
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


# Chebyshev series of exp(-x) I0(x), for x <= 8 and of its product with sqrt(x) beyond:
# NumPy's (which are those of Cephes).
_NEAR = (
    -4.4153416464793395e-18,
    3.3307945188222384e-17,
    -2.431279846547955e-16,
    1.715391285555133e-15,
    -1.1685332877993451e-14,
    7.676185498604936e-14,
    -4.856446783111929e-13,
    2.95505266312964e-12,
    -1.726826291441556e-11,
    9.675809035373237e-11,
    -5.189795601635263e-10,
    2.6598237246823866e-09,
    -1.300025009986248e-08,
    6.046995022541919e-08,
    -2.670793853940612e-07,
    1.1173875391201037e-06,
    -4.4167383584587505e-06,
    1.6448448070728896e-05,
    -5.754195010082104e-05,
    0.00018850288509584165,
    -0.0005763755745385824,
    0.0016394756169413357,
    -0.004324309995050576,
    0.010546460394594998,
    -0.02373741480589947,
    0.04930528423967071,
    -0.09490109704804764,
    0.17162090152220877,
    -0.3046826723431984,
    0.6767952744094761,
)
_FAR = (
    -7.233180487874754e-18,
    -4.830504485944182e-18,
    4.46562142029676e-17,
    3.461222867697461e-17,
    -2.8276239805165836e-16,
    -3.425485619677219e-16,
    1.7725601330565263e-15,
    3.8116806693526224e-15,
    -9.554846698828307e-15,
    -4.150569347287222e-14,
    1.54008621752141e-14,
    3.8527783827421426e-13,
    7.180124451383666e-13,
    -1.7941785315068062e-12,
    -1.3215811840447713e-11,
    -3.1499165279632416e-11,
    1.1889147107846439e-11,
    4.94060238822497e-10,
    3.3962320257083865e-09,
    2.266668990498178e-08,
    2.0489185894690638e-07,
    2.8913705208347567e-06,
    6.889758346916825e-05,
    0.0033691164782556943,
    0.8044904110141088,
)


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
    size = abs(x)
    near = size <= 8
    # The series not taken must not leave its range: its derivative would be NaN.
    inner = _series(select_where(near, size, 0.0) / 2 - 2, _NEAR)
    far = select_where(near, 8.0, size)
    outer = div(_series(32 / far - 2, _FAR), sqrt(far))
    return exp(size) * select_where(near, inner, outer)


def _series(x: Any, coefficients: tuple[float, ...]) -> Any:
    """By Clenshaw's recurrence, from the highest term on."""
    b0: Any = coefficients[0] + 0 * x
    b1: Any = 0 * x
    b2: Any = b1
    for c in coefficients[1:]:
        b0, b1, b2 = x * b0 - b1 + c, b0, b1
    return 0.5 * (b0 - b2)
