"""The kernels of attention: one for each dtype, direction and set of masks."""

from __future__ import annotations

import functools
from dataclasses import replace

import numpy as np

from treadle.backends.cpu.attention.backward import emit_backward
from treadle.backends.cpu.attention.forward import emit_forward, emit_products
from treadle.backends.cpu.attention.halves import emit_halves
from treadle.backends.cpu.attention.panels import emit_panels
from treadle.backends.cpu.attention.parts import Code, emit_fills
from treadle.backends.cpu.attention.schedule import in_pairs, wide
from treadle.backends.cpu.emit.builder import Builder
from treadle.backends.cpu.gemm.kernel import machine_for
from treadle.backends.cpu.gemm.pack import emit_copies
from treadle.backends.cpu.gemm.sweep import ONE_SEGMENT, emit_sweep, needed
from treadle.backends.cpu.gemm.tile import Machine
from treadle.backends.cpu.run.divided import exported
from treadle.backends.cpu.run.native import Source
from treadle.backends.cpu.target import bfloat_unit, host
from treadle.dtypes import bfloat16
from treadle.trace.routine import Attention


def source(a: Attention) -> Source:
    """The kernel that attention runs."""
    return _source(a.dtype, a.backward, tuple([name for name, _ in a.masks]))


@functools.cache
def _source(dtype: np.dtype, backward: bool, masks: tuple[str, ...]) -> Source:
    parts = ["attend", "backward" if backward else "forward", dtype.name, *masks]
    symbol = "_".join(parts)

    needs = (*_parts(dtype).needs, _parts(dtype))
    return Source(
        symbol,
        symbol,
        lambda: emit_module(dtype, symbol, backward, masks),
        level=1,
        needs=needs,
    )


def common() -> list[Source]:
    """The kernels that most programs with attention have: without masks, with those of
    one kind, and with dropout beside one of what is seen."""
    dtypes = [np.dtype(np.float32), *([bfloat16] if bfloat_unit() else [])]
    kinds = (), ("bias",), ("seen",), ("kept",), ("seen", "kept")
    return [
        _source(dtype, backward, masks)
        for dtype in dtypes
        for masks in kinds
        for backward in (False, True)
    ]


@functools.cache
def _parts(dtype: np.dtype) -> Source:
    """The module of what all kernels of a dtype have in common: what copies, and the
    products of rows and panels."""
    symbol, *exports = _names(dtype)
    return Source(
        f"attend_parts_{dtype.name}",
        symbol,
        lambda: emit_parts(dtype),
        level=1,
        needs=needed(lambda: _machine(dtype)),
        exports=tuple(exports),
    )


def _names(dtype: np.dtype) -> list[str]:
    """The functions of `_parts` that are called from outside."""
    found = ["products", "pack_turned", "give_rows", "pack_rows", "fill"]
    if wide(dtype) != dtype:
        found.append("take_rows")
    if in_pairs(dtype):
        found += ["pack_pairs", "interleave", "fill_pairs"]
    return found


def _machine(dtype: np.dtype) -> Machine:
    found = machine_for(wide(dtype), host())
    return replace(found, pairs=in_pairs(dtype), apart=True)


def emit_parts(dtype: np.dtype) -> str:
    """The IR text of what `_parts` is."""
    b, machine = Builder(), _machine(dtype)
    emit_sweep(b, machine)
    emit_copies(b, machine)
    b.lines.append(ONE_SEGMENT)
    code = Code(b, machine, dtype)
    emit_panels(code)
    emit_fills(code)
    emit_halves(code)
    emit_products(code)
    return exported(b.text(), _names(dtype))


def emit_module(
    dtype: np.dtype, symbol: str, backward: bool, masks: tuple[str, ...]
) -> str:
    """The IR text of a module that defines one kernel, for operands of a dtype."""
    b, machine = Builder(), _machine(dtype)
    emit_sweep(b, machine)
    emit_copies(b, machine)
    b.lines.append(ONE_SEGMENT)
    code = Code(b, machine, dtype, elsewhere=_names(dtype))
    (emit_backward if backward else emit_forward)(code, symbol, masks)
    return b.text()
