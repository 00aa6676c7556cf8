"""What the tasks of a nest divide among themselves, and the scratch that they need."""

from __future__ import annotations

from treadle.kernels.lower import is_reduction, is_running, is_store, schedule
from treadle.kernels.nest import Nest, is_half

SCRATCH_LANES = 16
"""Scratch rows are rounded up to this many elements, so full vectors fit."""


def scratch_rows(nest: Nest) -> int:
    """How many scratch rows a task needs."""
    return len(schedule(nest).kept)


def scratch_bytes(nest: Nest, inner: int) -> int:
    """Bytes of scratch per task for rows of `inner` elements; a multiple of 64."""
    row = -(-inner // SCRATCH_LANES) * SCRATCH_LANES
    total = sum(row * size for size in scratch_sizes(nest))
    return -(-total // 64) * 64


def scratch_sizes(nest: Nest) -> list[int]:
    """Bytes per element of each scratch row (half floats are kept as float32)."""
    kept = schedule(nest).kept
    sizes = (nest.body[i].dtype for i in kept)
    return [max(d.itemsize, 4) if is_half(d) else d.itemsize for d in sizes]


def split_axis(nest: Nest) -> str:
    """What the tasks of a kernel divide among themselves.

    "rows" (the collapsed outer dimensions), "inner", "either" (rows, or inner if there
    are fewer rows than tasks), "blocks" (rows times blocks of inner), or "none": then
    every task but the first has nothing to do.
    """
    if nest.axis == "mid":
        return "none" if nest.serial else "blocks"
    rows = nest.outer and not nest.serial
    if _divides(nest):
        return "either" if rows else "inner"
    return "rows" if rows else "none"


def _divides(nest: Nest) -> bool:
    """Whether parts of a row can be worked on by different tasks."""
    plan = schedule(nest)
    return not any(
        is_reduction(instr)
        or is_running(instr)
        or (
            is_store(instr)
            and (not plan.varying[i] or any(plan.varying[a] for a in instr.args[1:]))
        )
        for i, instr in enumerate(nest.body)
    )
