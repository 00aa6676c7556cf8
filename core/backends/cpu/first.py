"""What hardly any program does without, compiled ahead: the interpreter of programs,
threads, and products."""

from __future__ import annotations

import numpy as np

from treadle.backends.cpu.gemm import kernel as gemm
from treadle.backends.cpu.run import executor, native, threads


def begin() -> None:
    """Begins to compile it, on another thread."""
    products = gemm.source(np.dtype(np.float32))
    native.begin([threads.source(), executor.SOURCE, products])
