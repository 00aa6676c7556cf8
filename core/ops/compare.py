"""Comparisons, `select`, and the bitwise ops: no derivative, or a trivial one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from treadle import dtypes
from treadle.arraytype import ArrayType
from treadle.ops.elementwise import (
    any_dtype,
    batch_elementwise,
    common_shape,
    elementwise,
    floating,
    integral,
    unexpand,
)
from treadle.ops.movement import expand
from treadle.trace.lowering import Elementwise
from treadle.trace.op import Linear, Op, Zero
from treadle.trace.value import typeof


def _compare(name: str, run: Any) -> Op:
    return elementwise(name, run, accepts=any_dtype, result=lambda d: dtypes.bool_)


eq = _compare("eq", np.equal)
ne = _compare("ne", np.not_equal)
lt = _compare("lt", np.less)
le = _compare("le", np.less_equal)
gt = _compare("gt", np.greater)
ge = _compare("ge", np.greater_equal)

is_finite = elementwise(
    "is_finite", np.isfinite, accepts=floating, result=lambda d: dtypes.bool_
)

bitwise_and = elementwise("bitwise_and", np.bitwise_and, accepts=integral)
bitwise_or = elementwise("bitwise_or", np.bitwise_or, accepts=integral)
bitwise_xor = elementwise("bitwise_xor", np.bitwise_xor, accepts=integral)
bitwise_not = elementwise("bitwise_not", np.invert, accepts=integral)


def _shift(run: Any, overflow: Any) -> Any:
    """NumPy leaves shifts by the width or more undefined; here they shift all out."""

    def shifted(x: Any, n: Any) -> Any:
        bits = x.dtype.itemsize * 8
        too_far = n.astype(np.uint64) >= bits
        amount = np.where(too_far, 0, n).astype(x.dtype)
        return np.where(too_far, overflow(x), run(x, amount))

    return shifted


def _logical_right(x: Any, n: Any) -> Any:
    unsigned = np.dtype(f"u{x.dtype.itemsize}")
    return (x.astype(unsigned) >> n.astype(unsigned)).astype(x.dtype)


shift_left = elementwise(
    "shift_left", _shift(np.left_shift, np.zeros_like), accepts=dtypes.is_integer
)
shift_right_logical = elementwise(
    "shift_right_logical",
    _shift(_logical_right, np.zeros_like),
    accepts=dtypes.is_integer,
)
shift_right_arithmetic = elementwise(
    "shift_right_arithmetic",
    _shift(np.right_shift, lambda x: np.where(x < 0, -1, 0).astype(x.dtype)),
    accepts=dtypes.is_integer,
)


def _count_leading_zeros(x: Any) -> Any:
    bits = x.dtype.itemsize * 8
    unsigned = x.astype(f"u{x.dtype.itemsize}")
    result = np.full(x.shape, bits)
    for n in range(bits):
        result = np.where(unsigned >> unsigned.dtype.type(n) > 0, bits - 1 - n, result)
    return result.astype(x.dtype)


population_count = elementwise(
    "population_count",
    lambda x: np.bitwise_count(x.astype(f"u{x.dtype.itemsize}")).astype(x.dtype),
    accepts=dtypes.is_integer,
)
clz = elementwise("clz", _count_leading_zeros, accepts=dtypes.is_integer)

# select -------------------------------------------------------------------------------


def _select_type(condition: ArrayType, x: ArrayType, y: ArrayType) -> ArrayType:
    if condition.dtype != dtypes.bool_:
        raise TypeError(f"the condition of select must be bool, got {condition}")
    if x.dtype != y.dtype:
        raise TypeError(f"select of different dtypes: {x}, {y}")
    shape = common_shape("select", (condition, x, y))
    return ArrayType(shape, x.dtype, x.weak and y.weak)


def _select_jvp(primals: Sequence[Any], tangents: Sequence[Any]) -> Any:
    condition, x, y = primals
    _, dx, dy = tangents
    out = select(condition, x, y)
    t = typeof(out).strong()
    if isinstance(dx, Zero) and isinstance(dy, Zero):
        return out, Zero(t)
    dx, dy = (t.dtype.type(0) if isinstance(d, Zero) else d for d in (dx, dy))
    return out, expand(select(condition, dx, dy), t.shape)


def _select_transpose(ct: Any, condition: Any, x: Any, y: Any) -> list[Any]:
    zero = typeof(ct).dtype.type(0)
    return [
        None,
        unexpand(select(condition, ct, zero), x.type) if _lin(x) else None,
        unexpand(select(condition, zero, ct), y.type) if _lin(y) else None,
    ]


def _lin(x: Any) -> bool:
    return isinstance(x, Linear)


def _select_batch(size: int, args: Any, axes: Any) -> Any:
    return batch_elementwise(select, size, args, axes, {})


select = Op(
    "select",
    _select_type,
    lambda c, x, y: np.where(c, x, y),
    jvp=_select_jvp,
    transpose=_select_transpose,
    batch=_select_batch,
    lowering=Elementwise("select"),
)


def where_zero(condition: Any, x: Any) -> Any:
    """`x` where the condition holds, zero elsewhere."""
    return select(condition, x, typeof(x).dtype.type(0))
