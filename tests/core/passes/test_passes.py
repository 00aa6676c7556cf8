"""Every pass keeps the meaning of a graph and its form."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import treadle as td
import treadle.numpy as tnp
from tests.core.fuse.compare import same, tolerance_of, values
from tests.core.fuse.random_rules import generate
from treadle.backends.cpu.device import CPUTarget
from treadle.ir.check import check
from treadle.ir.graph import Graph
from treadle.ops.dot import dot_general
from treadle.ops.identity import optimization_barrier
from treadle.passes.cse import merge_equal
from treadle.passes.dce import drop_dead
from treadle.passes.pipeline import optimise, passes_for
from treadle.run.eager import evaluate
from treadle.trace.lowering import Multiplied


def graph_of(function: Any, *args: Any) -> Graph:
    return td.jit(function).graph(*args)


def names(graph: Graph) -> list[str]:
    return [eq.op.name for eq in graph.equations]


def optimised(function: Any, *args: Any) -> list[str]:
    return names(optimise(graph_of(function, *args), CPUTarget()))


X = tnp.asarray(np.linspace(-2, 2, 12, dtype=np.float32).reshape(3, 4))


@pytest.mark.parametrize("seed", range(2000, 2030))
def test_each_pass_keeps_form_and_meaning(seed: int) -> None:
    program = generate(seed)
    args = program.arguments()
    inputs = values(args)
    graph = graph_of(program.function(), *args)
    wanted = evaluate(graph, inputs)
    tolerance = tolerance_of([*inputs, *wanted])
    for apply in passes_for(CPUTarget()):
        graph = apply(graph)
        check(graph)
        same(evaluate(graph, inputs), wanted, tolerance)


def test_calls_are_inlined_in_nested_graphs_too() -> None:
    inner = td.jit(lambda x: tnp.sin(x) + 1)

    def outer(x: Any) -> Any:
        return td.fori_loop(0, 3, lambda i, c: inner(c), inner(x))

    assert "call" in str(graph_of(outer, X))
    assert "call" not in str(optimise(graph_of(outer, X), CPUTarget()))


def test_dead_equations_go_and_effects_stay() -> None:
    seen: list[float] = []

    def function(x: Any) -> Any:
        tnp.cos(x)
        td.debug.callback(lambda v: seen.append(float(v)), tnp.sum(x))
        return x + 1

    found = names(drop_dead(graph_of(function, X)))
    assert "cos" not in found
    assert "reduce_sum" in found
    td.jit(function)(X)
    assert len(seen) == 1


def test_equal_equations_are_merged_but_not_behind_a_barrier() -> None:
    assert names(merge_equal(graph_of(lambda x: tnp.sin(x) * tnp.sin(x), X))) == [
        "sin",
        "mul",
    ]

    def guarded(x: Any) -> Any:
        (again,) = optimization_barrier(x)
        (more,) = optimization_barrier(x)
        return tnp.sin(x) + tnp.sin(again) * tnp.sin(more)

    assert names(merge_equal(graph_of(guarded, X))).count("sin") == 3


@pytest.mark.parametrize(
    ("function", "wanted"),
    [
        (lambda x: x * 1 - 0, []),
        (lambda x: x + -0.0, []),
        (lambda x: x.astype("int32") + 0, ["convert"]),
        (lambda x: x.sum(-1) + 0.0, ["reduce_sum"]),
        # -0.0 + 0.0 is 0.0, and a mean over one example has the kernel of any other.
        (lambda x: x + 0.0, ["add"]),
        (lambda x: x - -0.0, ["sub"]),
        (lambda x: x / 1, ["div"]),
        (lambda x: tnp.negative(tnp.negative(x)), []),
        (lambda x: x * -1, ["neg"]),
        (lambda x: x.reshape(12).reshape(3, 4), []),
        (lambda x: x.reshape(2, 6).reshape(12), ["reshape"]),
        (lambda x: x.T.T, []),
        (lambda x: tnp.transpose(x[None], (2, 0, 1)).transpose(1, 2, 0), ["reshape"]),
        (lambda x: x[:, :], []),
        (lambda x: x.astype("float32"), []),
        (lambda x: x + tnp.full((3, 4), 2.0), ["add"]),
        (lambda x: x + tnp.negative(tnp.full((3, 4), 2).astype("float32")), ["add"]),
    ],
)
def test_nothing_is_done_twice_or_for_nothing(function: Any, wanted: list[str]) -> None:
    found = optimised(function, X)
    if wanted and wanted[0] == "reshape":
        assert len(found) <= 2
    else:
        assert found == wanted


def test_rows_of_a_converted_table_are_converted() -> None:
    table = tnp.asarray(np.linspace(-2, 2, 20, dtype=np.float32).reshape(5, 4))

    def rows(x: Any) -> Any:
        return tnp.take(x.astype("float16"), np.array([3, 0, 1]), 0)

    assert optimised(rows, table) == ["gather", "convert"]
    found = np.asarray(td.jit(rows)(table))
    np.testing.assert_array_equal(
        found, np.asarray(table).astype(np.float16)[[3, 0, 1]]
    )
    more = optimised(lambda x: tnp.take(x.astype("float16"), np.arange(9) % 3, 0), X)
    assert more[0] == "convert"


def test_adding_the_gradients_of_pieces_is_a_concatenation() -> None:
    def split(x: Any) -> Any:
        a, b = x[:, :1], x[:, 1:]
        return tnp.sum(tnp.sin(a)) + tnp.sum(tnp.cos(b))

    found = optimised(td.grad(split), X)
    assert "concatenate" in found
    assert "pad" not in found


def test_reductions_over_several_axes_end_with_rows() -> None:
    found = optimise(graph_of(lambda x: tnp.sum(x), tnp.ones((3, 4, 5))), CPUTarget())
    axes = [eq.params["axes"] for eq in found.equations if "axes" in eq.params]
    assert axes[0] == (2,)
    assert len(axes) >= 2


def test_sums_of_products_have_the_bits_of_open_sizes() -> None:
    """Whatever views their operands are of: axes that are cut, parts, a column."""

    def products(u: Any, x: Any) -> Any:
        rows, columns = u.reshape(-1, 4), u.reshape(4, -1)
        return (
            tnp.einsum("ij,ij->i", rows, rows),
            tnp.einsum("ij,ij->j", columns, columns),
            tnp.einsum("ij,ij->i", x, x),
            x.T @ x[:, 0],
        )

    opened = td.jit(products, dynamic={"u": ("4*n",), "x": ("n", "m")})
    rng = np.random.default_rng(0)
    for n, m, dtype in ((5, 1, "float32"), (40, 10, "float32"), (40, 10, "complex64")):
        u, x = (rng.normal(size=s).astype(dtype) for s in (4 * n, (n, m)))
        for a, b in zip(opened(u, x), td.jit(products)(u, x), strict=True):
            assert np.asarray(a).tobytes() == np.asarray(b).tobytes()
        rows = u.reshape(-1, 4)
        found = np.asarray(opened(u, x)[0])
        np.testing.assert_allclose(found, (rows * rows).sum(1), rtol=1e-5, atol=1e-5)


def test_few_columns_are_rows() -> None:
    """Of the same bits, whichever sizes are open."""
    product = lambda x, y: x.T @ y  # noqa: E731
    opened = td.jit(product, dynamic={"x": ("k", "m"), "y": ("k", "n")})
    rng = np.random.default_rng(0)
    turned = (700, 40, 3), (5000, 8, 7), (2000, 144, 24), (1500, 100, 10)
    given = (30, 8, 8), (30, 7, 2), (30, 144, 24), (2000, 24, 144), (2000, 64, 96)
    for k, m, n in (*turned, *given):
        x, y = (rng.normal(size=(k, i)).astype("float32") for i in (m, n))
        args = tnp.asarray(x), tnp.asarray(y)
        found = optimise(graph_of(product, *args), CPUTarget()).equations
        shapes = [eq.outputs[0].type.shape for eq in found if eq.op is dot_general]
        assert shapes == [(n, m) if (k, m, n) in turned else (m, n)]
        result = np.asarray(td.jit(lambda *a: product(*a))(x, y))
        assert np.asarray(opened(x, y)).tobytes() == result.tobytes()
        np.testing.assert_allclose(result, x.T @ y, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("sizes", [(2000, 144, 24), (1500, 100, 10)])
def test_few_columns_of_halves(sizes: tuple[int, int, int]) -> None:
    """Their bits are those of open sizes, of which nothing is known."""
    k, m, n = sizes
    product = lambda x, y: x.T @ y  # noqa: E731
    opened = td.jit(product, dynamic={"x": ("k", "m"), "y": ("k", "n")})
    rng = np.random.default_rng(0)
    x, y = (tnp.asarray(rng.normal(size=(k, i))).astype("bfloat16") for i in (m, n))
    result = np.asarray(td.jit(lambda *a: product(*a))(x, y))
    assert np.asarray(opened(x, y)).tobytes() == result.tobytes()
    wide = (np.asarray(a.astype("float32")).astype("float64") for a in (x, y))
    expected = np.einsum("km,kn->mn", *wide)
    np.testing.assert_allclose(result.astype("float64"), expected, rtol=1e-2, atol=1)


class _Widening(CPUTarget):
    """Without kernels for products of half floats."""

    multiplied = Multiplied()


def test_transposed_halves_are_converted_as_they_lie() -> None:
    """Not while they are copied in another order."""
    x, w = np.ones((1, 30), np.float16), np.ones((20, 30), np.float16)
    graph = optimise(graph_of(lambda x, w: x @ w.T, x, w), _Widening())
    found = names(graph)
    assert found.index("transpose") > max(
        i for i, op in enumerate(found[:-1]) if op == "convert"
    )
