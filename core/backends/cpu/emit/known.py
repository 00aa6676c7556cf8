"""Row nests with a few elements a row, of which it is known how many: vectors go across
rows, and all that they need of a group of rows stays in registers.

The elements of such rows lie one behind the other in memory: whole vectors of these are
read, and lanes chosen from them. Everything else is as in `across.py`, whose bits it
gives: it runs only where there are so many columns, and rows follow each other.

Elementwise nests are done so, too, where they read columns that lie far apart, as those
do that put channels last: such columns are vectors already.
"""

from __future__ import annotations

from functools import lru_cache

from treadle.backends.cpu.emit.access import (
    Arguments,
    load,
    read,
    store,
    to_memory,
    to_register,
)
from treadle.backends.cpu.emit.across import across_spans, goes_across
from treadle.backends.cpu.emit.body import Body, Frame
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
from treadle.backends.cpu.emit.turn import interleaved
from treadle.backends.cpu.emit.turned import (
    TurnedArrays,
    turned_arguments,
    turned_plan,
)
from treadle.backends.cpu.emit.wide import WIDE, wide_lanes
from treadle.dims import hint, is_dim
from treadle.fuse.lowering.launches import Launch
from treadle.fuse.lowering.vectors import MOST_COLUMNS, MOST_INSTRUCTIONS
from treadle.kernels.lower import Sweep, is_store
from treadle.kernels.nest import BROADCAST, CONTIGUOUS, STRIDED, Nest, Operand

COLUMNS = "columns "
"""What entries of `emit` begin with that put columns together; a letter for each
operand follows: whether it is the same in all rows, or moves from one to the next."""
_KINDS = BROADCAST, CONTIGUOUS, STRIDED


