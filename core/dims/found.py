"""What follows for a trace from the answer to a question about sizes."""

from __future__ import annotations

from typing import Any

from treadle.dims.guard import Guard
from treadle.dims.polynomial import CONSTANT
from treadle.dims.residue import MOST, Residue, steps_of
from treadle.dims.terms import bounds_of, symbols_in, terms_of


class Restart(BaseException):
    """A trace found out that a size is fixed, or equal to another: it starts again with
    that. (No Exception, so that the user's code doesn't take it for an error.)"""


def is_zero(scope: Any, d: Any, guard: Guard) -> None:
    """What follows from ``d == 0``."""
    moving = [m for m in d.terms if m]
    if len(moving) == 1 and len(moving[0]) == 1 and moving[0][0].name == "%":
        ((a,),) = moving
        rest = -d.terms.get(CONSTANT, 0) // d.terms[moving[0]]
        scope.learn(a, rest)
        if not rest:
            _multiple(scope, *a.args)
        return
    found = d.solved()
    if found is None and _narrowed(scope, d, guard):
        raise Restart
    pairs = [found] if found else [(a, a.hint) for a in symbols_in(d.terms)]
    for atom, value in pairs:
        name, known = atom.name, scope.residues.get(atom)
        if known is not None:
            name, value = known.name, known.step * value + known.rest
        names = [([a.name for a in m], c) for m, c in terms_of(value).items()]
        scope.replaced.append((name, names, guard))
    raise Restart


def is_nonzero(scope: Any, d: Any) -> None:
    """What follows from ``d != 0``: a quotient that is a length is at least 1."""
    (monomial, _), *more = d.terms.items()
    if more or len(monomial) != 1 or monomial[0].low:
        return
    scope.learn_least(monomial[0], 1)


def _multiple(scope: Any, p: Any, k: Any) -> None:
    """What follows from ``p % k == 0``: where p is at least 1, it is at least k."""
    if type(k) is not int:
        return
    least, part = -(-bounds_of(p)[0] // k), scope.quotient_atom(p, k)
    scope.learn_least(part, least)
    ((monomial, c), *more) = p.terms.items()
    if not more and c == 1 and len(monomial) == 1:
        scope.multiples[monomial[0]] = part, k
        scope.learn_least(monomial[0], least * k)


def _narrowed(scope: Any, d: Any, guard: Guard) -> bool:
    """Whether less is open in the next trace: where a number is 0 for the hints, only
    sizes with the remainders of these. Its quotients are none then, which may cancel
    each other unseen."""
    for a, step in steps_of(d.terms).items():
        known = scope.residues.get(a)
        name, n = a.name, a.hint
        if known is not None:
            name, n, step = known.name, known.step * n + known.rest, known.step * step
        if step <= MOST and (1 if scope.narrows else 2) * step <= n:
            scope.narrowed.append(_residue(type(scope)(), name, n, step, guard))
    return bool(scope.narrowed)


def _residue(scope: Any, name: str, n: int, step: int, guard: Guard) -> Residue:
    """That a dimension has the remainder that one of length n has.

    scope: a new one.
    guard: why.
    """
    rest, d = n % step, scope.symbol(name, n)
    guards = [guard._replace(dim=d % step - rest, op="==", holds=True)]
    if rest:
        guards.append(guard._replace(dim=d - step, op="<", holds=False))
    return Residue(name, step, rest, guards, scope.atoms)
