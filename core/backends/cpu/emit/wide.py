"""Vectors as wide as the machine's of narrow elements.

Nests have as many lanes as vectors of float32, so that nests of several dtypes have one
number of them. Where all of a nest is narrower, some code is written for more.
"""

from __future__ import annotations

from functools import lru_cache

from treadle.backends.cpu.emit.lanes import bits, host_lanes, register_kind
from treadle.backends.cpu.target import host
from treadle.kernels.nest import Nest

WIDE = "wide "
"""What entries of `emit` begin with that are for more lanes than float32 has."""
CHOOSES_BYTES = "avx512vbmi"
"""The extension that chooses among all bytes of a register."""
_WIDEST = {32: 8, 64: 16}
"""Bits of elements, by bytes of registers: AVX2 takes longer to choose among more
shorts than float32s (1.2 times for rows of 3)."""


@lru_cache(maxsize=4096)
def wide_lanes(nest: Nest) -> int:
    """Lanes of the machine's vectors of the widest dtype of this nest, if there are
    instructions that choose among so many; else those of float32."""
    width, lanes = host().vector_bytes, host_lanes()
    most = _WIDEST.get(width, 0) if width == 32 or _extends() else 0
    dtypes = {o.dtype for o in nest.operands} | {i.dtype for i in nest.body}
    widest = max(8, *(bits(register_kind(d)) for d in dtypes))
    return 8 * width // widest if widest <= most else lanes


def _extends() -> bool:
    return host().vector_bytes == 64 and CHOOSES_BYTES in host().flags


def attributes() -> str:
    """Of functions with such vectors: all others keep their code."""
    if not _extends():
        return ""
    return f' "target-features"="{host().features},+{CHOOSES_BYTES}"'
