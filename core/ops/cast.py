"""Changes of dtype."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from treadle import dtypes
from treadle.arraytype import ArrayType
from treadle.ops.complex import real
from treadle.trace.lowering import Elementwise
from treadle.trace.op import Linear, Op, Zero
from treadle.trace.value import typeof


def _convert_type(x: ArrayType, *, dtype: np.dtype) -> ArrayType:
    if dtypes.is_complex(x.dtype) and not dtypes.is_complex(dtype):
        raise TypeError(f"can't convert {x} to {dtype.name}: take its real part first")
    return ArrayType(x.shape, dtype)


def _convert_run(x: Any, *, dtype: np.dtype) -> Any:
    if x.dtype.kind not in "fV" or dtype.kind not in "iu":
        return x.astype(dtype)
    # As compiled code: out of range saturates, not-a-number is 0.
    info = np.iinfo(dtype)
    wide = np.nan_to_num(x.astype(np.float64), nan=0.0, posinf=np.inf, neginf=-np.inf)
    low, high = wide <= float(info.min), wide >= float(info.max)
    inside = np.where(low | high, 0.0, wide).astype(dtype)
    return np.where(low, info.min, np.where(high, info.max, inside)).astype(dtype)


def _convert_jvp(
    primals: Sequence[Any], tangents: Sequence[Any], *, dtype: np.dtype
) -> Any:
    out = convert(primals[0], dtype=dtype)
    if isinstance(tangents[0], Zero) or not dtypes.is_differentiable(dtype):
        return out, Zero(typeof(out))
    return out, convert(tangents[0], dtype=dtype)


def _convert_transpose(ct: Any, x: Linear, *, dtype: np.dtype) -> list[Any]:
    if dtypes.is_complex(dtype) and not dtypes.is_complex(x.dtype):
        ct = real(ct)
    return [convert(ct, dtype=x.dtype)]


convert = Op(
    "convert",
    _convert_type,
    _convert_run,
    jvp=_convert_jvp,
    transpose=_convert_transpose,
    batch=lambda size, args, axes, *, dtype: (convert(args[0], dtype=dtype), axes[0]),
    lowering=Elementwise("convert"),
)


def _bitcast_type(x: ArrayType, *, dtype: np.dtype) -> ArrayType:
    if x.dtype.itemsize != dtype.itemsize or dtypes.bool_ in (x.dtype, dtype):
        raise TypeError(f"can't reinterpret {x} as {dtype.name}: the widths differ")
    return ArrayType(x.shape, dtype)


bitcast = Op(
    "bitcast",
    _bitcast_type,
    lambda x, *, dtype: np.asarray(x).view(dtype),
    batch=lambda size, args, axes, *, dtype: (bitcast(args[0], dtype=dtype), axes[0]),
    lowering=Elementwise("bitcast"),
    differentiable=False,
)
