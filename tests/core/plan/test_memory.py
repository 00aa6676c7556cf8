"""The arena: no live value is overwritten, and it is small."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import treadle as td
import treadle.numpy as tnp
from tests.core.fuse.random_rules import generate
from treadle.plan.liveness import check_plan
from treadle.plan.steps import Plan


def plan_of(function: Callable[..., Any], *args: Any, **options: Any) -> Plan:
    return td.jit(function, **options).lower(*args).plan


def mlp(x: Any, weights: list[Any]) -> Any:
    for w in weights:
        x = tnp.tanh(x @ w)
    return x


@pytest.mark.parametrize("seed", range(0, 90))
def test_random_programs_keep_what_they_need(seed: int) -> None:
    program = generate(seed)
    check_plan(plan_of(program.function(), *program.arguments()))


@pytest.mark.parametrize("seed", range(120, 150))
def test_random_programs_may_write_over_all_their_arguments(seed: int) -> None:
    program = generate(seed)
    donate = tuple(range(len(program.inputs)))
    step = td.jit(program.function(), donate=donate)
    check_plan(step.lower(*program.arguments()).plan)


@pytest.mark.parametrize("seed", range(90, 120))
def test_gradients_of_random_programs_keep_what_they_need(seed: int) -> None:
    program = generate(seed, ("float32",), 6, loops=False)
    check_plan(plan_of(program.gradient(), *program.arguments()))


def test_scan_gradient_and_nested_loops_keep_what_they_need() -> None:
    def loss(w: Any, xs: Any) -> Any:
        def step(c: Any, x: Any) -> Any:
            inner = td.fori_loop(0, 3, lambda i, z: tnp.tanh(z @ w) + x, c)
            return inner, tnp.sum(inner)

        carry, ys = td.scan(step, tnp.zeros(8), xs)
        return tnp.sum(carry) + tnp.sum(ys)

    w, xs = tnp.ones((8, 8)) * 0.1, tnp.ones((5, 8))
    check_plan(plan_of(td.grad(loss), w, xs))


def test_an_mlp_needs_far_less_memory_than_its_values() -> None:
    x, weights = tnp.ones((512, 256)), [tnp.ones((256, 256))] * 10
    plan = plan_of(mlp, x, weights)
    check_plan(plan)
    assert plan.arena < 4 * 512 * 256 * 4


def test_donated_arguments_are_read_before_they_are_overwritten() -> None:
    def update(p: Any, m: Any, g: Any) -> Any:
        m = m * 0.9 + g
        return p - 0.1 * m, m, tnp.sum(p)

    args = tnp.ones(1000), tnp.ones(1000), tnp.ones(1000)
    plan = plan_of(update, *args, donate=("p", "m"))
    assert plan.shares
    check_plan(plan)
    assert plan.arena < 1000 * 4


def test_the_checker_sees_an_overlap() -> None:
    def two(x: Any) -> Any:
        a = td.numpy.cumsum(x, axis=0)
        b = td.numpy.cumsum(a, axis=1)
        return td.numpy.cumsum(a - 1, axis=0) + b

    plan = plan_of(two, tnp.asarray(np.ones((64, 64), np.float32)))
    check_plan(plan)
    for b in plan.buffers:
        b.offset = 0
    with pytest.raises(AssertionError):
        check_plan(plan)
