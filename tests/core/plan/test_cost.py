"""How much kernels and programs have to do, counted by hand."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from typing import Any

import numpy as np
import pytest

import treadle as td
import treadle.numpy as tnp
from tests.core.fuse.graphs import array
from tests.core.plan.build import kernels_of
from treadle import nn
from treadle.fuse.lowering.launches import Launch
from treadle.plan.cost import Cost, count_steps, launch_cost, points, total_cost


def launch(function: object, *args: object) -> Launch:
    _, kernels = kernels_of(function, *args)  # type: ignore[arg-type]
    (entry,) = kernels.entries
    assert isinstance(entry.kernel, Launch)
    return entry.kernel


def cost(function: Callable[..., Any], *args: Any) -> Cost:
    return total_cost(td.jit(function).lower(*args).plan.steps)


X = array(2, 3, 4)


@pytest.mark.parametrize("axes", [(0,), (1,), (2,), (0, 1)])
def test_points(axes: tuple[int, ...]) -> None:
    found = launch(lambda x: tnp.sum(x, axes), X)
    loops = [*found.outer, *found.mid, found.inner]
    assert points(found) == len(list(product(*map(range, loops)))) == 24
    # Each element is added to something.
    assert launch_cost(found)[:2] == (24, 0)


def moved(launch: Launch) -> tuple[int, int]:
    return launch_cost(launch)[2:]


def test_bytes() -> None:
    assert moved(launch(tnp.exp, X)) == (24 * 4, 24 * 4)
    assert moved(launch(lambda x: tnp.sum(x, 2), X)) == (24 * 4, 6 * 4)
    # A row that all read counts once, and a computed index not at all.
    both = launch(lambda x, y: x + y, X, array(4))
    assert moved(both) == ((24 + 4) * 4, 24 * 4)
    assert moved(launch(lambda x: x + tnp.arange(4), X)) == (24 * 4, 24 * 4)
    # A part of an array is what is read of it.
    assert moved(launch(lambda x: tnp.exp(x[:1]), X)) == (12 * 4, 12 * 4)
    doubles = launch(lambda x: tnp.exp(x), array(5, dtype="float64"))
    assert moved(doubles) == (40, 40)


def test_elementwise_counts() -> None:
    # Three numbers a row: what depends on the row alone runs once for each.
    assert cost(lambda x, y: x * y + x, X, X)[:2] == (2 * 24, 0)
    assert cost(lambda x: tnp.exp(x) - tnp.sin(x), X)[:2] == (24, 2 * 24)
    assert cost(lambda x: tnp.maximum(x, 0) / 3, X)[0] == 2 * 24
    assert cost(lambda x: x**5, X)[0] == 3 * 24  # x², x⁴, x⁵
    assert cost(lambda x: tnp.where(x > 0, -x, abs(x)), X) == (0, 0, 96, 96)
    integers = np.arange(24).reshape(2, 3, 4)
    assert cost(lambda x: x * 2 + 1, integers)[:2] == (0, 0)


def test_a_softmax_counts_its_sweeps() -> None:
    rows, n = 5, 7
    found = cost(lambda x: nn.softmax(x, -1), array(rows, n))
    # The maximum, a difference, an exponential, a sum, and a division by it.
    assert found.transcendentals == rows * n
    assert found.flops == 4 * rows * n
    assert (found.read, found.written) == (rows * n * 4, rows * n * 4)


def test_products_and_what_is_behind_them() -> None:
    m, k, n = 32, 48, 64
    x, w, b = array(m, k), array(k, n), array(n)
    assert cost(lambda x, w: x @ w, x, w) == Cost(
        2 * m * k * n, 0, (m * k + k * n) * 4, m * n * 4
    )
    dense = cost(lambda x, w, b: tnp.maximum(x @ w + b, 0), x, w, b)
    assert dense == Cost(
        2 * m * k * n + 2 * m * n, 0, (m * k + k * n + n) * 4, m * n * 4
    )
    batched = cost(lambda x, w: x @ w, array(3, m, k), w)
    assert batched.flops == 3 * 2 * m * k * n
    assert batched.read == (3 * m * k + k * n) * 4


def test_convolutions() -> None:
    image, kernel = array(2, 9, 9, 3), array(3, 3, 3, 8)
    found = cost(
        lambda x, w: td.lax.conv_general_dilated(
            x, w, (1, 1), "VALID", dimension_numbers=("NHWC", "HWIO", "NHWC")
        ),
        image,
        kernel,
    )
    assert found.flops == 2 * 2 * 7 * 7 * 27 * 8


def test_loops_count_each_time() -> None:
    def run(x: Any) -> Any:
        return td.scan(lambda c, row: (tnp.tanh(c * row), None), x[0], x)[0]

    found = cost(run, array(10, 4))
    assert found[:2] == (40, 40)

    def twice(x: Any) -> Any:
        return td.fori_loop(0, 3, lambda i, c: run(c * x), x[0])

    assert cost(twice, array(10, 4)).transcendentals == 3 * 40


def test_whiles_count_once_and_branches_the_most() -> None:
    x = array(6)
    halved = cost(lambda x: td.while_loop(lambda x: x[0] > 1, lambda x: x / 2, x), x)
    assert halved.flops == 6
    chosen = cost(lambda x: td.cond(x[0] > 0, tnp.exp, lambda x: x + 1, x), x)
    assert chosen[:2] == (6, 6)


def test_what_kernels_are_is_listed() -> None:
    def run(x: Any, w: Any) -> Any:
        return td.scan(lambda c, _: (tnp.exp(c @ w), None), x, None, length=4)[0]

    steps = td.jit(run).lower(array(3, 3), array(3, 3)).plan.steps
    found = count_steps(steps)
    total = Cost()
    for one in found:
        total = total.plus(one.cost)
    assert total == total_cost(steps)
    assert {c.times for c in found if c.cost.flops} == {4}
