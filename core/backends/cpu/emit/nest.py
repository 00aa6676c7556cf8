"""Writes a nest as LLVM IR: vector code with run-time sizes.

LLVM is only asked for instruction selection, scheduling and register allocation, not
for loop optimisation, so what should be outside a loop is emitted outside it: row-level
values are splat before the sweep that uses them, bodies of few instructions are
unrolled, reductions keep one accumulator per unrolled copy, and only the last vectors
of a row are masked.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager

from treadle.backends.cpu.emit.access import Arguments, read, read_arguments
from treadle.backends.cpu.emit.across import AcrossSweeps, goes_across
from treadle.backends.cpu.emit.apart import goes_apart, rounds
from treadle.backends.cpu.emit.builder import Builder
from treadle.backends.cpu.emit.column import ColumnSweeps
from treadle.backends.cpu.emit.ending import worth_ending
from treadle.backends.cpu.emit.few_columns import (
    COLUMNS,
    FewColumns,
    FewColumnSweeps,
    sums_few_columns,
)
from treadle.backends.cpu.emit.known import KnownSweeps, entry_and_known, knows
from treadle.backends.cpu.emit.lanes import host_lanes
from treadle.backends.cpu.emit.ops import supported
from treadle.backends.cpu.emit.outer import (
    Segment,
    positions_at,
    rows_between,
    rows_of,
    segments,
    stepped,
)
from treadle.backends.cpu.emit.points import POINTS, Points, goes_by_points
from treadle.backends.cpu.emit.row import COPIES, RowSweeps
from treadle.backends.cpu.emit.running_across import RunningAcross, runs_across
from treadle.backends.cpu.emit.several import SeveralRows, goes_together
from treadle.backends.cpu.emit.short import has_short_rows, short_rows
from treadle.backends.cpu.emit.squares import STEPS, Squares, crosses_rows
from treadle.backends.cpu.emit.tasks import split_axis
from treadle.backends.cpu.emit.wide import WIDE, attributes, wide_lanes
from treadle.kernels.lower import cost, schedule
from treadle.kernels.nest import Nest

__all__ = ["emit", "supported"]

_COLUMN_BYTES = 256
"""How wide a block of a column nest should be: rows are read in pieces of so much, and
narrow pieces of long rows come slowly."""
_LONG_ROW = 1024
"""Elements of rows that lie apart: no two of them share a page of memory, ..."""
_WIDE_VECTORS = 16
"""... and a block reads this much of each, with half of AVX-512's registers."""
_AVX512_BYTES = 64
_COLUMN_WORK = 10
"""Instructions at each point, above which a block is half as wide: it is the
instructions that take the time then, and they are written for each vector."""


WHOLE = "whole"
"""The entry for rows that need no masks."""

ROW_TILE = 16
"""Rows that strided accesses visit together."""


def emit(nest: Nest, symbol: str, entry: str = "task", lanes: int = 0) -> str:
    """The IR text of a module that defines `symbol` for this nest.

    Args:
      entry: "task" for ``void (ptr args, i64 task)``; `WHOLE` for the same, where rows
        are whole turns (`row.is_whole`); "few" for the same, where rows of
        few elements have code of their own, if the nest suits that; "short" for the
        same with short rows, "open" with both; any of these with what is known of rows
        at its end (`known.py`), for which there is code beside; those of `points.py`
        for elementwise nests with vectors from row to row; those of `squares.py` and
        `few_columns.py`; "tile" for
        ``void (ptr args, i64 b0, i64 b1, i64 r0, i64 r1, i64 c0, i64 c1)``, which runs
        rows r0..r1 and columns c0..c1 of an elementwise nest with outer indices
        (b0, b1, row).
      lanes: elements per vector; 0 for what suits this machine.
    """
    b = Builder()
    lanes = lanes or host_lanes()
    parameters = "i64 %task, i64 %slot"
    if entry == "tile":
        parameters = "i64 %b0, i64 %b1, i64 %r0, i64 %r1, i64 %c0, i64 %c1"
    wide, more = lanes, ""
    if entry.startswith(WIDE):
        entry, wide, more = entry.removeprefix(WIDE), wide_lanes(nest), attributes()
    with b.function(f'define void @"{symbol}"(ptr %args, {parameters}) nounwind{more}'):
        arguments = read_arguments(b, nest)
        if entry == "tile":
            _tile(b, nest, arguments, lanes)
        elif entry.startswith(POINTS) and goes_by_points(nest):
            known = entry.removeprefix(POINTS)
            _points_task(b, nest, arguments, lanes, wide, known)
        elif nest.axis == "inner":
            _row_task(b, nest, arguments, lanes, entry, wide)
        else:
            _column_task(b, nest, arguments, lanes, entry)
        b("ret void")
    return b.text()


