"""Changes of dtype, and of how many bits of it count."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import ml_dtypes
import numpy as np

from treadle import dtypes
from treadle.arraytype import ArrayType
from treadle.ops.complex import real
from treadle.ops.movement import linear_jvp
from treadle.trace.lowering import Elementwise
from treadle.trace.op import Linear, Op, Zero, registry
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

# reduce_precision ---------------------------------------------------------------------


class _Layout(NamedTuple):
    """The bits of a float: those of its fraction, its exponent, and its sign."""

    word: np.dtype
    fraction: int
    bias: int
    exponent: int
    sign: int

    @staticmethod
    def of(dtype: np.dtype) -> _Layout:
        info = ml_dtypes.finfo(dtype)
        word = np.dtype(f"uint{8 * dtype.itemsize}")
        exponent = ((1 << info.nexp) - 1) << info.nmant
        sign = 1 << (8 * dtype.itemsize - 1)
        return _Layout(word, info.nmant, (1 << (info.nexp - 1)) - 1, exponent, sign)


def _reduced(w: Any, x: Any, *, exponent_bits: int, mantissa_bits: int) -> Any:
    """Rounds the fraction, ties to even; then what has too large an exponent is
    infinite, too small a one zero. Not-a-number stays."""
    has = _Layout.of(x.dtype)
    word = w("bitcast", x, dtype=has.word)
    beyond = has.fraction - mantissa_bits
    if beyond > 0:
        last = w("bitwise_and", w("shift_right_logical", word, beyond), 1)
        raised = w("add", word, w("add", last, (1 << (beyond - 1)) - 1))
        word = w("shift_left", w("shift_right_logical", raised, beyond), beyond)
    new_bias = (1 << (exponent_bits - 1)) - 1
    if new_bias < has.bias:
        exponent = w("bitwise_and", word, has.exponent)
        sign = w("bitwise_and", word, has.sign)
        most, least = has.bias + new_bias, has.bias - new_bias
        infinite = w("bitwise_or", sign, has.exponent)
        over = w("gt", exponent, most << has.fraction)
        under = w("le", exponent, least << has.fraction)
        word = w("select", under, sign, w("select", over, infinite, word))
    return w("select", w("ne", x, x), x, w("bitcast", word, dtype=x.dtype))


class _OnArrays:
    """Carries out what an expression writes, on NumPy's arrays."""

    def __call__(self, name: str, *args: Any, dtype: np.dtype | None = None) -> Any:
        if dtype is not None:
            return args[0].view(dtype)
        like = next(a.dtype for a in reversed(args) if isinstance(a, np.ndarray))
        full = [a if isinstance(a, np.ndarray) else like.type(a) for a in args]
        return np.asarray(registry[name].run(*full))


def _reduce_type(x: ArrayType, **bits: int) -> ArrayType:
    if not dtypes.is_float(x.dtype):
        raise TypeError(f"reduce_precision is not defined for dtype {x.dtype.name}")
    return ArrayType(x.shape, x.dtype)


reduce_precision = Op(
    "reduce_precision",
    _reduce_type,
    lambda x, **bits: _reduced(_OnArrays(), np.asarray(x), **bits),
    transpose=lambda ct, x, **bits: [reduce_precision(ct, **bits)],
    batch=lambda size, args, axes, **bits: (reduce_precision(*args, **bits), axes[0]),
    lowering=Elementwise(_reduced),
)
reduce_precision.jvp = reduce_precision.linearize = linear_jvp(reduce_precision)
"""Floats rounded to fewer bits of exponent and mantissa, as are their derivatives."""
