"""The bits of numbers: read as another dtype, or fewer of them."""

from __future__ import annotations

from typing import Any

import ml_dtypes

from treadle import dtypes
from treadle.errors import at, user_source
from treadle.lax.operands import array
from treadle.np import bits
from treadle.np.operands import ArrayLike
from treadle.ops import cast as casts
from treadle.run.array import Array


def bitcast_convert_type(operand: ArrayLike, new_dtype: Any) -> Array:
    """The same bits read as another dtype.

    Shapes: ``(...) -> (...)`` for one width; ``(..., k) -> (...)`` to a dtype that is k
    times as wide, of which the first element has the lowest bits; ``(...) -> (..., k)``
    to a narrower one.

    Raises:
      ValueError: if the last axis is not as long as that.
      TypeError: for bools and complex numbers.

    >>> import treadle as td, treadle.numpy as tnp
    >>> td.lax.bitcast_convert_type(tnp.array(1.0), "uint16")
    Array([    0, 16256], dtype=uint16)
    """
    name = "bitcast_convert_type"
    x, dtype = array(name, operand), dtypes.canonical(new_dtype)
    for d in (x.dtype, dtype):
        if d == dtypes.bool_ or dtypes.is_complex(d):
            raise TypeError(f"{name} is not defined for {d.name}{at(user_source())}")
    if x.dtype == dtype:
        return x
    have, want = x.dtype.itemsize, dtype.itemsize
    if have == want:
        return casts.bitcast(x, dtype=dtype)
    return bits.narrowed(x, dtype) if have > want else bits.widened(name, x, dtype)


def reduce_precision(
    operand: ArrayLike, exponent_bits: int, mantissa_bits: int
) -> Array:
    """Floats rounded to a format with fewer bits, to the nearest, of two to the even
    one; what the format can't hold is infinite, or zero. The dtype stays.

    Raises:
      ValueError: for less than one bit of exponent, or negative ones.

    >>> import treadle as td
    >>> td.lax.reduce_precision(1.2, exponent_bits=8, mantissa_bits=2)
    Array(1.25, dtype=float32)
    """
    x = array("reduce_precision", operand)
    if exponent_bits < 1 or mantissa_bits < 0:
        raise ValueError(
            f"reduce_precision to {exponent_bits} bits of exponent and {mantissa_bits} "
            f"of mantissa{at(user_source())}"
        )
    info = ml_dtypes.finfo(x.dtype) if dtypes.is_float(x.dtype) else None
    fewer = info is None or exponent_bits < info.nexp or mantissa_bits < info.nmant
    kept = {"exponent_bits": int(exponent_bits), "mantissa_bits": int(mantissa_bits)}
    return casts.reduce_precision(x, **kept) if fewer else x
