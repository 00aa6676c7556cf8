"""What Python does with a size: as with its int, or the trace is for that one."""

from __future__ import annotations

import copy
import decimal
import math
import operator
import pickle
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.core.dims.evaluate import at, holds
from treadle.dims import Dim, Real, Restart, Scope
from treadle.errors import LeakError, TracerError

FIXES = {
    "hash": hash,
    "dict": lambda n: {6: "six"}[n],
    "dict of its own": lambda n: {n: 1}[6],
    "set": lambda n: n in {6, 7},
    "int": int,
    "index": operator.index,
    "float": float,
    "complex": complex,
    "range": range,
    "list index": lambda n: list(range(9))[n],
    "slice of a list": lambda n: list(range(9))[:n],
    "repetition": lambda n: [0] * n,
    "string repetition": lambda n: "a" * n,
    "f-string": lambda n: f"{n}",
    "format": lambda n: f"{n:>8}",
    "str": str,
    "repr": repr,
    "percent": lambda n: "%d" % n,  # noqa: UP031
    "repr of a shape": lambda n: repr((n, 3)),
    "math.sqrt": math.sqrt,
    "math.log": math.log,
    "math.gcd": lambda n: math.gcd(n, 4),
    "bin": bin,
    "bit_length": lambda n: n.bit_length(),
    "to_bytes": lambda n: n.to_bytes(2, "little"),
    "bit or": lambda n: n | 1,
    "shift of 1": lambda n: 1 << n,
    "three-argument pow": lambda n: pow(n, 2, 5),
    "equal": lambda n: n == 6,
    "in a tuple": lambda n: n in (1, 6),
    "match": lambda n: _matched(n),
    "zeros": np.zeros,
    "np.prod": lambda n: np.prod((n, 3)),
    "np.arange": np.arange,
    "np.int64": lambda n: n * np.int64(2),
    "np.add": lambda n: np.add(n, 1),
    "an array": lambda n: np.ones(2) * n,
    "pickle": pickle.dumps,
    "isinstance of a real": lambda n: int(n * 0.5),
    "complex number": lambda n: n * 1j,
}


def _matched(n: int) -> str:
    match n:
        case 6:
            return "six"
    return "other"


@pytest.mark.parametrize("name", FIXES)
def test_who_needs_the_int_gets_it_and_a_new_trace(name: str) -> None:
    scope = Scope()
    n = scope.symbol("n", 6)
    with pytest.raises(Restart):
        FIXES[name](n)
    (found,) = scope.replaced
    assert found[:2] == ("n", [([], 6)])
    *_, guard = scope.guards.values()
    assert [k for k in range(1, 20) if holds(guard, {"n": k})] == [6]
    assert __file__ in guard.source


