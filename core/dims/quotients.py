"""Polynomials with whole quotients and remainders, written so that more is known."""

from __future__ import annotations

from operator import floordiv, mod
from typing import Any

from treadle.dims import polynomial as poly
from treadle.dims.polynomial import CONSTANT, Atom, Terms
from treadle.dims.terms import terms_of


def rewritten(scope: Any, terms: Terms) -> list[tuple[Terms, int]]:
    """Multiples of a polynomial, and of how many times it, of which more can be said:
    with ``p - m * (p // m)`` for ``p % m``, for all of them or one, with that for
    ``m * (p // m)``, with halves that are rounded up, and with ``m * (p // m)`` for
    each p that is known to be that."""
    if not any([a.fn in (floordiv, mod) for m in terms for a in m]):
        return []
    out = [(_replaced(scope, terms, up), 1) for up in (False, True)]
    if scope.multiples:
        out.append((_apart(scope, out[0][0]), 1))
    for monomial, c in terms.items():
        for a in monomial:
            rest = {poly.without(monomial, (a,)) or (): c}
            others = poly.add(terms, {monomial: c}, -1)
            if a.fn is mod:
                inside = poly.multiply(rest, scope.by_quotient(a))
                out.append((poly.add(others, inside), 1))
            elif a.fn is floordiv and type(a.args[1]) is int:
                p, k = a.args
                inside = poly.multiply(rest, scope.multiple(p, k))
                out.append((poly.add(poly.scale(others, k), inside), k))
    return out


def is_least_at_one(scope: Any, terms: Terms, least: int) -> bool:
    """Whether a polynomial is no less than a number, and that number only where a
    length of an axis is 1: a dimension, or a quotient that is never 0."""
    for up in (False, True):
        form = _replaced(scope, terms, up)
        if all([_is_length(a) for m in form for a in m]):
            above = poly.from_low(form)
            low = above.pop(CONSTANT, 0)
            if low == least and all([c > 0 for c in above.values()]):
                return True
    return False


def exact(scope: Any, p: Terms, m: Terms) -> Terms | None:
    """``p // m``, where that leaves nothing for any sizes, and there are remainders in
    them: multiples of rounded sizes are products of quotients."""
    if not any([a.fn is mod for terms in (p, m) for n in terms for a in n]):
        return None
    found, left = poly.divide(_replaced(scope, p, False), _replaced(scope, m, False))
    return None if left else found


def _is_length(a: Atom) -> bool:
    return a.low == 1 and (a.fn is None or a.fn is floordiv)


def _is_two(m: object) -> bool:
    return type(m) is int and m == 2


def _replaced(scope: Any, terms: Terms, up: bool) -> Terms:
    """Without remainders. up: and without halves that are rounded down."""
    out: Terms = {}
    for monomial, c in terms.items():
        product: Terms = {CONSTANT: c}
        for a in monomial:
            factor: Terms = {(a,): 1}
            if up and a.fn in (floordiv, mod) and _is_two(a.args[1]):
                factor = _by_half_up(scope, a)
            elif a.fn is mod:
                factor = scope.by_quotient(a)
            product = poly.multiply(product, factor)
        out = poly.add(out, product)
    return out


def _apart(scope: Any, terms: Terms) -> Terms:
    """With the parts of multiples for them, and the parts of these."""
    out: Terms = {}
    for monomial, c in terms.items():
        atoms = []
        for a in monomial:
            while a in scope.multiples:
                a, k = scope.multiples[a]
                c *= k
            atoms.append(a)
        out = poly.add(out, _product(atoms), c)
    return out


def _product(atoms: list[Atom]) -> Terms:
    product: Terms = {CONSTANT: 1}
    for a in atoms:
        product = poly.multiply(product, {(a,): 1})
    return product


def _by_half_up(scope: Any, a: Atom) -> Terms:
    """The atom ``p // 2`` or ``p % 2`` by half of p, rounded up: that is at least 1
    where p is."""
    p, _ = a.args
    half: Terms = {(scope.quotient_atom(p + 1, 2),): 1}
    if a.fn is floordiv:
        return poly.add(terms_of(p), half, -1)
    return poly.add(poly.scale(half, 2), terms_of(p), -1)
