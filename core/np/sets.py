"""Arrays as sets: their different elements, and what two have in common.

As with `nonzero`, a traced program says with `size=` how many elements the result has.
"""

from __future__ import annotations

from typing import Any, Literal, NamedTuple, overload

import numpy as np

from treadle import dtypes
from treadle.dims import is_dim
from treadle.np.elementwise import isnan, logical_not
from treadle.np.indexing import getitem
from treadle.np.join import concatenate, unstack
from treadle.np.operands import (
    ArrayLike,
    agreed,
    as_array,
    cast,
    none,
    one_axis,
    operand,
)
from treadle.np.places import (
    as_size,
    first_places,
    index_dtype,
    indices_of,
    known,
    take_where,
)
from treadle.np.search import searchsorted
from treadle.np.shapes import moveaxis, ravel, reshape
from treadle.ops import cumulative
from treadle.ops import sort as sorts
from treadle.ops.compare import bitwise_and, bitwise_or, eq, ne, select
from treadle.ops.movement import broadcast_in_dim, full
from treadle.ops.reduce import reduce_or
from treadle.ops.scatter import scatter_add, scatter_set
from treadle.ops.shape import iota
from treadle.run.array import Array
from treadle.trace.value import typeof

_FLAT = {"axes": (0,), "sizes": (None,), "batch_dims": 0, "mode": "drop"}


class _Sorted(NamedTuple):
    """Rows in ascending order: where each was, and whether it is the first of its
    kind."""

    order: Any
    first: Any


def _sorted_rows(rows: Any, equal_nan: bool) -> _Sorted:
    """Sorts the rows of a matrix, or the elements of a vector."""
    columns = list(unstack(rows, 1)) if typeof(rows).ndim > 1 else [rows]
    n = typeof(rows).shape[0]
    place = iota(shape=(n,), axis=0, dtype=dtypes.of_index(n))
    if not columns or none(n):
        return _Sorted(place, eq(place, 0))
    *keys, order = sorts.sort(*columns, place, axis=0, num_keys=len(columns))
    other = full((n - 1,), False, dtypes.bool_)
    for key in keys:
        differs = ne(key[1:], key[:-1])
        if equal_nan and dtypes.is_differentiable(key.dtype):
            both = bitwise_and(isnan(key[1:]), isnan(key[:-1]))
            differs = bitwise_and(differs, logical_not(both))
        other = bitwise_or(other, differs)
    return _Sorted(order, concatenate([full((1,), True, dtypes.bool_), other]))


@overload
def unique(
    x: ArrayLike,
    return_index: Literal[False] = False,
    return_inverse: Literal[False] = False,
    return_counts: Literal[False] = False,
    axis: int | None = None,
    *,
    equal_nan: bool = True,
    size: int | None = None,
    fill_value: ArrayLike | None = None,
    sorted: bool = True,
) -> Array: ...
@overload
def unique(
    x: ArrayLike,
    return_index: Literal[True],
    return_inverse: bool = False,
    return_counts: bool = False,
    axis: int | None = None,
    *,
    equal_nan: bool = True,
    size: int | None = None,
    fill_value: ArrayLike | None = None,
    sorted: bool = True,
) -> tuple[Array, ...]: ...
@overload
def unique(
    x: ArrayLike,
    *,
    return_index: bool = False,
    return_inverse: Literal[True],
    return_counts: bool = False,
    axis: int | None = None,
    equal_nan: bool = True,
    size: int | None = None,
    fill_value: ArrayLike | None = None,
    sorted: bool = True,
) -> tuple[Array, ...]: ...
@overload
def unique(
    x: ArrayLike,
    *,
    return_index: bool = False,
    return_inverse: bool = False,
    return_counts: Literal[True],
    axis: int | None = None,
    equal_nan: bool = True,
    size: int | None = None,
    fill_value: ArrayLike | None = None,
    sorted: bool = True,
) -> tuple[Array, ...]: ...
@overload
def unique(
    x: ArrayLike,
    return_index: bool = False,
    return_inverse: bool = False,
    return_counts: bool = False,
    axis: int | None = None,
    *,
    equal_nan: bool = True,
    size: int | None = None,
    fill_value: ArrayLike | None = None,
    sorted: bool = True,
) -> Any: ...
def unique(
    x: ArrayLike,
    return_index: bool = False,
    return_inverse: bool = False,
    return_counts: bool = False,
    axis: int | None = None,
    *,
    equal_nan: bool = True,
    size: int | None = None,
    fill_value: ArrayLike | None = None,
    sorted: bool = True,
) -> Any:
    """The different elements in ascending order (or slices along an axis).

    Args:
      return_index: also the index of each one's first occurrence.
      return_inverse: also the indices that rebuild x.
      return_counts: also how often each occurs.
      equal_nan: whether all that is not a number counts as one element.
      size: how many the result has; needed under `jit`. If there are more, the first
        stay.
      fill_value: what fills the rest; by default the smallest element.
      sorted: has no effect: they come in order in any case.

    >>> import treadle.numpy as tnp
    >>> tnp.unique(tnp.array([3, 1, 3]), return_counts=True)
    (Array([1, 3], dtype=int32), Array([1, 2], dtype=int32))
    >>> tnp.unique(tnp.array([3, 1, 3]), size=3, fill_value=0)
    Array([1, 3, 0], dtype=int32)
    """
    array = as_array(operand("unique", x))
    if axis is None:
        rows, shape = ravel(array), array.shape
    else:
        rows = moveaxis(array, one_axis("unique", axis, array.ndim), 0)
        shape = (rows.shape[0],)
    if size is None:
        found = _known_unique(rows, equal_nan)
        out = [getitem(rows, found[0]), *[indices_of(i, rows.shape[0]) for i in found]]
    else:
        out = _sized_unique(rows, equal_nan, as_size("unique", size), fill_value)
    values, index, inverse, counts = out
    if axis is not None:
        values = moveaxis(values, 0, axis)
    asked = [
        value
        for value, wanted in [
            (index, return_index),
            (reshape(inverse, shape), return_inverse),
            (counts, return_counts),
        ]
        if wanted
    ]
    return (values, *asked) if asked else values


