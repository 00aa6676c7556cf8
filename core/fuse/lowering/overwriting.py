"""Which values others may be written over: those that nothing reads any more.

A scatter's result begins as a copy of its operand. Where that is read for the last time
before, both can be one memory, and there is nothing to copy: a table that a loop
carries is written into, whatever else an iteration has read of it. And so is a state
whose next value each element makes of its own: one memory stays in nearer caches than
two that take turns.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence

from treadle.dims import hint
from treadle.fuse.dataflow import Dataflow
from treadle.fuse.lowering.launches import (
    Calls,
    Choose,
    Copy,
    HostCall,
    Kernel,
    KernelEntry,
    Kernels,
    Launch,
    ProductKernel,
    Repeat,
    RepeatWhile,
    Sort,
    Within,
    overwrites,
)
from treadle.ir.graph import Atom, Var

Memory = Mapping[Var, Within]

LARGE = 1 << 14
"""Bytes of a state from which on one memory is better than two: of less, both are in
the nearest cache, and kernels may run beside those that read the last one."""


def written_over(
    body: Kernels, carried: Sequence[Var], outs: Sequence[Atom]
) -> list[bool]:
    """Which carries of a loop can be updated in place: nothing reads this one once the
    next one is being written, but for what is written there."""
    within = body.within
    begun: dict[Atom, tuple[Atom, int]] = {}
    first: dict[Atom, int] = {}
    for at, entry in enumerate(body.entries):
        for v in writes(entry.kernel):
            first.setdefault(whole(v, within), at)
        if entry.begins is not None:
            old, new = (
                whole(a, within) for a in (entry.begins, target_of(entry.kernel))
            )
            # What shares the result's memory already has been copied to it before.
            if old is not new:
                begun[new] = old, at
    last = _last_reads(body.entries, within)
    results = [whole(a, within) for a in body.results]
    found = []
    for v, out in zip(carried, outs, strict=True):
        memory = whole(out, within)
        at = first.get(memory, -1)
        end = last.get(v, -1)
        source, begins = begun.get(memory, (None, -1))
        here = source is v and end <= begins
        if not here and hint(v.type.nbytes) >= LARGE:
            here = end < at
            if end == at >= 0:
                here = _reads_there(body.entries[at].kernel, v, memory, within)
        found.append(here and v not in results)
    return found


def _reads_there(kernel: Kernel, v: Var, out: Atom, within: Memory) -> bool:
    """Whether a kernel reads of `v` only what it then writes of `out`."""
    if not isinstance(kernel, Launch):
        return False
    stores = [k for k, b in enumerate(kernel.bindings) if b.store and b.atom is out]
    loads = [
        k
        for k, b in enumerate(kernel.bindings)
        if b.atom is not None and not b.store and whole(b.atom, within) is v
    ]
    if len(stores) != 1 or any(kernel.bindings[k].atom is not v for k in loads):
        return False
    return overwrites(kernel, stores[0], loads)


def share_scattered(
    entries: Sequence[KernelEntry],
    within: dict[Var, Within],
    flow: Dataflow,
    results: Collection[Atom],
) -> None:
    """Gives what a scatter writes over, of values made here, the memory of its
    result."""
    last = _last_reads(entries, within)
    kept = {whole(a, within) for a in results} | set(flow.graph.inputs)
    for at, entry in enumerate(entries):
        if not isinstance(entry.begins, Var):
            continue
        v, out = entry.begins, target_of(entry.kernel)
        if v in within or v in kept or out in within or flow.orders.get(v):
            continue
        # Another scatter of it begins later.
        if v in flow.maker and last.get(v, at) <= at:
            within[v] = Within(out)


def _last_reads(entries: Sequence[KernelEntry], within: Memory) -> dict[Atom, int]:
    """The last entry that reads a value's memory, if only to begin as it."""
    return {
        whole(a, within): at
        for at, entry in enumerate(entries)
        for a in (*reads(entry.kernel), entry.begins)
        if a is not None
    }


def target_of(kernel: Kernel) -> Var:
    """What a kernel that copies writes."""
    if isinstance(kernel, Copy):
        return kernel.target
    assert isinstance(kernel, Launch)
    (target,) = [b.atom for b in kernel.bindings if b.store]
    assert isinstance(target, Var)
    return target


def whole(a: Atom, within: Memory) -> Atom:
    """The value in whose memory a value is."""
    while isinstance(a, Var) and a in within:
        a = within[a].atom
    return a


def reads(kernel: Kernel) -> Iterator[Atom]:
    """What a kernel reads, and what those that it runs are given."""
    if isinstance(kernel, Launch):
        yield from [b.atom for b in kernel.bindings if b.atom and not b.store]
    elif isinstance(kernel, ProductKernel):
        yield from (kernel.a[0], kernel.b[0])
        if kernel.epilogue is not None:
            yield from reads(kernel.epilogue)
    elif isinstance(kernel, Sort):
        yield kernel.keys
    elif isinstance(kernel, Copy):
        yield from [] if kernel.source is None else [kernel.source]
    elif isinstance(kernel, HostCall | Calls):
        yield from kernel.operands
    elif isinstance(kernel, Repeat):
        yield from (*kernel.consts, *kernel.carries.init, *kernel.rows)
    elif isinstance(kernel, RepeatWhile):
        yield from (*kernel.test_consts, *kernel.body_consts, *kernel.carries.init)
    else:
        assert isinstance(kernel, Choose)
        yield from (kernel.which, *kernel.operands)


def writes(kernel: Kernel) -> Iterator[Var]:
    """What a kernel puts into memory."""
    if isinstance(kernel, ProductKernel):
        yield kernel.c
        if kernel.epilogue is not None:
            yield from writes(kernel.epilogue)
    elif isinstance(kernel, Launch):
        yield from [b.atom for b in kernel.bindings if b.store]  # type: ignore[misc]
    elif isinstance(kernel, Sort):
        yield kernel.out
    elif isinstance(kernel, Copy):
        yield kernel.target
    elif isinstance(kernel, Repeat):
        yield from (*kernel.carries.results, *kernel.new_rows)
    elif isinstance(kernel, RepeatWhile):
        yield from kernel.carries.results
    else:
        yield from kernel.results
