"""Which axes of length 1 every size of the arguments leaves at 1."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import treadle as td
import treadle.numpy as tnp
from tests.core.fuse.graphs import array, traced
from tests.core.passes.shown import opened
from treadle.arraytype import ArrayType
from treadle.ir.graph import Lit, Var
from treadle.passes.units import Units, last_axis

X, V, W = array(1, 3), array(1), array(1, 3, 1)
I = array(1, dtype=np.int32)  # noqa: E741
CASES: dict[str, tuple[Callable[..., Any], tuple[np.ndarray, ...], set[int]]] = {
    "an argument": (lambda x: x, (X,), set()),
    "keepdims": (lambda x: x.sum(1, keepdims=True), (X,), {1}),
    "a new axis": (lambda x: x[:, None], (X,), {1}),
    # One that was given comes first: all kernels are the same.
    "a new axis in front": (lambda x: x[None] + 1, (X,), {1}),
    "taken away again": (lambda x: x[:, None].reshape(1, 3), (X,), set()),
    "both elementwise": (lambda x, y: x[None] * y[None], (X, X), {1}),
    "of one elementwise": (lambda x, y: x[None] * y, (X, W.reshape(1, 1, 3)), set()),
    "beside a number": (lambda x: tnp.exp(x[:, None] * 2), (X,), {1}),
    "a kept axis": (lambda x: x[:, None].sum(2), (X,), {1}),
    "a summed axis": (lambda x: x[:, None].sum(1), (X,), set()),
    "a place along an axis": (lambda x: tnp.argmax(x[:, None], 2), (X,), {1}),
    "transposed": (lambda x: x[:, None].transpose(1, 2, 0), (X,), {0}),
    "a slice": (lambda x: x[:, 1:2], (X,), {1}),
    "a whole slice": (lambda x: x[:, 1:], (X,), set()),
    "a window": (
        lambda x, i: td.lax.dynamic_slice(x, (0, i[0]), (1, 1)),
        (X, I),
        {1},
    ),
    "repeated": (
        lambda x: tnp.broadcast_to(x, (1, 4, 3))[:, :1],
        (X.reshape(1, 1, 3),),
        {1},
    ),
    "spread out": (lambda x: tnp.broadcast_to(x[:, None], (1, 1, 3)), (X,), {1}),
    "of one number": (lambda x: tnp.broadcast_to(x[0], (1, 3)), (V,), set()),
    "reversed": (lambda x: x[:, None, ::-1], (X,), {1}),
    "summed up": (lambda x: tnp.cumsum(x[:, None], 2), (X,), {1}),
    "sorted": (lambda x: tnp.sort(x[:, None], 2), (X,), {1}),
    "gathered at new places": (lambda x, i: x[:, i[:, None]], (array(4, 3), I), {2}),
    "gathered rows": (lambda x, i: tnp.take(x[:, None], i, 0), (X, I), {1}),
    "gathered windows": (
        lambda x, i: x[i],
        (array(4, 1), I),
        set(),
    ),
    "a product's rows": (lambda x, y: x[:, None] @ y, (X, array(3, 1)), {1}),
    "a product's columns": (lambda x, y: x @ y[:, :1], (X, array(3, 4)), {1}),
    "a batch of products": (
        lambda x, y: x[:, None] @ y[:, :, None],
        (X, X),
        {1, 2},
    ),
    "concatenated": (
        lambda x: tnp.concatenate([x[:, None], x[:, None]], 2),
        (X,),
        set(),
    ),
}


def found(function: Callable[..., Any], *args: np.ndarray) -> tuple[Units, Any]:
    graph = traced(function, *args)
    return Units(graph.equations), graph.outputs[0]


@pytest.mark.parametrize("name", CASES)
def test_axes_that_are_one_for_all_sizes(name: str) -> None:
    function, args, wanted = CASES[name]
    units, out = found(function, *args)
    assert units.absent(out) == wanted
    assert units.present(out) == [i for i in range(out.type.ndim) if i not in wanted]


def test_an_array_in_the_program_keeps_its_shape() -> None:
    t = ArrayType((1, 3, 1), np.dtype("float32"))
    assert Units().absent(Lit(np.zeros(t.shape, t.dtype), t)) == {0, 2}
    assert Units().absent(Var(t)) == frozenset()
    assert Units().absent(Var(ArrayType((2,), t.dtype))) == frozenset()


def test_axes_of_a_reshape_are_paired_in_order() -> None:
    graph = traced(lambda x: x[:, :, None].reshape(1, 3, 1, 1), X[:, :, None])
    units, (x,), out = Units(graph.equations), graph.inputs, graph.outputs[0]
    assert units.absent(out) == {3}
    assert units.paired(x, out) == {0: 0, 2: 2}
    assert units.paired(out, x) == {0: 0, 2: 2}
    other = Var(ArrayType((3,), np.dtype("float32")))
    assert units.paired(x, other) == units.paired(other, x) == {}


def test_the_last_axis_of_several_elements() -> None:
    def last(*shape: int, reduced: tuple[int, ...] = ()) -> int:
        return last_axis(Var(ArrayType(shape, np.dtype("float32"))), Units(), reduced)

    assert last(2, 3) == 1
    assert last(2, 1) == 0
    assert last(1, 1) == 1
    assert last() == -1
    units, out = found(lambda x: x[:, :, None], X)
    assert last_axis(out, units, ()) == 1
    # One that is there for all sizes is none.
    units, out = found(lambda x: x[:, None], V)
    assert last_axis(out, units, ()) == 0
    # An open length that is summed over is as if it were longer.
    for size in (1, 2):
        graph, scope = opened(lambda x: x * 2, (2, "m"), m=size)
        (v,) = graph.outputs
        assert last_axis(v, Units(), {1}) == 1
        assert not scope.guards
        assert last_axis(v, Units(), {0}) == (size > 1)
        assert scope.guards
