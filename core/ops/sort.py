"""Sorting, and the largest few."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from treadle import dtypes
from treadle.arraytype import ArrayType
from treadle.ops.gather import take_along_axis
from treadle.ops.movement import move_axis, spread
from treadle.ops.shape import iota
from treadle.trace.lowering import Expanded, Order
from treadle.trace.op import Op, Zero
from treadle.trace.value import typeof

# sort ---------------------------------------------------------------------------------


def _sort_type(*types: ArrayType, axis: int, num_keys: int) -> Sequence[ArrayType]:
    first = types[0]
    if any(t.shape != first.shape for t in types):
        raise ValueError(f"sort of different shapes: {', '.join(map(repr, types))}")
    if not 0 <= axis < first.ndim or not 1 <= num_keys <= len(types):
        raise ValueError(
            f"sort of {len(types)} arrays of {list(first.shape)} along axis {axis} "
            f"by {num_keys} keys"
        )
    return [ArrayType(t.shape, t.dtype) for t in types]


def _comparable(x: Any) -> Any:
    narrow = x.dtype in (dtypes.float16, dtypes.bfloat16)
    return x.astype(np.float32) if narrow else x


def _sort_run(*arrays: Any, axis: int, num_keys: int) -> Any:
    keys = [_comparable(k) for k in arrays[:num_keys]]
    if num_keys == 1:
        order = np.argsort(keys[0], axis, kind="stable")
    else:
        order = np.lexsort(keys[::-1], axis)
    return [np.take_along_axis(x, order, axis) for x in arrays]


def _sort_jvp(
    primals: Sequence[Any], tangents: Sequence[Any], *, axis: int, num_keys: int
) -> Any:
    shape = typeof(primals[0]).shape
    place = iota(shape=shape, axis=axis, dtype=dtypes.of_index(shape[axis]))
    *outs, order = sort(*primals, place, axis=axis, num_keys=num_keys)
    return outs, [
        Zero(typeof(o)) if isinstance(t, Zero) else take_along_axis(t, order, axis)
        for o, t in zip(outs, tangents, strict=True)
    ]


def _sort_batch(
    size: int, args: Any, bdims: Any, *, axis: int, num_keys: int
) -> tuple[Any, Any]:
    lined = [
        spread(x, 0, size) if d is None else move_axis(x, d, 0)
        for x, d in zip(args, bdims, strict=True)
    ]
    return sort(*lined, axis=axis + 1, num_keys=num_keys), [0] * len(lined)


sort = Op(
    "sort",
    _sort_type,
    _sort_run,
    lowering=Expanded(),
    jvp=_sort_jvp,
    batch=_sort_batch,
    multiple=True,
)
"""Sorts the operands along one axis by the first `num_keys` of them. Stable, ascending;
not-a-number comes last."""


def argsort(x: Any, axis: int) -> Any:
    """The indices that would sort `x`: stable."""
    shape = typeof(x).shape
    place = iota(shape=shape, axis=axis, dtype=dtypes.of_index(shape[axis]))
    return sort(x, place, axis=axis, num_keys=1)[1]


# order --------------------------------------------------------------------------------


def _order_type(keys: ArrayType, *, count: int) -> ArrayType:
    if not keys.ndim or keys.dtype not in (dtypes.uint32, dtypes.uint64):
        raise TypeError(f"order of {keys}: rows of uint32 or uint64 expected")
    if not 0 <= count <= keys.shape[-1]:
        raise ValueError(f"order of {keys}: there are no {count} elements in a row")
    dtype = dtypes.of_index(keys.shape[-1])
    return ArrayType((*keys.shape[:-1], count), dtype)


def _order_run(keys: Any, *, count: int) -> Any:
    places = np.argsort(keys, -1, kind="stable")[..., :count]
    return places.astype(dtypes.of_index(keys.shape[-1]))


def _order_batch(size: int, args: Any, bdims: Any, *, count: int) -> tuple[Any, int]:
    return order(move_axis(args[0], bdims[0], 0), count=count), 0


order = Op(
    "order",
    _order_type,
    _order_run,
    lowering=Order(),
    batch=_order_batch,
    differentiable=False,
)
"""The places of the `count` smallest elements of each row, in ascending order. Stable.
What compiled sorts are made of."""

# top_k --------------------------------------------------------------------------------


def _top_k_type(x: ArrayType, *, k: int) -> Sequence[ArrayType]:
    if not x.ndim or not 0 <= k <= x.shape[-1]:
        raise ValueError(f"top_k of {x}: there are no {k} elements in its last axis")
    if dtypes.is_complex(x.dtype):
        raise TypeError(f"top_k is not defined for dtype {x.dtype.name}")
    shape = (*x.shape[:-1], k)
    places = ArrayType(shape, dtypes.of_index(x.shape[-1]))
    return [ArrayType(shape, x.dtype), places]


def _top_k_run(x: Any, *, k: int) -> Any:
    # Backwards, so that of equal elements the first comes first.
    ascending = np.argsort(_comparable(x)[..., ::-1], -1, kind="stable")
    order = (x.shape[-1] - 1 - ascending)[..., ::-1][..., :k]
    places = order.astype(dtypes.of_index(x.shape[-1]))
    return [np.take_along_axis(x, order, -1), places]


def _top_k_jvp(primals: Sequence[Any], tangents: Sequence[Any], *, k: int) -> Any:
    values, places = top_k(*primals, k=k)
    moved = take_along_axis(tangents[0], places, -1)
    return [values, places], [moved, Zero(typeof(places))]


top_k = Op(
    "top_k",
    _top_k_type,
    _top_k_run,
    lowering=Expanded(),
    jvp=_top_k_jvp,
    batch=lambda size, args, bdims, *, k: (
        top_k(move_axis(args[0], bdims[0], 0), k=k),
        [0, 0],
    ),
    multiple=True,
)
"""The k largest elements of the last axis in descending order, and their indices. Of
equal elements the first comes first; not-a-number counts as largest."""
