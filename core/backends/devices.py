"""The devices that there are: which one is the default, and what compiles for each."""

from __future__ import annotations

import os
from functools import cache

from treadle.backends.cpu.device import CPUTarget
from treadle.backends.reference.program import ReferenceTarget
from treadle.plan.target import Target

TARGETS: dict[str, Target] = {t.name: t for t in (CPUTarget(), ReferenceTarget())}


@cache
def default() -> Target:
    """The device of what no operand places elsewhere.

    Raises:
      ValueError: if TREADLE_DEVICE names none.
    """
    name = os.environ.get("TREADLE_DEVICE") or "cpu"
    if name not in TARGETS:
        known = " or ".join(map(repr, TARGETS))
        raise ValueError(f"TREADLE_DEVICE must be {known}, not {name!r}")
    return TARGETS[name]
