"""Row nests with a few elements a row, of which it is known how many: vectors go across
rows, and all that they need of a group of rows stays in registers.

The elements of such rows lie one behind the other in memory: whole vectors of these are
read, and lanes chosen from them. Of operands that stand still from row to row (one of
two points whose distance is asked for), each element is read once for a group of rows.
Everything else is as in `across.py`, whose bits it gives: it runs only where there are
so many columns, and rows follow each other or stand still.

Elementwise nests are done so, too, where they read columns that lie far apart, as those
do that put channels last: such columns are vectors already.
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import numpy as np

from treadle.backends.cpu.emit.access import (
    Arguments,
    every_second,
    load,
    read,
    store,
    to_memory,
    to_register,
)
from treadle.backends.cpu.emit.across import across_spans, goes_across
from treadle.backends.cpu.emit.body import Body, Frame, reduction_of
from treadle.backends.cpu.emit.builder import Builder
from treadle.backends.cpu.emit.lanes import (
    Value,
    host_lanes,
    memory_kind,
    type_name,
)
from treadle.backends.cpu.emit.reduce import Parts, Reduction
from treadle.backends.cpu.emit.squares import crosses_rows
from treadle.backends.cpu.emit.tasks import split_axis
from treadle.backends.cpu.emit.turn import shuffles, turned_columns, turned_rows
from treadle.backends.cpu.emit.turned import (
    TurnedArrays,
    turned_arguments,
    turned_plan,
)
from treadle.backends.cpu.emit.wide import WIDE, wide_lanes
from treadle.dims import hint, is_dim
from treadle.fuse.lowering.launches import Launch
from treadle.fuse.lowering.vectors import MOST_COLUMNS, MOST_INSTRUCTIONS
from treadle.kernels.lower import Sweep, is_reduction, is_store, schedule
from treadle.kernels.nest import BROADCAST, CONTIGUOUS, PAIRED, STRIDED, Nest

TOGETHER = "together"
"""An entry of `emit` that puts columns together, but for what is known of its rows."""
_MOST = 8
"""The longest rows of any length: of longer ones choosing lanes takes as long as
turning blocks, ..."""
_SHUFFLES = 5
"""... but where as many shuffles a vector do it, if rows are no longer than vectors."""
_MOST_INSTRUCTIONS = 96
"""That are written for some rows."""
_KINDS = BROADCAST, CONTIGUOUS, STRIDED


class Known(NamedTuple):
    """What is known of the rows of a launch.

    columns: how many elements they have; 0 if that isn't known. still: the operands
      that are the same in all rows of the last outer loop, as bits of a number.
    """

    columns: int = 0
    still: int = 0

    def stands(self, operand: int) -> bool:
        """Whether an operand is the same in all rows."""
        return bool(self.still >> operand & 1)

    def step(self, nest: Nest, operand: int) -> int:
        """Elements from one row of an operand to the next."""
        inner = nest.operands[operand].inner
        if self.stands(operand):
            return 0
        if inner == BROADCAST:
            return 2 if _in_pairs(nest, operand) else 1
        return {CONTIGUOUS: self.columns, PAIRED: 2 * self.columns}.get(inner, 1)

    @property
    def suffix(self) -> str:
        """What tells this at the end of an entry."""
        return f"{self.columns}" + (f"_{self.still}" if self.still else "")


@lru_cache(maxsize=4096)
def knows(nest: Nest, columns: int, lanes: int) -> bool:
    """Whether there is code for rows of this nest with so many columns."""
    if columns < 2:
        return False
    if puts_together(nest):
        many = columns * len(nest.body) > MOST_INSTRUCTIONS
        return columns <= MOST_COLUMNS and not many
    if columns > lanes or not goes_across(nest, lanes):
        return False
    spans = across_spans(nest, lanes)
    few = any(above < columns <= min(most, _MOST) for above, most in spans)
    if not few and (shuffles(columns) > _SHUFFLES or _fill(nest, columns, lanes)):
        return False
    if _instructions(nest, columns) > _MOST_INSTRUCTIONS:
        return False
    stored = _stored(nest)
    return all(
        o.kind != "array"
        or (
            (o.inner != STRIDED and not o.gathers and not o.back)
            and not (o.inner == PAIRED and k in stored and not _in_pairs(nest, k))
        )
        for k, o in enumerate(nest.operands)
    )


@lru_cache(maxsize=4096)
def puts_together(nest: Nest) -> bool:
    """Whether an elementwise nest makes rows of columns that lie elsewhere."""
    if nest.axis != "inner" or not nest.outer or not crosses_rows(nest):
        return False
    if split_axis(nest) not in ("rows", "either"):
        return False
    stored = _stored(nest)
    return all(i.name == "store" for i in nest.body if is_store(i)) and all(
        o.kind != "array"
        or (
            o.inner in ((CONTIGUOUS,) if k in stored else _KINDS)
            and not o.gathers
            and not o.back
        )
        for k, o in enumerate(nest.operands)
    )


def _fill(nest: Nest, columns: int, lanes: int) -> bool:
    """Whether rows fill vectors that are quickly loaded and summed along them."""
    exact = (
        reduction_of(nest, i).is_exact
        for i, instr in enumerate(nest.body)
        if is_reduction(instr)
    )
    in_pairs = any(o.inner == PAIRED and o.kind == "array" for o in nest.operands)
    return columns == lanes and not in_pairs and not all(exact)


def _instructions(nest: Nest, columns: int) -> int:
    """How many are written: most of them for each column."""
    plan = schedule(nest)
    return columns * sum(len(s.body) for s in plan.sweeps) + sum(map(len, plan.held))


def known_rows(launch: Launch) -> Known:
    """What code for rows of this launch is written for, if there is any that knows
    them. No result depends on it, so sizes that are open count as in the trace."""
    nest, columns, lanes = launch.nest, hint(launch.inner), host_lanes()
    if not launch.outer or hint(launch.outer[-1]) < lanes:
        return Known()
    if not knows(nest, columns, lanes):
        return Known()
    found, stored = Known(columns), _stored(nest)
    for k, (o, binding) in enumerate(zip(nest.operands, launch.bindings, strict=True)):
        if o.kind != "array":
            continue
        step = hint(binding.strides[nest.outer - 1])
        if step == 0 and k not in stored:
            found = found._replace(still=found.still | 1 << k)
        elif step != found.step(nest, k):
            return Known()
    return found


def knowing(launch: Launch, entry: str) -> str:
    """An entry for rows of this launch, with what is known of them at its end. Where
    nothing is open, it takes the place of code for any short rows."""
    known = known_rows(launch)
    if not known.columns:
        return entry
    steps = [b.strides[launch.nest.outer - 1] for b in launch.bindings]
    is_open = any(map(is_dim, (launch.inner, *steps)))
    wide = wide_lanes(launch.nest)
    many = wide > host_lanes() and hint(launch.outer[-1]) >= wide
    lanes = WIDE if many and knows(launch.nest, known.columns, wide) else ""
    if puts_together(launch.nest):
        return f"{lanes}{TOGETHER}{known.suffix}"
    return f"{lanes}{entry if is_open else 'task'}{known.suffix}"


def entry_and_known(entry: str) -> tuple[str, Known]:
    """An entry of `emit` without what is known of rows at its end, and that."""
    name = entry.rstrip("0123456789_")
    columns, _, still = entry[len(name) :].partition("_")
    return name, Known(int(columns or 0), int(still or 0))


def _stored(nest: Nest) -> set[int]:
    return {i.attr for i in nest.body if is_store(i)}


def _in_pairs(nest: Nest, k: int) -> bool:
    """Whether an operand and the one before or after it are stored as parts of the same
    numbers."""
    return any(o.beside for o in nest.operands[k : k + 2])


class _Arrays(TurnedArrays):
    """Arrays whose rows follow each other, in registers."""

    def __init__(self, body: Body, rows: Nest, known: Known) -> None:
        super().__init__(body, {}, str(known.columns))
        self.rows, self.known, self.count = rows, known, known.columns
        self.read: dict[int, list[Value]] = {}
        self.written: dict[int, list[Value]] = {}

    def move(self, held: Frame, stores: bool) -> None:
        if stores:
            for k, values in self.written.items():
                if self.rows.operands[k].beside:
                    pairs = zip(self.written[k - 1], values, strict=True)
                    self._write(k - 1, held, [part for pair in pairs for part in pair])
                elif not _in_pairs(self.rows, k):
                    self._write(k, held, values)
            return
        self.read, self.written = {}, {k: [] for k in _stored(self.rows)}

    def _place(self, k: int, held: Frame) -> str:
        b, access = self.body.b, self.arguments.accesses[k]
        offset = b.op(f"mul i64 {held.index}, {access.inner}")
        return access.moved(b, held.positions[k], offset)

    def run(self, i: int, frame: Frame, column: str = "0") -> None:
        instr = self.nest.body[i]
        accesses = instr.name == "load" or is_store(instr)
        if not accesses or self.rows.operands[instr.attr].kind != "array":
            self.body.run(i, frame)
            return
        if is_store(instr):
            self.written[instr.attr].append(frame.get(instr.args[0], 0, self.lanes))
            return
        if instr.attr not in self.read:
            self.read[instr.attr] = self._read(instr.attr, frame)
        found = self.read[instr.attr]
        frame.values[i] = [found[int(column) if len(found) > 1 else 0]]

    @property
    def lanes(self) -> int:
        return self.body.lanes

    def _read(self, k: int, frame: Frame) -> list[Value]:
        """An operand's columns, or what belongs to whole rows."""
        b, lanes, operand = self.body.b, self.lanes, self.rows.operands[k]
        place, dtype = self._place(k, frame), operand.dtype
        count = 1 if operand.inner == BROADCAST else self.count
        if operand.inner == STRIDED:
            return [self._apart(k, place, n) for n in range(count)]
        step = 2 if operand.inner == PAIRED else 1
        if self.known.stands(k):
            return [one_for_all(b, place, dtype, lanes, n * step) for n in range(count)]
        if operand.inner == BROADCAST:
            return [load(b, place, dtype, lanes, None)]
        return read_columns(b, place, dtype, lanes, count, step)

    def _apart(self, k: int, place: str, column: int) -> Value:
        """A column that lies apart, or is one number."""
        b, access, dtype = (
            self.body.b,
            self.arguments.accesses[k],
            self.rows.operands[k].dtype,
        )
        offset = b.op(f"mul i64 {column}, {read(b, access.mid[0])}") if column else "0"
        at = access.moved(b, place, offset)
        if self.known.stands(k):
            return one_for_all(b, at, dtype, self.lanes, 0)
        return load(b, at, dtype, self.lanes, None)

    def _write(self, k: int, held: Frame, values: list[Value]) -> None:
        place, dtype = self._place(k, held), self.rows.operands[k].dtype
        if len(values) == 1:
            store(self.body.b, place, values[0], dtype, None)
        else:
            write_columns(self.body.b, place, dtype, values)