def _tile(b: Builder, nest: Nest, arguments: Arguments, lanes: int) -> None:
    sweeps = RowSweeps(b, schedule(nest), arguments, lanes)
    start = positions_at(b, arguments, ["%b0", "%b1"])
    columns = b.op("sub i64 %c1, %c0")
    apart = goes_apart(b, nest, arguments, columns, lanes)
    with (
        rounds(b, "%r0", "%r1", apart) as (first, step),
        b.loop(first, "%r1", step) as r,
    ):
        sweeps.row(stepped(b, arguments, start, 2, r), "%c0", "%c1")


def _row_task(
    b: Builder, nest: Nest, arguments: Arguments, lanes: int, entry: str, wide: int
) -> None:
    whole = entry == WHOLE
    sweeps = RowSweeps(b, schedule(nest), arguments, lanes, whole=whole)
    squares = None
    if entry in STEPS:
        squares = Squares(b, nest, arguments, sweeps, STEPS[entry])
    together: list[KnownSweeps | AcrossSweeps | SeveralRows | RunningAcross] = []
    entry, known = entry_and_known(entry)
    for count in dict.fromkeys((wide, lanes)):
        if knows(nest, known.columns, count):
            together.append(KnownSweeps(b, nest, arguments, count, known))
    if entry == "few" and runs_across(nest):
        together.append(RunningAcross(b, nest, arguments, lanes))
    if entry in ("few", "open") and goes_across(nest, lanes):
        together.append(AcrossSweeps(b, nest, arguments, lanes))
    if entry in ("short", "open") and goes_together(nest, lanes):
        together.append(SeveralRows(b, nest, arguments, lanes))
    first, last = "0", _product(b, arguments.outer)
    low, high = "0", arguments.inner
    split, unit = split_axis(nest), COPIES * lanes if whole else lanes
    if together and split == "either":
        split = "rows"
    if split == "rows":
        first, last = _share(b, last, arguments.tasks)
    elif split == "inner":
        low, high = _share_of_inner(b, arguments, unit)
    elif split == "either":
        fewer = b.op(f"icmp slt i64 {last}, {arguments.tasks}")
        rows, columns = (
            _share(b, last, arguments.tasks),
            _share_of_inner(b, arguments, unit),
        )
        first, last, low, high = (
            b.op(f"select i1 {fewer}, i64 {x}, i64 {y}")
            for x, y in zip((first, last, *columns), (*rows, low, high), strict=True)
        )
    else:
        last = _only_first_task(b, last)
    if entry == "few" and has_short_rows(nest):
        span = first, last, low, high
        last = short_rows(b, nest, arguments, lanes, span, known.columns)
    if split in ("rows", "either") and crosses_rows(nest) and not together:
        with segments(b, arguments, arguments.outer, first, last) as segment:
            if squares is None:
                _row_tiles(b, arguments, sweeps, segment, low, high)
            else:
                squares.run(segment, low, high)
        return
    apart = None
    if nest.outer == 1 and not whole:  # of more dimensions, the last is often short
        length = b.op(f"sub i64 {high}, {low}")
        apart = goes_apart(b, nest, arguments, length, lanes)
    if together:
        with segments(b, arguments, arguments.outer, first, last) as segment:
            left, dim = segment.first, len(arguments.outer) - 1
            start = [read(b, word) for word in segment.start]
            for several in together:
                left = several.run(start, left, segment.last)
            rest = segment._replace(first=left)
            with rows_between(b, arguments, rest, dim, apart) as (positions, _):
                sweeps.row(positions, low, high)
        return
    with rows_of(b, arguments, arguments.outer, first, last, apart) as (positions, _):
        sweeps.row(positions, low, high)


