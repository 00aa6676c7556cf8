"""The devices that there are: which one is the default, and what compiles for it."""

from __future__ import annotations

from treadle.backends.cpu.device import CPUTarget
from treadle.plan.target import Target


def default() -> Target:
    """The target of computations that no operand places elsewhere."""
    return _CPU


_CPU = CPUTarget()
