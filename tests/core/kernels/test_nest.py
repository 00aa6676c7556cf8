"""Nests as data: their names in every process."""

from __future__ import annotations

from dataclasses import replace

from treadle import dtypes
from treadle.kernels.nest import CONTIGUOUS, Instr, Nest, Operand


def nest(dtype: object = dtypes.float32, number: object = 1.0) -> Nest:
    """A row of numbers that are written."""
    operand = Operand(dtype, CONTIGUOUS)  # type: ignore[arg-type]
    const = Instr("const", (), operand.dtype, number)
    store = Instr("store", (0,), operand.dtype, 0)
    return Nest(1, 0, "inner", (operand,), (const, store))


OTHERS = [
    nest(),
    # All of two bytes, or of one: NumPy's short names of them are the same.
    *map(nest, (dtypes.bfloat16, dtypes.float16, dtypes.int16)),
    *map(nest, (dtypes.float64, dtypes.int32, dtypes.int8, dtypes.uint8)),
    # Equal to one another, but for their classes or signs.
    *[nest(number=x) for x in (1, True, 0.0, -0.0, None, "1.0")],
    replace(nest(), outer=2),
    replace(nest(), mid=1),
    replace(nest(), axis="mid"),
    replace(nest(), serial=True),
    replace(nest(), operands=(Operand(dtypes.float32, CONTIGUOUS, "index"),)),
    replace(nest(), body=nest().body[:1]),
]


def test_nests_that_differ_have_other_digests() -> None:
    assert len({each.digest for each in OTHERS}) == len(OTHERS)


def test_equal_nests_have_one_digest() -> None:
    assert nest().digest == nest().digest
