"""The error function, its relatives, and the normal distribution."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

import treadle.numpy as tnp
from treadle import dtypes
from treadle.api.custom import custom_jvp
from treadle.np.made import floating_function
from treadle.np.operands import ArrayLike, as_array, as_inexact, cast
from treadle.ops import error_functions as ops
from treadle.ops import unary
from treadle.run.array import Array
from treadle.scipy.operands import floats, in_single
from treadle.trace.value import typeof

erf = floating_function(unary.erf, "erf", "The error function.")
erfc = floating_function(unary.erfc, "erfc", "``1 - erf(x)``, accurate for large x.")
erfinv = floating_function(
    unary.erf_inv, "erfinv", "The inverse of the error function."
)
erfcx = floating_function(
    ops.erfcx, "erfcx", "``exp(x²) erfc(x)``, which does not underflow for large x."
)
dawsn = floating_function(
    ops.dawsn, "dawsn", "Dawson's integral, ``exp(-x²) ∫₀ˣ exp(t²) dt``."
)
ndtri = floating_function(
    ops.ndtri,
    "ndtri",
    "The inverse of `ndtr`: below which x a normal number is with probability p.",
)
log_ndtr = floating_function(
    ops.log_ndtr, "log_ndtr", "The logarithm of `ndtr`, accurate in both tails."
)


def ndtr(x: ArrayLike, /) -> Array:
    """The distribution function of the normal distribution: with which probability a
    normal number is below x."""
    return in_single(_ndtr_of, "ndtr", x)


def _ndtr_of(x: Any) -> Any:
    return unary.erfc(x * -math.sqrt(0.5)) * 0.5


def fresnel(x: ArrayLike, /) -> tuple[Array, Array]:
    """Fresnel's integrals, ``∫₀ˣ sin(π t² / 2) dt`` and ``∫₀ˣ cos(π t² / 2) dt``.

    >>> import treadle as td
    >>> td.scipy.special.fresnel(1.0)
    (Array(0.4383, dtype=float32), Array(0.7799, dtype=float32))
    """
    (x,) = floats("fresnel", x)
    return ops.fresnel_sin(x), ops.fresnel_cos(x)


# Owen's T -----------------------------------------------------------------------------

_NODES, _WEIGHTS = (tuple(map(float, x)) for x in np.polynomial.legendre.leggauss(24))
_NEGLIGIBLE = 9.0
"""``exp(-x² / 2)`` is nothing beside 1 from here on."""


def owens_t(h: ArrayLike, a: ArrayLike, /) -> Array:
    """Owen's function, ``1 / 2π ∫₀ᵃ exp(-h² (1 + t²) / 2) / (1 + t²) dt``: half the
    probability that of two normal numbers one is above h and the other between 0 and a
    times the first.

    >>> import treadle as td
    >>> td.scipy.special.owens_t(1.0, 0.5)
    Array(0.0431, dtype=float32)
    """
    return in_single(_owens_t, "owens_t", h, a)


def _owens_t_of(h: Any, a: Any) -> Any:
    h, slope = tnp.abs(h), tnp.abs(a)
    # T(h, a) for a above 1 is of T(a h, 1 / a).
    steep = slope > 1
    below, above = ndtr(-h), ndtr(-slope * h)
    # Nothing is left of the product where h is 0 and the slope infinite.
    above = tnp.where(h == 0, 0.5, above)
    mirrored = 0.5 * (below + above) - below * above
    inner_h = tnp.where(steep, tnp.where(h == 0, 0.0, slope * h), h)
    inner_a = tnp.where(steep, 1 / tnp.where(steep, slope, 1.0), slope)
    inner = _small_slope(inner_h, inner_a)
    value = tnp.where(steep, mirrored - inner, inner)
    return tnp.where(a < 0, -value, value)


def _small_slope(h: Any, a: Any) -> Any:
    """By Gauss and Legendre, up to where the integrand has vanished."""
    end = tnp.where(a * h > _NEGLIGIBLE, _NEGLIGIBLE / tnp.where(h > 0, h, 1.0), a)
    t = tnp.expand_dims(end, -1) * as_array(np.array(_NODES, end.dtype) * 0.5 + 0.5)
    square = 1 + t * t
    h = tnp.expand_dims(h, -1)
    values = tnp.exp(-0.5 * h * h * square) / square
    values = tnp.where(h * h == math.inf, 0.0, values)
    total = tnp.sum(values * as_array(np.array(_WEIGHTS, end.dtype)), axis=-1)
    return total * end * (0.25 / math.pi)


_owens_t = custom_jvp(_owens_t_of)


@_owens_t.defjvp
def _owens_t_jvp(primals: Any, tangents: Any) -> Any:
    (h, a), (dh, da) = primals, tangents
    by_h = -tnp.exp(-0.5 * h * h) * unary.erf(a * h * math.sqrt(0.5))
    square = 1 + a * a
    by_a = tnp.exp(-0.5 * h * h * square) / (2 * math.pi * square)
    return _owens_t(h, a), by_h / (2 * math.sqrt(2 * math.pi)) * dh + by_a * da


# Faddeeva's function ------------------------------------------------------------------

_TERMS = 48
_WIDTH = math.sqrt(_TERMS / math.sqrt(2))


def _coefficients() -> tuple[float, ...]:
    """Of Weideman's series (SIAM Journal on Numerical Analysis 31, 1994)."""
    count = 2 * _TERMS
    angles = np.arange(-count + 1, count) * math.pi / count
    t = _WIDTH * np.tan(angles / 2)
    values = np.concatenate([[0.0], np.exp(-t * t) * (_WIDTH**2 + t * t)])
    spectrum = np.fft.fft(np.fft.fftshift(values)).real / (2 * count)
    return tuple(map(float, spectrum[1 : _TERMS + 1][::-1]))


