"""How much a nest has to do."""

from __future__ import annotations

import math

from treadle.fuse.lowering.launches import Launch


def points(launch: Launch) -> int:
    """How often the innermost statement runs."""
    return math.prod(launch.outer) * math.prod(launch.mid) * launch.inner


def traffic_bytes(launch: Launch) -> int:
    """Bytes that the nest's operands move, counting broadcasts once per row."""
    total = 0
    for binding, operand in zip(launch.bindings, launch.nest.operands, strict=True):
        if binding.atom is not None:
            total += (
                min(points(launch), binding.atom.type.size) * operand.dtype.itemsize
            )
    return total
