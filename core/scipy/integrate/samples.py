"""Integrals of functions that are known at some places."""

from __future__ import annotations

from typing import Any

from treadle import np as tnp
from treadle.np.operands import as_inexact, one_axis, operand
from treadle.run.array import Array


def cumulative_trapezoid(
    y: Any, x: Any = None, dx: Any = 1.0, axis: int = -1, initial: Any = None
) -> Array:
    """The integral up to each place but the first, of straight lines between values.

    Args:
      y: values along an axis.
      x: their places, a vector or like `y`; if None, they are `dx` apart.
      initial: what stands before all others; without it there is one place less.

    >>> import treadle as td, treadle.numpy as tnp
    >>> td.scipy.integrate.cumulative_trapezoid(tnp.array([0.0, 2.0, 4.0]), initial=0.0)
    Array([0., 1., 4.], dtype=float32)
    """
    name = "cumulative_trapezoid"
    y = tnp.asarray(as_inexact(name, operand(name, y)))
    y = tnp.moveaxis(y, one_axis(name, axis, y.ndim), -1)
    if x is not None:
        places = tnp.asarray(operand(name, x))
        places = places if places.ndim == 1 else tnp.moveaxis(places, axis, -1)
        dx = tnp.diff(places, axis=-1)
    found = tnp.cumsum(dx * (y[..., 1:] + y[..., :-1]) / 2, axis=-1)
    if initial is not None:
        first = tnp.full_like(found[..., :1], initial, shape=(*found.shape[:-1], 1))
        found = tnp.concatenate([first, found], axis=-1)
    return tnp.moveaxis(found, -1, axis)