def one_for_all(
    b: Builder, place: str, dtype: np.dtype, lanes: int, column: int
) -> Value:
    """An element that all rows have in common, in every lane."""
    at = b.op(f"getelementptr {memory_kind(dtype)}, ptr {place}, i64 {column}")
    return load(b, at, dtype, 1, None).splat(lanes)


def read_columns(
    b: Builder, place: str, dtype: np.dtype, lanes: int, count: int, step: int = 1
) -> list[Value]:
    """The columns of as many rows as there are lanes, which follow each other. step: 2
    where elements are every second one in memory."""
    kind = memory_kind(dtype)

    def vector(first: int) -> Value:
        at = b.op(f"getelementptr {kind}, ptr {place}, i64 {first}")
        of = f"load {type_name(kind, lanes)}, ptr {at}, align {dtype.itemsize}"
        return Value(b, b.op(of), kind, lanes)

    starts = range(0, count * lanes, lanes)
    if step == 2:
        ends = [(vector(2 * k), vector(2 * k + lanes - 1)) for k in starts]
        vectors = [every_second(*pair) for pair in ends]
    else:
        vectors = [vector(k) for k in starts]
    return [to_register(v, dtype) for v in turned_columns(vectors)]


def write_columns(b: Builder, place: str, dtype: np.dtype, values: list[Value]) -> None:
    """Writes the columns of as many rows as there are lanes."""
    columns = [to_memory(v, dtype) for v in values]
    for n, part in enumerate(turned_rows(columns)):
        at = b.op(f"getelementptr {part.kind}, ptr {place}, i64 {n * part.lanes}")
        b(f"store {part.type} {part.text}, ptr {at}, align {dtype.itemsize}")


