"""Functions that change an array's shape or the order of its elements."""

from __future__ import annotations

import math
from collections.abc import Sequence
from operator import index
from typing import Any, overload

import numpy as np

from treadle.dims import is_dim, same_shape
from treadle.errors import TracerError, at, user_source
from treadle.np.operands import (
    ArrayLike,
    Axis,
    Shape,
    all_axes,
    as_array,
    as_shape,
    broadcast_to_shape,
    broadcasts,
    common_shape,
    one_axis,
    operand,
    static_integer,
    type_of,
)
from treadle.ops import movement
from treadle.run.array import Array
from treadle.trace.value import Value, typeof


def reshape(
    x: ArrayLike,
    shape: int | Sequence[int] | np.ndarray,
    order: str = "C",
    *,
    copy: bool | None = None,
) -> Array:
    """The same elements in another shape; one length may be -1.

    Args:
      order: whether the last axis runs first ("C") or the first one ("F").
      copy: changes nothing: nobody sees whether memory is shared.

    >>> import treadle.numpy as tnp
    >>> tnp.reshape(tnp.arange(6), (2, -1)).shape
    (2, 3)
    """
    x = operand("reshape", x)
    t = typeof(x)
    lengths = _lengths(shape)
    if -1 in lengths:
        lengths = _fill_in(t.shape, lengths)
    if order != "C":
        return _by_columns("reshape", x, lengths, order)
    if same_shape(lengths, t.shape):
        return as_array(x)
    if any([n < 0 for n in lengths]):
        raise ValueError(f"reshape to {lengths}: negative length{at(user_source())}")
    return movement.reshape(x, shape=lengths)


def _by_columns(name: str, x: Any, lengths: Shape, order: str) -> Any:
    if order != "F":
        raise ValueError(
            f"{name}: order is 'C' or 'F', got {order!r}{at(user_source())}"
        )
    return transpose(reshape(transpose(x), lengths[::-1]))


def _lengths(shape: Any) -> Shape:
    if isinstance(shape, Value | np.ndarray):
        shape = [shape] if not shape.ndim else list(shape)
    lengths = shape if isinstance(shape, Sequence) else (shape,)
    try:
        return tuple([n if is_dim(n) else index(n) for n in lengths])
    except TracerError:
        raise
    except TypeError:
        raise TypeError(
            f"reshape: a shape is a tuple of integers, got {shape!r}{at(user_source())}"
        ) from None


