"""Reference (NumPy) meanings of functions that NumPy lacks, or has with flaws.

The special functions run in float64 whatever the operand's dtype. `math` has erf, erfc
and lgamma; digamma is its asymptotic series after recurrence [1]; the inverse of erf is
Giles' start [2] polished by Halley's steps; polygamma is the Euler-Maclaurin
series of the Hurwitz zeta function [3].

[1] Abramowitz and Stegun, Handbook of Mathematical Functions, 6.3.5 and 6.3.18 (1964).
[2] M. Giles, Approximating the erfinv function, GPU Computing Gems (2011).
[3] NIST Digital Library of Mathematical Functions, 25.11.5 and 5.15.6, dlmf.nist.gov.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np


def _each(function: Callable[[float], float]) -> Callable[[Any], Any]:
    vectorised = np.vectorize(function, otypes=[np.float64])

    def run(x: Any) -> Any:
        return vectorised(np.asarray(x, np.float64)).astype(x.dtype)

    return run


def _lgamma(x: float) -> float:
    if math.isnan(x):
        return x
    if math.isinf(x) or (x <= 0 and x == math.floor(x)):
        return math.inf
    try:
        return math.lgamma(x)
    except OverflowError:
        return math.inf


_DIGAMMA = (*(-1 / 12, 691 / 32760, -1 / 132, 1 / 240, -1 / 252, 1 / 120, -1 / 12),)


def cotangent(x: Any) -> Any:
    """cot(π x), exactly 0 halfway between its poles and accurate beside both."""
    off = x - np.round(x)
    size = np.abs(off)
    beside = np.tan(np.pi * np.where(size > 0.25, 0.5 - size, size))
    with np.errstate(divide="ignore"):
        value = np.where(size > 0.25, beside, 1 / beside)
    return np.copysign(value, off)


def _digamma(x: float) -> float:
    if math.isnan(x) or x == -math.inf:
        return math.nan
    if x == math.inf:
        return x
    if x <= 0:
        if x == math.floor(x):
            return math.nan
        return _digamma(1 - x) - math.pi * float(cotangent(np.float64(x)))
    total = 0.0
    while x < 10:
        total -= 1 / x
        x += 1
    y = 1 / (x * x)
    tail = 0.0
    for c in _DIGAMMA:
        tail = tail * y + c
    return total + math.log(x) - 0.5 / x + tail * y


_CENTRAL = (
    *(2.81022636e-08, 3.43273939e-07, -3.5233877e-06, -4.39150654e-06, 0.00021858087),
    *(-0.00125372503, -0.00417768164, 0.246640727, 1.50140941),
)
_TAIL = (
    *(-0.000200214257, 0.000100950558, 0.00134934322, -0.00367342844, 0.00573950773),
    *(-0.0076224613, 0.00943887047, 1.00167406, 2.83297682),
)


_GILES = 16.0
"""How far the coefficients are meant for: as far as float32 goes."""


def _erf_inv(x: float) -> float:
    if not abs(x) < 1:
        return math.copysign(math.inf, x) if abs(x) == 1 else math.nan
    w = -math.log((1 - x) * (1 + x))
    table, t = (_CENTRAL, w - 2.5) if w < 5 else (_TAIL, math.sqrt(w) - 3)
    p = 0.0
    for c in table:
        p = p * t + c
    y = p * x
    if w > _GILES:
        # erfc(y) = exp(-y²) / (y √π), nearly.
        tail = -math.log((1 - abs(x)) * math.sqrt(math.pi))
        y = math.copysign(math.sqrt(tail - 0.5 * math.log(tail)), x)
    for _ in range(6):
        # In the tails the complement keeps the digits that erf has lost, near 0 erf
        # those that the complement has.
        if abs(x) < 0.5:
            error = abs(x) - math.erf(abs(y))
        else:
            error = math.erfc(abs(y)) - (1 - abs(x))
        slope = 2 / math.sqrt(math.pi) * math.exp(-y * y)
        if slope == 0:
            break
        step = error / slope
        # Halley's method: the second derivative is -2 y times the first.
        y += math.copysign(1, y) * step / (1 + abs(y) * step)
    return y


_BERNOULLI = (
    *(1 / 6, -1 / 30, 1 / 42, -1 / 30, 5 / 66, -691 / 2730, 7 / 6, -3617 / 510),
    *(43867 / 798, -174611 / 330),
)


def polygamma_series(n: int) -> list[float]:
    """The coefficients of 1 / x^(2 j) in the series of zeta(n + 1, x) x^n, from the
    highest j to 1. It has all digits for x >= n + 10."""
    return [
        b * math.prod(range(n + 1, n + 2 * j)) / math.factorial(2 * j)
        for j, b in enumerate(_BERNOULLI, 1)
    ][::-1]


def cotangent_derivative(n: int) -> list[float]:
    """The n-th derivative of the cotangent, as a polynomial of it: from the highest
    power to the constant. Each derivative is -(1 + c^2) times that by c."""
    powers = [0, 1]
    for _ in range(n):
        slope = [k * p for k, p in enumerate(powers)][1:]
        powers = [-(a + b) for a, b in zip([*slope, 0, 0], [0, 0, *slope], strict=True)]
    return [float(p) for p in powers[::-1]]


def polygamma_run(x: Any, *, n: int) -> Any:
    wide = np.asarray(x, np.float64)
    mirrored = wide <= 0
    y = np.where(mirrored, 1 - wide, wide)
    total = np.zeros_like(y)
    for _ in range(n + 10):
        low = y < n + 10
        total = total + np.where(low, y ** -(n + 1.0), 0.0)
        y = np.where(low, y + 1, y)
    r = 1 / y
    series = np.polyval([*polygamma_series(n), 0.0], r * r)
    factor = math.factorial(n) * (1.0 if n % 2 else -1.0)
    value = factor * (total + r**n * (1 / n + r / 2 + series))
    slope = math.pi ** (n + 1) * np.polyval(cotangent_derivative(n), cotangent(wide))
    mirror = (-1) ** n * value - slope
    pole = mirrored & (wide == np.floor(wide)) & np.isfinite(wide)
    result = np.where(pole, math.copysign(math.inf, factor), mirror)
    return np.where(mirrored, result, value).astype(x.dtype)


erf_run = _each(math.erf)
erfc_run = _each(math.erfc)
erf_inv_run = _each(_erf_inv)
lgamma_run = _each(_lgamma)
digamma_run = _each(_digamma)


def expm1_run(x: Any) -> Any:
    """``exp(x) - 1``; for complex numbers accurate near 0 in both parts, and with the
    array API's values at infinities, which NumPy's lacks."""
    if x.dtype.kind != "c":
        return np.expm1(x)
    a, b = x.real, x.imag
    near = np.empty_like(x)
    # e^a cos(b) - 1, without the cancellation.
    near.real = np.expm1(a) * np.cos(b) - 2 * np.sin(b / 2) ** 2 + 0.0
    near.imag = np.exp(a) * np.sin(b)
    return np.where((np.abs(a) < 1) & np.isfinite(b), near, np.exp(x) - x.dtype.type(1))


def tanh_run(x: Any) -> Any:
    """tanh; for complex numbers with the array API's zeros at infinities, where C
    libraries differ."""
    out = np.array(np.tanh(x))
    if x.dtype.kind == "c":
        a, b = x.real, x.imag
        np.copyto(out.real, a, where=(a == 0) & ~np.isfinite(b))
        np.copyto(out.imag, np.copysign(0, b), where=np.isinf(a) & np.isfinite(b))
    return out


def sign_run(x: Any) -> Any:
    """-1, 0, 1 or not-a-number; of any real zero 0.0."""
    return np.sign(x) if x.dtype.kind == "c" else np.sign(x) + x.dtype.type(0)
