"""Sums of exponentials along axes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Literal, overload

import treadle.numpy as tnp
from treadle.api.jacobian import stop_gradient
from treadle.control import softmax as ops
from treadle.np.operands import ArrayLike, all_axes
from treadle.run.array import Array
from treadle.scipy.operands import floats, numbers

Axis = int | Sequence[int] | None


@overload
def logsumexp(
    a: ArrayLike,
    axis: Axis = None,
    b: ArrayLike | None = None,
    keepdims: bool = False,
    return_sign: Literal[False] = False,
    where: ArrayLike | None = None,
) -> Array: ...
@overload
def logsumexp(
    a: ArrayLike,
    axis: Axis = None,
    b: ArrayLike | None = None,
    keepdims: bool = False,
    *,
    return_sign: bool,
    where: ArrayLike | None = None,
) -> Any: ...
def logsumexp(
    a: ArrayLike,
    axis: Axis = None,
    b: ArrayLike | None = None,
    keepdims: bool = False,
    return_sign: bool = False,
    where: ArrayLike | None = None,
) -> Array | tuple[Array, Array]:
    """``log(sum(b * exp(a)))``, without overflow, of real or complex numbers.

    Args:
      axis: of the sums, by default all.
      b: factors, 1 by default.
      return_sign: whether the result is a pair, of the logarithm of the magnitude and
        the sign (of complex numbers one of magnitude 1); else a negative sum of real
        numbers gives not-a-number.
      where: which elements are summed.

    >>> import treadle as td
    >>> import treadle.numpy as tnp
    >>> td.scipy.special.logsumexp(tnp.array([100.0, 100.0]))
    Array(100.6931, dtype=float32)
    """
    if b is None:
        (a,) = numbers("logsumexp", a)
    else:
        a, b = numbers("logsumexp", a, b)
        # What counts nothing must not be the largest.
        a = tnp.where(b == 0, -math.inf, a)
    if where is not None:
        a = tnp.where(where, a, -math.inf)
    size = stop_gradient(tnp.real(a))
    largest = tnp.max(size, axis=axis, keepdims=True, initial=-math.inf)
    finite = tnp.where(tnp.isfinite(largest), largest, 0.0)
    terms = tnp.exp(a - finite)
    total = tnp.sum(terms if b is None else b * terms, axis=axis, keepdims=True)
    sign = tnp.sign(total)
    if return_sign:
        total = tnp.abs(total)
    out = tnp.log(total) + finite
    if not keepdims:
        out, sign = tnp.squeeze(out, _axes(a, axis)), tnp.squeeze(sign, _axes(a, axis))
    return (out, sign) if return_sign else out


def _axes(x: Any, axis: Axis) -> Any:
    return tuple(range(x.ndim)) if axis is None else axis


def softmax(x: ArrayLike, axis: Axis = None) -> Array:
    """``exp(x) / sum(exp(x))``, with the sum along some axes, by default all.

    Halves are computed in float32.
    """
    (y,) = floats("softmax", x)
    return ops.softmax(y, axes=all_axes("softmax", axis, y.ndim))


def log_softmax(x: ArrayLike, axis: Axis = None) -> Array:
    """The logarithm of `softmax`, without overflow."""
    (y,) = floats("log_softmax", x)
    largest = tnp.max(y, axis=axis, keepdims=True, initial=-math.inf)
    shifted = y - stop_gradient(largest)
    return shifted - tnp.log(tnp.sum(tnp.exp(shifted), axis=axis, keepdims=True))
