"""New arrays with elements put in, left out, or replaced.

Where NumPy's function of the name writes into its argument, this one returns the new
array, and wants to be told `inplace=False`: arrays never change.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from treadle import dtypes
from treadle.dims import is_dim
from treadle.errors import TracerError, at, user_source
from treadle.np.at import Place
from treadle.np.binary import clip, mod, select_where
from treadle.np.index import counted, position
from treadle.np.indexing import getitem
from treadle.np.join import concatenate
from treadle.np.operands import (
    PYTHON_SCALARS,
    ArrayLike,
    as_array,
    as_shape,
    broadcast_to_shape,
    cast,
    common_shape,
    none,
    one_axis,
    operand,
)
from treadle.np.places import first_places, known
from treadle.np.shapes import moveaxis, ravel, reshape
from treadle.ops import cumulative
from treadle.ops.movement import full
from treadle.ops.shape import iota
from treadle.ops.sort import argsort
from treadle.run.array import Array
from treadle.trace.value import Tracer, Value, typeof

_INPLACE = (
    "{0} can't change its argument: arrays are immutable{1}\n"
    "Take the array that it returns: `x = tnp.{0}(x, ..., inplace=False)`."
)


def _not_in_place(name: str, inplace: bool) -> None:
    if inplace:
        raise ValueError(_INPLACE.format(name, at(user_source())))


def _flattened(name: str, x: Any, axis: int | None) -> tuple[Any, int]:
    x = as_array(operand(name, x))
    if axis is None:
        return ravel(x), 0
    return x, one_axis(name, axis, x.ndim)


# More elements, or fewer --------------------------------------------------------------

_FEW = 16
"""Pieces that arrays are taken apart into. More than that are read element by
element."""


def insert(
    x: ArrayLike, places: Any, values: ArrayLike, axis: int | None = None
) -> Array:
    """x with values put in before places along an axis (None: of the flat array).

    Args:
      places: an integer, a slice, or integers: the places before which the values go,
        counted in x. One takes all values; several take one each.

    >>> import treadle.numpy as tnp
    >>> tnp.insert(tnp.array([1, 2, 3]), 1, 9)
    Array([1, 9, 2, 3], dtype=int32)
    """
    array, number = _flattened("insert", x, axis)
    n = array.shape[number]
    if isinstance(values, list | tuple):
        values = np.asarray(values)
    new = as_array(cast(operand("insert", values), array.dtype))
    new = reshape(new, (1,) * (array.ndim - new.ndim) + new.shape)
    where = _as_places("insert", places, n)
    scalar = not typeof(where).ndim
    # A list of one place takes all values, too.
    one = scalar or (not is_dim(where.shape[0]) and where.shape[0] == 1)
    if one:
        if scalar and typeof(operand("insert", values)).ndim:
            new = moveaxis(new, 0, number)
        where = where.reshape(())
        count = new.shape[number]
    else:
        (count,) = typeof(where).shape
    rest = array.shape[:number], array.shape[number + 1 :]
    new = broadcast_to_shape(new, (*rest[0], count, *rest[1]))
    if isinstance(where, np.ndarray) and (one or where.size <= _FEW):
        return _joined(array, new, where, number)
    order = _made_room(where, n, count) if one else _merged(where, n, count)
    return getitem(concatenate([array, new], number), (*(slice(None),) * number, order))


def _joined(array: Any, new: Any, where: np.ndarray, axis: int) -> Any:
    """An array with new elements before known places: pieces side by side."""
    before = (slice(None),) * axis

    def part(x: Any, first: int | None, last: int | None) -> Any:
        return getitem(x, (*before, slice(first, last)))

    if not where.ndim:
        at = int(where)
        return concatenate([part(array, None, at), new, part(array, at, None)], axis)
    pieces, done = [], 0
    for k in np.argsort(where, kind="stable").tolist():
        at = int(where[k])
        pieces += [part(array, done, at), part(new, k, k + 1)]
        done = at
    return concatenate([*pieces, part(array, done, None)], axis)


def _made_room(where: Any, n: int, count: int) -> Any:
    """The same order where all of the new elements come before one place."""
    place = iota(shape=(n + count,), axis=0, dtype=dtypes.of_index(n + count))
    at = cast(where, place.dtype)
    beyond = select_where(place < at + count, place - at + n, place - count)
    return select_where(place < at, place, beyond)


def _as_places(name: str, places: Any, n: int) -> Any:
    """Places before elements, from 0 to n: known ones as NumPy's."""
    if isinstance(places, slice):
        return counted(n)[places]
    if isinstance(places, list | tuple | range):
        places = np.asarray(places, None if len(places) else np.int32)
    places = operand(name, places)
    if typeof(places).dtype == dtypes.bool_:
        places = np.flatnonzero(known(name, places))
    if not isinstance(places, Tracer) and not is_dim(n) and not is_dim(places):
        places = np.asarray(places)
        if places.size and not (-n <= places.min() and places.max() <= n):
            raise IndexError(
                f"{name}: place {places.ravel()[0]} is out of range for an axis of "
                f"length {n}{at(user_source())}"
            )
        return np.where(places < 0, places + n, places)
    dtype = dtypes.of_index(n)
    places = cast(places, dtype)
    return select_where(places < 0, places + cast(n, dtype), places)


