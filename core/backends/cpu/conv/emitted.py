"""Convolutions of floats in the module of products, whose micro-kernels they call."""

from __future__ import annotations

from treadle.backends.cpu.conv.filter_kernel import emit_filter_gradient
from treadle.backends.cpu.conv.kernel import emit_convolution
from treadle.backends.cpu.conv.together import emit_together
from treadle.backends.cpu.conv.winograd_filter import emit_winograd_filter
from treadle.backends.cpu.conv.winograd_kernel import emit_winograd
from treadle.backends.cpu.emit.builder import Builder
from treadle.backends.cpu.gemm.arguments import Kind
from treadle.backends.cpu.gemm.tile import Machine


def emit_convolutions(b: Builder, machine: Machine, gradients: bool) -> dict[Kind, str]:
    """Gives which function is which kernel."""
    emit_convolution(b, machine)
    emit_together(b, machine)
    kinds = {Kind.CONVOLUTION: "convolution", Kind.TOGETHER: "together"}
    tiles = machine.scalar == "float"
    if tiles:
        emit_winograd(b, machine)
        kinds[Kind.WINOGRAD] = "winograd"
    if gradients:
        emit_filter_gradient(b, machine)
        kinds[Kind.FILTER_GRADIENT] = "filter_gradient"
        kinds[Kind.SUM_PARTIALS] = "sum_partials"
    if gradients and tiles:
        emit_winograd_filter(b, machine)
        kinds[Kind.WINOGRAD_FILTER] = "winograd_gradient"
    return kinds
