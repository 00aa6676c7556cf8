"""Row nests with short rows: what happens once a row happens for several rows at once.

Each row's own sweeps are those of `row.py`, but what they leave for each lane is put
aside until there are as many rows as lanes. Their lanes are then combined all together:
a vector takes halves of two rows, then quarters of four, and so on. The order is that
of `Reduction.across_lanes`, so that it makes no difference to a result how a row has
run. What follows until the next sweep runs on vectors with one element a row.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from treadle.backends.cpu.emit.access import Arguments, load, read, store
from treadle.backends.cpu.emit.across import may_go_across
from treadle.backends.cpu.emit.body import Body, Frame
from treadle.backends.cpu.emit.builder import Builder
from treadle.backends.cpu.emit.lanes import Value, host_lanes, register_kind, type_name
from treadle.backends.cpu.emit.reduce import Parts, Reduction
from treadle.backends.cpu.emit.row import RowSweeps
from treadle.backends.cpu.emit.turned import (
    TurnedArrays,
    kept_dtype,
    may_be_turned,
    part_dtypes,
    turned_arguments,
    turned_plan,
    vector_at,
)
from treadle.backends.cpu.run.shared import MANY, SHARED
from treadle.dims import is_dim
from treadle.fuse.lowering.launches import Launch
from treadle.kernels.lower import Sweep, schedule
from treadle.kernels.nest import BROADCAST, Nest

MOST_COLUMNS = 64
"""The longest rows that run so: of longer ones the ends are a smaller part (a tenth of
softmax over 128), which this code is not worth: LLVM takes 20 to 30 ms for it."""
_BESIDE = 4
"""Rows whose loops are one, if little happens in each."""
_NEAR = 4
"""Lanes of 128 bits, if those are floats."""
_STACK = 1 << 16
"""Bytes that kept values may take."""


@lru_cache(maxsize=4096)
def goes_together(nest: Nest, lanes: int) -> bool:
    """Whether there is code for several rows of this nest at once."""
    kept = (nest.body[i].dtype for i in schedule(nest).kept)
    row = MOST_COLUMNS * sum(kept_dtype(d).itemsize for d in kept)
    return may_be_turned(nest) and lanes * row <= _STACK


def entry_for(launch: Launch) -> str:
    """The entry of `emit` that suits this launch, with whatever sizes it gets."""
    nest, lanes = launch.nest, host_lanes()
    if not launch.outer or not goes_together(nest, lanes):
        return "few" if may_go_across(launch) else "task"
    columns, rows = launch.inner, launch.outer[-1]
    if not is_dim(rows) and rows < lanes:
        return "task"
    if may_go_across(launch):
        return "open" if is_dim(columns) else "few"
    return "short" if is_dim(columns) or columns <= MOST_COLUMNS else "task"


class SeveralRows:
    """Emits rows of a row nest, as many at a time as vectors have lanes. Made in the
    kernel's entry block."""

    def __init__(
        self, b: Builder, nest: Nest, arguments: Arguments, lanes: int
    ) -> None:
        self.b, self.lanes, self.nest = b, lanes, nest
        self.plan, self.arguments = schedule(nest), arguments
        turned = turned_plan(nest)
        body = Body(b, turned, turned_arguments(b, arguments, turned.nest), lanes)
        once = [k for k, o in enumerate(nest.operands) if self._is_once_a_row(k)]
        arrays = {k: self._block(nest.operands[k].dtype) for k in once}
        self.across, self.arrays = body, TurnedArrays(body, arrays, arguments.inner)
        self.given = {
            i: self._block(kept_dtype(nest.body[i].dtype)) for i in self._given()
        }
        self.ends = {
            i: [self._block(d, lanes) for d in part_dtypes(nest, nest.body[i])]
            for sweep in self.plan.sweeps
            for i in sweep.reductions
        }
        self.kept = {
            i: self._block(kept_dtype(nest.body[i].dtype), MOST_COLUMNS)
            for i in self.plan.kept
        }
        self.rows = RowSweeps(b, self.plan, arguments, lanes, scratch={})

    def _is_once_a_row(self, k: int) -> bool:
        operand = self.nest.operands[k]
        is_plain = operand.kind == "array" and not operand.gathers
        return is_plain and operand.inner == BROADCAST

    def _block(self, dtype: np.dtype, vectors: int = 1) -> str:
        nbytes = vectors * self.lanes * dtype.itemsize
        return self.b.op(f"alloca i8, i64 {nbytes}, align 64")

    def _used(self, sweep: Sweep) -> set[int]:
        """What a sweep needs of what is there before it: also the factors of products
        that are not rounded before they are added."""
        inside = {*sweep.body, *sweep.restores}
        terms = [self.nest.body[i].args[0] for i in sweep.reductions]
        users = (*sweep.body, *sweep.reductions, *terms)
        return {a for i in users for a in self.nest.body[i].args} - inside

    def _given(self) -> list[int]:
        """Of that, what differs from row to row."""
        found = set().union(*(self._used(sweep) for sweep in self.plan.sweeps))
        return sorted(i for i in found if self.across.plan.varying[i])

    def run(self, start: list[str], first: str, last: str) -> str:
        """Emits rows first..last of those that start at these positions, if they are
        short, but for the last ones that are not as many as lanes; returns the first
        row that is left."""
        b = self.b
        is_short = b.op(f"icmp sle i64 {self.arguments.inner}, {MOST_COLUMNS}")
        span = start, first, last
        return self.arrays.groups(self.plan, span, is_short, self._sweep)

    def _sweep(self, sweep: Sweep, held: Frame) -> None:
        b, lanes = self.b, self.lanes
        used = self._used(sweep)
        for i in used.intersection(self.given):
            dtype = kept_dtype(self.nest.body[i].dtype)
            store(b, self.given[i], held.get(i, 0, lanes), dtype, None)
        beside = _BESIDE if self.rows.is_light(sweep) and not self.kept else 1
        with b.loop("0", str(lanes), str(beside)) as first:
            numbers = [
                first,
                *(b.op(f"add i64 {first}, {n}") for n in range(1, beside)),
            ]
            frames = [self._frame(used, held, r) for r in numbers]
            self.rows.scratch = {i: self._kept_row(i, first) for i in self.kept}
            found = self.rows.totals(sweep, frames, self.arguments.inner)
            for r, totals in zip(numbers, found, strict=True):
                ends = [end for i in sweep.reductions for end in self._ends(i)]
                for (block, dtype), total in zip(ends, totals, strict=True):
                    store(b, vector_at(b, lanes, block, dtype, r), total, dtype, None)
        for i in sweep.reductions:
            reduction = self.rows.body.reduction(i)
            across = _called_across_rows if lanes >= MANY else _across_rows
            result = across(b, reduction, lanes, self._ends(i))
            held.values[i] = [self.across.settled(i, result)]

    def _frame(self, used: set[int], held: Frame, r: str) -> Frame:
        """Of the r-th of the rows: where its operands stand, and what is given."""
        b, row = self.b, self.b.op(f"add i64 {held.index}, {r}")
        frame = Frame(
            [
                access.moved(
                    b, position, b.op(f"mul i64 {row}, {read(b, access.outer[-1])}")
                )
                for access, position in zip(
                    self.arguments.accesses, held.positions, strict=True
                )
            ]
        )
        for i in used:
            frame.values[i] = [self._of_row(i, held, r)]
        return frame

    def _of_row(self, i: int, held: Frame, r: str) -> Value:
        if i not in self.given:
            return held.find(i)[0]
        dtype = kept_dtype(self.nest.body[i].dtype)
        offset = self.b.op(f"mul i64 {r}, {dtype.itemsize}")
        place = self.b.op(f"getelementptr i8, ptr {self.given[i]}, i64 {offset}")
        return load(self.b, place, dtype, 1, None)

    def _kept_row(self, i: int, r: str) -> str:
        size = MOST_COLUMNS * kept_dtype(self.nest.body[i].dtype).itemsize
        offset = self.b.op(f"mul i64 {r}, {size}")
        return self.b.op(f"getelementptr i8, ptr {self.kept[i]}, i64 {offset}")

    def _ends(self, i: int) -> Ends:
        dtypes = part_dtypes(self.nest, self.nest.body[i])
        return list(zip(self.ends[i], dtypes, strict=True))


