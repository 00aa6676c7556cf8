"""Dimensions of which the remainder by a number is known."""

from __future__ import annotations

import pytest

from treadle.dims import Restart, Scope, larger
from treadle.dims.guard import Guard
from treadle.dims.residue import Residue, steps_of


def residue(n: int = 11) -> Residue:
    """What a trace finds out where a quarter rounded up, twice, is a half."""
    scope = Scope()
    d = scope.symbol("n", n)
    with pytest.raises(Restart):
        assert (d + 3) // 4 * 2 == (d + 1) // 2
    return scope.narrowed[0]


def test_what_a_trace_finds_out_of_equal_quotients() -> None:
    known = residue()
    assert known[:3] == ("n", 4, 3)
    assert [str(g) for g in known.guards] == ["(n % 4) == 3", "n >= 4"]
    assert known.part == "(n // 4)"


@pytest.mark.parametrize("n", [1, 3, 4, 7, 8, 10, 11, 103])
def test_guards_of_a_remainder_are_those_of_its_sizes(n: int) -> None:
    scope = Scope()
    scope.symbol("m", 5)
    d = scope.symbol("n", 11, residue())
    assert d.hint == 11
    assert d // 4 * 4 + 3 == d
    assert (d + 3) // 4 * 2 == (d + 1) // 2
    assert not scope.guards
    fits = n % 4 == 3 and n > 3
    assert scope.parts((7, n)) == ([7, n // 4] if fits else None)
    assert (not list(scope.failing((7, n)))) == fits
    assert [str(g) for g in scope.all_guards()] == ["(n % 4) == 3", "n >= 4"]


def test_more_is_found_out_of_what_is_known() -> None:
    scope = Scope()
    d = scope.symbol("n", 43, residue())
    m = scope.symbol("m", 5)
    with pytest.raises(Restart):
        assert (d - 3) // 8 == m
    assert [found[:3] for found in scope.narrowed] == [("n", 8, 3)]
    scope.narrowed.clear()
    with pytest.raises(Restart):
        assert (d - 3) // 4 == 2 * m
    assert scope.replaced[0][:2] == ("n", [(["m"], 8), ([], 3)])


def test_a_scope_that_does_not_narrow_has_several_of_a_multiple() -> None:
    for n, names in ((7, ["n"]), (11, [])):
        scope = Scope(narrows=False)
        d = scope.symbol("n", n)
        with pytest.raises(Restart):
            assert (d + 3) // 4 * 2 == (d + 1) // 2
        assert [fact[0] for fact in scope.replaced] == names


def test_steps_make_quotients_whole() -> None:
    scope = Scope()
    n, m = scope.symbol("n", 50), scope.symbol("m", 60)
    (a,), (b,) = n.terms.keys(), m.terms.keys()
    a, b = a[0], b[0]
    assert steps_of(((n + 1) // 2 // 3 + m // 4).terms) == {a: 6, b: 4}
    assert steps_of((n * m // 6).terms) == {a: 6, b: 6}
    assert steps_of((n // m + n // 2).terms) == {}
    assert steps_of(n.terms) == {}


def test_larger_sizes_have_no_quotients_of_one() -> None:
    scope = Scope()
    n = scope.symbol("n", 5)
    scope.symbol("m", 17)
    assert not larger({}, scope.atoms)
    n // 2
    assert not larger({}, scope.atoms)
    (n + 1) // 2 // 3
    found = larger({}, scope.atoms)
    assert found["n"] % 6 == 5
    assert found["n"] not in (5, 11, 17)


def test_a_guard_of_the_user_says_where_the_remainder_came_from() -> None:
    guard = Guard(None, "==", True, "compared", "here.py:3")
    assert residue().guards[0]._replace(dim=None)[1:4] == guard[1:4]
