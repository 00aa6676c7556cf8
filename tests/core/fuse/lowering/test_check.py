"""The checker of Kernels refuses each kind of mistake."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import treadle as td
import treadle.numpy as tnp
from tests.core.fuse.graphs import array, traced
from treadle.arraytype import ArrayType
from treadle.backends.devices import TARGETS
from treadle.errors import InternalError
from treadle.fuse.grouping.group import group
from treadle.fuse.lowering.check import check_kernels
from treadle.fuse.lowering.launches import (
    Copy,
    KernelEntry,
    Kernels,
    ProductKernel,
    Within,
)
from treadle.fuse.lowering.lower import lower
from treadle.ir.graph import Lit, Var
from treadle.passes.pipeline import optimise

TARGET = TARGETS["reference"]
X, W = array(3, 4), array(4, 5)


def lowered(function: Callable[..., Any], *args: Any) -> Kernels:
    graph = optimise(traced(function, *args), TARGET)
    return lower(group(graph, TARGET.lowering))


def refused(kernels: Kernels, why: str) -> None:
    with pytest.raises(InternalError, match=why):
        check_kernels(kernels)


def with_kernel(kernels: Kernels, n: int, kernel: Any) -> Kernels:
    entries = list(kernels.entries)
    entries[n] = entries[n]._replace(kernel=kernel)
    return kernels._replace(entries=tuple(entries))


def with_binding(kernels: Kernels, n: int, k: int, **changes: Any) -> Kernels:
    """With another operand k in the nest n, or in the epilogue of the product."""
    kernel: Any = kernels.entries[n].kernel
    launch = kernel.epilogue if isinstance(kernel, ProductKernel) else kernel
    bindings = list(launch.bindings)
    bindings[k] = bindings[k]._replace(**changes)
    launch = launch._replace(bindings=tuple(bindings))
    if isinstance(kernel, ProductKernel):
        return with_kernel(kernels, n, replace(kernel, epilogue=launch))
    return with_kernel(kernels, n, launch)


def rows() -> Kernels:
    """A row nest: exp(x) / sum(exp(x)), of an array that another nest stores."""

    def function(x: Any) -> Any:
        e = tnp.exp(tnp.cumsum(x, 1))
        return e / tnp.sum(e, 1)[:, None]

    kernels = lowered(function, X)
    assert len(kernels.entries) == 2
    return kernels


def dense() -> Kernels:
    (entry,) = (kernels := lowered(lambda x, w: x @ w + 1.0, X, W)).entries
    assert isinstance(entry.kernel, ProductKernel)
    return kernels


def test_what_is_right_passes() -> None:
    check_kernels(rows())
    check_kernels(dense())


def test_nothing_is_read_before_it_is_stored() -> None:
    kernels = rows()
    refused(kernels._replace(entries=kernels.entries[::-1]), "not stored yet")
    refused(kernels._replace(entries=kernels.entries[:1]), "before it is stored")
    kernels = dense()
    refused(kernels._replace(inputs=kernels.inputs[:1]), "not stored yet")


def test_all_elements_of_a_result_are_stored() -> None:
    kernels = rows()
    launch: Any = kernels.entries[1].kernel
    fewer = launch._replace(outer=(2,))
    refused(with_kernel(kernels, 1, fewer), "reads a value f32.3,4. before")
    first: Any = kernels.entries[0].kernel
    refused(with_kernel(kernels, 0, first._replace(outer=(2,))), "not stored yet")


def test_operands_stay_inside_of_their_memory() -> None:
    kernels = rows()
    launch: Any = kernels.entries[1].kernel
    last = len(launch.bindings) - 1
    for change in (
        {"offset": 1},
        {"offset": -1},
        {"strides": (5,)},
        {"strides": (-4,)},
    ):
        refused(with_binding(kernels, 1, last, **change), "leaves the memory")
        refused(with_binding(kernels, 1, 0, **change), "leaves the memory")
    kernels = dense()
    product: Any = kernels.entries[0].kernel
    off = replace(product, a=(product.a[0], 1))
    refused(with_kernel(kernels, 0, off), "leaves the memory")


def test_nothing_is_stored_twice() -> None:
    kernels = rows()
    entries = (*kernels.entries, kernels.entries[1])
    refused(kernels._replace(entries=entries), "stores elements of .* again")
    refused(with_binding(kernels, 1, -1, strides=(1,)), "twice")
    both = lowered(lambda x: (tnp.cumsum(x, 1), tnp.cumsum(x, 0)), X)
    same: Any = both.entries[0].kernel
    refused(
        with_binding(both, 1, -1, atom=same.bindings[-1].atom),
        "stores elements .* again",
    )


def test_inputs_are_not_stored_into() -> None:
    kernels = rows()
    refused(with_binding(kernels, 1, -1, atom=kernels.inputs[0]), "what it is given")


def test_nests_and_their_operands_fit() -> None:
    kernels = rows()
    launch: Any = kernels.entries[1].kernel
    nest = launch.nest
    for change, why in (
        ({"outer": (3, 1)}, "other loops"),
        ({"bindings": launch.bindings[1:]}, "other operands"),
        ({"nest": replace(nest, axis="outer")}, "nest axis"),
    ):
        refused(with_kernel(kernels, 1, launch._replace(**change)), why)
    refused(with_binding(kernels, 1, 0, strides=(4, 1)), "2 strides for operand 0")
    refused(with_binding(kernels, 1, 0, store=True), "otherwise than its nest")
    refused(with_binding(kernels, 1, 0, atom=None), "otherwise than its nest")
    other = Lit(np.zeros((3, 4)), ArrayType((3, 4), np.dtype("f8")))
    refused(with_binding(kernels, 1, 0, atom=other), "for one of float32")


def test_values_lie_inside_of_others() -> None:
    kernels = lowered(lambda x: tnp.concatenate([tnp.exp(x), tnp.sin(x)]), X)
    check_kernels(kernels)
    (first, second), whole = kernels.within, kernels.results[0]
    for offset in (-4, 52):
        refused(
            kernels._replace(
                within={first: Within(whole, offset), second: Within(whole)}
            ),
            "leaves the f32",
        )
    overlap = {first: Within(whole, 4), second: Within(whole, 48)}
    refused(kernels._replace(within=overlap), "again")
    refused(kernels._replace(results=(second,)), "part of another")
    circle = {first: Within(second), second: Within(first)}
    refused(kernels._replace(within=circle), "within itself")


def test_products_take_and_give_what_they_say() -> None:
    kernels = dense()
    product: Any = kernels.entries[0].kernel
    what = product.contraction
    for change, why in (
        ({"dtype": np.dtype("f8")}, "for one of float64"),
        ({"c": replace(what.c, row=4)}, "some elements twice"),
        ({"m": 2}, "some elements twice|others not"),
    ):
        changed = replace(product, contraction=replace(what, **change))
        refused(with_kernel(kernels, 0, changed), why)


def test_an_epilogue_reads_its_product() -> None:
    kernels = lowered(lambda x, w: (x @ w, x @ w + 1.0), X, W)
    check_kernels(kernels)
    refused(with_binding(kernels, 0, 0, offset=1), "leaves the memory")


def test_fills_come_first_and_fill_everything() -> None:
    kernels = lowered(lambda x: tnp.pad(tnp.exp(x), 1), X)
    check_kernels(kernels)
    refused(kernels._replace(entries=kernels.entries[::-1]), "partly stored")
    refused(kernels._replace(entries=kernels.entries[1:]), "before it is stored")
    fill, piece = kernels.entries
    refused(kernels._replace(entries=(fill, fill, piece)), "again")
    refused(kernels._replace(entries=(fill, piece, piece)), "again")


def test_scatters_have_something_to_write_into() -> None:
    kernels = lowered(lambda x: x.at[tnp.array([0, 1])].add(x[:2]), X)
    check_kernels(kernels)
    *first, _, scatter = kernels.entries
    refused(kernels._replace(entries=(*first, scatter)), "nothing was stored in before")


def test_copies_have_the_size_of_their_source() -> None:
    source, target = (Var(ArrayType((n,), np.dtype("f4"))) for n in (3, 4))
    kernels = Kernels((source,), (target,), (KernelEntry(Copy(source, target)),), {})
    refused(kernels, "copies f32.3. to f32.4.")
    refused(
        kernels._replace(inputs=(), entries=(KernelEntry(Copy(target, target)),)),
        "before",
    )


def test_orders_are_of_rows_of_unsigned_integers() -> None:
    kernels = lowered(lambda x: tnp.argsort(x, 1), X)
    check_kernels(kernels)
    (n,) = [n for n, e in enumerate(kernels.entries) if e.names == ("order",)]
    sort: Any = kernels.entries[n].kernel
    refused(with_kernel(kernels, n, sort._replace(keys=kernels.inputs[0])), "unsigned")
    refused(with_kernel(kernels, n, sort._replace(length=3)), "as 3 rows of 3")


def test_host_calls_get_the_types_that_they_say() -> None:
    kernels = lowered(lambda x: td.pure_callback(np.sort, x, tnp.exp(x)), X)
    check_kernels(kernels)
    call: Any = kernels.entries[-1].kernel
    other = ([ArrayType((2,), np.dtype("f4"))], call.types[1])
    refused(with_kernel(kernels, -1, call._replace(types=other)), "other types")
    refused(kernels._replace(entries=kernels.entries[1:]), "before it is stored")


def scan() -> Kernels:
    return lowered(lambda x: td.scan(lambda c, r: (c + r, c * 2), x[0], x), X)


def test_loops_fit_their_programs() -> None:
    kernels = scan()
    check_kernels(kernels)
    n = len(kernels.entries) - 1
    repeat: Any = kernels.entries[n].kernel
    body, carries = repeat.body, repeat.carries
    for change, why in (
        ({"rows": ()}, "other inputs"),
        ({"consts": repeat.rows}, "other inputs"),
        ({"new_rows": ()}, "other results"),
        ({"carries": carries._replace(init=())}, "other carries"),
        ({"carries": carries._replace(init=repeat.rows)}, "begins a carry"),
        ({"body": body._replace(results=body.results[::-1] * 2)}, "other results"),
        ({"body": body._replace(entries=body.entries[1:])}, "before it is stored"),
    ):
        refused(with_kernel(kernels, n, repeat._replace(**change)), why)
    refused(kernels._replace(entries=kernels.entries[-1:]), "before it is stored")


def test_whiles_and_branches_fit_their_programs() -> None:
    def function(x: Any) -> Any:
        d = td.while_loop(lambda d: d.sum() < 9, lambda d: d + 1, x)
        return td.cond(d.sum() > 0, lambda a: a + 1, tnp.sin, d)

    kernels = lowered(function, X)
    check_kernels(kernels)
    loop: Any = kernels.entries[0].kernel
    choose: Any = kernels.entries[-1].kernel
    for n, kernel, change, why in (
        (0, loop, {"test": loop.body}, "not one bool"),
        (0, loop, {"body": loop.test}, "other results"),
        (-1, choose, {"branches": ()}, "no branches"),
        (-1, choose, {"operands": ()}, "other inputs"),
        (-1, choose, {"results": ()}, "other results"),
    ):
        refused(with_kernel(kernels, n, kernel._replace(**change)), why)
    refused(
        kernels._replace(entries=kernels.entries[:1] + kernels.entries[-1:]), "before"
    )
