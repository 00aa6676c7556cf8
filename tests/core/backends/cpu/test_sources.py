"""Kernels that are begun while a program is still planned are those that it calls."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

import treadle as td
import treadle.numpy as tnp
from treadle import compile as compiler
from treadle import nn
from treadle.arraytype import ArrayType
from treadle.backends.cpu import sources
from treadle.backends.cpu.gemm import kernel as gemm
from treadle.backends.cpu.run import native
from treadle.backends.devices import TARGETS
from treadle.dims import Scope
from treadle.run.execute import Executable
from treadle.trace.stage import stage


def keys_of(function: Callable, *args: td.ShapeDtype) -> tuple[set[str], set[str]]:
    """The kernels that are begun, and those that the plan calls."""
    graph = td.jit(function).trace(*args).graph
    stages = compiler.stages(graph, TARGETS["reference"])
    begun = sources.lowered(stages.kernels)
    called = sources.sources_of(stages.plan.steps)
    assert len({s.key for s in begun}) == len(begun)
    return {s.key for s in begun}, {s.key for s in called}


def network(x: td.Array, w: td.Array) -> td.Array:
    return tnp.sort(tnp.tanh(x @ w + 1).sum(0)) * 2


def powers(x: td.Array, w: td.Array) -> td.Array:
    def turn(carry: td.Array, _: None) -> tuple[td.Array, td.Array]:
        carry = tnp.tanh(carry @ w)
        return carry, carry.sum(-1)

    return td.scan(turn, x, None, length=5)[1]


def chosen(x: td.Array, w: td.Array) -> td.Array:
    return td.cond(x[0, 0] > 0, lambda a: tnp.exp(a @ w), lambda a: a - 1, x)


@pytest.mark.parametrize("function", [network, powers, chosen])
def test_what_is_begun_is_all_that_is_called(function: Callable) -> None:
    matrix = td.ShapeDtype((8, 8), "float32")
    begun, called = keys_of(function, matrix, matrix)
    assert begun == called and len(begun) > 1


def test_loops_over_few_numbers_are_left_to_the_linker() -> None:
    def count(x: td.Array) -> td.Array:
        return td.fori_loop(0, 1000, lambda i, a: tnp.sin(a) + i, x)

    begun, called = keys_of(count, td.ShapeDtype((3,), "float32"))
    assert begun < called


def matrix_kernels(function: Callable, *shapes: tuple) -> tuple[set, set]:
    """The parts of matrix kernels that are begun before fusion, and those called.
    Sizes that have a name are open."""
    scope, names = Scope(), {part.value for part in (*gemm.Part, *gemm.Images)}
    opened = {n: scope.symbol(n, 40) for s in shapes for n in s if isinstance(n, str)}
    types = [
        ArrayType(tuple(opened.get(n, n) for n in shape), np.dtype("float32"))
        for shape in shapes
    ]
    graph = stage(lambda *args: [function(*args)], types)[0]
    target = TARGETS["cpu"]
    with scope.compiling():
        stages = compiler.stages(graph, target)
        begun = sources.foreseen(stages.graph, target.lowering)
        called = sources.sources_of(stages.plan.steps)
        found = [{s.symbol for s in each} & names for each in (begun, called)]
    return found[0], found[1]


def product(x: td.Array, w: td.Array) -> td.Array:
    return tnp.tanh(x @ w)


@pytest.mark.parametrize(
    ("rows", "k", "columns", "part"),
    [
        (32, 64, 4096, gemm.Part.PLAIN),
        (8, 64, 64, gemm.Part.PLAIN),
        ("n", 64, 4096, gemm.Part.ALL),
        (40, "n", 4096, gemm.Part.PLAIN),
        (2, "n", 4096, gemm.Part.ALL),
        ("n", 64, 1, gemm.Part.ALL),
    ],
)
def test_the_matrix_kernel_begun_is_as_small_as_what_is_called(
    rows: int | str, k: int | str, columns: int, part: gemm.Part
) -> None:
    names = {part.value}
    assert matrix_kernels(product, (rows, k), (k, columns)) == (names, names)


def test_the_matrix_kernel_of_few_rows_is_begun_when_it_is_known_how_w_lies() -> None:
    found = matrix_kernels(product, (2, 64), (64, 96))
    assert found == (set(), {"contract"})
    found = matrix_kernels(lambda x, w: x @ w.T, (2, 64), (96, 64))
    assert found == (set(), {"contract_turned"})
    found = matrix_kernels(product, (2, 64), (64, 4096))
    assert found == (set(), {"contract_streamed"})


def test_a_larger_module_serves_for_a_smaller_one() -> None:
    dtype = np.dtype("float64")
    smaller, whole = (gemm.source(dtype, gemm.Images[n]) for n in ("FORWARD", "ALL"))
    found = native.load([smaller, whole])
    assert found[smaller.key] == found[whole.key]


def test_the_module_of_any_rows_calls_those_of_many_and_of_few() -> None:
    parts = gemm.Part.PLAIN, *gemm.FEW_PARTS.values(), gemm.Part.ALL, gemm.Part.ANY
    *others, whole, more = (gemm.source(np.dtype("float32"), part) for part in parts)
    assert whole.needs == tuple(others[:-1])
    assert more.needs == tuple(others)
    assert len(set(native.load([more, whole, *others]).values())) == 6


@pytest.mark.parametrize(
    ("shape", "part"),
    [
        ((40, 5, 5), gemm.Part.SMALL),
        ((40, 17, 17), gemm.Part.PLAIN),
        (("n", 5, 5), gemm.Part.ANY),
        ((40, "n", "n"), gemm.Part.ANY),
        ((4, "n", "n"), gemm.Part.ALL),
    ],
)
def test_many_small_matrices_have_a_module_of_their_own(
    shape: tuple[int | str, ...], part: gemm.Part
) -> None:
    _, called = matrix_kernels(lambda x, w: x @ w, shape, shape)
    assert called == {part.value}


@pytest.mark.parametrize(
    ("function", "parts"),
    [(product, {"contract_all/float"}), (lambda x, w: x + w, set())],
)
def test_a_program_expects_other_sizes(function, parts) -> None:
    matrix = td.ShapeDtype((32, 32), "float32")
    graph = td.jit(function).trace(matrix, matrix).graph
    plan = compiler.stages(graph, TARGETS["cpu"]).plan
    assert {s.key for s in sources.for_other_sizes(plan.steps)} == parts


def test_other_sizes_are_expected_when_a_second_one_is_seen(monkeypatch) -> None:
    seen = []
    monkeypatch.setattr(Executable, "expect_sizes", lambda self: seen.append(self))
    jitted = td.jit(product)
    for rows, count in ((32, 0), (32, 0), (32, 0), (20, 1), (9, 1), (20, 1)):
        jitted(np.ones((rows, 32), "f4"), np.ones((32, 32), "f4"))
        assert len(seen) == count


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_kernels_of_attention_share_what_copies(dtype) -> None:
    q = td.ShapeDtype((2, 16, 4, 16), dtype)

    def loss(x: td.Array) -> td.Array:
        return nn.attention(x, x, x).sum()

    graph = td.jit(td.grad(loss)).trace(q).graph
    plan = compiler.stages(graph, TARGETS["cpu"]).plan
    found = [s for s in sources.sources_of(plan.steps) if s.symbol.startswith("attend")]
    forward, backward = sorted(found, key=lambda s: s.symbol, reverse=True)
    assert forward.needs == backward.needs
    shared = gemm.source(np.dtype(dtype)).needs
    assert {s.key for s in shared} < {s.key for s in forward.needs}


def test_what_a_module_needs_is_begun_with_it(tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("TREADLE_CACHE_DIR", str(tmp_path))
    inner = native.Source("test/inner", "inner", lambda: ONE.format("inner"))
    middle = native.Source("test/middle", "middle", lambda: ONE.format("middle"))
    middle = replace(middle, needs=(inner,))
    outer = native.Source("test/outer", "outer", lambda: ONE.format("outer"))
    native.begin([replace(outer, needs=(middle,))])
    names = {s.key for s in (inner, middle, outer)}
    try:
        assert native.cpu_count() < 2 or names <= native._begun.keys()
    finally:
        for name in names:
            native._begun.pop(name, None)


ONE = "define i64 @{}() {{ ret i64 1 }}"


def convolved(x, w, strides=(1, 1)):
    how = {"dimension_numbers": ("NHWC", "HWIO", "NHWC")}
    return td.lax.conv_general_dilated(x, w, strides, "SAME", **how)


def by_filter(x, w):
    out, pull = td.vjp(lambda w: convolved(x, w), w)
    return pull(out)[0]


@pytest.mark.parametrize(
    ("function", "image", "taps", "names"),
    [
        (convolved, (2, 8, 9, 4), (3, 3, 4, 5), {"convolve"}),
        (convolved, (2, 8, "n", 4), (1, 5, 4, 5), {"convolve"}),
        (convolved, (2, 8, "n", 4), (1, 3, 4, 5), {"convolve_lines"}),
        (convolved, (2, "n", 9, 4), (3, 1, 4, 5), {"convolve"}),
        (convolved, (2, "n", 9, 4), (1, 5, 4, 5), {"convolve_lines"}),
        (convolved, (2, 1, 9, 4), (1, 5, 4, 5), {"convolve_lines"}),
        (convolved, (2, 8, 9, 4), ("n", 3, 4, 5), {"convolve_all"}),
        (by_filter, (2, 8, 9, 4), (3, 3, 4, 5), {"convolve", "convolve_gradients"}),
        (
            *(by_filter, (2, 8, 9, 4), (1, 3, 4, 5)),
            {"convolve_lines", "convolve_lines_gradients"},
        ),
        (
            *(by_filter, (2, 1, 9, 4), (1, 5, 4, 5)),
            {"convolve_lines", "convolve_lines_gradients"},
        ),
    ],
)
def test_kernels_of_convolutions(function, image, taps, names) -> None:
    assert matrix_kernels(function, image, taps) == (names, names)


def test_larger_modules_of_convolutions_serve_for_smaller_ones() -> None:
    dtype = np.dtype("float64")
    *smaller, whole = (gemm.source(dtype, part) for part in gemm.Images)
    for forward, gradients in (smaller[:2], smaller[2:]):
        found = native.load([forward, gradients])
        assert found[forward.key] == found[gradients.key]
    found = native.load([*smaller, whole])
    assert len(set(found.values())) == 1


def called(function: Callable, *shapes: tuple[int | str, ...]) -> set[str]:
    """The symbols of the kernels that a program calls. Sizes with a name are open."""
    scope = Scope()
    opened = {n: scope.symbol(n, 40) for s in shapes for n in s if isinstance(n, str)}
    types = [
        ArrayType(tuple(opened.get(n, n) for n in shape), np.dtype("float32"))
        for shape in shapes
    ]
    graph = stage(lambda *args: [function(*args)], types)[0]
    with scope.compiling():
        steps = compiler.stages(graph, TARGETS["cpu"]).plan.steps
        return {source.symbol for source in sources.sources_of(steps)}


@pytest.mark.parametrize(
    ("shape", "symbol"),
    [
        ((3, 128), "order_i32_short"),
        ((3, 129), "order_i32_long"),
        ((3, "n"), "order_i32"),
    ],
)
def test_rows_of_known_lengths_have_a_smaller_kernel_of_orders(
    shape: tuple[int | str, ...], symbol: str
) -> None:
    assert symbol in called(tnp.argsort, shape)


def test_a_few_places_of_long_rows_may_need_all_of_it() -> None:
    assert "order_i32" in called(lambda x: td.lax.top_k(x, 3)[1], (3, 200))
    assert "order_i32_short" in called(lambda x: td.lax.top_k(x, 3)[1], (3, 20))


@pytest.mark.parametrize("length", [5, 128, 129, 1000])
def test_all_kernels_of_orders_give_the_same(length: int) -> None:
    x = np.random.default_rng(length).integers(0, 50, (4, length)).astype(np.float32)
    expected = np.argsort(x, axis=-1, kind="stable")
    opened = td.jit(tnp.argsort, dynamic={"x": (None, "length")})
    for f in (td.jit(tnp.argsort), opened):
        np.testing.assert_array_equal(np.asarray(f(tnp.asarray(x))), expected)
