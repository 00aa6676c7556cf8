"""Groups to kernels: what runs, in which order, and in whose memory values are."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import treadle as td
import treadle.numpy as tnp
from tests.core.fuse.compare import same
from tests.core.fuse.evaluate import meant, run
from tests.core.fuse.graphs import array, traced
from tests.core.fuse.random_rules import generate
from treadle.backends.devices import TARGETS
from treadle.fuse.grouping.group import group
from treadle.fuse.lowering.launches import (
    Choose,
    Copy,
    HostCall,
    KernelEntry,
    Kernels,
    Launch,
    ProductKernel,
    Repeat,
    RepeatWhile,
    Sort,
)
from treadle.fuse.lowering.lower import lower
from treadle.ir.graph import Graph, Lit
from treadle.passes.pipeline import optimise

TARGET = TARGETS["reference"]
X, W = array(3, 4), array(4, 5)


def kernels_of(graph: Graph) -> Kernels:
    return lower(group(graph, TARGET.lowering))


def lowered(function: Any, *args: Any) -> Kernels:
    return kernels_of(optimise(traced(function, *args), TARGET))


def kinds(entries: tuple[KernelEntry, ...]) -> list[type]:
    return [type(e.kernel) for e in entries]


@pytest.mark.parametrize("seed", range(400, 440))
def test_kernels_do_what_the_graph_means(seed: int) -> None:
    program = generate(seed, ("float32", "float64"))
    args = [np.asarray(a) for a in program.arguments()]
    graph = optimise(td.jit(program.function()).graph(*args), TARGET)
    args = [
        np.asarray(a, v.type.dtype) for a, v in zip(args, graph.inputs, strict=True)
    ]
    wanted = meant(graph, args)
    found = run(kernels_of(graph), args)
    # Memory has no shapes.
    same([a.reshape(b.shape) for a, b in zip(found, wanted, strict=True)], wanted, 1e-3)


def test_one_entry_for_each_node() -> None:
    kernels = lowered(lambda x, w: tnp.sum(tnp.exp((x @ w) * 3.0), 0), X, W)
    assert kinds(kernels.entries) == [ProductKernel, Launch]
    assert [e.names for e in kernels.entries] == [
        ("dot_general",),
        ("mul", "exp", "reduce_sum"),
    ]
    assert not any(e.alone or e.begins for e in kernels.entries)
    assert not kernels.within


def test_what_stores_nothing_is_left_out() -> None:
    kernels = lowered(lambda x: (tnp.exp(x[:0]), tnp.sin(x)), X)
    assert [e.names for e in kernels.entries] == [("sin",)]
    assert not lowered(lambda x: tnp.sort(x[:0], 0), X).entries


def test_a_product_lies_in_its_epilogue_s_result() -> None:
    (entry,) = lowered(lambda x, w: x @ w + 1.0, X, W).entries
    kernels = lowered(lambda x, w: x @ w + 1.0, X, W)
    product = kernels.entries[0].kernel
    assert kinds((entry,)) == [ProductKernel]
    assert isinstance(product, ProductKernel)
    assert kernels.within[product.c] == (kernels.results[0], 0)


@pytest.mark.parametrize(
    "function",
    [
        lambda x, w: (x @ w, x @ w + 1.0),  # returned
        lambda x, w: (lambda y: (y + 1.0, tnp.cumsum(y, 1)))(x @ w),  # read by others
        lambda x, w: tnp.transpose(x @ w) + 1.0,  # elsewhere in the result
        lambda x, w: x @ w > 0.5,  # of another size
        lambda x, w: (x @ w).astype("int32"),  # of another type
    ],
)
def test_a_product_that_is_needed_has_memory_of_its_own(function: Any) -> None:
    kernels = lowered(function, X, W)
    (product,) = [
        e.kernel for e in kernels.entries if isinstance(e.kernel, ProductKernel)
    ]
    if product.epilogue is None or product.c not in kernels.within:
        assert product.c not in kernels.within
        return
    # Seen transposed it is stored so, and may lie there after all.
    (store,) = [b for b in product.epilogue.bindings if b.store]
    (load,) = [b for b in product.epilogue.bindings if b.atom is product.c]
    assert (store.offset, store.strides) == (load.offset, load.strides)
    assert product.contraction.dtype == store.atom.type.dtype


def test_pieces_lie_in_their_whole() -> None:
    kernels = lowered(lambda x: tnp.concatenate([tnp.exp(x), tnp.sin(x), x]), X)
    (whole,) = kernels.results
    assert sorted(kernels.within.values()) == [(whole, 0), (whole, 48)]
    assert [e.names for e in kernels.entries][-1] == ("concatenate",)
    assert len(kernels.entries) == 3


def test_offsets_of_pieces_are_in_bytes_of_their_type() -> None:
    def function(x: Any) -> Any:
        x = tnp.asarray(x, "float64")
        return tnp.concatenate([tnp.exp(x), tnp.sin(x)], 1)

    kernels = lowered(function, array(3, 4, dtype="float64"))
    assert sorted(offset for _, offset in kernels.within.values()) == [0, 32]


def test_an_array_is_filled_once_and_before_its_pieces() -> None:
    kernels = lowered(lambda x: tnp.pad(tnp.exp(x), 1, constant_values=2.0), X)
    first, second = kernels.entries
    assert (first.names, first.alone) == (("pad",), True)
    assert isinstance(first.kernel, Launch)
    assert second.names == ("exp",)
    kernels = lowered(lambda x: tnp.pad(x, 1), X)
    assert kinds(kernels.entries) == [Copy, Launch]
    assert kernels.entries[0].kernel == Copy(None, kernels.results[0])
    assert [e.alone for e in kernels.entries] == [True, False]


def test_an_array_is_filled_before_a_product_in_it() -> None:
    kernels = lowered(lambda x, w: tnp.pad(x @ w, 1), X, W)
    assert kinds(kernels.entries) == [Copy, ProductKernel]
    kernels = lowered(lambda x, w: tnp.pad(x @ w + 1.0, 1), X, W)
    assert kinds(kernels.entries) == [Copy, ProductKernel]


def test_a_scatter_begins_as_its_operand() -> None:
    kernels = lowered(lambda x: tnp.exp(x).at[tnp.array([1, 0])].add(x[:2]), X)
    begin, scatter = kernels.entries[-2:]
    assert begin.begins is not None
    assert (begin.alone, scatter.alone) == (False, True)
    assert begin.begins is kernels.entries[0].kernel.bindings[-1].atom
    kernels = lowered(lambda x: tnp.zeros((3, 4)).at[1].set(x[0]), X)
    assert kernels.entries[0].kernel == Copy(None, kernels.results[0])


def test_orders_name_keys_and_places() -> None:
    kernels = lowered(lambda x: tnp.argsort(x, 1), X)
    (sort,) = [e.kernel for e in kernels.entries if isinstance(e.kernel, Sort)]
    assert (sort.rows, sort.length, sort.places) == (3, 4, 4)


def test_host_calls_keep_shapes_that_memory_forgets() -> None:
    def function(x: Any) -> Any:
        return td.pure_callback(np.sort, array(4, 3), x.reshape(4, 3))

    kernels = lowered(function, X)
    (call,) = [e.kernel for e in kernels.entries]
    assert isinstance(call, HostCall)
    assert call.operands == kernels.inputs
    assert [t.shape for t in call.types[0]] == [(4, 3)]
    assert call.reason


def test_loops_and_branches_are_kernels_with_programs() -> None:
    def function(x: Any) -> Any:
        (c, kept), ys = td.scan(lambda c, r: ((c[0] + r, c[1]), r), (x[0], x[1]), x)
        d = td.while_loop(lambda d: d.sum() < 9, lambda d: d + 1, c)
        return td.cond(d.sum() > 0, lambda a: a + 1, tnp.sin, d), ys, kept

    kernels = lowered(function, X)
    found = [e.kernel for e in kernels.entries if not isinstance(e.kernel, Launch)]
    assert [type(k) for k in found] == [Repeat, RepeatWhile, Choose]
    repeat = found[0]
    assert isinstance(repeat, Repeat)
    assert (repeat.length, repeat.reverse, len(repeat.carries.init)) == (3, False, 1)
    # What no iteration changes is a constant, and its result the operand.
    assert len(repeat.consts) == 1
    assert repeat.consts[0] in {w.atom for w in kernels.within.values()}


def test_a_loop_of_no_iterations_copies() -> None:
    def function(x: Any) -> Any:
        first = (tnp.exp(x[0]), tnp.zeros(2))
        return td.scan(lambda c, r: (c, r), first, x[:0])

    kernels = kernels_of(traced(function, X))
    copies = [e.kernel for e in kernels.entries if isinstance(e.kernel, Copy)]
    assert [c.source is None for c in copies] == [False, True]
    assert {c.target for c in copies} >= {a for a in kernels.results if a.type.size}


def test_results_may_be_inputs_and_literals() -> None:
    kernels = lowered(lambda x: (x, x.reshape(12), tnp.ones(())), X)
    assert not kernels.entries
    assert kernels.results[:2] == (kernels.inputs[0], *kernels.results[1:2])
    assert isinstance(kernels.results[2], Lit)


def test_lanes_run_along_short_rows_of_what_the_target_chooses_among() -> None:
    def inner(dtype: Any, chosen: int) -> int:
        graph = traced(lambda x: tnp.repeat(x, 2), np.ones(20, dtype))
        found = lower(group(optimise(graph, TARGET), TARGET.lowering, chosen))
        (launch,) = [e.kernel for e in found.entries if isinstance(e.kernel, Launch)]
        return launch.inner

    assert [inner(np.int8, chosen) for chosen in (1, 2, 4)] == [2, 20, 20]
    assert [inner(np.int16, chosen) for chosen in (1, 2, 4)] == [2, 2, 20]
    assert inner(np.float32, 4) == 2
