"""Sizes that are not fixed: polynomials over named dimensions, with a hint each.

A `Dim` behaves like an integer while a program is traced and planned. Arithmetic gives
other Dims; a question that only some sizes answer alike (``n > 3``) is answered for the
hint, and remembered as a guard. It is not an int for C code: whatever asks for its
`__index__` gets the hint, and the guard that the size is that one.
"""

from __future__ import annotations

import traceback
from contextlib import contextmanager

import numpy as np


class Atom:
    """What polynomials are made of: a dimension, or a number that is computed of
    others by `fn` (one of `count` results: number `part`)."""

    __slots__ = ("args", "fn", "hint", "low", "name", "number")

    def __init__(self, number, name, hint, low, fn=None, args=()):
        self.number, self.name, self.hint, self.low = number, name, hint, low
        self.fn, self.args = fn, args


class Part:
    """In place of `fn`: one of the other results of an atom before."""


class Scope:
    """The dimensions of one trace, what was derived of them, and its guards."""

    def __init__(self):
        self.atoms: list[Atom] = []
        self.known: dict = {}
        self.guards: dict = {}
        self.generic = False
        self.exact: dict = {}
        """Quotients k * a == whole, for a: (whole, k)."""

    def atom(self, name, hint, low, fn=None, args=()) -> Atom:
        a = Atom(len(self.atoms), name, hint, low, fn, args)
        self.atoms.append(a)
        return a

    def symbol(self, name, hint):
        return self.dim({(self.atom(name, hint, 1),): 1})

    def dim(self, terms):
        terms = {m: c for m, c in terms.items() if c}
        if self.exact:
            for m, c in terms.items():
                for a in m:
                    if a in self.exact and c % self.exact[a][1] == 0:
                        whole, k = self.exact[a]
                        rest = list(m)
                        rest.remove(a)
                        del terms[m]
                        part = self.dim({tuple(rest): c // k})
                        return whole * part + self.dim(terms)
        if not terms:
            return 0
        if len(terms) == 1 and () in terms:
            return terms[()]
        key = tuple(sorted((tuple(a.number for a in m), c) for m, c in terms.items()))
        found = self.known.get(key)
        if found is None:
            found = self.known[key] = Dim(self, terms, key)
        return found

    def derived(self, name, fn, args, hint, low=0):
        """A number that is ``fn(*args)``."""
        key = (name, tuple(args))
        found = self.known.get(key)
        if found is None:
            found = self.dim({(self.atom(name, hint, low, fn, tuple(args)),): 1})
            self.known[key] = found
        return found

    def vector(self, name, fn, args, hints, low=0):
        """The numbers ``fn(*args)``, as many as hints."""
        atoms = [
            self.atom(name, h, low, fn if i == 0 else Part, args if i == 0 else ())
            for i, h in enumerate(hints)
        ]
        return [self.dim({(a,): 1}) for a in atoms]

    def guard(self, d, op, result):
        key = (d.key, op)
        if key not in self.guards:
            where = [
                f"{f.filename.split('/treadle/')[-1].split('/src/')[-1]}:{f.lineno} {f.name}"
                for f in traceback.extract_stack(limit=9)[:-2]
                if "dims.py" not in f.filename
            ][-5:]
            self.guards[key] = (d, op, result, self.generic, where)
        return result

    @contextmanager
    def compiling(self):
        """Inside, == asks whether two sizes are equal whatever the dimensions are."""
        before, self.generic = self.generic, True
        try:
            yield
        finally:
            self.generic = before


def _terms(x):
    return x.terms if type(x) is Dim else {(): int(x)}


_INTS = (int, np.integer)


class Dim:
    __slots__ = ("_hash", "_range", "hint", "key", "scope", "terms")
    __class__ = property(lambda self: int)  # type: ignore[assignment]

    def __init__(self, scope, terms, key):
        self.scope, self.terms, self.key = scope, terms, key
        self._hash = hash((id(scope), key))
        hint = 0
        for m, c in terms.items():
            for a in m:
                c *= a.hint
            hint += c
        self.hint = hint
        self._range = None

    # Arithmetic

    def _add(self, other, sign=1):
        terms = dict(self.terms)
        for m, c in _terms(other).items():
            terms[m] = terms.get(m, 0) + sign * c
        return self.scope.dim(terms)

    def __add__(self, other):
        return self._add(other) if isinstance(other, _INTS) else self._float() + other

    __radd__ = __add__

    def __sub__(self, other):
        return (
            self._add(other, -1) if isinstance(other, _INTS) else self._float() - other
        )

    def __rsub__(self, other):
        return (-self) + other

    def __neg__(self):
        return self.scope.dim({m: -c for m, c in self.terms.items()})

    def __pos__(self):
        return self

    def __mul__(self, other):
        if not isinstance(other, _INTS):
            if isinstance(other, float):
                return self._float() * other
            return NotImplemented
        out = {}
        for m, c in self.terms.items():
            for n, d in _terms(other).items():
                both = tuple(sorted((*m, *n), key=lambda a: a.number))
                out[both] = out.get(both, 0) + c * d
        return self.scope.dim(out)

    __rmul__ = __mul__

    def __pow__(self, n):
        if not (type(n) is int and n >= 0):
            return self._float() ** n
        out = 1
        for _ in range(n):
            out = self * out
        return out

    def _quotient(self, other):
        """The exact quotient, if all sizes have one."""
        if type(other) is not Dim:
            other = int(other)
            if other and all(c % other == 0 for c in self.terms.values()):
                return self.scope.dim({m: c // other for m, c in self.terms.items()})
            return None
        if other is self:
            return 1
        if len(other.terms) != 1:
            return None
        ((n, d),) = other.terms.items()
        out = {}
        for m, c in self.terms.items():
            rest = list(m)
            for a in n:
                if a not in rest:
                    return None
                rest.remove(a)
            if c % d:
                return None
            out[tuple(rest)] = c // d
        return self.scope.dim(out)

    def _split(self, k):
        """What is a multiple of k for all sizes, divided by it; and the rest."""
        whole, rest = {}, {}
        for m, c in self.terms.items():
            if c % k == 0:
                whole[m] = c // k
            elif not m:
                whole[m], rest[m] = c // k, c % k
            else:
                rest[m] = c
        return self.scope.dim(whole), self.scope.dim(rest)

    def __floordiv__(self, other):
        q = self._quotient(other)
        if q is not None:
            return q
        if type(other) is not Dim and other < 0:
            return -self // -other
        if type(other) is not Dim:
            # (k a + b) // k is a + b // k.
            whole, rest = self._split(other)
            if type(whole) is Dim or whole:
                return whole + rest // other
        low, high = self.range()
        if type(other) is not Dim and high is not None and high <= 0 < other:
            # Rounded up, of a number that is not negative: its bounds are known.
            return -((other - 1 - self) // other)
        if low is not None:
            low = low // other if type(other) is not Dim else (0 if low >= 0 else None)
        made = self.scope.derived(
            "//", lambda a, b: a // b, (self, other), self.hint // hint(other), low
        )
        rest = self.scope.known.get(("%", (self, other)))
        if rest is not None and type(other) is int:
            found = self.scope.guards.get((rest.key, "=="))
            if found is not None and found[2]:
                ((atom,),) = made.terms
                self.scope.exact[atom] = (self, other)
        return made

    def __rfloordiv__(self, other):
        return self.scope.derived(
            "//", lambda a, b: a // b, (other, self), other // self.hint
        )

    def __mod__(self, other):
        if self._quotient(other) is not None:
            return 0
        if type(other) is not Dim and other > 0:
            whole, rest = self._split(other)
            if type(whole) is Dim or whole:
                return rest % other
        return self.scope.derived(
            "%", lambda a, b: a % b, (self, other), self.hint % hint(other)
        )

    def __rmod__(self, other):
        return self.scope.derived(
            "%", lambda a, b: a % b, (other, self), other % self.hint
        )

    def __divmod__(self, other):
        return self // other, self % other

    def __rdivmod__(self, other):
        return other // self, other % self

    def __truediv__(self, other):
        return self._float() / other

    def __rtruediv__(self, other):
        return other / self._float()

    def __abs__(self):
        return self if self >= 0 else -self

    # Questions

    def range(self):
        """Bounds that hold for all sizes (None: not known)."""
        if any([a.low is None for m in self.terms for a in m]):
            return None, None
        if self._range is None:
            shifted = self._shifted()
            base = shifted.pop((), 0)
            low = base if all(c >= 0 for c in shifted.values()) else None
            high = base if all(c <= 0 for c in shifted.values()) else None
            if low is None and self._least() >= 0:
                low = 0
            if high is None and (-self)._least() >= 0:
                high = 0
            self._range = low, high
        return self._range

    def _shifted(self):
        """The coefficients, counted from the least values of the atoms."""
        shifted = {}
        for m, c in self.terms.items():
            parts = [((), c)]
            for a in m:
                parts = [
                    q for n, k in parts for q in (((*n, a), k), (n, k * a.low)) if q[1]
                ]
            for n, k in parts:
                shifted[n] = shifted.get(n, 0) + k
        return shifted

    def _least(self):
        """A number that this is not below for any size, quotients being what they are;
        -1 if none is found."""
        found = self
        while type(found) is Dim:
            quotient = next(
                (
                    a
                    for m in found.terms
                    for a in m
                    if a.name == "//" and type(a.args[1]) is int
                ),
                None,
            )
            if quotient is None:
                shifted = found._shifted()
                base = shifted.pop((), 0)
                return base if all([c >= 0 for c in shifted.values()]) else -1
            p, k = quotient.args
            total = 0
            for m, c in found.terms.items():
                term = found.scope.dim({m: c})
                if quotient in m:
                    rest = list(m)
                    rest.remove(quotient)
                    if quotient in rest or any(
                        [a.low is None or a.low < 0 for a in rest]
                    ):
                        return -1
                    # k q lies between p - k + 1 and p.
                    edge = p - k + 1 if c > 0 else p
                    total = total + found.scope.dim({tuple(rest): c}) * edge
                else:
                    total = total + term * k
            found = total
        return found

    def _free(self):
        return all(a.fn is None for m in self.terms for a in m)

    def solved(self):
        """If self == 0 says what one dimension is: that one, and what it is."""
        for m, c in self.terms.items():
            if len(m) == 1 and abs(c) == 1 and m[0].fn is None:
                (a,) = m
                if sum(a in n for n in self.terms) == 1:
                    rest = {n: -k * c for n, k in self.terms.items() if n != m}
                    return a, self.scope.dim(rest)
        return None

    def _sign(self, op):
        """Whether self op 0."""
        low, high = self.range()
        if op == "==":
            if (low is not None and low > 0) or (high is not None and high < 0):
                return False
            if self.scope.generic and (self.hint or self._free()):
                # Polynomials of free dimensions are equal for all sizes or differ.
                return False
            return self.scope.guard(self, "==", self.hint == 0)
        if high is not None and high < 0:
            return True
        if low is not None and low >= 0:
            return False
        if self.scope.generic and high == 0:
            # Equal only where some dimension is 1: the general case holds there too.
            return True
        return self.scope.guard(self, "<", self.hint < 0)

    def __eq__(self, other):
        if self is other:
            return True
        if not isinstance(other, _INTS):
            return NotImplemented
        if type(other) is Dim and other.scope is not self.scope:
            return False
        d = self._add(other, -1)
        return d._sign("==") if type(d) is Dim else d == 0

    def __ne__(self, other):
        found = self.__eq__(other)
        return found if found is NotImplemented else not found

    def __lt__(self, other):
        if not isinstance(other, _INTS):
            return self._float() < other
        d = self._add(other, -1)
        return d._sign("<") if type(d) is Dim else d < 0

    def __ge__(self, other):
        return not self < other

    def __gt__(self, other):
        if not isinstance(other, _INTS):
            return self._float() > other
        d = (-self)._add(other)
        return d._sign("<") if type(d) is Dim else d < 0

    def __le__(self, other):
        return not self > other

    def __bool__(self):
        return not self == 0

    def __hash__(self):
        return self._hash

    # Leaving the world of sizes

    def _fixed(self):
        self.scope.guard(
            self.scope.dim({**self.terms, (): self.terms.get((), 0) - self.hint}),
            "==",
            True,
        )
        return self.hint

    def __index__(self):
        return self._fixed()

    __int__ = __trunc__ = __floor__ = __ceil__ = __round__ = __index__

    def _float(self):
        return float(self._fixed())

    __float__ = _float

    def __array__(self, dtype=None, copy=None):
        return np.array(self._fixed(), dtype)

    def __repr__(self):
        def mono(m, c):
            names = [a.name if a.fn is None else f"{a.name}{a.number}" for a in m]
            return "*".join(([str(c)] if c != 1 or not m else []) + names)

        return "+".join(mono(m, c) for m, c in self.terms.items())

    def __str__(self):
        return repr(self)

    def __format__(self, spec):
        return format(self.hint, spec) if spec else repr(self)

    def __deepcopy__(self, memo):
        return self


def one(n):
    """Whether a length is 1 by construction: that of a batch that may be is not."""
    return type(n) is not Dim and n == 1


def same_shape(a, b):
    """Whether two shapes are equal for all sizes. No guard: broadcasting asks next."""
    return a is b or (len(a) == len(b) and all([_same(m, n) for m, n in zip(a, b)]))


def _same(m, n):
    if type(m) is Dim or type(n) is Dim:
        return type(m - n) is int and m - n == 0
    return m == n


def equal_shapes(a, b):
    """Whether two shapes are equal: a guard, where that depends on sizes."""
    return len(a) == len(b) and all([m == n for m, n in zip(a, b, strict=True)])


def span(item, n):
    """Start, step and length of a slice of an axis of length n."""
    step = 1 if item.step is None else item.step
    if step == 0:
        raise ValueError("slice step cannot be zero")
    lowest, highest = (0, n) if step > 0 else (-1, n - 1)

    def bound(x, default):
        if x is None:
            return default
        if x < 0:
            x = x + n
            return x if x >= lowest else lowest
        return x if x <= highest else highest

    ends = (lowest, highest) if step > 0 else (highest, lowest)
    start, stop = bound(item.start, ends[0]), bound(item.stop, ends[1])
    length = stop - start if step > 0 else start - stop
    # A length that may be 0 for some sizes is no case of its own.
    return (start, step, 0) if length < 0 else (start, step, -(-length // abs(step)))


def settled(name, fn, args):
    """``fn(*args)``, a number: sizes for which it is another need another program."""
    scope = next((a.scope for a in args if type(a) is Dim), None)
    value = fn(*map(hint, args))
    if scope is not None:
        # The answer of a comparison is remembered as a guard.
        assert scope.derived(name, fn, tuple(args), value) == value
    return value


def hint(x):
    """The number for which decisions were made."""
    return x.hint if type(x) is Dim else x


def is_dim(x):
    return type(x) is Dim


def plain(x):
    """NumPy's integers as Python's; Dims as they are."""
    return x if type(x) is Dim else int(x)
