"""What sizes are for given dimensions: found atom by atom, apart from any compiler."""

from __future__ import annotations

import operator
from typing import Any

from treadle.dims import Dim, Guard, Real

_OPS = {"==": operator.eq, "<": operator.lt}


def at(x: Any, sizes: dict[str, int]) -> Any:
    """The number that a size or a real is."""
    if type(x) is Real:
        return at(x.value, sizes)
    if type(x) is not Dim:
        return x
    total: Any = 0
    for monomial, c in x.terms.items():
        for a in monomial:
            c *= (
                sizes[a.name] if a.fn is None else a.fn(*[at(y, sizes) for y in a.args])
            )
        total += c
    return total


def holds(guard: Guard, sizes: dict[str, int]) -> bool:
    """Whether what was taken for granted is so for these dimensions."""
    return _OPS[guard.op](at(guard.dim, sizes), 0) is guard.holds
