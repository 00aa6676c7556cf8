"""Places, lives and positions: what the planner makes of each kernel."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import treadle as td
import treadle.numpy as tnp
from tests.core.fuse.graphs import array
from tests.core.plan.build import kernels_of, plan_of, scheduled
from treadle.arraytype import ArrayType
from treadle.backends.devices import TARGETS
from treadle.fuse.lowering.launches import Copy, KernelEntry, Sort
from treadle.ir.graph import Lit, Var
from treadle.plan.liveness import check_plan
from treadle.plan.plan import place
from treadle.plan.planner import HANDLERS, GraphPlanner, Planner
from treadle.plan.schedule import Schedule, schedule
from treadle.plan.steps import (
    Buffer,
    CopyStep,
    HostStep,
    Loop,
    NestStep,
    OrderStep,
    Outline,
    Place,
    ProductStep,
)
from treadle.plan.target import Work

X, W = array(3, 4), array(4, 5)
F4 = np.dtype(np.float32)


OUTLINE = Outline("", (), (), 0, 0)


def kinds(steps: Any) -> list[type]:
    return [type(s) for s in steps]


def test_results_are_made_in_their_places() -> None:
    plan = plan_of(lambda x: (tnp.exp(x), tnp.cumsum(x, 1)), X)
    assert kinds(plan.steps) == [NestStep, NestStep]
    assert {s.writes[0].buffer for s in plan.steps} == set(plan.outputs)
    assert plan.buffers == []


def test_results_that_are_made_elsewhere_are_copied() -> None:
    plan = plan_of(lambda x: (x, lambda: 0)[0], X)
    (copy,) = plan.steps
    assert isinstance(copy, CopyStep)
    assert (copy.reads, copy.writes) == (
        [Place(plan.inputs[0])],
        [Place(plan.outputs[0])],
    )
    assert copy.nbytes == 48
    twice = plan_of(lambda x: (lambda y: (y, y))(tnp.exp(x)), X)
    assert kinds(twice.steps) == [NestStep, CopyStep]
    assert twice.steps[1].reads == [Place(twice.outputs[0])]
    same = plan_of(lambda x: (lambda y: (y.reshape(12), y))(tnp.exp(x)), X)
    assert kinds(same.steps) == [NestStep, CopyStep]


def test_literals_are_constants_once() -> None:
    plan = plan_of(lambda x: (x + 2.5, tnp.cumsum(x, 1) * 2.5), X)
    assert [c.item() for c in plan.constants] == [2.5]
    planner = Planner(OUTLINE, HANDLERS)
    t = ArrayType((2,), F4)
    one, same, other = (
        planner.constant(Lit(np.array(v, F4), t)) for v in ([1, 2], [1, 2], [1, 3])
    )
    assert one == same
    assert one != other
    assert [one.buffer.index, other.buffer.index] == [0, 1]
    assert [c.tolist() for c in planner.plan.constants] == [[1, 2], [1, 3]]
    assert planner.plan.numbers == [None, None]


def test_parts_are_shifted_into_their_whole() -> None:
    plan = plan_of(lambda x: tnp.concatenate([tnp.exp(x), tnp.sin(x)]) * 2.0, X)
    first, second, read = plan.steps
    assert first.writes[0].buffer is second.writes[0].buffer is read.reads[0].buffer
    offsets = [s.writes[0].offset for s in (first, second)]
    assert sorted(offsets) == [0, 48]
    # Two parts of one array are not written at the same time.
    assert first.position < second.position


def test_offsets_of_operands_are_in_bytes() -> None:
    for dtype, wanted in (("float32", 16), ("float64", 32)):
        plan = plan_of(lambda x: tnp.exp(x[1:]), array(3, 4, dtype=dtype))
        (step,) = plan.steps
        assert step.reads[0].offset == wanted
    product = plan_of(lambda x, w: x[1:] @ w, X, W).steps[0]
    assert isinstance(product, ProductStep)
    assert (product.a.offset, product.b.offset) == (16, 0)


def test_independent_nests_share_a_position() -> None:
    plan = plan_of(lambda x: (tnp.exp(x), tnp.cumsum(x, 1)), X)
    # What runs along rows is alone.
    first, second = plan.steps
    assert first.position < second.position
    both = plan_of(lambda x, w: (tnp.exp(x), tnp.sin(w)), X, W)
    assert [s.position for s in both.steps] == [1, 1]
    chain = plan_of(lambda x, w: (tnp.sum(tnp.exp(x), 0) @ w) + 1.0, X, W)
    positions = [s.position for s in chain.steps]
    assert positions == sorted(set(positions))


def test_lives_span_all_uses() -> None:
    plan = plan_of(lambda x: tnp.cumsum(tnp.cumsum(x, 1), 0) @ x.T, X)
    check_plan(plan)
    for b in plan.buffers:
        uses = [
            s.position
            for s in plan.steps
            for p in (*s.reads, *s.writes)
            if p.buffer is b
        ]
        if uses:
            assert (b.first, b.last) == (min(uses), max(uses))


def test_use_in_a_loop_lasts_to_its_end() -> None:
    planner = Planner(OUTLINE, HANDLERS)
    outside, loop = planner.buffer(64), Loop((), [], [])
    planner.loops = (loop,)
    inside = planner.buffer(64)
    planner.use(outside, 3)
    planner.use(inside, 4)
    assert loop.touched == {outside}
    planner.position, planner.loops = 7, ()
    planner.close(loop)
    assert (outside.first, outside.last) == (3, 8)
    assert (inside.first, inside.last) == (4, 4)


def test_of_nested_loops_the_outermost_keeps_what_is_older() -> None:
    planner = Planner(OUTLINE, HANDLERS)
    old = planner.buffer(64)
    outer, inner = (Loop((), [], []) for _ in range(2))
    planner.loops = (outer,)
    middle = planner.buffer(64)
    planner.loops = (outer, inner)
    planner.use(old, 1)
    planner.use(middle, 2)
    assert (outer.touched, inner.touched) == ({old}, {middle})


def test_scratch_lives_while_its_step_runs() -> None:
    class Device(type(TARGETS["reference"])):  # type: ignore[misc]
        def nest(self, launch: Any) -> Work:
            return Work(2, 100)

    graph, kernels = kernels_of(lambda x: tnp.cumsum(tnp.exp(tnp.cumsum(x, 1)), 0), X)
    plan = place(schedule(kernels, Device()), graph)
    check_plan(plan)
    for step in plan.steps:
        assert isinstance(step, NestStep)
        assert step.tasks == 2
        assert step.scratch is not None
        b = step.scratch.buffer
        assert (b.nbytes, b.first, b.last) == (100, step.position, step.position)


def test_launches_of_a_product_share_scratch() -> None:
    class Device(type(TARGETS["reference"])):  # type: ignore[misc]
        def contraction(self, product: Any) -> list[Work]:
            return [Work(1, 640)] * 3

    graph, kernels = kernels_of(lambda x, w: x @ w + 1.0, X, W)
    plan = place(schedule(kernels, Device()), graph)
    steps: Any = plan.steps
    assert kinds(steps) == [ProductStep] * 3
    assert [s.words.scratch_bytes for s in steps] == [640] * 3
    (scratch,) = {s.scratch for s in steps}
    assert scratch.buffer.nbytes == 640
    assert [s.position for s in steps] == [1, 2, 3]


def test_an_epilogue_does_not_read_its_product_from_memory() -> None:
    plan = plan_of(lambda x, w, b: x @ w + b, X, W, array(5))
    (step,) = plan.steps
    assert isinstance(step, ProductStep)
    assert [p.buffer for p in step.reads] == plan.inputs
    assert {p.buffer for p in step.writes} == set(plan.outputs)
    assert step.c.buffer is plan.outputs[0]
    assert len(step.places) == 3


def test_a_scatter_in_place_begins_with_nothing() -> None:
    """Its result is the carry of the loop, which holds the operand already."""

    def function(x: Any) -> Any:
        step = lambda c, r: ((c[0].at[c[1]].set(r), c[1] + 1), None)  # noqa: E731
        return td.scan(step, (x, tnp.asarray(0, "int32")), x)[0]

    plan = plan_of(function, X)
    check_plan(plan)
    (loop,) = [s for s in plan.steps if isinstance(s, Loop)]
    names = [s.names for s in loop.body]
    assert names.count(("dynamic_update_slice",)) == 1
    # Outside of loops there is a copy.
    assert len(plan_of(lambda x: x.at[1].set(x[0]), X).steps) == 2


def test_orders_and_host_calls() -> None:
    plan = plan_of(lambda x: tnp.argsort(x, 1), array(3, 4, dtype="float64"))
    (order,) = [s for s in plan.steps if isinstance(s, OrderStep)]
    assert (order.rows, order.length, order.count, order.itemsize) == (3, 4, 4, 8)
    plan = plan_of(lambda x: td.pure_callback(np.sort, x, x), X)
    (host,) = plan.steps
    assert isinstance(host, HostStep)
    assert (host.reads, host.writes) == (
        [Place(plan.inputs[0])],
        [Place(plan.outputs[0])],
    )


def test_places_are_made_up_once() -> None:
    v, whole = (Var(ArrayType((n,), F4)) for n in (2, 6))
    _, found = scheduled(lambda x: x, X)
    kernels = found.kernels._replace(within={v: (whole, 8)})
    g = GraphPlanner(Planner(OUTLINE, HANDLERS), Schedule(kernels, ()))
    assert g.place(v) == g.place(whole).shifted(8)
    assert g.place(v) is g.place(v)
    assert g.place(whole).buffer.nbytes == 24
    assert len(g.planner.plan.buffers) == 1
    assert g.scratch(0) is None


def test_copies_of_nothing_are_left_out() -> None:
    _, found = scheduled(lambda x: x, X)
    g = GraphPlanner(Planner(OUTLINE, HANDLERS), found)
    a, b = (Place(Buffer(8)) for _ in range(2))
    g.copy(a, b, 0)
    g.copy(a, a, 8)
    assert g.steps == []
    g.copy(None, b, 8, ("zeros",))
    g.copy(a, b, 8)
    assert [(s.names, s.reads, s.writes) for s in g.steps] == [
        (("zeros",), [], [b]),
        ((), [a], [b]),
    ]


@pytest.mark.parametrize("shape", [(0, 4), (3, 0)])
def test_empty_programs_have_no_steps(shape: Any) -> None:
    plan = plan_of(lambda x: (tnp.exp(x), x), array(*shape))
    assert plan.steps == []
    assert plan.arena == 0


def test_lives_only_grow() -> None:
    planner = Planner(OUTLINE, HANDLERS)
    b = planner.buffer(8)
    for position in (5, 3):
        planner.use(b, position)
    assert (b.first, b.last) == (5, 5)


def test_use_of_a_pointer_is_use_of_what_it_may_point_to() -> None:
    planner = Planner(OUTLINE, HANDLERS)
    a, b, loop = planner.buffer(8), planner.buffer(8), Loop((), [], [])
    planner.loops = (loop,)
    first, second = planner.slot(a, b), planner.slot(a)
    assert [first.index, second.index, planner.plan.slots] == [0, 1, 2]
    planner.use(first, 4)
    assert (a.last, b.last) == (4, 4)
    # The pointer itself is the loop's own.
    assert loop.touched == {a, b}


def test_a_region_ends_with_its_position_and_its_steps() -> None:
    planner = Planner(OUTLINE, HANDLERS)
    template: Any = plan_of(lambda x: tnp.exp(x), X).steps[0]

    def nest() -> NestStep:
        read, write = Place(planner.buffer(8)), Place(planner.buffer(8))
        return NestStep((), [read], [write], launch=template.launch, places=[])

    steps: list[Any] = []
    other: list[Any] = []
    a, b, c, d, e = (nest() for _ in range(5))
    planner.add(a, steps, alone=False)
    planner.add(b, steps, alone=False)
    assert a.position == b.position
    planner.position += 1
    planner.add(c, steps, alone=False)
    planner.add(d, other, alone=False)
    planner.add(e, other, alone=False)
    assert a.position < c.position - 1 < d.position - 1
    assert d.position == e.position


def test_a_product_writes_what_its_epilogue_does() -> None:
    plan = plan_of(lambda x, w: (lambda y: (y, y + 1.0))(x @ w), X, W)
    (step,) = plan.steps
    assert isinstance(step, ProductStep)
    assert {p.buffer for p in step.writes} == set(plan.outputs)
    assert step.c.buffer is plan.outputs[0]


def test_the_first_places_of_an_order() -> None:
    _, found = scheduled(lambda x: x, X)
    g = GraphPlanner(Planner(OUTLINE, HANDLERS), found)
    keys, out = (
        Var(ArrayType((2, n), np.dtype(d))) for n, d in ((7, "uint32"), (3, "int32"))
    )
    sort = Sort(keys, out, 7)
    HANDLERS[Sort](g, sort, KernelEntry(sort), Work(2, 64))
    (step,) = g.steps
    assert isinstance(step, OrderStep)
    assert (step.rows, step.length, step.count, step.tasks) == (2, 7, 3, 2)


def test_a_copy_to_where_it_lies_already_is_left_out() -> None:
    _, found = scheduled(lambda x: x, X)
    a, b = (Var(ArrayType((2,), F4)) for _ in range(2))
    for same in (False, True):
        g = GraphPlanner(Planner(OUTLINE, HANDLERS), found)
        if same:
            g.env[b] = g.place(a)
        copy = Copy(a, b)
        HANDLERS[Copy](g, copy, KernelEntry(copy, begins=a), None)
        assert kinds(g.steps) == ([] if same else [CopyStep])