def _merged(where: Any, n: int, count: int) -> Any:
    """The order in which n old elements and `count` new ones, which follow them, come
    when each new one is put before its place."""
    if isinstance(where, np.ndarray):
        keys = np.concatenate([2 * np.arange(n) + 1, 2 * where])
        return np.argsort(keys, kind="stable")
    old = 2 * iota(shape=(n,), axis=0, dtype=where.dtype) + 1
    return argsort(concatenate([old, 2 * where]), 0)


def delete(
    x: ArrayLike,
    places: Any,
    axis: int | None = None,
    *,
    assume_unique_indices: bool = False,
) -> Array:
    """x without some elements of an axis (None: of the flat array).

    Args:
      places: an integer, a slice, integers, or a mask. They must be known while
        tracing, but for a single integer.
      assume_unique_indices: several integers may be traced if no two of them are equal:
        the result's length is known then.

    >>> import treadle.numpy as tnp
    >>> tnp.delete(tnp.array([1, 2, 3]), 1)
    Array([1, 3], dtype=int32)
    """
    array, number = _flattened("delete", x, axis)
    n = array.shape[number]
    before = (slice(None),) * number
    if isinstance(places, list | tuple | range):
        places = np.asarray(places, None if len(places) else np.int32)
    if isinstance(places, slice):
        places = counted(n)[places]
    if not isinstance(places, Tracer) and not is_dim(n) and not is_dim(places):
        kept = np.delete(np.arange(n), np.asarray(operand("delete", places)))
        ends = np.flatnonzero(np.diff(kept) != 1) + 1
        if len(ends) > _FEW or not kept.size:
            return getitem(array, (*before, kept))
        runs = [slice(int(run[0]), int(run[-1]) + 1) for run in np.split(kept, ends)]
        return concatenate([getitem(array, (*before, run)) for run in runs], number)
    gone = position(places, number, array.shape)
    if not typeof(gone).ndim:
        rest = iota(shape=(n - 1,), axis=0, dtype=dtypes.of_index(n))
        return getitem(array, (*before, rest + cast(rest >= gone, rest.dtype)))
    if not assume_unique_indices:
        raise TracerError(
            f"delete: how many different places {typeof(places)} names is not known "
            f"while tracing{at(user_source())}\n"
            "Pass `assume_unique_indices=True` if no two of them are equal."
        )
    mask = Place(full((n,), True, dtypes.bool_), gone).set(False)
    kept, _ = first_places(mask, n - typeof(gone).size)
    return getitem(array, (*before, kept))


def resize(x: ArrayLike, shape: int | Sequence[int]) -> Array:
    """An array of a shape with the elements of the flat x, as often as they are needed.

    >>> import treadle.numpy as tnp
    >>> tnp.resize(tnp.array([1, 2, 3]), (2, 2)).tolist()
    [[1, 2], [3, 1]]
    """
    array = as_array(ravel(x))
    wanted = as_shape("resize", shape)
    if none(array.size):
        return full(wanted, 0, array.dtype)
    size = math.prod(wanted)
    places = mod(iota(shape=(size,), axis=0, dtype=dtypes.of_index(size)), array.size)
    return reshape(getitem(array, places), wanted)


def trim_zeros(x: ArrayLike, trim: str = "fb", axis: Any = None) -> Array:
    """x without the zeros at the ends of its axes. Not under `jit`.

    Args:
      trim: "f" for the front, "b" for the back, "fb" for both.
      axis: which axes; all of them, by default.
    """
    array = as_array(operand("trim_zeros", x))
    sides = trim.lower()
    if not set(sides) <= set("fb"):
        raise ValueError(
            f"trim_zeros: trim is made of 'f' and 'b', got {sides!r}{at(user_source())}"
        )
    found = np.nonzero(known("trim_zeros", array, "trim"))
    axes = range(array.ndim) if axis is None else axis
    axes = axes if isinstance(axes, Sequence) else [axes]
    chosen = [one_axis("trim_zeros", a, array.ndim) for a in axes]
    region = []
    for a, n in enumerate(array.shape):
        places = found[a]
        first, last = (int(places.min()), int(places.max())) if places.size else (n, -1)
        start = first if a in chosen and "f" in sides else 0
        stop = last + 1 if a in chosen and "b" in sides else n
        region.append(slice(start, max(start, stop)))
    return getitem(array, tuple(region))


# Other elements -----------------------------------------------------------------------


