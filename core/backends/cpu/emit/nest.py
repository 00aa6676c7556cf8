"""Writes a nest as LLVM IR: vector code with run-time sizes.

LLVM is only asked for instruction selection, scheduling and register allocation, not
for loop optimisation, so what should be outside a loop is emitted outside it: row-level
values are splat before the sweep that uses them, bodies of few instructions are
unrolled, reductions keep one accumulator per unrolled copy, and only the last vectors
of a row are masked.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from typing import NamedTuple

from treadle.backends.cpu.emit.access import Arguments, Word, read, read_arguments
from treadle.backends.cpu.emit.across import AcrossSweeps, goes_across
from treadle.backends.cpu.emit.builder import Builder
from treadle.backends.cpu.emit.column import ColumnSweeps
from treadle.backends.cpu.emit.ending import worth_ending
from treadle.backends.cpu.emit.lanes import host_lanes
from treadle.backends.cpu.emit.ops import supported
from treadle.backends.cpu.emit.points import Points, goes_by_points
from treadle.backends.cpu.emit.row import RowSweeps
from treadle.backends.cpu.emit.several import SeveralRows, goes_together
from treadle.backends.cpu.emit.tasks import split_axis
from treadle.dims import is_dim
from treadle.fuse.lowering.launches import Launch
from treadle.kernels.lower import cost, is_reduction, is_running, is_store, schedule
from treadle.kernels.nest import CONTIGUOUS, STRIDED, Nest

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


ROW_TILE = 16
"""Rows that strided accesses visit together."""


def emit(nest: Nest, symbol: str, entry: str = "task", lanes: int = 0) -> str:
    """The IR text of a module that defines `symbol` for this nest.

    Args:
      entry: "task" for ``void (ptr args, i64 task)``; "few" for the same, where rows of
        few elements have code of their own, if the nest suits that; "short" for the
        same with short rows, "open" with both; "points" for elementwise nests with
        vectors from row to row; "tile" for
        ``void (ptr args, i64 b0, i64 b1, i64 r0, i64 r1, i64 c0, i64 c1)``, which runs
        rows r0..r1 and columns c0..c1 of an elementwise nest with outer indices
        (b0, b1, row).
      lanes: elements per vector; 0 for what suits this machine.
    """
    b = Builder()
    lanes = lanes or host_lanes()
    parameters = "i64 %task"
    if entry == "tile":
        parameters = "i64 %b0, i64 %b1, i64 %r0, i64 %r1, i64 %c0, i64 %c1"
    with b.function(f'define void @"{symbol}"(ptr %args, {parameters}) nounwind'):
        arguments = read_arguments(b, nest)
        if entry == "tile":
            _tile(b, nest, arguments, lanes)
        elif entry == "points" and goes_by_points(nest):
            _points_task(b, nest, arguments, lanes)
        elif nest.axis == "inner":
            _row_task(b, nest, arguments, lanes, entry)
        else:
            _column_task(b, nest, arguments, lanes)
        b("ret void")
    return b.text()


def _tile(b: Builder, nest: Nest, arguments: Arguments, lanes: int) -> None:
    sweeps = RowSweeps(b, schedule(nest), arguments, lanes)
    start = _positions(b, arguments, ["%b0", "%b1"])
    with b.loop("%r0", "%r1") as r:
        sweeps.row(_stepped(b, arguments, start, 2, r), "%c0", "%c1")


def _row_task(
    b: Builder, nest: Nest, arguments: Arguments, lanes: int, entry: str
) -> None:
    sweeps = RowSweeps(b, schedule(nest), arguments, lanes)
    together: list[AcrossSweeps | SeveralRows] = []
    if entry in ("few", "open") and goes_across(nest, lanes):
        together.append(AcrossSweeps(b, nest, arguments, lanes))
    if entry in ("short", "open") and goes_together(nest, lanes):
        together.append(SeveralRows(b, nest, arguments, lanes))
    first, last = "0", _product(b, arguments.outer)
    low, high = "0", arguments.inner
    split = split_axis(nest)
    if split == "rows":
        first, last = _share(b, last, arguments.tasks)
    elif split == "inner":
        low, high = _share_of_inner(b, arguments, lanes)
    elif split == "either":
        fewer = b.op(f"icmp slt i64 {last}, {arguments.tasks}")
        rows, columns = (
            _share(b, last, arguments.tasks),
            _share_of_inner(b, arguments, lanes),
        )
        first, last, low, high = (
            b.op(f"select i1 {fewer}, i64 {x}, i64 {y}")
            for x, y in zip((first, last, *columns), (*rows, low, high), strict=True)
        )
    else:
        last = _only_first_task(b, last)
    if entry == "few" and reads_back(nest):
        last = _rows_of_one_vector(b, nest, arguments, lanes, (first, last, low, high))
    if split in ("rows", "either") and crosses_rows(nest):
        with _segments(b, arguments, arguments.outer, first, last) as segment:
            _row_tiles(b, arguments, sweeps, segment, low, high)
        return
    if together:
        with _segments(b, arguments, arguments.outer, first, last) as segment:
            left, dim = segment.first, len(arguments.outer) - 1
            start = [read(b, word) for word in segment.start]
            for several in together:
                left = several.run(start, left, segment.last)
            with b.loop(left, segment.last) as r:
                positions = _stepped(b, arguments, segment.start, dim, r)
                sweeps.row(positions, low, high)
        return
    with _outer(b, arguments, arguments.outer, first, last) as (positions, _):
        sweeps.row(positions, low, high)


def _points_task(b: Builder, nest: Nest, arguments: Arguments, lanes: int) -> None:
    points = Points(b, nest, arguments, lanes)
    sweeps = RowSweeps(b, schedule(nest), arguments, lanes)
    joined = points.arguments
    first, last = _share(b, _product(b, joined.outer), arguments.tasks)
    with _segments(b, joined, joined.outer, first, last) as segment:
        left, dim = points.run(segment.start, segment.first, segment.last), nest.outer
        with (
            b.loop(left, segment.last) as r,
            b.loop("0", points.down) as below,
        ):
            positions = _stepped(b, joined, segment.start, dim - 1, r)
            positions = [
                a.moved(b, position, b.op(f"mul i64 {below}, {a.mid[0]}"))
                for a, position in zip(joined.accesses, positions, strict=True)
            ]
            sweeps.row(positions, "0", arguments.inner)


def _rows_of_one_vector(
    b: Builder,
    nest: Nest,
    arguments: Arguments,
    lanes: int,
    span: tuple[str, str, str, str],
) -> str:
    """Runs rows first..last, if low..high is as long as a vector, or a half, a quarter
    or an eighth of one, without masks. Rows that are added to the same one follow each
    other, and a load waits until a store with a mask has reached the cache. Returns
    the last row of what is left to do.
    """
    first, last, low, high = span
    length = b.op(f"sub i64 {high}, {low}")
    rows = [
        RowSweeps(b, schedule(nest), arguments, size, one=True)
        for size in _one_vector(lanes)
    ]
    for sweeps in rows:
        fits = b.op(f"icmp eq i64 {length}, {sweeps.lanes}")
        stop = b.op(f"select i1 {fits}, i64 {last}, i64 {first}")
        with _outer(b, arguments, arguments.outer, first, stop) as (positions, _):
            sweeps.vector(positions, low, None)
        last = b.op(f"select i1 {fits}, i64 {first}, i64 {last}")
    return last


def _one_vector(lanes: int) -> list[int]:
    """The lengths of rows that have code of their own."""
    return [lanes >> k for k in range(4) if lanes >> k > 1]


def may_be_one_vector(launch: Launch) -> bool:
    """Whether this launch, with whatever sizes it gets, may run that code."""
    fits = is_dim(launch.inner) or launch.inner in _one_vector(host_lanes())
    return fits and launch.nest.axis == "inner" and reads_back(launch.nest)


@lru_cache(maxsize=4096)
def reads_back(nest: Nest) -> bool:
    """Whether an elementwise nest adds rows to others, or combines them otherwise: what
    a row reads may have been written by the one before."""
    plan = schedule(nest)
    if len(plan.sweeps) > 1 or any(is_reduction(i) or is_running(i) for i in nest.body):
        return False
    if any(is_store(nest.body[i]) for part in plan.held for i in part):
        return False
    return any(
        is_store(instr)
        and instr.name != "store"
        and nest.operands[instr.attr].inner == CONTIGUOUS
        and not any(plan.varying[a] for a in instr.args[1:])
        for instr in nest.body
    )


def crosses_rows(nest: Nest) -> bool:
    """Whether an elementwise nest touches memory across its rows, as transposes do."""
    plan = schedule(nest)
    held = (nest.body[i] for part in plan.held for i in part)
    return (
        len(plan.sweeps) == 1
        and not plan.sweeps[0].reductions
        and not any(map(is_running, nest.body))
        and not any(is_store(instr) for instr in held)
        and any(o.inner == STRIDED and o.kind == "array" for o in nest.operands)
    )


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
                positions = _stepped(b, arguments, segment.start, dim, r)
                sweeps.vector(positions, i, stop if masked else None)

        rest = low
        if sweeps.has_whole_vectors:
            span = b.op(f"sub i64 {high}, {low}")
            rest = b.op(f"add i64 {low}, {b.op(f'and i64 {span}, {-sweeps.lanes}')}")
            columns(low, rest, masked=False)
        columns(rest, high, masked=True)


def _column_task(b: Builder, nest: Nest, arguments: Arguments, lanes: int) -> None:
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
    ends = worth_ending(schedule(nest))
    _column_blocks(
        b, nest, arguments, lanes, sizes, (first, last), vectors, width, ends
    )


def column_blocks(b: Builder, nest: Nest, arguments: Arguments, lanes: int) -> None:
    """Emits all of a column nest, whose sizes are numbers."""
    vectors = _column_vectors(nest, lanes)
    width = vectors * lanes
    sizes = [*arguments.outer, str(-(-int(arguments.inner) // width))]
    span = "0", str(math.prod(map(int, sizes)))
    _column_blocks(b, nest, arguments, lanes, sizes, span, [vectors], str(width))


def _column_blocks(
    b: Builder,
    nest: Nest,
    arguments: Arguments,
    lanes: int,
    sizes: list[str],
    span: tuple[str, str],
    vectors: list[int],
    width: str,
    ends: bool = False,
) -> None:
    """Emits the blocks of a span of collapsed indices of dimensions `sizes`.

    vectors: that are summed at once, the most first. width: of a block. ends: whether
    their ending is written once. (It needs the stack, of which loops inside of loops
    would take more in each turn.)
    """
    sweeps = ColumnSweeps(b, schedule(nest), arguments, lanes, ends * vectors[0])
    vectors = [*vectors, *([vectors[-1] // 2] if vectors[-1] > 4 else [])]
    with _outer(b, arguments, sizes, *span) as (positions, block):
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
    with _outer(b, arguments, arguments.outer, "0", str(count)) as (positions, _):
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


def _share_of_inner(b: Builder, arguments: Arguments, lanes: int) -> tuple[str, str]:
    """The task's part of a row: whole vectors of it."""
    vectors = _ceiling(b, arguments.inner, lanes)
    first, last = _share(b, vectors, arguments.tasks)
    low, high = (
        b.least(b.op(f"mul i64 {unit}, {lanes}"), arguments.inner)
        for unit in (first, last)
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


def _positions(
    b: Builder, arguments: Arguments, indices: list[str]
) -> list[Word | str]:
    """Where each operand stands at these leading outer indices."""
    positions: list[Word | str] = [a.base for a in arguments.accesses]
    for dim, index in enumerate(indices):
        positions = _stepped(b, arguments, positions, dim, index)
    return positions


def _stepped(
    b: Builder,
    arguments: Arguments,
    positions: Sequence[Word | str],
    dim: int,
    index: str,
) -> list[Word | str]:
    moved: list[Word | str] = []
    for access, position in zip(arguments.accesses, positions, strict=True):
        if dim < len(access.outer):
            step = read(b, access.outer[dim])
            offset = b.op(f"mul i64 {index}, {step}")
            position = access.moved(b, position, offset)
        moved.append(position)
    return moved


class Segment(NamedTuple):
    """Rows that differ in their innermost index only: first..last of it.

    start: where the operands stand at index 0.
    """

    start: Sequence[Word | str]
    first: str
    last: str


@contextmanager
def _outer(
    b: Builder, arguments: Arguments, sizes: list[str], first: str, last: str
) -> Iterator[tuple[list[Word | str], str]]:
    """Runs the body for collapsed indices first..last of dimensions `sizes`.

    Gives the positions of the operands and the innermost index.
    """
    if not sizes:
        with b.loop(first, last):
            yield [read(b, a.base) for a in arguments.accesses], "0"
        return
    with (
        _segments(b, arguments, sizes, first, last) as segment,
        b.loop(segment.first, segment.last) as index,
    ):
        yield _stepped(b, arguments, segment.start, len(sizes) - 1, index), index


@contextmanager
def _segments(
    b: Builder, arguments: Arguments, sizes: list[str], first: str, last: str
) -> Iterator[Segment]:
    """Runs the body for the segments of collapsed indices first..last.

    Their starts are computed from the indices, which an odometer keeps: there is one
    division per dimension and task.
    """
    if len(sizes) == 1:
        yield Segment([a.base for a in arguments.accesses], first, last)
        return
    indices = _digits(b, sizes, first)
    with b.carrying(first, last, "", [("i64", i) for i in indices]) as turn:
        *leading, at = turn.values
        left = b.op(f"sub i64 {last}, {turn.index}")
        end = b.least(b.op(f"add i64 {at}, {left}"), sizes[-1])
        yield Segment(_positions(b, arguments, leading), at, end)
        turn.step = b.op(f"sub i64 {end}, {at}")
        turn.next = [*_advanced(b, sizes[:-1], leading), "0"]


def _digits(b: Builder, sizes: list[str], number: str) -> list[str]:
    """The index of every dimension, of the collapsed index `number`."""
    digits = []
    for size in reversed(sizes[1:]):
        # A size of zero means an empty range: nothing will be run.
        empty = b.op(f"icmp eq i64 {size}, 0")
        divisor = b.op(f"select i1 {empty}, i64 1, i64 {size}")
        digits.append(b.op(f"urem i64 {number}, {divisor}"))
        number = b.op(f"udiv i64 {number}, {divisor}")
    return [number, *reversed(digits)]


def _advanced(b: Builder, sizes: list[str], digits: list[str]) -> list[str]:
    """The odometer's digits one step on."""
    result, carry = [], "1"
    for size, digit in zip(reversed(sizes), reversed(digits), strict=True):
        raised = b.op(f"add i64 {digit}, {carry}")
        full = b.op(f"icmp eq i64 {raised}, {size}")
        result.append(b.op(f"select i1 {full}, i64 0, i64 {raised}"))
        carry = b.op(f"zext i1 {full} to i64")
    return result[::-1]
