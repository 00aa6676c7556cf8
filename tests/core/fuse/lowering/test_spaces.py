"""The loops over operands: which elements they reach, against NumPy's strides."""

from __future__ import annotations

import numpy as np

from tests.core.fuse.lowering.alone import kernel
from tests.core.plan.steps import ROW, F, launch
from treadle.arraytype import ArrayType
from treadle.fuse.lowering.launches import ProductKernel
from treadle.fuse.lowering.products import product
from treadle.fuse.lowering.spaces import loops_of, sides_of
from treadle.ir.graph import Var
from treadle.kernels.contract import Contraction, Strides
from treadle.kernels.convolve import Axis, ConvSpec
from treadle.kernels.nest import BROADCAST, CONTIGUOUS, PAIRED, STRIDED, Nest, Operand

V = Var(ArrayType((2,), F))


def test_loops_of_a_nest_are_outer_mid_and_inner() -> None:
    made = launch((False, 0, 0), (True, 0, 0))
    for kind, last in ((BROADCAST, 0), (CONTIGUOUS, 1), (PAIRED, 2)):
        o = Operand(F, kind, mid=True)
        nest = Nest(2, 1, "mid", (o, o), made.nest.body)
        found = made._replace(nest=nest, outer=(5, 6), mid=(7,), inner=9)
        b = found.bindings[0]._replace(strides=(50, 40, 30))
        assert loops_of(found, b, o) == [(5, 50), (6, 40), (7, 30), (9, last)]
        # The last stride is for data that say where: no loop of its own.
        b = b._replace(strides=(50, 40, 30, 20))
        assert loops_of(found, b, o) == [(5, 50), (6, 40), (7, 30), (9, last)]
        assert loops_of(found, b, o._replace(inner=STRIDED))[-1] == (9, 20)
    assert loops_of(made, made.bindings[0], Operand(F, CONTIGUOUS)) == [
        (4, 0),
        (ROW, 1),
    ]


def test_sides_of_a_product() -> None:
    a, b, c = Strides(1, 2, 3, 4), Strides(5, 6, 7, 8), Strides(9, 10, 11, 1)
    what = Contraction(F, 30, 40, 50, a, b, c, 10, 20)
    sides = sides_of(ProductKernel(what, (V, 0), (V, 0), V))
    assert sides == (
        [(10, 1), (20, 2), (30, 3), (50, 4)],
        [(10, 5), (20, 6), (50, 7), (40, 8)],
        [(10, 9), (20, 10), (30, 11), (40, 1)],
    )


def test_sides_of_a_convolution() -> None:
    y, x, z = Axis(9, 7, 3), Axis(8, 5, 4), Axis(6, 2, 5)
    what = ConvSpec(
        F, 14, 12, 20, y, x, Strides(1, 2, 3, 4), Strides(5, 6, 7, 8),
        Strides(9, 10, 11, 1), groups=4, z=z,
    )  # fmt: skip
    images = [(42, 1), (9, 2), (8, 3), (12, 4)]
    taps = [(15, 5), (4, 6), (3, 7), (20, 8)]
    results = [(14, 9), (7, 10), (5, 11), (20, 1)]
    kernel = ProductKernel(what, (V, 0), (V, 0), V)
    assert sides_of(kernel) == (images, taps, results)
    kernel = ProductKernel(what, (V, 0), (V, 0), V, filter_gradient=True)
    assert sides_of(kernel) == (images, results, taps)


def test_a_product_reaches_all_of_its_operands() -> None:
    x, y = np.ones((3, 4), F), np.ones((4, 5), F)
    _, made = kernel(lambda x, y: x @ y, product, x, y)
    reached = [
        sorted(np.add.outer(*(np.arange(n) * s for n, s in side[2:])).ravel())
        for side in sides_of(made)
    ]
    assert reached == [[*range(12)], [*range(20)], [*range(15)]]