def _known_unique(rows: Any, equal_nan: bool) -> Any:
    """The index, inverse and counts of different rows, by NumPy."""
    values = known("unique", rows)
    if values.dtype in (dtypes.bfloat16, dtypes.float16):
        values = values.astype(np.float32)
    options: Any = {"equal_nan": equal_nan, "axis": None if values.ndim == 1 else 0}
    _, index, inverse, counts = np.unique(values, True, True, True, **options)
    return index, inverse.reshape(-1), counts


def _sized_unique(rows: Any, equal_nan: bool, size: int, fill: Any) -> list[Any]:
    n = rows.shape[0]
    dtype = index_dtype(n, size)
    if none(n) or none(size):
        value = full((size, *rows.shape[1:]), 0, rows.dtype)
        value = value if fill is None else value + cast(fill, rows.dtype)
        return [value, *[full((m,), 0, dtype) for m in (size, n, size)]]
    flat = rows if rows.ndim == 1 else reshape(rows, (n, -1))
    order, first = _sorted_rows(flat, equal_nan)
    group = cumulative.cumsum(cast(first, dtype), axis=0, reverse=False) - 1
    starts, there = first_places(first, size)
    index = getitem(order, starts)
    nothing = full((size,), 0, dtype)
    counts = scatter_add(nothing, full((n,), 1, dtype), group, **_FLAT)
    inverse = scatter_set(full((n,), 0, dtype), group, order, **_FLAT)
    return [take_where(rows, index, there, fill), index, inverse, counts]


# The array API's ----------------------------------------------------------------------


class UniqueAll(NamedTuple):
    """What `unique_all` returns."""

    values: Array
    indices: Array
    inverse_indices: Array
    counts: Array


class UniqueCounts(NamedTuple):
    """What `unique_counts` returns."""

    values: Array
    counts: Array


class UniqueInverse(NamedTuple):
    """What `unique_inverse` returns."""

    values: Array
    inverse_indices: Array


def unique_all(
    x: ArrayLike, /, *, size: int | None = None, fill_value: ArrayLike | None = None
) -> UniqueAll:
    """The different elements, the indices of their first occurrences, the indices that
    rebuild x, and their counts. Not-a-number differs from itself; `size` is as in
    `unique`."""
    options: Any = {"equal_nan": False, "size": size, "fill_value": fill_value}
    return UniqueAll(*unique(x, True, True, True, **options))


def unique_counts(
    x: ArrayLike, /, *, size: int | None = None, fill_value: ArrayLike | None = None
) -> UniqueCounts:
    """The different elements and their counts, as in `unique_all`."""
    found = unique_all(x, size=size, fill_value=fill_value)
    return UniqueCounts(found.values, found.counts)


def unique_inverse(
    x: ArrayLike, /, *, size: int | None = None, fill_value: ArrayLike | None = None
) -> UniqueInverse:
    """The different elements and the indices that rebuild x, as in `unique_all`."""
    found = unique_all(x, size=size, fill_value=fill_value)
    return UniqueInverse(found.values, found.inverse_indices)


def unique_values(
    x: ArrayLike, /, *, size: int | None = None, fill_value: ArrayLike | None = None
) -> Array:
    """The different elements, as in `unique_all`."""
    return unique_all(x, size=size, fill_value=fill_value).values


# Two sets -----------------------------------------------------------------------------

_FEW = 256
"""Values that every element is compared with. More of them are sorted."""


def isin(
    x: ArrayLike, values: ArrayLike, assume_unique: bool = False, invert: bool = False
) -> Array:
    """Which elements of x occur among the values (or, inverted, do not).

    `assume_unique` changes nothing: the values are looked up in any case.
    """
    x, values = agreed("isin", x, values)
    values = ravel(values)
    t, n = typeof(x), typeof(values).size
    if is_dim(n) or n <= _FEW or dtypes.is_complex(t.dtype):
        # Values come first, so that vectors run along x.
        wide = (n, *t.shape)
        same = eq(
            broadcast_in_dim(x, shape=wide, dims=tuple(range(1, t.ndim + 1))),
            broadcast_in_dim(values, shape=wide, dims=(0,)),
        )
        found = reduce_or(same, axes=(0,))
    else:
        ordered = sorts.sort(values, axis=0, num_keys=1)[0]
        found = eq(getitem(ordered, searchsorted(ordered, x)), x)
    return logical_not(found) if invert else found