class KnownSweeps:
    """Emits rows of a row nest, as many at a time as vectors have lanes. Made in the
    kernel's entry block."""

    def __init__(
        self, b: Builder, nest: Nest, arguments: Arguments, lanes: int, known: Known
    ) -> None:
        self.b, self.lanes, self.rows, self.known = b, lanes, nest, known
        self.plan, self.inner = turned_plan(nest), arguments.inner
        turned = turned_arguments(b, arguments, self.plan.nest)
        self.body = Body(b, self.plan, turned, lanes)
        self.arrays = _Arrays(self.body, nest, known)
        self.kept: dict[tuple[int, int], Value] = {}

    def run(self, start: list[str], first: str, last: str) -> str:
        """Emits rows first..last of those that start at these positions, if they are as
        long as is known, but for the last ones that are not as many as lanes; returns
        the first row that is left."""
        span = start, first, last
        return self.arrays.groups(self.plan, span, self._suits(), self._sweep)

    def _suits(self) -> str:
        b = self.b
        suits = b.op(f"icmp eq i64 {self.inner}, {self.known.columns}")
        for k, access in enumerate(self.body.arguments.accesses):
            operand, step = self.rows.operands[k], read(b, access.inner)
            if operand.kind == "array":
                wanted = self.known.step(self.rows, k)
                right = b.op(f"icmp eq i64 {step}, {wanted}")
                suits = b.op(f"and i1 {suits}, {right}")
        return suits

    def _sweep(self, sweep: Sweep, held: Frame) -> None:
        self.body.prepare(sweep, held)
        reductions = [(i, self.body.reduction(i)) for i in sweep.reductions]
        totals = {i: r.identity_of_each(self.b, self.lanes) for i, r in reductions}
        slots: dict[int, list[Parts]] = {i: [] for i in totals}
        for column in range(self.known.columns):
            frame = self._column(sweep, held, column)
            for i, r in reductions:
                at = str(column)
                if r.is_exact:
                    old = totals[i]
                    totals[i] = self.body.added(i, frame, 0, self.lanes, at, old)
                    continue
                old = r.identity(self.b, self.lanes)
                slots[i].append(self.body.added(i, frame, 0, self.lanes, at, old))
        for i, r in reductions:
            total = totals[i] if r.is_exact else self._combined(r, slots[i])
            held.values[i] = [self.body.settled(i, total[-1])]

    def _column(self, sweep: Sweep, held: Frame, column: int) -> Frame:
        positions = list(held.positions)
        for k, access in enumerate(self.body.arguments.accesses):
            if access.operand.mid and self.rows.operands[k].kind != "array" and column:
                step = read(self.b, access.mid[0])
                offset = self.b.op(f"mul i64 {column}, {step}")
                positions[k] = access.moved(self.b, positions[k], offset)
        frame = Frame(positions, 1, held.index, parent=held)
        for i in sweep.restores:
            frame.values[i] = [self.kept[i, column]]
        for i in sweep.body:
            self.arrays.run(i, frame, str(column))
        for i in sweep.saves:
            self.kept[i, column] = frame.get(i, 0, self.lanes)
        return frame

    def _combined(self, r: Reduction, parts: list[Parts]) -> Parts:
        """Slots combined as lanes are: halves, then halves of that. There is a power of
        two of them."""
        while len(parts) & (len(parts) - 1):
            parts = [*parts, r.identity(self.b, self.lanes)]
        while len(parts) > 1:
            middle = len(parts) // 2
            pairs = zip(parts[:middle], parts[middle:], strict=True)
            parts = [r.combine(x, y) for x, y in pairs]
        return parts[0]
