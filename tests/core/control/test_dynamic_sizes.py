"""Ops that hold a graph or a Python function, with axes of any size."""

from __future__ import annotations

import pytest

import treadle as td
from tests.core.control.dynamic_rows import CONTROL
from tests.core.dynamic import agree, stacked, with_derivatives
from tests.core.ops.dynamic_rows import ROWS, Row
from tests.core.ops.test_ops import CASES
from treadle.trace.op import registry


@pytest.mark.parametrize("row", CONTROL, ids=lambda r: r.name)
def test_axes_of_any_length(row: Row) -> None:
    function = with_derivatives(row.op, row.function)
    agree(function, row.args, row.sizes, row.guards)


@pytest.mark.parametrize("row", [r for r in CONTROL if r.batched], ids=lambda r: r.name)
def test_a_batch_of_axes_of_any_length(row: Row) -> None:
    function = td.vmap(with_derivatives(row.op, row.function))
    agree(function, *stacked(row.args, row.sizes), guards=row.guards)


def test_every_op_is_tried_with_axes_of_any_size() -> None:
    tried = {row.op.name for row in (*CASES, *ROWS, *CONTROL)}
    assert set(registry) == tried
