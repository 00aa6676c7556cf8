"""Programs whose sizes are open: what is bound is what is planned for those sizes."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import treadle as td
import treadle.numpy as tnp
from treadle import nn
from treadle.arraytype import ArrayType
from treadle.backends.cpu.gemm.arguments import ProductWord
from treadle.backends.devices import TARGETS
from treadle.compile import build, build_sized
from treadle.dims import Scope, is_dim
from treadle.ir.filled import filled, sizes_in
from treadle.ir.graph import Graph, Lit
from treadle.plan.liveness import check_plan
from treadle.plan.memory import Packing
from treadle.plan.steps import HostStep, NestStep, ProductStep, walk
from treadle.run.sized import SizedProgram, _Values, guards
from treadle.trace.stage import stage

FLOAT, INT = np.dtype("float32"), np.dtype("int32")
SIZES = ((3, 5), (1, 1), (2, 7), (16, 64), (33, 5), (5, 3))


class Case:
    """A function of arrays whose axes are lengths, or "b" and "t", which are open."""

    def __init__(self, function: Callable[..., Any], *axes: tuple) -> None:
        self.function, self.axes = function, axes

    def types(self, b: Any, t: Any) -> list[ArrayType]:
        named = {"b": b, "t": t}
        shapes = [tuple([named.get(n, n) for n in axes]) for axes in self.axes]
        return [ArrayType(shape, FLOAT) for shape in shapes]

    def arrays(self, b: int, t: int) -> list[np.ndarray]:
        rng = np.random.default_rng(b + 100 * t)
        return [rng.normal(size=x.shape).astype(FLOAT) for x in self.types(b, t)]

    def graph(self, b: Any, t: Any) -> Graph:
        def flat(*args: Any) -> list[Any]:
            return td.tree.leaves(self.function(*args))

        return stage(flat, self.types(b, t))[0]

    def sized(self, device: str = "cpu") -> tuple[Scope, Graph, SizedProgram]:
        scope = Scope()
        graph = self.graph(scope.symbol("b", 4), scope.symbol("t", 6))
        return scope, graph, build_sized(graph, scope, TARGETS[device])


def _softmax_loss(x: Any, w: Any) -> Any:
    def loss(w: Any) -> Any:
        return -tnp.mean(nn.log_softmax(tnp.tanh(x @ w)) * x[..., :8])

    return td.value_and_grad(loss)(w)


def _recurrent(x: Any, w: Any) -> Any:
    def loss(w: Any) -> Any:
        def step(h: Any, row: Any) -> Any:
            h = tnp.tanh(h @ (w / 8) + row)
            return h, h

        last, rows = td.scan(step, tnp.zeros((x.shape[0], 8)), tnp.swapaxes(x, 0, 1))
        return tnp.sum(last) + tnp.mean(rows)

    return td.grad(loss)(w)


def _pooled(x: Any, w: Any) -> Any:
    def loss(x: Any, w: Any) -> Any:
        y = nn.max_pool(x, 3, 1, 1)
        return tnp.sum(tnp.sin(tnp.tanh(y) @ w))

    return td.grad(loss, argnums=(0, 1))(x, w)


def _sorted(x: Any) -> Any:
    return tnp.sort(x, 1), tnp.argsort(x, 0), tnp.arange(x.shape[1]) + (x.shape[0] - 3)


def _loops(x: Any) -> Any:
    def body(state: Any) -> Any:
        i, y = state
        return i + 1, td.cond(y.sum() > 0, lambda y: y - 1, lambda y: y * 2, y)

    return td.while_loop(lambda state: state[0] < 5, body, (0, x))


def _integers(x: Any) -> Any:
    """There is no kernel for convolutions of integers of 64 bits."""
    lines = tnp.floor(4 * x).astype("int64")[:, None]
    taps = tnp.array([[[1, 2, 3]]], "int64")
    return td.lax.conv_general_dilated(lines, taps, (1,), [(1, 1)])[:, 0] * x.shape[0]


CASES = {
    "loss": Case(_softmax_loss, ("b", "t", 12), (12, 8)),
    "recurrent": Case(_recurrent, ("b", "t", 8), (8, 8)),
    "pooled": Case(_pooled, ("b", "t", 9, 4), (4, 3)),
    "sorted": Case(_sorted, ("b", "t")),
    "loops": Case(_loops, ("b", "t")),
    "integers": Case(_integers, ("b", "t")),
}


@pytest.fixture(params=CASES)
def case(request: Any) -> Case:
    return CASES[request.param]


def _run(program: Any, arrays: list[np.ndarray]) -> list[bytes]:
    return [np.asarray(x).tobytes() for x in program(arrays)]


def test_bound_programs_give_what_programs_for_one_size_do(case: Case) -> None:
    _, _, program = case.sized()
    for size in SIZES:
        arrays = case.arrays(*size)
        fixed = build(case.graph(*size), TARGETS["cpu"])
        assert _run(program.bind(*size), arrays) == _run(fixed, arrays), size


def test_graphs_with_numbers_for_sizes_are_those_traced_for_them(case: Case) -> None:
    scope, graph, _ = case.sized()
    dimensions = [a.number for a in scope.atoms if a.fn is None]
    for size in SIZES:
        copy = filled(graph, _Values(scope, dict(zip(dimensions, size, strict=True))))
        assert not sizes_in(copy)
        assert copy.in_types == case.graph(*size).in_types
        arrays = case.arrays(*size)
        fixed = build(case.graph(*size), TARGETS["cpu"])
        assert _run(build(copy, TARGETS["cpu"]), arrays) == _run(fixed, arrays), size


def test_no_size_is_left_in_a_bound_program_nor_in_a_kernel(case: Case) -> None:
    _, _, program = case.sized()
    plan = program._compiled[0]
    for _, step in walk(plan.steps):
        if isinstance(step, NestStep):
            assert not sizes_in(step.launch.nest)
        if isinstance(step, ProductStep) and step.product.epilogue is not None:
            assert not sizes_in(step.product.epilogue.nest)
    assert program._linked.sizes, "nothing depends on sizes"
    for size in SIZES:
        bound = program.bind(*size)
        assert not sizes_in(bound.plan)
        assert bound.linked.program.words.dtype == np.int64
        assert not any(map(is_dim, [bound._slots, *bound.linked.constants]))


def test_bound_plans_keep_what_they_need(case: Case) -> None:
    _, _, program = case.sized()
    for size in SIZES:
        bound = program.bind(*size)
        check_plan(bound.plan)
        better = bound.better()
        if better is not None:
            assert better.plan.arena < bound.plan.arena
            check_plan(better.plan)
            arrays = case.arrays(*size)
            assert _run(better, arrays) == _run(bound, arrays)


def test_the_reference_target_runs_bound_plans(case: Case) -> None:
    _, _, program = case.sized("reference")
    _, _, native = case.sized()
    for size in SIZES[:4]:
        arrays = case.arrays(*size)
        found = program.bind(*size)(arrays)
        for a, b in zip(found, native.bind(*size)(arrays), strict=True):
            np.testing.assert_allclose(np.asarray(a), np.asarray(b), 2e-5, 2e-5)


def test_words_are_those_of_a_plan_for_the_size() -> None:
    """Where both plans have the same steps, their programs say the same but for places
    in memory."""
    case = CASES["loss"]
    _, _, program = case.sized()
    # Of sums below 1024 terms: from there on it is said for known sizes alone which
    # operand of a product goes first.
    for size in ((4, 6), (16, 62), (33, 5)):
        bound = program.bind(*size)
        fixed = build(case.graph(*size), TARGETS["cpu"])
        pairs = zip(walk(bound.plan.steps), walk(fixed.plan.steps), strict=True)
        for (_, a), (_, b) in pairs:
            assert type(a) is type(b)
            if isinstance(a, NestStep):
                assert a.tasks == b.tasks
                assert a.launch.nest == b.launch.nest
                assert a.launch[1:4] == b.launch[1:4]
                for x, y in zip(a.launch.bindings, b.launch.bindings, strict=True):
                    assert x[1:] == y[1:]
            if isinstance(a, ProductStep):
                assert a.words == b.words


def test_host_steps_see_the_sizes_of_the_call() -> None:
    case = CASES["integers"]
    _, _, program = case.sized()
    plan = program._compiled[0]
    assert any(isinstance(step, HostStep) for _, step in walk(plan.steps))
    for size in SIZES:
        (x,) = case.arrays(*size)
        (y,) = program.bind(*size)([x])
        padded = np.pad(np.floor(4 * x).astype("int64"), [(0, 0), (1, 1)])
        taken = padded[:, :-2] + 2 * padded[:, 1:-1] + 3 * padded[:, 2:]
        np.testing.assert_array_equal(np.asarray(y), taken * size[0])


def test_very_many_rows_of_one_element_need_another_program() -> None:
    case = Case(lambda x: nn.softmax(x), ("b", "t"))
    scope, _, _ = case.sized()
    holds = guards(scope)
    assert holds(3, 5) and holds(1, 1) and holds(300, 1) and holds(1_000_000, 2)
    assert not holds(1_000_000, 1)


def test_a_sum_of_computed_terms_asks_whether_rows_have_one_element() -> None:
    """How such a sum is rounded depends on the kernel that makes the terms."""
    plain, computed = (
        Case(f, ("b", "t")) for f in (tnp.sum, lambda x: tnp.sum(tnp.exp(x)))
    )
    for case, other in ((plain, True), (computed, False)):
        scope, _, _ = case.sized()
        assert guards(scope)(2, 3)
        assert guards(scope)(40, 1) is other


def test_all_sizes_share_memory() -> None:
    _, _, program = CASES["loss"].sized()
    small = program.bind(2, 3)
    for size in ((64, 64), (3, 2), (600, 700)):
        assert program.bind(*size)._block is small._block


@pytest.mark.parametrize("seed", range(20))
def test_blocks_that_are_alive_together_never_overlap(seed: int) -> None:
    rng = random.Random(seed)
    lives = [(first, first + rng.randrange(6)) for first in range(30) for _ in (0, 1)]
    sizes = [64 * rng.randrange(1, 20) for _ in lives]
    packing = Packing(lives)
    packing.order(packing.anew(*sizes))
    for _ in range(10):
        for places in (packing, packing.anew, packing.better):
            *starts, total = places(*sizes)
            together = [
                (a, b)
                for a, b in itertools.combinations(range(len(lives)), 2)
                if lives[a][0] <= lives[b][1] and lives[b][0] <= lives[a][1]
            ]
            for a, b in together:
                above = starts[a] >= starts[b] + sizes[b]
                assert above or starts[b] >= starts[a] + sizes[a]
            assert total == max(s + n for s, n in zip(starts, sizes, strict=True))
        assert packing.better(*sizes)[-1] <= packing(*sizes)[-1]
        sizes = [64 * rng.randrange(1, 60) for _ in lives]


def test_a_literal_of_a_size_is_found_anew() -> None:
    case = Case(lambda x: x / x.shape[0] + (x.shape[1] * 2 - 7), ("b", "t"))
    _, graph, program = case.sized()
    numbers = program._compiled[0].numbers
    assert any(numbers) or not any(isinstance(a, Lit) for a in graph.outputs)
    for size in SIZES:
        (x,) = case.arrays(*size)
        (y,) = program.bind(*size)([x])
        np.testing.assert_array_equal(
            np.asarray(y), x / np.float32(size[0]) + np.float32(size[1] * 2 - 7)
        )


@pytest.mark.parametrize("shape", [(9, 1), (1, 9), (7, 3), (1, 1)])
def test_batch_elements_of_one_row_are_rows_of_one_product(shape: Any) -> None:
    f = td.jit(
        lambda x, w: tnp.swapaxes(x, 0, 1) @ w,
        dynamic={"x": ("batch", "length", None)},
    )
    rng = np.random.default_rng(0)
    w = rng.standard_normal((20, 40)).astype(np.float32)
    for given in ((3, 5), shape):
        x = rng.standard_normal((*given, 20)).astype(np.float32)
        np.testing.assert_allclose(f(x, w), np.einsum("btc,cd->tbd", x, w), 1e-5, 1e-5)
    plan = f.lower(x, w).plan
    (step,) = [s for _, s in walk(plan.steps) if isinstance(s, ProductStep)]
    words = step.words.words
    assert (words[ProductWord.BATCHES] == 1) is (1 in shape)
    assert f.report().traces == 1


def _carried(x: Any, w: Any) -> Any:
    return td.scan(lambda c, _: (x @ c, c), w, tnp.arange(3.0))


def _repeated(x: Any, w: Any) -> Any:
    return td.while_loop(lambda s: s[0] < 3, lambda s: (s[0] + 1, x @ s[1]), (0, w))


@pytest.mark.parametrize(
    "function",
    [lambda x, w: x @ w, lambda x, w: x[::-1] @ w[::-1], _carried, _repeated],
)
def test_one_column_is_a_row_with_the_bits_of_fixed_sizes(function: Any) -> None:
    f = td.jit(function)
    rng = np.random.default_rng(0)
    for m, n in ((40, 30), (33, 20), (64, 1), (1, 1), (1, 40), (50, 2), (65, 1)):
        x = (rng.standard_normal((m, m)) / m).astype(FLOAT)
        w = rng.standard_normal((m, n)).astype(FLOAT)
        found, alone = f(x, w), td.jit(function)(x, w)
        for a, b in zip(td.tree.leaves(found), td.tree.leaves(alone), strict=True):
            np.testing.assert_array_equal(np.asarray(a), np.asarray(b))
    assert f.report().traces == 2


def test_one_column_is_multiplied_as_a_row() -> None:
    f = td.jit(lambda x, w: x @ w, dynamic={"x": ("m", "k"), "w": ("k", "n")})
    rng = np.random.default_rng(0)
    for m, k, n in ((9, 40, 3), (200, 300, 1), (1, 30, 1), (30, 20, 40)):
        x = rng.standard_normal((m, k)).astype(FLOAT)
        w = rng.standard_normal((k, n)).astype(FLOAT)
        want = x.astype(float) @ w.astype(float)
        np.testing.assert_allclose(f(x, w), want, 1e-4, 1e-4)
        plan = f.lower(x, w).plan
        (step,) = [s for _, s in walk(plan.steps) if isinstance(s, ProductStep)]
        turned = n == 1 < m
        assert step.words.turned == turned
        assert step.words.words[ProductWord.N] == (m if turned else n)


def test_numbers_that_64_bits_cannot_count_are_an_error() -> None:
    program = Case(lambda x: x * 2, ("b", "t")).sized()[2]._linked.program
    with pytest.raises(MemoryError, match="64 bits"):
        program.bind([1 << 63] * len(program.sizes), {}, None)
