"""Products of many small matrices: no wider than a vector, each multiplied as a whole.

To cut one of them into tiles and panels takes longer than to multiply it. Here some
rows of C are held in registers for all of k::

    for each few batch elements
        for each few rows
            for each of these batch elements
                copy B by rows, if it lies otherwise
                for each k: a row of B, times an element of each row of A
                epilogue

Sums are those of the tiles, to the bit: each element is added up along k.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import NamedTuple

from treadle.backends.cpu.emit.builder import Builder
from treadle.backends.cpu.gemm.arguments import ProductWord, Tile, Word
from treadle.backends.cpu.gemm.pack import transposed
from treadle.backends.cpu.gemm.parts import (
    Args,
    call_epilogue,
    minimum,
    offset,
    own_scratch,
    share,
)
from treadle.backends.cpu.gemm.tile import (
    Machine,
    lane_mask,
    masked_load,
    masked_store,
    multiply_add,
    splat,
)
from treadle.backends.cpu.run.divided import COLD
from treadle.dims import is_dim
from treadle.kernels.contract import Contraction

_LONGEST, _LITTLE, _MANY = 16, 1 << 11, 16
"""The most rows, columns and terms; multiplications, which take less time than to cut a
matrix; and from how many matrices on the module is worth its compilation."""
_HEIGHT = 8
"""Rows of C that are held in registers."""
_WIDTH = 8
"""The most lanes of vectors: those of 16 are half as many at a time."""
_LINE = 64
_CHUNK_BYTES = 1 << 14
"""Of matrices that stay in the L1 cache until all of their rows are done."""


def is_small(batches: int, m: int, n: int, k: int) -> bool:
    """Whether it is of many matrices, each of which takes less time than cutting it."""
    little = max(m, n, k) <= _LONGEST and m * n * k <= _LITTLE
    return batches >= _MANY and little


def may_be_small(product: Contraction) -> bool:
    """Whether it may be that for some of its sizes, which are open."""
    batches, sizes = product.b0 * product.b1, (product.m, product.n, product.k)
    many = is_dim(batches) or batches >= _MANY
    short = all([is_dim(size) or size <= _LONGEST for size in sizes])
    return many and short and not (product.fused_a or product.fused_b)


def small_lanes(tile: Tile) -> int:
    """Lanes of its vectors."""
    return min(tile.lanes, _WIDTH)


def small_chunk(sizes: tuple[int, int, int], tile: Tile, itemsize: int) -> int:
    """Matrices that are taken together. sizes: m, n and k."""
    m, n, k = sizes
    each = (m * k + k * n + m * n) * itemsize + _panel_bytes(k, tile, itemsize)
    return max(1, _CHUNK_BYTES // each)


def small_bytes(sizes: tuple[int, int, int], tile: Tile, itemsize: int) -> int:
    """The scratch of a task: for copies of B."""
    chunk = small_chunk(sizes, tile, itemsize)
    return -(-chunk * _panel_bytes(sizes[2], tile, itemsize) // _LINE) * _LINE


def _panel_bytes(k: int, tile: Tile, itemsize: int) -> int:
    """Of a copy of B, in squares."""
    width = small_lanes(tile)
    return -(-k // width) * width**2 * itemsize


def emit_small(b: Builder, machine: Machine) -> None:
    """Defines ``small``: one task, of some batch elements."""
    width = small_lanes(machine.tile)
    own = replace(machine, tile=replace(machine.tile, lanes=width))
    _emit_copy(b, own)
    for height in range(1, _HEIGHT + 1):
        _emit_rows(b, own, height)
    with b.function(
        "define internal void @small(ptr %args, i64 %task, i64 %slot) " + COLD
    ):
        args = Args(b)
        first, last = share(
            b, "%task", args(ProductWord.BATCHES), args(ProductWord.GRID_BATCHES)
        )
        rows = args(ProductWord.ROWS)
        copied = b.op(f"icmp ne i64 {args(Word.B + 4)}, 1")
        several = b.op(f"icmp sgt i64 {rows}, {_HEIGHT}")
        wide = b.op(f"icmp sgt i64 {args(ProductWord.N)}, {width}")
        several = b.op(f"or i1 {wide}, {several}")
        several = b.op(f"or i1 {copied}, {several}")
        chunk = b.op(
            f"select i1 {several}, i64 {args(ProductWord.BLOCK_TILES)}, i64 {last}"
        )
        scratch = own_scratch(b, args)
        with b.loop(first, last, chunk) as start:
            end = minimum(b, b.op(f"add i64 {start}, {chunk}"), last)
            with b.loop("0", args(ProductWord.N), str(width)) as column:
                span = f"ptr %args, i64 {start}, i64 {end}, ptr {scratch}, i64 {column}"
                with b.when(copied):
                    b(f"call void @small_copy({span})")
                _all_rows(b, rows, span)
        b("ret void")


def _all_rows(b: Builder, rows: str, span: str) -> None:
    """All rows of some batch elements: the last ones are fewer."""
    whole = b.op(f"and i64 {rows}, {-_HEIGHT}")
    with b.loop("0", whole, str(_HEIGHT)) as row:
        b(f"call void @small_{_HEIGHT}({span}, i64 {row})")
    rest = b.op(f"sub i64 {rows}, {whole}")
    for height in range(1, _HEIGHT):
        with b.when(b.op(f"icmp eq i64 {rest}, {height}")):
            b(f"call void @small_{height}({span}, i64 {whole})")


def _emit_rows(b: Builder, machine: Machine, height: int) -> None:
    """``small_H``: so many rows of some batch elements."""
    width, size = machine.tile.lanes, machine.itemsize
    with b.function(
        f"define internal void @small_{height}(ptr %args, i64 %first, "
        "i64 %last, ptr %scratch, i64 %column, i64 %row)"
    ):
        args = Args(b)
        n, k = _columns_left(b, args, width), args(ProductWord.K)
        columns = _Columns(n, lane_mask(b, machine, n))
        (_, a_row, a_column), (_, b_row, _), (_, c_row, _) = (
            _steps(b, args, x, size) for x in _OPERANDS
        )
        lies = b.op(f"icmp eq i64 {args(Word.B + 4)}, 1")
        step = b.op(f"select i1 {lies}, i64 {b_row}, i64 {width * size}")
        panel = _panel(b, k, width)
        found = _Moving(b, machine, args, "%first")
        places = [
            found.of(Word.A, "%row", "0"),
            found.either(
                lies, found.of(Word.B, "0", "%column"), ("%scratch", panel, panel)
            ),
            found.of(Word.C, "%row", "%column"),
        ]
        with found.batches("%last", places) as (numbers, (left, right, result)):
            c, rows = (result, c_row), (right, step, columns)
            _rows(b, machine, height, (left, a_row, a_column), rows, c, k)
            end = b.op(f"add i64 %row, {height}")
            last = b.op(f"add i64 %column, {n}")
            call_epilogue(b, args, "true", (*numbers, "%row", end, "%column", last))
        b("ret void")


_OPERANDS = Word.A, Word.B, Word.C


def _steps(b: Builder, args: Args, operand: Word, size: int) -> tuple[str, str, str]:
    """Bytes between batch elements, rows and columns."""
    one, row, column = (b.op(f"mul i64 {args(operand + w)}, {size}") for w in (2, 3, 4))
    return one, row, column


def _columns_left(b: Builder, args: Args, width: int) -> str:
    """How many there are from %column on, or as many as a vector has."""
    return minimum(b, b.op(f"sub i64 {args(ProductWord.N)}, %column"), str(width))


def _panel(b: Builder, k: str, width: int) -> str:
    """Elements of a copy of B."""
    squares = b.op(f"sdiv i64 {b.op(f'add i64 {k}, {width - 1}')}, {width}")
    return _times(b, squares, str(width * width))


class _Columns(NamedTuple):
    """How many there are, and a mask of them."""

    number: str
    mask: str


_Place = tuple[str, str, str]
"""Where something of a batch element is; elements from there to that of the next one,
and where the inner number starts again."""


class _Moving:
    """The loop over batch elements from the first one on."""

    def __init__(self, b: Builder, machine: Machine, args: Args, first: str) -> None:
        self.b, self.machine, self.args, self.first = b, machine, args, first
        self.inner = args(ProductWord.BATCH1)
        self.begun = [b.op(f"{how} i64 {first}, {self.inner}") for how in _DIVIDED]

    def of(self, operand: Word, row: str, column: str) -> _Place:
        """An operand, from a row and a column on."""
        b, args = self.b, self.args
        outer, one = (args(operand + i) for i in (1, 2))
        place = args(operand, "ptr")
        steps = outer, one, args(operand + 3), args(operand + 4)
        indices = zip((*self.begun, row, column), steps, strict=True)
        for index, step in indices:
            place = offset(b, self.machine, place, index, step)
        back = _times(b, b.op(f"sub i64 {self.inner}, 1"), one)
        return place, one, b.op(f"sub i64 {outer}, {back}")

    def either(self, which: str, x: _Place, y: _Place) -> _Place:
        kinds = zip(("ptr", "i64", "i64"), x, y, strict=True)
        place, one, around = (
            self.b.op(f"select i1 {which}, {kind} {p}, {kind} {q}")
            for kind, p, q in kinds
        )
        return place, one, around

    @contextmanager
    def batches(
        self, last: str, places: Sequence[_Place]
    ) -> Iterator[tuple[tuple[str, str], list[str]]]:
        """Both numbers of a batch element, and where everything is."""
        b = self.b
        carried = [("i64", x) for x in self.begun] + [("ptr", x) for x, *_ in places]
        with b.carrying(self.first, last, "1", carried) as turn:
            b0, b1, *here = turn.values
            yield (b0, b1), here
            following = b.op(f"add i64 {b1}, 1")
            ends = b.op(f"icmp eq i64 {following}, {self.inner}")
            carry = b.op(f"zext i1 {ends} to i64")
            turn.next = [
                b.op(f"add i64 {b0}, {carry}"),
                b.op(f"select i1 {ends}, i64 0, i64 {following}"),
            ]
            for place, (_, one, around) in zip(here, places, strict=True):
                moved = b.op(f"select i1 {ends}, i64 {around}, i64 {one}")
                turn.next.append(offset(b, self.machine, place, moved, "1"))


_DIVIDED = "udiv", "urem"


def _rows(
    b: Builder,
    machine: Machine,
    height: int,
    a: tuple[str, str, str],
    panel: tuple[str, str, _Columns],
    c: tuple[str, str],
    k: str,
) -> None:
    """Some rows of C. Steps are in bytes.

    a: its address, and steps. panel: that of B, the step between rows, and its columns.
    c: its address, and the step between rows.
    """
    (start, a_row, a_column), (panel_start, step, columns) = a, panel
    lines = _lines(b, start, a_row, height)
    zeros = [(machine.vector, "zeroinitializer")] * height
    moving = [("ptr", panel_start), ("i64", "0")]
    with b.carrying("0", k, "1", [*zeros, *moving]) as turn:
        *totals, place, along = turn.values
        row = masked_load(b, machine, place, columns.mask)
        for line, total in zip(lines, totals, strict=True):
            at = b.op(f"getelementptr i8, ptr {line}, i64 {along}")
            load = f"load {machine.scalar}, ptr {at}, align {machine.itemsize}"
            x = splat(b, machine, b.op(load), machine.scalar)
            turn.next.append(multiply_add(b, machine, x, row, total))
        turn.next.append(b.op(f"getelementptr i8, ptr {place}, i64 {step}"))
        turn.next.append(b.op(f"add i64 {along}, {a_column}"))
    _store(b, machine, turn.values[:height], _lines(b, *c, height), columns)


def _store(
    b: Builder, machine: Machine, rows: list[str], places: list[str], n: _Columns
) -> None:
    """The first n lanes of some rows: where masks are dear, by pieces of powers of two,
    which are the same for all of them."""
    if machine.assembly == "avx512":
        for place, row in zip(places, rows, strict=True):
            masked_store(b, machine, row, place, n.mask)
        return
    lanes, scalar = machine.tile.lanes, machine.scalar
    size, kind, left = lanes, machine.vector, n.number
    while True:
        # Of whole vectors nothing is left; of others, what a piece has not.
        has = b.op(f"icmp uge i64 {left}, {size}")
        with b.when(has):
            for place, row in zip(places, rows, strict=True):
                piece = row if size == lanes else _part(b, size, scalar, row, 0)
                b(f"store {kind} {piece}, ptr {place}, align {machine.itemsize}")
        if size == 1:
            return
        if size < lanes:
            rows = [_either(b, size, scalar, row, has) for row in rows]
        stored = b.op(f"select i1 {has}, i64 {size}, i64 0")
        places = [offset(b, machine, place, stored, "1") for place in places]
        left, size = b.op(f"sub i64 {left}, {stored}"), size // 2
        kind = f"<{size} x {scalar}>"


def _either(b: Builder, size: int, scalar: str, row: str, high: str) -> str:
    """The second half of a vector if `high`, else the first."""
    halves = (_part(b, size, scalar, row, first) for first in (size, 0))
    second, first = (f"<{size} x {scalar}> {half}" for half in halves)
    return b.op(f"select i1 {high}, {second}, {first}")


def _part(b: Builder, size: int, scalar: str, vector: str, first: int) -> str:
    picks = ", ".join(f"i32 {first + i}" for i in range(size))
    kind = f"<{2 * size} x {scalar}>"
    how = f"<{size} x i32> <{picks}>"
    return b.op(f"shufflevector {kind} {vector}, {kind} poison, {how}")


def _lines(b: Builder, start: str, step: str, count: int) -> list[str]:
    found = [start]
    while len(found) < count:
        found.append(b.op(f"getelementptr i8, ptr {found[-1]}, i64 {step}"))
    return found


def _times(b: Builder, number: str, step: str) -> str:
    return b.op(f"mul i64 {number}, {step}")


def _emit_copy(b: Builder, machine: Machine) -> None:
    """``small_copy``: copies B of some batch elements by rows, each a vector: from
    columns that are turned in registers, or element by element."""
    width = machine.tile.lanes
    with b.function(
        "define internal void @small_copy(ptr %args, i64 %first, i64 %last, "
        "ptr %scratch, i64 %column)"
    ):
        args = Args(b)
        n, k = _columns_left(b, args, width), args(ProductWord.K)
        panel = _panel(b, k, width)
        found = _Moving(b, machine, args, "%first")
        places = [found.of(Word.B, "0", "%column"), ("%scratch", panel, panel)]
        along = b.op(f"icmp eq i64 {args(Word.B + 3)}, 1")
        column = args(Word.B + 4)
        steps = [_times(b, j, column) for j in _numbers(b, n, width)]
        with (
            b.when(along),
            found.batches("%last", places) as (_, (given, to)),
            b.loop("0", k, str(width)) as some,
        ):
            rest = b.op(f"sub i64 {k}, {some}")
            start = offset(b, machine, given, some, "1")
            _turn(
                b, machine, start, steps, rest, offset(b, machine, to, some, str(width))
            )
        with (
            b.when(b.op(f"xor i1 {along}, true")),
            found.batches("%last", places) as (_, (given, to)),
            b.loop("0", n) as j,
            b.loop("0", k) as i,
        ):
            source = offset(b, machine, given, i, args(Word.B + 3))
            source = offset(b, machine, source, j, column)
            target = offset(b, machine, to, i, str(width))
            target = offset(b, machine, target, j, "1")
            x = b.op(f"load {machine.scalar}, ptr {source}, align {machine.itemsize}")
            b(f"store {machine.scalar} {x}, ptr {target}, align {machine.itemsize}")
        b("ret void")


def _numbers(b: Builder, count: str, lanes: int) -> list[str]:
    """Those of a vector's lanes: behind the last one there is no other."""
    last = b.op(f"sub i64 {count}, 1")
    return [b.least(str(j), last) for j in range(lanes)]


def _turn(
    b: Builder, machine: Machine, start: str, steps: list[str], rest: str, to: str
) -> None:
    """Writes a square: the first elements of columns, so many steps from `start`."""
    mask = lane_mask(b, machine, rest)
    places = [offset(b, machine, start, step, "1") for step in steps]
    rows = [masked_load(b, machine, place, mask) for place in places]
    for i, x in enumerate(transposed(b, machine, rows)):
        at = b.op(f"getelementptr {machine.vector}, ptr {to}, i64 {i}")
        b(f"store {machine.vector} {x}, ptr {at}, align {machine.itemsize}")