def _points_task(
    b: Builder, nest: Nest, arguments: Arguments, lanes: int, wide: int, known: str
) -> None:
    points = Points(b, nest, arguments, wide, known)
    sweeps = RowSweeps(b, schedule(nest), arguments, lanes)
    joined = points.arguments
    first, last = _share(b, _product(b, joined.outer), arguments.tasks)
    with segments(b, joined, joined.outer, first, last) as segment:
        left, dim = points.run(segment.start, segment.first, segment.last), nest.outer
        with (
            b.loop(left, segment.last) as r,
            b.loop("0", points.down) as below,
        ):
            positions = stepped(b, joined, segment.start, dim - 1, r)
            positions = [
                a.moved(b, position, b.op(f"mul i64 {below}, {a.mid[0]}"))
                for a, position in zip(joined.accesses, positions, strict=True)
            ]
            sweeps.row(positions, "0", arguments.inner)


def _row_tiles(
    b: Builder,
    arguments: Arguments,
    sweeps: RowSweeps,
    segment: Segment,
    low: str,
    high: str,
) -> None:
    """Runs the rows of a segment in groups, a vector of every row at a time.

    The cache lines that one row's strided vector touches then serve the next rows.
    """
    with b.loop(segment.first, segment.last, str(ROW_TILE)) as top:
        bottom = b.least(b.op(f"add i64 {top}, {ROW_TILE}"), segment.last)

        def columns(first: str, stop: str, masked: bool) -> None:
            with b.loop(first, stop, str(sweeps.lanes)) as i, b.loop(top, bottom) as r:
                dim = len(arguments.outer) - 1
                positions = stepped(b, arguments, segment.start, dim, r)
                part = sweeps.part(i, stop) if masked else None
                sweeps.vector(positions, i, part)

        rest = low
        if sweeps.has_whole_vectors:
            span = b.op(f"sub i64 {high}, {low}")
            rest = b.op(f"add i64 {low}, {b.op(f'and i64 {span}, {-sweeps.lanes}')}")
            columns(low, rest, masked=False)
        if not sweeps.whole:
            columns(rest, high, masked=True)


def _column_task(
    b: Builder, nest: Nest, arguments: Arguments, lanes: int, entry: str
) -> None:
    whole, few = entry == WHOLE, None
    if entry.startswith(COLUMNS) and sums_few_columns(nest):
        few = FewColumnSweeps(b, nest, arguments, FewColumns.of(entry), lanes)
    vectors = [_column_vectors(nest, lanes)]
    width = str(vectors[0] * lanes)
    if _may_be_wide(nest, lanes):
        vectors = [_WIDE_VECTORS, *vectors]
        long = b.op(f"icmp sge i64 {arguments.inner}, {_LONG_ROW}")
        width = b.op(f"select i1 {long}, i64 {_WIDE_VECTORS * lanes}, i64 {width}")
    sizes = [*arguments.outer, _ceiling(b, arguments.inner, width)]
    first, last = "0", _product(b, sizes)
    if split_axis(nest) == "blocks":
        first, last = _share(b, last, arguments.tasks)
    else:
        last = _only_first_task(b, last)
    # An ending needs the stack, of which loops inside of loops would take more in each
    # turn.
    ends = worth_ending(schedule(nest))
    sweeps = ColumnSweeps(b, schedule(nest), arguments, lanes, ends * vectors[0], whole)
    if few is not None:
        suits = few.suits()
        end = b.op(f"select i1 {suits}, i64 {last}, i64 {first}")
        _few_columns(b, arguments, few, sweeps, (first, end))
        first = end
    _column_blocks(b, arguments, sweeps, sizes, (first, last), vectors, width)


def _few_columns(
    b: Builder,
    arguments: Arguments,
    few: FewColumnSweeps,
    sweeps: ColumnSweeps,
    span: tuple[str, str],
) -> None:
    """Rows that are shorter than a vector, and so are one block each."""
    with segments(b, arguments, arguments.outer, *span) as segment:
        left, dim = few.run(segment), len(arguments.outer) - 1
        with b.loop(left, segment.last) as r:
            positions = stepped(b, arguments, segment.start, dim, r)
            sweeps.block(positions, "0", 1, True, "0")
            sweeps.end(positions, "0", arguments.inner)


