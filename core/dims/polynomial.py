"""Polynomials with integer coefficients, as plain data: what sizes are made of.

A polynomial is a dict from monomials (tuples of atoms in the order of their numbers) to
coefficients, none of which is 0. Nothing here knows of a trace.
"""

from __future__ import annotations

from collections.abc import Callable
from math import gcd, prod
from operator import floordiv, mod
from types import BuiltinFunctionType
from typing import Any


class Atom:
    """What polynomials are made of: a dimension of the user's, or a number computed of
    sizes.

    number: the place among the atoms of its trace.
    name: what the user calls a dimension; of what is computed, how it is printed.
    low, high: bounds that hold for all sizes.
    fn, args: None for a dimension; otherwise the number is ``fn(*args)``, of sizes and
      constants. Both are plain data, which another process can read: a function of a
      module, or a record that can be called. Of several results of one function, the
      first has `fn`, those after it have `Part`.
    """

    __slots__ = ("args", "fn", "high", "hint", "low", "name", "number")

    def __init__(
        self,
        number: int,
        name: str,
        hint: Any,
        low: int,
        high: int,
        fn: Callable[..., Any] | type[Part] | None = None,
        args: tuple = (),
    ) -> None:
        self.number, self.name, self.hint = number, name, hint
        self.low, self.high, self.fn, self.args = low, high, fn, args

    def __repr__(self) -> str:
        if self.fn is None:
            return str(self.name)
        if self.name in ("//", "%"):
            p, m = map(_factor, self.args)
            return f"({p} {self.name} {m})"
        if hasattr(self.fn, "show"):
            return self.fn.show(self.args)
        return f"{self.name}({', '.join(map(str, self.args))})"


class Part:
    """In place of a function: another of the results of the atom before."""


def _factor(x: Any) -> str:
    """A number as it stands beside an operator."""
    return f"({x!r})" if len(getattr(x, "terms", ())) > 1 else repr(x)


Monomial = tuple[Atom, ...]
Terms = dict[Monomial, int]
CONSTANT: Monomial = ()


def _number(a: Atom) -> int:
    return a.number


def add(p: Terms, q: Terms, factor: int = 1) -> Terms:
    """p + factor * q."""
    out = dict(p)
    for m, c in q.items():
        c = out.get(m, 0) + factor * c
        if c:
            out[m] = c
        else:
            del out[m]
    return out


def multiply(p: Terms, q: Terms) -> Terms:
    out: Terms = {}
    for m, c in p.items():
        for n, d in q.items():
            both = tuple(sorted((*m, *n), key=_number)) if m and n else m or n
            out[both] = out.get(both, 0) + c * d
    return {m: c for m, c in out.items() if c}


def scale(p: Terms, factor: int) -> Terms:
    return {m: c * factor for m, c in p.items()}


def without(m: Monomial, part: Monomial) -> Monomial | None:
    """What is left of a monomial divided by another; None if that is no factor."""
    rest = list(m)
    for a in part:
        if a not in rest:
            return None
        rest.remove(a)
    return tuple(rest)


def common(*polynomials: Terms) -> Monomial:
    """The atoms that are never 0 by which all the polynomials can be divided."""
    first, *others = [m for p in polynomials for m in p] or [CONSTANT]
    found: list[Atom] = []
    for a in first:
        if a.low > 0 and all([without(m, (*found, a)) is not None for m in others]):
            found.append(a)
    return tuple(found)


def over(p: Terms, factor: Monomial) -> Terms:
    """A polynomial divided by atoms that are in all of its terms."""
    return {without(m, factor) or (): c for m, c in p.items()}


def leading(p: Terms) -> Monomial:
    """The monomial that stands for a polynomial when it is divided by: one of the
    highest degree. Products of leading monomials are leading ones."""
    return max(p, key=lambda m: (len(m), [-a.number for a in m]))


def divide(p: Terms, divisor: Terms) -> tuple[Terms, Terms]:
    """Quotient and remainder: ``p == quotient * divisor + remainder``, where nothing in
    the remainder can be divided any further."""
    lead = leading(divisor)
    factor = divisor[lead]
    quotient: Terms = {}
    rest, remainder = dict(p), {}
    while rest:
        m = leading(rest)
        left = without(m, lead)
        # Rounded towards zero: what is left has the sign of what was there.
        count = 0 if left is None else int_quotient(rest[m], factor)
        if left is None or not count:
            remainder[m] = rest.pop(m)
            continue
        quotient[left] = count
        more = add(rest, multiply({left: count}, divisor), -1)
        if m in more:  # Only a part of it could be divided.
            remainder[m] = more.pop(m)
        rest = more
    return quotient, remainder


def int_quotient(a: int, b: int) -> int:
    """a / b, rounded towards zero."""
    return a // b if (a < 0) == (b < 0) or not a % b else a // b + 1


def content(p: Terms) -> int:
    """The greatest common divisor of the coefficients, but for the constant's."""
    return gcd(*[c for m, c in p.items() if m])


def has_zeros_of_one(p: Terms) -> bool:
    """Whether it is the product of an atom and of what is never 0."""
    for a in next(iter(p)):
        rest = {left: c for m, c in p.items() if (left := without(m, (a,))) is not None}
        low, high = bounds(rest)
        if len(rest) == len(p) and (low > 0 or high < 0):
            return True
    return False


def rests(p: Terms) -> list[Terms]:
    """The remainders that are 0 for the hints, if there is one in each term."""
    found = {a: None for m in p for a in m if a.fn is mod and not a.hint}
    if all([any([a in found for a in m]) for m in p]):
        return [{(a,): 1} for a in found]
    return []


def value(p: Terms) -> Any:
    """The number for the hints."""
    out: Any = 0
    for m, c in p.items():
        for a in m:
            c *= a.hint
        out += c
    return out


def bounds(p: Terms) -> tuple[int, int]:
    """Numbers between which a polynomial lies for all sizes.

    What is left after products are multiplied out is judged term by term: so ``B * T >=
    B`` is seen.
    """
    shifted = from_low(p)
    low = high = shifted.pop(CONSTANT, 0)
    for m, c in shifted.items():
        most = c * prod([a.high - a.low for a in m])
        if c < 0:
            low += most
        else:
            high += most
    return low, high


def from_low(p: Terms) -> Terms:
    """A polynomial in which each atom stands for what it has above its low bound."""
    shifted: Terms = {}
    for m, c in p.items():
        parts: Terms = {CONSTANT: c}
        for a in m:
            parts = multiply(parts, {(a,): 1, CONSTANT: a.low} if a.low else {(a,): 1})
        shifted = add(shifted, parts)
    return shifted


def text(p: Terms) -> str:
    """As source text: ``3*batch*length + 1``."""
    out = ""
    for m, c in p.items():
        factors = [*([str(abs(c))] if abs(c) != 1 or not m else []), *map(repr, m)]
        sign = ("-" if c < 0 else "") if not out else " - " if c < 0 else " + "
        out += sign + "*".join(factors)
    return out or "0"


_SIGNS = {floordiv: "//", mod: "%"}


def called(fn: Callable[..., Any]) -> str:
    """What a function is called for people."""
    if type(fn) is BuiltinFunctionType and fn in _SIGNS:
        return _SIGNS[fn]
    name = getattr(fn, "__name__", type(fn).__name__)
    return name.strip("_").replace("_", " ")
