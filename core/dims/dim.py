"""A size that is not fixed. To a program it is its int, or fixes itself."""

from __future__ import annotations

import operator
import sys
from collections.abc import Callable
from math import gcd
from typing import Any

import numpy as np

from treadle.dims import polynomial as poly
from treadle.dims.frames import is_user
from treadle.dims.number import Real, array_function, ask, compute
from treadle.dims.polynomial import Atom, Terms
from treadle.dims.quotients import is_least_at_one, rewritten
from treadle.dims.scope import COMPILING, TRACING, Scope
from treadle.dims.terms import sizes


class Dim:
    """A polynomial over the atoms of a scope, with a hint: the size for which decisions
    are made. Equal polynomials of a scope are one object.

    While a function is traced, what only some sizes answer alike (``n > 3``) is
    answered for the hint, and remembered as a guard. While it is compiled, sizes that
    are not equal for all dimensions are unequal, which is no guard: what is right for
    unequal sizes is right where they happen to be equal.

    `isinstance(n, int)` holds, but to C code it is no int: that must ask for its
    `__index__`, which fixes it.
    """

    __slots__ = ("_bounds", "_hash", "hint", "is_free", "key", "scope", "terms")
    __class__ = property(lambda self: int)  # type: ignore[assignment]

    def __init__(self, scope: Scope, terms: Terms, key: tuple) -> None:
        self.scope, self.terms, self.key = scope, terms, key
        self.hint = poly.value(terms)
        self.is_free = all([a.fn is None for m in terms for a in m])
        """Whether only dimensions are in it: no quotients, no computed numbers."""
        self._bounds: tuple[int, int] | None = None
        self._hash = hash((id(scope), key))

    # Arithmetic

    def __add__(self, other: Any) -> Any:
        if isinstance(other, int):
            return self.scope.plus(self, _plain(other), 1)
        return _real(operator.add, self, other)

    def __radd__(self, other: Any) -> Any:
        if isinstance(other, int):
            return self.scope.plus(self, _plain(other), 1)
        return _real(operator.add, other, self)

    def __sub__(self, other: Any) -> Any:
        if isinstance(other, int):
            return self.scope.plus(self, _plain(other), -1)
        return _real(operator.sub, self, other)

    def __rsub__(self, other: Any) -> Any:
        if isinstance(other, int):
            return -self + other
        return _real(operator.sub, other, self)

    def __mul__(self, other: Any) -> Any:
        if isinstance(other, int):
            return self._times(_plain(other))
        return _real(operator.mul, self, other)

    def __rmul__(self, other: Any) -> Any:
        if isinstance(other, int):
            return self._times(_plain(other))
        return _real(operator.mul, other, self)

    def _times(self, other: Any) -> Any:
        return self.scope.times(self, other)

    def __neg__(self) -> Any:
        return self._times(-1)

    def __pos__(self) -> Dim:
        return self

    def __abs__(self) -> Any:
        return self if self >= 0 else -self

    def __floordiv__(self, other: Any) -> Any:
        if isinstance(other, int):
            return self.scope.quotient(self, _divisor(other))
        return _real(operator.floordiv, self, other)

    def __rfloordiv__(self, other: Any) -> Any:
        if isinstance(other, int):
            return self.scope.quotient(_plain(other), self)
        return _real(operator.floordiv, other, self)

    def __mod__(self, other: Any) -> Any:
        if isinstance(other, int):
            return self.scope.remainder(self, _divisor(other))
        return _real(operator.mod, self, other)

    def __rmod__(self, other: Any) -> Any:
        if isinstance(other, int):
            return self.scope.remainder(_plain(other), self)
        return _real(operator.mod, other, self)

    def __divmod__(self, other: Any) -> Any:
        return self // other, self % other

    def __rdivmod__(self, other: Any) -> Any:
        return other // self, other % self

    def __truediv__(self, other: Any) -> Any:
        return _real(operator.truediv, self, other)

    def __rtruediv__(self, other: Any) -> Any:
        return _real(operator.truediv, other, self)

    def __pow__(self, other: Any, modulus: Any = None) -> Any:
        if modulus is not None:
            return pow(self._number("pow()"), other, modulus)
        if type(other) is not int or other < 0:
            return _real(operator.pow, self, other)
        out: Any = 1
        for _ in (None,) * other:
            out = self * out
        return out

    def __rpow__(self, other: Any, modulus: Any = None) -> Any:
        return _real(operator.pow, other, self)

    def __lshift__(self, other: Any) -> Any:
        return self * 2**other if type(other) is int else NotImplemented

    def __rshift__(self, other: Any) -> Any:
        return self // 2**other if type(other) is int else NotImplemented

    def __and__(self, other: Any) -> Any:
        if type(other) is int and other >= 0 and not other & (other + 1):
            return self % (other + 1)
        return self._with_int(operator.and_, other)

    __rand__ = __and__

    def __or__(self, other: Any) -> Any:
        return self._with_int(operator.or_, other)

    __ror__ = __or__

    def __xor__(self, other: Any) -> Any:
        return self._with_int(operator.xor, other)

    __rxor__ = __xor__

    def __invert__(self) -> Any:
        return -self - 1

    def __rlshift__(self, other: Any) -> Any:
        return self._with_int(_flipped_lshift, other)

    def __rrshift__(self, other: Any) -> Any:
        return self._with_int(_flipped_rshift, other)

    def _with_int(self, fn: Callable[[Any, Any], Any], other: Any) -> Any:
        if not isinstance(other, int):
            return NotImplemented
        return fn(self._number("bit arithmetic"), other)

    def __floor__(self) -> Dim:
        return self

    __ceil__ = __trunc__ = __floor__

    def __round__(self, digits: int | None = None) -> Any:
        if digits is None or digits >= 0:
            return self
        return round(self._number("round()"), digits)

    # Questions

    def range(self) -> tuple[int, int]:
        """Numbers between which it lies for all sizes."""
        if self._bounds is None:
            low, high = poly.bounds(self.terms)
            for terms, k in rewritten(self.scope, self.terms):
                least, most = poly.bounds(terms)
                low, high = max(low, -(-least // k)), min(high, most // k)
            self._bounds = low, high
        return self._bounds

    def forget_bounds(self) -> None:
        """More is known of an atom."""
        self._bounds = None

    def solved(self) -> tuple[Atom, Any] | None:
        """If ``self == 0`` says what one dimension is: that one, and what it is."""
        found = self._isolated()
        if found is None and not self.is_free:
            # Quotients known to leave no rest are none in a multiple of it.
            multiples = [
                self.scope.dim(t) for t, _ in rewritten(self.scope, self.terms)
            ]
            solved = [d._isolated() for d in multiples if type(d) is Dim]
            found = next((f for f in solved if f), None)
        return found

    def _isolated(self) -> tuple[Atom, Any] | None:
        """One dimension that stands alone in it, and what it is where this is 0."""
        shared = poly.content(self.terms)
        for m, c in self.terms.items():
            if len(m) != 1 or abs(c) != shared or m[0].fn is not None:
                continue
            rest = {n: -k * (c // shared) for n, k in self.terms.items() if n != m}
            whole = all([k % shared == 0 for k in rest.values()])
            others = [a for n in rest for a in n]
            if whole and m[0] not in others and all([a.fn is None for a in others]):
                return m[0], self.scope.dim({n: k // shared for n, k in rest.items()})
        return None

    def _is_zero(self) -> bool:
        low, high = self.range()
        if low > 0 or high < 0:
            return False
        if low == high:
            return True  # Written in two ways, of quotients and of their remainders.
        same = self._smallest()
        if same is not self:
            return same._is_zero()
        if self.scope.phase is not TRACING:
            # Of what functions have computed, only a comparison with a number is sure
            # to be of different sizes: two expressions may be equal unseen, unless
            # some sizes show that they aren't.
            alone = len(self.terms) - (poly.CONSTANT in self.terms) == 1
            if self.hint or self.is_free or alone or poly.has_zeros_of_one(self.terms):
                return False
            if self.scope.is_elsewhere_nonzero(self):
                return False
        elif rests := poly.rests(self.terms):
            # It is 0 because of them: they leave nothing where they are 0.
            return all([self.scope.guard(self.scope.dim(r), "==", True) for r in rests])
        return self.scope.guard(self, "==", self.hint == 0)

    def is_negative(self, general: bool = True) -> bool:
        """Whether it is below 0.

        general: what is so but for lengths of 1 is taken to be so while a function is
          compiled: where only dimensions are compared that differ by these.
        """
        low, high = self.range()
        if high < 0:
            return True
        if low >= 0:
            return False
        if general and self.scope.phase is not TRACING:
            # Otherwise only where a length is 1: the general case holds there too.
            if high == 0 and is_least_at_one(self.scope, poly.scale(self.terms, -1), 0):
                return True
            if low == -1 and is_least_at_one(self.scope, self.terms, -1):
                return False
        return self.scope.guard(self._smallest(), "<", self.hint < 0)

    def _smallest(self) -> Dim:
        """What is 0, above and below it for the same sizes: without the factors that
        are above 0 themselves."""
        terms = poly.over(self.terms, poly.common(self.terms))
        shared = gcd(*terms.values())
        return self.scope.dim({m: c // shared for m, c in terms.items()})

    def __eq__(self, other: object) -> Any:
        if self is other:
            return True
        free = type(other) is int or (type(other) is Dim and other.is_free)
        if free and self.is_free and self.scope.phase is COMPILING:
            # They are different polynomials.
            return False
        if not isinstance(other, int):
            return _asked(operator.eq, self, other)
        if type(other) is Dim and other.scope is not self.scope:
            return False
        d = self.scope.plus(self, _plain(other), -1)
        return d._is_zero() if type(d) is Dim else d == 0

    def __ne__(self, other: object) -> Any:
        found = self.__eq__(other)
        return found if found is NotImplemented else not found

    def __lt__(self, other: Any) -> Any:
        if not isinstance(other, int):
            return _asked(operator.lt, self, other)
        d = self - _plain(other)
        return d.is_negative() if type(d) is Dim else d < 0

    def __ge__(self, other: Any) -> Any:
        if not isinstance(other, int):
            return _asked(operator.ge, self, other)
        return not self < other

    def __gt__(self, other: Any) -> Any:
        if not isinstance(other, int):
            return _asked(operator.gt, self, other)
        d = _plain(other) - self
        return d.is_negative() if type(d) is Dim else d < 0

    def __le__(self, other: Any) -> Any:
        if not isinstance(other, int):
            return _asked(operator.le, self, other)
        return not self > other

    def __bool__(self) -> bool:
        return self != 0

    def __hash__(self) -> int:
        """The int's for the user, who may look it up beside ints; the library tells
        sizes apart that are equal by accident."""
        if self.scope.phase is not COMPILING and is_user(sys._getframe(1)):
            return hash(self._number("a hash (a set, or a key of a dict)"))
        return self._hash

    # Leaving the world of sizes

    def fixed(self, reason: str) -> int:
        """The int itself; the trace is for sizes that give it."""
        return self.scope.fixed(self, reason)

    _number = fixed

    def __index__(self) -> int:
        return self.fixed("an integer of Python (range(), an index, a repetition)")

    def __int__(self) -> int:
        return self.fixed("int()")

    def __float__(self) -> float:
        return float(self.fixed("float() or a function of `math` (not so `n ** 0.5`)"))

    def __complex__(self) -> complex:
        return complex(self.fixed("complex()"))

    @property
    def real(self) -> Dim:
        return self

    numerator = real

    @property
    def imag(self) -> int:
        return 0

    @property
    def denominator(self) -> int:
        return 1

    def conjugate(self) -> Dim:
        return self

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or not hasattr(int, name):
            raise AttributeError(f"'int' object has no attribute {name!r}")
        return getattr(self.fixed(f"`.{name}`"), name)

    def __array__(self, dtype: Any = None, copy: Any = None) -> np.ndarray:
        return np.array(self.fixed("an array of NumPy"), dtype)

    def __array_ufunc__(self, ufunc: Any, how: str, *inputs: Any, **kw: Any) -> Any:
        return array_function(ufunc, how, inputs, kw)

    def __repr__(self) -> str:
        if self.scope.phase is TRACING and is_user(sys._getframe(1)):
            return repr(self.fixed("printing"))
        return poly.text(self.terms)

    def __str__(self) -> str:
        if self.scope.phase is TRACING and is_user(sys._getframe(1)):
            return str(self.fixed("printing"))
        return poly.text(self.terms)

    def __format__(self, spec: str) -> str:
        if self.scope.phase is TRACING and is_user(sys._getframe(1)):
            return format(self.fixed("formatting"), spec)
        return poly.text(self.terms)

    def __copy__(self) -> Dim:
        return self

    def __deepcopy__(self, memo: Any) -> Dim:
        return self

    def __reduce__(self) -> Any:
        return int, (self.fixed("pickling"),)


sizes.append(Dim)


def _plain(x: Any) -> Any:
    """A whole number as one of Python's, or a size."""
    return x if type(x) is Dim else int(x)


def _divisor(x: Any) -> Any:
    x = _plain(x)
    if type(x) is int and x == 0:
        raise ZeroDivisionError("integer division or modulo by zero")
    return x


def _real(fn: Callable[..., Any], *args: Any) -> Any:
    """Arithmetic with what is no int, or whose result is none."""
    if any([isinstance(a, np.integer) for a in args]):
        # To the user, NumPy's integers give others of theirs, with their dtype.
        scope = next(a.scope for a in args if type(a) is Dim)
        ours = not scope.is_asked_by_user()
        return fn(*[_as_int(a, ours) for a in args])
    if all([isinstance(a, int | float) for a in args]):
        return compute(fn, *args)
    if any([isinstance(a, complex) for a in args]):
        return fn(*[a.fixed("complex numbers") if type(a) is Dim else a for a in args])
    return NotImplemented


def _as_int(x: Any, ours: bool) -> Any:
    if type(x) is Dim:
        return x if ours else x.fixed("an integer of NumPy beside it")
    return int(x) if ours else x


def _asked(fn: Callable[..., Any], x: Dim, y: Any) -> Any:
    if type(y) is Real or isinstance(y, float):
        return ask(fn, x, y)
    if isinstance(y, np.integer):
        return fn(x, int(y))
    return NotImplemented


def _flipped_lshift(x: int, y: int) -> int:
    return y << x


def _flipped_rshift(x: int, y: int) -> int:
    return y >> x
