"""Activation functions of straight and square pieces: cheap, and exactly 0 or 1 far
out."""

from __future__ import annotations

import treadle as td
import treadle.numpy as tnp
from treadle.nn import check
from treadle.nn.functions.activation import relu6

Array = td.Array


def hard_sigmoid(x: Array) -> Array:
    """``relu6(x + 3) / 6``, a `sigmoid` of three straight pieces (Howard 2019).

    >>> import treadle.numpy as tnp
    >>> hard_sigmoid(tnp.array([-4.0, 0.0, 1.5]))
    Array([0.  , 0.5 , 0.75], dtype=float32)
    """
    return relu6(tnp.add(x, 3.0)) / 6.0


def hard_silu(x: Array) -> Array:
    """``x * hard_sigmoid(x)``, also called hard swish (Howard 2019).

    >>> import treadle.numpy as tnp
    >>> hard_silu(tnp.array([-4.0, 1.5]))
    Array([-0.   ,  1.125], dtype=float32)
    """
    return x * hard_sigmoid(x)


def hard_tanh(x: Array, lower: float = -1.0, upper: float = 1.0) -> Array:
    """``x`` between two bounds, else the nearer of them.

    >>> import treadle.numpy as tnp
    >>> hard_tanh(tnp.array([-2.0, 0.5]))
    Array([-1. ,  0.5], dtype=float32)
    """
    inner = tnp.where(tnp.less(x, lower), lower, x)
    return tnp.where(tnp.greater(x, upper), upper, inner)


def hard_shrink(x: Array, limit: float = 0.5) -> Array:
    """``x``, but 0 between ``-limit`` and `limit`.

    >>> import treadle.numpy as tnp
    >>> hard_shrink(tnp.array([-2.0, 0.5]))
    Array([-2.,  0.], dtype=float32)
    """
    check.within("hard_shrink", "limit", limit)
    return tnp.where(tnp.abs(x) <= limit, 0, x)


def soft_shrink(x: Array, limit: float = 0.5) -> Array:
    """``x`` nearer to 0 by `limit`; 0 where it is not that far from it.

    >>> import treadle.numpy as tnp
    >>> soft_shrink(tnp.array([-2.0, 0.5]))
    Array([-1.5,  0. ], dtype=float32)
    """
    check.within("soft_shrink", "limit", limit)
    x = tnp.asarray(x)
    return tnp.where(x > limit, x - limit, tnp.where(x < -limit, x + limit, 0 * x))


def tanh_shrink(x: Array) -> Array:
    """``x - tanh(x)``.

    >>> import treadle.numpy as tnp
    >>> tanh_shrink(tnp.array([-1.0, 2.0]))
    Array([-0.2384,  1.036 ], dtype=float32)
    """
    return x - tnp.tanh(x)


def threshold(x: Array, limit: float, value: float) -> Array:
    """``x`` where it is greater than `limit`, elsewhere `value`.

    >>> import treadle.numpy as tnp
    >>> threshold(tnp.array([-1.0, 2.0]), 0.5, 10.0)
    Array([10.,  2.], dtype=float32)
    """
    return tnp.where(x > limit, x, value)


def sparse_plus(x: Array) -> Array:
    """A `softplus` that is exactly 0 below -1 and ``x`` above 1, with a parabola
    between.

    >>> import treadle.numpy as tnp
    >>> sparse_plus(tnp.array([-2.0, 0.0, 2.0]))
    Array([0.  , 0.25, 2.  ], dtype=float32)
    """
    return tnp.where(x <= -1, 0, tnp.where(x >= 1, x, tnp.square(tnp.add(x, 1.0)) / 4))


def sparse_sigmoid(x: Array) -> Array:
    """``(x + 1) / 2`` between 0 and 1: the derivative of `sparse_plus`.

    >>> import treadle.numpy as tnp
    >>> sparse_sigmoid(tnp.array([-2.0, 0.5]))
    Array([0.  , 0.75], dtype=float32)
    """
    return 0.5 * tnp.clip(tnp.add(x, 1.0), 0.0, 2.0)


def squareplus(x: Array, b: float = 4.0) -> Array:
    """``(x + sqrt(x**2 + b)) / 2``, a smooth `relu` without transcendental functions
    (Barron 2021).

    >>> import treadle.numpy as tnp
    >>> squareplus(tnp.array([0.0, 1000.0]))
    Array([   1.  , 1000.001], dtype=float32)
    """
    check.within("squareplus", "b", b)
    return (x + tnp.sqrt(tnp.square(x) + b)) / 2
