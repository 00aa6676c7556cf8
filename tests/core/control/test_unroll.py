"""Scans that do several iterations at once, beside Python's loop."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.core.fuse.graphs import traced
from treadle.control.unroll import unrolled_scan
from treadle.ir.graph import Graph

W = np.float32([0.5, -2])
ROWS = np.random.default_rng(0).normal(size=(7, 2)).astype(np.float32)


def step(w: Any, c: Any, i: Any, x: Any, k: Any) -> Any:
    """A constant, two carries and two rows; two results a step, one a scalar."""
    new = c * w + x * k
    return new, i + 1, new - x, (c * x).sum()


BODY = traced(step, W, W, np.int32(0), W, np.float32(0))
BODY = Graph(BODY.inputs, BODY.equations, BODY.outputs, "step")


def looped(length: int, reverse: bool, ks: np.ndarray) -> list[np.ndarray]:
    c, i = W, np.int32(3)
    rows: list[Any] = [None] * length
    for n in reversed(range(length)) if reverse else range(length):
        c, i, *rows[n] = step(W, c, i, ROWS[n], ks[n])
    return [c, i, *(np.stack(column) for column in zip(*rows, strict=True))]


def run(length: int, reverse: bool, unroll: int) -> tuple[list[Any], Graph]:
    ks = np.arange(length, dtype=np.float32)

    def function(w: Any, c: Any, i: Any, xs: Any, ks: Any) -> Any:
        return unrolled_scan(BODY, [w], [c, i], [xs, ks], length, reverse, unroll)

    args = (W, W, np.int32(3), ROWS[:length], ks)
    return function(*args), traced(function, *args)


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize(
    ("length", "unroll", "lengths"),
    [
        (7, 1, [7]),
        (7, 0, [7]),
        (7, 2, [3, 1]),
        (7, 3, [2, 1]),
        (6, 3, [2]),
        (7, 4, [3]),
        (6, 2, [3]),
        (7, 7, []),
        (4, 9, []),
        (1, 3, [1]),
    ],
)
def test_several_at_once(
    length: int, unroll: int, lengths: list[int], reverse: bool
) -> None:
    """The results of a loop, in loops of blocks of `unroll` and of what is left."""
    found, graph = run(length, reverse, unroll)
    wanted = looped(length, reverse, np.arange(length, dtype=np.float32))
    for a, b in zip(found, wanted, strict=True):
        assert np.asarray(a).dtype == np.asarray(b).dtype
        np.testing.assert_allclose(a, b, 1e-5, 1e-6)
    loops = [eq.params for eq in graph.equations if "length" in eq.params]
    assert [p["length"] for p in loops] == lengths
    assert all(p["reverse"] == reverse for p in loops)
    if unroll <= 1:
        assert loops[0]["graph"] is BODY
    # A block's body has as many iterations; what is left is done one by one.
    count = lambda g: [eq.op.name for eq in g.equations].count("reduce_sum")  # noqa: E731
    whole = unroll > 1 and length > 1
    assert [count(p["graph"]) for p in loops] == [
        unroll if whole and i == 0 and length >= 2 * unroll else 1
        for i in range(len(loops))
    ]


def test_a_block_is_made_once() -> None:
    blocks = []
    for reverse, unroll in ((False, 2), (False, 2), (True, 2), (False, 3)):
        _, graph = run(6, reverse, unroll)
        (block,) = [eq.params["graph"] for eq in graph.equations if eq.graphs]
        blocks.append(block)
        assert block.name == "step"
    assert blocks[0] is blocks[1]
    assert len(set(map(id, blocks))) == 3
