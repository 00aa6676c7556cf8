"""Dimensions of which only the whole multiples of a number vary: what is left over is
known, so that quotients by that number are none."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from math import lcm
from operator import floordiv, mod
from typing import NamedTuple

from treadle.dims.guard import Guard, failing
from treadle.dims.polynomial import Atom, Terms
from treadle.dims.terms import symbols_in, terms_of

MOST = 4096
"""Nobody's program has a case for each of more remainders than that."""


class Residue(NamedTuple):
    """That a dimension is `rest` more than a multiple of `step`, and at least `step`.

    guards: this, of a scope that has the dimension alone, whose atoms are `atoms`.
    """

    name: str
    step: int
    rest: int
    guards: Sequence[Guard]
    atoms: Sequence[Atom]

    @property
    def part(self) -> str:
        """The name of how many times the step it is."""
        return f"({self.name} // {self.step})"

    def failing(self, n: int) -> list[Guard]:
        """The guards that do not hold for a size."""
        return list(failing(self.guards, self.atoms, [n]))


def steps_of(terms: Terms) -> dict[Atom, int]:
    """For each of the user's dimensions in quotients of a polynomial: what it must be a
    multiple of, but for a known rest, for these to be none. Nothing, if there are other
    functions of sizes in it than quotients by known numbers."""
    found: dict[Atom, int] = {}
    for a in {a: None for m in terms for a in m if a.fn is not None}:
        if a.fn not in (floordiv, mod) or type(a.args[1]) is not int:
            return {}
        p, k = a.args
        inner = steps_of(terms_of(p))
        if not inner and any([b.fn for m in terms_of(p) for b in m]):
            return {}
        for b in symbols_in(terms_of(p)):
            found[b] = lcm(found.get(b, 1), k * inner.get(b, 1))
    return found


def parts_of(
    known: Mapping[Atom, Residue], atoms: Sequence[Atom], given: Sequence[int]
) -> list[int] | None:
    """How many times their steps dimensions of given sizes are, or those sizes where
    nothing is known; None if they leave other rests.

    atoms: among them what stands for each dimension, in their order.
    """
    parts = []
    for n, residue in _with_sizes(known, atoms, given):
        part, rest = divmod(n, residue.step) if residue else (n, 0)
        if residue and (rest != residue.rest or not part):
            return None
        parts.append(part)
    return parts


def others_of(
    known: Mapping[Atom, Residue], atoms: Sequence[Atom], given: Sequence[int]
) -> Iterator[Guard]:
    """The guards that do not hold where dimensions leave other rests."""
    for n, residue in _with_sizes(known, atoms, given):
        if residue:
            yield from residue.failing(n)


def _with_sizes(
    known: Mapping[Atom, Residue], atoms: Sequence[Atom], given: Sequence[int]
) -> Iterator[tuple[int, Residue | None]]:
    symbols = [a for a in atoms if a.fn is None]
    return zip(given, [known.get(a) for a in symbols], strict=True)


def larger(known: Mapping[Atom, Residue], atoms: Sequence[Atom]) -> dict[str, int]:
    """Other sizes for dimensions, by name, with the same rests, where some quotient is
    1 for the hints: of a length of 1 less is known than of others."""
    found: dict[str, int] = {}
    taken = {a.hint for a in atoms if a.fn is None}
    for a in atoms:
        if a.fn is not floordiv or a.hint != 1:
            continue
        for b, step in steps_of({(a,): 1}).items():
            name, n = b.name, b.hint
            if b in known:
                name, by, rest = known[b][:3]
                n, step = n * by + rest, step * by
            n = max(found.get(name, n), n) + 2 * step
            found[name] = n + step * (n in taken)
    return found
