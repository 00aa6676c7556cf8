"""Conversions beside products of half floats become part of them."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.core.fuse.graphs import array, traced
from tests.core.passes.shown import lines
from treadle import dtypes
from treadle.arraytype import ArrayType
from treadle.ir.graph import Equation, Graph, Var
from treadle.ops.cast import convert
from treadle.ops.dot import dot_general
from treadle.ops.unary import sin
from treadle.passes.conversions import fuse_conversions

H, F = dtypes.float16, dtypes.float32
X, W = array(3, 4), array(4, 5)
PARAMS = {"contract": ((1,), (0,)), "batch": ((), ())}


def fused(function: Any, *args: Any, dtypes: Any = (H,)) -> list[str]:
    return lines(fuse_conversions(traced(function, *args), dtypes))


def half(x: Any) -> Any:
    return x.astype("float16")


def test_inputs_that_only_products_read_stay_as_they_are() -> None:
    assert fused(lambda x, w: half(x) @ w, X, half(W)) == [
        "c:f16[3,5] = dot_general[contract=((1,),(0,)) batch=((),())] a b",
        "return c",
    ]
    assert fused(lambda x, w: x @ half(w), half(X), W)[0].endswith("a b")


def test_one_type_at_least_is_half() -> None:
    """Or it would be a product of floats."""
    found = fused(lambda x, w: half(x) @ half(w), X, W)
    assert found[-2] in (
        "d:f16[3,5] = dot_general[contract=((1,),(0,)) batch=((),())] a b",
        "c:f16[3,5] = dot_general[contract=((1,),(0,)) batch=((),())] a b",
    )
    graph = products(rounded=False)
    assert [eq.op for eq in fuse_conversions(graph, [H]).equations] == [
        convert,
        dot_general,
    ]


def products(rounded: bool = True, others: int = 0) -> Graph:
    """A product of rounded inputs whose sums are single, rounded or not."""
    x, w = (Var(ArrayType(s, F)) for s in ((3, 4), (4, 5)))
    a, b = (Var(ArrayType(s, H)) for s in ((3, 4), (4, 5)))
    wide, out = Var(ArrayType((3, 5), F)), Var(ArrayType((3, 5), H))
    equations = [
        Equation(convert, [x], {"dtype": H}, [a]),
        Equation(convert, [w], {"dtype": H}, [b]),
        Equation(dot_general, [a, b], PARAMS, [wide]),
    ]
    outputs = [wide]
    if rounded:
        equations.append(Equation(convert, [wide], {"dtype": H}, [out], "user.py:1"))
        outputs = [out]
    for _ in range(others):
        more = Var(wide.type)
        equations.append(Equation(sin, [wide], {}, [more]))
        outputs.append(more)
    return Graph([x, w], equations, outputs)


def test_results_that_are_only_wanted_rounded_are() -> None:
    graph = products()
    (eq,) = fuse_conversions(graph, [H]).equations
    assert eq.outputs == graph.outputs
    assert eq.inputs == graph.inputs
    # Another reader wants all of it.
    found = fuse_conversions(products(others=1), [H]).equations
    assert [e.op for e in found] == [convert, dot_general, convert, sin]


def test_what_others_read_is_converted() -> None:
    found = fused(lambda x, w: (lambda y: (y @ w, y.T))(half(x)), X, half(W))
    assert found[0] == "c:f16[3,4] = convert[dtype=float16] a"
    assert found[1].endswith(" c b")
    found = fused(lambda x, w: half(x * 2) @ w, X, half(W))
    assert [line.split()[2].split("[")[0] for line in found[:-1]] == [
        "mul",
        "convert",
        "dot_general",
    ]
    found = fused(lambda x, w: half(x) @ w, array(3, 4, dtype=np.float64), half(W))
    assert "convert" in found[0]


def test_only_what_the_target_multiplies() -> None:
    graph = traced(lambda x, w: half(x) @ w, X, half(W))
    assert fuse_conversions(graph, []) is graph
    assert fuse_conversions(graph, [dtypes.bfloat16]) is graph
    plain = traced(lambda x: half(x) * 2, X)
    assert fuse_conversions(plain, [H]) is plain
