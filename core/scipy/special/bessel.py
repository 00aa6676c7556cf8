"""Bessel functions, and spherical harmonics."""

from __future__ import annotations

import math
from operator import index
from typing import Any

import numpy as np

import treadle.numpy as tnp
from treadle import dtypes
from treadle.api.while_loops import fori_loop
from treadle.errors import at, user_source
from treadle.np.made import floating_function
from treadle.np.operands import ArrayLike, as_array, matched
from treadle.ops import bessel as ops
from treadle.run.array import Array
from treadle.scipy.operands import floats, whole
from treadle.scipy.special.gammas import gammaln
from treadle.trace.value import typeof

i0 = floating_function(
    ops.i0, "i0", "The modified Bessel function of the first kind of order 0."
)
i0e = floating_function(ops.i0e, "i0e", "``exp(-|x|) i0(x)``.")
i1 = floating_function(
    ops.i1, "i1", "The modified Bessel function of the first kind of order 1."
)
i1e = floating_function(ops.i1e, "i1e", "``exp(-|x|) i1(x)``.")


def bessel_jn(z: ArrayLike, *, v: int, n_iter: int = 50) -> Array:
    """The Bessel functions of the first kind of orders 0 to v, by Miller's backward
    recurrence.

    Args:
      v: the highest order, an int.
      n_iter: at which order the recurrence begins: above v and, by ten or more, above
        |z|.

    Returns: an array with one more axis, the first, for the orders.

    >>> import treadle as td
    >>> td.scipy.special.bessel_jn(1.0, v=1)
    Array([0.7652, 0.4401], dtype=float32)
    """
    v = whole("bessel_jn", "the order v", v, 0)
    n_iter = whole("bessel_jn", "n_iter", n_iter, v + 1)
    (z,) = floats("bessel_jn", z)
    return _orders(z, v, n_iter)


def _orders(z: Any, v: int, n_iter: int) -> Any:
    zero = z == 0
    safe = tnp.where(zero, 1.0, z)
    two_by_z = 2 / safe
    small = float(np.finfo(typeof(z).dtype).tiny) ** 0.5
    high, low, total = 0.0 * safe, 0.0 * safe + small, 0.0 * safe
    kept: list[Any] = []

    def down(k: Any, high: Any, low: Any, total: Any) -> tuple[Any, Any, Any]:
        """From orders k + 1 and k to k and k - 1, with the sum of the even ones."""
        return low, k * two_by_z * low - high, total

    def body(i: Any, state: Any) -> Any:
        k = n_iter - i
        high, low, total = state
        even = (k % 2 == 0) & (k > 0)
        total = total + tnp.where(even, 2 * low, 0.0)
        high, low, total = down(k.astype(low.dtype), high, low, total)
        # What grows is scaled down, and all that it is compared with.
        size = tnp.where(tnp.abs(low) > 1 / small, small, 1.0)
        return high * size, low * size, total * size

    high, low, total = fori_loop(0, n_iter - v, body, (high, low, total))
    # low is of order v now.
    scale = tnp.ones_like(low)
    for k in range(v, 0, -1):
        kept.append((low, scale))
        total = total + (2 * low if k % 2 == 0 else 0.0)
        high, low, total = down(k, high, low, total)
        size = tnp.where(tnp.abs(low) > 1 / small, small, 1.0)
        high, low, total, scale = high * size, low * size, total * size, scale * size
    kept.append((low, scale))
    norm = total + low
    found = [value * (scale / was) / norm for value, was in kept[::-1]]
    at_zero = [1.0] + [0.0] * v
    return tnp.stack(
        [tnp.where(zero, w, x) for w, x in zip(at_zero, found, strict=True)]
    )


# Spherical harmonics ------------------------------------------------------------------


def sph_harm_y(
    n: ArrayLike,
    m: ArrayLike,
    theta: ArrayLike,
    phi: ArrayLike,
    *,
    n_max: int | None = None,
) -> Array:
    """Spherical harmonics ``Yₙᵐ(θ, φ)`` of degree n and order m.

    Args:
      n, m: arrays of integers, |m| at most n.
      theta: the angle from the pole, from 0 to π.
      phi: the angle around it.
      n_max: the largest degree, an int; that of n if n is known while tracing.

    Raises:
      ValueError: if n is traced, and there is no n_max.

    >>> import treadle as td
    >>> td.scipy.special.sph_harm_y(1, 0, 0.0, 0.0)
    Array(0.4886+0.j, dtype=complex64)
    """
    if n_max is None:
        n_max = _largest(n)
    n_max = whole("sph_harm_y", "n_max", n_max, 0)
    theta, phi = floats("sph_harm_y", theta, phi)
    degree, order, theta, phi = matched("sph_harm_y", *floats("n", n, m), theta, phi)
    magnitude = tnp.abs(order)
    legendre = _normalised(degree, magnitude, tnp.cos(theta), tnp.sin(theta), n_max)
    odd = tnp.floor(magnitude / 2) * 2 != magnitude
    # By Condon and Shortley, of positive orders; those of negative ones mirror them.
    legendre = tnp.where(odd & (order > 0), -legendre, legendre)
    real, imag = legendre * tnp.cos(order * phi), legendre * tnp.sin(order * phi)
    return real + imag * as_array(np.array(1j, dtypes.to_complex(imag.dtype)))


def _largest(n: ArrayLike) -> int:
    try:
        return index(np.max(np.asarray(n)))
    except TypeError:
        raise ValueError(
            f"sph_harm_y: the degrees n are not known while tracing"
            f"{at(user_source())}\n"
            "Say which is the largest: `n_max=`."
        ) from None


def _normalised(degree: Any, order: Any, x: Any, sine: Any, n_max: int) -> Any:
    """Associated Legendre functions with the norm of spherical harmonics, without
    Condon and Shortley's sign: from degree m on by their recurrence."""
    log_norm = gammaln(2 * order + 2) - 2 * gammaln(order + 1) - 2 * order * math.log(2)
    positive = tnp.where(sine > 0, sine, 1.0)
    power = tnp.exp(0.5 * log_norm + order * tnp.log(positive))
    power = tnp.where(
        sine > 0, power, tnp.where(order == 0, tnp.exp(0.5 * log_norm), 0)
    )
    before, here = 0.0 * power, power / math.sqrt(4 * math.pi)
    found = tnp.where(degree == order, here, 0.0)
    for k in range(1, n_max + 1):
        # From degree l - 1 = k - 1 to l, where that is above the order.
        above = k > order
        square = tnp.where(above, k * k - order * order, 1.0)
        a = tnp.sqrt((4.0 * k * k - 1) / square)
        last = tnp.where(above, (k - 1) * (k - 1) - order * order, 0.0)
        b = tnp.sqrt(tnp.maximum(last, 0.0) / max(4.0 * (k - 1) * (k - 1) - 1, 1.0))
        following = a * (x * here - b * before)
        before = tnp.where(above, here, before)
        here = tnp.where(above, following, here)
        found = tnp.where(above & (degree == k), here, found)
    return tnp.where(order > degree, 0.0, found)