Ends = list[tuple[str, np.dtype]]
"""Blocks of the parts of a reduction, a vector for each row."""


def _across_rows(b: Builder, r: Reduction, lanes: int, ends: Ends) -> Value:
    """The last part of `across_rows`."""
    rows = [
        [load(b, vector_at(b, lanes, at, d, str(k)), d, lanes, None) for at, d in ends]
        for k in range(lanes)
    ]
    return across_rows(r, rows)[-1]


def _called_across_rows(b: Builder, r: Reduction, lanes: int, ends: Ends) -> Value:
    """The same, by a function that many kernels share."""
    names = [r.name, r.dtype.name, *([r.index.name] if r.index else [])]
    symbol = f"@treadle.across_rows.{'.'.join(names)}.{lanes}"
    kind = register_kind(r.index or r.dtype)
    result = type_name(kind, lanes)
    if symbol not in b.library:
        inner = Builder()
        own = [(f"%block{n}", dtype) for n, (_, dtype) in enumerate(ends)]
        parameters = ", ".join([f"ptr {block}" for block, _ in own])
        signature = f"define internal {result} {symbol}({parameters}) {SHARED}"
        with inner.function(signature):
            found = _across_rows(inner, r, lanes, own)
            inner(f"ret {result} {found.text}")
        b.library[symbol] = "\n".join(inner.lines)
        b.declarations |= inner.declarations
    given = ", ".join([f"ptr {block}" for block, _ in ends])
    return Value(b, b.op(f"call {result} {symbol}({given})"), kind, lanes)


def across_rows(r: Reduction, rows: list[Parts]) -> Parts:
    """What `r.across_lanes` gives for each of as many rows as there are lanes."""
    count = rows[0][0].lanes
    order = [[k] for k in range(count)]
    width = count
    while width > 1:
        # Lanes of the same 128 bits meet more cheaply than others.
        group = count if width > _NEAR else min(count, _NEAR)
        low = [
            side * count + start + k
            for start in range(0, count, group)
            for side in (0, 1)
            for first in range(0, group, width)
            for k in range(first, first + width // 2)
        ]
        high = [k + width // 2 for k in low]
        pairs = list(zip(rows[::2], rows[1::2], strict=True))
        rows = [
            r.combine(
                *(
                    [x.shuffle(picks, y) for x, y in zip(*pair, strict=True)]
                    for picks in (low, high)
                )
            )
            for pair in pairs
        ]
        # Where a row's lanes begin tells which row it is.
        starts = low[:: width // 2]
        both = zip(order[::2], order[1::2], strict=True)
        order = [[(x + y)[at // width] for at in starts] for x, y in both]
        width //= 2
    (parts,), (numbers,) = rows, order
    natural = [numbers.index(k) for k in range(count)]
    return [p.shuffle(natural) for p in parts]
