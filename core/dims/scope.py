"""One trace whose sizes are not fixed: its dimensions, and what was asked of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from copy import copy
from itertools import pairwise
from math import gcd
from operator import floordiv, mod
from typing import Any

from treadle.dims import polynomial as poly
from treadle.dims.found import is_nonzero, is_zero
from treadle.dims.frames import asked_by_user
from treadle.dims.guard import Fact, Guard, differs, failing
from treadle.dims.polynomial import CONSTANT, Atom, Part, Terms, called
from treadle.dims.quotients import exact
from treadle.dims.residue import Residue, others_of, parts_of
from treadle.dims.terms import bounds_of, hint_of, sizes, symbols_in, terms_of
from treadle.errors import LeakError, TracerError, at, user_source

LONGEST = 2**31 - 1
"""A longer axis is none whose size may vary: what indexes it is of another dtype."""

_UNBOUNDED = 2**63

TRACING, COMPILING, CLOSED = "tracing", "compiling", "closed"


class Scope:
    """The dimensions of one trace, what was derived of them, and its guards.

    named: a size that the program needs as a number is an error, not a restart.
    narrows: whether a dimension may be found to leave a known rest even where it is
      the least that does.
    """

    def __init__(self, named: bool = False, narrows: bool = True) -> None:
        self.named, self.narrows = named, narrows
        self.phase = TRACING
        self.atoms: list[Atom] = []
        self.guards: dict[tuple, Guard] = {}
        self.known: dict[Any, Any] = {}
        """What was made of sizes, by what it was made of."""
        self.replaced: list[Fact] = []
        """Dimensions that were found to be fixed, or equal to others."""
        self.residues: dict[Atom, Residue] = {}
        """Of dimensions that leave a known rest, by what stands for their multiples."""
        self.narrowed: list[Residue] = []
        """What a trace must know of dimensions from its beginning."""
        self.types: dict[Any, Any] = {}
        """The types of arrays with its sizes: they live as long as it does."""
        self.staged: dict[Any, Any] = {}
        """What functions were traced to while this trace was made."""
        self._interned: dict[tuple, Any] = {}
        self._sums: dict[tuple, Any] = {}
        self._quotients: dict[Atom, tuple[Any, Any]] = {}
        self._facts: dict[Atom, int] = {}
        self.multiples: dict[Atom, tuple[Atom, int]] = {}
        """What is known to be whole multiples: of what, and of how many times that."""

    def anew(self) -> Scope:
        """Another, for the same trace."""
        return Scope(self.named, self.narrows)

    @property
    def generic(self) -> bool:
        """Whether no guard is needed to tell sizes apart: see `Dim`."""
        return self.phase is not TRACING

    # Making sizes

    def atom(
        self,
        name: str,
        hint: Any,
        low: int = 0,
        fn: Callable[..., Any] | type[Part] | None = None,
        args: tuple = (),
        high: int = _UNBOUNDED,
    ) -> Atom:
        made = Atom(len(self.atoms), name, hint, low, high, fn, args)
        self.atoms.append(made)
        return made

    def symbol(self, name: str, hint: int, known: Residue | None = None) -> Any:
        """A dimension of the user's: at least 1.

        known: what it leaves over. Only how many times the step it is varies then.
        """
        if known is None:
            return self.dim({(self.atom(name, hint, 1, high=LONGEST),): 1})
        step, rest = known.step, known.rest
        part = self.atom(known.part, (hint - rest) // step, 1, high=LONGEST // step)
        self.residues[part] = known
        return self.dim({(part,): step}) + rest

    def dim(self, terms: Terms) -> Any:
        """The size that is a polynomial; an int if that is constant."""
        if self.phase is CLOSED:
            self.check_alive()
        if self._quotients or self._facts:
            terms = self._normal(terms)
        if not terms:
            return 0
        if len(terms) == 1 and CONSTANT in terms:
            return terms[CONSTANT]
        key = tuple(sorted([(tuple([a.number for a in m]), terms[m]) for m in terms]))
        found = self._interned.get(key)
        if found is None:
            found = self._interned[key] = sizes[0](self, terms, key)
        return found

    def derived(
        self,
        fn: Callable[..., Any],
        args: Sequence[Any],
        hint: Any,
        low: int = 0,
        high: int = _UNBOUNDED,
    ) -> Any:
        """A number that is ``fn(*args)``: one, for equal functions and arguments."""
        key = fn, tuple(args)
        found = self.known.get(key)
        if found is None:
            made = self.atom(called(fn), hint, low, fn, key[1], high)
            found = self.known[key] = self.dim({(made,): 1})
        return found

    def vector(
        self,
        fn: Callable[..., Any],
        args: Sequence[Any],
        hints: Callable[[], Sequence[Any]],
        low: int = 0,
    ) -> list[Any]:
        """The numbers ``fn(*args)``, as many as hints, which are asked for once."""
        key = fn, tuple(args)
        found = self.known.get(key)
        if found is None:
            made = [
                self.atom(called(fn), h, low, Part if i else fn, () if i else key[1])
                for i, h in enumerate(hints())
            ]
            found = self.known[key] = [self.dim({(a,): 1}) for a in made]
        return found

    def exact(self, key: tuple) -> Any:
        """The size with this key, as it was written: what was found out of its parts
        since then is not put in."""
        found = self._interned.get(key)
        if found is None:
            terms = {tuple([self.atoms[n] for n in m]): c for m, c in key}
            found = self._interned[key] = sizes[0](self, terms, key)
        return found

    def plus(self, d: Any, other: Any, factor: int) -> Any:
        """d + factor * other. Remembered: comparisons subtract."""
        if type(other) is sizes[0] and other.scope is not self:
            raise other.scope.leak()
        key = (id(d), id(other) if type(other) is sizes[0] else (other,), factor)
        found = self._sums.get(key)
        if found is None:
            terms = poly.add(d.terms, terms_of(other), factor)
            found = self._sums[key] = self.dim(terms)
        return found

    def times(self, d: Any, other: Any) -> Any:
        """d * other. Remembered as well."""
        if type(other) is sizes[0] and other.scope is not self:
            raise other.scope.leak()
        if self.phase is CLOSED:
            self.check_alive()
        key = (id(d), id(other) if type(other) is sizes[0] else (other,), "*")
        found = self._sums.get(key)
        if found is None:
            terms = poly.multiply(d.terms, terms_of(other))
            found = self._sums[key] = self.dim(terms)
        return found

    # Whole quotients

    def quotient(self, p: Any, m: Any) -> Any:
        """``p // m``, for numbers of which one is a size."""
        if type(m) is int:
            return self._by_number(p, m) if m > 0 else -self._ceil(p, -m)
        if not m > 0:
            if m == 0:
                raise ZeroDivisionError(f"{p} // {m}: {m} is 0{at(user_source())}")
            return self.quotient(-p, -m)
        common = poly.common(terms_of(p), m.terms)
        if common:
            p, m = [self.dim(poly.over(t, common)) for t in (terms_of(p), m.terms)]
            return self.quotient(p, m)
        whole, rest = [self.dim(t) for t in poly.divide(terms_of(p), m.terms)]
        if type(rest) is int and not rest:
            return whole
        multiple = exact(self, terms_of(p), m.terms)
        if multiple is not None:
            return self.dim(multiple)
        if bounds_of(rest)[0] >= 0 and bounds_of(m - rest)[0] > 0:
            return whole
        return whole + self._atom_quotient(rest, m)

    def remainder(self, p: Any, m: Any) -> Any:
        """``p % m``, for numbers of which one is a size."""
        return p - m * self.quotient(p, m)

    def _ceil(self, p: Any, k: int) -> Any:
        return self._by_number(p + (k - 1), k)

    def _by_number(self, p: Any, k: int) -> Any:
        multiple = exact(self, terms_of(p), {CONSTANT: k})
        if multiple is not None:
            return self.dim(multiple)
        whole, rest = self._split(self._with_multiples(terms_of(p), k), k)
        if type(rest) is int:
            return whole + rest // k
        if rest.terms[poly.leading(rest.terms)] < 0:
            # -(n // k) is that of the other sign, rounded up.
            return whole - self._by_number(k - 1 - rest, k)
        shared = gcd(poly.content(rest.terms), k)
        if shared > 1:
            # floor((shared * n + c) / k) does not need what c is modulo `shared`.
            inner = _nonzero({m: c // shared for m, c in rest.terms.items()})
            return whole + self._by_number(self.dim(inner), k // shared)
        low, high = rest.range()
        if low // k == high // k:
            return whole + low // k
        if k == 2 and rest.terms.get(CONSTANT):
            # A half rounded up is what is left of it rounded down.
            return whole + rest - 1 - self._by_number(rest - 1, 2)
        return whole + self._atom_quotient(rest, k)

    def _split(self, terms: Terms, k: int) -> tuple[Any, Any]:
        """``whole, rest`` where the polynomial is ``k * whole + rest``."""
        constant = terms.get(CONSTANT, 0)
        moving = {m: c for m, c in terms.items() if m}
        whole, left = poly.divide(moving, {CONSTANT: k})
        return self.dim(whole) + constant // k, self.dim(left) + constant % k

    def _with_multiples(self, terms: Terms, k: int) -> Terms:
        """The polynomial with ``p - m * (p // m)`` for ``p % m``, of multiples m of k:
        what was rounded to a multiple of k is one."""
        for monomial, c in terms.items():
            for a in monomial:
                if a.fn is mod and type(a.args[1]) is int and not a.args[1] % k:
                    beside: Terms = {poly.without(monomial, (a,)) or (): c}
                    inside = poly.multiply(beside, self.by_quotient(a))
                    rest = poly.add(terms, {monomial: c}, -1)
                    return self._with_multiples(poly.add(rest, inside), k)
        return terms

    def by_quotient(self, a: Atom) -> Terms:
        """``p - m * (p // m)``, of the atom ``p % m``."""
        p, m = a.args
        quotient: Terms = {(self.quotient_atom(p, m),): 1}
        return poly.add(terms_of(p), poly.multiply(terms_of(m), quotient), -1)

    def quotient_atom(self, p: Any, m: Any) -> Atom:
        """The atom that stands for ``p // m``, which can't be simplified."""
        ((atom,),) = self._atom_quotient(p, m).terms
        return atom

    def _atom_quotient(self, p: Any, m: Any) -> Any:
        found = self.known.get((floordiv, (p, m)))
        if found is None:
            (low, high), (least, most) = bounds_of(p), bounds_of(m)
            least = max(least, 1)  # that it is not 0 may be a guard alone
            corners = [low // least, low // most, high // least, high // most]
            hint = hint_of(p) // hint_of(m)
            args = (p, m, hint, min(corners), max(corners))
            found = self.derived(floordiv, args[:2], *args[2:])
            ((atom,),) = found.terms
            self._quotients[atom] = p, m
        return found

    def _normal(self, terms: Terms) -> Terms:
        """Without products of a quotient by its divisor: ``m * (p // m)`` is
        ``p - p % m``, and p where that is known to be 0. What is equal for that reason
        would else be taken for different."""
        for monomial, c in terms.items():
            for a in monomial:
                if a in self._facts:
                    rest = poly.without(monomial, (a,)) or ()
                    new: Terms | None = {rest: c * self._facts[a]}
                elif a in self._quotients:
                    new = self._multiplied(a, monomial, c)
                else:
                    continue
                if new is not None:
                    old = {monomial: c}
                    more = poly.add(poly.add(terms, old, -1), _nonzero(new))
                    return self._normal(more)
        return terms

    def _multiplied(self, a: Atom, monomial: Any, c: int) -> Terms | None:
        """What stands for a term with a quotient, if its divisor is a factor too."""
        p, m = self._quotients[a]
        divisor = terms_of(m)
        lead = poly.leading(divisor)
        rest = poly.without(monomial, (*lead, a))
        count = poly.int_quotient(c, divisor[lead])
        if rest is None or not count:
            return None
        product = self.multiple(p, m)
        inside: Terms = {(a,): 1}
        lower = {n: d for n, d in divisor.items() if n != lead}
        product = poly.add(product, poly.multiply(lower, inside), -1)
        out = poly.multiply({rest: count}, product)
        return poly.add(out, _nonzero({monomial: c - count * divisor[lead]}))

    def multiple(self, p: Any, m: Any) -> Terms:
        """``m * (p // m)`` as ``p - p % m``."""
        most = bounds_of(m)[1] - 1
        left = self.derived(mod, (p, m), hint_of(p) % hint_of(m), 0, most)
        return poly.add(terms_of(p), terms_of(left), -1)

    def learn(self, a: Atom, value: int) -> None:
        """From now on an atom is a number."""
        self._facts[a] = value
        self._sums.clear()

    def learn_least(self, a: Atom, least: int) -> None:
        """From now on an atom is no less than a number."""
        a.low = max(a.low, least)
        for other in self._interned.values():
            other.forget_bounds()

    # What was asked

    def guard(
        self,
        d: Any,
        op: str,
        holds: bool,
        reason: str = "compared",
        settle: bool = True,
    ) -> bool:
        """Remembers an answer that other sizes don't share, and gives it.

        settle: whether what is equal is one size from now on.
        """
        if self.phase is CLOSED:
            return holds
        key = (d.key, op)
        if key not in self.guards:
            source = user_source() if self.phase is TRACING else ""
            self.guards[key] = Guard(d, op, holds, reason, source)
        if settle and op == "==" and self.phase is TRACING:
            if holds:
                is_zero(self, d, self.guards[key])
            else:
                is_nonzero(self, d)
        return holds

    def fixed(self, d: Any, reason: str) -> Any:
        """The number itself, for those who need one. The trace is for this one then.

        Raises:
          TracerError: if the sizes were named by the user.
        """
        if self.phase is CLOSED:
            raise self.leak()
        if self.phase is TRACING and self.named:
            raise TracerError(_NEEDED.format(reason, d, at(user_source())))
        self.fix(d, reason)
        return d.hint

    def fix(self, d: Any, reason: str) -> None:
        """Makes the trace one for sizes for which d is what it is for the hints."""
        if self.phase is TRACING and not d.is_free:
            for a in symbols_in(d.terms):
                self.fix(self.dim({(a,): 1}), reason)
        self.guard(d - d.hint, "==", True, reason)

    def assume(self, fact: Fact, symbols: dict[str, Any]) -> Any:
        """Begins with what an earlier trace has found out of a dimension. Gives what is
        to be used in its place.

        symbols: what stands for each dimension so far.
        """
        replaced, value, guard = fact
        new: Any = 0
        for names, c in value:
            for name in names:
                c = symbols[name] * c
            new = new + c
        d = symbols[replaced] - new
        self.guards[d.key, "=="] = guard._replace(dim=d, op="==", holds=True)
        return new

    def check_alive(self) -> None:
        """
        Raises:
          LeakError: if the user computes with a size after its trace.
        """
        if self.phase is CLOSED and asked_by_user():
            raise self.leak()

    def leak(self) -> LeakError:
        """The error of a size that is used after its trace."""
        names = ", ".join([str(a.name) for a in self.atoms if a.fn is None])
        return LeakError(_LEAKED.format(names, at(user_source())))

    def parts(self, given: Sequence[int]) -> Sequence[int] | None:
        """The sizes of what stands for the dimensions, if these have given ones; None
        if they leave other rests."""
        return parts_of(self.residues, self.atoms, given) if self.residues else given

    def failing(self, given: Sequence[int]) -> Iterator[Guard]:
        """The guards that do not hold where the dimensions have given sizes."""
        parts = self.parts(given)
        if parts is None:
            return others_of(self.residues, self.atoms, given)
        return failing(self.guards.values(), self.atoms, parts)

    def all_guards(self) -> list[Guard]:
        """What is asked of sizes: first what dimensions leave over."""
        rests = [g for known in self.residues.values() for g in known.guards]
        return [*rests, *self.guards.values()]

    def is_elsewhere_nonzero(self, d: Any) -> bool:
        """Whether a number that is 0 for the hints is another one for some sizes."""
        return differs(Guard(d, "==", True, "", ""), self.guards.values(), self.atoms)

    def is_asked_by_user(self) -> bool:
        """Whether the user asks while his function is traced."""
        return self.phase is TRACING and asked_by_user()

    # What another process has found

    @property
    def extent(self) -> tuple[int, int]:
        """How many atoms and how many guards there are so far."""
        return len(self.atoms), len(self.guards)

    def assumed(self) -> tuple:
        """What is taken for granted of the atoms: guards and facts, as plain data."""
        guards = [(g.dim.key, g.op, g.holds) for g in self.guards.values()]
        facts = sorted([(a.number, n) for a, n in self._facts.items()])
        return tuple(guards), tuple(facts)

    def recall(self, first: int, guards: Sequence[Guard]) -> None:
        """Goes on as if the atoms from number `first` on, which were put here, had been
        made here, and the guards had been asked for."""
        added = self.atoms[first:]
        starts = [a.number for a in added if a.fn is not Part]
        for start, stop in pairwise([*starts, len(self.atoms)]):
            atom = self.atoms[start]
            found = [self.exact((((n,), 1),)) for n in range(start, stop)]
            self.known[atom.fn, atom.args] = found if len(found) > 1 else found[0]
            if atom.fn is floordiv:
                self._quotients[atom] = atom.args  # type: ignore[assignment]
        for guard in guards:
            self.guards[guard.dim.key, guard.op] = guard

    @contextmanager
    def undone(self) -> Iterator[None]:
        """What is made inside is forgotten if it ends with an exception."""
        before = {k: copy(v) for k, v in vars(self).items() if type(v) in (list, dict)}
        try:
            yield
        except BaseException:
            vars(self).update(before)
            raise

    # Phases

    def close(self) -> None:
        """The function has been traced: its sizes are used by the compiler alone."""
        self.phase = CLOSED
        self.staged.clear()

    @contextmanager
    def compiling(self) -> Iterator[None]:
        """Inside, == asks whether two sizes are equal whatever the dimensions are."""
        before, self.phase = self.phase, COMPILING
        try:
            yield
        finally:
            self.phase = before


def _nonzero(terms: Any) -> Terms:
    return {m: c for m, c in terms.items() if c}


_NEEDED = """\
{} needs the size {} as a number, but it is dynamic{}
Compute with `x.shape[i]` itself: arithmetic and comparisons keep it a symbol, and so
does `n ** 0.5`, where `math.sqrt(n)` can't. Or leave the axis out of `dynamic=`."""

_LEAKED = """\
a size from the trace of a jitted function (made of {}) is used after that trace{}
It leaked through a global, an attribute or a closure. Use it inside of the function \
only, or keep `int(x.shape[i])`, for which the program is one for that size."""
