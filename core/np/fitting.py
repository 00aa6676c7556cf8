"""Polynomials by linear algebra: fitted to points, and their roots."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from treadle import dtypes
from treadle.dims import equal_shapes
from treadle.errors import at, user_source
from treadle.np import linalg
from treadle.np.creation import array, full, zeros
from treadle.np.join import concatenate
from treadle.np.kinds import finfo
from treadle.np.matrices import eye, vander
from treadle.np.operands import (
    ArrayLike,
    as_array,
    as_inexact,
    cast,
    operand,
    promoted,
    static_integer,
)
from treadle.np.places import known
from treadle.np.polynomials import coefficients, written_out
from treadle.run.array import Array
from treadle.trace.value import typeof


def polyfit(
    x: ArrayLike,
    y: ArrayLike,
    deg: int,
    rcond: float | None = None,
    full: bool = False,
    w: ArrayLike | None = None,
    cov: bool | str = False,
) -> Any:
    """The polynomial of least squares through points: its coefficients, that of the
    highest power first.

    Shapes: x (m,), y (m,) or (m, k); the result (deg + 1,) or (deg + 1, k).

    Args:
      rcond: singular values up to this fraction of the largest count as zero; m
        roundings by default.
      full: also give the sums of the squared residuals, the rank, the singular values
        of the scaled Vandermonde matrix, and rcond.
      w: weights of the points, by which their residuals are multiplied.
      cov: also give the covariance of the coefficients; "unscaled", for weights that
        are reciprocals of known deviations.

    Raises:
      ValueError: for a negative degree, shapes that don't fit, or with `cov` too few
        points.

    >>> import treadle.numpy as tnp
    >>> x = tnp.array([0.0, 1.0, 2.0, 3.0])
    >>> tnp.polyfit(x, 2 * x * x - 1, 2).round(3)
    Array([ 2., -0., -1.], dtype=float32)
    """
    x, y = promoted("polyfit", *[as_inexact("polyfit", v) for v in (x, y)])
    deg = static_integer("polyfit", "the degree", deg)
    order, m = deg + 1, _points(x, y, deg)
    rows, right = vander(x, order), as_array(y)
    if w is not None:
        weights = cast(as_inexact("polyfit", w), typeof(x).dtype)
        if typeof(weights).shape != (m,):
            raise ValueError(
                f"polyfit: weights of shape {typeof(weights).shape} for {m} points"
                f"{at(user_source())}"
            )
        rows = rows * weights[:, None]
        right = right * (weights if right.ndim == 1 else weights[:, None])
    if rcond is None:
        rcond = m * float(finfo(typeof(x).dtype).eps)
    scale = (rows * rows).sum(0) ** 0.5
    found = linalg.lstsq(rows / scale, right, rcond)
    coefficients = (found.x.T / scale).T
    if full:
        return coefficients, found.residuals, found.rank, found.s, rcond
    if not cov:
        return coefficients
    covariance = linalg.inv((rows / scale).T @ (rows / scale))
    covariance = covariance / (scale[:, None] * scale)
    if right.ndim == 2:
        covariance = covariance[:, :, None]
    if cov == "unscaled":
        return coefficients, covariance
    if m <= order:
        raise ValueError(
            f"polyfit: {m} points are too few for the covariance of {order} "
            f"coefficients{at(user_source())}\nSay cov='unscaled', or full=True."
        )
    factor = ((right - rows @ coefficients) ** 2).sum(0) / (m - order)
    return coefficients, covariance * factor


def _points(x: Any, y: Any, deg: int) -> int:
    """How many there are."""
    first, second = typeof(x).shape, typeof(y).shape
    if len(first) != 1 or len(second) not in (1, 2) or second[:1] != first:
        raise ValueError(
            f"polyfit: x has shape (m,) and y (m,) or (m, k), got {first} and {second}"
            f"{at(user_source())}"
        )
    if deg < 0:
        raise ValueError(f"polyfit: the degree {deg} is negative{at(user_source())}")
    return first[0]


def roots(p: ArrayLike, *, strip_zeros: bool = True) -> Array:
    """The roots of a polynomial, of complex dtype: the eigenvalues of its companion
    matrix.

    Args:
      p: its coefficients, that of the highest power first.
      strip_zeros: leave zeros before and behind the other coefficients aside: the first
        ones lower the degree, the last ones are roots that are 0. The values must be
        known then; under a trace say False.

    >>> import treadle.numpy as tnp
    >>> tnp.roots(tnp.array([1.0, -3.0, 2.0])).real.sort()
    Array([1., 2.], dtype=float32)
    """
    c = as_array(as_inexact("roots", operand("roots", p)))
    if c.ndim != 1:
        raise ValueError(
            f"roots: coefficients are a vector, got shape {c.shape}{at(user_source())}"
        )
    behind = 0
    if strip_zeros:
        (some,) = np.nonzero(known("roots", c, "strip_zeros"))
        first, last = (some[0], some[-1] + 1) if some.size else (0, 0)
        behind = c.shape[0] - int(last) if some.size else 0
        c = c[int(first) : int(last)]
    n, dtype = c.shape[0], dtypes.to_complex(c.dtype)
    found = zeros((0,), dtype)
    if n > 1:
        below = eye(n - 2, n - 1, dtype=c.dtype)
        found = linalg.eigvals(concatenate([(-c[1:] / c[0])[None], below]))
    return concatenate([found.astype(dtype), zeros((behind,), dtype)])


def poly(roots: ArrayLike | Sequence[Any]) -> Array:
    """The polynomial with these roots and the leading coefficient 1; of a square
    matrix, its characteristic polynomial, whose roots are the eigenvalues.

    >>> import treadle.numpy as tnp
    >>> tnp.poly(tnp.array([1.0, -1.0]))
    Array([ 1.,  0., -1.], dtype=float32)
    >>> tnp.poly(tnp.array([[2.0, 0.0], [0.0, 3.0]])).round()
    Array([ 1., -5.,  6.], dtype=float32)
    """
    given = array(roots) if isinstance(roots, list | tuple) else operand("poly", roots)
    found = as_array(as_inexact("poly", given))
    dtype = found.dtype
    if found.ndim == 2 and equal_shapes(found.shape[:1], found.shape[1:]):
        found = linalg.eigvals(found)
    points = coefficients("poly", found)
    out = full(1, 1, points.dtype)
    none = full(1, 0, points.dtype)
    for k in range(written_out(points.shape[0])):
        out = concatenate([out, none]) - points[k] * concatenate([none, out])
    # The eigenvalues of a real matrix come in pairs, whose products are real.
    return out if dtypes.is_complex(dtype) else out.real
