"""The kernels of depthwise convolutions: lanes are channels, and nothing is copied
(but what large filters of groups need, see `depthwise_columns`).

A *block* is some outputs of an image, at most `BLOCK_Y` rows by `BLOCK_X` pixels. For
each block a task writes a table of the pixels that it sees: their addresses, line by
line, and that of a row of zeros where there is padding (or a gap between elements). A
tap, or an output, is then a fixed step in this table, whatever strides and dilations
there are, and two loops are all that is needed::

    for each tile of up to four outputs of a row       for each tile of up to four taps
        for each two vectors of channels                   for each two vectors
            for each tap: up to four sums                      for each output: ... sums

The second is the gradient by the filter. It adds to one of some partial sums, of which
there are as many as the shape says; `sum_partials` adds them up. The outputs of a line
follow each other in memory. Groups of few channels are done so, too (`depthwise_rows`).
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace

import numpy as np

from treadle.backends.cpu.conv.arguments import ConvWord, DepthwiseWord
from treadle.backends.cpu.conv.depthwise_blocks import (
    Block,
    Scratch,
    below_bytes,
    units,
)
from treadle.backends.cpu.conv.depthwise_columns import Columns, copied, emit_columns
from treadle.backends.cpu.conv.depthwise_pairs import emit_pair_sums
from treadle.backends.cpu.conv.depthwise_rows import OUTPUTS as ROW_OUTPUTS
from treadle.backends.cpu.conv.depthwise_rows import (
    emit_row_sums,
    emit_row_tile,
    row_of,
    row_of_groups,
)
from treadle.backends.cpu.conv.depthwise_table import emit_met, emit_steps, emit_table
from treadle.backends.cpu.conv.filter_kernel import emit_sum
from treadle.backends.cpu.conv.row_lanes import Row, emit_turns
from treadle.backends.cpu.emit.builder import Builder
from treadle.backends.cpu.gemm.arguments import Kind, Word
from treadle.backends.cpu.gemm.kernel import machine_for
from treadle.backends.cpu.gemm.parts import (
    Args,
    call_epilogue,
    emit_dispatch,
    minimum,
    offset,
    share,
)
from treadle.backends.cpu.gemm.sweep import row_of_tile
from treadle.backends.cpu.gemm.tile import (
    Machine,
    lane_mask,
    masked_load,
    masked_store,
)
from treadle.backends.cpu.run.native import Source
from treadle.backends.cpu.target import AMX, AVX512_BF16, bfloat_unit, host
from treadle.dtypes import bfloat16
from treadle.kernels.convolve import ConvSpec

OUTPUTS = 4
"""Sums of one vector of channels; with two vectors they hide the latency of their
additions, and fit the registers of every CPU."""

_CACHE_LINE = 64
_VECTORS = 2
_CHANNELS = 4
"""Vectors of channels between two tiles of taps: what these read stays in the cache."""


def source(spec: ConvSpec) -> Source:
    """The kernel ``depthwise`` for the dtypes of results and operands, and for the row
    of taps if there is one, to be loaded."""
    operands, _, dtype = spec.dtypes
    unit = bfloat_unit() if operands == bfloat16 else ""
    row = row_of(spec) if spec.depthwise else row_of_groups(spec)
    return _source(dtype, operands, unit, row)


@functools.cache
def _source(dtype: np.dtype, operands: np.dtype, unit: str, row: Row | None) -> Source:
    halves, short = operands == bfloat16, dtype == bfloat16
    machine = machine_for(np.dtype(np.float32) if short else dtype, host())
    machine = replace(machine, halves=halves, short=short)
    if halves and unit not in (AMX, AVX512_BF16):
        machine = replace(machine, assembly="")
    return Source(
        f"depthwise/{operands.name}/{dtype.name}/{unit}/{row and tuple(row)}",
        "depthwise",
        lambda: emit_module(machine, row),
    )


def common() -> list[Source]:
    """The kernels of floats for the rows of taps that models have most."""
    dtype, rows = np.dtype(np.float32), (Row(3, 1), Row(3, 2), Row(5, 1), Row(7, 1))
    return [_source(dtype, dtype, "", row) for row in rows]


def emit_module(machine: Machine, row: Row | None = None) -> str:
    """IR of everything that these dtypes need."""
    b = Builder()
    most = OUTPUTS if row is None else ROW_OUTPUTS
    for sums in range(1, most + 1):
        if row is None:
            _emit_tile(b, machine, sums)
        else:
            emit_row_tile(b, machine, row, sums, _TILE)
    names = ", ".join(f"ptr @tile_{sums}" for sums in range(1, most + 1))
    b.lines.append(f"@tiles = internal constant [{most} x ptr] [{names}]")
    if row is not None:
        emit_turns(b, machine, row)
        emit_row_sums(b, machine, row)
    emit_columns(b, machine)
    emit_steps(b, machine)
    emit_table(b, machine)
    emit_met(b)
    _emit_forward(b, machine, most)
    _emit_filter_gradient(b, machine, row)
    emit_sum(b, machine)
    kinds = {
        Kind.DEPTHWISE: "forward",
        Kind.DEPTHWISE_FILTER: "filter_gradient",
        Kind.SUM_PARTIALS: "sum_partials",
    }
    emit_dispatch(b, "depthwise", kinds)
    return b.text()


_TILE = (
    "ptr %table, ptr %places, ptr %steps, i64 %count, ptr %factors, ptr %out, "
    "i64 %out_row, i64 %c0, i64 %c1, i64 %add, i64 %line, i64 %asked_y, i64 %asked_x, "
    "i64 %below, i64 %apart"
)


def _emit_tile(b: Builder, machine: Machine, sums: int) -> None:
    """``tile_N``: adds up products of pixels and factors, for channels c0..c1-1.

    places, steps: pairs of numbers, of bytes. The first of both together lead from the
    table to the pixel of a sum's product, the second of `steps` from `factors` to its
    factor. add: whether (1) to what is there. line: taps in a row, if pixels are to be
    asked for: those of so many last rows and columns of taps. below: how many bytes
    from a pixel to what a row of outputs further down meets. apart: and how many from
    the factors of a channel to those of the next one in its group.
    """
    lanes = machine.tile.lanes
    with b.function(f"define internal void @tile_{sums}({_TILE})"):
        places = []
        for j in range(sums):
            place = b.op(f"getelementptr [2 x i64], ptr %places, i64 {j}")
            place = b.op(f"load i64, ptr {place}, align 8")
            places.append(b.op(f"getelementptr i8, ptr %table, i64 {place}"))
        keep = b.op("icmp ne i64 %add, 0")
        start = "%c0"
        if machine.halves:
            _emit_channels_of_pairs(b, machine, places, keep)
            b("ret void")
            return
        for vectors in (_VECTORS, 1):
            left = b.op(f"sub i64 %c1, {start}")
            whole = b.op(f"and i64 {left}, {-vectors * lanes}")
            stop = b.op(f"add i64 {start}, {whole}")
            with b.loop(start, stop, str(vectors * lanes)) as c:
                _emit_sums(b, machine, places, c, vectors, keep, None)
            start = stop
        left = b.op(f"sub i64 %c1, {start}")
        with b.when(b.op(f"icmp sgt i64 {left}, 0")):
            mask = lane_mask(b, machine, left)
            _emit_sums(b, machine, places, start, 1, keep, mask)
        b("ret void")


def _emit_channels_of_pairs(
    b: Builder, machine: Machine, places: list[str], keep: str
) -> None:
    """All channels of a tile of bfloat16."""
    width = 2 * machine.tile.lanes
    left = b.op("sub i64 %c1, %c0")
    stop = b.op(f"add i64 %c0, {b.op(f'and i64 {left}, {-width}')}")
    for start, end in (("%c0", stop), (stop, "%c1")):
        with b.loop(start, end, str(width)) as c:

            def at(base: str, c: str = c) -> str:
                return offset(b, machine.operand, base, c, "1")

            if len(places) > 1:
                with b.when(b.op(f"xor i1 {keep}, true")):
                    _emit_prefetch(b, places, at)
            rest = None if start == "%c0" else b.op(f"sub i64 %c1, {c}")
            emit_pair_sums(b, machine, places, c, keep, rest)


def _emit_sums(
    b: Builder,
    machine: Machine,
    places: list[str],
    channel: str,
    vectors: int,
    keep: str,
    mask: str | None,
) -> None:
    """Some vectors of all sums, from a channel on."""
    vector, lanes = machine.vector, machine.tile.lanes
    fma = f"@llvm.fmuladd.{machine.suffix}"
    b.declare(f"{vector} {fma}({vector}, {vector}, {vector})")

    def at(base: str, number: int) -> str:
        address = offset(b, machine, base, channel, "1")
        shift = number * lanes
        return offset(b, machine, address, str(shift), "1") if shift else address

    def load(base: str, number: int) -> str:
        return _load(b, machine, at(base, number), mask)

    if len(places) > 1 and mask is None:
        with b.when(b.op(f"xor i1 {keep}, true")):
            each = max(1, _CACHE_LINE // (lanes * machine.itemsize))
            for v in range(0, vectors, each):
                _emit_prefetch(b, places, functools.partial(at, number=v))
    first = [(vector, "zeroinitializer")] * (len(places) * vectors)
    with b.carrying("0", "%count", "1", first) as turn:
        entry = b.op(f"getelementptr [2 x i64], ptr %steps, i64 {turn.index}")
        step = b.op(f"load i64, ptr {entry}, align 8")
        entry = b.op(f"getelementptr i64, ptr {entry}, i64 1")
        factor = b.op(f"load i64, ptr {entry}, align 8")
        factor = b.op(f"getelementptr i8, ptr %factors, i64 {factor}")
        factors = [load(factor, v) for v in range(vectors)]
        totals = iter(turn.values)
        for place in places:
            pixel = b.op(f"getelementptr i8, ptr {place}, i64 {step}")
            pixel = b.op(f"load ptr, ptr {pixel}, align 8")
            for v in range(vectors):
                arguments = (load(pixel, v), factors[v], next(totals))
                text = ", ".join(f"{vector} {x}" for x in arguments)
                turn.next.append(b.op(f"call {vector} {fma}({text})"))
    lines = [b.op(f"mul i64 {j}, %out_row") for j in range(len(places))]
    lines = [b.op(f"getelementptr i8, ptr %out, i64 {line}") for line in lines]

    results = [at(line, v) for line in lines for v in range(vectors)]
    # A branch: products that waited for what was there would wait for memory.
    with b.when(b.op(f"xor i1 {keep}, true")):
        for address, value in zip(results, turn.values, strict=True):
            _store(b, machine, value, address, mask)
    with b.when(keep):
        for address, value in zip(results, turn.values, strict=True):
            old = _load(b, machine, address, mask)
            total = b.op(f"fadd {vector} {old}, {value}")
            _store(b, machine, total, address, mask)


def _emit_prefetch(b: Builder, places: list[str], at: Callable[[str], str]) -> None:
    """Asks for what the last taps of the outputs below meet: no machine foresees so
    many pixels."""
    b.declare("void @llvm.prefetch.p0(ptr, i32, i32, i32)")
    last = b.op("sub i64 %count, 1")
    with b.loop("0", "%asked_y") as y, b.loop("0", "%asked_x") as x:
        back = b.op(f"add i64 {b.op(f'mul i64 {y}, %line')}, {x}")
        number = b.op(f"sub i64 {last}, {minimum(b, back, last)}")
        entry = b.op(f"getelementptr [2 x i64], ptr %steps, i64 {number}")
        _emit_prefetch_of(b, places, b.op(f"load i64, ptr {entry}, align 8"), at)


def _emit_prefetch_of(
    b: Builder, places: list[str], step: str, at: Callable[[str], str]
) -> None:
    """The same for one tap."""
    pixels = []
    for place in places:
        pixel = b.op(f"getelementptr i8, ptr {place}, i64 {step}")
        pixels.append(b.op(f"load ptr, ptr {pixel}, align 8"))
    for pixel in pixels:
        address = at(b.op(f"getelementptr i8, ptr {pixel}, i64 %below"))
        b(f"call void @llvm.prefetch.p0(ptr {address}, i32 0, i32 2, i32 1)")


def _load(b: Builder, machine: Machine, address: str, mask: str | None) -> str:
    if mask is not None:
        return masked_load(b, machine, address, mask)
    return b.op(f"load {machine.vector}, ptr {address}, align {machine.itemsize}")


def _store(
    b: Builder, machine: Machine, value: str, address: str, mask: str | None
) -> None:
    if mask is not None:
        masked_store(b, machine, value, address, mask)
    else:
        align = machine.itemsize
        b(f"store {machine.vector} {value}, ptr {address}, align {align}")


def _emit_tiles(
    b: Builder, most: int, size: str, places: str, out: tuple[str, str], arguments: str
) -> None:
    """Calls tiles of about the same number of sums, which is at most `most`.

    out: the address of the first sum, and the step in bytes. arguments: of a tile, with
    holes for its places, the first of its sums, and the step.
    """
    raised = b.op(f"add i64 {size}, {most - 1}")
    tiles = b.op(f"udiv i64 {raised}, {most}")
    start, row = out
    low, extra = (b.op(f"{op} i64 {size}, {tiles}") for op in ("udiv", "urem"))
    with b.loop("0", tiles) as tile:
        first = row_of_tile(b, low, extra, tile)
        entry = b.op(f"getelementptr [2 x i64], ptr {places}, i64 {first}")
        skipped = b.op(f"mul i64 {first}, {row}")
        target = b.op(f"getelementptr i8, ptr {start}, i64 {skipped}")
        high = b.op(f"zext i1 {b.op(f'icmp slt i64 {tile}, {extra}')} to i64")
        count = b.op(f"add i64 {low}, {high}")
        slot = b.op(f"getelementptr ptr, ptr @tiles, i64 {b.op(f'sub i64 {count}, 1')}")
        function = b.op(f"load ptr, ptr {slot}, align 8")
        given = arguments.format(places=entry, out=target, row=row)
        b(f"call void {function}({given})")


@contextmanager
def _turns(
    b: Builder, machine: Machine, args: Args, scratch: Scratch, blocks: tuple[str, str]
) -> Iterator[tuple[Columns, str, str]]:
    """Loops over blocks, some at a time, and those over channels of theirs."""
    channels, columns = args(ConvWord.CHANNELS), args(DepthwiseWord.COLUMNS)
    several = args(DepthwiseWord.BLOCKS)
    with b.loop(*blocks, several) as start, b.loop("0", channels, columns) as c0:
        stop = minimum(b, b.op(f"add i64 {start}, {several}"), blocks[1])
        yield Columns(b, machine, args, scratch, c0), start, stop


def _emit_forward(b: Builder, machine: Machine, most: int) -> None:
    """``forward``: the blocks that a task owns, and their epilogue."""
    with b.function("define internal void @forward(ptr %args, i64 %task, i64 %slot)"):
        args = Args(b)
        scratch = Scratch(b, args)
        b(
            f"call void @steps(ptr %args, ptr {scratch.zeros}, ptr {scratch.taps}, "
            f"ptr {scratch.outputs})"
        )
        blocks = share(b, "%task", units(b, args), args(Word.TASKS))
        with _turns(b, machine, args, scratch, blocks) as (some, start, stop):
            factors = some.factors(args(Word.B, "ptr"))
            with b.loop(start, stop) as unit:
                block = Block(b, machine, args, scratch, unit)
                given = args, scratch, block
                _emit_block(b, machine, given, most, some, factors)
                last = b.op(f"add i64 {block.first}, {block.count}")
                where = (block.image, "0", block.first, last, some.c0, some.c1)
                call_epilogue(b, args, "true", where)
        b("ret void")


def _emit_block(
    b: Builder,
    machine: Machine,
    given: tuple[Args, Scratch, Block],
    most: int,
    some: Columns,
    factors: str,
) -> None:
    """Some channels of a block of outputs."""
    (args, scratch, block), of = given, machine.result
    taps = b.op(f"mul i64 {args(ConvWord.TAPS_Y)}, {args(ConvWord.TAPS_X)}")
    apart = b.op(f"mul i64 {args(DepthwiseWord.APART)}, {machine.operand.itemsize}")
    pixel, below = args(Word.C + 3), below_bytes(b, machine, args)
    row = b.op(f"mul i64 {pixel}, {of.itemsize}")
    out = offset(b, of, args(Word.C, "ptr"), block.image, args(Word.C + 1))
    out = offset(b, of, out, block.x0, pixel)
    with b.loop("0", block.rows) as line:
        y = b.op(f"add i64 {block.y0}, {line}")
        tables = f"ptr {scratch.taps}, ptr {scratch.met}"
        count = b.op(f"call i64 @met(ptr %args, {tables}, i64 {y})")
        is_all = b.op(f"icmp eq i64 {count}, 0")
        count = b.op(f"select i1 {is_all}, i64 {taps}, i64 {count}")
        met = b.op(f"select i1 {is_all}, {tables}")
        skipped = b.op(f"mul i64 {line}, {args(DepthwiseWord.BLOCK_X)}")
        places = f"getelementptr [2 x i64], ptr {scratch.outputs}, i64 {skipped}"
        _emit_tiles(
            b,
            most,
            block.columns,
            b.op(places),
            (offset(b, of, out, y, args(Word.C + 2)), row),
            f"ptr {scratch.table}, ptr {{places}}, ptr {met}, "
            f"i64 {count}, ptr {factors}, ptr {{out}}, i64 {{row}}, i64 {some.c0}, "
            f"i64 {some.c1}, i64 0, i64 {args(ConvWord.TAPS_X)}, "
            f"i64 {args(DepthwiseWord.ASKED_Y)}, "
            f"i64 {args(DepthwiseWord.ASKED_X)}, i64 {below}, i64 {apart}",
        )


def _emit_filter_gradient(b: Builder, machine: Machine, row: Row | None) -> None:
    """``filter_gradient``: the partial sums that a task owns."""
    with b.function(
        "define internal void @filter_gradient(ptr %args, i64 %task, i64 %slot)"
    ):
        args = Args(b)
        scratch = Scratch(b, args)
        b(
            f"call void @steps(ptr %args, ptr {scratch.zeros}, ptr {scratch.taps}, "
            f"ptr {scratch.outputs})"
        )
        size = b.op(f"mul i64 {args(ConvWord.K)}, {args(ConvWord.CHANNELS)}")
        size = b.op(f"mul i64 {size}, {machine.itemsize}")
        partials, base = args(DepthwiseWord.PARTIALS), args(Word.SCRATCH, "ptr")
        with b.loop(*share(b, "%task", partials, args(Word.TASKS))) as partial:
            skipped = b.op(f"mul i64 {partial}, {size}")
            sums = b.op(f"getelementptr i8, ptr {base}, i64 {skipped}")
            with b.when(b.op(f"xor i1 {copied(b, args)}, true")):
                zeros = f"ptr {sums}, i8 0, i64 {size}, i1 false"
                b(f"call void @llvm.memset.p0.i64({zeros})")
            blocks = share(b, partial, units(b, args), partials)
            with _turns(b, machine, args, scratch, blocks) as (some, start, stop):
                target = some.begun(sums, b.op(f"icmp eq i64 {start}, {blocks[0]}"))
                with b.loop(start, stop) as unit:
                    block = Block(b, machine, args, scratch, unit)
                    given = args, scratch, block
                    _emit_block_of_gradients(b, machine, given, row, some, target)
                some.put(sums)
        b("ret void")


def _emit_block_of_gradients(
    b: Builder,
    machine: Machine,
    given: tuple[Args, Scratch, Block],
    row: Row | None,
    some: Columns,
    sums: str,
) -> None:
    """Adds what a block gives to the sums of some channels."""
    args, scratch, block = given
    rows = args(DepthwiseWord.APART)
    apart = b.op(f"mul i64 {rows}, {machine.itemsize}")
    several = str(_CHANNELS * machine.tile.lanes)
    ct = args(Word.B, "ptr")
    for index, word in ((block.image, 1), (block.first, 3)):
        ct = offset(b, machine.operand, ct, index, args(Word.B + word))
    ct, step, below = some.near(block, ct)
    pixel = b.op(f"mul i64 {step}, {machine.operand.itemsize}")
    with b.loop(some.c0, some.c1, several) as c0:
        c1 = minimum(b, b.op(f"add i64 {c0}, {several}"), some.c1)
        if row is None:
            _emit_tiles(
                b,
                OUTPUTS,
                args(ConvWord.K),
                scratch.taps,
                (sums, apart),
                f"ptr {scratch.table}, ptr {{places}}, ptr {scratch.outputs}, "
                f"i64 {block.count}, ptr {ct}, ptr {{out}}, i64 {{row}}, i64 {c0}, "
                f"i64 {c1}, i64 1, i64 0, i64 0, i64 0, i64 0, i64 0",
            )
        else:
            ends = f"i64 {apart}, i64 {c0}, i64 {c1}"
            operands = ct, pixel, sums, rows, below, ends
            _emit_rows_of_taps(b, machine, given, row, operands)


def _emit_rows_of_taps(
    b: Builder,
    machine: Machine,
    given: tuple[Args, Scratch, Block],
    row: Row,
    operands: tuple[str, str, str, str, str, str],
) -> None:
    """Calls `row_sums` for each row of taps.

    operands: the addresses of gradients and sums, each with how far they are apart, in
    bytes and in elements; how far pixels to be asked for are; the last arguments.
    """
    args, scratch, block = given
    ct, pixel, sums, apart, below, ends = operands
    line = b.op(f"mul i64 {args(DepthwiseWord.LINE)}, 8")
    line = b.op(f"mul i64 {line}, {args(ConvWord.STRIDE_Y)}")
    each = args(ConvWord.GROUP_CHANNELS)
    taps = b.op(f"mul i64 {args(ConvWord.TAPS_Y)}, {row.taps}")
    asked = b.op(f"mul i64 {args(DepthwiseWord.ASKED_Y)}, {row.taps}")
    first = b.op(f"sub i64 {taps}, {asked}")
    with b.loop("0", taps, str(row.taps)) as tap:
        is_new = b.op(f"icmp sge i64 {tap}, {first}")
        asked = b.op(f"select i1 {is_new}, i64 {below}, i64 0")
        entry = b.op(f"getelementptr [2 x i64], ptr {scratch.taps}, i64 {tap}")
        skipped = b.op(f"load i64, ptr {entry}, align 8")
        table = b.op(f"getelementptr i8, ptr {scratch.table}, i64 {skipped}")
        target = b.op(f"mul i64 {tap}, {each}")
        target = offset(b, machine, sums, target, apart)
        b(
            f"call void @row_sums(ptr {table}, i64 {line}, i64 {block.rows}, "
            f"i64 {block.columns}, ptr {ct}, i64 {pixel}, ptr {target}, "
            f"i64 {asked}, {ends})"
        )
