"""The kernel that transforms lines of complex numbers, for lengths of small factors.

``void transform(ptr args, i64 task)``, with the words of `own.Word`. Many lines are
transformed each in one lane of the vectors: see `beside`. A line by itself is a matrix
of n1 rows of n2 numbers: its columns are transformed, multiplied by
``exp(-2πi j k / n)``, and transposed; so are the rows then, side by side, and the
result lies in its order [1].

[1] D. H. Bailey, FFTs in external or hierarchical memory, J. Supercomputing 4 (1990).
"""

from __future__ import annotations

from functools import cache

from treadle.backends.cpu.emit.builder import Builder
from treadle.backends.cpu.fourier.beside import emit_beside, factor_of, scratch_of
from treadle.backends.cpu.fourier.lanes import (
    Complex,
    Lanes,
    at,
    emit_passes,
    first_of,
    groups_of,
    scaled,
)
from treadle.backends.cpu.fourier.mixing import emit_mixing
from treadle.backends.cpu.fourier.moving import emit_moving
from treadle.backends.cpu.fourier.own import IRFFT, RFFT, Word, lanes_of
from treadle.backends.cpu.gemm.parts import Args, share
from treadle.backends.cpu.run.native import Source


@cache
def source(itemsize: int) -> Source:
    """The kernel for parts of 4 or 8 bytes, whatever the length."""
    symbol = f"fourier_{8 * itemsize}"
    return Source(symbol, symbol, lambda: emit(symbol, lanes_of(itemsize)))


def common() -> list[Source]:
    """The kernels of all lines of known lengths that are transformed here."""
    return [source(4), source(8)]


def emit(symbol: str, lanes: Lanes) -> str:
    """The IR text of its module."""
    b = Builder()
    emit_transform(b, lanes, f'void @"{symbol}"')
    return b.text()


def emit_transform(b: Builder, lanes: Lanes, head: str) -> None:
    """The kernel and what it calls. head: its result and name."""
    emit_passes(b, lanes)
    emit_moving(b, lanes)
    emit_mixing(b, lanes)
    emit_beside(b, lanes)
    _emit_turn(b, lanes)
    _emit_alone(b, lanes)
    with b.function(f"define {head}(ptr %args, i64 %task, i64 %slot) nounwind"):
        alone = b.op(f"icmp eq i64 {Args(b)(Word.ALONE)}, 1")
        with b.when(alone):
            b("call void @alone(ptr %args, i64 %task, i64 %slot)")
        with b.when(b.op(f"xor i1 {alone}, true")):
            b("call void @beside(ptr %args, i64 %task, i64 %slot)")
        b("ret void")


def _emit_turn(b: Builder, lanes: Lanes) -> None:
    """``turn``: the columns of a block of n rows, times factors, to rows of blocks that
    lie `step` bytes apart: one for each vector of its rows."""
    with b.function(
        "define internal void @turn(ptr noalias %block, i64 %n, ptr noalias %factors,"
        " ptr noalias %y, i64 %step) noinline"
    ):
        groups = groups_of(b, lanes.count, "%n")
        with b.loop("0", groups) as group:
            first = first_of(b, lanes.count, group, "%n")
            block = at(b, "%block", scaled(b, first, lanes.row))
            rows = [
                lanes.load_pair(b, at(b, block, str(i * lanes.row)))
                for i in lanes.order
            ]
            columns = zip(
                lanes.transposed([z.re for z in rows]),
                lanes.transposed([z.im for z in rows]),
                strict=True,
            )
            ahead = scaled(b, group, "%step")
            y, factors = at(b, "%y", ahead), at(b, "%factors", ahead)
            for i, parts in zip(lanes.order, columns, strict=True):
                place = str(i * lanes.row)
                w = lanes.load_pair(b, at(b, factors, place))
                lanes.store_pair(b, Complex(*parts) * w, at(b, y, place))
        b("ret void")


