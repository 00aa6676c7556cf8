"""What a trace takes for granted of its sizes."""

from __future__ import annotations

from typing import Any, NamedTuple

from treadle.dims import polynomial as poly
from treadle.dims.polynomial import CONSTANT


class Guard(NamedTuple):
    """What a trace took for granted: that ``dim op 0`` is `holds`.

    reason: what the program did; "compared" where it only asked.
    source: the user's line, empty for what the compiler asked.
    """

    dim: Any
    op: str
    holds: bool
    reason: str
    source: str

    def __str__(self) -> str:
        if len(self.dim.terms) == 1:
            ((atoms, c),) = self.dim.terms.items()
            if c == 1 and len(atoms) == 1 and hasattr(atoms[0].fn, "compares"):
                return f"not {atoms[0]}" if self.holds else str(atoms[0])
        left = {m: c for m, c in self.dim.terms.items() if c > 0}
        right = {m: -c for m, c in self.dim.terms.items() if c < 0}
        op = {"==": ("!=", "=="), "<": (">=", "<")}[self.op][self.holds]
        if not left or (tuple(left) == (CONSTANT,) and right):
            left, right = right, left
            op = {"<": ">", ">=": "<="}.get(op, op)
        return f"{poly.text(left)} {op} {poly.text(right)}"


Fact = tuple[str, list[tuple[list[str], int]], Guard]
"""A dimension, the polynomial of others' names that it was found to be, and where."""
