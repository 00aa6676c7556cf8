"""Rows that are written where they were read, and end with a part of a vector.

A store with a mask counts as one of a whole vector for the loads that follow: that of
the next row, which begins inside of it, waits until it has reached the cache (40 cycles
on Zen 4). So neighbouring rows don't run one after the other there.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from treadle.backends.cpu.emit.access import Arguments, read
from treadle.backends.cpu.emit.builder import Builder
from treadle.backends.cpu.emit.lanes import has_mask_registers
from treadle.kernels.nest import CONTIGUOUS, Nest

_APART = 2
"""The logarithm of how many rows, far from each other, run before their neighbours: few
enough for the 52 rows of a block of a product."""


def goes_apart(
    b: Builder, nest: Nest, arguments: Arguments, columns: str, lanes: int
) -> str | None:
    """An i1: whether rows of so many columns end with a part of a vector, and are
    written where they are read. None if that can't be."""
    if nest.serial or not has_mask_registers():
        return None
    along = {
        k
        for k, o in enumerate(nest.operands)
        if o.kind == "array" and o.inner == CONTIGUOUS
    }
    stores = {i.attr for i in nest.body if i.name == "store" and len(i.args) == 1}
    loads = {i.attr for i in nest.body if i.name == "load"}
    over: str | None = None
    for k in sorted(along & stores):
        base = read(b, arguments.accesses[k].base)
        for j in sorted(along & loads):
            if nest.operands[j].dtype.itemsize != nest.operands[k].dtype.itemsize:
                continue
            other = read(b, arguments.accesses[j].base)
            same = b.op(f"icmp eq ptr {base}, {other}")
            over = same if over is None else b.op(f"or i1 {over}, {same}")
    if over is None:
        return None
    part = b.op(f"and i64 {columns}, {lanes - 1}")
    return b.op(f"and i1 {over}, {b.op(f'icmp ne i64 {part}, 0')}")


@contextmanager
def rounds(
    b: Builder, first: str, last: str, apart: str | None
) -> Iterator[tuple[str, str]]:
    """Runs the body for rounds of the rows first..last, each with the row that a round
    begins with, and how far its rows lie from each other: a single round of all rows,
    one after the other, unless the i1 `apart` says otherwise."""
    if apart is None:
        yield first, "1"
        return
    count = b.op(f"sub i64 {last}, {first}")
    each = b.op(f"lshr i64 {b.op(f'add i64 {count}, {(1 << _APART) - 1}')}, {_APART}")
    step = b.op(f"select i1 {apart}, i64 {each}, i64 1")
    with b.loop(first, b.op(f"add i64 {first}, {step}")) as row:
        yield row, step
