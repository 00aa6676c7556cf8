"""Half floats: 16 bits in memory, float in registers."""

from __future__ import annotations

import numpy as np

from treadle.backends.cpu.emit.lanes import Value, half_name, select
from treadle.backends.cpu.target import host


def widened(word: Value, dtype: np.dtype) -> Value:
    """The float that these bits (i16) of a half float stand for."""
    if half_name(dtype) == "bfloat16":
        return (word.cast("zext", "i32") << 16).as_float()
    if _has_conversions():
        return word.cast("bitcast", "half").cast("fpext", "float")
    word = word.cast("zext", "i32")
    magnitude, sign = word & 0x7FFF, (word & 0x8000) << 16
    # With the exponent at its new place, its new bias is a factor. That is right for
    # subnormal numbers, too.
    finite = ((magnitude << 13).as_float() * 2.0**112).as_int()
    special = magnitude.compare("uge", 0x7C00)
    return (select(special, finite | 0x7F800000, finite) | sign).as_float()


def rounded(x: Value, dtype: np.dtype) -> Value:
    """A float rounded to what a half float holds (ties to even); NaN stays NaN."""
    if half_name(dtype) != "bfloat16":
        return widened(_to_float16(x), dtype)
    word = x.as_int()
    upper = select(x.is_nan(), word | 0x400000, _raised(word, 16))
    return (upper & -0x10000).as_float()


def packed(x: Value, dtype: np.dtype) -> Value:
    """The bits (i16) of a float that is `rounded`."""
    if half_name(dtype) != "bfloat16":
        return _to_float16(x)
    return x.as_int().op("lshr", 16).cast("trunc", "i16")


def _to_float16(x: Value) -> Value:
    if _has_conversions():
        return x.cast("fptrunc", "half").cast("bitcast", "i16")
    word = x.as_int()
    magnitude, sign = word & 0x7FFFFFFF, (word & -0x80000000).op("lshr", 16)
    usual = _raised(magnitude - ((127 - 15) << 23), 13).op("lshr", 13)
    # The last bit of a sum with 1/2 is worth as much as that of a subnormal half float.
    small = (magnitude.as_float() + 0.5).as_int() - 0x3F000000
    result = select(magnitude.compare("ult", 113 << 23), small, usual)
    result = select(magnitude.compare("ugt", 0x477FFFFF), 0x7C00, result)
    result = select(x.is_nan(), 0x7E00, result)
    return (result | sign).cast("trunc", "i16")


def _raised(word: Value, count: int) -> Value:
    """A word whose last `count` bits can be dropped, for a word rounded to even."""
    odd = word.op("lshr", count) & 1
    return word + (odd + ((1 << (count - 1)) - 1))


def _has_conversions() -> bool:
    """Whether float16 is converted by an instruction (elsewhere by a library call that
    may not be there)."""
    return host().arch == "aarch64" or "f16c" in host().flags