_SERIES = _coefficients()
_FAR = 8.0
_FRACTIONS = 16


def wofz(z: ArrayLike, /) -> Array:
    """Faddeeva's function of complex numbers, ``exp(-z²) erfc(-i z)``."""
    z = as_inexact("wofz", z)
    dtype = typeof(z).dtype
    if dtype.itemsize == 2:
        dtype = dtypes.float32
    return _wofz(as_array(cast(z, dtypes.to_complex(dtype))))


def _wofz_of(z: Any) -> Any:
    lower = tnp.imag(z) < 0
    upper = tnp.where(lower, -z, z)
    far = tnp.abs(tnp.real(upper)) + tnp.imag(upper) > _FAR
    near = _weideman(tnp.where(far, 1j, upper))
    value = tnp.where(far, _continued(tnp.where(far, upper, _FAR * 1j)), near)
    # What is below the real axis is what is above, and an exponential.
    square = tnp.where(lower, z * z, 0.0)
    return tnp.where(lower, 2 * tnp.exp(-square) - value, value)


def _weideman(z: Any) -> Any:
    quotient = (_WIDTH + 1j * z) / (_WIDTH - 1j * z)
    total: Any = _SERIES[0]
    for c in _SERIES[1:]:
        total = total * quotient + c
    distance = _WIDTH - 1j * z
    return 2 * total / (distance * distance) + (1 / math.sqrt(math.pi)) / distance


def _continued(z: Any) -> Any:
    """Laplace's continued fraction."""
    inner = z
    for k in range(_FRACTIONS, 0, -1):
        inner = z - (k / 2) / inner
    return (1j / math.sqrt(math.pi)) / inner


_wofz = custom_jvp(_wofz_of)


@_wofz.defjvp
def _wofz_jvp(primals: Any, tangents: Any) -> Any:
    (z,), (dz,) = primals, tangents
    value = _wofz(z)
    return value, (2j / math.sqrt(math.pi) - 2 * z * value) * dz
