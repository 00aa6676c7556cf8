"""Loops in branches in loops: values, and no memory reused too early."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

import treadle as td
import treadle.numpy as tnp
from tests.core.fuse.compare import hard_conditions, same, values
from treadle.plan.liveness import check_plan

pytestmark = pytest.mark.usefixtures("checked_by_reference")

SHAPE = (6, 5)
Values = list[Any]
EXPRESSIONS: tuple[Callable[[Any, Any], Any], ...] = (
    lambda a, b: a,
    lambda a, b: tnp.tanh(a + b),
    lambda a, b: a * 0.5 - b * 0.25,
    lambda a, b: tnp.tanh(a @ b.T @ a),
    lambda a, b: a[::-1],
    lambda a, b: tnp.zeros(SHAPE),
    lambda a, b: a / (1 + tnp.sum(tnp.abs(b), axis=1, keepdims=True)),
    lambda a, b: tnp.sort(a, axis=0) * 0.5,
)


class Generator:
    """Makes functions of lists of arrays, all of one shape."""

    def __init__(self, seed: int) -> None:
        self.r = random.Random(seed)

    def some(self, count: int, among: int) -> list[int]:
        return [self.r.randrange(among) for _ in range(count)]

    def function(self, n_in: int, n_out: int, depth: int) -> Callable[[Values], Values]:
        """A few steps, each of which adds values; then some of the values."""
        steps, count = [], n_in
        for _ in range(self.r.randint(1, 4)):
            if depth and self.r.random() < 0.6:
                step, more = self.control(count, depth - 1)
            else:
                step, more = self.expression(count), 1
            steps.append(step)
            count += more
        chosen = self.some(n_out, count)

        def run(v: Values) -> Values:
            for step in steps:
                v = [*v, *step(v)]
            return [v[i] for i in chosen]

        return run

    def expression(self, count: int) -> Callable[[Values], Values]:
        e, (a, b) = self.r.choice(EXPRESSIONS), self.some(2, count)
        return lambda v: [e(v[a], v[b])]

    def control(self, count: int, depth: int) -> tuple[Callable[[Values], Values], int]:
        """A loop or branch, whose body closes over some of the values."""
        n = self.r.randint(1, 3)
        start, closed = self.some(n, count), self.some(self.r.randint(0, 2), count)
        bodies = [self.function(n + len(closed), n, depth) for _ in range(2)]
        times, other = self.r.randint(0, 3), self.r.randrange(count)
        kind = self.r.choice([_scan, _while, _cond, _scan])
        reverse = self.r.random() < 0.5

        def step(v: Values) -> Values:
            with_closed = [
                lambda x, f=f: tuple(f([*x, *(v[i] for i in closed)])) for f in bodies
            ]
            first = tuple(v[i] for i in start)
            return list(kind(with_closed, first, v[other], times, reverse))

        return step, n


def _scan(
    bodies: Sequence[Any], first: tuple, other: Any, times: int, reverse: bool
) -> tuple:
    xs = tnp.stack([other * (k + 1) for k in range(times + 1)])

    def step(c: tuple, x: Any) -> Any:
        c = bodies[0](c)
        return (tnp.tanh(c[0] + x), *c[1:]), c[-1]

    last, ys = td.scan(step, first, xs, reverse=reverse)
    return (*last[:-1], last[-1] + ys[times])


def _while(
    bodies: Sequence[Any], first: tuple, other: Any, times: int, reverse: bool
) -> tuple:
    more = lambda s: (s[0] < times) & (tnp.sum(tnp.abs(s[1][0])) > 0.01)  # noqa: E731
    return td.while_loop(more, lambda s: (s[0] + 1, bodies[0](s[1])), (0, first))[1]


def _cond(
    bodies: Sequence[Any], first: tuple, other: Any, times: int, reverse: bool
) -> tuple:
    positive, negative = ((lambda *x, f=f: f(x)) for f in bodies)
    return td.cond(tnp.sum(other) > 0.3, positive, negative, *first)


@pytest.mark.parametrize("donate", [(), (0, 1, 2)], ids=["kept", "donated"])
@pytest.mark.parametrize("seed", range(16))
def test_nested_control_flow(seed: int, donate: tuple[int, ...]) -> None:
    make = Generator(seed).function(3, 3, 3)
    function = lambda a, b, c: make([a, b, c])  # noqa: E731
    random = np.random.default_rng(seed)
    given = [random.normal(size=SHAPE).astype(np.float32) * 0.5 for _ in range(3)]
    with td.disable_jit():
        wanted = values(function(*map(tnp.asarray, given)))
    step = td.jit(function, donate=donate)
    with hard_conditions():
        check_plan(step.lower(*given).plan)
        for _ in range(2):
            own = td.jit(lambda *x: x)(*given)
            same(values(step(*own)), wanted, 1e-3)
