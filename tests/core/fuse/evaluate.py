"""Runs nests, and whole Kernels, in NumPy: each value has memory of its own, and there
is no Plan. Memory starts as NaN (bytes of ones)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tests.core.fuse.graphs import traced
from treadle.backends.devices import TARGETS
from treadle.backends.reference import nests, products
from treadle.backends.reference.memory import Where
from treadle.fuse.check import check_groups
from treadle.fuse.grouping.group import group
from treadle.fuse.groups import Groups
from treadle.fuse.lowering.check import check_kernels
from treadle.fuse.lowering.launches import (
    Choose,
    Copy,
    HostCall,
    Kernel,
    Kernels,
    Launch,
    ProductKernel,
    Repeat,
    RepeatWhile,
    Sort,
)
from treadle.fuse.lowering.lower import lower
from treadle.ir.graph import Atom, Lit, Var
from treadle.ir.walk import follow
from treadle.passes.pipeline import optimise
from treadle.run.eager import run as run_op


class Memory:
    """The bytes of values, allocated when they are first asked for."""

    def __init__(self, within: Any = None) -> None:
        self.within = within or {}
        self.bytes: dict[Var, np.ndarray] = {}

    def at(self, a: Atom, offset: int = 0) -> Where:
        """Where a value begins, plus bytes."""
        if isinstance(a, Lit):
            return Where(np.ascontiguousarray(a.value).reshape(-1).view("u1"), offset)
        if a in self.within:
            whole, start = self.within[a]
            return self.at(whole, start + offset)
        if a not in self.bytes:
            self.bytes[a] = np.full(a.type.nbytes, 0xFF, np.uint8)
        return Where(self.bytes[a], offset)

    def get(self, a: Atom, as_type: Any = None) -> np.ndarray:
        t = as_type or a.type
        return self.at(a).view(t.dtype, t.shape)

    def put(self, v: Var, value: Any) -> None:
        self.get(v)[...] = value

    def launch(self, launch: Launch) -> None:
        """Runs a nest."""
        nests.run(
            launch,
            [
                b.atom and self.at(b.atom, b.offset * o.dtype.itemsize)
                for b, o in zip(launch.bindings, launch.nest.operands, strict=True)
            ],
        )

    def product(self, p: ProductKernel) -> None:
        a, b = (self.at(x, n * x.type.dtype.itemsize) for x, n in (p.a, p.b))
        products.run(p, a, b, self.at(p.c))
        if p.epilogue is not None:
            self.launch(p.epilogue)


def run(kernels: Kernels, args: Sequence[Any]) -> list[np.ndarray]:
    """The results of a program."""
    memory = Memory(kernels.within)
    for v, value in zip(kernels.inputs, args, strict=True):
        memory.put(v, np.reshape(value, v.type.shape))
    for entry in kernels.entries:
        _RUN[type(entry.kernel)](memory, entry.kernel)
    return [memory.get(a).copy() for a in kernels.results]


def meant(graph: Any, args: Sequence[Any]) -> list[np.ndarray]:
    """What a graph means: each op on NumPy arrays."""
    with np.errstate(all="ignore"):
        out = follow(graph, args, lambda eq, xs: run_op(eq.op, xs, eq.params))
    return [np.asarray(x) for x in out]


def agrees(function: Callable[..., Any], *args: Any) -> Groups:
    """Asserts that a function's groups and kernels are sound, and that these give what
    its graph means."""
    target = TARGETS["cpu"]
    graph = optimise(traced(function, *args), target)
    groups = group(graph, target.lowering)
    check_groups(groups)
    kernels = lower(groups)
    check_kernels(kernels)
    for a, b in zip(run(kernels, args), meant(graph, args), strict=True):
        np.testing.assert_allclose(a.reshape(b.shape), b, 1e-4, 1e-4)
    return groups


def _sort(memory: Memory, sort: Sort) -> None:
    keys = memory.get(sort.keys).reshape(sort.rows, sort.length)
    places = np.argsort(keys, -1, kind="stable")[:, : sort.places]
    memory.put(sort.out, places.reshape(sort.out.type.shape))


def _copy(memory: Memory, copy: Copy) -> None:
    zero = copy.source is None
    memory.put(copy.target, 0 if zero else memory.get(copy.source, copy.target.type))


def _host(memory: Memory, call: HostCall) -> None:
    given = [memory.get(a, t) for a, t in zip(call.operands, call.types[0])]  # noqa: B905
    for v, x in zip(call.results, run_op(call.op, given, call.params), strict=True):
        memory.put(v, x)


def _begun(memory: Memory, kernel: Any) -> list[Any]:
    return [
        np.broadcast_to(memory.get(a), v.type.shape)
        if not a.type.ndim
        else memory.get(a, v.type)
        for a, v in zip(kernel.carries.init, kernel.carries.results, strict=True)
    ]


def _repeat(memory: Memory, kernel: Repeat) -> None:
    consts = [memory.get(a) for a in kernel.consts]
    carries, n = _begun(memory, kernel), kernel.length
    rows = [memory.get(a).reshape(n, -1) for a in kernel.rows]
    new = [np.empty(v.type.shape, v.type.dtype) for v in kernel.new_rows]
    for i in reversed(range(n)) if kernel.reverse else range(n):
        out = run(kernel.body, [*consts, *carries, *(x[i] for x in rows)])
        carries = out[: len(carries)]
        for y, row in zip(new, out[len(carries) :], strict=True):
            y[i] = row.reshape(y.shape[1:])
    for v, x in zip(kernel.carries.results, carries, strict=True):
        memory.put(v, x.reshape(v.type.shape))
    for v, y in zip(kernel.new_rows, new, strict=True):
        memory.put(v, y)


def _while(memory: Memory, kernel: RepeatWhile) -> None:
    consts = [memory.get(a) for a in kernel.test_consts]
    others = [memory.get(a) for a in kernel.body_consts]
    carries = _begun(memory, kernel)
    while run(kernel.test, [*consts, *carries])[0]:
        carries = run(kernel.body, [*others, *carries])
    for v, x in zip(kernel.carries.results, carries, strict=True):
        memory.put(v, x.reshape(v.type.shape))


def _choose(memory: Memory, kernel: Choose) -> None:
    which = int(memory.get(kernel.which))
    branch = kernel.branches[min(max(which, 0), len(kernel.branches) - 1)]
    found = run(branch, [memory.get(a) for a in kernel.operands])
    for v, x in zip(kernel.results, found, strict=True):
        memory.put(v, x.reshape(v.type.shape))


_RUN: dict[type[Kernel], Callable[[Memory, Any], None]] = {
    Launch: Memory.launch,
    ProductKernel: Memory.product,
    Sort: _sort,
    HostCall: _host,
    Copy: _copy,
    Repeat: _repeat,
    RepeatWhile: _while,
    Choose: _choose,
}
