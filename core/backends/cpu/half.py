"""Half floats: 16 bits in memory, float in registers."""

from __future__ import annotations

import numpy as np

from treadle.backends.cpu.lanes import Value, half_name, select
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


def narrowed(x: Value, dtype: np.dtype) -> Value:
    """A float rounded to a half float (ties to even), as bits (i16); NaN stays NaN."""
    word = x.as_int()
    if half_name(dtype) == "bfloat16":
        rounded = _upper(word, 16)
        quiet = word.op("lshr", 16) | 0x40
        return select(x.is_nan(), quiet, rounded).cast("trunc", "i16")
    if _has_conversions():
        return x.cast("fptrunc", "half").cast("bitcast", "i16")
    magnitude, sign = word & 0x7FFFFFFF, (word & -0x80000000).op("lshr", 16)
    usual = _upper(magnitude - ((127 - 15) << 23), 13)
    # The last bit of a sum with 1/2 is worth as much as that of a subnormal half float.
    small = (magnitude.as_float() + 0.5).as_int() - 0x3F000000
    result = select(magnitude.compare("ult", 113 << 23), small, usual)
    result = select(magnitude.compare("ugt", 0x477FFFFF), 0x7C00, result)
    result = select(x.is_nan(), 0x7E00, result)
    return (result | sign).cast("trunc", "i16")


def _upper(word: Value, count: int) -> Value:
    """The word without its last `count` bits, rounded, ties to even."""
    odd = word.op("lshr", count) & 1
    return (word + ((1 << (count - 1)) - 1) + odd).op("lshr", count)


def _has_conversions() -> bool:
    """Whether float16 is converted by an instruction (elsewhere by a library call that
    may not be there)."""
    return host().arch == "aarch64" or "f16c" in host().flags
