"""Kernels of equal form are written once: that changes nothing, and saves the rest."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import treadle as td
import treadle.numpy as tnp
from tests.core.fuse.random_rules import generate
from treadle.backends.devices import TARGETS
from treadle.compile import stages
from treadle.fuse import dataflow
from treadle.fuse.grouping.group import group
from treadle.ir.graph import Graph
from treadle.passes.pipeline import optimise
from treadle.show import show

TARGET = TARGETS["cpu"]
RNG = np.random.default_rng(0)


def array(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype(np.float32)


X, Y = array(6, 6), array(6, 6)


class Forgetful(dict):
    """Keeps what it is given, and never says that it has it."""

    def __contains__(self, key: object) -> bool:
        return False


def planned(graph: Graph) -> str:
    return show(stages(graph, TARGET))


def planned_apart(graph: Graph, monkeypatch: Any) -> str:
    """The same with every kernel written for itself."""

    class Memo(dataflow.Memo):
        def __init__(self) -> None:
            super().__init__()
            self.kernels = Forgetful()

    with monkeypatch.context() as m:
        m.setattr(dataflow, "Memo", Memo)
        return planned(graph)


def softmax(m: Any, x: Any, axis: int) -> Any:
    e = m.exp(x - x.max(axis, keepdims=True))
    return e / e.sum(axis, keepdims=True)


PAIRS: dict[str, Callable[[Any, Any, Any], tuple]] = {
    "numbers": lambda m, x, y: (m.exp(x) * 2.5, m.exp(y) * 3.5),
    "structural numbers": lambda m, x, y: (m.exp(x) + 1, m.exp(y) - 1),
    "zeros": lambda m, x, y: (
        m.signbit(m.where(x > 0, 0.0, 1.0)),
        m.signbit(m.where(y > 0, -0.0, 1.0)),
    ),
    "axes": lambda m, x, y: (softmax(m, x, 0), softmax(m, y, 1)),
    "reductions": lambda m, x, y: (m.exp(x).sum(0), m.exp(y).max(0)),
    "steps": lambda m, x, y: (m.exp(x[:, ::2]), m.exp(y[:, :3])),
    "directions": lambda m, x, y: (m.exp(x[::-1]), m.exp(y)),
    "offsets": lambda m, x, y: (x[1:5] - x[:4], y[2:] - y[:4]),
    "transposes": lambda m, x, y: (m.exp(x.T) + x, m.exp(y) + y),
    "broadcasts": lambda m, x, y: (m.exp(x) + x[0], m.exp(y) + y[:, :1]),
    "dtypes": lambda m, x, y: (m.abs(x) + x, m.abs(y.astype("int32")) + 1),
    "conversions": lambda m, x, y: (
        (x * 2).astype("int32"),
        (y * 2).astype("int8"),
    ),
    "operands": lambda m, x, y: (x * x + m.exp(x), x * y + m.exp(x)),
    "order of operands": lambda m, x, y: (m.exp(x) - y, x - m.exp(y)),
    "products": lambda m, x, y: (x @ x.T, x @ y.T),
    "products' sides": lambda m, x, y: (x @ y, x.T @ y),
    "epilogues": lambda m, x, y: (m.maximum(x @ y, 0), m.minimum(y @ x, 0)),
    "epilogues' operands": lambda m, x, y: (x @ y + x, y @ x + x[0]),
    "powers": lambda m, x, y: (x**3, y**4),
    "stored or not": lambda m, x, y: (
        (m.exp(x), m.exp(x).sum(1)),
        m.exp(y).sum(1),
    ),
    "gathers": lambda m, x, y: (
        m.take(x, m.argmax(y, 1), 0),
        m.take(y, m.argmax(x, 0), 1),
    ),
    "which is read again": lambda m, x, y: ((x - y) * x, (y - x) * x),
    "parts": lambda m, x, y: (m.concatenate([m.exp(x), m.sin(y)], 1), m.exp(y)),
    "compared dtypes": lambda m, x, y: (m.argsort(x, 1) > m.argsort(y, 1), x > y),
    "contracted axes": lambda m, x, y: (
        m.einsum("ij,jk->ik", x, y),
        m.einsum("ji,jk->ik", x, y),
    ),
    "terms of products": lambda m, x, y: (
        x[:, :3] @ y[:3],
        x[:, :4] @ y[:4],
    ),
    "offsets of products": lambda m, x, y: (x[:3] @ y, x[3:] @ y),
    "stored orders": lambda m, x, y: (
        m.exp((x @ y).T).sum(1),
        m.exp((y @ x).T).sum(1),
        y @ x,
    ),
    "shapes": lambda m, x, y: (
        m.exp(x.reshape(4, 9)).sum(1),
        m.exp(y.reshape(9, 4)).sum(1),
    ),
}


@pytest.mark.parametrize("name", PAIRS)
def test_what_differs_in_one_thing_is_not_taken_for_each_other(
    name: str, monkeypatch: Any
) -> None:
    def function(x: Any, y: Any) -> Any:
        return PAIRS[name](tnp, x, y)

    graph = td.jit(function).graph(X, Y)
    assert planned(graph) == planned_apart(graph, monkeypatch)
    found = td.tree.leaves(td.jit(function)(X, Y))
    wanted = td.tree.leaves(PAIRS[name](np, X, Y))
    for a, b in zip(found, wanted, strict=True):
        np.testing.assert_allclose(a, b, 1e-5, 1e-5)


def test_sizes_that_vary_are_told_apart() -> None:
    def function(x: Any, y: Any) -> Any:
        return softmax(tnp, x, 1), softmax(tnp, y, 1), x.mean(0), y.mean(0)

    many = td.jit(function, dynamic={"x": ("a", "b"), "y": ("a", "c")})
    for a, b, c in [(3, 4, 5), (4, 4, 4), (2, 9, 1), (5, 1, 7)]:
        x, y = array(a, b), array(a, c)
        found = many(x, y)
        wanted = softmax(np, x, 1), softmax(np, y, 1), x.mean(0), y.mean(0)
        for f, w in zip(found, wanted, strict=True):
            np.testing.assert_allclose(f, w, 1e-5, 1e-6)


@pytest.mark.parametrize("seed", range(500, 530))
def test_random_programs_have_the_kernels_that_each_would_have_alone(
    seed: int, monkeypatch: Any
) -> None:
    program = generate(seed)
    args = program.arguments()
    graph = td.jit(program.function()).graph(*args)
    assert planned(graph) == planned_apart(graph, monkeypatch)
    if program.smooth() and "while_loop" not in program.source():
        graph = td.jit(program.gradient()).graph(*args)
        assert planned(graph) == planned_apart(graph, monkeypatch)


def layers(x: Any, weights: list[Any]) -> Any:
    for w in weights:
        x = x + tnp.tanh(softmax(tnp, x, 1) @ w)
    return (x * x).sum()


def forms(count: int) -> int:
    """How many kernels are written for the gradient of that many layers."""
    weights = [array(6, 6) for _ in range(count)]
    graph = td.jit(td.grad(layers, 1)).graph(X, weights)
    groups = group(optimise(graph, TARGET), TARGET.lowering)
    return len(groups.flow.memo.kernels)


def test_equal_layers_are_written_once() -> None:
    assert forms(4) == forms(12)