def _fill_in(have: Shape, lengths: Shape) -> Shape:
    known = math.prod([n for n in lengths if n != -1])
    size = math.prod(have)
    if lengths.count(-1) > 1 or known == 0 or size % known:
        raise ValueError(
            f"can't reshape {have} ({size} elements) to {lengths}{at(user_source())}"
        )
    return tuple([size // known if n == -1 else n for n in lengths])


def ravel(x: ArrayLike, order: str = "C") -> Array:
    """The elements as one axis; `order` is as in `reshape`."""
    x = operand("ravel", x)
    if order != "C":
        x = _by_columns("ravel", x, (typeof(x).size,), order)
    return reshape(x, (-1,)) if typeof(x).size else reshape(x, (0,))


def transpose(x: ArrayLike, axes: Sequence[int] | None = None) -> Array:
    """The axes in another order; reversed, by default."""
    x = operand("transpose", x)
    ndim = typeof(x).ndim
    if axes is None:
        order = tuple(range(ndim - 1, -1, -1))
    else:
        order = tuple([one_axis("transpose", a, ndim) for a in axes])
        if sorted(order) != list(range(ndim)):
            raise ValueError(
                f"transpose: {tuple(axes)} is not a permutation of {ndim} axes"
                f"{at(user_source())}"
            )
    return _permuted(x, order)


permute_dims = transpose


def _permuted(x: Any, order: tuple[int, ...]) -> Any:
    if order == tuple(range(len(order))):
        return as_array(x)
    return movement.transpose(x, permutation=order)


def matrix_transpose(x: ArrayLike) -> Array:
    """Exchanges the last two axes."""
    ndim = typeof(operand("matrix_transpose", x)).ndim
    if ndim < 2:
        raise ValueError(
            f"matrix_transpose needs two axes or more, got shape "
            f"{typeof(x).shape}{at(user_source())}"
        )
    return swapaxes(x, -1, -2)


def swapaxes(x: ArrayLike, axis1: int, axis2: int) -> Array:
    """Exchanges two axes."""
    x = operand("swapaxes", x)
    ndim = typeof(x).ndim
    a, b = one_axis("swapaxes", axis1, ndim), one_axis("swapaxes", axis2, ndim)
    order = list(range(ndim))
    order[a], order[b] = b, a
    return _permuted(x, tuple(order))


def moveaxis(x: ArrayLike, source: Any, destination: Any) -> Array:
    """Moves axes to other places; the rest keep their order."""
    x = operand("moveaxis", x)
    ndim = typeof(x).ndim
    sources, places = (
        [one_axis("moveaxis", a, ndim) for a in (v if isinstance(v, Sequence) else [v])]
        for v in (source, destination)
    )
    if len(sources) != len(places) or len(set(sources)) != len(sources):
        raise ValueError(
            f"moveaxis: can't move axes {source} to {destination}{at(user_source())}"
        )
    order = [a for a in range(ndim) if a not in sources]
    for place, a in sorted(zip(places, sources, strict=True)):
        order.insert(place, a)
    return _permuted(x, tuple(order))


def rollaxis(x: ArrayLike, axis: int, start: int = 0) -> Array:
    """Moves an axis to where it lies before the axis `start`."""
    ndim = typeof(operand("rollaxis", x)).ndim
    number = one_axis("rollaxis", axis, ndim)
    place = start + ndim if start < 0 else start
    if not 0 <= place <= ndim:
        raise ValueError(
            f"rollaxis: start {start} for an array with {ndim} axes{at(user_source())}"
        )
    return moveaxis(x, number, place - (place > number))


def expand_dims(x: ArrayLike, axis: int | Sequence[int]) -> Array:
    """New axes of length 1, at the places that they have in the result."""
    x = operand("expand_dims", x)
    shape = typeof(x).shape
    extra = len(axis) if isinstance(axis, Sequence) else 1
    axes = all_axes("expand_dims", axis, len(shape) + extra)
    old = iter(shape)
    wanted = [1 if i in axes else next(old) for i in range(len(shape) + extra)]
    return movement.reshape(x, shape=tuple(wanted))


def squeeze(x: ArrayLike, axis: Axis = None) -> Array:
    """Without axes of length 1: all of them, or those that are named."""
    x = operand("squeeze", x)
    shape = typeof(x).shape
    if axis is None:
        axes = tuple(i for i, n in enumerate(shape) if n == 1)
    else:
        axes = all_axes("squeeze", axis, len(shape))
        for a in axes:
            if shape[a] != 1:
                raise ValueError(
                    f"squeeze: axis {a} of shape {shape} has length {shape[a]}, "
                    f"not 1{at(user_source())}"
                )
    return reshape(x, tuple([n for i, n in enumerate(shape) if i not in axes]))


def broadcast_to(x: ArrayLike, shape: int | Shape) -> Array:
    """Repeats along new axes and axes of length 1."""
    x = operand("broadcast_to", x)
    shape = as_shape("broadcast_to", shape)
    have = typeof(x).shape
    if not broadcasts(have, shape):
        raise ValueError(
            f"broadcast_to: shape {have} does not broadcast to {shape}"
            f"{at(user_source())}"
        )
    return as_array(broadcast_to_shape(x, shape))


def broadcast_shapes(*shapes: Shape) -> Shape:
    """The shape to which shapes broadcast together."""
    return common_shape("broadcast_shapes", shapes)


def broadcast_arrays(*arrays: ArrayLike) -> list[Array]:
    """The arrays, each broadcast to their common shape."""
    xs = [operand("broadcast_arrays", x) for x in arrays]
    shape = common_shape("broadcast_arrays", [typeof(x).shape for x in xs])
    return [as_array(broadcast_to_shape(x, shape)) for x in xs]


def flip(x: ArrayLike, axis: Axis = None) -> Array:
    """The elements in reverse order along axes (all of them, by default)."""
    x = operand("flip", x)
    axes = all_axes("flip", axis, typeof(x).ndim)
    return movement.reverse(x, axes=axes) if axes else as_array(x)


def fliplr(x: ArrayLike) -> Array:
    """The elements in reverse order along axis 1."""
    return flip(x, 1)


def flipud(x: ArrayLike) -> Array:
    """The elements in reverse order along axis 0."""
    return flip(x, 0)


def rot90(x: ArrayLike, k: int = 1, axes: tuple[int, int] = (0, 1)) -> Array:
    """Rotates by 90 degrees, k times, from the first axis towards the second.

    Raises:
      ValueError: if both axes are the same.
    """
    first, second = axes
    ndim = typeof(operand("rot90", x)).ndim
    if one_axis("rot90", first, ndim) == one_axis("rot90", second, ndim):
        raise ValueError(
            f"rot90: the axes {axes} are one: there is no plane to turn in"
            f"{at(user_source())}"
        )
    k = static_integer("rot90", "k", k)
    if k % 4 == 0:
        return as_array(operand("rot90", x))
    if k % 4 == 2:
        return flip(x, axes)
    if k % 4 == 1:
        return swapaxes(flip(x, second), first, second)
    return flip(swapaxes(x, first, second), second)


@overload
def atleast_1d(x: ArrayLike, /) -> Array: ...
@overload
def atleast_1d(*arrays: ArrayLike) -> list[Array]: ...
def atleast_1d(*arrays: ArrayLike) -> Any:
    """Arrays with one axis or more (a list of them, if several are given)."""
    return _at_least("atleast_1d", arrays, lambda s: s or (1,))


@overload
def atleast_2d(x: ArrayLike, /) -> Array: ...
@overload
def atleast_2d(*arrays: ArrayLike) -> list[Array]: ...
def atleast_2d(*arrays: ArrayLike) -> Any:
    """Arrays with two axes or more; new ones come first."""
    return _at_least(
        "atleast_2d", arrays, lambda s: s if len(s) > 1 else (1, *(s or (1,)))
    )


@overload
def atleast_3d(x: ArrayLike, /) -> Array: ...
@overload
def atleast_3d(*arrays: ArrayLike) -> list[Array]: ...
def atleast_3d(*arrays: ArrayLike) -> Any:
    """Arrays with three axes or more, as NumPy places them."""

    def wanted(shape: Shape) -> Shape:
        if len(shape) < 2:
            return (1, *(shape or (1,)), 1)
        return (*shape, 1) if len(shape) == 2 else shape

    return _at_least("atleast_3d", arrays, wanted)


def _at_least(name: str, arrays: Sequence[Any], wanted: Any) -> Any:
    out = [reshape(x, wanted(typeof(operand(name, x)).shape)) for x in arrays]
    return out[0] if len(out) == 1 else out


def shape(x: ArrayLike) -> Shape:
    """The length of each axis."""
    return type_of("shape", x).shape


def ndim(x: ArrayLike) -> int:
    """The number of axes."""
    return type_of("ndim", x).ndim


def size(x: ArrayLike, axis: Axis = None) -> int:
    """The number of elements, or of those along one axis or several."""
    t = type_of("size", x)
    lengths = [t.shape[a] for a in all_axes("size", axis, t.ndim)]
    return t.size if axis is None else math.prod(lengths)