def column_blocks(b: Builder, nest: Nest, arguments: Arguments, lanes: int) -> None:
    """Emits all of a column nest, whose sizes are numbers."""
    vectors = _column_vectors(nest, lanes)
    width = vectors * lanes
    sizes = [*arguments.outer, str(-(-int(arguments.inner) // width))]
    span = "0", str(math.prod(map(int, sizes)))
    sweeps = ColumnSweeps(b, schedule(nest), arguments, lanes)
    _column_blocks(b, arguments, sweeps, sizes, span, [vectors], str(width))


def _column_blocks(
    b: Builder,
    arguments: Arguments,
    sweeps: ColumnSweeps,
    sizes: list[str],
    span: tuple[str, str],
    vectors: list[int],
    width: str,
) -> None:
    """Emits the blocks of a span of collapsed indices of dimensions `sizes`.

    vectors: that are summed at once, the most first. width: of a block.
    """
    lanes = sweeps.lanes
    vectors = [*vectors, *([vectors[-1] // 2] if vectors[-1] > 4 else [])]
    with rows_of(b, arguments, sizes, *span) as (positions, block):
        first = low = b.op(f"mul i64 {block}, {width}")
        end = b.least(b.op(f"add i64 {low}, {width}"), arguments.inner)
        for copies in vectors:
            # As often as it fits: how a column is summed depends on what is left of
            # its row, not of its block.
            step = copies * lanes
            whole = b.op(f"sdiv i64 {b.op(f'sub i64 {end}, {low}')}, {step}")
            stop = b.op(f"add i64 {low}, {b.op(f'mul i64 {whole}, {step}')}")
            with b.loop(low, stop, str(step)) as i:
                sweeps.block(positions, i, copies, False, first)
            low = stop
        if not sweeps.whole:
            with b.loop(low, end, str(lanes)) as i:
                sweeps.block(positions, i, 1, True, first)
        sweeps.end(positions, first, end)


@contextmanager
def rows_at(b: Builder, arguments: Arguments, count: int) -> Iterator[list[str]]:
    """Runs the body for all rows, whose number is `count`; gives the operands'
    positions."""
    if count == 1:
        yield [read(b, a.base) for a in arguments.accesses]
        return
    with rows_of(b, arguments, arguments.outer, "0", str(count)) as (positions, _):
        yield [read(b, position) for position in positions]


def _may_be_wide(nest: Nest, lanes: int) -> bool:
    """Whether it has registers for the sums of a wide block, and few instructions to be
    written for each of their vectors."""
    plan = schedule(nest)
    found = [i for sweep in plan.sweeps for i in sweep.body]
    found += [i for held in plan.held for i in held]
    few = sum(cost(nest.body[i]) for i in found) <= _COLUMN_WORK
    sums = sum(len(sweep.reductions) for sweep in plan.sweeps)
    return few and sums == 1 and 4 * lanes == _AVX512_BYTES


def _column_vectors(nest: Nest, lanes: int) -> int:
    """How many vectors of accumulators a block of a column nest has."""
    work = sum(cost(nest.body[i]) for s in schedule(nest).sweeps for i in s.body)
    most = 8 if work <= _COLUMN_WORK else 4
    return max(4, min(most, _COLUMN_BYTES // (4 * lanes)))


def _share(b: Builder, total: str, tasks: str) -> tuple[str, str]:
    """The task's part of 0..total: the first tasks get one more if it is uneven."""
    each = b.op(f"udiv i64 {total}, {tasks}")
    rest = b.op(f"sub i64 {total}, {b.op(f'mul i64 {each}, {tasks}')}")
    before = b.op(f"mul i64 {each}, %task")
    first = b.op(f"add i64 {before}, {b.least('%task', rest)}")
    extra = b.op(f"zext i1 {b.op(f'icmp slt i64 %task, {rest}')} to i64")
    last = b.op(f"add i64 {first}, {b.op(f'add i64 {each}, {extra}')}")
    return first, last


def _share_of_inner(b: Builder, arguments: Arguments, unit: int) -> tuple[str, str]:
    """The task's part of a row, in units of so many elements."""
    units = _ceiling(b, arguments.inner, unit)
    first, last = _share(b, units, arguments.tasks)
    low, high = (
        b.least(b.op(f"mul i64 {n}, {unit}"), arguments.inner) for n in (first, last)
    )
    return low, high


def _only_first_task(b: Builder, last: str) -> str:
    is_first = b.op("icmp eq i64 %task, 0")
    return b.op(f"select i1 {is_first}, i64 {last}, i64 0")


def _product(b: Builder, sizes: list[str]) -> str:
    total = "1"
    for size in sizes:
        total = size if total == "1" else b.op(f"mul i64 {total}, {size}")
    return total


def _ceiling(b: Builder, total: str, unit: int | str) -> str:
    raised = b.op(f"add i64 {total}, {b.op(f'sub i64 {unit}, 1')}")
    return b.op(f"udiv i64 {raised}, {unit}")