@lru_cache(maxsize=4096)
def knows(nest: Nest, columns: int, lanes: int) -> bool:
    """Whether there is code for rows of this nest with so many columns."""
    if not 1 < columns <= MOST_COLUMNS or columns * len(nest.body) > MOST_INSTRUCTIONS:
        return False
    if puts_together(nest):
        return True
    if not goes_across(nest, lanes):
        return False
    spans = across_spans(nest, lanes)
    if not any(above < columns <= most for above, most in spans):
        return False
    return all(
        o.kind != "array"
        or (o.inner in (BROADCAST, CONTIGUOUS) and not o.gathers and not o.back)
        for o in nest.operands
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


def known_columns(launch: Launch) -> int:
    """How many columns code is written for that knows them; 0 if none is. No result
    depends on it, so sizes that are open count as in the trace."""
    nest, columns, lanes = launch.nest, hint(launch.inner), host_lanes()
    if not launch.outer or hint(launch.outer[-1]) < lanes:
        return 0
    if not knows(nest, columns, lanes):
        return 0
    fixed = _fixed(launch)
    for k, (o, binding) in enumerate(zip(nest.operands, launch.bindings, strict=True)):
        if o.kind == "array" and k not in fixed:
            step = hint(binding.strides[nest.outer - 1])
            if step != _row_step(o, columns):
                return 0
    return columns


def _fixed(launch: Launch) -> frozenset[int]:
    """The operands of a nest that puts columns together which are the same in all
    rows."""
    nest = launch.nest
    if not puts_together(nest):
        return frozenset()
    return frozenset(
        k
        for k, (o, binding) in enumerate(
            zip(nest.operands, launch.bindings, strict=True)
        )
        if o.kind == "array" and hint(binding.strides[nest.outer - 1]) == 0
    )


def knowing(launch: Launch, entry: str) -> str:
    """An entry for rows of this launch, with how many columns there are, if that is
    known. Where nothing is open, it takes the place of code for any short rows."""
    columns = known_columns(launch)
    if not columns:
        return entry
    steps = [b.strides[launch.nest.outer - 1] for b in launch.bindings]
    is_open = any(map(is_dim, (launch.inner, *steps)))
    wide = wide_lanes(launch.nest)
    many = wide > host_lanes() and hint(launch.outer[-1]) >= wide
    lanes = WIDE if many and knows(launch.nest, columns, wide) else ""
    if puts_together(launch.nest):
        fixed = _fixed(launch)
        kinds = ["s" if k in fixed else "m" for k in range(len(launch.bindings))]
        return f"{lanes}{COLUMNS}{''.join(kinds)}{columns}"
    return f"{lanes}{entry if is_open else 'task'}{columns}"


def entry_and_columns(entry: str) -> tuple[str, int]:
    """An entry of `emit` without the number of columns at its end, and that or 0."""
    name = entry.rstrip("0123456789")
    return name, int(entry[len(name) :] or 0)


def same_in_rows(entry: str) -> frozenset[int]:
    """The operands that an entry with COLUMNS takes to be the same in all rows."""
    if not entry.startswith(COLUMNS):
        return frozenset()
    kinds = entry.removeprefix(COLUMNS)
    return frozenset(k for k, kind in enumerate(kinds) if kind == "s")


def _stored(nest: Nest) -> set[int]:
    return {i.attr for i in nest.body if is_store(i)}


def _row_step(operand: Operand, columns: int) -> int:
    """Elements from one row to the next where this code runs."""
    return columns if operand.inner == CONTIGUOUS else 1


class _Arrays(TurnedArrays):
    """Arrays whose rows follow each other, in registers."""

    def __init__(
        self, body: Body, rows: Nest, count: int, same: frozenset[int]
    ) -> None:
        super().__init__(body, {}, str(count))
        self.rows, self.count, self.same = rows, count, same
        self.read: dict[int, list[Value]] = {}
        self.written: dict[int, list[Value]] = {}

    def move(self, held: Frame, stores: bool) -> None:
        if stores:
            for k, values in self.written.items():
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
        if k in self.same or operand.inner == STRIDED:
            return self._apart(k, place)
        if operand.inner == BROADCAST:
            return [load(b, place, dtype, lanes, None)]
        kind = memory_kind(dtype)
        vectors = []
        for n in range(self.count):
            at = b.op(f"getelementptr {kind}, ptr {place}, i64 {n * lanes}")
            of = f"load {type_name(kind, lanes)}, ptr {at}, align {dtype.itemsize}"
            vectors.append(Value(b, b.op(of), kind, lanes))
        picks = ([r * self.count + c for r in range(lanes)] for c in range(self.count))
        return [to_register(interleaved(vectors, p), dtype) for p in picks]

    def _apart(self, k: int, place: str) -> list[Value]:
        """Columns that lie apart, or are one number each."""
        b, access, operand = (
            self.body.b,
            self.arguments.accesses[k],
            self.rows.operands[k],
        )
        lanes = 1 if k in self.same else self.lanes
        found = []
        for n in range(1 if operand.inner == BROADCAST else self.count):
            offset = b.op(f"mul i64 {n}, {read(b, access.mid[0])}") if n else "0"
            at = access.moved(b, place, offset)
            found.append(load(b, at, operand.dtype, lanes, None))
        return [v if v.lanes > 1 else v.splat(self.lanes) for v in found]

    def _write(self, k: int, held: Frame, values: list[Value]) -> None:
        b, lanes, count = self.body.b, self.lanes, self.count
        place, dtype = self._place(k, held), self.rows.operands[k].dtype
        if self.rows.operands[k].inner == BROADCAST:
            store(b, place, values[0], dtype, None)
            return
        columns = [to_memory(v, dtype) for v in values]
        for n in range(count):
            written = range(n * lanes, (n + 1) * lanes)
            picks = [p % count * lanes + p // count for p in written]
            part = interleaved(columns, picks)
            at = b.op(f"getelementptr {part.kind}, ptr {place}, i64 {n * lanes}")
            b(f"store {part.type} {part.text}, ptr {at}, align {dtype.itemsize}")


class KnownSweeps:
    """Emits rows of a row nest, as many at a time as vectors have lanes. Made in the
    kernel's entry block."""

    def __init__(
        self,
        b: Builder,
        nest: Nest,
        arguments: Arguments,
        lanes: int,
        columns: int,
        same: frozenset[int] = frozenset(),
    ) -> None:
        self.b, self.lanes, self.rows, self.columns = b, lanes, nest, columns
        self.same = same
        self.plan, self.inner = turned_plan(nest), arguments.inner
        turned = turned_arguments(b, arguments, self.plan.nest)
        self.body = Body(b, self.plan, turned, lanes)
        self.arrays = _Arrays(self.body, nest, columns, same)
        self.kept: dict[tuple[int, int], Value] = {}

    def run(self, start: list[str], first: str, last: str) -> str:
        """Emits rows first..last of those that start at these positions, if they are as
        long as is known, but for the last ones that are not as many as lanes; returns
        the first row that is left."""
        span = start, first, last
        return self.arrays.groups(self.plan, span, self._suits(), self._sweep)

    def _suits(self) -> str:
        b = self.b
        suits = b.op(f"icmp eq i64 {self.inner}, {self.columns}")
        for k, access in enumerate(self.body.arguments.accesses):
            operand, step = self.rows.operands[k], read(b, access.inner)
            if operand.kind == "array":
                wanted = 0 if k in self.same else _row_step(operand, self.columns)
                right = b.op(f"icmp eq i64 {step}, {wanted}")
                suits = b.op(f"and i1 {suits}, {right}")
        return suits

    def _sweep(self, sweep: Sweep, held: Frame) -> None:
        self.body.prepare(sweep, held)
        reductions = [(i, self.body.reduction(i)) for i in sweep.reductions]
        totals = {i: r.identity_of_each(self.b, self.lanes) for i, r in reductions}
        slots: dict[int, list[Parts]] = {i: [] for i in totals}
        for column in range(self.columns):
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
