"""`jit(memory_limit=)`: temporaries fit, and results are those without a limit."""

from typing import Any

import numpy as np
import pytest

import treadle as td
import treadle.numpy as tnp
from treadle import fitting
from treadle.plan import budget
from treadle.plan.cost import total_cost
from treadle.plan.liveness import check_plan

LAYERS, WIDTH = 6, 64


def loss(weights: Any, x: Any) -> Any:
    for w in weights:
        x = x + tnp.tanh(tnp.exp(-((x @ w) ** 2)) @ w.T)
    return (x * x).sum()


def arguments(rows: int = 200) -> tuple[Any, Any]:
    rng = np.random.default_rng(0)
    weights = [rng.normal(0, 0.1, (WIDTH, WIDTH)) for _ in range(LAYERS)]
    return [tnp.asarray(w, np.float32) for w in weights], tnp.asarray(
        rng.normal(size=(rows, WIDTH)), np.float32
    )


def temporaries(f: Any, *args: Any) -> int:
    return f.lower(*args).memory_analysis().temporaries


def assert_same(got: Any, expected: Any) -> None:
    for a, b in zip(td.tree.leaves(got), td.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(a, b, rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize("fraction", [0.8, 0.55])
def test_fits(fraction: float) -> None:
    args = arguments()
    free = td.jit(td.value_and_grad(loss))
    limit = int(fraction * temporaries(free, *args))
    bound = td.jit(td.value_and_grad(loss), memory_limit=limit)
    assert temporaries(bound, *args) <= limit
    plans = [f.lower(*args).plan for f in (free, bound)]
    check_plan(plans[1])
    flops = [total_cost(plan.steps).flops for plan in plans]
    assert flops[0] <= flops[1] < 1.25 * flops[0]
    assert_same(bound(*args), free(*args))


def test_equal_programs_give_up_equal_values() -> None:
    args = arguments()
    limit = int(0.6 * temporaries(td.jit(td.grad(loss)), *args))
    texts = {
        td.jit(td.grad(lambda *a: loss(*a)), memory_limit=limit).lower(*args).as_text()
        for _ in range(3)
    }
    assert len(texts) == 1


def test_of_the_orders_the_cheapest_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    args = arguments()
    limit = int(0.55 * temporaries(td.jit(td.grad(loss)), *args))

    def flops() -> int:
        plan = td.jit(td.grad(loss), memory_limit=limit).lower(*args).plan
        return total_cost(plan.steps).flops

    chosen, alone = flops(), []
    for order in budget.ORDERS:
        monkeypatch.setattr(fitting, "ORDERS", (order,))
        alone.append(flops())
    assert chosen == min(alone) < max(alone)


def test_enough_changes_nothing() -> None:
    args = arguments()
    free = td.jit(td.grad(loss))
    limit = temporaries(free, *args)
    bound = td.jit(td.grad(loss), memory_limit=limit)
    assert bound.lower(*args).as_text() == free.lower(*args).as_text()


def test_too_little_says_by_how_much() -> None:
    f = td.jit(td.grad(loss), memory_limit=1000)
    with pytest.raises(MemoryError) as info:
        f(*arguments())
    for part in ("memory_limit=1 KB", "too much", "f32[200,64]", "test_memory_limit"):
        assert part in str(info.value)


@pytest.mark.parametrize("wrong", [0, -1, 1.5, "1 GB"])
def test_misuse(wrong: Any) -> None:
    with pytest.raises(ValueError, match="memory_limit="):
        td.jit(loss, memory_limit=wrong)


def test_open_sizes() -> None:
    weights, x = arguments()
    free = td.jit(td.grad(loss))
    limit = int(0.7 * temporaries(free, weights, x))
    f = td.jit(td.grad(loss), memory_limit=limit, dynamic={"x": ("rows", None)})
    assert_same(f(weights, x), free(weights, x))
    assert_same(f(weights, x[:50]), free(weights, x[:50]))
    more = arguments(600)
    with pytest.warns(UserWarning, match="more than memory_limit="):
        got = f(*more)
    assert_same(got, free(*more))
    assert len(f.report().programs) == 1


def test_values_of_loops_and_barriers() -> None:
    def g(weights: Any, x: Any) -> Any:
        def body(c: Any, w: Any) -> Any:
            c = td.remat(lambda c: tnp.sin(c @ w) + c)(c)
            return c, (c * c).sum()

        stacked = tnp.stack(weights)
        c, sums = td.scan(body, x, stacked)
        return loss(weights, td.remat(tnp.cos)(c)) + sums.sum()

    args = arguments()
    free = td.jit(td.grad(g))
    limit = int(0.85 * temporaries(free, *args))
    bound = td.jit(td.grad(g), memory_limit=limit)
    assert temporaries(bound, *args) <= limit
    assert_same(bound(*args), free(*args))
