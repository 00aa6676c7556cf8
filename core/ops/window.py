"""Reductions over sliding windows of the spatial axes of (N, *spatial, C): pooling.

Window, strides and padding have one entry per spatial axis; padding never wins.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from treadle import dtypes
from treadle.arraytype import ArrayType
from treadle.ops.elementwise import number, real
from treadle.ops.gather import gather
from treadle.ops.movement import move_axis, reshape
from treadle.ops.shape import pad
from treadle.trace.op import Linear, Op
from treadle.trace.value import typeof

Ints = tuple[int, ...]
Padding = tuple[tuple[int, int], ...]


def _check(
    name: str, x: ArrayType, window: Ints, strides: Ints, padding: Padding
) -> Ints:
    if not len(window) == len(strides) == len(padding) == x.ndim - 2:
        raise ValueError(
            f"{name}: x must be (N, *spatial, C) with one window size, stride and "
            f"padding per spatial axis; got {x}, {window}, {strides}, {padding}"
        )
    shape = [x.shape[0]]
    for n, w, s, (low, high) in zip(
        x.shape[1:-1], window, strides, padding, strict=True
    ):
        if n + low + high < w or w < 1 or s < 1:
            raise ValueError(
                f"{name}: windows of {list(window)} with strides {list(strides)} do "
                f"not fit in {x} with padding {padding}"
            )
        shape.append((n + low + high - w) // s + 1)
    return (*shape, x.shape[-1])


def _windows(x: Any, fill: Any, window: Ints, strides: Ints, padding: Padding) -> Any:
    """A view with one last axis that runs over each window."""
    inner = [(low, high, 0) for low, high in padding]
    x = pad.run(x, fill, padding=((0, 0, 0), *inner, (0, 0, 0)))
    spatial = tuple(range(1, x.ndim - 1))
    seen = np.lib.stride_tricks.sliding_window_view(x, window, spatial)
    steps = [slice(None, None, s) for s in strides]
    seen = seen[(slice(None), *steps)]
    return seen.reshape(*seen.shape[: x.ndim], math.prod(window))


def _lowest(dtype: np.dtype) -> Any:
    if dtype == dtypes.bool_:
        return False
    return -np.inf if dtypes.is_float(dtype) else np.iinfo(dtype).min


def _highest(dtype: np.dtype) -> Any:
    if dtype == dtypes.bool_:
        return True
    return np.inf if dtypes.is_float(dtype) else np.iinfo(dtype).max


def _reduction(
    name: str,
    reduce: Callable[[Any], Any],
    fill: Callable[[np.dtype], Any],
    accepts: Callable[[np.dtype], bool],
    result: np.dtype | None = None,
    run: Callable[..., Any] | None = None,
    **rules: Any,
) -> Op:
    """Declares a window reduction; `reduce` takes the last axis of the windows."""

    def type_rule(
        x: ArrayType, *, window: Ints, strides: Ints, padding: Padding
    ) -> ArrayType:
        if not accepts(x.dtype):
            raise TypeError(f"{name} is not defined for dtype {x.dtype.name}")
        shape = _check(name, x, window, strides, padding)
        return ArrayType(shape, result or x.dtype)

    def plain_run(x: Any, **params: Any) -> Any:
        return reduce(_windows(x, fill(x.dtype), **params))

    def batch(size: int, args: Any, axes: Any, **params: Any) -> Any:
        x = move_axis(args[0], axes[0], 0)
        _, n, *rest = typeof(x).shape
        out = op(reshape(x, shape=(size * n, *rest)), **params)
        return reshape(out, shape=(size, n, *typeof(out).shape[1:])), 0

    op = Op(name, type_rule, run or plain_run, batch=batch, **rules)
    return op


# sum ----------------------------------------------------------------------------------


def _run_sum(x: Any) -> Any:
    narrow = x.dtype in (dtypes.float16, dtypes.bfloat16)
    return np.sum(x, -1, dtype=np.float32 if narrow else x.dtype)


def _sum_jvp(primals: Sequence[Any], tangents: Sequence[Any], **params: Any) -> Any:
    return reduce_window_sum(*primals, **params), reduce_window_sum(*tangents, **params)


def _sum_transpose(
    ct: Any, x: Linear, *, window: Ints, strides: Ints, padding: Padding
) -> list[Any]:
    """Each element collects from the windows that it was in: a window sum again."""
    t = typeof(ct)
    between = [(0, 0, s - 1) for s in strides]
    spread_out = pad(ct, t.dtype.type(0), padding=((0, 0, 0), *between, (0, 0, 0)))
    back = []
    for n, o, w, s, (low, _) in zip(
        x.shape[1:-1], t.shape[1:-1], window, strides, padding, strict=True
    ):
        before = w - 1 - low
        back.append((before, n + w - 1 - ((o - 1) * s + 1) - before))
    ones = (1,) * len(window)
    return [
        reduce_window_sum(spread_out, window=window, strides=ones, padding=tuple(back))
    ]


reduce_window_sum = _reduction(
    "reduce_window_sum",
    _run_sum,
    lambda d: 0,
    number,
    jvp=_sum_jvp,
    transpose=_sum_transpose,
)

# maximum and minimum ------------------------------------------------------------------


def _arg_run(reduce: Any, fill: Callable[[np.dtype], Any]) -> Callable[..., Any]:
    def run(x: Any, **params: Any) -> Any:
        spatial = x.shape[1:-1]
        place = np.arange(math.prod(spatial), dtype=np.int32).reshape(1, *spatial, 1)
        places = _windows(place, -1, **params)
        best = reduce(_windows(x, fill(x.dtype), **params), -1)[..., None]
        places = np.broadcast_to(places, (*best.shape[:-1], places.shape[-1]))
        return np.take_along_axis(places, best, -1)[..., 0]

    return run


def _arg(name: str, reduce: Any, fill: Callable[[np.dtype], Any]) -> Op:
    return _reduction(
        name,
        reduce,
        fill,
        real,
        result=dtypes.int32,
        run=_arg_run(reduce, fill),
        differentiable=False,
    )


reduce_window_argmax = _arg("reduce_window_argmax", np.argmax, _lowest)
reduce_window_argmin = _arg("reduce_window_argmin", np.argmin, _highest)
"""Where each window's first extreme is: an index into the flattened spatial axes of x,
-1 in the padding."""


def _extreme_jvp(op: Op, arg: Op) -> Callable[..., Any]:
    """The derivative is that of the first extreme of each window."""

    def jvp(primals: Sequence[Any], tangents: Sequence[Any], **params: Any) -> Any:
        (x,), (dx,) = primals, tangents
        out, places = op(x, **params), arg(x, **params)
        moved = gather(
            _by_channel(dx),
            _by_channel(places),
            axes=(2,),
            sizes=(None,),
            batch_dims=2,
            mode="drop",
        )
        return out, reshape(move_axis(moved, 1, 2), shape=typeof(out).shape)

    return jvp


def _by_channel(x: Any) -> Any:
    """(N, *spatial, C) as (N, C, all of space)."""
    n, *spatial, channels = typeof(x).shape
    return move_axis(reshape(x, shape=(n, math.prod(spatial), channels)), 2, 1)


reduce_window_max = _reduction(
    "reduce_window_max", lambda w: np.max(w, -1), _lowest, real
)
reduce_window_min = _reduction(
    "reduce_window_min", lambda w: np.min(w, -1), _highest, real
)
for _op, _place in (
    (reduce_window_max, reduce_window_argmax),
    (reduce_window_min, reduce_window_argmin),
):
    _op.jvp = _op.linearize = _extreme_jvp(_op, _place)
