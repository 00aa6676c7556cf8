"""Convolutions of bfloat16 by Winograd's tiles, in float32.

Operands become floats where they are padded and packed, which is all that reads them,
and results are rounded once, where they are written. So they lose what float32 does,
and a convolution takes about as long as one of float32, which is less than one of pairs
takes that multiplies pixel by pixel (see `winograd_schedule`).
"""

from __future__ import annotations

import functools
from dataclasses import replace

from treadle.backends.cpu.conv import pairs
from treadle.backends.cpu.conv.filter_kernel import emit_sum
from treadle.backends.cpu.conv.pad import emit_pad
from treadle.backends.cpu.conv.winograd import SQUARES
from treadle.backends.cpu.conv.winograd_filter import emit_winograd_filter
from treadle.backends.cpu.conv.winograd_kernel import emit_tiles_of_row, emit_winograd
from treadle.backends.cpu.emit.builder import Builder
from treadle.backends.cpu.gemm.arguments import Kind
from treadle.backends.cpu.gemm.pack import emit_pack
from treadle.backends.cpu.gemm.parts import emit_dispatch
from treadle.backends.cpu.gemm.sweep import ONE_SEGMENT, emit_sweep, emit_tiles, needed
from treadle.backends.cpu.gemm.tile import Machine
from treadle.backends.cpu.run.native import Source
from treadle.backends.cpu.target import bfloat_unit, llvm
from treadle.kernels.convolve import ConvSpec


def machine(short: bool = False) -> Machine:
    """What multiplies floats here, of which operands are bfloat16.

    short: whether results are.
    """
    return replace(pairs.machine(short), pairs=False, halves=True, apart=True)


def source(spec: ConvSpec, gradient: bool) -> Source:
    """The kernel of a convolution, or of its gradient by the filter."""
    return _source(gradient, spec.dtype.itemsize == 2, bfloat_unit())


@functools.cache
def _source(gradient: bool, short: bool, unit: str) -> Source:
    what = "filter" if gradient else "images"
    result = "bfloat16" if short else "float"
    return Source(
        f"convolve_tiles/{unit}/{what}/{result}",
        "convolve",
        lambda: emit_module(machine(short), gradient),
        needs=needed(lambda: replace(machine(), halves=False)),
    )


def emit_module(machine: Machine, gradient: bool) -> str:
    """IR of everything that one of the two needs."""
    llvm().initialize_native_asmparser()  # for the assembly in the kernels
    b, sums = Builder(), replace(machine, short=False)
    emit_tiles(b, sums)
    emit_sweep(b, sums)
    b.lines.append(ONE_SEGMENT)
    emit_pack(b, machine)
    emit_pad(b, machine)
    kinds = {Kind.WINOGRAD: "winograd"}
    if gradient:
        emit_tiles_of_row(b, machine, SQUARES)
        emit_winograd_filter(b, sums, SQUARES)
        emit_sum(b, machine)
        kinds = {
            Kind.WINOGRAD_FILTER: "winograd_gradient",
            Kind.SUM_PARTIALS: "sum_partials",
        }
    else:
        emit_winograd(b, machine, SQUARES)
    emit_dispatch(b, "convolve", kinds)
    return b.text()
