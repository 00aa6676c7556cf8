"""Elementwise nests across rows in memory, as transposes are: square by square.

What is read across rows lies along the loop around them. A square of as many rows and
columns as vectors have lanes is read as it lies and turned in registers (`turn.py`);
its rows are computed after that, a vector each.
"""

from __future__ import annotations

import math
from functools import lru_cache

from treadle.backends.cpu.emit.access import Arguments, load
from treadle.backends.cpu.emit.body import Frame
from treadle.backends.cpu.emit.builder import Builder
from treadle.backends.cpu.emit.lanes import host_lanes
from treadle.backends.cpu.emit.outer import Segment, stepped
from treadle.backends.cpu.emit.row import Part, RowSweeps
from treadle.backends.cpu.emit.tasks import split_axis
from treadle.backends.cpu.emit.turn import turned_square
from treadle.backends.cpu.emit.turned import vector_at
from treadle.backends.cpu.target import host
from treadle.dims import hint
from treadle.fuse.lowering.launches import Launch
from treadle.kernels.lower import is_running, is_store, schedule
from treadle.kernels.nest import STRIDED, Nest

STEPS = {"squares": 1, "paired squares": 2}
"""The entries of `emit`, and how far apart elements lie along the loop around rows: two
steps for parts of complex numbers."""
_BESIDE = 4
"""Squares of neighbouring rows, which lie side by side in what is read."""
_LEAST_BYTES = 64
"""Of vectors: half as many lanes are loaded one by one in no more time."""
_STACK = 1 << 15
"""Bytes that squares may take."""
_SQUARES = 8
"""Of a launch, that the code for them is worth being compiled for."""


@lru_cache(maxsize=4096)
def crosses_rows(nest: Nest) -> bool:
    """Whether an elementwise nest touches memory across its rows, as transposes do: not
    along them, from their ends on."""
    plan = schedule(nest)
    held = (nest.body[i] for part in plan.held for i in part)
    return (
        len(plan.sweeps) == 1
        and not plan.sweeps[0].reductions
        and not any(map(is_running, nest.body))
        and not any(is_store(instr) for instr in held)
        and any(_is_across(nest, k) for k in range(len(nest.operands)))
    )


def _is_across(nest: Nest, k: int) -> bool:
    o = nest.operands[k]
    return o.inner == STRIDED and o.kind == "array" and not o.back


@lru_cache(maxsize=4096)
def _turned(nest: Nest) -> tuple[int, ...]:
    """The operands that squares are read of; none if there is no code for that."""
    if nest.axis != "inner" or not nest.outer or not crosses_rows(nest):
        return ()
    if split_axis(nest) not in ("rows", "either"):
        return ()
    found = [k for k in range(len(nest.operands)) if _is_across(nest, k)]
    stored = {i.attr for i in nest.body if is_store(i)}
    if stored.intersection(found) or any(nest.operands[k].gathers for k in found):
        return ()
    size = sum(nest.operands[k].dtype.itemsize for k in found) * host_lanes() ** 2
    return (*found,) if size <= _STACK else ()


def squares_entry(launch: Launch) -> str | None:
    """The entry that reads squares, if it suits this launch; None otherwise. No result
    depends on it, so sizes that are open count as in the trace; steps don't."""
    nest, lanes = launch.nest, host_lanes()
    if host().vector_bytes < _LEAST_BYTES or not (turned := _turned(nest)):
        return None
    rows, columns = hint(launch.outer[-1]), hint(launch.inner)
    points = math.prod([hint(n) for n in launch.outer]) * columns
    if rows < lanes or columns < lanes // 4 or points < _SQUARES * lanes**2:
        return None
    steps = {launch.bindings[k].strides[nest.outer - 1] for k in turned}
    return next((name for name, step in STEPS.items() if steps == {step}), None)


class Squares:
    """Emits rows of a nest whose turned operands have steps of `along` from row to row.
    Made in the kernel's entry block."""

    def __init__(
        self,
        b: Builder,
        nest: Nest,
        arguments: Arguments,
        sweeps: RowSweeps,
        along: int,
    ) -> None:
        self.b, self.nest, self.arguments = b, nest, arguments
        self.sweeps, self.lanes, self.along = sweeps, sweeps.lanes, along
        self.blocks = {}
        for k in _turned(nest):
            nbytes = self.lanes**2 * nest.operands[k].dtype.itemsize
            self.blocks[k] = b.op(f"alloca i8, i64 {nbytes}, align 64")

    def run(self, segment: Segment, low: str, high: str) -> None:
        """Emits columns low..high of the rows of a segment."""
        b, height = self.b, _BESIDE * self.lanes
        with b.loop(segment.first, segment.last, str(height)) as top:
            bottom = b.least(b.op(f"add i64 {top}, {height}"), segment.last)
            self._columns(segment, (top, bottom), low, high)

    def _columns(
        self, segment: Segment, rows: tuple[str, str], low: str, high: str
    ) -> None:
        b, rest = self.b, low
        if self.sweeps.has_whole_vectors:
            span = b.op(f"sub i64 {high}, {low}")
            rest = b.op(f"add i64 {low}, {b.op(f'and i64 {span}, {-self.lanes}')}")
            with b.loop(low, rest, str(self.lanes)) as column:
                self._square(segment, rows, column, str(self.lanes), None)
        with b.loop(rest, high, str(self.lanes)) as column:
            left = b.least(b.op(f"sub i64 {high}, {column}"), str(self.lanes))
            part = self.sweeps.part(column, high)
            self._square(segment, rows, column, left, part)

    def _square(
        self,
        segment: Segment,
        rows: tuple[str, str],
        column: str,
        columns: str,
        part: Part | None,
    ) -> None:
        b, lanes, dim = self.b, str(self.lanes), self.nest.outer - 1
        with b.loop(*rows, lanes) as top:
            bottom = b.least(b.op(f"add i64 {top}, {lanes}"), rows[1])
            corner = stepped(b, self.arguments, segment.start, dim, top)
            height = b.op(f"sub i64 {bottom}, {top}")
            for k, block in self.blocks.items():
                access = self.arguments.accesses[k]
                offset = b.op(f"mul i64 {column}, {access.inner}")
                source = access.moved(b, corner[k], offset)
                shape = access.inner, columns, height
                width = 8 * access.operand.dtype.itemsize
                turned_square(b, width, self.lanes, source, self.along, shape, block)
            with b.loop("0", height) as row:
                at = b.op(f"add i64 {top}, {row}")
                held = Frame(stepped(b, self.arguments, segment.start, dim, at))
                plan = self.sweeps.plan
                for i in plan.held[0]:
                    self.sweeps.body.run(i, held)
                mask, active, _ = part or Part(None, "")
                frame = Frame(held.positions, 1, column, mask, active, parent=held)
                for i in plan.sweeps[0].body:
                    self._instruction(i, frame, row)

    def _instruction(self, i: int, frame: Frame, row: str) -> None:
        instr = self.nest.body[i]
        if instr.name != "load" or instr.attr not in self.blocks:
            self.sweeps.body.run(i, frame)
            return
        dtype = self.nest.operands[instr.attr].dtype
        place = vector_at(self.b, self.lanes, self.blocks[instr.attr], dtype, row)
        frame.values[i] = [load(self.b, place, dtype, self.lanes, None)]
