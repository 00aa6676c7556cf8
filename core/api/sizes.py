"""One trace for many sizes: how it is made, and for which sizes it holds."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from time import perf_counter
from typing import Any

from treadle.api.axes import Axes
from treadle.api.entry import Entry, compiler
from treadle.arraytype import ArrayType
from treadle.dims import (
    LONGEST,
    Fact,
    Guard,
    Residue,
    Restart,
    Scope,
    larger,
    symbols_in,
)
from treadle.errors import InternalError
from treadle.trace.interpreter import sizes_of

Trace = Callable[[Sequence[ArrayType]], Entry]

MOST_RESTARTS = 100
"""A trace begins again for each size that it finds to be fixed; there are few."""


class SizedTrace:
    """A program for all sizes for which its guards hold."""

    def __init__(self, scope: Scope, entry: Entry) -> None:
        self.scope, self.entry = scope, entry
        began = perf_counter()
        self._program = compiler().sized_program_of(
            entry.graph, scope, entry.donated, entry.memory_limit
        )
        self.compile_seconds = perf_counter() - began
        # Loaded late for the same reason as the compiler.
        self._holds = importlib.import_module("treadle.run.sized").guards(scope)

    def admits(self, sizes: Sequence[int]) -> bool:
        """Whether the program is right for these sizes of the dimensions."""
        parts = self.scope.parts(sizes)
        return parts is not None and self._holds(*parts)

    def bind(self, sizes: Sequence[int]) -> Entry:
        """The program for these sizes."""
        parts = self.scope.parts(sizes) or ()
        return self.entry.bound(self._program.bind(*parts))

    def failing(self, sizes: Sequence[int]) -> Guard | None:
        """The first guard that does not hold for these sizes."""
        return next(self.scope.failing(sizes), None)

    def concerned(self, sizes: Sequence[int]) -> set[str]:
        """The dimensions in the guards that do not hold for these sizes."""
        atoms = [a for g in self.scope.failing(sizes) for a in symbols_in(g.dim.terms)]
        known = self.scope.residues
        return {known[a].name if a in known else a.name for a in atoms}


def can_vary(sizes: dict[str, int]) -> bool:
    """Whether a program for such sizes can be one for others."""
    return bool(sizes) and all(1 <= n <= LONGEST for n in sizes.values())


def trace_sized(
    trace: Trace,
    types: Sequence[ArrayType],
    axes: Sequence[Axes],
    sizes: dict[str, int],
    named: bool,
    known: Sequence[SizedTrace] = (),
) -> SizedTrace:
    """Traces a function with sizes that are not fixed. The result holds for these.

    A length of 1 says nothing of others: what is broadcast along it may look like what
    is equal to it. So the trace is made for another length, and holds for 1 too if no
    guard says otherwise; if one does, for a length that is 1.

    Args:
      known: programs that do not hold for these sizes.

    Raises:
      TracerError: in named mode, if the program needs a size as a number.
    """
    given = tuple(sizes.values())
    ones = {name for name, n in sizes.items() if n == 1}
    others = _others(sizes.values())
    hints = {name: next(others) if n == 1 else n for name, n in sizes.items()}
    refuses = _refusing(known, hints)
    fixed: set[str] = set()
    while ones - fixed:
        if refuses is None:
            # Nobody has asked for those lengths: what is wrong with them is no error.
            with suppress(Exception):
                found = _restarted(
                    trace, types, axes, dict(hints), _are_one(fixed), named
                )
                if found.admits(given):
                    return found
                refuses = found
        concerned = refuses.concerned(given) & (ones - fixed) if refuses else set()
        fixed |= concerned or ones
        hints |= dict.fromkeys(fixed, 1)
        refuses = None
    return _restarted(trace, types, axes, dict(sizes), _are_one(fixed), named)


def _refusing(known: Sequence[SizedTrace], hints: dict[str, int]) -> Any:
    """The program that a trace for these lengths would give once more."""
    return next((t for t in known if t.admits(tuple(hints.values()))), None)


def _are_one(names: set[str]) -> list[Fact]:
    """That dimensions are 1."""
    scope = Scope()
    return [
        (name, [([], 1)], Guard(scope.symbol(name, 1), "==", True, "is 1", ""))
        for name in sorted(names)
    ]


def _others(sizes: Any) -> Iterator[int]:
    """Lengths that are no other axis's."""
    return (n for n in range(3, LONGEST, 2) if n not in sizes)


