"""remat: the same derivatives, fewer things remembered."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import treadle as td
import treadle.numpy as tnp
from tests.core.control.both import PROPERTIES, array, check, close
from treadle.ir.check import check as check_graph
from treadle.ir.graph import Graph


def mlp(lib: Any) -> Any:
    def layer(w: Any, x: Any) -> Any:
        return lib.np.tanh(lib.np.sin(x @ w) @ w)

    return lambda w, x: lib.remat(layer)(w, lib.remat(layer)(w, x))


def in_scan(lib: Any) -> Any:
    @lib.remat
    def block(w: Any, h: Any) -> Any:
        return lib.np.exp(-(lib.np.sin(h @ w) ** 2))

    def run(h: Any, ws: Any) -> Any:
        return lib.scan(lambda h, w: (block(w, h), None), h, ws)[0]

    return run


def around_scan(lib: Any) -> Any:
    @lib.remat
    def run(x: Any, ys: Any) -> Any:
        return lib.scan(lambda c, y: (lib.np.sin(c * y), c), x, ys)

    return run


CASES: dict[str, tuple[Any, list[np.ndarray]]] = {
    "mlp": (mlp, [array(3, 3), array(2, 3)]),
    "in scan": (in_scan, [array(2, 3), array(4, 3, 3)]),
    "around scan": (around_scan, [array(), array(4)]),
}


@pytest.mark.parametrize("name", PROPERTIES)
@pytest.mark.parametrize("case", CASES)
def test_agrees(case: str, name: str) -> None:
    build, args = CASES[case]
    check(build, args, name)


def residual_bytes(function: Any, *args: Any) -> int:
    """What the backward pass of a function remembers, its arguments apart."""
    _, pullback = td.vjp(function, *args)
    given = {id(a) for a in args}
    kept = [r for r in td.tree.leaves(pullback) if id(r) not in given]
    return sum(np.asarray(r).nbytes for r in kept)


def chain(w: Any, x: Any) -> Any:
    return tnp.sum(tnp.sin(tnp.exp(tnp.tanh(x @ w)) @ w))


@pytest.mark.parametrize(
    ("policy", "arrays"),
    [
        (None, 0),
        (td.nothing_saveable, 0),
        (td.dots_saveable, 2),
        (td.everything_saveable, None),
    ],
)
def test_policies(policy: Any, arrays: int | None) -> None:
    w, x = tnp.array(array(4, 4)), tnp.array(array(8, 4))
    kept = residual_bytes(td.remat(chain, policy=policy), w, x)
    plain = residual_bytes(chain, w, x)
    wanted = plain if arrays is None else arrays * x.nbytes
    assert kept <= wanted
    close(td.grad(td.remat(chain, policy=policy))(w, x), td.grad(chain)(w, x))


def test_own_policy() -> None:
    asked = set()

    def policy(op: Any, *types: Any, **params: Any) -> bool:
        asked.add(op.name)
        return op.name == "exp"

    w, x = tnp.array(array(4, 4)), tnp.array(array(8, 4))
    assert residual_bytes(td.remat(chain, policy=policy), w, x) == x.nbytes
    assert {"tanh", "dot_general"} <= asked


def count(graph: Graph, op: str) -> int:
    inner = [
        g for eq in graph.equations for g in eq.params.values() if isinstance(g, Graph)
    ]
    return sum(eq.op.name == op for eq in graph.equations) + sum(
        count(g, op) for g in inner
    )


def test_computed_again_behind_a_barrier() -> None:
    w, x = array(4, 4), array(8, 4)
    graph = td.trace(td.grad(td.remat(chain)))(w, x)
    check_graph(graph)
    plain = td.trace(td.grad(chain))(w, x)
    assert count(graph, "optimization_barrier") == 1
    assert count(graph, "tanh") == 2 * count(plain, "tanh")


def test_scan_of_remat_stores_the_carry_only() -> None:
    from tests.core.control.both import TREADLE

    build, args = CASES["in scan"]
    graph = td.trace(td.grad(lambda h, ws: tnp.sum(build(TREADLE)(h, ws))))(*args)
    forward = next(eq for eq in graph.equations if eq.op.name == "scan")
    stored = sum(v.type.nbytes for v in forward.outputs[1:])
    assert stored == 4 * args[0].nbytes


def test_flags_and_functions_pass_through() -> None:
    @td.remat
    def f(function: Any, x: Any, double: bool = False) -> Any:
        return function(x) * 2 if double else function(x)

    close(td.grad(lambda x: f(tnp.sin, x, double=True))(0.0), np.float32(2))


def test_decorator_with_policy() -> None:
    @td.remat(policy=td.dots_saveable)
    def f(x: Any) -> Any:
        return tnp.sin(x)

    close(td.grad(f)(0.0), np.float32(1))
