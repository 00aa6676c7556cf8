"""What a trace takes for granted of its sizes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from math import prod
from typing import Any, NamedTuple

from treadle.dims import polynomial as poly
from treadle.dims.polynomial import CONSTANT, Atom, Part


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


def failing(
    guards: Iterable[Guard], atoms: Sequence[Atom], given: Sequence[int]
) -> Iterator[Guard]:
    """The guards that do not hold where the dimensions among atoms have given sizes.

    What was computed after an answer may have no meaning for sizes that give another
    one (``if n > 1: k = m // (n - 1)``): they end there.
    """
    symbols = [a for a in atoms if a.fn is None]
    known = {a.number: n for a, n in zip(symbols, given, strict=True)}

    def of(x: Any) -> Any:
        terms = getattr(x, "terms", None)
        if terms is None:
            return x
        return sum([c * prod(map(atom, m)) for m, c in terms.items()])

    def atom(a: Atom) -> Any:
        if a.number not in known:
            first = a.number
            while atoms[first].fn is Part:
                first -= 1
            made: Any = atoms[first]
            found = made.fn(*map(of, made.args))
            several = found if isinstance(found, Sequence) else [found]
            known.update(enumerate(several, first))
        return known[a.number]

    failed = False
    for guard in guards:
        try:
            value = of(guard.dim)
        except (ArithmeticError, ValueError):
            if failed:
                return
            raise
        if (value == 0 if guard.op == "==" else value < 0) is not guard.holds:
            failed = True
            yield guard


_TRIED = (1, 2, 3, 60)
"""By how much sizes are larger where something is tried for others. (Those of 60 more
have the same remainders.)"""


def differs(answer: Guard, guards: Iterable[Guard], atoms: Sequence[Atom]) -> bool:
    """Whether an answer is another for sizes for which guards hold: some are tried."""
    hints, asked = [a.hint for a in atoms if a.fn is None], [*guards, answer]
    for more in _TRIED:
        given = [n + more * (i + 1) for i, n in enumerate(hints)]
        with suppress(ArithmeticError, ValueError):
            failed = list(failing(asked, atoms, given))
            if len(failed) == 1 and failed[0] is answer:
                return True
    return False