def union1d(
    x: ArrayLike,
    y: ArrayLike,
    *,
    size: int | None = None,
    fill_value: ArrayLike | None = None,
) -> Array:
    """The different elements of both arrays in ascending order; `size` is as in
    `unique`."""
    both = concatenate([*map(ravel, agreed("union1d", x, y))])
    _need_size("union1d", size, both)
    return unique(both, size=size, fill_value=fill_value)


def _need_size(name: str, size: int | None, *arrays: Any) -> None:
    if size is None:
        for x in arrays:
            known(name, x)


def _chosen(name: str, x: Any, keep: Any, size: Any, fill: Any) -> tuple[Any, Any, Any]:
    """The different elements of a vector that are to be kept, as an ascending vector;
    the indices of their first occurrences, and which of these there are."""
    if none(x.size):
        value = full((size or 0,), 0, x.dtype)
        value = value if fill is None else value + cast(fill, x.dtype)
        nothing = full((size or 0,), 0, dtypes.int32)
        return value, nothing, None if size is None else cast(nothing, dtypes.bool_)
    order, first = _sorted_rows(x, True)
    mask = bitwise_and(first, getitem(keep, order))
    if size is None:
        index = getitem(order, np.flatnonzero(known(name, mask)))
        return getitem(x, index), index, None
    places, there = first_places(mask, as_size(name, size))
    index = getitem(order, places)
    return take_where(x, index, there, fill), index, there


@overload
def intersect1d(
    x: ArrayLike,
    y: ArrayLike,
    assume_unique: bool = False,
    return_indices: Literal[False] = False,
    *,
    size: int | None = None,
    fill_value: ArrayLike | None = None,
) -> Array: ...
@overload
def intersect1d(
    x: ArrayLike,
    y: ArrayLike,
    assume_unique: bool = False,
    *,
    return_indices: Literal[True],
    size: int | None = None,
    fill_value: ArrayLike | None = None,
) -> tuple[Array, Array, Array]: ...
def intersect1d(
    x: ArrayLike,
    y: ArrayLike,
    assume_unique: bool = False,
    return_indices: bool = False,
    *,
    size: int | None = None,
    fill_value: ArrayLike | None = None,
) -> Any:
    """The different elements that both arrays have, in ascending order.

    Args:
      return_indices: also where each first occurs in the flat x and in the flat y;
        beyond the last common element, the length of the array.
      size, fill_value: as in `unique`.
    """
    array, b = map(ravel, agreed("intersect1d", x, y))
    _need_size("intersect1d", size, array, b)
    if none(array.size) or none(b.size):
        array = b = array[:0]
    values, index, there = _chosen(
        "intersect1d", array, isin(array, b), size, fill_value
    )
    if not return_indices:
        return values
    if none(b.size):
        return values, index, index
    order = sorts.argsort(b, 0)
    other = getitem(order, searchsorted(getitem(b, order), getitem(array, index)))
    if there is None:
        return values, index, other
    return values, select(there, index, array.size), select(there, other, b.size)


def setdiff1d(
    x: ArrayLike,
    y: ArrayLike,
    assume_unique: bool = False,
    *,
    size: int | None = None,
    fill_value: ArrayLike | None = None,
) -> Array:
    """The different elements of x that y does not have, in ascending order.

    Args:
      assume_unique: leave the elements of x in their order, and equal ones among them.
      size, fill_value: as in `unique`; the fill value is 0 by default.
    """
    array, other = as_array(ravel(x)), as_array(ravel(y))
    _need_size("setdiff1d", size, array, other)
    fill = 0 if fill_value is None else fill_value
    keep = isin(array, y, invert=True)
    if not assume_unique and not none(array.size):
        return _chosen("setdiff1d", array, keep, size, fill)[0]
    if size is None:
        return getitem(array, np.flatnonzero(known("setdiff1d", keep)))
    places, there = first_places(keep, as_size("setdiff1d", size))
    if none(array.size):
        return full((size,), 0, array.dtype) + cast(fill, array.dtype)
    return take_where(array, places, there, fill)


def setxor1d(
    x: ArrayLike,
    y: ArrayLike,
    assume_unique: bool = False,
    *,
    size: int | None = None,
    fill_value: ArrayLike | None = None,
) -> Array:
    """The different elements that one of the two arrays has, in ascending order.

    `assume_unique` changes nothing; `size` and `fill_value` are as in `unique`.
    """
    x, y = map(ravel, agreed("setxor1d", x, y))
    _need_size("setxor1d", size, x, y)
    both = concatenate([x, y])
    if none(typeof(both).size):
        return both if size is None else full((size,), fill_value or 0, both.dtype)
    # Not-a-number is in neither.
    keep = logical_not(bitwise_and(isin(both, x), isin(both, y)))
    return _chosen("setxor1d", both, keep, size, fill_value)[0]
