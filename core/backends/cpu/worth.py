"""Whether code of its own for short rows is worth what LLVM takes for it.

It takes two to four times as long as the code for any rows, which computes the same to
the bit. So it is made where a considerable part of a program's time is gained by it.
"""

from __future__ import annotations

import math

from treadle.backends.cpu.emit.few_columns import COLUMNS
from treadle.backends.cpu.emit.known import TOGETHER, entry_and_known
from treadle.backends.cpu.emit.points import POINTS
from treadle.backends.cpu.emit.short import has_short_rows, reads_back
from treadle.backends.cpu.emit.wide import WIDE
from treadle.dims import hint
from treadle.fuse.lowering.launches import Launch
from treadle.plan.weight import instructions

_PART = 250
"""The part of a program's time that must be gained, as a divisor."""

_A_ROW = 90
"""Instructions on an element that take as long as a row of an elementwise nest does by
itself: about 3 ns."""
_FEW, _KNOWN, _SHORT = 35, 14, 5
"""The same for each instruction of other nests, where vectors go across rows, in
registers, and where rows end together: about 1.2, 0.5, and 0.2 ns."""
_A_TURN = 20
"""The same of a turn of a nest with few columns: about 0.7 ns."""


def gains_much(launch: Launch, entry: str) -> bool:
    """Whether what a launch gains by an entry of `emit` for short rows is much of what
    its program takes. Sizes that are open count as in the trace.

    It is always much where a row waits for the one before, and where a program is not
    known.
    """
    nest = launch.nest
    if not launch.whole or reads_back(nest):
        return True
    name, known = entry_and_known(entry.removeprefix(WIDE))
    if name.startswith(COLUMNS):
        each = _A_TURN
    elif name in (POINTS, TOGETHER) or has_short_rows(nest):
        each = _A_ROW
    elif known.columns and name == "task":
        each = _KNOWN * instructions(nest)
    else:
        each = (_SHORT if name == "short" else _FEW) * instructions(nest)
    rows = math.prod([hint(n) for n in (*launch.outer, *launch.mid)])
    return rows * each * _PART >= launch.whole
