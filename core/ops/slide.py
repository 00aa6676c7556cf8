"""Products of an array with a smaller one at every place: convolutions of one channel.

    slide(x, y)  (*batch, *n), (*batch, *k)  ->  (*batch, *(n - k + 1))

is ``sum(x[i + j] * y[j] for j)`` for each place i. It is the same with y and the result
exchanged, so that both derivatives slide as well.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from treadle import dtypes
from treadle.arraytype import ArrayType
from treadle.ops.arithmetic import add, mul
from treadle.ops.cast import convert
from treadle.ops.gather import gather
from treadle.ops.movement import broadcast_in_dim, move_axis, reverse, spread, transpose
from treadle.ops.reduce import reduce_sum
from treadle.ops.shape import iota, pad
from treadle.trace.lowering import Blocked
from treadle.trace.op import Linear, Op, Zero
from treadle.trace.value import typeof


def _type(x: ArrayType, y: ArrayType, *, batch_dims: int) -> ArrayType:
    if x.dtype != y.dtype or x.dtype == dtypes.bool_:
        raise TypeError(f"slide takes two arrays of numbers of one dtype: {x}, {y}")
    b = batch_dims
    if x.ndim != y.ndim or x.ndim <= b or x.shape[:b] != y.shape[:b]:
        raise ValueError(f"slide takes arrays of the same batch axes: {x}, {y}")
    pairs = list(zip(x.shape[b:], y.shape[b:], strict=True))
    if any(k < 1 or n < k for n, k in pairs):
        raise ValueError(f"slide takes an array and a smaller one: {x}, {y}")
    return ArrayType((*x.shape[:b], *(n - k + 1 for n, k in pairs)), x.dtype)


def _summed(dtype: np.dtype) -> np.dtype:
    """The dtype in which products are added up."""
    return dtypes.float32 if dtypes.is_float(dtype) and dtype.itemsize == 2 else dtype


def _run(x: Any, y: Any, *, batch_dims: int) -> Any:
    dtype, wide = x.dtype, _summed(x.dtype)
    axes = tuple(range(batch_dims, x.ndim))
    seen = np.lib.stride_tricks.sliding_window_view(x, y.shape[batch_dims:], axes)
    batch, places, taps = "abcde"[:batch_dims], "ijklmnop", "qrstuvwx"
    count = x.ndim - batch_dims
    formula = f"{batch}{places[:count]}{taps[:count]},{batch}{taps[:count]}"
    formula += f"->{batch}{places[:count]}"
    return np.einsum(formula, seen.astype(wide), y.astype(wide)).astype(dtype)


def _formula(x: Any, y: Any, *, batch_dims: int) -> list[Any]:
    """What each element of y meets is a part of x: they are added up in order, and
    vectors run along them."""
    t, u = typeof(x), typeof(y)
    dtype, b = t.dtype, batch_dims
    x, y = (convert(a, dtype=_summed(dtype)) for a in (x, y))
    taps, count = u.shape[b:], t.ndim - b
    places = tuple([n - k + 1 for n, k in zip(t.shape[b:], taps, strict=True)])
    starts = [
        iota(shape=taps, axis=a, dtype=dtypes.of_index(t.shape[b + a]))
        for a in range(count)
    ]
    axes = tuple(range(b, t.ndim))
    where = {"axes": axes, "sizes": places, "batch_dims": 0, "mode": "clip"}
    seen = gather(x, *starts, **where)
    order = (*axes, *range(b))
    factors = broadcast_in_dim(
        transpose(y, permutation=order) if b else y,
        shape=typeof(seen).shape,
        dims=tuple(range(t.ndim)),
    )
    out = reduce_sum(mul(seen, factors), axes=tuple(range(count)))
    return [convert(out, dtype=dtype)]


def _jvp(primals: Sequence[Any], tangents: Sequence[Any], **params: Any) -> Any:
    (x, y), (dx, dy) = primals, tangents
    out, total = slide(x, y, **params), None
    if not isinstance(dx, Zero):
        total = slide(dx, y, **params)
    if not isinstance(dy, Zero):
        term = slide(x, dy, **params)
        total = term if total is None else add(total, term)
    return out, Zero(typeof(out)) if total is None else total


def _transpose(ct: Any, x: Any, y: Any, *, batch_dims: int) -> list[Any]:
    if isinstance(y, Linear):
        return [None, slide(x, ct, batch_dims=batch_dims)]
    t = typeof(ct)
    ends = [(k - 1, k - 1, 0) for k in typeof(y).shape[batch_dims:]]
    ct = pad(ct, t.dtype.type(0), padding=((0, 0, 0),) * batch_dims + tuple(ends))
    y = reverse(y, axes=tuple(range(batch_dims, t.ndim)))
    return [slide(ct, y, batch_dims=batch_dims), None]


def _batch(size: int, args: Any, axes: Any, *, batch_dims: int) -> Any:
    lined = [
        spread(x, 0, size) if axis is None else move_axis(x, axis, 0)
        for x, axis in zip(args, axes, strict=True)
    ]
    return slide(*lined, batch_dims=batch_dims + 1), 0


slide = Op(
    "slide",
    _type,
    _run,
    jvp=_jvp,
    linearize=_jvp,
    transpose=_transpose,
    batch=_batch,
    lowering=Blocked(None, _formula),
)
