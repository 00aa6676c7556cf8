"""Numbers and sizes alike, as the polynomials that they are."""

from __future__ import annotations

from typing import Any

from treadle.dims.polynomial import CONSTANT, Atom, Terms

sizes: list[Any] = []
"""Holds the class of sizes, `Dim`, which is above this module."""


def terms_of(x: Any) -> Terms:
    """A number as a polynomial."""
    if type(x) is sizes[0]:
        return x.terms
    return {CONSTANT: int(x)} if x else {}


def bounds_of(x: Any) -> tuple[int, int]:
    return x.range() if type(x) is sizes[0] else (x, x)


def hint_of(x: Any) -> Any:
    return x.hint if type(x) is sizes[0] else x


def symbols_in(terms: Terms) -> list[Atom]:
    """The user's dimensions in a polynomial, and in what its numbers are made of: in an
    order that is the same in every process."""
    found: dict[Atom, None] = {}
    for m in terms:
        for a in m:
            if a.fn is None:
                found[a] = None
            for arg in a.args:
                if type(arg) is sizes[0]:
                    found |= dict.fromkeys(symbols_in(terms_of(arg)))
    return list(found)
