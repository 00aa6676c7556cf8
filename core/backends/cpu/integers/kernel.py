"""The matrix product of integers of less than 32 bits: tasks, arguments, packing and
blocks are those of bfloat16 (`treadle.backends.cpu.bfloat.kernel`)."""

from __future__ import annotations

import functools

import numpy as np

from treadle.backends.cpu.bfloat.kernel import emit_module
from treadle.backends.cpu.bfloat.unit import Dtypes
from treadle.backends.cpu.integers.unit import IntegerUnit
from treadle.backends.cpu.integers.vectors import Instructions
from treadle.backends.cpu.run.native import Source
from treadle.backends.cpu.target import integer_unit


def unit(a: np.dtype, b: np.dtype) -> IntegerUnit:
    """What multiplies integers of two dtypes on this machine."""
    return IntegerUnit(Instructions(integer_unit()), a, b)


def common() -> list[Source]:
    """The kernels of bytes, if this machine multiplies these."""
    signed, unsigned = np.dtype(np.int8), np.dtype(np.uint8)
    result = np.dtype(np.int32)
    pairs = [(signed, signed), (unsigned, signed)] if integer_unit() else []
    return [source(Dtypes(a, b, result)) for a, b in pairs]


@functools.cache
def source(given: Dtypes) -> Source:
    """The kernel ``contract`` for operands and results of these dtypes."""
    found = unit(given.a, given.b)
    names = " ".join(dtype.name for dtype in given[:2])

    return Source(
        f"contract/{found.name}/{names}",
        "contract",
        lambda: emit_module(given, found),
    )
