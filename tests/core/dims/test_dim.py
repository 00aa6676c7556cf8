"""Sizes against Python's integers: whatever is computed of them, at random sizes."""

from __future__ import annotations

import operator
from typing import Any

import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from tests.core.dims.evaluate import at, holds
from treadle.dims import Dim, Restart, Scope, same_shape, span

SIZES = st.fixed_dictionaries({n: st.integers(1, 40) for n in ("b", "t", "h")})
ARITHMETIC = {"+": operator.add, "-": operator.sub, "*": operator.mul}
DIVISION = {"//": operator.floordiv, "%": operator.mod}
QUESTIONS = {
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


def _trees(leaves: Any) -> Any:
    pairs = st.tuples(st.sampled_from([*ARITHMETIC, *DIVISION]), leaves, leaves)
    return st.one_of(pairs, st.tuples(st.just("neg"), leaves))


TREES = st.recursive(
    st.one_of(st.sampled_from(["b", "t", "h"]), st.integers(-9, 12)),
    _trees,
    max_leaves=7,
)


def compute(tree: Any, names: dict[str, Any]) -> Any:
    """A tree of operations, carried out on ints or on sizes."""
    if isinstance(tree, str):
        return names[tree]
    if isinstance(tree, int):
        return tree
    args = [compute(t, names) for t in tree[1:]]
    return -args[0] if tree[0] == "neg" else (ARITHMETIC | DIVISION)[tree[0]](*args)


def symbols(hints: dict[str, int]) -> tuple[Scope, dict[str, Any]]:
    scope = Scope()
    return scope, {name: scope.symbol(name, n) for name, n in hints.items()}


@settings(max_examples=200, deadline=None)
@given(TREES, SIZES, SIZES)
@example(
    ("//", "b", ("%", "b", "h")),
    {"b": 22, "t": 13, "h": 39},
    {"b": 36, "t": 31, "h": 37},
)
def test_arithmetic_is_that_of_ints(tree: Any, hints: Any, sizes: Any) -> None:
    scope, names = symbols(hints)
    try:
        traced = compute(tree, hints)
        expected = compute(tree, sizes)
    except ZeroDivisionError:
        assume(False)
    try:
        found = compute(tree, names)
    except Restart:
        assume(False)
    if not all(holds(g, sizes) for g in scope.guards.values()):
        return
    assert at(found, sizes) == expected
    if isinstance(found, Dim):
        low, high = found.range()
        assert low <= expected <= high
        assert found.hint == traced


@settings(max_examples=200, deadline=None)
@given(TREES, TREES, st.sampled_from(list(QUESTIONS)), SIZES, SIZES)
def test_a_guard_fails_exactly_where_the_answer_differs(
    first: Any, second: Any, question: str, hints: Any, sizes: Any
) -> None:
    scope, names = symbols(hints)
    ask = QUESTIONS[question]
    try:
        x, y = compute(first, names), compute(second, names)
        expected = ask(compute(first, sizes), compute(second, sizes))
        before = set(scope.guards)
        answer = ask(x, y)
    except (ZeroDivisionError, Restart):
        assume(False)
    if not all(holds(scope.guards[k], sizes) for k in before):
        return
    new = [g for k, g in scope.guards.items() if k not in before]
    assert len(new) <= 1
    assert answer == ask(compute(first, hints), compute(second, hints))
    assert (answer == expected) == all(holds(g, sizes) for g in new)


@settings(max_examples=200, deadline=None)
@given(TREES, st.integers(1, 9), SIZES)
def test_a_quotient_times_its_divisor_is_what_was_divided(
    tree: Any, k: int, hints: Any
) -> None:
    """Else what is equal would look different: wrong results, once."""
    _, names = symbols(hints)
    try:
        whole = compute(tree, names)
        quotient = whole // k
        exact = whole % k == 0
    except (ZeroDivisionError, Restart):
        assume(False)
    assert same_shape((k * quotient + whole % k,), (whole,))
    if exact:
        assert same_shape((k * (whole // k),), (whole,))
        assert same_shape((k * quotient,), (whole,))
        assert same_shape((whole % k,), (0,))


# ``k * (p // k)`` is written as ``p - p % k``, in which the quotient is not seen.
UNDIVIDED = st.recursive(
    st.one_of(st.sampled_from(["b", "t", "h"]), st.integers(-9, 12)),
    lambda leaves: st.one_of(
        st.tuples(st.sampled_from([*ARITHMETIC]), leaves, leaves),
        st.tuples(st.just("%"), leaves, st.integers(2, 5)),
    ),
    max_leaves=7,
)


@settings(max_examples=200, deadline=None)
@given(UNDIVIDED, UNDIVIDED, SIZES)
@example("b", ("-", ("+", "t", 1), ("%", ("+", "t", 1), 2)), {"b": 2, "t": 16, "h": 16})
def test_a_product_divided_by_a_factor_is_the_other(
    first: Any, second: Any, hints: Any
) -> None:
    _, names = symbols(hints)
    try:
        whole, factor = compute(first, names), compute(second, names)
        if not factor > 0:
            assume(False)
        assert same_shape((whole * factor // factor,), (whole,))
        assert same_shape((whole * factor % factor,), (0,))
    except (ZeroDivisionError, Restart):
        assume(False)


def test_equal_sizes_are_one_object() -> None:
    scope, n = symbols({"b": 6, "t": 4})
    b, t = n["b"], n["t"]
    assert b * t + b is b * (t + 1)
    assert (b + 7) // 4 is (b + 3) // 4 + 1
    assert 6 * b // 4 is b + b // 2
    assert b * t // t is b
    assert (b + t) * (b - t) // (b + t) is b - t
    assert b - b == 0 and type(b - b) is int
    assert -(-b // 3) is (b + 2) // 3
    assert b + 0 is b and b * 1 is b and b // 1 is b and b >> 1 is b // 2
    assert (b + 1) // 2 + b // 2 is b and (t - b + 3) // 2 + (t - b) // 2 is t - b + 1
    assert not scope.guards


@pytest.mark.parametrize("step", [1, 2, 3, -1, -2])
@pytest.mark.parametrize("start", [None, 0, 2, -3, 50])
@pytest.mark.parametrize("stop", [None, 0, 5, -2, 50])
def test_a_span_is_that_of_slice(start: Any, stop: Any, step: int) -> None:
    item = slice(start, stop, step)
    for n in (1, 2, 3, 8, 17):
        scope, names = symbols({"b": 8})
        first, by, length = span(item, names["b"])
        if all(holds(g, {"b": n}) for g in scope.guards.values()):
            places = range(*item.indices(n))
            assert (by, at(length, {"b": n})) == (step, len(places))
            if places:
                assert at(first, {"b": n}) == places[0]


def test_what_all_sizes_answer_alike_is_no_guard() -> None:
    scope, n = symbols({"b": 6, "t": 4})
    b, t = n["b"], n["t"]
    assert b > 0 and b * t >= b and b + 1 != 1 and b // 4 <= b
    assert b - b % 4 >= 0 and -(-b // 4) >= 1 and (b - 1) // 2 >= 0 and b
    assert max(b, 0) is b and min(b, b + 1) is b and sum([b, t, b]) is 2 * b + t
    assert not scope.guards


def test_sizes_are_told_apart_when_a_program_is_compiled() -> None:
    scope, n = symbols({"b": 6, "t": 6})
    scope.close()
    with scope.compiling():
        assert n["b"] != n["t"] and n["b"] != 6
        assert len({n["b"], n["t"], 6}) == 3
        # (Of any other expression that is 0 here it can't be said that it may differ.)
        assert n["b"] * n["t"] != n["b"] * n["t"] + n["t"] * (n["b"] % 2)
    assert not scope.guards


def test_what_was_rounded_to_a_multiple_is_one() -> None:
    scope, names = symbols({"b": 6})
    b = names["b"]
    for k in (2, 3, 8):
        up = (b + k - 1) // k
        assert (k * up) // k is up and (k * up) % k == 0
        assert -(-(k * (up - 1) + 1) // k) is up
        assert (k * (b // k) + b) // k is b // k + b // k
    assert not scope.guards
