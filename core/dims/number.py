"""Numbers computed of sizes that are no whole numbers: ``1 / n``, ``n ** -0.5``."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from treadle.dims.scope import Scope
from treadle.dims.terms import hint_of, sizes


class Real:
    """A float that depends on sizes. Arithmetic gives others like it, computed for each
    size as Python computes with floats; whatever needs the float itself fixes the size.

    value: an atom of a scope, whose number is the float.
    """

    __slots__ = ("scope", "value")
    __class__ = property(lambda self: float)  # type: ignore[assignment]

    def __init__(self, scope: Scope, value: Any) -> None:
        self.scope, self.value = scope, value

    @property
    def hint(self) -> float:
        """The float for which decisions are made."""
        return self.value.hint

    def fixed(self, reason: str) -> float:
        """The float itself; the trace is for sizes that give it."""
        return self.scope.fixed(self.value, reason)

    # Arithmetic: with numbers, sizes, and others

    def __neg__(self) -> Any:
        return compute(operator.neg, self)

    def __pos__(self) -> Real:
        return self

    def __abs__(self) -> Any:
        return compute(abs, self)

    # Python's roundings give integers: sizes.

    def __floor__(self) -> Any:
        return compute(math.floor, self)

    def __ceil__(self) -> Any:
        return compute(math.ceil, self)

    def __trunc__(self) -> Any:
        return compute(math.trunc, self)

    def __round__(self, digits: int | None = None) -> Any:
        if digits is None:
            return compute(round, self)
        return compute(_round_to, self, digits)

    # Questions

    def __eq__(self, other: object) -> Any:
        return ask(operator.eq, self, other)

    def __ne__(self, other: object) -> Any:
        found = self == other
        return found if found is NotImplemented else not found

    def __lt__(self, other: Any) -> Any:
        return ask(operator.lt, self, other)

    def __le__(self, other: Any) -> Any:
        return ask(operator.le, self, other)

    def __gt__(self, other: Any) -> Any:
        return ask(operator.gt, self, other)

    def __ge__(self, other: Any) -> Any:
        return ask(operator.ge, self, other)

    def __bool__(self) -> bool:
        return self != 0

    def __hash__(self) -> int:
        return hash(self.fixed("hash"))

    def __float__(self) -> float:
        return float(self.fixed("float() or a function of `math` (not so `n ** 0.5`)"))

    def __int__(self) -> int:
        return int(self.fixed("int()"))

    def __complex__(self) -> complex:
        return complex(self.fixed("complex()"))

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or not hasattr(float, name):
            raise AttributeError(f"'float' object has no attribute {name!r}")
        return getattr(self.fixed(f"`.{name}`"), name)

    def __array__(self, dtype: Any = None, copy: Any = None) -> np.ndarray:
        return np.array(self.fixed("a function of NumPy"), dtype)

    def __array_ufunc__(self, ufunc: Any, how: str, *inputs: Any, **kw: Any) -> Any:
        return array_function(ufunc, how, inputs, kw)

    def __repr__(self) -> str:
        if self.scope.is_asked_by_user():
            return repr(self.fixed("printing"))
        return repr(self.value)

    def __format__(self, spec: str) -> str:
        return format(self.fixed("formatting"), spec)

    def __copy__(self) -> Real:
        return self

    def __deepcopy__(self, memo: Any) -> Real:
        return self

    def __reduce__(self) -> Any:
        return float, (self.fixed("pickling"),)


def _round_to(x: float, digits: int) -> float:
    return round(x, digits)


@dataclass(frozen=True, eq=False)
class _Formula:
    """A function of numbers, some of which are constants.

    args: these, and None for each of the others.
    """

    fn: Callable[..., Any]
    args: tuple

    @property
    def _key(self) -> tuple:
        return type(self), self.fn, tuple([_exact(a) for a in self.args])

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Formula) and self._key == other._key

    def __hash__(self) -> int:
        return hash(self._key)

    def __call__(self, *values: Any) -> Any:
        given = iter(values)
        return self.fn(*[next(given) if a is None else a for a in self.args])

    def show(self, values: Sequence[Any]) -> str:
        """As source text."""
        given = iter(values)
        texts = [repr(next(given) if a is None else a) for a in self.args]
        sign = _SIGNS.get(self.fn)
        if sign and len(texts) == 2:
            return f"({texts[0]} {sign} {texts[1]})"
        fn = self.fn
        if fn is _as_float:
            fn, texts = self.args[0], texts[1:]
        return f"{fn.__name__.strip('_')}({', '.join(texts)})"


class _Comparison(_Formula):
    """One whose result is a bool."""

    compares = True


_SIGNS: dict[Any, str] = {
    operator.add: "+",
    operator.sub: "-",
    operator.mul: "*",
    operator.truediv: "/",
    operator.floordiv: "//",
    operator.mod: "%",
    operator.pow: "**",
    operator.eq: "==",
    operator.lt: "<",
    operator.le: "<=",
    operator.gt: ">",
    operator.ge: ">=",
}


def _exact(constant: Any) -> Any:
    """What tells apart constants that are equal but compute differently."""
    if isinstance(constant, float):
        return float(constant).hex()
    return type(constant), constant


def _values(args: tuple) -> tuple[list[Any], list[Any]]:
    """The sizes among arguments, and the constants (None where a size stands)."""
    values, constants = [], []
    for a in args:
        symbolic = type(a) is Real or type(a) is sizes[0]
        constants.append(None if symbolic else a)
        if symbolic:
            values.append(a.value if type(a) is Real else a)
    return values, constants


def compute(fn: Callable[..., Any], *args: Any) -> Any:
    """``fn(*args)``: a float or an integer that is found for each size."""
    values, constants = _values(args)
    scope = values[0].scope
    scope.check_alive()
    formula = _Formula(fn, tuple(constants))
    made = formula(*[hint_of(v) for v in values])
    # Nothing is known of what an integer is computed of: it may be negative.
    found = scope.derived(formula, values, made, low=-(2**63))
    return Real(scope, found) if isinstance(made, float) else found


def ask(fn: Callable[..., bool], x: Any, y: Any) -> Any:
    """The answer to a comparison for the hints, with a guard that it is so."""
    if not isinstance(y, int | float):
        return NotImplemented
    values, constants = _values((x, y))
    scope = values[0].scope
    scope.check_alive()
    formula = _Comparison(fn, tuple(constants))
    holds = bool(formula(*[hint_of(v) for v in values]))
    if fn is operator.eq and holds:
        for v in values:
            scope.fix(v, "compared")
        return True
    answer = scope.derived(formula, values, int(holds), high=1)
    return not scope.guard(answer, "==", not holds, settle=False)


def array_function(ufunc: Any, how: str, inputs: tuple, kw: dict) -> Any:
    """What a function of NumPy's gives. A float counts as Python's; other results are
    typed as NumPy's, so that the sizes must be known."""
    plain = all(
        type(x) is np.float64
        or (isinstance(x, int | float) and not isinstance(x, np.generic))
        for x in inputs
    )
    if plain and how == "__call__" and not kw and ufunc.nout == 1:
        made = ufunc(*[_hint(x) for x in inputs])
        if type(made) is np.float64:
            return compute(_as_float, ufunc, *inputs)
    return getattr(ufunc, how)(*[_known(x) for x in inputs], **kw)


def _as_float(ufunc: Any, *args: Any) -> float:
    return float(ufunc(*args))


def _hint(x: Any) -> Any:
    return x.hint if type(x) is Real or type(x) is sizes[0] else x


def _known(x: Any) -> Any:
    symbolic = type(x) is Real or type(x) is sizes[0]
    return x.fixed("a function of NumPy") if symbolic else x


def _operator(fn: Callable[..., Any]) -> tuple[Any, Any]:
    def forward(self: Any, other: Any) -> Any:
        if not isinstance(other, int | float):
            return NotImplemented
        return compute(fn, self, other)

    def backward(self: Any, other: Any) -> Any:
        if not isinstance(other, int | float):
            return NotImplemented
        return compute(fn, other, self)

    return forward, backward


for _name in ("add", "sub", "mul", "truediv", "floordiv", "mod", "pow"):
    _forward, _backward = _operator(getattr(operator, _name))
    setattr(Real, f"__{_name}__", _forward)
    setattr(Real, f"__r{_name}__", _backward)
