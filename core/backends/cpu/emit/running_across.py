"""Running reductions of short rows: vectors go across rows.

One vector holds an element of as many rows as it has lanes, as in `across.py`, and what
`running.along_lanes` does with the lanes of a row is done with such vectors, in the
same order, so that it makes no difference to a result which of the two has run.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from treadle.backends.cpu.emit.access import Arguments, load, store
from treadle.backends.cpu.emit.body import Body, Frame
from treadle.backends.cpu.emit.builder import Builder
from treadle.backends.cpu.emit.lanes import Value, host_lanes
from treadle.backends.cpu.emit.running import advanced, identity
from treadle.backends.cpu.emit.tasks import split_axis
from treadle.backends.cpu.emit.turned import (
    TurnedArrays,
    kept_dtype,
    turned_arguments,
    turned_plan,
    vector_at,
)
from treadle.dims import hint, is_dim
from treadle.fuse.lowering.launches import Launch
from treadle.kernels.lower import Sweep, is_reduction, is_running, schedule
from treadle.kernels.nest import CONTIGUOUS, Nest

_COMBINING = ("sum", "prod", "max", "min")
"""Those that combine nothing with what the lanes before a row would hold."""


def _most_columns(lanes: int) -> int:
    return 3 * lanes // 4


@lru_cache(maxsize=4096)
def runs_across(nest: Nest) -> bool:
    """Whether there is code for vectors across the rows of this nest."""
    plan, body = schedule(nest), nest.body
    running = [i for i, instr in enumerate(body) if is_running(instr)]
    if nest.axis != "inner" or split_axis(nest) != "rows" or len(running) != 1:
        return False
    if any(map(is_reduction, body)) or len(plan.sweeps) != 1 or not nest.outer:
        return False
    (which,) = running
    if body[which].name.partition("_")[2] not in (*_COMBINING, "linear"):
        return False
    if any(i.name.startswith("store") and i.name != "store" for i in body):
        return False
    later = [i for i in plan.sweeps[0].body if i > which]
    known = {which, *later, *(i for part in plan.held for i in part)}
    if any(a not in known for i in later for a in body[i].args):
        return False
    return all(
        o.kind == "array" and not o.gathers and (o.back or o.inner <= CONTIGUOUS)
        for o in nest.operands
    )


def may_run_across(launch: Launch) -> bool:
    """Whether this launch, with whatever sizes it gets, may run that code."""
    lanes = host_lanes()
    if not launch.outer or not runs_across(launch.nest):
        return False
    rows, columns = launch.outer[-1], launch.inner
    short = is_dim(columns) or 1 < columns <= _most_columns(lanes)
    return short and hint(rows) >= lanes


class RunningAcross:
    """Emits rows of a nest, as many at a time as vectors have lanes. Made in the
    kernel's entry block."""

    def __init__(
        self, b: Builder, nest: Nest, arguments: Arguments, lanes: int
    ) -> None:
        self.b, self.lanes, self.rows = b, lanes, nest
        self.plan, self.columns = turned_plan(nest), arguments.inner
        self.nest = self.plan.nest
        self.arguments = turned_arguments(b, arguments, self.nest)
        self.body = Body(b, self.plan, self.arguments, lanes)
        blocks = {k: self._block(o.dtype) for k, o in enumerate(nest.operands)}
        self.arrays = TurnedArrays(self.body, blocks, self.columns)
        (self.which,) = (i for i, x in enumerate(nest.body) if is_running(x))
        self.name, self.dtype = self.body.running(self.which)
        self.kept = kept_dtype(self.dtype)
        self.work = [self._block(self.kept) for _ in nest.body[self.which].args]

    def _block(self, dtype: np.dtype) -> str:
        nbytes = _most_columns(self.lanes) * self.lanes * dtype.itemsize
        return self.b.op(f"alloca i8, i64 {nbytes}, align 64")

    def run(self, start: list[str], first: str, last: str) -> str:
        """Emits rows first..last of those that start at these positions, if they are
        short, but for the last ones that are not as many as lanes; returns the first
        row that is left."""
        most = _most_columns(self.lanes)
        short = self.b.op(f"icmp sle i64 {self.columns}, {most}")
        some = self.b.op(f"icmp sgt i64 {self.columns}, 1")
        suits = self.b.op(f"and i1 {short}, {some}")
        return self.arrays.groups(self.plan, (start, first, last), suits, self._sweep)

    def _sweep(self, sweep: Sweep, held: Frame) -> None:
        args = self.rows.body[self.which].args
        with self.b.loop("0", self.columns) as column:
            frame = self._column(
                held, [i for i in sweep.body if i < self.which], column
            )
            for block, a in zip(self.work, args, strict=True):
                self._put(block, column, frame.get(a, 0, self.lanes))
        if self.name == "linear":
            self._one_by_one()
        else:
            self._doubling()
        with self.b.loop("0", self.columns) as column:
            result = self._get(self.work[-1], column)
            frame = Frame(held.positions, 1, held.index, parent=held)
            frame.values[self.which] = [self.body.settled(self.which, result)]
            self._column(held, [i for i in sweep.body if i > self.which], column, frame)

    def _column(
        self, held: Frame, which: list[int], column: str, frame: Frame | None = None
    ) -> Frame:
        """Emits instructions of a column."""
        frame = frame or Frame(held.positions, 1, held.index, parent=held)
        for i in which:
            self.arrays.run(i, frame, column)
        return frame

    def _doubling(self) -> None:
        """Combines each column with the one before, those with the pairs before, and so
        on: from the last one, so that what is read is as it was."""
        b, (work,) = self.b, self.work
        for distance in (1 << n for n in range(self.lanes.bit_length() - 1)):
            if distance >= _most_columns(self.lanes):
                break
            count = b.op(f"sub i64 {self.columns}, {distance}")
            with b.loop("0", count) as turn:
                other = b.op(f"sub i64 {b.op(f'sub i64 {count}, 1')}, {turn}")
                column = b.op(f"add i64 {other}, {distance}")
                before, x = self._get(work, other), self._get(work, column)
                self._put(work, column, advanced(self.name, self.dtype, before, [x]))

    def _one_by_one(self) -> None:
        b, (factor, term) = self.b, self.work
        first = identity(b, self.name, self.dtype, self.lanes)
        with b.carrying("0", self.columns, "1", [(first.type, first.text)]) as turn:
            before = Value(b, turn.values[0], first.kind, self.lanes)
            args = [self._get(block, turn.index) for block in (factor, term)]
            result = advanced(self.name, self.dtype, before, args)
            self._put(term, turn.index, result)
            turn.next = [result.text]

    def _get(self, block: str, column: str) -> Value:
        place = vector_at(self.b, self.lanes, block, self.kept, column)
        return load(self.b, place, self.kept, self.lanes, None)

    def _put(self, block: str, column: str, value: Value) -> None:
        place = vector_at(self.b, self.lanes, block, self.kept, column)
        store(self.b, place, value, self.kept, None)
