"""Which nests do a slight part of a program's work."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import treadle as td
import treadle.numpy as tnp
from tests.core.plan.build import kernels_of
from tests.core.plan.test_weight import launches
from treadle.plan.slight import marked

F = np.float32
SMALL, MANY, LARGE = np.ones(30, F), np.ones(300_000, F), np.ones((900, 900), F)


def found(function: Callable[..., Any], *args: Any) -> list[bool]:
    _, kernels = kernels_of(function, *args)
    return [x.slight for x in launches(marked(kernels))]


def test_what_stands_alone_counts() -> None:
    assert found(tnp.exp, SMALL) == [False]
    assert found(lambda x: (tnp.exp(x), tnp.sin(x).sum()), SMALL) == [False, False]


def test_little_beside_much_is_slight() -> None:
    assert found(lambda x, a: (tnp.exp(x), a @ a), SMALL, LARGE) == [True]
    assert found(lambda x, a: (tnp.exp(x), a @ a), MANY, LARGE) == [False]
    both = found(lambda x, y: (tnp.exp(x), tnp.sin(y)), SMALL, MANY)
    assert sorted(both) == [False, True]


def test_together_they_are_slight() -> None:
    """Some of many nests that are a thousandth each."""

    def f(x: Any, a: Any) -> Any:
        steps = [x]
        for n in range(12):
            steps.append(tnp.cumsum(steps[-1]) * tnp.float32(n + 1.5))
        return steps[1:], a @ a

    few = found(f, np.ones(500, F), LARGE)
    many = found(f, np.ones(20_000, F), LARGE)
    assert all(few) and not all(many)


def test_equal_nests_are_counted_together() -> None:
    """They are one kernel, which is needed as good as its largest use needs it."""

    def f(x: Any, y: Any, a: Any) -> Any:
        return tnp.exp(x), tnp.exp(y), a @ a

    assert found(f, SMALL, SMALL[:29], LARGE) == [True, True]
    assert found(f, SMALL, MANY, LARGE) == [False, False]


def test_a_loop_has_its_turns() -> None:
    def loop(turns: int) -> Callable[..., Any]:
        def run(x: Any, a: Any) -> Any:
            return td.scan(lambda c, _: (tnp.cumsum(c), None), x, None, length=turns)[
                0
            ], a @ a

        return run

    assert all(found(loop(2), SMALL, LARGE))
    assert not any(found(loop(20_000), SMALL, LARGE))


@pytest.mark.parametrize("waits", [True, False])
def test_what_may_run_often_is_compared_with_what_runs_as_often(waits: bool) -> None:
    def dear(x: Any) -> Any:
        return tnp.cumsum(tnp.exp(x))

    def f(x: Any, a: Any) -> Any:
        if waits:
            return td.while_loop(lambda c: c[0] < 1, dear, x), a @ a
        return td.cond(x[0] > 0, dear, lambda x: x, x), a @ a

    inside = found(f, SMALL, LARGE)
    assert not all(inside)

    def with_more(x: Any, a: Any) -> Any:
        def body(c: Any) -> Any:
            return dear(c[0]), c[1] @ c[1]

        if waits:
            return td.while_loop(lambda c: c[0][0] < 1, body, (x, a))
        return td.cond(x[0] > 0, body, lambda c: c, (x, a))

    assert any(found(with_more, SMALL, LARGE))


def test_what_is_long_counts_by_its_time() -> None:
    """A thousandth of a second is not slight, whatever it is a part of."""

    def f(x: Any, a: Any) -> Any:
        return tnp.exp(x), td.fori_loop(0, 1_000_000, lambda i, a: a @ a, a)

    assert all(found(f, SMALL, LARGE))
    assert not all(found(f, np.ones(3_000_000, F), LARGE))


def test_what_another_nest_does_nearly_all_of_is_slight() -> None:
    """Columns beside the inside of an array, but not beside other work."""

    def columns(x: Any, y: Any) -> Any:
        return x[:, :-1] - x[:, 1:], y[:, 0] - y[:, 1]

    def others(x: Any, y: Any) -> Any:
        return x[:, :-1] + x[:, 1:], y[:, 0] - y[:, 1]

    x, y, more = (np.ones((n, 300), F) for n in (300, 900, 9000))
    assert sorted(found(columns, x, y)) == [False, True]
    assert found(columns, x, more) == [False, False]
    assert found(others, x, y) == [False, False]
