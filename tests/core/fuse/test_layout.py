"""How values lie in memory, and what the axes of views step over."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import treadle.numpy as tnp
from tests.core.fuse.graphs import array, equation, program_of, traced
from treadle.fuse.layout import (
    axis_strides,
    joined,
    operand_strides,
    row_major,
    stored_strides,
)
from treadle.trace.lowering import Join


@pytest.mark.parametrize("shape", [(), (5,), (2, 3, 4), (3, 1, 2)])
def test_row_major(shape: tuple[int, ...]) -> None:
    assert row_major(shape) == tuple(n // 8 for n in np.zeros(shape).strides)


VIEWS: dict[str, tuple[Any, int, tuple[int, ...]]] = {
    "itself": (lambda x: x, 0, (12, 4, 1)),
    "transposed": (lambda x: tnp.transpose(x, (2, 0, 1)), 0, (1, 12, 4)),
    "reversed": (lambda x: x[:, ::-1], 8, (12, -4, 1)),
    "sliced": (lambda x: x[:, 1:, ::2], 4, (12, 4, 2)),
    "cut to one element": (lambda x: x[1:], 12, (0, 4, 1)),
    "new axes": (lambda x: x[None, :, None], 0, (0, 12, 0, 4, 1)),
    "cut": (lambda x: tnp.reshape(x, (2, 3, 2, 2)), 0, (12, 4, 2, 1)),
    "broadcast": (lambda x: tnp.broadcast_to(x, (5, 2, 3, 4)), 0, (0, 12, 4, 1)),
}


@pytest.mark.parametrize("name", VIEWS)
def test_axis_strides(name: str) -> None:
    view, offset, steps = VIEWS[name]
    graph = traced(view, array(2, 3, 4))
    found = axis_strides(graph.outputs[0], program_of(graph))
    assert found == (graph.inputs[0], offset, steps)


def test_axes_that_are_no_single_steps_have_none() -> None:
    def turned(x: Any, y: Any) -> Any:
        return tnp.reshape(tnp.transpose(x), (6,)) @ y

    graph = traced(turned, array(2, 3), array(6))
    flow, product = program_of(graph), equation(graph, "dot_general")
    assert axis_strides(product.inputs[0], flow) is None
    assert axis_strides(product.inputs[1], flow) == (graph.inputs[1], 0, (1,))
    assert operand_strides(product, flow) is None


def test_operands_come_in_their_order() -> None:
    graph = traced(lambda x, y: x @ tnp.transpose(y), array(2, 3), array(4, 3))
    product = equation(graph, "dot_general")
    found = operand_strides(product, program_of(graph))
    assert found is not None
    assert [s.source for s in found] == list(graph.inputs)
    assert [s.steps for s in found] == [
        (3, 1),
        tuple({4: 3, 3: 1}[n] for n in product.inputs[1].type.shape),
    ]


def stored(read: Any) -> tuple[int, ...]:
    """The strides of a product of shape (4, 5) that is read in some way."""
    graph = traced(lambda x, y: read(x @ y), array(4, 3), array(3, 5))
    product = equation(graph, "dot_general").outputs[0]
    return stored_strides(product, program_of(graph))


def test_a_product_that_is_seen_transposed_is_stored_so() -> None:
    assert stored(lambda z: tnp.transpose(z) + 1) == (1, 4)
    assert stored(lambda z: (tnp.transpose(z) + 1, tnp.transpose(z) * 2)) == (1, 4)


def test_axes_can_be_stored_in_any_order() -> None:
    graph = traced(
        lambda x, y: tnp.transpose(x @ y, (2, 0, 1)) + 1,
        array(2, 4, 3),
        array(2, 3, 5),
    )
    product = equation(graph, "dot_general").outputs[0]
    assert stored_strides(product, program_of(graph)) == (4, 1, 8)


@pytest.mark.parametrize(
    "read",
    [
        lambda z: z + 1,
        lambda z: (tnp.transpose(z) + 1, z * 2),
        lambda z: (z, tnp.transpose(z) + 1),
        lambda z: z[::-1] + 1,
    ],
)
def test_others_are_stored_as_they_are(read: Any) -> None:
    assert stored(read) == (5, 1)


def test_only_products_are_stored_otherwise() -> None:
    graph = traced(lambda x: tnp.transpose(tnp.tanh(x)) + 1, array(4, 5))
    value = equation(graph, "tanh").outputs[0]
    assert stored_strides(value, program_of(graph)) == (5, 1)
    assert stored_strides(graph.inputs[0], program_of(graph)) == (5, 1)


def test_a_layout_that_was_relied_on_stays() -> None:
    graph = traced(lambda x, y: tnp.transpose(x @ y) + 1, array(4, 3), array(3, 5))
    flow, product = program_of(graph), equation(graph, "dot_general").outputs[0]
    assert stored_strides(product, flow) == (1, 4)
    flow.readers[product].clear()
    assert stored_strides(product, flow) == (1, 4)
    flow.row_major.add(product)
    assert stored_strides(product, flow) == (5, 1)


def test_a_part_lies_where_its_whole_has_it() -> None:
    graph = traced(lambda x: tnp.tanh(x) + 1, array(4, 5))
    flow, part = program_of(graph), equation(graph, "tanh").outputs[0]
    flow.parts[part] = (graph.inputs[0], 7, (10, 1))
    assert stored_strides(part, flow) == (10, 1)


def test_pieces_of_a_concatenation_lie_side_by_side() -> None:
    graph = traced(lambda x, y: tnp.concatenate([x, y], 1), array(2, 3), array(2, 4))
    eq = equation(graph, "concatenate")
    assert isinstance(eq.op.lowering, Join)
    x, y = graph.inputs
    assert list(joined(eq, eq.op.lowering, (7, 1))) == [
        (x, (0, (7, 1))),
        (y, (3, (7, 1))),
    ]


def test_what_fills_a_padded_array_is_no_piece() -> None:
    graph = traced(lambda x: tnp.pad(x, ((1, 0), (2, 3))), array(2, 3))
    eq = equation(graph, "pad")
    assert isinstance(eq.op.lowering, Join)
    assert list(joined(eq, eq.op.lowering, (8, 1))) == [(eq.inputs[0], (10, (8, 1)))]
