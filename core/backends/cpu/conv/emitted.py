"""Convolutions of floats in the module of products, whose micro-kernels they call."""

from __future__ import annotations

from treadle.backends.cpu.conv.filter_kernel import emit_filter_gradient
from treadle.backends.cpu.conv.kernel import emit_convolution
from treadle.backends.cpu.conv.together import emit_together
from treadle.backends.cpu.conv.winograd import LINES, SQUARES
from treadle.backends.cpu.conv.winograd_filter import emit_winograd_filter
from treadle.backends.cpu.conv.winograd_kernel import emit_winograd
from treadle.backends.cpu.emit.builder import Builder
from treadle.backends.cpu.gemm.arguments import Kind
from treadle.backends.cpu.gemm.tile import Machine


def emit_convolutions(
    b: Builder, machine: Machine, gradients: bool, squares: bool, lines: bool
) -> dict[Kind, str]:
    """Gives which function is which kernel.

    squares, lines: whether floats have such tiles.
    """
    emit_convolution(b, machine)
    emit_together(b, machine)
    kinds = {Kind.CONVOLUTION: "convolution", Kind.TOGETHER: "together"}
    forms = []
    if machine.scalar == "float":
        forms = [SQUARES] * squares + [LINES] * lines
    for form in forms:
        emit_winograd(b, machine, form)
        kinds[form.kind] = form.name
    if gradients:
        emit_filter_gradient(b, machine)
        kinds[Kind.FILTER_GRADIENT] = "filter_gradient"
        kinds[Kind.SUM_PARTIALS] = "sum_partials"
        for form in forms:
            emit_winograd_filter(b, machine, form)
            kinds[form.filter_kind] = f"{form.name}_gradient"
    return kinds
