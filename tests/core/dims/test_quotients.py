"""What is known of sizes with whole quotients and remainders in them."""

from __future__ import annotations

from typing import Any

import pytest

from treadle.dims import Scope, is_inside
from treadle.dims.guard import Guard, differs
from treadle.dims.polynomial import bounds
from treadle.dims.quotients import is_least_at_one, rewritten
from treadle.dims.terms import terms_of

SIZES = [(n, m) for n in range(1, 14) for m in range(1, 14)]


def scoped(hint: int = 6) -> tuple[Scope, Any, Any]:
    scope = Scope()
    return scope, scope.symbol("n", hint), scope.symbol("m", hint + 1)


def value(d: Any, n: int, m: int) -> int:
    """A size where the dimensions are given, by the meaning of its terms."""

    def atom(a: Any) -> int:
        if a.fn is None:
            return {"n": n, "m": m}[a.name]
        return a.fn(
            *[x if isinstance(x, int) and type(x) is int else of(x) for x in a.args]
        )

    def of(x: Any) -> int:
        total = 0
        for monomial, c in terms_of(x).items():
            for a in monomial:
                c *= atom(a)
            total += c
        return total

    return of(d)


EXPRESSIONS = {
    "whole windows": lambda n, m: 3 * (n - n % 3) * (m - m % 3),
    "their square": lambda n, m: 3 * n * n + 3 * (n % 4) * (n % 4) - 6 * n * (n % 4),
    "rounded up": lambda n, m: 3 * (n + n % 2) * (m + m % 2) - 6 * (m + m % 2),
    "halves": lambda n, m: (
        n * (m % 2) + m * (n % 2) + n * (m // 2) - (n % 2) * (m // 2)
    ),
    "by a size": lambda n, m: n % m + n // m,
}


@pytest.mark.parametrize("name", EXPRESSIONS)
def test_what_is_written_otherwise_is_the_same_number(name: str) -> None:
    scope, n, m = scoped()
    d = EXPRESSIONS[name](n, m)
    forms = rewritten(scope, terms_of(d))
    assert len(forms) >= 3
    for terms, times in forms:
        low, high = bounds(terms)
        for sizes in SIZES:
            assert value(scope.exact(_key(terms)), *sizes) == times * value(d, *sizes)
            assert low <= times * value(d, *sizes) <= high


def _key(terms: Any) -> tuple:
    return tuple(sorted([(tuple([a.number for a in m]), c) for m, c in terms.items()]))


def test_sizes_without_quotients_are_as_they_are() -> None:
    scope, n, m = scoped()
    assert rewritten(scope, terms_of(3 * n * m - n)) == []


QUESTIONS = {
    "windows are no fewer than none": lambda n, m: (n - n % 4) * (n - n % 4) >= 0,
    "an even length is at least 2": lambda n, m: n + n % 2 >= 2,
    "and so are two": lambda n, m: (n + n % 2) * (m + m % 2) >= 2 * (m + m % 2),
    "a half up is at least 1": lambda n, m: n - n // 2 >= 1,
    "what is padded is no shorter": lambda n, m: n + (n + 2) % 3 >= n,
}


@pytest.mark.parametrize("name", QUESTIONS)
def test_questions_that_all_sizes_answer_alike_are_no_guards(name: str) -> None:
    scope, n, m = scoped()
    scope.close()
    with scope.compiling():
        assert QUESTIONS[name](n, m) is True
    assert not scope.guards


def test_a_quotient_that_is_not_0_is_a_length() -> None:
    """Which the compiler takes for one that is longer than 1, as it takes others."""
    scope, n, m = scoped()

    def at_one(d: Any, least: int) -> bool:
        return is_least_at_one(scope, terms_of(d), least)

    assert not at_one(n // 4 - 1, -1)
    assert at_one(n * m - n, 0)
    assert at_one(n + n % 2 - 2, 0), "twice a half rounded up"
    assert not at_one(1 - n % 2, 0), "which halves say as well, but not its bound"
    assert not at_one(5 - n, -1)
    assert n // 4 != 0
    assert at_one(n // 4 - 2, -1)
    assert (n // 4).range()[0] == 1
    before = len(scope.guards)
    scope.close()
    with scope.compiling():
        assert n // 4 > 1
        assert (n // 4) * m >= m
    assert len(scope.guards) == before


def test_an_index_is_inside_of_an_axis_of_length_1_or_a_guard_says_so() -> None:
    scope, n, m = scoped()
    scope.close()
    with scope.compiling():
        assert n > 1 and n * m > m
        assert is_inside(n - 1, n) and is_inside(0, n) and is_inside(n * m - m, n * m)
        assert not scope.guards
        assert is_inside(1, n)
    assert [str(g) for g in scope.guards.values()] == ["n > 1"]


@pytest.mark.parametrize("hint", [6, 7])
def test_whether_a_length_is_even_is_asked_for(hint: int) -> None:
    """0 and 1 are all that a remainder can be: neither is a length of 1."""
    questions: dict[str, Any] = {
        "> 0": lambda n: n % 2 > 0,
        "< 1": lambda n: n % 2 < 1,
        "of three": lambda n: n % 3 > 0,
        "upwards": lambda n: -n % 2 >= 1,
    }
    for ask in questions.values():
        scope, n, _ = scoped(hint)
        scope.close()
        with scope.compiling():
            assert ask(n) is ask(hint)
            answers = list(scope.guards)
        assert answers


@pytest.mark.parametrize("hint", [5, 6])
def test_a_remainder_that_may_be_either_is_asked_for(hint: int) -> None:
    """Not only where a length is 1."""
    scope, n, _ = scoped(hint)
    scope.close()
    with scope.compiling():
        assert (n + n % 2 > n) == (hint == 5)
    assert len(scope.guards) == 1


def test_a_quotient_that_may_be_0_is_asked_for() -> None:
    scope, n, _ = scoped()
    quotient = n // 4
    scope.close()
    with scope.compiling():
        assert not quotient > 1
    assert [str(g) for g in scope.guards.values()] == ["(n // 4) <= 1"]


def test_numbers_that_are_equal_by_accident_are_others() -> None:
    scope, n, m = scoped(6)  # n % 4 is 2, m % 5 as well
    scope.close()
    with scope.compiling():
        assert n % 4 != m % 5
        assert not scope.guards
        # Nothing else shows whether these two are the same.
        assert n % 4 + n // 4 * 4 == n


def test_sizes_are_tried_where_guards_hold() -> None:
    scope, n, m = scoped(6)
    equal = Guard(n - m + 1, "==", True, "", "")
    assert differs(equal, [], scope.atoms)
    assert not differs(equal, [equal], scope.atoms)
    assert not differs(Guard(n, "<", False, "", ""), [], scope.atoms)


def test_blocks_of_two_sizes_are_whole_where_both_are() -> None:
    """Which is what is asked of them, not that their product is one number."""
    scope, n, m = scoped(hint=11)
    assert 16 * n * (m // 4) * 2 == 8 * n * m
    assert [str(g) for g in scope.guards.values()] == ["(m % 4) == 0"]
    assert (m // 4).range()[0] == 1
    assert m.range()[0] == 4


def test_a_square_of_blocks_is_divided_by_what_it_was_made_of() -> None:
    scope, n, m = scoped()
    area = 8 * n * (m // 4) * (m // 4)
    assert area // (8 * n) is (m // 4) * (m // 4)
    assert area % (8 * n) == 0
    assert not scope.guards


def test_products_of_halves_are_equal_however_they_are_halved() -> None:
    scope = Scope()
    n, m = scope.symbol("n", 8), scope.symbol("m", 12)
    assert n % 2 == 0
    assert (m // 2) % 2 == 0
    before = len(scope.guards)
    assert n * (m // 2 // 2) == (n // 2) * (m // 2)
    assert len(scope.guards) == before
