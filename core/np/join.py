"""Putting arrays together, and taking them apart."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate, pairwise
from typing import Any

import numpy as np

from treadle import dtypes
from treadle.dims import equal_shapes
from treadle.dtypes import DTypeLike
from treadle.errors import at, user_source
from treadle.np.operands import (
    ArrayLike,
    agreed,
    as_array,
    cast,
    one_axis,
    operand,
    several,
    static_integer,
)
from treadle.np.shapes import (
    atleast_1d,
    atleast_2d,
    atleast_3d,
    expand_dims,
    ravel,
    reshape,
)
from treadle.ops import shape as ops
from treadle.run.array import Array
from treadle.trace.value import Value, typeof

Arrays = Sequence[ArrayLike] | Array


def _members(name: str, arrays: Any, dtype: DTypeLike | None = None) -> list[Any]:
    """The arrays of a sequence, or along the first axis of an array, with one dtype."""
    if isinstance(arrays, Value | np.ndarray | list | tuple):
        parts = list(arrays)
    else:
        raise TypeError(
            f"{name} takes a list or tuple of arrays, got {type(arrays).__name__}"
            f"{at(user_source())}"
        )
    if not parts:
        raise ValueError(f"{name} of no arrays{at(user_source())}")
    if dtype is None:
        return agreed(name, *parts)
    want = dtypes.canonical(dtype)
    return [as_array(cast(operand(name, x), want)) for x in parts]


def concatenate(
    arrays: Arrays, axis: int | None = 0, dtype: DTypeLike | None = None
) -> Array:
    """Joins arrays along an axis that they have (None: flattened).

    Raises:
      ValueError: if they differ in another axis.
    """
    if isinstance(axis, Value | np.ndarray | list | tuple):
        raise TypeError(
            f"concatenate takes the arrays as one list, and an axis; got "
            f"{type(axis).__name__} {axis!r:.60} as the axis{at(user_source())}\n"
            "Write `concatenate([a, b])`."
        )
    parts = _members("concatenate", arrays, dtype)
    if axis is None:
        parts, axis = [ravel(x) for x in parts], 0
    return _concatenated("concatenate", parts, axis)


concat = concatenate


def _concatenated(name: str, parts: Sequence[Any], axis: int) -> Any:
    shapes = [typeof(x).shape for x in parts]
    first = shapes[0]
    if not first:
        raise ValueError(
            f"{name}: scalars have no axis to join along; use `tnp.stack`"
            f"{at(user_source())}"
        )
    number = one_axis(name, axis, len(first))
    for s in shapes:
        if len(s) != len(first) or any(
            a != b for i, (a, b) in enumerate(zip(s, first, strict=True)) if i != number
        ):
            raise ValueError(
                f"{name} along axis {axis}: shapes {' and '.join(map(str, shapes))} "
                f"differ in other axes{at(user_source())}"
            )
    return (
        ops.concatenate(*parts, axis=number) if len(parts) > 1 else as_array(parts[0])
    )


def stack(arrays: Arrays, axis: int = 0, *, dtype: DTypeLike | None = None) -> Array:
    """Joins arrays of one shape along a new axis."""
    parts = _members("stack", arrays, dtype)
    shapes = [typeof(x).shape for x in parts]
    if not all([equal_shapes(s, shapes[0]) for s in shapes]):
        raise ValueError(
            f"stack: shapes {' and '.join(map(str, shapes))} differ{at(user_source())}"
        )
    number = one_axis("stack", axis, len(shapes[0]) + 1)
    return _concatenated("stack", [expand_dims(x, number) for x in parts], number)


def hstack(arrays: Arrays, *, dtype: DTypeLike | None = None) -> Array:
    """Joins along the second axis (vectors: along their only one)."""
    parts = [atleast_1d(x) for x in _members("hstack", arrays, dtype)]
    return _concatenated("hstack", parts, 0 if parts[0].ndim == 1 else 1)


def vstack(arrays: Arrays, *, dtype: DTypeLike | None = None) -> Array:
    """Joins along the first axis; vectors are rows."""
    return _concatenated(
        "vstack", [atleast_2d(x) for x in _members("vstack", arrays, dtype)], 0
    )


def column_stack(arrays: Arrays) -> Array:
    """Joins along the second axis; vectors are columns."""
    parts = [
        x if typeof(x).ndim > 1 else reshape(x, (-1, 1))
        for x in _members("column_stack", arrays)
    ]
    return _concatenated("column_stack", parts, 1)


def array_split(
    x: ArrayLike, sections: int | Sequence[int], axis: int = 0
) -> list[Array]:
    """Cuts into nearly equal parts, or at the given indices."""
    x = operand("array_split", x)
    t = typeof(x)
    number = one_axis("array_split", axis, t.ndim)
    n = t.shape[number]
    given: Any = sections
    if type(given) is Array:
        given = np.asarray(given)
    if several(given):
        places = [static_integer("array_split", "a place", i) for i in given]
        cuts = [0, *[_cut(i, n) for i in places], n]
    else:
        parts = static_integer("array_split", "the number of parts", given)
        if parts <= 0:
            raise ValueError(f"can't split into {parts} parts{at(user_source())}")
        small, larger = divmod(n, parts)
        lengths = [small + (i < larger) for i in range(parts)]
        cuts = [0, *accumulate(lengths)]
    return [ops.slice_axis(x, number, a, max(b, a)) for a, b in pairwise(cuts)]


def _cut(i: int, n: int) -> int:
    return min(max(i + n if i < 0 else i, 0), n)


def split(x: ArrayLike, sections: int | Sequence[int], axis: int = 0) -> list[Array]:
    """Cuts into equal parts, or at the given indices.

    Raises:
      ValueError: if the axis can't be cut into that many equal parts.
    """
    t = typeof(operand("split", x))
    parts: Any = sections
    if not several(parts):
        n = t.shape[one_axis("split", axis, t.ndim)]
        parts = static_integer("split", "the number of parts", parts)
        if parts <= 0 or n % parts:
            raise ValueError(
                f"split: an axis of length {n} can't be cut into {parts} equal parts"
                f"{at(user_source())}\nUse `tnp.array_split` for nearly equal ones."
            )
    return array_split(x, sections, axis)


def append(x: ArrayLike, values: ArrayLike, axis: int | None = None) -> Array:
    """x, followed by the values along an axis (None: both flattened)."""
    return concatenate([x, values], axis)


def dstack(arrays: Arrays, *, dtype: DTypeLike | None = None) -> Array:
    """Joins along the third axis; vectors are (1, n, 1), matrices (n, m, 1)."""
    return _concatenated(
        "dstack", [atleast_3d(x) for x in _members("dstack", arrays, dtype)], 2
    )


def block(arrays: Any) -> Array:
    """Puts an array together from blocks: nested lists of arrays, whose innermost lists
    are joined along the last axis, the next along the last but one, and so on.

    >>> import treadle.numpy as tnp
    >>> tnp.block([[tnp.eye(2), tnp.zeros((2, 1))], [tnp.ones((1, 3))]]).shape
    (3, 3)
    """
    depth = _depth(arrays)
    blocks = agreed("block", *_leaves(arrays))
    rank = max([depth, *[typeof(x).ndim for x in blocks]])
    coming = iter(blocks)

    def joined(part: Any, level: int) -> Any:
        if isinstance(part, list):
            return concatenate([joined(p, level - 1) for p in part], -level)
        part = next(coming)
        shape = typeof(part).shape
        return reshape(part, (1,) * (rank - len(shape)) + shape)

    return as_array(joined(arrays, depth))


def _depth(arrays: Any) -> int:
    if not isinstance(arrays, list):
        return 0
    depths = {_depth(part) for part in arrays}
    if len(depths) != 1:
        raise ValueError(
            f"block: the lists are empty or nested to different depths"
            f"{at(user_source())}"
        )
    return 1 + depths.pop()


def _leaves(arrays: Any) -> list[Any]:
    if not isinstance(arrays, list):
        return [arrays]
    return [leaf for part in arrays for leaf in _leaves(part)]


def unstack(x: ArrayLike, axis: int = 0) -> tuple[Array, ...]:
    """The arrays along an axis, without it: the inverse of `stack`."""
    t = typeof(operand("unstack", x))
    number = one_axis("unstack", axis, t.ndim)
    shape = (*t.shape[:number], *t.shape[number + 1 :])
    pieces = split(x, t.shape[number], number) if t.shape[number] else []
    return tuple([reshape(part, shape) for part in pieces])


def hsplit(x: ArrayLike, sections: int | Sequence[int]) -> list[Array]:
    """`split` along the second axis (of a vector: along its only one)."""
    return split(x, sections, 0 if typeof(operand("hsplit", x)).ndim == 1 else 1)


def vsplit(x: ArrayLike, sections: int | Sequence[int]) -> list[Array]:
    """`split` along the first axis."""
    return split(x, sections, 0)


def dsplit(x: ArrayLike, sections: int | Sequence[int]) -> list[Array]:
    """`split` along the third axis."""
    return split(x, sections, 2)
