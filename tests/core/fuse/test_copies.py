"""Nests that move data: what they read and write where, followed with NumPy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.lib.stride_tricks import as_strided

import treadle.numpy as tnp
from tests.core.fuse.evaluate import agrees
from tests.core.fuse.graphs import array, equation, program_of, traced
from tests.core.ir.following import numbered
from treadle.arraytype import ArrayType
from treadle.fuse.lowering.copies import (
    Piece,
    begun,
    copy_launch,
    filled,
    scatter_launch,
)
from treadle.fuse.lowering.launches import Binding, Copy, Launch
from treadle.ir.graph import Lit, Var
from treadle.kernels.nest import PAIRED, STRIDED
from treadle.ops.dynamic import dynamic_update_slice


def seen(launch: Launch, k: int, memory: np.ndarray) -> np.ndarray:
    """The elements of a flat array that an operand steps over."""
    b, operand = launch.bindings[k], launch.nest.operands[k]
    steps = list(b.strides)
    if operand.inner != STRIDED:
        steps.append(operand.inner)
    shape = (*launch.outer, *launch.mid, launch.inner)
    strides = [s * memory.itemsize for s in steps]
    return as_strided(memory[b.offset :], shape, strides)


def copied(view: Callable[[Any], Any], *shape: int) -> np.ndarray:
    """What a copy of a view, into an array with room around it, has written."""
    graph = traced(view, array(*shape))
    a, target = graph.outputs[0], Var(graph.outputs[0].type)
    steps = [2 * s // 4 for s in array(*a.type.shape).strides]
    launch = copy_launch([Piece(a, 3, (*steps,))], target, program_of(graph))
    assert launch is not None
    assert [i.name for i in launch.nest.body] == ["load", "store"]
    assert [b.atom for b in launch.bindings] == [graph.inputs[0], target]
    assert [b.store for b in launch.bindings] == [False, True]
    # Memory is written from its beginning to its end.
    assert sorted(launch.bindings[1].strides)[::-1] == [*launch.bindings[1].strides]
    memory = np.full(2 * a.type.size + 3, -1)
    seen(launch, 1, memory)[...] = seen(launch, 0, numbered(shape).ravel())
    assert (memory[:3] == -1).all()
    assert (memory[4::2] == -1).all()
    return memory[3::2].reshape(a.type.shape)


@pytest.mark.parametrize(
    "view",
    [
        lambda x: x,
        lambda x: x.reshape(24),
        lambda x: x.transpose(2, 0, 1),
        lambda x: x.transpose(2, 0, 1).reshape(8, 3),
        lambda x: x[1:, ::2, ::-1],
        lambda x: x[:, None].transpose(0, 3, 2, 1),
        lambda x: x.reshape(6, 4).transpose(1, 0),
        lambda x: x[:, ::-1].transpose(1, 0, 2).reshape(3, 2, 2, 2),
    ],
)
def test_a_copy_has_the_view_s_elements(view: Callable[[Any], Any]) -> None:
    assert np.array_equal(copied(view, 2, 3, 4), view(numbered((2, 3, 4))))


def test_a_broadcast_is_read_again_and_again() -> None:
    found = copied(lambda x: tnp.broadcast_to(x[:, None], (3, 2, 4)), 3, 4)
    assert np.array_equal(found, np.broadcast_to(numbered((3, 4))[:, None], (3, 2, 4)))


def test_views_that_no_loops_step_over_are_not_copied() -> None:
    graph = traced(lambda x: tnp.reshape(x[:, 1:], (3, 4)), array(2, 7))
    a = graph.outputs[0]
    assert copy_launch([Piece(a, 0, (4, 1))], Var(a.type), program_of(graph)) is None


def scattered(
    function: Callable[..., Any], name: str, *args: np.ndarray
) -> tuple[Launch, Binding, tuple[Var, ...]]:
    """The nest of a scatter, what it writes, and the arguments."""
    graph = traced(function, *args)
    launch = scatter_launch(equation(graph, name), program_of(graph))
    assert launch is not None
    (result,) = [b for b in launch.bindings if b.store]
    assert result.atom is graph.outputs[0]
    return launch, result, tuple(graph.inputs)


ROWS = array(2, dtype="int32")
UPDATES = array(2, 3)


@pytest.mark.parametrize(
    ("function", "op", "store"),
    [
        (lambda x, i, u: x.at[i].set(u), "scatter_set", "store"),
        (lambda x, i, u: x.at[i].add(u), "scatter_add", "store_add"),
        (lambda x, i, u: x.at[i].max(u), "scatter_max", "store_max"),
    ],
)
def test_rows_are_scattered_one_after_the_other(
    function: Callable[..., Any], op: str, store: str
) -> None:
    launch, result, _ = scattered(function, op, array(4, 3), ROWS, UPDATES)
    assert launch.nest.serial
    assert (launch.outer, launch.mid, launch.inner) == ((2,), (), 3)
    last = launch.nest.body[-1]
    assert last.name == store
    assert len(last.args) == 2
    # The updates' row says nothing of the place; the index steps over rows.
    assert result.strides == (0, 3)
    assert result.offset == 0
    assert launch.nest.operands[-1].gathers == 1


def test_a_slice_has_no_place_twice() -> None:
    launch, result, _ = scattered(
        lambda x, i, u: dynamic_update_slice(x, u, i[0], i[1]),
        "dynamic_update_slice",
        array(4, 3),
        ROWS,
        UPDATES[:, :2],
    )
    assert not launch.nest.serial
    assert (launch.outer, launch.inner, result.strides) == ((2,), 2, (3, 3, 1))


def test_updates_and_indices_are_seen_through_their_views() -> None:
    def turned(x: Any, i: Any, u: Any) -> Any:
        return x.at[i[::-1]].set(tnp.transpose(u))

    launch, _, args = scattered(turned, "scatter_set", array(4, 3), ROWS, array(3, 2))
    (updates,) = [b for b in launch.bindings if b.atom is args[2]]
    assert (updates.offset, updates.strides) == (0, (1,))
    assert PAIRED in [o.inner for o in launch.nest.operands]


def test_rows_of_several_axes_are_scattered_along_the_last() -> None:
    launch, result, _ = scattered(
        lambda x, i, u: x.at[i].set(tnp.transpose(u, (0, 2, 1))),
        "scatter_set",
        array(4, 3, 5),
        ROWS,
        array(2, 5, 3),
    )
    assert (launch.outer, launch.inner) == ((2, 3), 5)
    assert result.strides == (0, 5, 15)


def test_updates_that_no_loops_step_over_must_be_copied() -> None:
    def broken(x: Any, i: Any, u: Any) -> Any:
        return x.at[i].set(tnp.reshape(u[:, 1:], (2, 3)))

    graph = traced(broken, array(4, 3), ROWS, array(3, 3))
    eq = equation(graph, "scatter_set")
    assert scatter_launch(eq, program_of(graph)) is None


def number(value: float) -> Lit:
    return Lit(np.float32(value), ArrayType((), np.dtype(np.float32)))


def test_what_begins_as_a_constant() -> None:
    graph = traced(lambda x: x, array(2, 3))
    flow, (x,) = program_of(graph), graph.inputs
    assert filled(number(0.0), x, flow) == Copy(None, x)
    ones = begun(number(1.0), x, flow)
    assert isinstance(ones, Launch)
    memory = np.zeros(6, np.float32)
    seen(ones, -1, memory)[...] = 1
    assert memory.all()
    rows = Lit(np.arange(6, dtype=np.float32).reshape(2, 3), x.type)
    whole = begun(rows, x, flow)
    assert isinstance(whole, Launch)
    assert [b.atom for b in whole.bindings] == [rows, x]


I, J = np.int32([3, -1, 0, 9]), np.int32([2, 1, -7, 0])  # noqa: E741
F = np.linspace(-2, 3, 20, dtype=np.float32)


@pytest.mark.parametrize("how", ["set", "add", "multiply", "max"])
@pytest.mark.parametrize(
    ("places", "shape"),
    [
        (lambda x, i, j: x.at[i], (4, 5)),
        (lambda x, i, j: x.at[i, j], (4,)),
        (lambda x, i, j: x.at[:, i], (4, 4)),
        (lambda x, i, j: x.at[j, i], (4,)),
        (lambda x, i, j: x.T.at[i], (4, 4)),
    ],
)
def test_places_outside(places: Any, shape: Any, how: str) -> None:
    def function(x: Any, u: Any, i: Any, j: Any) -> Any:
        return getattr(places(x, i, j), how)(u)

    agrees(function, F.reshape(4, 5), F[::-1][: np.prod(shape)].reshape(shape), I, J)
