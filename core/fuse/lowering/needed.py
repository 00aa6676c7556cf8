"""What of a nest's instructions some store needs.

A cluster computes what its equations do. If only others read a result, and compute it
again for themselves, what it is made of is needed here no more.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from treadle.kernels.lower import is_store
from treadle.kernels.nest import Instr

T = TypeVar("T")


def needed(
    instrs: Sequence[Instr], accesses: Sequence[T]
) -> tuple[list[Instr], list[T]]:
    """The instructions that stores depend on, and the accesses of their loads and
    stores, in the order that they had."""
    live: set[int] = set()
    for i in reversed(range(len(instrs))):
        if i in live or is_store(instrs[i]):
            live |= {i, *instrs[i].args}
    kept = sorted(live)
    at = {i: n for n, i in enumerate(kept)}
    moving = [i for i in kept if instrs[i].name == "load" or is_store(instrs[i])]
    used = sorted({instrs[i].attr for i in moving})
    place = {k: n for n, k in enumerate(used)}
    found = []
    for i in kept:
        instr = instrs[i]._replace(args=tuple([at[a] for a in instrs[i].args]))
        if i in moving:
            instr = instr._replace(attr=place[instr.attr])
        found.append(instr)
    return found, [accesses[k] for k in used]
