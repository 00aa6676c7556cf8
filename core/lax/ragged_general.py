"""Products in groups of any axis: `ragged_dot_general`."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from treadle import dtypes
from treadle.api.boundary import boundary
from treadle.api.vmap import vmap
from treadle.errors import at, user_source
from treadle.lax.dot import dot_general, numbers_of
from treadle.lax.operands import Ints, array, places
from treadle.lax.ragged import blocks_of, by_rows
from treadle.np.creation import zeros
from treadle.np.indexing import take
from treadle.np.operands import ArrayLike, broadcast_to_shape, cast
from treadle.np.places import where
from treadle.np.shapes import moveaxis, transpose
from treadle.run.array import Array

_NAME = "ragged_dot_general"


class RaggedDotDimensionNumbers(NamedTuple):
    """What the axes of a ragged product are.

    dot_dimension_numbers: those of `dot_general`.
    lhs_ragged_dimensions: one axis of lhs, which is cut into groups.
    rhs_group_dimensions: the axis of rhs that has a matrix for each group, if the
      ragged one is not summed, nor one of the batch.
    """

    dot_dimension_numbers: Any
    lhs_ragged_dimensions: Sequence[int]
    rhs_group_dimensions: Sequence[int]


@boundary
def ragged_dot_general(
    lhs: ArrayLike,
    rhs: ArrayLike,
    group_sizes: ArrayLike,
    ragged_dot_dimension_numbers: Any,
    precision: Any = None,
    preferred_element_type: Any = None,
    group_offset: None = None,
) -> Array:
    """`dot_general` in groups of places along one axis of lhs, one after the other.

    If that axis stays, each place meets what rhs has for its group: shapes
    ``(b..., m..., k...), (g, b..., k..., n...) -> (b..., m..., n...)``. If it is
    summed, so is each group, for itself: ``(b..., m..., k...), (b..., k..., n...) ->
    (g, b..., m..., n...)``. If it is one of the batch, groups make no difference. What
    belongs to no group gives zeros.

    Args:
      group_sizes: integers, ``(g,)``, or with the axes of the batch and those of the
        ragged one's kind (left or summed) that come before it: ``(b..., x..., g)``.
      ragged_dot_dimension_numbers: `RaggedDotDimensionNumbers`.
      precision: is accepted, and changes nothing.
      preferred_element_type: as in `dot_general`.
      group_offset: there is none.

    Raises:
      ValueError: if the shapes or axes do not fit each other.
      TypeError: if the sizes are no integers.

    >>> import treadle as td, treadle.numpy as tnp
    >>> numbers = td.lax.RaggedDotDimensionNumbers((((0,), (0,)), ((), ())), (0,), ())
    >>> x, sizes = tnp.ones((5, 1)), tnp.array([2, 3])
    >>> td.lax.ragged_dot_general(x, x, sizes, numbers).ravel()
    Array([2., 3.], dtype=float32)
    """
    x, y, sizes = (array(_NAME, a) for a in (lhs, rhs, group_sizes))
    given = ragged_dot_dimension_numbers
    sums, batch = numbers_of(_NAME, given.dot_dimension_numbers, x.type, y.type)
    ragged = places(_NAME, given.lhs_ragged_dimensions, x.ndim)
    groups = places(_NAME, given.rhs_group_dimensions, y.ndim)
    stays = not {*ragged} & {*sums[0], *batch[0]}
    fits = len(ragged) == 1 and len(groups) == stays and sizes.ndim > 0
    if not fits or group_offset is not None or {*groups} & {*sums[1], *batch[1]}:
        raise ValueError(
            f"{_NAME} of {x.type} and {y.type}, in groups of {sizes.type}: expected "
            f"one ragged axis, and one of groups if that stays, got {given!r}, "
            f"group_offset={group_offset!r}{at(user_source())}"
        )
    if not dtypes.is_integer(sizes.dtype):
        raise TypeError(
            f"{_NAME}: group_sizes are integers, got {sizes.dtype}{at(user_source())}"
        )
    options = precision, preferred_element_type
    if ragged[0] in batch[0]:
        return dot_general(x, y, given.dot_dimension_numbers, *options)
    counts = cast(sizes, dtypes.int32)
    if stays:
        return _left(x, y, counts, (sums, batch, ragged, groups), options)
    return _summed(x, y, counts, (sums, batch, ragged), options)


def _left(x: Any, y: Any, sizes: Any, axes: Any, options: Any) -> Any:
    """Each place of an axis that stays meets what there is for its group."""
    (x_sum, y_sum), (x_batch, y_batch), ragged, groups = axes
    free, others = _rest(x, x_sum, x_batch), _rest(y, y_sum, y_batch, groups)
    i = free.index(ragged[0])
    lead = *x_batch, *free[:i]
    counts = _counts(sizes, _lengths(x, lead), _lengths(x, free[i + 1 :]))
    if counts.shape[-1] != y.shape[groups[0]]:
        raise ValueError(
            f"{_NAME}: {counts.shape[-1]} groups, and matrices for "
            f"{y.shape[groups[0]]}{at(user_source())}"
        )
    rows = _arranged(x, lead, free[i:], x_sum)
    matrices = _arranged(y, y_batch, groups, y_sum, others)

    def product(x: Any, w: Any, n: Any) -> Any:
        return by_rows(x, w, n, *options)

    mapped = _mapped(product, len(x_batch), i, (0, None, 0))
    out = mapped(rows, matrices, counts)
    return out.reshape(*_lengths(x, (*x_batch, *free)), *_lengths(y, others))


def _summed(x: Any, y: Any, sizes: Any, axes: Any, options: Any) -> Any:
    """Each group of a summed axis is a sum for itself."""
    (x_sum, y_sum), (x_batch, y_batch), ragged = axes
    free, others = _rest(x, x_sum, x_batch), _rest(y, y_sum, y_batch)
    i, first = x_sum.index(ragged[0]), len(x_batch)
    lead = *x_batch, *x_sum[:i]
    counts = _counts(sizes, _lengths(x, lead), _lengths(x, x_sum[i + 1 :]))
    left = _arranged(x, lead, x_sum[i:], free)
    right = _arranged(y, (*y_batch, *y_sum[:i]), y_sum[i:], others)

    def product(x: Any, y: Any, n: Any) -> Any:
        return _sums_of_groups(x, y, n, options)

    out = _mapped(product, first, i, (0, 0, 0))(left, right, counts)
    out = moveaxis(out.sum(tuple(range(first, first + i))) if i else out, first, 0)
    shape = *_lengths(x, (*x_batch, *free)), *_lengths(y, others)
    return out.reshape(out.shape[0], *shape)


def _rest(x: Any, *taken: Ints) -> list[int]:
    """The other axes."""
    return [i for i in range(x.ndim) if all(i not in axes for axes in taken)]


def _lengths(x: Any, axes: Sequence[int]) -> list[int]:
    return [x.shape[i] for i in axes]


def _arranged(x: Any, lead: Sequence[int], *merged: Sequence[int]) -> Any:
    """The array with these axes first, and of each of the following groups one axis."""
    order = [*lead, *[i for axes in merged for i in axes]]
    lengths = [math.prod(_lengths(x, axes)) for axes in merged]
    return transpose(x, order).reshape(*_lengths(x, lead), *lengths)


def _counts(sizes: Any, lead: list[int], inner: list[int]) -> Any:
    """The sizes with all leading axes, of places with so many others in them."""
    shape = *lead, sizes.shape[-1]
    if sizes.ndim > 1 and sizes.shape != shape:
        raise ValueError(
            f"{_NAME}: group_sizes have shape {sizes.shape}, expected {shape} or "
            f"{shape[-1:]}{at(user_source())}"
        )
    return broadcast_to_shape(sizes, shape) * math.prod(inner)


def _mapped(
    function: Callable[..., Any], batch: int, before: int, axes: tuple[Any, ...]
) -> Callable[..., Any]:
    """A function of matrices for some axes of a batch, and (by `axes`) some more."""
    for _ in range(before):
        function = vmap(function, axes)
    for _ in range(batch):
        function = vmap(function)
    return function


def _sums_of_groups(x: Any, y: Any, sizes: Any, options: Any) -> Any:
    """``x[rows].T @ y[rows]`` for the rows of each group."""
    owner, rows, _, ends = blocks_of(sizes, x.shape[0])
    inside = (rows < ends[owner][:, None])[..., None]
    parts = [take(a, rows, axis=0, mode="clip") for a in (x, y)]
    left, right = (where(inside, a, a.dtype.type(0)) for a in parts)
    products = dot_general(left, right, (((1,), (1,)), ((0,), (0,))), *options)
    none = zeros((sizes.shape[0], *products.shape[1:]), products.dtype)
    return none.at[owner].add(products)
