"""Arrays brought to a common size."""

from __future__ import annotations

from typing import Any

import treadle as td
import treadle.numpy as tnp
from treadle.nn import check

Array = td.Array
Axis = int | tuple[int, ...] | None


def standardize(
    x: Array,
    axis: Axis = -1,
    mean: tnp.ArrayLike | None = None,
    variance: tnp.ArrayLike | None = None,
    eps: float = 1e-5,
    where: tnp.ArrayLike | None = None,
) -> Array:
    """Mean 0 and variance 1 along an axis (or several): the formula of `LayerNorm`.

    Halves are computed in float32.

    Args:
      mean, variance: take these; their shapes broadcast with x.
      where: the elements of which mean and variance are those.

    >>> import treadle.numpy as tnp
    >>> standardize(tnp.array([[1.0, 3.0]]))
    Array([[-1.,  1.]], dtype=float32)
    """
    check.within("standardize", "eps", eps)
    x = tnp.asarray(x)
    wide = check.wide(x)
    if mean is None:
        mean = wide.mean(axis, keepdims=True, where=where)
    centred = wide - mean
    if variance is None:
        variance = tnp.square(centred).mean(axis, keepdims=True, where=where)
    return check.narrow(centred * td.lax.rsqrt(tnp.asarray(variance) + eps), x)


def mean_square(x: Array, mean: Array, axes: tuple[int, ...]) -> Array:
    """The mean over axes, which are kept, of squared distances from `mean`, which must
    be the mean of x over these axes (or of the same and others).

    Its derivative by the mean is zero, as distances from it add up to nothing, and so
    is left out: a sum over all of x.
    """
    return _mean_square(x, mean, axes)


def _squares(x: Array, mean: Array, axes: tuple[int, ...]) -> Array:
    return tnp.square(x - mean).mean(axes, keepdims=True)


_mean_square = td.custom_jvp(_squares, nondiff_argnums=(2,))


@_mean_square.defjvp
def _(axes: tuple[int, ...], primals: Any, tangents: Any) -> tuple[Array, Array]:
    (x, mean), (dx, _) = primals, tangents
    moved = (2 * (x - mean) * dx).mean(axes, keepdims=True)
    return _mean_square(x, mean, axes), moved


def normalize(
    x: Array, axis: Axis = -1, order: float = 2.0, eps: float = 1e-12
) -> Array:
    """Vectors along an axis (or several) divided by their length; those shorter than
    `eps`, by that.

    Halves are computed in float32.

    Args:
      order: which norm is the length: 2 is the Euclidean one, 1 the sum of magnitudes,
        infinity the largest.

    >>> import treadle.numpy as tnp
    >>> normalize(tnp.array([3.0, 4.0]))
    Array([0.6, 0.8], dtype=float32)
    """
    check.positive("normalize", "order", order)
    check.within("normalize", "eps", eps)
    x = tnp.asarray(x)
    wide = check.wide(x)
    return check.narrow(wide / length(wide, axis, order, eps), x)


def length(x: Array, axis: Axis, order: float = 2.0, eps: float = 0.0) -> Array:
    """The norm along an axis, which stays as one of length 1; at least `eps`, and with
    derivative 0 where it is less."""
    size = tnp.abs(x)
    if order == float("inf"):
        return tnp.maximum(size.max(axis, keepdims=True), eps)
    total = (size**order).sum(axis, keepdims=True)
    enough = total > eps**order
    # A root has no derivative at 0.
    return tnp.where(enough, tnp.where(enough, total, 1) ** (1 / order), eps)
