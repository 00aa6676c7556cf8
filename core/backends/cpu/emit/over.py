"""Rows that are written where they were read, and end with a part of a vector.

A store with a mask counts as one of a whole vector for the loads that follow: that of
the next row, which begins inside of it, waits until it has reached the cache, so that
the rows run one at a time. Parts of vectors are stored in pieces there, which reach no
further than what they write. Elsewhere masks are cheaper, and so they are without
registers for them (AVX2), where loads don't wait so.
"""

from __future__ import annotations

import numpy as np

from treadle.backends.cpu.emit.access import Arguments, read, store, to_memory
from treadle.backends.cpu.emit.builder import Builder
from treadle.backends.cpu.emit.lanes import Value, has_mask_registers
from treadle.backends.cpu.run.shared import SHARED
from treadle.kernels.nest import CONTIGUOUS, Nest


def written_over(
    b: Builder, nest: Nest, arguments: Arguments, lanes: int
) -> dict[int, str]:
    """By operand that is written along rows, an i64: of less elements than that are
    parts of vectors that are stored in pieces. None are (it is 0) unless one that is
    read begins where it begins. Emitted in the kernel's entry block."""
    if not has_mask_registers():
        return {}
    along = [
        k
        for k, o in enumerate(nest.operands)
        if o.kind == "array" and o.inner == CONTIGUOUS
    ]
    stores = {i.attr for i in nest.body if i.name == "store" and len(i.args) == 1}
    loads = {i.attr for i in nest.body if i.name == "load"}
    found = {}
    for k in along:
        others = [j for j in along if j in loads and _alike(nest, j, k)]
        if k not in stores or not others:
            continue
        base = read(b, arguments.accesses[k].base)
        over = "false"
        for j in others:
            other = read(b, arguments.accesses[j].base)
            over = b.op(f"or i1 {over}, {b.op(f'icmp eq ptr {base}, {other}')}")
        found[k] = b.op(f"select i1 {over}, i64 {lanes}, i64 0")
    return found


def _alike(nest: Nest, read: int, written: int) -> bool:
    sizes = (nest.operands[k].dtype.itemsize for k in (read, written))
    return len(set(sizes)) == 1


def store_part(
    b: Builder,
    address: str,
    value: Value,
    dtype: np.dtype,
    part: tuple[str, str, Value],
) -> None:
    """Stores the first elements of a vector, or all.

    part: of less than how many they are stored in pieces, how many there are (all if
    those are more), and their mask.
    """
    over, active, mask = part
    in_pieces = b.op(f"icmp slt i64 {active}, {over}")
    with b.when(in_pieces, seldom=True):
        _store_pieces(b, address, to_memory(value, dtype), dtype.itemsize, active)
    with b.when(b.op(f"xor i1 {in_pieces}, true")):
        store(b, address, value, dtype, mask)


def _store_pieces(
    b: Builder, address: str, value: Value, align: int, active: str
) -> None:
    """Stores the first `active` elements, less than all, in powers of two: by a
    function that kernels share."""
    symbol = f"@treadle.store_pieces.{value.kind}.{value.lanes}.{align}"
    if symbol not in b.library:
        inner = Builder()
        parameters = f"ptr %address, {value.type} %value, i64 %active"
        with inner.function(f"define internal void {symbol}({parameters}) {SHARED}"):
            given = Value(inner, "%value", value.kind, value.lanes)
            _write_pieces(inner, "%address", given, align, "%active")
            inner("ret void")
        b.library[symbol] = "\n".join(inner.lines)
    given = f"ptr {address}, {value.type} {value.text}, i64 {active}"
    b(f"call void {symbol}({given})")


def _write_pieces(
    b: Builder, address: str, value: Value, align: int, active: str
) -> None:
    size = value.lanes
    while (size := size // 2) > 0:
        here = b.op(f"and i64 {active}, {size}")
        has = b.op(f"icmp ne i64 {here}, 0")
        low = value.lane(0) if size == 1 else value.shuffle(list(range(size)))
        with b.when(has):
            b(f"store {low.type} {low.text}, ptr {address}, align {align}")
        if size > 1:
            high = value.shuffle(list(range(size, 2 * size)))
            rest = f"select i1 {has}, {low.type} {high.text}, {low.type} {low.text}"
            value = Value(b, b.op(rest), value.kind, size)
            address = b.op(f"getelementptr {value.kind}, ptr {address}, i64 {here}")
