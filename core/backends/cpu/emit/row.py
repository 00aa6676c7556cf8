"""Row nests: one scalar prologue per sweep, then a vector loop over the row."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from treadle.backends.cpu.emit.access import Arguments, Word, load, store
from treadle.backends.cpu.emit.body import Body, Frame, carried, limit, renamed
from treadle.backends.cpu.emit.builder import Builder
from treadle.backends.cpu.emit.lanes import Value, half_name, has_mask_registers
from treadle.backends.cpu.emit.reduce import BLOCK_TURNS, Reduction, combined
from treadle.backends.cpu.emit.running import (
    along_lanes,
    carried_first,
    masked,
    rounds,
    settled,
)
from treadle.backends.cpu.emit.tasks import SCRATCH_LANES, scratch_sizes
from treadle.backends.cpu.emit.turns import goes_by_turns
from treadle.kernels.lower import NestOrder, Sweep, cost, is_running, schedule
from treadle.kernels.nest import PAIRED, Nest

COPIES = 4
"""Of short bodies in a turn of a loop."""
_LOOKED_UP = 4
"""Operands at places that data say for each whose elements are apart: of more, each of
which is long code and more work than a mask, there is a masked loop only."""


def unrolling(nest: Nest, sweep: Sweep) -> int:
    """Copies of the body per turn: more for short bodies, to hide latencies.

    0 for a masked loop only, which halves the compile time of long bodies, where masks
    cost nothing: they do where elements are narrow, or not side by side.
    """
    work = sum(cost(nest.body[i]) for i in sweep.body)
    if work <= 10:
        return COPIES
    if goes_by_turns(nest, sweep):
        return 2
    arrays = [o for o in nest.operands if o.kind == "array"]
    looked_up = sum(o.gathers > 0 for o in arrays)
    apart = sum(o.inner >= PAIRED for o in arrays if not o.gathers)
    if apart and looked_up > _LOOKED_UP * apart and has_mask_registers():
        return 0
    narrow = any(op.dtype.itemsize < 4 for op in nest.operands)
    any_apart = any(o.inner >= PAIRED for o in arrays)
    return 1 if work <= 28 or narrow or any_apart or not has_mask_registers() else 0


def has_single_vectors(nest: Nest, sweep: Sweep) -> bool:
    """Whether an elementwise row has, behind the turns of several vectors, single ones
    without a mask: masks are dear where there are no registers for them."""
    if has_mask_registers() or sweep.reductions:
        return False
    return unrolling(nest, sweep) > 1 and not goes_by_turns(nest, sweep)


def is_whole(nest: Nest, length: int, lanes: int) -> bool:
    """Whether rows of so many elements need no masks, and sums along them no more than
    one block."""
    sums = nest.axis == "inner" and any(s.reductions for s in schedule(nest).sweeps)
    most = BLOCK_TURNS * lanes if sums else length
    return 0 < length <= most and length % (COPIES * lanes) == 0


class Part(NamedTuple):
    """The first lanes of a vector: a mask of them, and how many they are; as a number
    in `few` where that is known."""

    mask: Value | None
    active: str
    few: int = 0


class RowSweeps:
    """Emits rows of a row nest. Made in the kernel's entry block.

    one: whether a row is known to be one vector, or a part of one. scratch: where the
    rows of kept values are, if not in the task's scratch. whole: whether what is run of
    a row is known to be so (`is_whole`).
    """

    def __init__(
        self,
        b: Builder,
        plan: NestOrder,
        arguments: Arguments,
        lanes: int,
        one: bool = False,
        scratch: dict[int, str] | None = None,
        whole: bool = False,
    ) -> None:
        self.b, self.plan, self.lanes, self.one = b, plan, lanes, one
        self.whole = whole
        self.nest = plan.nest
        self.body = Body(b, plan, arguments, lanes)
        self.scratch = scratch or {}
        if scratch is None and plan.kept:
            self.scratch = self._scratch_rows(arguments)

    def _scratch_rows(self, arguments: Arguments) -> dict[int, str]:
        """The address of every kept value's row in this task's scratch."""
        b = self.b
        offset = b.op(f"mul i64 %task, {arguments.scratch_bytes}")
        address = b.op(f"getelementptr i8, ptr {arguments.scratch}, i64 {offset}")
        raised = b.op(f"add i64 {arguments.inner}, {SCRATCH_LANES - 1}")
        length = b.op(f"and i64 {raised}, {-SCRATCH_LANES}")
        rows = {}
        for i, size in zip(self.plan.kept, scratch_sizes(self.nest), strict=True):
            rows[i] = address
            step = b.op(f"mul i64 {length}, {size}")
            address = b.op(f"getelementptr i8, ptr {address}, i64 {step}")
        return rows

    def row(self, positions: Sequence[Word | str], low: str, high: str) -> None:
        """Emits all sweeps over low..high of the row at `positions`."""
        held = Frame(positions)
        for s, sweep in enumerate(self.plan.sweeps):
            for i in self.plan.held[s]:
                self.body.run(i, held)
            self._sweep(sweep, held, low, high)
        for i in self.plan.held[-1]:
            self.body.run(i, held)

    @property
    def has_whole_vectors(self) -> bool:
        """Whether an elementwise row has code for vectors without a mask, too."""
        (sweep,) = self.plan.sweeps
        return self._copies(sweep) > 0

    def vector(
        self, positions: Sequence[Word | str], index: str, part: Part | None = None
    ) -> None:
        """Emits one vector of an elementwise row, from `index` on, or a part of it."""
        held = Frame(positions)
        (sweep,) = self.plan.sweeps
        for i in self.plan.held[0]:
            self.body.run(i, held)
        mask, active, few = part or Part(None, "")
        frame = Frame(held.positions, 1, index, mask, active, few, parent=held)
        self._turn(sweep, frame, [], [])

    def part(self, index: str, high: str) -> Part:
        """The lanes of a vector from `index` on that are below `high`."""
        frame = Frame([], 1, index)
        limit(self.b, frame, high, self.lanes)
        return Part(frame.mask, frame.active)

    def totals(self, sweep: Sweep, rows: list[Frame], high: str) -> list[list[Value]]:
        """Emits a sweep over 0..high of some rows, no more than a block of a sum;
        returns what its reductions leave of each row for each lane."""
        for held in rows:
            self.body.prepare(sweep, held)
        return self._span(sweep, rows, "0", high)

    def _copies(self, sweep: Sweep) -> int:
        """Vectors of a turn without masks, 0 if there is none."""
        return max(unrolling(self.nest, sweep), int(self.whole))

    def is_light(self, sweep: Sweep) -> bool:
        """Whether a turn takes hardly longer than what a loop does for it."""
        return unrolling(self.nest, sweep) == COPIES

    def _sweep(self, sweep: Sweep, held: Frame, low: str, high: str) -> None:
        self.body.prepare(sweep, held)
        if any(is_running(self.nest.body[i]) for i in sweep.body):
            self._running(sweep, held, high)
            return
        reductions = [self.body.reduction(i) for i in sweep.reductions]
        if self.one:
            parts = self._vector(sweep, held, high)
        elif any(r.rounds for r in reductions):
            parts = self._blocks(sweep, held, low, high)
        else:
            (parts,) = self._span(sweep, [held], low, high)
        done = iter(parts)
        for i, r in zip(sweep.reductions, reductions, strict=True):
            mine = [next(done) for _ in range(r.width)]
            held.values[i] = [self.body.settled(i, r.across_lanes(mine)[-1])]

    def _vector(self, sweep: Sweep, held: Frame, high: str) -> list[Value]:
        """Emits one turn from 0 to `high`, a number; returns the lanes' totals."""
        reductions = [self.body.reduction(i) for i in sweep.reductions]
        parts = [p for r in reductions for p in r.identity(self.b, self.lanes)]
        frame = Frame(held.positions, 1, "0", parent=held)
        if int(high) < self.lanes:
            frame = self._masked(held, "0", high)
            frame.few = int(high)
        return self._turn(sweep, frame, reductions, parts)

    def _blocks(self, sweep: Sweep, held: Frame, low: str, high: str) -> list[Value]:
        """Emits the turns over low..high block by block; returns the lanes' totals."""
        if self.whole:
            return self._span(sweep, [held], low, high)[0]
        b = self.b
        reductions = [self.body.reduction(i) for i in sweep.reductions]
        totals = [p for r in reductions for p in r.identity(b, self.lanes)]
        size = BLOCK_TURNS * max(self._copies(sweep), 1) * self.lanes
        with b.carrying(low, high, str(size), carried(totals)) as turn:
            end = b.least(b.op(f"add i64 {turn.index}, {size}"), high)
            (block,) = self._span(sweep, [held], turn.index, end)
            after = combined(reductions, renamed(totals, turn.values), block)
            turn.next = [p.text for p in after]
        return renamed(totals, turn.values)

    def _span(
        self, sweep: Sweep, rows: list[Frame], low: str, high: str
    ) -> list[list[Value]]:
        """Emits the turns over low..high of some rows; returns the lanes' totals of
        each."""
        b = self.b
        copies = self._copies(sweep)
        reductions = [self.body.reduction(i) for i in sweep.reductions]
        first = [p for r in reductions for p in r.identity(b, self.lanes)]
        if self.whole:
            return self._whole(sweep, rows, low, high, first)
        parts, middle = [first] * len(rows), low
        if copies:
            width = copies * self.lanes
            span = high if low == "0" else b.op(f"sub i64 {high}, {low}")
            middle = b.op(f"and i64 {span}, {-width}")
            middle = middle if low == "0" else b.op(f"add i64 {low}, {middle}")
            parts = self._whole(sweep, rows, low, middle, first)
            if has_single_vectors(self.nest, sweep):
                middle = self._single(sweep, rows, middle, high)
        flat = [p for row in parts for p in row]
        with b.carrying(middle, high, str(self.lanes), carried(flat)) as turn:
            before, count = renamed(flat, turn.values), len(first)
            masked = self._masked(rows[0], turn.index, high, near=copies > 0)
            for n, held in enumerate(rows):
                frame = replace(masked, parent=held, positions=held.positions)
                frame.values, frame.splats, frame.addresses = {}, {}, {}
                totals = before[n * count : (n + 1) * count]
                after = self._turn(sweep, frame, reductions, totals)
                turn.next += [p.text for p in after]
        done = renamed(flat, turn.values)
        return [done[n * count : (n + 1) * count] for n in range(len(rows))]

    def _whole(
        self, sweep: Sweep, rows: list[Frame], low: str, high: str, first: list[Value]
    ) -> list[list[Value]]:
        """The turns over low..high that have no masks, in as many copies as a turn has.
        They are left out where there are none; `first` are the totals then."""
        b, copies, found = self.b, self._copies(sweep), []
        reductions = [self.body.reduction(i) for i in sweep.reductions]
        parts = [
            part
            for r in reductions
            for copy in range(copies)
            for part in r.identity(b, self.lanes, copy * self.lanes)
        ]
        before = b.block
        # Without totals to merge there is nothing to leave out: no turn, no code runs.
        # Nor is there where no masked turns follow.
        merges = bool(parts) and not self.whole
        some = b.when(b.op(f"icmp slt i64 {low}, {high}")) if merges else nullcontext()
        with some:
            for held in rows:
                step = str(copies * self.lanes)
                with b.carrying(low, high, step, carried(parts)) as turn:
                    frame = Frame(held.positions, copies, turn.index, parent=held)
                    frame.turns = goes_by_turns(self.nest, sweep)
                    totals = renamed(parts, turn.values)
                    totals = self._turn(sweep, frame, reductions, totals)
                    turn.next = [p.text for p in totals]
                totals = renamed(parts, turn.values)
                found.append(self._merged(reductions, totals, copies))
            inside = b.block
        if not merges:
            return found
        return [
            [
                Value(
                    b,
                    b.op(f"phi {p.type} [{p.text}, %{inside}], [{q.text}, %{before}]"),
                    p.kind,
                    p.lanes,
                )
                for p, q in zip(row, first, strict=True)
            ]
            for row in found
        ]

    def _single(self, sweep: Sweep, rows: list[Frame], low: str, high: str) -> str:
        """The vectors that are left from `low` on, but for a part of one; returns where
        that begins."""
        b = self.b
        end = b.op(f"and i64 {b.op(f'sub i64 {high}, {low}')}, {-self.lanes}")
        end = b.op(f"add i64 {low}, {end}")
        with b.loop(low, end, str(self.lanes)) as at:
            for held in rows:
                self._turn(sweep, Frame(held.positions, 1, at, parent=held), [], [])
        return end

    def _running(self, sweep: Sweep, held: Frame, high: str) -> None:
        """A sweep over a whole row that carries running results."""
        b = self.b
        which = [i for i in sweep.body if is_running(self.nest.body[i])]
        before = [x for i in which for x in carried_first(b, *self.body.running(i), 1)]
        middle, near = "0", self._copies(sweep) > 0
        if near:
            middle = b.op(f"and i64 {high}, {-self.lanes}")
            before = self._running_blocks(
                sweep,
                before,
                "0",
                middle,
                lambda at: Frame(held.positions, 1, at, parent=held),
            )
        if self.whole:
            return
        self._running_blocks(
            sweep, before, middle, high, lambda at: self._masked(held, at, high, near)
        )

    def _running_blocks(
        self,
        sweep: Sweep,
        before: list[Value],
        low: str,
        high: str,
        frame: Callable[[str], Frame],
    ) -> list[Value]:
        """The turns over low..high, in blocks if steps are rounded; returns what is
        carried on. frame: of the turn at an index."""
        b = self.b
        which = [i for i in sweep.body if is_running(self.nest.body[i])]

        def turns(first: str, last: str, before: list[Value]) -> list[Value]:
            step = str(self.lanes)
            with b.carrying(first, last, step, carried(before)) as turn:
                state = renamed(before, turn.values)
                after = self._running_turn(sweep, frame(turn.index), state)
                turn.next = [x.text for x in after]
            return renamed(before, turn.values)

        if not any(rounds(*self.body.running(i)) for i in which):
            return turns(low, high, before)
        size = BLOCK_TURNS * self.lanes
        with b.carrying(low, high, str(size), carried(before)) as block:
            end = b.least(b.op(f"add i64 {block.index}, {size}"), high)
            states = iter(turns(block.index, end, renamed(before, block.values)))
            after = []
            for i in which:
                name, dtype = self.body.running(i)
                state = [next(states) for _ in range(1 + rounds(name, dtype))]
                after += settled(name, dtype, state)
            block.next = [x.text for x in after]
        return renamed(before, block.values)

    def _running_turn(
        self, sweep: Sweep, frame: Frame, before: list[Value]
    ) -> list[Value]:
        """One vector; returns what is carried on."""
        after: list[Value] = []
        given = iter(before)
        for i in sweep.body:
            instr = self.nest.body[i]
            if not is_running(instr):
                self.body.run(i, frame)
                continue
            name, dtype = self.body.running(i)
            args = [frame.get(a, 0, self.lanes) for a in instr.args]
            args = masked(name, dtype, args, frame.mask)
            state = [next(given) for _ in range(1 + rounds(name, dtype))]
            result, state = along_lanes(name, dtype, state, args)
            frame.values[i] = [self.body.settled(i, result)]
            after += state
        return after

    def _masked(self, held: Frame, index: str, high: str, near: bool = False) -> Frame:
        """A frame for the lanes that are left from `index` on."""
        frame = Frame(held.positions, 1, index, parent=held)
        limit(self.b, frame, high, self.lanes, near)
        return frame

    def _turn(
        self,
        sweep: Sweep,
        frame: Frame,
        reductions: list[Reduction],
        totals: list[Value],
    ) -> list[Value]:
        """One turn of the loop; returns the new totals."""
        for i in sweep.restores:
            dtype = self._kept_dtype(i)
            places = [self._kept(i, frame, copy) for copy in range(frame.copies)]
            frame.values[i] = [
                load(self.b, place, dtype, self.lanes, None) for place in places
            ]
        for i in sweep.body:
            self.body.run(i, frame)
        for i in sweep.saves:
            for copy, value in enumerate(frame.values[i]):
                address = self._kept(i, frame, copy)
                store(self.b, address, value, self._kept_dtype(i), None)
        result = []
        before = iter(totals)
        for i, r in zip(sweep.reductions, reductions, strict=True):
            for copy in range(frame.copies):
                old = [next(before) for _ in range(r.width)]
                new = self.body.added(i, frame, copy, self.lanes, frame.index, old)
                result += r.masked(frame.mask, new, old) if frame.mask else new
        return result

    def _kept(self, i: int, frame: Frame, copy: int) -> str:
        kind = self._kept_dtype(i)
        of = {1: "i8", 2: "i16", 4: "i32", 8: "i64"}[kind.itemsize]
        address = self.b.op(
            f"getelementptr {of}, ptr {self.scratch[i]}, i64 {frame.index}"
        )
        if not copy:
            return address
        return self.b.op(f"getelementptr {of}, ptr {address}, i64 {copy * self.lanes}")

    def _kept_dtype(self, i: int) -> np.dtype:
        """Half floats are kept as they are in registers."""
        dtype = self.nest.body[i].dtype
        return np.dtype(np.float32) if half_name(dtype) else dtype

    def _merged(
        self, reductions: list[Reduction], totals: list[Value], copies: int
    ) -> list[Value]:
        """Combines the copies' totals pairwise, leaving one per reduction."""
        result, before = [], iter(totals)
        for r in reductions:
            parts = [[next(before) for _ in range(r.width)] for _ in range(copies)]
            while len(parts) > 1:
                parts = [
                    r.combine(x, y)
                    for x, y in zip(parts[::2], parts[1::2], strict=True)
                ]
            result += parts[0]
        return result
