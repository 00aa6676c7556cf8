"""Work along rows of transposed arrays is done where the arrays lie."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import treadle as td
import treadle.numpy as tnp
from tests.core.fuse.evaluate import meant
from tests.core.fuse.lowering.alone import normal
from treadle.backends.cpu.device import CPUTarget
from treadle.check import check
from treadle.compile import stages
from treadle.ir.graph import Graph
from treadle.passes.pipeline import optimise
from treadle.trace.lowering import Reduction

LABELS = np.array([3, 0, 4, 1, 2, 2])


def entropy(np_: Any, x: Any) -> Any:
    """The cross-entropy of each row, of which one element is the label's."""
    shifted = x - x.max(-1, keepdims=True)
    label = LABELS[: x.shape[0], None] == np_.arange(x.shape[1])
    return np_.log(np_.exp(shifted).sum(-1)) - np_.where(label, shifted, 0).sum(-1)


def contrast(np_: Any, x: Any) -> Any:
    return entropy(np_, x).mean() + entropy(np_, x.T * 2).mean()


def norm(np_: Any, x: Any, order: tuple[int, ...]) -> Any:
    """A norm along the last axis of what is transposed, and the order from before."""
    y = x.transpose(order)
    centred = y - y.mean(-1, keepdims=True)
    y = centred / np_.sqrt((centred**2).mean(-1, keepdims=True) + 0.1)
    return y.transpose(tuple(int(i) for i in np.argsort(order)))


CASES = {
    "contrast": (contrast, (6, 5)),
    "norm-021": (lambda np_, x: norm(np_, x, (0, 2, 1)), (3, 4, 5)),
    "norm-0231": (lambda np_, x: norm(np_, x, (0, 2, 3, 1)), (2, 3, 4, 5)),
    "norm-120": (lambda np_, x: norm(np_, x, (1, 2, 0)), (3, 4, 5)),
    "norm-210": (lambda np_, x: norm(np_, x, (2, 1, 0)), (3, 4, 5)),
    "norm-of-one": (lambda np_, x: norm(np_, x, (0, 2, 1)), (3, 1, 5)),
    "down-columns": (lambda np_, x: (x.T * 2).sum(0) + x.T.max(0), (4, 5)),
    "down-some": (lambda np_, x: np_.exp(x.transpose(1, 2, 0)).sum(1), (3, 4, 5)),
    "kept-axes-turn": (lambda np_, x: np_.exp(x.transpose(2, 1, 0)).max(-1), (3, 4, 5)),
    "several-axes": (lambda np_, x: (x.T * 2).sum((0, 2)), (3, 4, 5)),
    "places": (lambda np_, x: np_.argmax(x.T + 1, -1) * x.sum(0), (4, 5)),
    "repeated-rows": (lambda np_, x: (x.T * np_.exp(x[:, 0])).sum(-1), (4, 5)),
    "repeated-places": (
        lambda np_, x: (x.transpose(2, 0, 1) * x[:, :, 0]).sum(-1),
        (4, 3, 5),
    ),
    "two-orders": (
        lambda np_, x: (x.transpose(2, 0, 1) - x.transpose(1, 0, 2)).sum(-1),
        (4, 3, 3),
    ),
    "two-of-an-order": (lambda np_, x: (x.T * np_.sin(x).T).max(-1), (4, 5)),
    "a-product": (lambda np_, x: np_.exp((x @ x.T[:, :3]).T).sum(-1), (4, 5)),
    "two-views-of-a-product": (
        lambda np_, x: (np_.exp(y := (x @ x.T[:, :3])).sum(-1), np_.exp(y.T).sum(-1)),
        (4, 5),
    ),
    "counted": (lambda np_, x: (x.T + np_.arange(4) * 0.5).max(-1), (4, 5)),
    "returned-too": (lambda np_, x: (y := np_.exp(x.T), y.sum(-1)), (4, 5)),
}


def optimised(function: Any, *args: Any) -> Graph:
    graph = td.trace(function)(*args)
    check(stages(graph, CPUTarget()))
    return optimise(graph, CPUTarget())


def along_rows(graph: Graph) -> int:
    """How many reductions are along the last axis."""
    return sum(
        eq.inputs[0].type.ndim - 1 in eq.params.get("axes", ())
        for eq in graph.equations
        if isinstance(eq.op.lowering, Reduction)
    )


@pytest.mark.parametrize("name", CASES)
def test_values(name: str) -> None:
    function, shape = CASES[name]
    x = normal(*shape)
    graph = optimised(lambda x: function(tnp, x), x)
    expected = jax.tree.leaves(function(np, x))
    for found, wanted in zip(meant(graph, [x]), expected, strict=True):
        np.testing.assert_allclose(found, wanted, 1e-4, 1e-5)


@pytest.mark.parametrize("name", ["contrast", "norm-0231"])
def test_gradients(name: str) -> None:
    function, shape = CASES[name]
    x = normal(*shape)

    def total(np_: Any) -> Any:
        return lambda x: np_.cos(function(np_, x)).sum()

    graph = optimised(td.grad(total(tnp)), x)
    expected = jax.jit(jax.grad(total(jnp)))(x)
    np.testing.assert_allclose(meant(graph, [x])[0], expected, 1e-4, 1e-5)
    np.testing.assert_allclose(td.jit(td.grad(total(tnp)))(x), expected, 1e-4, 1e-5)


def test_rows_of_a_transposed_array_are_columns_of_the_array() -> None:
    def function(x: Any) -> Any:
        return norm(tnp, x, (0, 2, 3, 1))

    graph = optimised(function, normal(2, 3, 4, 5))
    assert along_rows(graph) == 0
    moved = [eq.inputs[0] for eq in graph.equations if eq.op.name == "transpose"]
    assert max([a.type.size for a in moved], default=0) < 2 * 3 * 4 * 5


def test_rows_of_what_a_product_writes_transposed_stay_rows() -> None:
    def function(x: Any, w: Any) -> Any:
        return tnp.exp((x @ w).T).sum(-1)

    assert along_rows(optimised(function, normal(4, 5), normal(5, 3))) == 1


def test_rows_with_another_array_in_their_order_stay_rows() -> None:
    def function(x: Any, y: Any) -> Any:
        return tnp.exp(x.T * y).sum(-1)

    assert along_rows(optimised(function, normal(4, 5), normal(5, 4))) == 1


def test_rows_in_loops_are_turned_too() -> None:
    def function(x: Any) -> Any:
        def step(c: Any, _: Any) -> Any:
            return c / (1 + tnp.abs(c.T).sum(-1)), None

        return td.scan(step, x, length=3)[0]

    x = expected = normal(4, 5)
    for _ in range(3):
        expected = expected / (1 + np.abs(expected.T).sum(-1))
    np.testing.assert_allclose(td.jit(function)(x), expected, 1e-5)
    (loop,) = [eq for eq in optimised(function, x).equations if eq.graphs]
    assert [along_rows(graph) for graph in loop.graphs] == [0]
