"""The loops over operands of kernels: their lengths, and steps in elements."""

from __future__ import annotations

from treadle.fuse.check import Loops
from treadle.fuse.lowering.launches import Binding, Launch, ProductKernel
from treadle.kernels.contract import Contraction, Strides
from treadle.kernels.convolve import ConvSpec
from treadle.kernels.nest import STRIDED, Operand


def loops_of(launch: Launch, b: Binding, o: Operand) -> Loops:
    """Lengths and steps of a nest's loops for an operand."""
    count = len(launch.outer) + len(launch.mid)
    inner = b.strides[count] if o.inner == STRIDED else o.inner
    sizes = (*launch.outer, *launch.mid, launch.inner)
    return list(zip(sizes, (*b.strides[:count], inner), strict=True))


def sides_of(p: ProductKernel) -> tuple[Loops, Loops, Loops]:
    """The loops over a, b and c."""
    what = p.contraction
    if isinstance(what, Contraction):
        b0, b1, m, n, k = what.b0, what.b1, what.m, what.n, what.k
        return (
            _over((b0, b1, m, k), what.a),
            _over((b0, b1, k, n), what.b),
            _over((b0, b1, m, n), what.c),
        )
    images, filters, results = _of_convolution(what)
    return (
        (images, results, filters) if p.filter_gradient else (images, filters, results)
    )


def _of_convolution(what: ConvSpec) -> tuple[Loops, Loops, Loops]:
    rows = what.z.taps * what.y.taps
    taps = (rows, what.x.taps, what.channels // what.groups, what.features)
    return (
        _over((what.images_in, what.y.size, what.x.size, what.channels), what.input),
        _over(taps, what.filter),
        _over((what.images, what.y.out, what.x.out, what.features), what.output),
    )


def _over(sizes: tuple[int, int, int, int], s: Strides) -> Loops:
    return list(zip(sizes, (s.b0, s.b1, s.row, s.column), strict=True))
