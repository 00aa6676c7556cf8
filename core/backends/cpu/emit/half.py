"""Half floats: 16 bits in memory, float in registers."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from treadle.backends.cpu.emit.lanes import Value, half_name, select
from treadle.backends.cpu.target import host

_SUBNORMAL = 0x20
"""Of the classes that VFPCLASSPS tells."""


def widened(word: Value, dtype: np.dtype) -> Value:
    """The float that these bits (i16) of a half float stand for."""
    return replace(_widened(word, dtype), word=word)


def _widened(word: Value, dtype: np.dtype) -> Value:
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
    if 32 * x.lanes == 512 and "avx512bf16" in host().flags:
        return widened(_to_bfloat16(x), dtype)
    return (upper(x) & -0x10000).as_float()


def upper(x: Value) -> Value:
    """Bits, the upper half of which is the bfloat16 that a float is rounded to."""
    word = x.as_int()
    return select(x.is_nan(), word | 0x400000, _raised(word, 16))


def _to_bfloat16(x: Value) -> Value:
    """By the instruction, which takes subnormal numbers for zeros: where some are, by
    arithmetic all the same."""
    b, lanes, short = x.b, x.lanes, f"<{x.lanes} x bfloat>"
    convert = f"@llvm.x86.avx512bf16.cvtneps2bf16.{32 * lanes}"
    b.declare(f"{short} {convert}({x.type})")
    usual = x.new(f"call {short} {convert}({x.type} {x.text})", "bfloat")
    usual = usual.cast("bitcast", "i16")
    which = subnormal_lanes(x)
    some, before = b.op(f"icmp ne i{lanes} {which}, 0"), b.block
    with b.when(some, seldom=True):
        other = upper(x).op("lshr", 16).cast("trunc", "i16")
        inside = b.block
    found = f"[{usual.text}, %{before}], [{other.text}, %{inside}]"
    return usual.new(f"phi {usual.type} {found}")


def subnormal_lanes(x: Value) -> str:
    """A bit for each lane of a vector of AVX-512."""
    b, lanes = x.b, x.lanes
    classify = f"@llvm.x86.avx512.fpclass.ps.{32 * lanes}"
    b.declare(f"<{lanes} x i1> {classify}({x.type}, i32)")
    which = b.op(f"call <{lanes} x i1> {classify}({x.type} {x.text}, i32 {_SUBNORMAL})")
    return b.op(f"bitcast <{lanes} x i1> {which} to i{lanes}")


def packed(x: Value, dtype: np.dtype) -> Value:
    """The bits (i16) of a float that is `rounded`."""
    if x.word is not None:
        return x.word
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
