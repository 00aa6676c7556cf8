"""Row nests with few elements a row: vectors go across rows.

One vector holds an element of as many rows as it has lanes, so that nothing is left
empty, and a row ends without combining lanes. Arrays are read and written as turned
blocks (`turn.py`). Sums are added up in the order in which `row.py` does, so that it
makes no difference to a result which of the two has run: a lane of that is a *slot*
here, slots are combined as lanes are.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import numpy as np

from treadle.backends.cpu.emit.access import Arguments, Word, load, read, store
from treadle.backends.cpu.emit.body import Body, Frame, carried, reduction_of, renamed
from treadle.backends.cpu.emit.builder import Builder
from treadle.backends.cpu.emit.lanes import Value, host_lanes
from treadle.backends.cpu.emit.reduce import Reduction
from treadle.backends.cpu.emit.row import COPIES, unrolling
from treadle.backends.cpu.emit.turned import (
    TurnedArrays,
    kept_dtype,
    may_be_turned,
    part_dtypes,
    turned_arguments,
    turned_plan,
    vector_at,
)
from treadle.dims import is_dim
from treadle.fuse.lowering.launches import Launch
from treadle.kernels.lower import Sweep, is_reduction, schedule
from treadle.kernels.nest import BROADCAST, Nest

_STACK = 1 << 16
"""Bytes that turned blocks may take."""
_IN_REGISTERS = 8
"""Slots that are combined without storing what comes between."""


def most_columns(lanes: int) -> int:
    """The longest rows that vectors go across."""
    return 3 * lanes // 2


def across_spans(nest: Nest, lanes: int) -> tuple[tuple[int, int], ...]:
    """Lengths of rows (more than one, up to the other) that vectors go across, because
    vectors along them would be too empty: a quarter of them, or half where a row costs
    hardly more than its moves. The first sweep of rows longer than that might be
    unrolled in `row.py`, and add up in another order: exact ones have none."""
    reductions = [
        reduction_of(nest, i) for i, x in enumerate(nest.body) if is_reduction(x)
    ]
    if all(r.is_exact for r in reductions):
        # Ends of rows take longest where places are compared as well.
        longer = any(r.with_index for r in reductions)
        return ((0, lanes + longer * lanes // 4),)
    if all(unrolling(nest, sweep) == COPIES for sweep in schedule(nest).sweeps):
        return ((0, lanes // 2),)
    return ((0, 3 * lanes // 4), (lanes, most_columns(lanes)))


@lru_cache(maxsize=4096)
def goes_across(nest: Nest, lanes: int) -> bool:
    """Whether there is code for vectors across the rows of this nest."""
    return may_be_turned(nest) and _Blocks.stack(nest, lanes) <= _STACK


def may_go_across(launch: Launch) -> bool:
    """Whether this launch, with whatever sizes it gets, may run that code."""
    nest, lanes = launch.nest, host_lanes()
    if not launch.outer or not goes_across(nest, lanes):
        return False
    columns, rows = launch.inner, launch.outer[-1]
    spans = across_spans(nest, lanes)
    few = is_dim(columns) or any(above < columns <= most for above, most in spans)
    return few and (is_dim(rows) or rows >= lanes)


class _Blocks:
    """The memory of a task: turned blocks of arrays and of kept values, and slots."""

    def __init__(self, b: Builder, nest: Nest, lanes: int) -> None:
        self.b, self.lanes = b, lanes
        columns = most_columns(lanes)

        def block(dtype: np.dtype, count: int) -> str:
            return b.op(f"alloca i8, i64 {count * lanes * dtype.itemsize}, align 64")

        self.arrays = {
            k: block(o.dtype, 1 if o.inner == BROADCAST else columns)
            for k, o in enumerate(nest.operands)
            if o.kind == "array" and not o.gathers
        }
        self.kept = {
            i: block(kept_dtype(nest.body[i].dtype), columns)
            for i in schedule(nest).kept
        }
        self.slots = {
            i: [block(dtype, lanes) for dtype in part_dtypes(nest, nest.body[i])]
            for i, instr in enumerate(nest.body)
            if is_reduction(instr) and not reduction_of(nest, i).is_exact
        }

    @staticmethod
    def stack(nest: Nest, lanes: int) -> int:
        """Bytes of all that."""
        columns = most_columns(lanes)
        total = sum(
            o.dtype.itemsize * (1 if o.inner == BROADCAST else columns)
            for o in nest.operands
            if o.kind == "array" and not o.gathers
        )
        kept = [kept_dtype(nest.body[i].dtype) for i in schedule(nest).kept]
        total += columns * sum(d.itemsize for d in kept)
        for i, instr in enumerate(nest.body):
            if is_reduction(instr) and not reduction_of(nest, i).is_exact:
                total += lanes * sum(
                    d.itemsize for d in part_dtypes(nest, nest.body[i])
                )
        return total * lanes


class AcrossSweeps:
    """Emits rows of a row nest, as many at a time as vectors have lanes. Made in the
    kernel's entry block."""

    def __init__(
        self, b: Builder, nest: Nest, arguments: Arguments, lanes: int
    ) -> None:
        self.b, self.lanes, self.rows = b, lanes, nest
        self.plan, self.columns = turned_plan(nest), arguments.inner
        self.nest = self.plan.nest
        self.arguments = turned_arguments(b, arguments, self.nest)
        self.body = Body(b, self.plan, self.arguments, lanes)
        self.blocks = _Blocks(b, nest, lanes)
        self.arrays = TurnedArrays(self.body, self.blocks.arrays, self.columns)
        self.slots = self._slot_count()
        self.once = across_spans(nest, lanes)[-1][1] <= lanes

    def _slot_count(self) -> str:
        """The power of two that has a slot for each element of a row, and no more than
        one for each lane: others would stay as they are, and add nothing."""
        b = self.b
        signature = "i64 @llvm.ctlz.i64(i64, i1)"
        b.declare(signature)
        some = b.op(f"icmp sgt i64 {self.columns}, 1")
        before = b.op(f"sub i64 {self.columns}, 1")
        before = b.op(f"select i1 {some}, i64 {before}, i64 0")
        zeros = b.op(f"call i64 @llvm.ctlz.i64(i64 {before}, i1 false)")
        return b.least(
            b.op(f"shl i64 1, {b.op(f'sub i64 64, {zeros}')}"), str(self.lanes)
        )

    def run(self, start: list[str], first: str, last: str) -> str:
        """Emits rows first..last of those that start at these positions, if they are
        short, but for the last ones that are not as many as lanes; returns the first
        row that is left."""
        b = self.b
        is_short = "false"
        for above, most in across_spans(self.rows, self.lanes):
            longer = b.op(f"icmp sgt i64 {self.columns}, {above}")
            inside = b.op(f"icmp sle i64 {self.columns}, {most}")
            inside = b.op(f"and i1 {longer}, {inside}")
            is_short = b.op(f"or i1 {is_short}, {inside}")
        span = start, first, last
        return self.arrays.groups(self.plan, span, is_short, self._sweep)

    def _sweep(self, sweep: Sweep, held: Frame) -> None:
        b = self.b
        self.body.prepare(sweep, held)
        reductions = [(i, self.body.reduction(i)) for i in sweep.reductions]
        exact = [(i, r) for i, r in reductions if r.is_exact]
        others = [(i, r) for i, r in reductions if not r.is_exact]
        self._begin(others)
        first = [p for _, r in exact for p in r.identity_of_each(b, self.lanes)]
        with b.carrying("0", self.columns, "1", carried(first)) as turn:
            frame = self._column(sweep, held, turn.index)
            before = iter(renamed(first, turn.values))
            for i, r in exact:
                old = [next(before) for _ in range(r.width)]
                new = self.body.added(i, frame, 0, self.lanes, turn.index, old)
                turn.next += [p.text for p in new]
            for i, r in others:
                self._add(i, r, frame, turn.index)
        totals = iter(renamed(first, turn.values))
        for i, r in exact:
            total = [next(totals) for _ in range(r.width)]
            held.values[i] = [self.body.settled(i, total[-1])]
        self._combine(others)
        for i, _ in others:
            held.values[i] = [self.body.settled(i, self._slot(i, "0")[-1])]

    def _column(self, sweep: Sweep, held: Frame, column: str) -> Frame:
        """Emits what a sweep computes of a column."""
        frame = Frame(self._moved(held.positions, column), 1, held.index, parent=held)
        for i in sweep.restores:
            place, dtype = self._kept(i, column)
            frame.values[i] = [load(self.b, place, dtype, self.lanes, None)]
        for i in sweep.body:
            self.arrays.run(i, frame, column)
        for i in sweep.saves:
            place, dtype = self._kept(i, column)
            store(self.b, place, frame.get(i, 0, self.lanes), dtype, None)
        return frame

    def _kept(self, i: int, column: str) -> tuple[str, np.dtype]:
        dtype = kept_dtype(self.nest.body[i].dtype)
        return vector_at(self.b, self.lanes, self.blocks.kept[i], dtype, column), dtype

    def _add(self, i: int, r: Reduction, frame: Frame, column: str) -> None:
        """Adds a column to its slot."""
        slot = self.b.op(f"and i64 {column}, {self.lanes - 1}")
        old = r.identity(self.b, self.lanes)
        if not self.once:
            fresh = Value(self.b, column, "i64", 1).compare("slt", self.lanes)
            old = r.masked(fresh, old, self._slot(i, slot))
        self._put(i, slot, self.body.added(i, frame, 0, self.lanes, column, old))

    def _moved(self, positions: Sequence[Word | str], column: str) -> list[Word | str]:
        """The positions of what is not read from blocks."""
        moved = list(positions)
        for k, access in enumerate(self.arguments.accesses):
            if access.operand.mid and k not in self.blocks.arrays:
                offset = self.b.op(f"mul i64 {column}, {read(self.b, access.mid[0])}")
                moved[k] = access.moved(self.b, positions[k], offset)
        return moved

    # Slots

    def _begin(self, reductions: list[tuple[int, Reduction]]) -> None:
        """Fills the slots that nothing else fills."""
        if not reductions:
            return
        with self.b.loop(self.columns, self.slots) as slot:
            for i, r in reductions:
                self._put(i, slot, r.identity(self.b, self.lanes))

    def _combine(self, reductions: list[tuple[int, Reduction]]) -> None:
        """Combines slots as `Reduction.across_lanes` does lanes: halves, then halves of
        that."""
        if not reductions:
            return
        b, half = self.b, self.lanes // 2
        while half > _IN_REGISTERS // 2:
            with (
                b.when(b.op(f"icmp sgt i64 {self.slots}, {half}")),
                b.loop("0", str(half)) as slot,
            ):
                other = b.op(f"add i64 {slot}, {half}")
                for i, r in reductions:
                    low, high = self._slot(i, slot), self._slot(i, other)
                    self._put(i, slot, r.combine(low, high))
            half //= 2
        count = 2
        while count <= 2 * half:
            how = "sge" if count == 2 * half else "eq"
            with b.when(b.op(f"icmp {how} i64 {self.slots}, {count}")):
                for i, r in reductions:
                    parts = [self._slot(i, str(k)) for k in range(count)]
                    while len(parts) > 1:
                        middle = len(parts) // 2
                        pairs = zip(parts[:middle], parts[middle:], strict=True)
                        parts = [r.combine(x, y) for x, y in pairs]
                    self._put(i, "0", parts[0])
            count *= 2

    def _slot(self, i: int, number: str) -> list[Value]:
        found = []
        for block, dtype in zip(
            self.blocks.slots[i], part_dtypes(self.rows, self.rows.body[i]), strict=True
        ):
            place = vector_at(self.b, self.lanes, block, dtype, number)
            found.append(load(self.b, place, dtype, self.lanes, None))
        return found

    def _put(self, i: int, number: str, parts: list[Value]) -> None:
        for part, block, dtype in zip(
            parts,
            self.blocks.slots[i],
            part_dtypes(self.rows, self.rows.body[i]),
            strict=True,
        ):
            store(
                self.b,
                vector_at(self.b, self.lanes, block, dtype, number),
                part,
                dtype,
                None,
            )
