"""Reductions over sliding windows of the spatial axes of (N, *spatial, C): pooling.

Window, strides and padding have one entry per spatial axis; padding never wins.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, Literal

import numpy as np

from treadle import dtypes
from treadle.arraytype import ArrayType
from treadle.ops.elementwise import number, real
from treadle.ops.movement import move_axis, reshape, spread
from treadle.ops.shape import pad
from treadle.trace.lowering import Window
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


def lowest(dtype: np.dtype) -> Any:
    if dtype == dtypes.bool_:
        return False
    return -np.inf if dtypes.is_float(dtype) else np.iinfo(dtype).min


def highest(dtype: np.dtype) -> Any:
    if dtype == dtypes.bool_:
        return True
    return np.inf if dtypes.is_float(dtype) else np.iinfo(dtype).max


def _reduction(
    name: str,
    reduce: Callable[[Any], Any],
    fill: Callable[[np.dtype], Any],
    accepts: Callable[[np.dtype], bool],
    result: Callable[[ArrayType], np.dtype] = lambda x: x.dtype,
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
        return ArrayType(shape, result(x))

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


def _sum_transpose(ct: Any, x: Linear, **params: Any) -> list[Any]:
    return [window_put(ct, spatial=x.shape[1:-1], **params)]


reduce_window_sum = _reduction(
    "reduce_window_sum",
    _run_sum,
    lambda d: 0,
    number,
    lowering=Window("sum"),
    jvp=_sum_jvp,
    transpose=_sum_transpose,
)

# maximum and minimum ------------------------------------------------------------------


def _place_dtype(x: ArrayType) -> np.dtype:
    """The dtype of indices into the flattened spatial axes."""
    return dtypes.of_index(math.prod(x.shape[1:-1]))


def _arg_run(reduce: Any, fill: Callable[[np.dtype], Any]) -> Callable[..., Any]:
    def run(x: Any, **params: Any) -> Any:
        spatial = x.shape[1:-1]
        n = math.prod(spatial)
        place = np.arange(n, dtype=dtypes.of_index(n)).reshape(1, *spatial, 1)
        places = _windows(place, -1, **params)
        best = reduce(_windows(x, fill(x.dtype), **params), -1)[..., None]
        places = np.broadcast_to(places, (*best.shape[:-1], places.shape[-1]))
        return np.take_along_axis(places, best, -1)[..., 0]

    return run


def _arg(
    what: Literal["argmax", "argmin"], reduce: Any, fill: Callable[[np.dtype], Any]
) -> Op:
    return _reduction(
        f"reduce_window_{what}",
        reduce,
        fill,
        real,
        lowering=Window(what),
        result=_place_dtype,
        run=_arg_run(reduce, fill),
        differentiable=False,
    )


reduce_window_argmax = _arg("argmax", np.argmax, lowest)
reduce_window_argmin = _arg("argmin", np.argmin, highest)
"""Where each window's first extreme is: an index into the flattened spatial axes of x,
-1 in the padding."""


def _extreme_jvp(op: Op, arg: Op) -> Callable[..., Any]:
    """The derivative is that of the first extreme of each window."""

    def jvp(primals: Sequence[Any], tangents: Sequence[Any], **params: Any) -> Any:
        (x,), (dx,) = primals, tangents
        return op(x, **params), window_pick(dx, arg(x, **params), **params)

    return jvp


reduce_window_max = _reduction(
    "reduce_window_max",
    lambda w: np.max(w, -1),
    lowest,
    real,
    lowering=Window("max"),
)
reduce_window_min = _reduction(
    "reduce_window_min",
    lambda w: np.min(w, -1),
    highest,
    real,
    lowering=Window("min"),
)
for _op, _place in (
    (reduce_window_max, reduce_window_argmax),
    (reduce_window_min, reduce_window_argmin),
):
    _op.jvp = _op.linearize = _extreme_jvp(_op, _place)

# one element of each window, and back -------------------------------------------------


def _check_places(name: str, x: ArrayType, shape: Ints, places: ArrayType) -> None:
    """x: what the places are in; shape: that of the windows."""
    wanted = ArrayType(shape, _place_dtype(x))
    if places.shape != shape or places.dtype != wanted.dtype:
        raise ValueError(f"{name}: places must be {wanted}, got {places}")


def _flat(x: Any) -> Any:
    """(N, *spatial, C) as (N, all of space, C)."""
    return x.reshape(x.shape[0], math.prod(x.shape[1:-1]), x.shape[-1])


def _merged_batch(op: Op) -> Callable[..., Any]:
    """Examples are further images."""

    def batch(size: int, args: Any, axes: Any, **params: Any) -> Any:
        lined = [
            spread(x, 0, size) if d is None else move_axis(x, d, 0)
            for x, d in zip(args, axes, strict=True)
        ]
        n = typeof(lined[0]).shape[1]
        flat = [reshape(x, shape=(size * n, *typeof(x).shape[2:])) for x in lined]
        out = op(*flat, **params)
        return reshape(out, shape=(size, n, *typeof(out).shape[1:])), 0

    return batch


def _pick_type(x: ArrayType, places: ArrayType, **params: Any) -> ArrayType:
    shape = _check("window_pick", x, **params)
    _check_places("window_pick", x, shape, places)
    return ArrayType(shape, x.dtype)


def _pick_run(x: Any, places: Any, **params: Any) -> Any:
    if not x.size:
        return np.zeros(places.shape, x.dtype)
    wanted = _flat(places)
    found = np.take_along_axis(_flat(x), np.maximum(wanted, 0), 1)
    return np.where(wanted >= 0, found, x.dtype.type(0)).reshape(places.shape)


def _pick_jvp(primals: Sequence[Any], tangents: Sequence[Any], **params: Any) -> Any:
    (x, places), (dx, _) = primals, tangents
    return window_pick(x, places, **params), window_pick(dx, places, **params)


def _pick_transpose(ct: Any, x: Linear, places: Any, **params: Any) -> list[Any]:
    return [window_put(ct, places, spatial=x.shape[1:-1], **params), None]


window_pick = Op(
    "window_pick",
    _pick_type,
    _pick_run,
    lowering=Window("pick"),
    jvp=_pick_jvp,
    transpose=_pick_transpose,
)
window_pick.batch = _merged_batch(window_pick)
"""The element of each window of x that stands at ``places`` (into the flattened spatial
axes; it must be in the window); 0 for -1."""


def _put_type(
    ct: ArrayType, *places: ArrayType, spatial: Ints, **params: Any
) -> ArrayType:
    x = ArrayType((ct.shape[0], *spatial, ct.shape[-1]), ct.dtype)
    shape = _check("window_put", x, **params)
    if ct.shape != shape:
        raise ValueError(f"window_put into {x}: {list(shape)} expected, got {ct}")
    for given in places:
        _check_places("window_put", x, shape, given)
    return x


def _put_run(ct: Any, *places: Any, spatial: Ints, **params: Any) -> Any:
    n, channels = ct.shape[0], ct.shape[-1]
    narrow = ct.dtype in (dtypes.float16, dtypes.bfloat16)
    wide = np.dtype(np.float32) if narrow else ct.dtype
    out = np.zeros((n, math.prod(spatial), channels), wide)
    if places:
        where = _flat(places[0])[:, :, None]
    else:
        number = np.arange(math.prod(spatial), dtype=np.int64)
        seen = _windows(number.reshape(1, *spatial, 1), -1, **params)
        where = seen.reshape(-1, seen.shape[-1])[None, :, :, None]
    updates, where = np.broadcast_arrays(_flat(ct)[:, :, None], where)
    inside = where >= 0
    image, _, _, channel = np.nonzero(inside)
    at = image, where[inside], channel
    np.add.at(out, at, updates[inside].astype(wide))
    return out.astype(ct.dtype).reshape(n, *spatial, channels)


def _put_jvp(primals: Sequence[Any], tangents: Sequence[Any], **params: Any) -> Any:
    (ct, *places), (dct, *_) = primals, tangents
    return window_put(ct, *places, **params), window_put(dct, *places, **params)


def _put_transpose(
    ct: Any, x: Linear, *places: Any, spatial: Ints, **params: Any
) -> list[Any]:
    if not places:
        return [reduce_window_sum(ct, **params)]
    return [window_pick(ct, *places, **params), None]


window_put = Op(
    "window_put",
    _put_type,
    _put_run,
    lowering=Window("put"),
    jvp=_put_jvp,
    transpose=_put_transpose,
)
window_put.batch = _merged_batch(window_put)
"""The transpose of `window_pick`: each window's number goes to its place, where those
of several windows are summed. Without places it goes to all elements of the window, as
the transpose of `reduce_window_sum` wants."""