KEEPS = {
    "sum": lambda n: sum([n, 1, n]),
    "math.prod": lambda n: math.prod((n, 3)),
    "divmod": lambda n: divmod(n, 4)[0],
    "abs": lambda n: abs(-n),
    "round": round,
    "floor": math.floor,
    "ceil of a half": lambda n: math.ceil(n / 2),
    "trunc of a half": lambda n: math.trunc(n / 2),
    "round of a third": lambda n: round(n / 3),
    "reciprocal": lambda n: 1 / n,
    "root": lambda n: n**0.5,
    "inverse root": lambda n: n**-0.5,
    "np.sqrt": np.sqrt,
    "inverse np.sqrt": lambda n: 1.0 / np.sqrt(n),
    "product with a float": lambda n: n * 0.1 + 3,
    "np.float64": lambda n: np.float64(0.1) * n,
    "a power of a real": lambda n: 2.0 ** (1 / n),
    "power of 2": lambda n: 2**n,
    "power": lambda n: n**3,
    "shift": lambda n: (n << 2) + (n >> 1),
    "mask": lambda n: n & 7,
    "not": lambda n: ~n,
    "numerator": lambda n: n.numerator + n.imag + n.real,
    "deepcopy": copy.deepcopy,
    "rounded up to 8": lambda n: -(-n // 8) * 8,
    "floor division by a float": lambda n: n // 2.5,
}


@pytest.mark.parametrize("name", KEEPS)
def test_arithmetic_keeps_a_size_symbolic(name: str) -> None:
    scope = Scope()
    found = KEEPS[name](scope.symbol("n", 6))
    assert type(found) in (Dim, Real)
    for n in (1, 2, 3, 8, 17, 1000):
        expected = KEEPS[name](n)
        if all(holds(g, {"n": n}) for g in scope.guards.values()):
            assert at(found, {"n": n}) == expected
            assert isinstance(expected, found.__class__)
    assert len(scope.guards) <= 1


FLOATS = st.one_of(st.floats(-4, 4), st.integers(-3, 3))
STEPS = st.lists(
    st.tuples(st.sampled_from(["add", "sub", "mul", "truediv"]), FLOATS, st.booleans()),
    min_size=1,
    max_size=5,
)


@settings(max_examples=150, deadline=None)
@given(STEPS, st.integers(1, 50), st.integers(1, 50), FLOATS)
def test_reals_are_pythons_floats(steps: Any, hint: int, n: int, limit: Any) -> None:
    def run(x: Any) -> Any:
        for name, c, right in steps:
            fn = getattr(operator, name)
            x = fn(x, c) if right else fn(c, x)
        return x, x < limit

    scope = Scope()
    try:
        expected, answer = run(n)
        found, asked = run(scope.symbol("n", hint))
    except (ZeroDivisionError, Restart):
        return
    if all(holds(g, {"n": n}) for g in scope.guards.values()):
        assert (at(found, {"n": n}), asked) == (expected, answer)


def test_a_comparison_of_reals_is_a_guard_in_its_own_words() -> None:
    scope = Scope()
    n = scope.symbol("n", 6)
    assert 1 / n < 0.5 and not n * 0.5 > 4
    assert list(map(str, scope.guards.values())) == [
        "((1 / n) < 0.5)",
        "not ((n * 0.5) > 4)",
    ]


def test_guards_read_like_what_was_asked() -> None:
    scope = Scope()
    b, t = scope.symbol("b", 6), scope.symbol("t", 4)
    assert b > 3 and not b * t < 2 * t + 1 and b % 3 == 0 and b != 7
    assert list(map(str, scope.guards.values())) == [
        "b > 3",
        "b*t >= 2*t + 1",
        "(b % 3) == 0",
        "b != 7",
    ]


def test_equal_dimensions_become_one() -> None:
    scope = Scope()
    b, t = scope.symbol("b", 6), scope.symbol("t", 6)
    with pytest.raises(Restart):
        assert b == t
    again = Scope()
    symbols = {n: again.symbol(n, 6) for n in "bt"}
    (fact,) = scope.replaced
    assert fact[0] == "b"
    assert again.assume(fact, symbols) is symbols["t"]
    (guard,) = again.guards.values()
    assert str(guard) == "b == t" and not holds(guard, {"b": 3, "t": 4})


def test_what_one_equation_can_not_say_fixes_all_of_its_sizes() -> None:
    scope = Scope()
    b, t = scope.symbol("b", 6), scope.symbol("t", 4)
    with pytest.raises(Restart):
        assert b * t == 24
    assert sorted(f[:2] for f in scope.replaced) == [("b", [([], 6)]), ("t", [([], 4)])]


def test_a_named_size_is_no_number() -> None:
    n = Scope(named=True).symbol("batch", 6)
    with pytest.raises(TracerError, match=r"int\(\) needs the size 2\*batch.*dynamic"):
        int(2 * n)
    assert n > 3


def test_a_size_that_leaves_its_trace_is_an_error() -> None:
    scope = Scope()
    n = scope.symbol("n", 6)
    scope.close()
    for use in (lambda: n + 1, lambda: n < 3, lambda: 1 / n, lambda: range(n)):
        with pytest.raises(
            LeakError, match=r"made of n.* is used after(.|\n)*test_use"
        ):
            use()
    with pytest.raises(LeakError):
        hash(n)


def test_decimal_and_c_code_refuse_rather_than_guess() -> None:
    n = Scope().symbol("n", 6)
    with pytest.raises(TypeError):
        decimal.Decimal(n)
