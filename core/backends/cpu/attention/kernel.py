"""The kernels of attention: one for each dtype, direction and set of masks."""

from __future__ import annotations

import functools
from dataclasses import replace

import numpy as np

from treadle.backends.cpu.attention.backward import emit_backward
from treadle.backends.cpu.attention.forward import emit_forward
from treadle.backends.cpu.attention.halves import emit_halves
from treadle.backends.cpu.attention.panels import emit_panels
from treadle.backends.cpu.attention.parts import Code, emit_fills
from treadle.backends.cpu.attention.schedule import in_pairs, wide
from treadle.backends.cpu.emit.builder import Builder
from treadle.backends.cpu.gemm.kernel import machine_for
from treadle.backends.cpu.gemm.pack import emit_copies
from treadle.backends.cpu.gemm.sweep import emit_sweep, emit_tiles, needed
from treadle.backends.cpu.gemm.tile import Machine
from treadle.backends.cpu.run.native import Source
from treadle.backends.cpu.target import host, llvm
from treadle.trace.routine import Attention


def source(a: Attention) -> Source:
    """The kernel that attention runs."""
    return _source(a.dtype, a.backward, tuple([name for name, _ in a.masks]))


@functools.cache
def _source(dtype: np.dtype, backward: bool, masks: tuple[str, ...]) -> Source:
    parts = ["attend", "backward" if backward else "forward", dtype.name, *masks]
    symbol = "_".join(parts)

    def machine() -> Machine:
        found = machine_for(wide(dtype), host())
        return replace(found, pairs=in_pairs(dtype), apart=True)

    def emit() -> str:
        llvm().initialize_native_asmparser()  # for the assembly in the kernels
        return emit_module(machine(), dtype, symbol, backward, masks)

    return Source(symbol, symbol, emit, level=1, needs=needed(machine))


def emit_module(
    machine: Machine,
    dtype: np.dtype,
    symbol: str,
    backward: bool,
    masks: tuple[str, ...],
) -> str:
    """The IR text of a module that defines one kernel, for operands of a dtype."""
    b = Builder()
    emit_tiles(b, machine)
    emit_sweep(b, machine)
    b.lines.append("@one_segment = internal constant [2 x i64] zeroinitializer")
    emit_copies(b, machine)
    code = Code(b, machine, dtype)
    emit_panels(code)
    emit_fills(code)
    emit_halves(code)
    (emit_backward if backward else emit_forward)(code, symbol, masks)
    return b.text()
