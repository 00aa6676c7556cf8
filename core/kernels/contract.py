"""Matrix products as data: what is computed, whatever device does it and however::

    C[b0, b1, m, n]  =  sum over k of  A[b0, b1, m, k] * B[b0, b1, k, n]

How one is run is for a target to choose (`treadle.plan.target`). Convolutions have a
description of their own (`treadle.kernels.convolve`).
"""

from __future__ import annotations

import numpy as np

from treadle import dtypes
from treadle.records import record


def is_half(dtype: np.dtype) -> bool:
    return dtype.itemsize == 2 and dtypes.is_float(dtype)


def is_small(dtype: np.dtype) -> bool:
    """Whether it has integers of less than 32 bits."""
    return dtype.kind in "biu" and dtype.itemsize < 4


@record(frozen=True)
class Strides:
    """Steps of one operand in elements. 0 repeats it, negative ones go backwards."""

    b0: int
    b1: int
    row: int
    column: int


@record(frozen=True)
class Contraction:
    """One matrix product, batched over up to two dimensions.

    dtype: of C. a_dtype, b_dtype: of A and B; None: as C. If one of them is a half
    float, elements of A and B are multiplied as that, and summed in float32; so are
    integers of a byte, beside these or float32. Integers of A and B that have less than
    32 bits are summed in 32, and wrap around there, if C has integers.
    a, b: any strides. c: its column stride must be 1; for a result that is wanted
    transposed swap the operands (C^T = B^T A^T).
    fused_a, fused_b: the operand never exists in memory: a *producer* computes elements
    of it when they are asked for; its strides are then not used. No stage makes these
    yet.
    """

    dtype: np.dtype
    m: int
    n: int
    k: int
    a: Strides
    b: Strides
    c: Strides
    b0: int = 1
    b1: int = 1
    fused_a: bool = False
    fused_b: bool = False
    a_dtype: np.dtype | None = None
    b_dtype: np.dtype | None = None

    def __post_init__(self) -> None:
        sizes = (self.b0, self.b1, self.m, self.n, self.k)
        if any([n < 1 for n in sizes]):
            raise ValueError(
                f"a contraction's sizes must be at least 1, not {sizes}: write zeros "
                "(or nothing) where a size is 0"
            )
        if self.c.column != 1 and self.n > 1:
            raise ValueError(
                f"C needs column stride 1, not {self.c.column}: swap A and B"
            )

    @property
    def dtypes(self) -> tuple[np.dtype, np.dtype, np.dtype]:
        """Of A, B and C."""
        return self.a_dtype or self.dtype, self.b_dtype or self.dtype, self.dtype

    @property
    def half(self) -> np.dtype | None:
        """The half float that elements of A and B are multiplied as, if any."""
        return next((d for d in self.dtypes if is_half(d)), None)

    @property
    def packed(self) -> np.dtype | None:
        """The float that elements of A and B are made where they are packed, if they
        aren't multiplied as they lie in memory."""
        if self.half is not None or self.dtype.kind in "iu":
            return self.half
        return self.dtype if any(map(is_small, self.dtypes[:2])) else None

    @property
    def short(self) -> bool:
        """Whether integers of less than 32 bits are multiplied as that."""
        return self.dtype.kind in "iu" and all(map(is_small, self.dtypes[:2]))

    @property
    def flops(self) -> int:
        return 2 * self.b0 * self.b1 * self.m * self.n * self.k

    @property
    def sizes(self) -> str:
        """The sizes for people: batches x rows, sum, columns."""
        return f"({self.b0 * self.b1} x {self.m}, {self.k}, {self.n})"
