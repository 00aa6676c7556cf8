"""Which clusters run behind a product, block by block, and what they then give."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import treadle.numpy as tnp
from tests.core.fuse.evaluate import Memory, agrees, meant
from tests.core.fuse.graphs import equation, grouped, program_of, traced
from tests.core.fuse.lowering.alone import normal
from tests.core.fuse.lowering.test_convolutions import DEFAULT
from treadle.fuse.cluster import Cluster, join, start
from treadle.fuse.lowering import products
from treadle.fuse.lowering.launches import ProductKernel
from treadle.fuse.lowering.products import product_with_epilogue
from treadle.ir.graph import Graph
from treadle.ops.conv import conv_general
from treadle.trace.lowering import View

X, W = normal(3, 4), normal(4, 5)


def fused(
    function: Callable[..., Any], *args: Any
) -> tuple[Graph, ProductKernel | None]:
    """A product with all that comes after it as one cluster."""
    graph = traced(function, *args)
    flow = program_of(graph)
    eqs = [
        e
        for e in graph.equations
        if not isinstance(e.op.lowering, View) and e.outputs[0] not in flow.inline
    ]
    (eq,) = [e for e in eqs if e.op.name in ("dot_general", "conv_general")]
    after = eqs[eqs.index(eq) + 1 :]
    cluster = Cluster(0, flow)
    assert start(cluster, after[0], flow)
    assert all(join(cluster, e, flow) for e in after[1:])
    stored = {flow.resolve(a)[0] for a in graph.outputs} - {eq.outputs[0]}
    return graph, product_with_epilogue(eq, flow, cluster, stored)  # type: ignore[arg-type]


def fits(function: Callable[..., Any], *args: Any) -> bool:
    """Whether there is a kernel; if so, it gives what the function means."""
    graph, found = fused(function, *args)
    if found is None:
        return False
    memory = Memory()
    for v, x in zip(graph.inputs, args, strict=True):
        memory.put(v, x)
    memory.product(found)
    for a, wanted in zip(graph.outputs, meant(graph, args), strict=True):
        np.testing.assert_allclose(
            memory.get(a).reshape(wanted.shape), wanted, rtol=1e-4, atol=1e-4
        )
    return True


BIAS, ROW, WHOLE = normal(5), normal(3, 1), normal(3, 5)


@pytest.mark.parametrize(
    ("epilogue", "given"),
    [
        (lambda y: tnp.maximum(y, 0.0), ()),
        (lambda y, b: y + b, (BIAS,)),
        (lambda y, b: y * b, (ROW,)),
        (lambda y, r: tnp.maximum(y + r, 0.0) - r, (WHOLE,)),
        (lambda y, r: y - tnp.transpose(r), (normal(5, 3),)),
        (lambda y: (lambda z: (z, z + 1.0))(y * 2.0), ()),
        (lambda y: y > 0.5, ()),
    ],
)
def test_light_elementwise_work_fits(epilogue: Any, given: tuple[Any, ...]) -> None:
    assert fits(lambda x, w, *more: epilogue(x @ w, *more), X, W, *given)


def test_batches_and_convolutions_have_epilogues() -> None:
    assert fits(lambda x, w: x @ w + 1.0, normal(2, 3, 4), normal(2, 4, 5))
    how = {**DEFAULT, "padding": ((1, 1), (0, 0)), "feature_groups": 1}
    conv = lambda x, w, b: conv_general(x, w, **how) * 2.0 + b  # noqa: E731
    assert fits(conv, normal(2, 5, 6, 4), normal(3, 2, 4, 6), normal(6))
    # Every image has rows of its own in b.
    assert fits(conv, normal(2, 5, 6, 4), normal(3, 2, 4, 6), normal(2, 1, 1, 6))
    # Lines and columns of pixels are one loop.
    assert not fits(conv, normal(2, 5, 6, 4), normal(3, 2, 4, 6), normal(5, 1, 6))


@pytest.mark.parametrize(
    "epilogue",
    [
        lambda y: tnp.sum(y, 1),  # reductions
        lambda y: tnp.sum(y * 2.0, 0),
        lambda y: tnp.tanh(tnp.exp(tnp.sin(y))),  # dear
        lambda y: y[1:] * 2.0,  # a part of it
        lambda y: y[:, :3] * 2.0,
        lambda y: y[:, :1] * tnp.ones((3, 5)),
        lambda y: y[:, :1] * tnp.arange(15.0).reshape(3, 5),
        lambda y: y[:, ::-1] + y,  # seen in two ways
        lambda y: y[::-1] * 2.0,
        lambda y: tnp.broadcast_to(y, (2, 3, 5)) * 2.0,  # more points
    ],
)
def test_what_does_not_fit(epilogue: Any) -> None:
    assert not fits(lambda x, w: epilogue(x @ w), X, W)


def test_reads_at_computed_places_do_not_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(products, "_MAX_COST", 1000)
    index = np.zeros((3, 5), np.int32)

    def picked(x: Any, w: Any, t: Any, i: Any) -> Any:
        return (t[i] + (x @ w)) * 1.5

    graph = traced(picked, X, W, normal(7), index)
    flow = program_of(graph)
    cluster = Cluster(0, flow)
    gather = equation(graph, "gather")
    assert start(cluster, gather, flow)
    for name in ("add", "mul"):
        eqs = [e for e in graph.equations if e.op.name == name]
        eq = next(e for e in eqs if e.outputs[0].type.dtype == np.float32)
        assert join(cluster, eq, flow)
    dot = equation(graph, "dot_general")
    assert product_with_epilogue(dot, flow, cluster, {eq.outputs[0]}) is None


def test_few_arrays_are_streamed_beside_a_block() -> None:
    def many(count: int) -> Any:
        return lambda x, w, *more: sum(more[:count], x @ w)

    arrays = [normal(3, 5, seed=i) for i in range(4)]
    assert fits(many(2), X, W, *arrays)
    assert not fits(many(3), X, W, *arrays)
    assert not fits(many(4), X, W, *arrays)
    # What is the same for all rows is no stream.
    assert fits(many(4), X, W, *[normal(5, seed=i) for i in range(4)])


def test_the_product_in_another_shape_is_complete_at_the_end_only() -> None:
    def shaped(x: Any, w: Any) -> Any:
        y = x @ w
        return y * 2.0 + tnp.reshape(tnp.reshape(y, (5, 3)).T, (3, 5))

    part = grouped(shaped, X, W)
    clusters = [n for n in part.nodes if isinstance(n, Cluster)]
    assert clusters
    assert all(n.product is None for n in clusters)


def test_a_copy_of_a_view_is_an_epilogue() -> None:
    groups = agrees(lambda x, w: (lambda y: (y, y.T))(x @ w), X, W)
    assert len(groups.nodes) == 1


def test_a_product_that_is_a_number_for_all_does_not_fit() -> None:
    assert not fits(lambda x, w, r: x @ w + r, X[0], W[:, 0], normal(3))


@pytest.mark.parametrize("turned", [False, True])
def test_a_single_column_is_a_row(turned: bool) -> None:
    """Of several, each would be read with one of the lanes of a vector."""
    x = normal(7, 40) if turned else normal(40, 7)

    def one_column(x: Any, c: Any) -> Any:
        return tnp.sin((x.T if turned else x) @ c)

    _, kernel = fused(one_column, x, normal(7, 1))
    assert kernel is not None
    assert (kernel.contraction.m, kernel.contraction.n) == (1, 40)
    assert fits(one_column, x, normal(7, 1))