def _restarted(
    trace: Trace,
    types: Sequence[ArrayType],
    axes: Sequence[Axes],
    hints: dict[str, int],
    facts: list[Fact],
    named: bool,
) -> SizedTrace:
    """Traces until no more sizes are found to be fixed, equal, or to leave a rest."""
    given = dict(hints)
    found = None
    try:
        found = _settled(trace, types, axes, hints, facts, Scope(named), given)
    except Exception:
        # It may come of a length that nobody has asked for.
        if hints == given:
            raise
    if found is not None and (hints == given or found.admits(tuple(given.values()))):
        return found
    scope = Scope(named, narrows=False)
    found = _settled(trace, types, axes, dict(given), facts, scope, given)
    assert found is not None
    return found


def _settled(
    trace: Trace,
    types: Sequence[ArrayType],
    axes: Sequence[Axes],
    hints: dict[str, int],
    facts: list[Fact],
    scope: Scope,
    given: dict[str, int],
) -> SizedTrace | None:
    """What `_restarted` gives. Where a quotient of sizes is 1, or how many times a
    number a size is, of which no more is open, the trace is one for larger sizes, for
    the reason that `trace_sized` says. None if that is none for those given.

    scope: how sizes are treated.
    """
    facts, residues = list(facts), dict[str, Residue]()
    enlarged = not scope.narrows
    for _ in range(MOST_RESTARTS):
        scope = scope.anew()
        symbols = _symbols(scope, hints, facts, residues)
        sized = [
            _sized(t, names, symbols) for t, names in zip(types, axes, strict=True)
        ]
        try:
            with sizes_of(scope):
                entry = trace(sized)
        except Restart:
            pass
        # (Code of the user's may have caught it.)
        if not scope.replaced and not scope.narrowed:
            others = {} if enlarged else larger(scope.residues, scope.atoms)
            if not others:
                fits = hints == given or not any(scope.failing(tuple(given.values())))
                return SizedTrace(scope, entry) if fits else None
            hints |= others
            enlarged = True
        _narrow(hints, facts, residues, scope.narrowed)
        known = {fact[0] for fact in facts}
        for fact in scope.replaced:
            if fact[0] not in known:
                facts.append(fact)
                known.add(fact[0])
    raise InternalError(f"a trace found {MOST_RESTARTS} sizes to be fixed")


def _narrow(
    hints: dict[str, int],
    facts: list[Fact],
    residues: dict[str, Residue],
    narrowed: Sequence[Residue],
) -> None:
    """Takes down what dimensions were found to leave over."""
    for found in narrowed:
        # What was found of another part of it will be found again.
        facts[:] = [f for f in facts if not _mentions(f, residues.get(found.name))]
        residues[found.name] = found
        if hints[found.name] < 2 * found.step:
            hints[found.name] += 2 * found.step


def _mentions(fact: Fact, known: Residue | None) -> bool:
    return known is not None and any([known.part in names for names, _ in fact[1]])


def _symbols(
    scope: Scope, hints: dict[str, int], facts: list[Fact], residues: dict[str, Residue]
) -> dict[str, Any]:
    """What stands for each dimension: itself, or what it was found to be. Multiples of
    which a dimension is are among them, by their names."""
    symbols = {
        name: scope.symbol(name, n, residues.get(name)) for name, n in hints.items()
    }
    symbols |= {k.part: scope.dim({(a,): 1}) for a, k in scope.residues.items()}
    # What was found later may be of what earlier ones were found to be.
    for fact in reversed(facts):
        symbols[fact[0]] = scope.assume(fact, symbols)
    return symbols


def _sized(t: ArrayType, names: Axes, symbols: dict[str, Any]) -> ArrayType:
    if not any(names):
        return t
    pairs = zip(names, t.shape, strict=True)
    shape = tuple([n if a is None else symbols[a] for a, n in pairs])
    return ArrayType(shape, t.dtype, t.weak)
