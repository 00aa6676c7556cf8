"""Operands and results of products of half floats."""

from __future__ import annotations

import numpy as np

from tests.core.fuse.graphs import array, traced
from tests.core.passes.shown import lines
from treadle import dtypes
from treadle.ops.dot import dot_general
from treadle.passes.halves import narrowed, product, widened
from treadle.passes.rewrite import Rewriter

H = dtypes.float16
PARAMS = {"contract": ((1,), (0,)), "batch": ((), ())}


def begun() -> Rewriter:
    graph = traced(lambda x, w: x, array(3, 4, dtype=H), array(4, 5, dtype=H))
    return Rewriter(graph)


def test_a_product_sums_in_single_precision_and_is_rounded_once() -> None:
    rewriter = begun()
    out = product(rewriter, dot_general, rewriter.graph.inputs, PARAMS, "user.py:3")
    rewriter.values[rewriter.graph.outputs[0]] = out
    found = rewriter.run()
    assert lines(found) == [
        "c:f32[3,5] = dot_general[contract=((1,),(0,)) batch=((),())] a b",
        "d:f16[3,5] = convert[dtype=float16] c",
        "return d",
    ]
    assert {eq.source for eq in found.equations} == {"user.py:3"}


def test_conversions_both_ways() -> None:
    rewriter = begun()
    x = rewriter.graph.inputs[0]
    wide = widened(rewriter, x, "a.py:1")
    more = widened(rewriter, x, "a.py:1", np.dtype("int32"))
    back = narrowed(rewriter, wide, H, "a.py:2")
    assert [a.type.dtype.name for a in (wide, more, back)] == [
        "float32",
        "int32",
        "float16",
    ]
    assert {a.type.shape for a in (wide, more, back)} == {(3, 4)}
    assert [eq.inputs[0] for eq in rewriter.equations] == [x, x, wide]
    assert [eq.source for eq in rewriter.equations] == ["a.py:1", "a.py:1", "a.py:2"]
