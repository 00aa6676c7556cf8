"""The nests of clusters: right at every point, loops in the right order, few numbers in
the code."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import treadle.numpy as tnp
from tests.core.fuse.evaluate import Memory, meant
from tests.core.fuse.graphs import program_of, traced
from tests.core.fuse.lowering.alone import normal
from treadle import dtypes
from treadle.arraytype import ArrayType
from treadle.fuse.cluster import Cluster, join, start
from treadle.fuse.lowering.launches import Launch
from treadle.fuse.lowering.nests import (
    Access,
    NestWriter,
    build,
    coalesce,
    extent,
    finish,
    innermost,
    ranking,
)
from treadle.fuse.maps import Space
from treadle.ir.graph import Lit, Var
from treadle.kernels.check import check as check_nest
from treadle.kernels.nest import BROADCAST, CONTIGUOUS, PAIRED, STRIDED
from treadle.ops.gather import gather
from treadle.passes.units import Units
from treadle.trace.lowering import View

X = normal(3, 4)
F4 = np.dtype(np.float32)


def cluster_of(function: Callable[..., Any], *args: Any) -> tuple[Any, Any, Cluster]:
    """The graph of a function, and all of it as one cluster."""
    graph = traced(function, *args)
    flow = program_of(graph)
    first, *others = [
        e
        for e in graph.equations
        if not isinstance(e.op.lowering, View) and e.outputs[0] not in flow.inline
    ]
    cluster = Cluster(0, flow)
    assert start(cluster, first, flow)
    assert all(join(cluster, e, flow) for e in others)
    return graph, flow, cluster


def built(function: Callable[..., Any], *args: Any) -> Launch:
    """The nest of a function, which gives what that means."""
    graph, flow, cluster = cluster_of(function, *args)
    stored = {a for a in graph.outputs if isinstance(a, Var)}
    launch = build(cluster, flow, stored)
    check_nest(launch.nest)
    memory = Memory()
    for v, x in zip(graph.inputs, args, strict=True):
        memory.put(v, x)
    with np.errstate(all="ignore"):
        memory.launch(launch)
    for a, wanted in zip(graph.outputs, meant(graph, args), strict=True):
        np.testing.assert_allclose(memory.get(a), wanted, 1e-5, 1e-5)
    return launch


INDEX = np.array([2, -1, 7], np.int32)
PAIR = np.array([0, 2], np.int32), np.array([1, 3], np.int32)


def take(
    x: Any, *index: Any, axes: Any = (0,), mode: str = "clip", **options: Any
) -> Any:
    how = {"sizes": (None,) * len(axes), "batch_dims": 0, **options}
    return gather(x, *index, axes=axes, mode=mode, **how)


def softmax(x: Any) -> Any:
    e = tnp.exp(x)
    return e / tnp.sum(e, 1)[:, None]


CASES: dict[str, tuple[Any, ...]] = {
    "elementwise": (lambda x: tnp.tanh(x) * 2.0 + x, X),
    "views": (lambda x, y: tnp.exp(x.T[::-1]) + y[None], X, normal(3)),
    "reshaped": (lambda x: tnp.sin(x.reshape(6, 2).T), X),
    "rows": (softmax, X),
    "columns": (lambda x: tnp.sum(x * 2.0, 0) + 1.0, X),
    "inner of three": (lambda x: tnp.max(tnp.sin(x), 2), normal(2, 3, 4)),
    "middle": (lambda x: tnp.sum(x, 1), normal(2, 3, 4)),
    "two axes": (lambda x: tnp.sum(x, (0, 1)), normal(2, 3, 4)),
    "place": (lambda x: tnp.argmax(x, 1), X),
    "index": (lambda x: tnp.where(tnp.arange(4) > 1, x, 0.0), X),
    "gather": (lambda x, i: take(x, i) * 2.0, X, INDEX),
    "dropped": (lambda x, i: take(x, i, mode="drop") + 1.0, X, INDEX),
    "both dropped": (lambda x, i, j: take(x, i, j, axes=(0, 1), mode="drop"), X, *PAIR),
    "columns gathered": (lambda x, i: take(x, i, axes=(1,)), X, INDEX),
    "windows": (lambda x, i: take(x, i, axes=(1,), sizes=(2,)), X, INDEX),
    "turned": (lambda x, i: take(x.T[::-1], i), X, INDEX),
    "small index": (lambda x, i: take(x, i), X, INDEX.astype(np.int8)),
    "halves": (lambda x: tnp.exp(x) + x, X.astype(np.float16)),
    "bool": (lambda x, y: (x > 0) & y, X, X > 1),
    "bits": (lambda x: tnp.asarray(x, "int32") << 2, X),
    "empty row": (lambda x: tnp.sum(x, 1), normal(3, 0)),
}


@pytest.mark.parametrize("name", CASES)
def test_values(name: str) -> None:
    function, *args = CASES[name]
    built(function, *args)


def loops(launch: Launch) -> tuple[Any, ...]:
    return launch.nest.axis, launch.outer, launch.mid, launch.inner


def test_loops_that_step_alike_are_one() -> None:
    assert loops(built(lambda x: tnp.exp(x), X)) == ("inner", (), (), 12)
    assert loops(built(lambda x, y: x + y, X, normal(4))) == ("inner", (3,), (), 4)
    turned = built(lambda x: tnp.exp(x.T), X)
    assert loops(turned) == ("inner", (4,), (), 3)


def test_reductions_run_along_inner_or_mid() -> None:
    rows, columns = (
        built(lambda x, a=a: tnp.sum(x, a), normal(2, 3, 4)) for a in (2, 1)
    )
    assert loops(rows) == ("inner", (6,), (), 4)
    assert loops(columns) == ("mid", (2,), (3,), 4)
    both = built(lambda x: tnp.sum(x, (0, 1)), normal(2, 3, 4))
    assert loops(both) == ("mid", (), (6,), 4)


def test_lanes_have_several_points_where_there_are_any() -> None:
    one = built(lambda x, y: x + y, normal(5, 1), normal(1))
    assert loops(one) == ("inner", (1,), (), 5)
    column = built(lambda x: tnp.sum(x, 0), normal(3, 4, 1))
    assert (column.mid, column.inner) == ((3,), 4)


def test_lanes_run_along_a_longer_axis_where_the_last_one_is_short() -> None:
    turned = built(lambda x, y: x.T + y[:, ::2], normal(2, 20), normal(20, 4))
    assert loops(turned) == ("inner", (2,), (), 20)
    put_together = built(lambda x: tnp.exp(x.T), normal(2, 20))
    assert loops(put_together) == ("inner", (20,), (), 2)
    long = built(lambda x: tnp.exp(x.T), normal(8, 20))
    assert loops(long) == ("inner", (20,), (), 8)


def test_loops_end_with_that_of_neighbours_of_what_is_turned() -> None:
    turned = built(lambda x: tnp.exp(x.T), normal(10, 9, 8))
    assert loops(turned) == ("inner", (9, 8), (), 10)
    read, written = (b.strides for b in turned.bindings)
    assert (read, written) == ((8, 1, 72), (10, 90))


def test_innermost() -> None:
    sizes = {0: 2, 1: 3, 2: 1, 3: 1}
    assert innermost([[0], [1], [2]], sizes) == [1]
    assert innermost([[2], [3]], sizes) == [3]
    assert innermost([[2, 0], [3]], sizes) == [2, 0]
    assert innermost([], sizes) == []
    assert extent([0, 1], sizes) == 6
    assert extent([], sizes) == 1


def access(store: bool = False, **strides: int) -> Access:
    pairs = tuple((int(d[1:]), s) for d, s in strides.items())
    return Access(Lit(np.float32(0), None), F4, 0, pairs, store)  # type: ignore[arg-type]


def test_ranking_follows_the_largest_access() -> None:
    sizes = {0: 3, 1: 4}
    wide, narrow = access(d0=1, d1=3), access(d1=9)
    key = ranking([narrow, wide], sizes)
    assert sorted(sizes, key=key) == [1, 0]
    # Of equally large ones, what is written counts.
    key = ranking([access(d0=1, d1=3), access(True, d0=4, d1=1)], sizes)
    assert sorted(sizes, key=key) == [0, 1]
    # Backwards is a step as well; computed indices are no memory.
    index = Access(None, F4, 0, ((0, 50), (1, 60)))
    key = ranking([index, access(d0=-4, d1=1)], sizes)
    assert sorted(sizes, key=key) == [0, 1]


def test_coalesce() -> None:
    sizes = {0: 2, 1: 3, 2: 4}
    whole, rows = access(d0=12, d1=4, d2=1), access(d0=3, d1=1)
    assert coalesce([0, 1, 2], [whole], sizes) == [[0, 1, 2]]
    assert coalesce([0, 1, 2], [whole, rows], sizes) == [[0, 1], [2]]
    assert coalesce([0, 1, 2], [whole, access(d1=4, d2=1)], sizes) == [[0], [1, 2]]
    assert coalesce([0, 2], [whole], sizes) == [[0], [2]]
    assert coalesce([], [whole], sizes) == []


def test_operands_have_classes_of_steps() -> None:
    launch = built(
        lambda x, y, z: x[:, ::2] + y + z.T, normal(3, 8), normal(3, 1), normal(4, 3)
    )
    classes = [o.inner for o in launch.nest.operands]
    assert sorted(classes) == [BROADCAST, CONTIGUOUS, PAIRED, STRIDED]
    for b, o in zip(launch.bindings, launch.nest.operands, strict=True):
        assert len(b.strides) == len(launch.outer) + (o.inner == STRIDED)


def test_what_does_not_vary_along_mid_says_so() -> None:
    launch = built(lambda x, y: tnp.sum(x * y, 0), normal(3, 4), normal(4))
    assert [o.mid for o in launch.nest.operands] == [True, False, False]


def numbers(function: Any, *args: Any) -> list[Any]:
    return [i.attr for i in built(function, *args).nest.body if i.name == "const"]


def test_few_numbers_are_part_of_a_kernel() -> None:
    assert numbers(lambda x: x + 1.0, X) == [1.0]
    assert numbers(lambda x: x + 0.0, X) in ([0.0], [])
    assert numbers(lambda x: x + 32.0, X) == []
    assert numbers(lambda x: x * np.float32(-0.0), X) == []
    whole = np.arange(12, dtype=np.int32).reshape(3, 4)
    assert numbers(lambda x: x + 1, whole) == [1]
    assert numbers(lambda x: x + 7, whole) == []


def test_a_number_that_varies_with_sizes_is_an_argument() -> None:
    graph, flow, cluster = cluster_of(lambda x: x + 1.0, X)
    (eq,) = graph.equations
    one = next(a for a in eq.inputs if isinstance(a, Lit))
    one.varies = True
    launch = build(cluster, flow, set(graph.outputs))
    assert [i.name for i in launch.nest.body] == ["load", "load", "add", "store"]


def test_equal_work_is_written_once() -> None:
    body = NestWriter(Space(Units()), None)  # type: ignore[arg-type]
    one = body.instr("const", (), F4, 0.0)
    assert body.instr("const", (), F4, 0.0) == one
    assert body.instr("const", (), F4, -0.0) != one
    assert body.instr("const", (), np.dtype("f8"), 0.0) != one
    stores = [body.instr("store", (one,), F4, 0) for _ in range(2)]
    assert stores[0] != stores[1]
    assert body.both(one, one) == body.both(one, one)


def test_half_floats_beside_floats_are_widened_and_rounded_once() -> None:
    body = NestWriter(Space(Units()), None)  # type: ignore[arg-type]
    half = body.instr("const", (), dtypes.float16, 0.5)
    wide = body.instr("const", (), dtypes.float32, 0.5)
    args, work = body._widened((half, wide), dtypes.float16)
    assert [body.instrs[a].dtype for a in args] == [dtypes.float32] * 2
    assert work == dtypes.float32
    assert body._widened((half, half), dtypes.float16) == ((half, half), dtypes.float16)
    integer = body.instr("const", (), dtypes.int32, 1)
    assert body._widened((integer, wide), dtypes.float32)[0] == (integer, wide)
    rounded = body._narrowed(wide, dtypes.float16)
    assert body.instrs[rounded].name == "convert"
    assert body._narrowed(wide, dtypes.float32) == wide


def test_an_index_is_moved_inside_in_a_type_that_can_hold_it() -> None:
    def moved(dtype: Any, limit: int, drop: bool) -> tuple[list[str], Any, Any]:
        body = NestWriter(Space(Units()), None)  # type: ignore[arg-type]
        index = body.instr("const", (), np.dtype(dtype), 3)
        inside, ok = body.place(index, np.dtype(dtype), limit, drop)
        return [i.name for i in body.instrs], body.instrs[inside].dtype, ok

    names, dtype, ok = moved("i4", 9, False)
    assert (names, dtype, ok) == (
        ["const", "const", "load", "maximum", "minimum"],
        np.int32,
        None,
    )
    assert moved("i4", 2**31, False)[1] == np.int64
    assert moved("i4", 2**31 - 1, False)[1] == np.int32
    assert moved("i2", 9, False)[1] == np.int64
    names, _, ok = moved("i8", 9, True)
    assert names[-1] == "eq"
    assert ok == len(names) - 1


def test_complex_numbers_are_moved_as_pairs() -> None:
    t = ArrayType((3,), np.dtype("c8"))
    v, out = Var(t), Var(t)
    body = NestWriter(Space(Units()), program_of(traced(tnp.exp, X)))
    value = body.load(v, 1, {0: -2})
    k = body.access(Access(out, np.dtype("c8"), 0, ((0, 1),), True))
    body.instr("store", (value,), np.dtype("c8"), k)
    launch = finish(body, {0: 3}, [0], [], None, "inner")
    assert [o.dtype for o in launch.nest.operands] == [F4, F4]
    assert [(b.offset, b.strides) for b in launch.bindings] == [(2, (-4,)), (0, (2,))]
    assert (launch.outer, launch.inner) == ((3,), 2)
