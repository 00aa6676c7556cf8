"""Kernels that programs of all kinds have, and that no program decides: what is
compiled when the library is installed. Each room says which of its own are such."""

from __future__ import annotations

from treadle.backends.cpu import families
from treadle.backends.cpu.gemm import kernel as gemm
from treadle.backends.cpu.run import callpath, executor, threads
from treadle.backends.cpu.run.native import Source

_ROOMS = (
    *("attention", "bfloat", "conv_depthwise", "conv_pairs", "fourier_stockham"),
    *("integers", "lapack", "order"),
)


def sources() -> list[Source]:
    """All of them."""
    found = [threads.source(), executor.SOURCE, callpath.SOURCE, *gemm.common()]
    for room in _ROOMS:
        found += families.load(room).common()
    return found
