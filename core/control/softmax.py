"""Softmax as one operation, whose derivative is written with its result alone."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from treadle import dtypes
from treadle.arraytype import ArrayType
from treadle.control.attention import wide
from treadle.ops.arithmetic import div, mul, sub
from treadle.ops.cast import convert
from treadle.ops.movement import restore_axes
from treadle.ops.reduce import reduce_max, reduce_sum
from treadle.ops.unary import exp
from treadle.trace.lowering import Blocked
from treadle.trace.op import Op
from treadle.trace.value import typeof


def _formula(x: Any, *, axes: tuple[int, ...]) -> list[Any]:
    shape = typeof(x).shape
    if 0 in shape:
        return [x]
    dtype = typeof(x).dtype
    x = convert(x, dtype=wide(dtype))
    weights = exp(sub(x, restore_axes(reduce_max(x, axes=axes), shape, axes)))
    total = reduce_sum(weights, axes=axes)
    return [convert(div(weights, restore_axes(total, shape, axes)), dtype=dtype)]


def _type(x: ArrayType, *, axes: tuple[int, ...]) -> ArrayType:
    if not dtypes.is_float(x.dtype):
        raise TypeError(f"softmax is not defined for dtype {x.dtype.name}")
    return ArrayType(x.shape, x.dtype)


def _run(x: Any, *, axes: tuple[int, ...]) -> Any:
    dtype = x.dtype
    x = x.astype(wide(dtype))
    weights = np.exp(x - np.max(x, axes, keepdims=True, initial=-math.inf))
    total = reduce_sum.run(weights, axes=axes)
    return (weights / np.expand_dims(total, axes)).astype(dtype)


def _jvp(primals: Sequence[Any], tangents: Sequence[Any], *, axes: Any) -> Any:
    out, t = softmax(primals[0], axes=axes), tangents[0]
    total = reduce_sum(mul(out, t), axes=axes)
    return out, mul(out, sub(t, restore_axes(total, typeof(out).shape, axes)))


def _batch(size: int, args: Any, bdims: Any, *, axes: tuple[int, ...]) -> Any:
    axis = bdims[0]
    return softmax(args[0], axes=tuple([a + (a >= axis) for a in axes])), axis


softmax = Op(
    "softmax",
    _type,
    _run,
    jvp=_jvp,
    batch=_batch,
    lowering=Blocked(None, _formula),
)
"""``exp(x) / sum(exp(x))`` over some axes, without overflow; of halves, computed in
float32."""