def _emit_alone(b: Builder, lanes: Lanes) -> None:
    """A task owns some of the lines, which lie one behind the other."""
    with b.function("define internal void @alone(ptr %args, i64 %task, i64 %slot)"):
        args, number = Args(b), 2 * lanes.itemsize
        rows, columns = args(Word.ROWS), args(Word.COLUMNS)
        block_bytes = scaled(b, columns, lanes.row)
        turned = scratch_of(b, args)
        groups = groups_of(b, lanes.count, rows)
        block = at(b, turned, scaled(b, groups, block_bytes))
        packed = at(b, turned, args(Word.PACKED))
        packs, unpacks = (
            b.op(f"icmp eq i64 {args(Word.KIND)}, {kind}") for kind in (IRFFT, RFFT)
        )
        length = b.op(f"mul i64 {rows}, {columns}")
        mixing = f"i64 {length}, ptr {args(Word.MIXED, 'ptr')}"
        lines = b.op(f"mul i64 {args(Word.OUTER)}, {args(Word.INNER)}")
        with b.loop(*share(b, "%task", lines, args(Word.TASKS))) as line:
            x = at(b, args(Word.OPERAND, "ptr"), scaled(b, line, args(Word.WHOLE_IN)))
            y = at(b, args(Word.RESULT, "ptr"), scaled(b, line, args(Word.WHOLE_OUT)))
            with b.when(packs):
                b(f"call void @pack(ptr {x}, ptr {packed}, {mixing})")
            given = b.op(f"select i1 {packs}, ptr {packed}, ptr {x}")
            to = b.op(f"select i1 {unpacks}, ptr {packed}, ptr {y}")
            following = at(b, x, args(Word.WHOLE_IN))
            _emit_columns(b, args, lanes, (given, following), turned, block)
            following = at(b, y, args(Word.WHOLE_OUT))
            with b.loop("0", groups) as group:
                _emit_prefetch(b, args, following, (group, groups), True)
                mine = at(b, turned, scaled(b, group, block_bytes))
                recipe = args(Word.COLUMNS_RECIPE, "ptr")
                found = b.op(f"call ptr @passes(ptr {recipe}, ptr {mine}, ptr {block})")
                first = scaled(b, first_of(b, lanes.count, group, rows), number)
                b(
                    f"call void @store_across(ptr {at(b, to, first)}, i64 {number},"
                    f" i64 {scaled(b, rows, number)}, i64 {lanes.itemsize},"
                    f" i64 {columns}, ptr {found}, i64 {args(Word.FLIP)},"
                    f" {factor_of(args, lanes)})"
                )
            with b.when(unpacks):
                b(f"call void @unpack(ptr {packed}, ptr {y}, {mixing})")
        b("ret void")


def _emit_columns(
    b: Builder,
    args: Args,
    lanes: Lanes,
    lines: tuple[str, str],
    turned: str,
    block: str,
) -> None:
    """Transforms the columns of a line.

    lines: where it is, and the next one.
    """
    rows, columns = args(Word.ROWS), args(Word.COLUMNS)
    spare = at(b, block, scaled(b, rows, lanes.row))
    number, groups = 2 * lanes.itemsize, groups_of(b, lanes.count, columns)
    with b.loop("0", groups) as group:
        _emit_prefetch(b, args, lines[1], (group, groups), False)
        first = first_of(b, lanes.count, group, columns)
        b(
            f"call void @load_across(ptr {at(b, lines[0], scaled(b, first, number))},"
            f" i64 {number}, i64 {scaled(b, columns, number)}, i64 {lanes.itemsize},"
            f" i64 {rows}, ptr {block}, i64 {args(Word.FLIP)})"
        )
        recipe = args(Word.ROWS_RECIPE, "ptr")
        found = b.op(f"call ptr @passes(ptr {recipe}, ptr {block}, ptr {spare})")
        ahead = scaled(b, first, lanes.row)
        b(
            f"call void @turn(ptr {found}, i64 {rows},"
            f" ptr {at(b, args(Word.TURNS, 'ptr'), ahead)},"
            f" ptr {at(b, turned, ahead)}, i64 {scaled(b, columns, lanes.row)})"
        )


def _emit_prefetch(
    b: Builder, args: Args, line: str, turn: tuple[str, str], writes: bool
) -> None:
    """In one of some turns, asks for a part of a line: its numbers are not taken in the
    order in which they lie, which the CPU would foresee."""
    b.declare("void @llvm.prefetch.p0(ptr, i32, i32, i32)")
    with b.loop(*share(b, turn[0], args(Word.AHEAD), turn[1]), "64") as i:
        b(
            f"call void @llvm.prefetch.p0(ptr {at(b, line, i)}, i32 {int(writes)},"
            " i32 3, i32 1)"
        )
