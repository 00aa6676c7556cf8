"""What kernels say of themselves."""

from __future__ import annotations

import numpy as np

from treadle.arraytype import ArrayType
from treadle.fuse.lowering.launches import KernelEntry, ProductKernel, Sort, Within
from treadle.ir.graph import Var
from treadle.kernels.contract import Contraction, Strides


def var(*shape: int, dtype: str = "uint32") -> Var:
    return Var(ArrayType(shape, np.dtype(dtype)))


def test_a_sort_has_rows_and_places() -> None:
    sort = Sort(var(2, 3, 7), var(2, 3, 4, dtype="int32"), 7)
    assert (sort.rows, sort.places, sort.length) == (6, 4, 7)
    assert Sort(var(5), var(5, dtype="int32"), 5).rows == 1


def test_defaults() -> None:
    v = var(2)
    assert Within(v) == (v, 0)
    entry = KernelEntry(Sort(v, v, 2))
    assert (entry.names, entry.alone, entry.begins) == ((), False, None)
    steps = Strides(0, 0, 2, 1)
    what = Contraction(v.type.dtype, 1, 1, 2, steps, steps, steps)
    product = ProductKernel(what, (v, 0), (v, 0), v)
    assert product.epilogue is None
    assert not product.filter_gradient
