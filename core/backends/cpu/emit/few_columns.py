"""Column nests with a few columns, whose number is known: vectors go across rows.

What a particle feels of all others has three columns, which are an empty vector's. So a
vector holds as many rows as it has lanes, and there is one for each column. What lies
with its rows far from each other, as a matrix of weights does, is turned before it is
read, for a block of turns at a time. Sums are added up in the order in which
`column.py` does, so that it makes no difference to a result which of the two has run.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from typing import NamedTuple

from treadle.backends.cpu.emit.access import Arguments, Word, load, read, store
from treadle.backends.cpu.emit.body import Body, Frame, reduction_of
from treadle.backends.cpu.emit.builder import Builder
from treadle.backends.cpu.emit.column import ColumnSweeps
from treadle.backends.cpu.emit.known import one_for_all, read_columns, write_columns
from treadle.backends.cpu.emit.lanes import Value, host_lanes, memory_kind
from treadle.backends.cpu.emit.ops import elementwise
from treadle.backends.cpu.emit.outer import Segment, stepped
from treadle.backends.cpu.emit.reduce import BLOCK_TURNS
from treadle.backends.cpu.emit.tasks import split_axis
from treadle.backends.cpu.emit.turn import turned_in
from treadle.dims import hint
from treadle.fuse.lowering.launches import Launch
from treadle.kernels.lower import (
    NestOrder,
    Sweep,
    is_reduction,
    is_running,
    is_store,
    schedule,
)
from treadle.kernels.nest import BROADCAST, CONTIGUOUS, STRIDED, Nest

COLUMNS = "columns"
"""What such an entry of `emit` begins with; the numbers of `FewColumns` follow."""
_MOST = 4
"""Columns: of more, fewer lanes were empty, and there are no registers for them."""
_STACK = 1 << 16
"""Bytes that turned blocks may take."""


class FewColumns(NamedTuple):
    """What is known of a launch.

    columns: how many there are. still: the operands that are the same in all rows, as
      bits of a number. far: those whose rows are turned.
    """

    columns: int
    still: int
    far: int

    @property
    def entry(self) -> str:
        """The entry of `emit` that tells this."""
        return f"{COLUMNS}{self.columns}_{self.still}_{self.far}"

    @staticmethod
    def of(entry: str) -> FewColumns:
        """What an entry tells."""
        return FewColumns(*map(int, entry.removeprefix(COLUMNS).split("_")))

    def step(self, nest: Nest, k: int) -> int | None:
        """Elements from one row of an operand to the next; None if they are far."""
        if self.far >> k & 1:
            return None
        if self.still >> k & 1:
            return 0
        return self.columns if nest.operands[k].inner == CONTIGUOUS else 1


@lru_cache(maxsize=4096)
def sums_few_columns(nest: Nest) -> bool:
    """Whether there is code for vectors across the rows of this nest."""
    plan = schedule(nest)
    if nest.axis != "mid" or not nest.outer or nest.mid != 1 or len(plan.sweeps) != 1:
        return False
    if split_axis(nest) != "blocks" or any(map(is_running, nest.body)):
        return False
    if any(is_store(nest.body[i]) for i in plan.sweeps[0].body):
        return False
    if any(is_store(i) and i.name != "store" for i in nest.body):
        return False
    sums = [reduction_of(nest, i) for i, x in enumerate(nest.body) if is_reduction(x)]
    return all(r.rounds for r in sums) and all(
        o.kind == "array"
        and o.inner in (BROADCAST, CONTIGUOUS)
        and not o.gathers
        and not o.back
        and o.dtype.kind == "f"
        and o.dtype.itemsize >= 4
        for o in nest.operands
    )


def few_columns_entry(launch: Launch) -> str:
    """An entry with COLUMNS for a launch that has few columns, and rows that lie as
    there is code for; else nothing. No result depends on it, so sizes that are open
    count as in the trace."""
    nest, columns = launch.nest, hint(launch.inner)
    if not 1 < columns <= min(_MOST, host_lanes() // 2) or not sums_few_columns(nest):
        return ""
    if hint(launch.outer[-1]) < host_lanes():
        return ""
    stored = {i.attr for i in nest.body if is_store(i)}
    known = FewColumns(columns, 0, 0)
    for k, (o, binding) in enumerate(zip(nest.operands, launch.bindings, strict=True)):
        step = hint(binding.strides[nest.outer - 1])
        if step == 0 and k not in stored:
            known = known._replace(still=known.still | 1 << k)
        elif step == known.step(nest, k):
            continue
        elif o.inner == BROADCAST and o.mid and hint(binding.strides[nest.outer]) == 1:
            known = known._replace(far=known.far | 1 << k)
        else:
            return ""
    turned = [o for k, o in enumerate(nest.operands) if known.far >> k & 1]
    block = BLOCK_TURNS * host_lanes() * sum(o.dtype.itemsize for o in turned)
    return known.entry if block <= _STACK else ""


class _Columns(Body):
    """Runs instructions on one vector for each column, where they depend on it."""

    def __init__(
        self,
        b: Builder,
        nest: Nest,
        arguments: Arguments,
        known: FewColumns,
        lanes: int,
    ) -> None:
        super().__init__(b, _turned(nest), arguments, lanes)
        self.known, self.rows = known, nest
        self.by_column = set[int]()
        for i, instr in enumerate(nest.body):
            own = instr.name == "load" and nest.operands[instr.attr].inner != BROADCAST
            if own or self.by_column.intersection(instr.args):
                self.by_column.add(i)

    def run(self, i: int, frame: Frame) -> None:
        """Emits instruction i for all rows and columns."""
        instr, lanes = self.nest.body[i], self.lanes
        if instr.name == "load":
            frame.values[i] = self._read(instr.attr, frame)
        elif is_store(instr):
            self._write(i, frame)
        elif instr.name == "const" or not self.plan.varying[i]:
            super().run(i, frame)
        else:
            dtype = self.nest.body[instr.args[0]].dtype if instr.args else instr.dtype
            frame.values[i] = [
                elementwise(instr, dtype, [frame.get(a, c, lanes) for a in instr.args])
                for c in self.copies(i)
            ]

    def copies(self, i: int) -> range:
        """One for each vector of an instruction."""
        return range(self.known.columns if i in self.by_column else 1)

    def _read(self, k: int, frame: Frame) -> list[Value]:
        b, lanes, o = self.b, self.lanes, self.rows.operands[k]
        place, step = read(b, frame.positions[k]), self.known.step(self.rows, k)
        if step == 0:
            columns = range(1 if o.inner == BROADCAST else self.known.columns)
            return [one_for_all(b, place, o.dtype, lanes, c) for c in columns]
        if o.inner == BROADCAST:
            return [load(b, place, o.dtype, lanes, None)]
        return read_columns(b, place, o.dtype, lanes, self.known.columns)

    def _write(self, i: int, frame: Frame) -> None:
        instr, b = self.nest.body[i], self.b
        o, place = self.rows.operands[instr.attr], read(b, frame.positions[instr.attr])
        if o.inner == BROADCAST:
            value = frame.get(instr.args[0], 0, self.lanes)
            store(b, place, value, o.dtype, None)
            return
        columns = range(self.known.columns)
        values = [frame.get(instr.args[0], c, self.lanes) for c in columns]
        write_columns(b, place, o.dtype, values)


def _turned(nest: Nest) -> NestOrder:
    """The order of work of a nest whose inner loop is the last outer one."""
    operands = [o._replace(inner=STRIDED, beside=False) for o in nest.operands]
    turned = replace(nest, outer=nest.outer - 1, operands=(*operands,))
    return replace(schedule(nest), nest=turned, varying=schedule(turned).varying)


class FewColumnSweeps(ColumnSweeps):
    """Emits rows of a column nest, as many at a time as vectors have lanes. Made in the
    kernel's entry block."""

    def __init__(
        self,
        b: Builder,
        nest: Nest,
        arguments: Arguments,
        known: FewColumns,
        lanes: int,
    ) -> None:
        super().__init__(b, _turned(nest), arguments, lanes)
        self.body = self.columns = _Columns(b, nest, arguments, known, lanes)
        self.known, self.rows, self.start = known, nest, "0"
        self.blocks = {
            k: b.op(
                f"alloca i8, i64 {BLOCK_TURNS * lanes * o.dtype.itemsize}, align 64"
            )
            for k, o in enumerate(nest.operands)
            if known.far >> k & 1
        }

    def suits(self) -> str:
        """Whether rows lie as it is known, while the kernel runs."""
        b = self.b
        suits = b.op(f"icmp eq i64 {self.arguments.inner}, {self.known.columns}")
        for k, access in enumerate(self.arguments.accesses):
            step, wanted = read(b, access.outer[-1]), self.known.step(self.rows, k)
            if wanted is None:
                step, wanted = read(b, access.mid[0]), 1
            right = b.op(f"icmp eq i64 {step}, {wanted}")
            suits = b.op(f"and i1 {suits}, {right}")
        return suits

    def run(self, segment: Segment) -> str:
        """Emits the rows of a segment, but for the last ones that are not as many as
        lanes; returns the first row that is left."""
        b, lanes, dim = self.b, self.lanes, len(self.arguments.outer) - 1
        span = b.op(f"sub i64 {segment.last}, {segment.first}")
        whole = b.op(f"and i64 {span}, {-lanes}")
        end = b.op(f"add i64 {segment.first}, {whole}")
        with b.loop(segment.first, end, str(lanes)) as top:
            positions = stepped(b, self.arguments, segment.start, dim, top)
            self.block(positions, "0", self.known.columns, False, "0")
        return end

    def begin(self, positions: Sequence[Word | str], first: str, end: str) -> None:
        """Turns what is far for the turns first..end."""
        b, self.start = self.b, first
        count = b.op(f"sub i64 {end}, {first}")
        for k, block in self.blocks.items():
            access = self.arguments.accesses[k]
            source = access.moved(b, read(b, positions[k]), first)
            steps = read(b, access.outer[-1]), "1"
            width = 8 * access.operand.dtype.itemsize
            turned_in(b, width, self.lanes, source, steps, count, block)

    def moved(
        self, dim: int, index: str, positions: Sequence[Word | str], sweep: Sweep
    ) -> list[Word | str]:
        b, moved = self.b, super().moved(dim, index, positions, sweep)
        at = b.op(f"mul i64 {b.op(f'sub i64 {index}, {self.start}')}, {self.lanes}")
        for k, block in self.blocks.items():
            kind = memory_kind(self.rows.operands[k].dtype)
            moved[k] = b.op(f"getelementptr {kind}, ptr {block}, i64 {at}")
        return moved

    def shape(self, i: int, held: Frame) -> tuple[int, int]:
        """Copies and lanes of reduction i."""
        varying = self.plan.varying[i]
        return (len(self.columns.copies(i)), self.lanes) if varying else (1, 1)

    def is_alone(self, held: Frame) -> bool:
        """Whether one vector is added to at a time in `column.py`, whose order it is:
        rows are shorter than vectors there."""
        return True
