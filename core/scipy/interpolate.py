"""`treadle.scipy.interpolate`: values between the points of a grid."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np

from treadle import np as tnp
from treadle import tree
from treadle.debug import error_if
from treadle.errors import at, user_source
from treadle.np.operands import ArrayLike, as_array, as_inexact, promoted
from treadle.run.array import Array

__all__ = ["RegularGridInterpolator"]

_METHODS = ("linear", "nearest")
_OUTSIDE = (
    "RegularGridInterpolator: a place is outside of the grid; with "
    "`bounds_error=False` it reads `fill_value`"
)


class RegularGridInterpolator:
    """Interpolates values that are known on a rectangular grid: a pytree of arrays.

    Args:
      points: for each axis of the grid its coordinates, in ascending order.
      values: shape ``(n₀, n₁, …, *rest)``.
      method: "linear" or "nearest".
      bounds_error: whether a place outside of the grid is an error: a `CheckError` when
        the program comes by, also in compiled ones. By default it reads `fill_value`.
      fill_value: what is outside of the grid; None goes on as at its edge.

    Raises:
      ValueError: for another method, or shapes that don't fit.

    >>> import treadle as td, treadle.numpy as tnp
    >>> grid = tnp.array([0.0, 1.0, 3.0]), tnp.array([0.0, 2.0])
    >>> values = grid[0][:, None] + 10 * grid[1]
    >>> interpolate = td.scipy.interpolate.RegularGridInterpolator(grid, values)
    >>> interpolate(tnp.array([[0.5, 1.0], [2.0, 0.5]]))
    Array([10.5,  7. ], dtype=float32)
    """

    def __init__(
        self,
        points: Sequence[ArrayLike],
        values: ArrayLike,
        method: str = "linear",
        bounds_error: bool = False,
        fill_value: Any = np.nan,
    ) -> None:
        name = "RegularGridInterpolator"
        self.bounds_error = bounds_error
        self.values = as_array(as_inexact(name, values))
        self.grid = tuple([as_array(as_inexact(name, p)) for p in points])
        self.method = _known(method)
        self.fill_value = fill_value
        lengths = tuple([p.shape[0] for p in self.grid if p.ndim == 1])
        if (
            lengths != self.values.shape[: len(self.grid)]
            or min(lengths, default=0) < 2
        ):
            raise ValueError(
                f"{name}: points of shapes {[p.shape for p in self.grid]} for values "
                f"of shape {self.values.shape}{at(user_source())}\n"
                "Each axis of the grid has a vector of two coordinates or more."
            )

    def __call__(self, xi: Any, method: str | None = None) -> Array:
        """The values at places of shape ``(*lead, axes)``, or at those of a tuple with
        an array for each axis: shape ``(*lead, *rest)``."""
        method = self.method if method is None else _known(method)
        if isinstance(xi, tuple):
            xi = tnp.stack(tnp.broadcast_arrays(*xi), -1)
        xi = as_array(as_inexact("RegularGridInterpolator", xi))
        if xi.shape[-1:] != (len(self.grid),):
            raise ValueError(
                f"RegularGridInterpolator: places of shape {xi.shape} in a grid with "
                f"{len(self.grid)} axes{at(user_source())}"
            )
        axes: list[Any] = []
        outside: Any = False
        for i, points in enumerate(self.grid):
            points, x = (
                as_array(a) for a in promoted("interpolate", points, xi[..., i])
            )
            index = tnp.searchsorted(points, x, side="right") - 1
            index = tnp.clip(index, 0, points.shape[0] - 2)
            low, high = points[index], points[index + 1]
            axes.append((index, (x - low) / (high - low)))
            outside = outside | (x < points[0]) | (x > points[-1])
        if self.bounds_error:
            error_if(xi, outside, _OUTSIDE)
        rest = (None,) * (self.values.ndim - len(self.grid))
        near = _both if method == "linear" else _nearest
        found: Any = 0
        for corner in itertools.product(*[near(*axis) for axis in axes]):
            indices = tuple([index for index, _ in corner])
            share = prod([share for _, share in corner])
            value = self.values[indices]
            found = found + (
                value if isinstance(share, int) else _weighed(value, share, rest)
            )
        if self.fill_value is None or not axes:
            return found
        there = outside[(..., *rest)]
        return tnp.where(there, tnp.asarray(self.fill_value, found.dtype), found)


def _known(method: str) -> str:
    if method not in _METHODS:
        raise ValueError(
            f"RegularGridInterpolator: method is 'linear' or 'nearest', got {method!r}"
            f"{at(user_source())}"
        )
    return method


def _weighed(value: Any, share: Any, rest: tuple[None, ...]) -> Any:
    return value * share[(..., *rest)].astype(value.dtype)


def _both(index: Any, share: Any) -> list[tuple[Any, Any]]:
    return [(index, 1 - share), (index + 1, share)]


def _nearest(index: Any, share: Any) -> list[tuple[Any, Any]]:
    return [(tnp.where(share <= 0.5, index, index + 1), 1)]


def _parts(x: RegularGridInterpolator) -> tuple[Any, Any]:
    return (x.grid, x.values, x.fill_value), (x.method, x.bounds_error)


def _whole(options: Any, parts: Any) -> RegularGridInterpolator:
    made = object.__new__(RegularGridInterpolator)
    made.grid, made.values, made.fill_value = parts
    made.method, made.bounds_error = options
    return made


tree.register(RegularGridInterpolator, _parts, _whole)