def put(
    x: ArrayLike,
    places: ArrayLike,
    values: ArrayLike,
    mode: str = "raise",
    *,
    inplace: bool = True,
) -> Array:
    """x with the elements at places of the flat array replaced.

    Args:
      values: as many as there are places; fewer are repeated.
      mode: what is meant by a place out of range: as in ``x.at`` ("raise"), the nearest
        element ("clip"), or counted on from the other end ("wrap").
      inplace: must be False.
    """
    _not_in_place("put", inplace)
    array = as_array(operand("put", x))
    if mode not in ("raise", "clip", "wrap"):
        raise ValueError(
            f"put: mode {mode!r} is none of 'raise', 'clip' and 'wrap'"
            f"{at(user_source())}"
        )
    where = np.asarray(places) if isinstance(places, list | tuple) else places
    where = (
        ravel(operand("put", where)) if isinstance(where, Value) else np.ravel(where)
    )
    if mode == "clip":
        where = clip(where, 0, max(array.size - 1, 0))
    elif mode == "wrap":
        where = mod(where, array.size)
    found = np.asarray(values) if isinstance(values, list | tuple) else values
    if type(found) in PYTHON_SCALARS:
        found = cast(found, array.dtype)
    new = resize(found, where.shape)
    return reshape(Place(ravel(array), where).set(new), array.shape)


def place(
    x: ArrayLike, mask: ArrayLike, values: ArrayLike, *, inplace: bool = True
) -> Array:
    """x with the elements where a mask is true replaced: the first by the first value,
    and so on; if there are fewer values, they are repeated.

    Args:
      inplace: must be False.
    """
    _not_in_place("place", inplace)
    array, where = as_array(operand("place", x)), as_array(operand("place", mask))
    values = np.asarray(values) if isinstance(values, list | tuple) else values
    new = as_array(cast(ravel(operand("place", values)), array.dtype))
    if where.size != array.size or none(new.size):
        raise ValueError(
            f"place: a mask of shape {where.shape} and {new.size} values for an array "
            f"of shape {array.shape}{at(user_source())}"
        )
    chosen = cast(reshape(where, (array.size,)), dtypes.bool_)
    if none(array.size):
        return array
    counts = cast(chosen, dtypes.of_index(array.size))
    number = cumulative.cumsum(counts, axis=0, reverse=False) - 1
    found = getitem(new, mod(number, new.size))
    return reshape(select_where(chosen, found, ravel(array)), array.shape)


def put_along_axis(
    x: ArrayLike,
    indices: ArrayLike,
    values: ArrayLike,
    axis: int | None,
    inplace: bool = True,
    *,
    mode: str = "drop",
) -> Array:
    """x with one element replaced for each index along an axis: what
    `take_along_axis` reads, this writes.

    Args:
      inplace: must be False.
      mode: what is meant by an index out of range, as in ``x.at[indices].set``.

    >>> import treadle.numpy as tnp
    >>> x = tnp.zeros((2, 2))
    >>> tnp.put_along_axis(x, tnp.array([[1], [0]]), 7.0, 1, inplace=False).tolist()
    [[0.0, 7.0], [7.0, 0.0]]
    """
    _not_in_place("put_along_axis", inplace)
    whole = as_array(operand("put_along_axis", x)).shape
    flat, number = _flattened("put_along_axis", x, axis)
    indices = operand("put_along_axis", indices)
    shape = typeof(indices).shape
    if len(shape) != flat.ndim:
        raise ValueError(
            f"put_along_axis: indices of shape {shape} for an array of shape "
            f"{flat.shape}: they must have as many axes{at(user_source())}\n"
            "Give them a new one: `indices[..., None]`."
        )
    lined = [(*s[:number], 1, *s[number + 1 :]) for s in (flat.shape, shape)]
    shape_of_all = common_shape("put_along_axis", lined)
    grid: list[Any] = []
    for a, n in enumerate(shape_of_all):
        aligned = [1] * flat.ndim
        aligned[a] = n
        grid.append(reshape(counted(n), tuple(aligned)) if a != number else indices)
    return reshape(Place(flat, tuple(grid)).set(values, mode=mode), whole)


def fill_diagonal(
    x: ArrayLike, value: ArrayLike, wrap: bool = False, *, inplace: bool = True
) -> Array:
    """x with its main diagonal replaced: the elements whose indices are all equal.

    Args:
      value: a number, or numbers that are repeated along the diagonal.
      wrap: whether the diagonal of a tall matrix begins anew after it has ended.
      inplace: must be False.
    """
    _not_in_place("fill_diagonal", inplace)
    array = as_array(operand("fill_diagonal", x))
    if array.ndim < 2 or (array.ndim > 2 and len(set(array.shape)) > 1):
        raise ValueError(
            f"fill_diagonal: {array.type} has no diagonal: a matrix, or axes of equal "
            f"lengths, are needed{at(user_source())}"
        )
    given = np.asarray(value) if isinstance(value, list | tuple) else value
    new = as_array(ravel(cast(operand("fill_diagonal", given), array.dtype)))
    if none(array.size):
        return array
    if array.ndim == 2:
        step = array.shape[1] + 1
        end = array.size if wrap else array.shape[1] * array.shape[1]
    else:
        n = array.shape[0]
        step, end = sum([n**k for k in range(array.ndim)]), array.size
    dtype = dtypes.of_index(array.size + step)
    place = iota(shape=(array.size,), axis=0, dtype=dtype)
    on = (mod(place, step) == 0) & (place < end)
    found = getitem(new, mod(place // step, new.size))
    return reshape(select_where(on, found, ravel(array)), array.shape)
