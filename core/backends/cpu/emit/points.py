"""Elementwise nests with short rows: vectors run on from row to row.

A vector holds consecutive points, as they lie in an array that is stored (one by one,
where rows are stored apart); what is read from elsewhere is chosen from windows
(`windows.py`). Rows end within vectors, so that these are full however short the rows
are, and nothing is masked. Points are done for whole groups of rows that are whole
vectors; `row.py` does the rows that are left.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from typing import NamedTuple

from treadle.backends.cpu.emit.access import (
    Arguments,
    Word,
    gather,
    iota,
    pointers,
    read,
    store,
)
from treadle.backends.cpu.emit.body import Body, Frame
from treadle.backends.cpu.emit.builder import Builder
from treadle.backends.cpu.emit.lanes import Value, has_mask_registers, host_lanes
from treadle.backends.cpu.emit.short import takes_rows
from treadle.backends.cpu.emit.still import choice_at, lookups, windows_at
from treadle.backends.cpu.emit.wide import WIDE, wide_lanes
from treadle.backends.cpu.emit.windows import (
    ENTRY_BYTES,
    Choice,
    Shape,
    can_choose,
    load_offsets,
    load_windows,
    most_windows,
    offsets,
    read_choices,
    registers,
    store_apart,
    table,
    windows_of,
)
from treadle.dims import hint, is_dim
from treadle.fuse.lowering.launches import Binding, Launch
from treadle.kernels.lower import is_reduction, is_running, is_store, schedule
from treadle.kernels.nest import BROADCAST, CONTIGUOUS, STRIDED, Nest, Operand

POINTS = "points"
"""What the entry of `emit` begins with. A digit for each operand may follow: how many
windows it has, if these are few, and no rows are stored apart; or may have, if what is
looked up there stands still (`still.py`). The code is faster then, and does for nothing
else."""
_FEW_WINDOWS = 2
_MOST_POINTS = 64
"""Of what is one row here: the last two loops, if they have no more points."""
_GROUPS, _WIDE_GROUPS = 8, 32
"""Of rows, that tables are worth being made for, or rows that are left over."""
_BESIDE, _TOGETHER = 8, 128
"""Groups of rows that follow each other, at least, and vectors of all of them, at most:
what tables tell of one vector of a group is read once for all groups, and their memory
stays in the cache."""
_SOME = str(_TOGETHER // _BESIDE)
_STACK = 1 << 17
"""Bytes that tables may take."""
_MOST_APART = 3
"""Elements of rows that are stored apart, one by one: longer ones take less when done
by rows, ..."""
_LEAST_READ = 8
"""... and so do those that are made of fewer operands."""
_MOST_TABLES = 96
"""Of a nest: each takes code to be made and read."""


@lru_cache(maxsize=4096)
def goes_by_points(nest: Nest) -> bool:
    """Whether there is code for vectors from row to row of this nest."""
    plan = schedule(nest)
    held = (nest.body[i] for part in plan.held for i in part)
    if nest.axis != "inner" or nest.serial or not nest.outer or len(plan.sweeps) != 1:
        return False
    if any(is_reduction(i) or is_running(i) for i in nest.body):
        return False
    if any(map(is_store, held)):
        return False
    stores = [i for i in nest.body if is_store(i)]
    if any(
        i.name != "store"
        or nest.operands[i.attr][1:5] != (CONTIGUOUS, "array", False, 0)
        for i in stores
    ):
        return False
    return _entries(nest) <= _MOST_TABLES and all(
        can_choose(o.dtype) for o in nest.operands if o.kind == "array"
    )


def _entries(nest: Nest) -> int:
    """How many entries the tables of all operands have for each vector."""
    stored = {i.attr for i in nest.body if is_store(i)}
    return sum(
        registers(o.dtype) if _has_windows(o) and k not in stored else 1
        for k, o in enumerate(nest.operands)
        if not _is_one(o)
    )


def _is_one(operand: Operand) -> bool:
    """Whether it is the same number everywhere."""
    return operand.fixed and operand.inner == BROADCAST and not operand.gathers


def _has_windows(operand: Operand) -> bool:
    """Whether what is read is near what the point before reads."""
    return operand.kind == "array" and not operand.gathers


def points_entry(launch: Launch) -> str:
    """An entry with POINTS, with or without WIDE, if this launch has short rows, and
    what it reads is near enough; else nothing. No result depends on it, so sizes that
    are open count as in the trace."""
    if is_dim(launch.inner) or not goes_by_points(launch.nest):
        return ""
    if takes_rows(launch):
        return ""
    wide, lanes = wide_lanes(launch.nest), host_lanes()
    near = all(_has_windows(o) or _is_one(o) for o in launch.nest.operands)
    found = None
    if near and wide > lanes:
        found = _windows(launch, wide, _WIDE_GROUPS)
    if found is not None:
        return WIDE + POINTS + found
    found = _windows(launch, lanes, _GROUPS)
    return "" if found is None else POINTS + found


def _windows(launch: Launch, lanes: int, groups: int) -> str | None:
    """What follows POINTS; None if there are too few rows, or too long ones."""
    nest = launch.nest
    if not _is_short(launch.inner, nest, lanes):
        return None
    sizes = [hint(n) for n in launch.outer]
    joined = len(sizes) > 1 and sizes[-1] * launch.inner <= _MOST_POINTS
    down, rows = (sizes[-1], sizes[-2]) if joined else (1, sizes[-1])
    points = down * launch.inner
    vectors = _vectors(points, lanes) if points else 0
    together = lanes * vectors
    if not points or math.prod(sizes) * launch.inner < groups * together:
        return None
    if rows * points < groups * together and rows * points % together:
        return None
    if vectors * _entries(nest) * ENTRY_BYTES > _STACK:
        return None
    stores = [i.attr for i in nest.body if is_store(i)]
    reads = len(nest.operands) - len(stores)
    suits_apart = launch.inner <= _MOST_APART and reads >= _LEAST_READ
    few, known = True, []
    for k, (operand, binding) in enumerate(
        zip(nest.operands, launch.bindings, strict=True)
    ):
        row, below, beside = _steps(operand, binding, nest, joined)
        apart = (row, below) != (points, launch.inner if joined else 0)
        if k in stores and apart:
            if not suits_apart:
                return None
            few = False
        known.append("0")
        if _has_windows(operand):
            within = (launch.inner - 1) * abs(beside)
            within += (min(down, lanes // launch.inner + 1) - 1) * abs(below)
            reach = within + abs(row) * (lanes // points + 1) * (points < 2 * lanes)
            words = registers(operand.dtype)
            if reach * words > most_windows(lanes) * lanes:
                return None
            count = windows_of(lanes, points, launch.inner, (row, below, beside), words)
            known[-1] = str(count)
            few = few and count <= _FEW_WINDOWS
        elif operand.gathers and not joined:
            known[-1] = str(windows_at(nest, k, launch.bindings, points, lanes))
    return "".join(known) if few else ""


def _is_short(columns: int, nest: Nest, lanes: int) -> bool:
    """Whether vectors along rows would be too empty, or cost too much where a row ends:
    masks, and elements that are loaded one by one."""
    if columns < lanes:
        return columns > 1
    costly = not has_mask_registers() or any(
        o.kind == "array" and o.inner == STRIDED for o in nest.operands
    )
    return costly and lanes < columns <= 3 * lanes // 2


def _vectors(points: int, lanes: int) -> int:
    """How many vectors are as long as a whole number of rows."""
    return points // min(points & -points, lanes)


def _steps(
    operand: Operand, binding: Binding, nest: Nest, joined: bool
) -> tuple[int, int, int]:
    """From one row to the next, and in them."""
    steps = [hint(n) for n in binding.strides]
    along = {BROADCAST: 0, CONTIGUOUS: 1, STRIDED: (steps or [0])[-1]}
    last = nest.outer - 1
    row, below = (steps[last - 1], steps[last]) if joined else (steps[last], 0)
    return row, below, along.get(operand.inner, 2)


class _Told(NamedTuple):
    """What is known of a vector of a group of rows, by operand: what is chosen from
    windows, distances from the first point, and lookups that stand still, with how many
    windows these have."""

    chosen: dict[int, list[Choice]]
    distances: dict[int, Value]
    lookups: dict[int, tuple[Choice, str]]


class Points:
    """Emits groups of rows of a nest. Made in the kernel's entry block.

    The last two loops are one row if they have few points. `arguments` are those of
    rows, with one loop less: the loop within them is `mid`. known: of the entry, what
    follows POINTS.
    """

    def __init__(
        self, b: Builder, nest: Nest, arguments: Arguments, lanes: int, known: str = ""
    ) -> None:
        self.b, self.lanes, self.known = b, lanes, known
        operands = tuple(
            o if _is_one(o) else o._replace(inner=STRIDED, beside=False)
            for o in nest.operands
        )
        self.nest = replace(nest, operands=operands)
        self.plan, self.arguments = schedule(self.nest), _joined(b, arguments)
        self.body = Body(b, self.plan, arguments, lanes)
        self.stored = {i.attr for i in nest.body if is_store(i)}
        parts = (self.plan.held[0], self.plan.sweeps[0].body, self.plan.held[1])
        self.order = [i for part in parts for i in part]
        self.still = {
            k: lookup
            for k, lookup in lookups(nest).items()
            if known and known[k] != "0"
        }
        (self.down,) = self.arguments.mid
        self.points = b.op(f"mul i64 {self.down}, {arguments.inner}")
        self._measure()

    def _measure(self) -> None:
        """Finds groups of rows, and makes the tables; whether all of it `suits`."""
        b, lanes, along = self.b, self.lanes, self.arguments.inner
        short = b.op(f"icmp sle i64 {self.points}, {_MOST_POINTS}")
        some = b.op(f"icmp sgt i64 {self.points}, 1")
        suits = b.op(f"and i1 {short}, {some}")
        points = b.op(f"select i1 {suits}, i64 {self.points}, i64 {lanes}")
        shared = b.op(f"and i64 {points}, {b.op(f'sub i64 0, {points}')}")
        shared = b.least(shared, str(lanes))
        self.vectors = b.op(f"udiv i64 {points}, {shared}")
        self.rows = b.op(f"udiv i64 {lanes}, {shared}")
        nbytes = b.op(f"mul i64 {self.vectors}, {_entries(self.nest) * ENTRY_BYTES}")
        fits = b.op(f"icmp ule i64 {nbytes}, {_STACK}")
        suits = b.op(f"and i1 {suits}, {fits}")
        vectors = b.op(f"select i1 {suits}, i64 {self.vectors}, i64 0")
        self.tables: dict[int, tuple[str, str]] = {}
        self.offsets: dict[int, str] = {}
        self.near: dict[int, str] = {}
        for k, access in enumerate(self.arguments.accesses):
            row, below = read(b, access.outer[-1]), read(b, access.mid[0])
            if _is_one(access.operand):
                continue
            shape, steps = Shape(vectors, along, self.down), (row, below, access.inner)
            if k in self.stored:
                right = b.op(f"icmp eq i64 {row}, {self.points}")
                one = b.op(f"icmp eq i64 {self.down}, 1")
                near = b.op(f"icmp eq i64 {below}, {along}")
                near = b.op(f"and i1 {right}, {b.op(f'or i1 {one}, {near}')}")
                if self.known:
                    suits = b.op(f"and i1 {suits}, {near}")
                    continue
                apart = b.op(f"select i1 {near}, i64 0, i64 {vectors}")
                shape = shape._replace(vectors=apart)
                self.near[k] = near
                self.offsets[k] = offsets(b, lanes, shape, (row, below, "1"))
                continue
            if not _has_windows(access.operand):
                self.offsets[k] = offsets(b, lanes, shape, steps)
                continue
            words = registers(access.operand.dtype)
            self.tables[k] = table(b, lanes, shape, steps, words)
            found = self.tables[k][1]
            suits = b.op(f"and i1 {suits}, {b.op(f'icmp sgt i64 {found}, 0')}")
            if self.known:
                few = b.op(f"icmp sle i64 {found}, {self.known[k]}")
                suits = b.op(f"and i1 {suits}, {few}")
                self.tables[k] = self.tables[k][0], self.known[k]
        for k in {o for lookup in self.still.values() for o in lookup.operands}:
            row = read(b, self.arguments.accesses[k].outer[-1])
            suits = b.op(f"and i1 {suits}, {b.op(f'icmp eq i64 {row}, 0')}")
        self.suits = suits
        self.steps = [
            b.op(f"mul i64 {self.rows}, {read(b, a.outer[-1])}")
            for a in self.arguments.accesses
        ]

    def run(self, start: Sequence[Word | str], first: str, last: str) -> str:
        """Emits whole groups of rows first..last of those that start at these
        positions; returns the first row that is left."""
        b = self.b
        groups = b.op(f"udiv i64 {b.op(f'sub i64 {last}, {first}')}, {self.rows}")
        groups = b.op(f"select i1 {self.suits}, i64 {groups}, i64 0")
        end = b.op(f"add i64 {first}, {b.op(f'mul i64 {groups}, {self.rows}')}")
        some = b.op(f"icmp sgt i64 {self.vectors}, 0")
        vectors = b.op(f"select i1 {some}, i64 {self.vectors}, i64 1")
        beside = b.op(f"udiv i64 {_TOGETHER}, {b.least(vectors, _SOME)}")
        height = b.op(f"mul i64 {self.rows}, {beside}")
        everywhere = Frame(start)
        for i in self.order:
            if not self.plan.varying[i]:
                self.body.run(i, everywhere)
        with b.loop(first, end, height) as top, b.loop("0", self.vectors) as vector:
            bottom = b.least(b.op(f"add i64 {top}, {height}"), end)
            at = self._positions(start, top, vector)
            told = self._read_tables(vector)
            above = Frame([position for _, position in at], parent=everywhere)
            near = self._lookups(above, vector, told)
            if near is None:
                self._groups((top, bottom), at, above, vector, told)
            else:
                with b.when(near):
                    self._groups((top, bottom), at, above, vector, told)
                with b.when(b.op(f"xor i1 {near}, true")):
                    apart = told._replace(lookups={})
                    self._groups((top, bottom), at, above, vector, apart)
        return end

    def _groups(
        self,
        rows: tuple[str, str],
        at: list[tuple[str, str]],
        above: Frame,
        vector: str,
        told: _Told,
    ) -> None:
        """One vector of each group of some rows."""
        b, done = self.b, above.values.keys()
        with b.carrying(*rows, self.rows, at) as turn:
            steps = zip(self.arguments.accesses, turn.values, self.steps, strict=True)
            turn.next = [a.moved(b, value, step) for a, value, step in steps]
            frame = Frame(turn.values, parent=above)
            for i in self.order:
                if self.plan.varying[i] and i not in done:
                    self._instruction(i, frame, vector, told)

    def _lookups(self, above: Frame, vector: str, told: _Told) -> str | None:
        """Finds where windows of lookups are that stand still, and what these are made
        of; whether they are near enough, None without any."""
        near = None
        for k, lookup in self.still.items():
            for i in self.order:
                new = i in lookup.places and i not in above.values
                if new and self.plan.varying[i]:
                    self._instruction(i, above, vector, told)
            offsets = self.body.offsets(lookup.load, above, 0)
            assert offsets is not None, "its places vary"
            offsets = told.distances[k] + offsets
            choice, count, fits = choice_at(offsets, int(self.known[k]))
            windows = "2" if self.known[k] == "2" else count
            told.lookups[k] = choice, windows
            near = fits if near is None else self.b.op(f"and i1 {near}, {fits}")
        return near

    def _positions(
        self,
        start: Sequence[Word | str],
        row: str,
        vector: str,
    ) -> list[tuple[str, str]]:
        """Where operands are for a vector of the group of rows that begins at `row`;
        what is `known` not to change from group to group is added to that."""
        b, found = self.b, []
        for k, (a, position) in enumerate(
            zip(self.arguments.accesses, start, strict=True)
        ):
            position = a.moved(b, position, b.op(f"mul i64 {row}, {a.outer[-1]}"))
            if self.known and k in self.stored:
                position = a.moved(b, position, b.op(f"mul i64 {vector}, {self.lanes}"))
            found.append(("i64" if a.operand.kind == "index" else "ptr", position))
        return found

    def _read_tables(self, vector: str) -> _Told:
        """What tables tell of a vector of a group of rows."""
        b, lanes, chosen = self.b, self.lanes, {}
        for k, (entries, _) in self.tables.items():
            dtype = self.nest.operands[k].dtype
            nbytes = registers(dtype) * ENTRY_BYTES
            moved = b.op(f"mul i64 {vector}, {nbytes}")
            entries = b.op(f"getelementptr i8, ptr {entries}, i64 {moved}")
            chosen[k] = read_choices(b, dtype, lanes, entries)
        distances = {
            k: load_offsets(b, at, lanes, vector)
            for k, at in self.offsets.items()
            if k not in self.stored
        }
        return _Told(chosen, distances, {})

    def _instruction(self, i: int, frame: Frame, vector: str, told: _Told) -> None:
        b, lanes, instr = self.b, self.lanes, self.nest.body[i]
        if instr.name != "load" and not is_store(instr):
            self.body.run(i, frame)
            return
        access = self.arguments.accesses[instr.attr]
        position, dtype = frame.positions[instr.attr], access.operand.dtype
        if is_store(instr):
            value = frame.get(instr.args[0], 0, lanes)
            if self.known:
                store(b, position, value, dtype, None)
                return
            near = self.near[instr.attr]
            with b.when(near):
                place = access.moved(b, position, b.op(f"mul i64 {vector}, {lanes}"))
                store(b, place, value, dtype, None)
            with b.when(b.op(f"xor i1 {near}, true")):
                at = self.offsets[instr.attr]
                store_apart(b, at, vector, position, value, dtype)
        elif _has_windows(access.operand):
            windows = self.tables[instr.attr][1]
            args = position, dtype, lanes, told.chosen[instr.attr], windows
            frame.values[i] = [load_windows(b, *args)]
        elif instr.attr in told.lookups:
            choice, windows = told.lookups[instr.attr]
            position = self.body.address(i, frame)
            args = position, dtype, lanes, [choice], windows
            frame.values[i] = [load_windows(b, *args)]
        elif access.operand.kind == "array":
            where = told.distances[instr.attr]
            steps = self.body.offsets(i, frame, 0)
            where = where if steps is None else where + steps
            places = pointers(b, access.kind, self.body.address(i, frame), where)
            frame.values[i] = [gather(places, dtype, None)]
        else:
            start, zero = Value(b, position, "i64", 1), Value(b, "0", "i64", 1)
            extra = told.distances[instr.attr]
            frame.values[i] = [iota(start, zero, extra, dtype, lanes)]


def _joined(b: Builder, arguments: Arguments) -> Arguments:
    """The last two loops around rows as the last one and `mid`, of one turn if rows
    would be too long; all words are read."""
    *leading, last = arguments.outer
    words = [
        (read(b, a.base), [read(b, step) for step in a.outer])
        for a in arguments.accesses
    ]
    if not leading:
        accesses = [
            replace(a, base=base, outer=steps, mid=["0"])
            for a, (base, steps) in zip(arguments.accesses, words, strict=True)
        ]
        return replace(arguments, mid=["1"], accesses=accesses)
    points = b.op(f"mul i64 {last}, {arguments.inner}")
    few = b.op(f"icmp sle i64 {points}, {_MOST_POINTS}")

    def either(x: str, y: str) -> str:
        return b.op(f"select i1 {few}, i64 {x}, i64 {y}")

    *leading, rows = leading
    outer = [*leading, either("1", rows), either(rows, last)]
    accesses = []
    for a, (base, [*first, row, step]) in zip(arguments.accesses, words, strict=True):
        steps, mid = [*first, row, either(row, step)], [either(step, "0")]
        accesses.append(replace(a, base=base, outer=steps, mid=mid))
    return replace(arguments, outer=outer, mid=[either(last, "1")], accesses=accesses)
