"""Running sums, products, extremes; and the linear recurrence that differentiates them.

All take `axis` and `reverse` (from the end towards the start).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import ml_dtypes
import numpy as np

from treadle import dtypes
from treadle.arraytype import ArrayType
from treadle.ops.arithmetic import add, mul, sub
from treadle.ops.binary import maximum
from treadle.ops.cast import convert
from treadle.ops.compare import gt, lt, select
from treadle.ops.movement import full, instantiate, move_axis, spread
from treadle.ops.shape import concatenate, slice_axis
from treadle.ops.unary import exp
from treadle.trace.lowering import Running
from treadle.trace.op import Linear, Op, Zero
from treadle.trace.value import typeof


def _cumulative(name: str, run: Any, accepts: Callable[..., bool], **rules: Any) -> Op:
    """Declares a running reduction. run: ``(x, axis) -> array``, forwards."""

    def type_rule(x: ArrayType, *, axis: int, reverse: bool) -> ArrayType:
        if not 0 <= axis < x.ndim:
            raise ValueError(f"{name} of {x} along axis {axis}")
        if not accepts(x.dtype):
            raise TypeError(f"{name} is not defined for dtype {x.dtype.name}")
        return ArrayType(x.shape, x.dtype)

    def run_either_way(x: Any, *, axis: int, reverse: bool) -> Any:
        x = np.flip(x, axis) if reverse else x
        # The narrow floats accumulate in float32, like compiled code.
        narrow = x.dtype in (dtypes.float16, dtypes.bfloat16)
        out = run(x.astype(np.float32) if narrow else x, axis).astype(x.dtype)
        return np.flip(out, axis) if reverse else out

    def batch(size: int, args: Any, bdims: Any, *, axis: int, reverse: bool) -> Any:
        moved = axis + (axis >= bdims[0])
        return op(args[0], axis=moved, reverse=reverse), bdims[0]

    op = Op(name, type_rule, run_either_way, batch=batch, **rules)
    return op


def _number(dtype: np.dtype) -> bool:
    return dtype != dtypes.bool_


def _ordered(dtype: np.dtype) -> bool:
    return not dtypes.is_complex(dtype)


def shift(x: Any, fill: Any, axis: int, reverse: bool) -> Any:
    """Moves elements one place on in the running direction; `fill` enters."""
    t = typeof(x)
    n = t.shape[axis]
    if n == 0:
        return x
    one = full((*t.shape[:axis], 1, *t.shape[axis + 1 :]), fill, t.dtype)
    if reverse:
        return concatenate(slice_axis(x, axis, 1, n), one, axis=axis)
    return concatenate(one, slice_axis(x, axis, 0, n - 1), axis=axis)


# linear_recurrence --------------------------------------------------------------------


def _recurrence_type(
    a: ArrayType, b: ArrayType, *, axis: int, reverse: bool
) -> ArrayType:
    if a.shape != b.shape or a.dtype != b.dtype:
        raise ValueError(f"linear_recurrence of different types: {a}, {b}")
    if not 0 <= axis < b.ndim:
        raise ValueError(f"linear_recurrence of {b} along axis {axis}")
    if not dtypes.is_differentiable(b.dtype):
        raise TypeError(f"linear_recurrence is not defined for dtype {b.dtype.name}")
    return ArrayType(b.shape, b.dtype)


def _recurrence_run(a: Any, b: Any, *, axis: int, reverse: bool) -> Any:
    narrow = b.dtype in (dtypes.float16, dtypes.bfloat16)
    wide = np.dtype(np.float32) if narrow else b.dtype
    a, b = np.moveaxis(a, axis, 0), np.moveaxis(b, axis, 0)
    out = np.empty(b.shape, b.dtype)
    h = np.zeros(b.shape[1:], wide)
    for t in range(len(b))[:: -1 if reverse else 1]:
        h = a[t].astype(wide) * h + b[t].astype(wide)
        out[t] = h
    return np.moveaxis(out, 0, axis)


def _recurrence_jvp(
    primals: Sequence[Any], tangents: Sequence[Any], *, axis: int, reverse: bool
) -> Any:
    (a, b), (da, db) = primals, tangents
    out = linear_recurrence(a, b, axis=axis, reverse=reverse)
    moved = instantiate(db)
    if not isinstance(da, Zero):
        term = mul(da, shift(out, 0, axis, reverse))
        moved = term if isinstance(db, Zero) else add(term, db)
    return out, linear_recurrence(a, moved, axis=axis, reverse=reverse)


def _recurrence_transpose(
    ct: Any, a: Any, b: Linear, *, axis: int, reverse: bool
) -> list[Any]:
    factors = shift(a, 0, axis, not reverse)
    return [None, linear_recurrence(factors, ct, axis=axis, reverse=not reverse)]


def _recurrence_batch(
    size: int, args: Any, bdims: Any, *, axis: int, reverse: bool
) -> Any:
    a, b = (
        spread(x, 0, size) if d is None else move_axis(x, d, 0)
        for x, d in zip(args, bdims, strict=True)
    )
    return linear_recurrence(a, b, axis=axis + 1, reverse=reverse), 0


linear_recurrence = Op(
    "linear_recurrence",
    _recurrence_type,
    _recurrence_run,
    lowering=Running("linear"),
    jvp=_recurrence_jvp,
    transpose=_recurrence_transpose,
    batch=_recurrence_batch,
)
"""``h[t] = a[t] * h[t - 1] + b[t]``, starting from zero: linear in b."""

# The running reductions ---------------------------------------------------------------


def _sum_jvp(primals: Sequence[Any], tangents: Sequence[Any], **params: Any) -> Any:
    return cumsum(*primals, **params), cumsum(*tangents, **params)


def _sum_transpose(ct: Any, x: Linear, *, axis: int, reverse: bool) -> list[Any]:
    return [cumsum(ct, axis=axis, reverse=not reverse)]


def _in_blocks(step: np.ufunc, x: Any, axis: int) -> Any:
    """``step.accumulate(x, axis)`` by blocks and their totals, so that each result is
    rounded a few hundred times at most: a sum of millions of ones, one after the other,
    stops at 2**24 in float32."""
    x = np.moveaxis(x, axis, -1)
    *rest, n = x.shape
    if n <= _BLOCK:
        out = step.accumulate(x, -1, dtype=x.dtype)
        return np.moveaxis(out, -1, axis)
    count = n // _BLOCK
    blocks = x[..., : count * _BLOCK].reshape(*rest, count, _BLOCK)
    out = np.empty_like(x)
    whole = step.accumulate(blocks, -1, dtype=x.dtype)
    totals = _in_blocks(step, whole[..., -1], -1)
    whole[..., 1:, :] = step(totals[..., :-1, None], whole[..., 1:, :])
    out[..., : count * _BLOCK] = whole.reshape(*rest, count * _BLOCK)
    left = x[..., count * _BLOCK :]
    if left.shape[-1]:
        tail = step.accumulate(left, -1, dtype=x.dtype)
        out[..., count * _BLOCK :] = step(totals[..., -1:], tail)
    return np.moveaxis(out, -1, axis)


_BLOCK = 64

cumsum = _cumulative(
    "cumsum",
    lambda x, axis: _in_blocks(np.add, x, axis),
    _number,
    lowering=Running("sum"),
    jvp=_sum_jvp,
    transpose=_sum_transpose,
)


def _prod_jvp(primals: Sequence[Any], tangents: Sequence[Any], **params: Any) -> Any:
    (x,), (dx,) = primals, tangents
    out = cumprod(x, **params)
    return out, linear_recurrence(x, mul(dx, shift(out, 1, **params)), **params)


cumprod = _cumulative(
    "cumprod",
    lambda x, axis: np.cumprod(x, axis, dtype=x.dtype),
    _number,
    lowering=Running("prod"),
    jvp=_prod_jvp,
)


def _extreme_jvp(op: Op, further: Op, worst: float) -> Callable[..., Any]:
    """A new extreme brings its own tangent; of equal ones the first keeps it."""

    def jvp(primals: Sequence[Any], tangents: Sequence[Any], **params: Any) -> Any:
        (x,), (dx,) = primals, tangents
        out = op(x, **params)
        dtype = typeof(x).dtype
        new = further(x, shift(out, worst, **params))
        old = convert(new, dtype=dtype)
        kept = sub(dtype.type(1), old)
        moved = select(new, dx, dtype.type(0))
        return out, linear_recurrence(kept, moved, **params)

    return jvp


cummax = _cumulative("cummax", np.maximum.accumulate, _ordered, lowering=Running("max"))
cummin = _cumulative("cummin", np.minimum.accumulate, _ordered, lowering=Running("min"))
cummax.jvp = cummax.linearize = _extreme_jvp(cummax, gt, -np.inf)
cummin.jvp = cummin.linearize = _extreme_jvp(cummin, lt, np.inf)


def _logsumexp_jvp(
    primals: Sequence[Any], tangents: Sequence[Any], **params: Any
) -> Any:
    (x,), (dx,) = primals, tangents
    out = cumlogsumexp(x, **params)
    # As long as everything was -inf, the weights are 0 rather than not-a-number.
    total = maximum(out, ml_dtypes.finfo(typeof(x).dtype).min)
    kept = exp(sub(shift(out, -np.inf, **params), total))
    return out, linear_recurrence(kept, mul(dx, exp(sub(x, total))), **params)


cumlogsumexp = _cumulative(
    "cumlogsumexp",
    lambda x, axis: _in_blocks(np.logaddexp, x, axis),
    dtypes.is_float,
    lowering=Running("logsumexp"),
    jvp=_logsumexp_jvp,
)
