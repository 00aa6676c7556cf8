"""Where results are rounded, and which products and sums are one equation."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import treadle as td
import treadle.numpy as tnp
from tests.core.fuse.graphs import array, traced
from tests.core.passes.shown import lines, opened
from treadle.ir.check import check
from treadle.ir.graph import Graph
from treadle.passes.rounding import place_roundings

H, X = array(3, 4, dtype=np.float16), array(3, 4)


def after(function: Any, *args: Any, widen: bool = True) -> list[str]:
    """What each equation makes: its dtype, op and how it subtracts."""
    graph = place_roundings(traced(function, *args), widen)
    check(graph)
    return written(graph)


def written(graph: Graph) -> list[str]:
    found = []
    for eq in graph.equations:
        minus = f"-{eq.params['minus']}" if eq.params.get("minus") else ""
        dtype = eq.outputs[0].type.dtype
        found.append(f"{dtype.name[0]}{8 * dtype.itemsize} {eq.op.name}{minus}")
    return found


def each(second: Any) -> Any:
    """A product, and what reads it."""
    return lambda x: second(x * 2, x)


WIDE: dict[str, tuple[Any, list[str]]] = {
    "arithmetic": (
        each(lambda y, x: tnp.exp(y) + 1),
        ["f32 mul", "f32 exp", "f16 add"],
    ),
    "two readers": (
        each(lambda y, x: (y + 1, y * 3)),
        ["f32 mul", "f16 add", "f16 mul"],
    ),
    "what passes bits on": (
        each(lambda y, x: abs(y) + 1),
        ["f32 mul", "f32 abs", "f16 add"],
    ),
    "a sum": (each(lambda y, x: y.sum(1)), ["f32 mul", "f16 reduce_sum"]),
    "float32": (
        each(lambda y, x: y.astype("float32") * 3),
        ["f32 mul", "f32 mul"],
    ),
    "a comparison": (
        each(lambda y, x: (y + 1, y > 1)),
        ["f16 mul", "f16 add", "b8 gt"],
    ),
    "a largest one": (each(lambda y, x: y.max(1)), ["f16 mul", "f16 reduce_max"]),
    "what moves": (each(lambda y, x: y.T + 1), ["f16 mul", "f16 transpose", "f16 add"]),
    "the result": (each(lambda y, x: (y, y + 1)), ["f16 mul", "f16 add"]),
    "float32 in memory": (
        each(lambda y, x: y.astype("float32")),
        ["f16 mul", "f32 convert"],
    ),
    "float32 that is compared": (
        each(lambda y, x: y.astype("float32") > 1),
        ["f16 mul", "f32 convert", "b8 gt"],
    ),
    "float64": (each(lambda y, x: y.astype("float64")), ["f16 mul", "f64 convert"]),
    "running sums": (each(lambda y, x: tnp.cumsum(y, 1)), ["f16 mul", "f16 cumsum"]),
    "what nobody computes": (lambda x: x.T + 1, ["f16 transpose", "f16 add"]),
    "a choice": (
        each(lambda y, x: tnp.where(x > 0, y, y) * 3),
        ["f32 mul", "b8 gt", "f32 select", "f16 mul"],
    ),
    "a kernel of its own between": (
        each(lambda y, x: y * 3 + tnp.cumsum(x, 0) * (y - 1)),
        ["f16 mul", "f16 mul", "f16 cumsum", "f32 sub", "f16 multiply_add"],
    ),
}


@pytest.mark.parametrize("name", WIDE)
def test_half_floats_are_rounded_where_somebody_can_tell(name: str) -> None:
    function, wanted = WIDE[name]
    assert after(function, H) == wanted


def test_targets_that_compute_in_halves_round_them_all() -> None:
    assert after(each(lambda y, x: tnp.exp(y) + 1), H, widen=False) == [
        "f16 mul",
        "f16 exp",
        "f16 add",
    ]


def test_bits_are_those_of_one_rounding() -> None:
    x = np.linspace(-3, 3, 12).astype(np.float16).reshape(3, 4)
    wide = x.astype(np.float32)
    found = td.jit(lambda x: (x * x + x) * x)(x)
    wanted = ((wide * wide + wide) * wide).astype(np.float16)
    assert np.array_equal(found, wanted)
    # Whoever compares a value sees the rounded one, and so do all others.
    y, above = td.jit(lambda x: (x * x * x, x * x > x * x * 1))(x)
    square = (wide * wide).astype(np.float16)
    assert np.array_equal(y, (square.astype(np.float32) * wide).astype(np.float16))
    assert not np.asarray(above).any()


SUMS: dict[str, tuple[Any, list[str]]] = {
    "product first": (lambda x: x * x + x, ["f32 multiply_add"]),
    "product last": (lambda x: x + x * x, ["f32 multiply_add"]),
    "less a product": (lambda x: x - x * x, ["f32 multiply_add-product"]),
    "product less": (lambda x: x * x - x, ["f32 multiply_add-term"]),
    "two products": (lambda x: x * x - x * 2, ["f32 mul", "f32 multiply_add-term"]),
    "twice the same": (each(lambda y, x: y + y), ["f32 mul", "f32 add"]),
    "two readers": (
        each(lambda y, x: (y + x, y * 3)),
        ["f32 mul", "f32 add", "f32 mul"],
    ),
    "the result": (each(lambda y, x: (y, y + x)), ["f32 mul", "f32 add"]),
    "other work": (each(lambda y, x: tnp.exp(y)), ["f32 mul", "f32 exp"]),
    "integers": (
        lambda x: (lambda i: i * i + i)(x.astype("int32")),
        ["i32 convert", "i32 mul", "i32 add"],
    ),
    "a sum before": (
        lambda x: (lambda s: x * x + s)(x.max(0) * x),
        ["f32 reduce_max", "f32 broadcast_in_dim", "f32 mul", "f32 multiply_add"],
    ),
    "a row's sum between": (
        lambda x: x * x + x.sum(1, keepdims=True),
        ["f32 reduce_sum", "f32 reshape", "f32 broadcast_in_dim", "f32 multiply_add"],
    ),
    "a column's sum between": (
        lambda x: x * x + x.sum(0),
        ["f32 mul", "f32 reduce_sum", "f32 broadcast_in_dim", "f32 add"],
    ),
    "a kernel of its own between": (
        lambda x: x * x + tnp.cumsum(x, 1),
        ["f32 mul", "f32 cumsum", "f32 add"],
    ),
    "a kernel of its own that is no operand's": (
        lambda x: (tnp.cumsum(x, 1), x * x + x, tnp.cumsum(x, 0)),
        ["f32 cumsum", "f32 multiply_add", "f32 cumsum"],
    ),
    "made of the product": (
        each(lambda y, x: tnp.cumsum(y, 1) + 1),
        ["f32 mul", "f32 cumsum", "f32 add"],
    ),
}


@pytest.mark.parametrize("name", SUMS)
def test_products_and_sums_are_one(name: str) -> None:
    function, wanted = SUMS[name]
    assert after(function, X) == wanted
    assert after(function, X, widen=False) == wanted


def test_doubles_too_and_operands_in_their_order() -> None:
    x = array(3, dtype=np.float64)
    graph = place_roundings(traced(lambda x, y, z: z - x * y, x, x, x), True)
    assert lines(graph) == [
        "d:f64[3] = multiply_add[minus=product] a b c",
        "return d",
    ]
    wanted = lines(place_roundings(traced(lambda x, y, z: x * y - z, x, x, x), True))
    assert wanted[0] == "d:f64[3] = multiply_add[minus=term] a b c"


def test_arrays_of_another_shape_are_no_terms() -> None:
    """A number that is added to an array is rounded as one."""
    found = after(lambda x, y: x[0, 0] * y + x, X, np.float32(2))
    assert "f32 mul" in found
    assert "f32 multiply_add" not in found


@pytest.mark.parametrize("shape", [(3, 4), (1, 4), (3, 1), (1, 1)])
def test_open_sizes_round_as_fixed_ones(shape: tuple[int, int]) -> None:
    """A sum down columns stands between, unless there is one row: who asks knows."""
    function = lambda x: tnp.sin(x * x + x.sum(0)) + (x * x - x.max(1)[:, None])  # noqa: E731
    opened = td.jit(function, dynamic={"x": ("n", "m")})
    x = np.random.default_rng(0).normal(size=shape).astype(np.float32)
    wanted = np.asarray(td.jit(lambda x: function(x))(x))
    for first in ((5, 7), (1, 7), (5, 1)):
        opened(np.ones(first, np.float32))
        assert np.array_equal(opened(x), wanted)
    opened = td.jit(lambda x: function(x), dynamic={"x": ("n", "m")})
    assert np.array_equal(opened(x), wanted)


@pytest.mark.parametrize("shape", [(3, 4), (1, 4), (3, 1), (1, 1)])
def test_what_may_vanish_for_some_sizes(shape: tuple[int, int]) -> None:
    """Of open lengths a sum down one row is none, and one of columns of one element is
    over the last axis: both keep none apart, and who finds that has asked."""
    sums = ["f32 reduce_sum", "f32 broadcast_in_dim"]
    sizes = dict(zip("nm", shape, strict=True))
    graph, scope = opened(lambda x: x * x + x.sum(0), ("n", "m"), **sizes)
    found = written(place_roundings(graph, True))
    one = [*sums, "f32 multiply_add"]
    assert found == (one if 1 in shape else ["f32 mul", *sums, "f32 add"])
    assert scope.guards
    for function in (lambda x: x * x + x.sum(), lambda x: x + 1):
        graph, scope = opened(function, ("n", "m"), **sizes)
        found = written(place_roundings(graph, True))
        assert found in (["f32 reduce_sum", "f32 multiply_add"], ["f32 add"])
        assert not scope.guards
    # Nothing is asked of a sum that is no operand's, or where none would vanish.
    for function in (
        lambda x: (x.sum(0), x * x + x),
        lambda x: x * x + tnp.cumsum(x, 0) + x.sum(0) * 0,
    ):
        graph, scope = opened(function, ("n", "m"), **sizes)
        place_roundings(graph, True)
        assert not scope.guards


@pytest.mark.parametrize("rows", [1, 3])
def test_halves_and_sums_that_may_vanish(rows: int) -> None:
    """They are rounded before a sum down columns that stands between."""

    def function(x: Any) -> Any:
        y = x.astype("float16") * 2
        return x.sum(0), y * 3

    graph, scope = opened(function, ("n", 4), n=rows)
    found = written(place_roundings(graph, True))
    wide = "f32" if rows == 1 else "f16"
    assert found == ["f16 convert", f"{wide} mul", "f32 reduce_sum", "f16 mul"]
    assert scope.guards
