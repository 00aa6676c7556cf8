"""The gamma functions, error functions and the logistic of real and complex numbers."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import treadle.numpy as tnp
from treadle import dtypes
from treadle.np.made import named
from treadle.np.operands import ArrayLike, as_array, as_inexact
from treadle.run.array import Array
from treadle.scipy.special import elementary, error_functions, gammas
from treadle.scipy.special.error_functions import wofz
from treadle.trace.value import typeof

_STEPS = 10
"""How far arguments are moved up, to where the asymptotic series have all digits."""
_STIRLING = (
    *(43867 / 244188, -3617 / 122400, 1 / 156, -691 / 360360, 1 / 1188),
    *(-1 / 1680, 1 / 1260, -1 / 360, 1 / 12),
)
_OF_DIGAMMA = (
    *(-3617 / 8160, 1 / 12, -691 / 32760, 1 / 132),
    *(-1 / 240, 1 / 252, -1 / 120, 1 / 12),
)
_TERMS = 24
"""Of the series of the error function, for numbers below 1."""

Function = Callable[[ArrayLike], Array]


def _also_complex(real: Function, rule: Callable[[Any], Any]) -> Function:
    """A function of real numbers, with a rule for complex ones."""
    name = real.__name__

    def function(x: ArrayLike, /) -> Array:
        x = as_inexact(name, x)
        if dtypes.is_complex(typeof(x).dtype):
            return as_array(rule(as_array(x)))
        return real(x)

    return named(function, name, real.__doc__ or "")


def _logistic(z: Any) -> Any:
    left = tnp.real(z) < 0
    falling = tnp.exp(tnp.where(left, z, -z))
    return tnp.where(left, falling, 1.0) / (1 + falling)


def _erfcx(z: Any) -> Any:
    return wofz(1j * z)


def _erfc(z: Any) -> Any:
    left = tnp.real(z) < 0
    right = tnp.where(left, -z, z)
    value = tnp.exp(-right * right) * wofz(1j * right)
    return tnp.where(left, 2 - value, value)


def _erf(z: Any) -> Any:
    near = tnp.abs(z) < 1
    small = tnp.where(near, z, 0.0)
    square, total = small * small, 0.0 * small
    for n in range(_TERMS, -1, -1):
        total = total * square + (-1) ** n / (math.factorial(n) * (2 * n + 1))
    series = (2 / math.sqrt(math.pi)) * small * total
    return tnp.where(near, series, 1 - _erfc(tnp.where(near, 1.0, z)))


def _loggamma(z: Any) -> Any:
    """Stirling's series, far enough up; by reflection, DLMF 5.5.3, in the left half of
    the plane, where the logarithm of the sine is the one without jumps."""
    return _by_halves(z, _loggamma_right, _loggamma_left)


def _gamma(z: Any) -> Any:
    return tnp.exp(_loggamma(z))


def _digamma(z: Any) -> Any:
    """DLMF 5.11.2, 5.5.2, and 5.5.4 in the left half of the plane."""
    return _by_halves(z, _digamma_right, _digamma_left)


def _by_halves(
    z: Any, right: Callable[[Any], Any], left: Callable[[Any, Any], Any]
) -> Any:
    """A function that is real on the real axis. `left` is given a number of the upper
    half of the plane, and the function of 1 less that."""
    below = tnp.signbit(tnp.imag(z))
    upper = tnp.where(below, tnp.conj(z), z)
    mirrored = tnp.real(upper) < 0.5
    value = right(tnp.where(mirrored, 1 - upper, upper))
    value = tnp.where(mirrored, left(tnp.where(mirrored, upper, 0.5j), value), value)
    return tnp.where(below, tnp.conj(value), value)


def _loggamma_right(z: Any) -> Any:
    end = z + _STEPS
    inverse = 1 / end
    square, total = inverse * inverse, 0.0 * end
    for c in _STIRLING:
        total = total * square + c
    value = (end - 0.5) * tnp.log(end) - end + 0.5 * math.log(2 * math.pi)
    value = value + total * inverse
    for k in range(_STEPS):
        value = value - tnp.log(z + k)
    return value


def _loggamma_left(z: Any, right: Any) -> Any:
    turned = tnp.exp((2j * math.pi) * z)
    of_sine = tnp.log1p(-turned) - (1j * math.pi) * (z - 0.5)
    return math.log(2 * math.pi) - of_sine - right


def _digamma_right(z: Any) -> Any:
    end = z + _STEPS
    inverse = 1 / end
    square, total = inverse * inverse, 0.0 * end
    for c in _OF_DIGAMMA:
        total = (total + c) * square
    value = tnp.log(end) - 0.5 * inverse - total
    for k in range(_STEPS):
        value = value - 1 / (z + k)
    return value


def _digamma_left(z: Any, right: Any) -> Any:
    turned = tnp.exp((2j * math.pi) * z)
    return right + (1j * math.pi) * (1 + turned) / (1 - turned)


erf = _also_complex(error_functions.erf, _erf)
erfc = _also_complex(error_functions.erfc, _erfc)
erfcx = _also_complex(error_functions.erfcx, _erfcx)
expit = _also_complex(elementary.expit, _logistic)
digamma = _also_complex(gammas.digamma, _digamma)
gamma = _also_complex(gammas.gamma, _gamma)
loggamma = _also_complex(gammas.loggamma, _loggamma)
