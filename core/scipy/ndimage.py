"""`treadle.scipy.ndimage`: arrays read between their elements."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from math import prod
from typing import Any

from treadle import np as tnp
from treadle.errors import at, user_source
from treadle.np.operands import operand
from treadle.run.array import Array
from treadle.trace.value import typeof

__all__ = ["map_coordinates"]

Place = tuple[Any, Any]
"""An index, and whether there is an element."""


def _mirror(index: Any, n: int) -> Any:
    period = max(2 * (n - 1), 1)
    return tnp.abs((index + n - 1) % period - (n - 1))


_INSIDE: dict[str, Callable[[Any, int], Any]] = {
    "constant": lambda index, n: index,
    "nearest": lambda index, n: tnp.clip(index, 0, n - 1),
    "wrap": lambda index, n: index % n,
    "mirror": _mirror,
    "reflect": lambda index, n: (_mirror(2 * index + 1, 2 * n + 1) - 1) // 2,
}


def map_coordinates(
    input: Any,
    coordinates: Sequence[Any],
    order: int,
    mode: str = "constant",
    cval: Any = 0.0,
) -> Array:
    """The values of an array at places between its elements.

    Args:
      input: an array.
      coordinates: for each axis of it an array of places, all of one shape; a place is
        counted in elements.
      order: 0 for the nearest element, 1 for linear interpolation.
      mode: what is outside: `cval`, in the input's dtype ("constant"), the nearest
        element ("nearest"), the array again ("wrap"), or its mirror image, with the
        last element once ("mirror") or twice ("reflect").

    Returns:
      An array of the coordinates' shape and the input's dtype.

    Raises:
      ValueError: for another order or mode, or another number of coordinates.

    >>> import treadle as td, treadle.numpy as tnp
    >>> x = tnp.array([[0.0, 1.0], [2.0, 3.0]])
    >>> places = [tnp.array([0.5, 1.0]), tnp.array([0.5, 0.25])]
    >>> td.scipy.ndimage.map_coordinates(x, places, order=1)
    Array([1.5 , 2.25], dtype=float32)
    """
    array = tnp.asarray(operand("map_coordinates", input))
    axes = [tnp.asarray(operand("map_coordinates", c)) for c in coordinates]
    where = at(user_source())
    if len(axes) != array.ndim:
        raise ValueError(
            f"map_coordinates: {len(axes)} coordinates for {typeof(array)}, which has "
            f"{array.ndim} axes{where}"
        )
    if order not in (0, 1):
        raise ValueError(f"map_coordinates: order {order} is neither 0 nor 1{where}")
    if mode not in _INSIDE:
        raise ValueError(
            f"map_coordinates: mode {mode!r} is none of "
            f"{', '.join(map(repr, _INSIDE))}{where}"
        )
    outside = tnp.asarray(cval).astype(array.dtype)
    near = _nearest if order == 0 else _both
    total: Any = None
    for corner in itertools.product(*map(near, axes)):
        indices = [
            _INSIDE[mode](index, n)
            for (index, _), n in zip(corner, array.shape, strict=True)
        ]
        value: Any = array[tuple(indices)]
        if mode == "constant":
            there = True
            for index, n in zip(indices, array.shape, strict=True):
                there = there & (index >= 0) & (index < n)
            value = tnp.where(there, value, outside)
        if order:
            value = value * prod([share for _, share in corner])
        total = value if total is None else total + value
    if tnp.issubdtype(array.dtype, tnp.integer) and order:
        total = _rounded(total)
    return total.astype(array.dtype)


def _nearest(places: Any) -> list[Place]:
    index = places
    if not tnp.issubdtype(places.dtype, tnp.integer):
        index = _rounded(places).astype(int)
    return [(index, None)]


def _rounded(x: Any) -> Any:
    """The nearest whole number; of two, the one that is farther from zero."""
    return tnp.sign(x) * tnp.floor(tnp.abs(x) + 0.5)


def _both(places: Any) -> list[Place]:
    """The elements before and behind a place, with their shares in it."""
    low = tnp.floor(places)
    share = places - low
    index = low.astype(int)
    return [(index, 1 - share), (index + 1, share)]
