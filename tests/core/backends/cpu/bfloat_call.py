"""Calls products on tiles, spelt as asked, on NumPy arrays."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.core.backends.cpu import contract_call as calls
from treadle.backends.cpu.bfloat import kernel, schedule
from treadle.backends.cpu.bfloat.unit import Dtypes, Unit
from treadle.backends.cpu.gemm.arguments import FEW_KINDS, Word
from treadle.backends.cpu.gemm.kernel import Part
from treadle.backends.cpu.run import native
from treadle.kernels.contract import Contraction


def address(dtypes: Dtypes, unit: Unit, part: Part = Part.PLAIN) -> int:
    source = native.Source(
        f"test/{part.value}/{unit.name}/{dtypes}",
        part.value,
        lambda: kernel.emit_module(dtypes, unit, part),
    )
    return native.load([source])[source.key]


def product(
    c: np.ndarray,
    a: np.ndarray,
    b: np.ndarray,
    *,
    num_threads: int = 1,
    hooks: dict[Word, int] | None = None,
    unit: Unit | None = None,
) -> calls.Call:
    """c[b0, b1] = a[b0, b1] @ b[b0, b1], broadcasting a and b; arrays are 4-D views."""
    b0, b1, m, n = c.shape
    k = a.shape[3]
    a = np.broadcast_to(a, (b0, b1, m, k))
    b = np.broadcast_to(b, (b0, b1, k, n))
    options: dict[str, Any] = {"a_dtype": a.dtype, "b_dtype": b.dtype}
    steps = calls.strides(a), calls.strides(b), calls.strides(c)
    contraction = Contraction(c.dtype, m, n, k, *steps, b0, b1, **options)
    unit = unit or kernel.unit()
    launches = tuple(schedule.schedule(contraction, unit.speed, num_threads))
    pointers = {Word.A: a, Word.B: b, Word.C: c}
    few = launches[0].words[Word.KIND] in FEW_KINDS
    assert schedule.needs_few(contraction, unit.speed) == few
    part = Part.FEW if few else Part.PLAIN
    where = address(Dtypes(a.dtype, b.dtype, c.dtype), unit, part)
    return calls.Call(launches, pointers, hooks, where)
