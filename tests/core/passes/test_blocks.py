"""Blocked work is written out where a target has no kernel for it."""

from __future__ import annotations

from functools import partial
from types import SimpleNamespace
from typing import Any

import numpy as np

import treadle as td
from tests.core.fuse.graphs import traced
from tests.core.fuse.lowering.alone import normal
from tests.core.passes.shown import equations, passed, untouched
from treadle.control.softmax import softmax
from treadle.passes.blocks import lower_blocks
from treadle.trace.lowering import Blocked, Host

X = normal(3, 5)


def work(x: Any) -> Any:
    return softmax(x, axes=(1,))


def target(*known: Any) -> Any:
    """One that has kernels for some ops."""
    return SimpleNamespace(
        lowering=lambda eq: eq.op.lowering if eq.op in known else Host("none")
    )


def test_what_has_a_kernel_stays() -> None:
    assert isinstance(softmax.lowering, Blocked)
    has = partial(lower_blocks, target=target(softmax))
    assert untouched(has, work, X)
    assert untouched(partial(lower_blocks, target=None), lambda x: x * 2, X)  # type: ignore[arg-type]


def test_what_has_none_is_what_it_means() -> None:
    apply = partial(lower_blocks, target=target())
    found = passed(apply, lambda x: work(x * 2) + 1, X)
    assert not any("softmax" in line for line in found)
    assert found[0] == "b:f32[3,5] = mul a 2.0"
    graph = traced(work, X)
    made = apply(graph)
    assert {eq.source for eq in made.equations} == {graph.equations[0].source}
    assert made.out_types == graph.out_types


def test_in_loops_too() -> None:
    def function(x: Any) -> Any:
        return td.scan(lambda c, _: (work(c), None), work(x), None, length=2)[0]

    found = lower_blocks(traced(function, X), target())
    assert softmax not in [eq.op for eq in equations(found)]
    assert "scan" in [eq.op.name for eq in found.equations]
    kept = lower_blocks(traced(function, X), target(softmax))
    assert [eq.op for eq in equations(kept)].count(softmax) == 2
    assert untouched(partial(lower_blocks, target=target(softmax)), function, X)
    loop = lambda x: td.scan(lambda c, _: (c * 2, None), work(x), None, length=2)[0]  # noqa: E731
    np.testing.assert_allclose(td.jit(loop)(X), work(X) * 4, 1e-5)
    passed(partial(lower_blocks, target=target()), loop, X)
