"""Columns of patches for gradients by filters: for each row of the result the pixels
that it meets, those of all outputs one behind the other.

Of few channels, planes make low tiles, one for each tap; these make high ones, of all
taps. They are copies of parts of the planes, a row of outputs at a time, and cost the
less the more features there are. What takes longest then is reading the derivative by
the output, so that is packed for all features at once, of a few pixels::

    copy the columns of a slab
    for each image, for each chunk of its pixels
        for every few of them, for each panel: pack its features
        for each panel, for each tile of the columns: micro-kernel
"""

from __future__ import annotations

from collections.abc import Callable

from treadle.backends.cpu.conv.arguments import ConvWord, FilterWord
from treadle.backends.cpu.emit.builder import Builder
from treadle.backends.cpu.gemm.arguments import BUILT_IN, Word
from treadle.backends.cpu.gemm.parts import (
    COLD,
    Args,
    minimum,
    offset,
    panel_features,
)
from treadle.backends.cpu.gemm.sweep import Sweep
from treadle.backends.cpu.gemm.tile import Machine

Pack = Callable[[Builder, Machine, Args, tuple[str, str], str], None]
"""Packs a block of the derivative by the output: the image, then its pixels and
features; and where to."""

_APART = 5  # rows between panels: at multiples of a page they share cache sets
_ROWS = 8  # pixels whose features are packed, panel by panel, before the next ones


def emit_columns(b: Builder, machine: Machine, pack: Pack) -> None:
    """``filter_columns``: what slabs of some images contribute to panels p0..p1-1."""
    _emit_copies(b, machine)
    with b.function(
        "define internal void @filter_columns(ptr %args, ptr %own, ptr %planes, "
        "ptr %sums, i64 %i0, i64 %i1, i64 %y0, i64 %y1, i64 %p0, i64 %p1, i64 %again) "
        + COLD
    ):
        args = Args(b)
        skip = args(FilterWord.COLUMNS_OFFSET)
        columns = b.op(f"getelementptr i8, ptr %own, i64 {skip}")
        images, count = b.op("sub i64 %i1, %i0"), b.op("sub i64 %y1, %y0")
        b(
            f"call void @filter_copies(ptr %args, ptr %planes, i64 {images}, "
            f"i64 {count}, ptr {columns})"
        )
        out_x, chunk = args(ConvWord.OUT_X), args(FilterWord.CHUNK)
        r0, r1 = (b.op(f"mul i64 {y}, {out_x}") for y in ("%y0", "%y1"))
        pixels = b.op(f"sub i64 {r1}, {r0}")
        with b.loop("%i0", "%i1") as image, b.loop(r0, r1, chunk) as first:
            stop = minimum(b, b.op(f"add i64 {first}, {chunk}"), r1)
            before = b.op(f"mul i64 {b.op(f'sub i64 {image}, %i0')}, {pixels}")
            before = b.op(f"add i64 {before}, {b.op(f'sub i64 {first}, {r0}')}")
            again = b.op(f"or i64 {before}, %again")
            met = offset(b, machine, columns, before, "1")
            _emit_chunk(b, machine, args, (image, first, stop), (met, again), pack)
        b("ret void")


def _emit_chunk(
    b: Builder,
    machine: Machine,
    args: Args,
    pixels: tuple[str, str, str],
    summed: tuple[str, str],
    pack: Pack,
) -> None:
    """A chunk of an image's pixels. summed: its columns, and whether to add to what is
    there."""
    width, size = machine.tile.columns, machine.itemsize
    (image, first, stop), (columns, again) = pixels, summed
    skip, chunk = args(FilterWord.PANEL_OFFSET), args(FilterWord.CHUNK)
    packed = b.op(f"getelementptr i8, ptr %own, i64 {skip}")

    def place(panel: str, row: str) -> str:
        apart = b.op(f"add i64 {chunk}, {_APART}")
        number = b.op(f"mul i64 {b.op(f'sub i64 {panel}, %p0')}, {apart}")
        number = b.op(f"add i64 {number}, {b.op(f'sub i64 {row}, {first}')}")
        return offset(b, machine, packed, number, str(width))

    in_place = _lies_packed(b, machine, args)
    with (
        b.when(b.op(f"xor i1 {in_place}, true")),
        b.loop(first, stop, str(_ROWS)) as row,
    ):
        end = minimum(b, b.op(f"add i64 {row}, {_ROWS}"), stop)
        with b.loop("%p0", "%p1") as panel:
            _, f0, f1 = panel_features(b, machine, args, panel)
            where = f"i64 {row}, i64 {end}, i64 {f0}, i64 {f1}"
            pack(b, machine, args, (image, where), place(panel, row))
    a_row, c_row = (
        b.op(f"mul i64 {args(word)}, {size}")
        for word in (FilterWord.A_STEP, FilterWord.C_STEP)
    )
    low, extra = args(ConvWord.TILE_LOW), args(ConvWord.TILE_EXTRA)
    given = offset(b, machine, args(Word.B, "ptr"), image, args(Word.B + 1))
    given = offset(b, machine, given, first, args(Word.B + 3))
    with b.loop("%p0", "%p1") as panel:
        _, f0, f1 = panel_features(b, machine, args, panel)
        rows = b.op(f"select i1 {in_place}, ptr {given}, ptr {place(panel, first)}")
        Sweep(
            tiles=(low, extra, "0", args(ConvWord.TILES)),
            a=(columns, a_row),
            k=(segment_table(b, args, "%own"), "1", b.op(f"sub i64 {stop}, {first}")),
            panel=(rows, str(width * size)),
            c=(offset(b, machine, "%sums", f0, "1"), c_row),
            columns=b.op(f"sub i64 {f1}, {f0}"),
            accumulate=again,
        ).call(b)


def _lies_packed(b: Builder, machine: Machine, args: Args) -> str:
    """Whether the derivative by the output lies in memory as in its only panel."""
    if machine.pairs:
        return "false"
    width = machine.tile.columns
    tests = [
        b.op(f"icmp eq i64 {args(Word.PACK_B)}, {BUILT_IN}"),
        *(
            b.op(f"icmp eq i64 {args(word)}, {n}")
            for word, n in (
                (FilterWord.FEATURES, width),
                (Word.B + 3, width),
                (Word.B + 4, 1),
            )
        ),
    ]
    found = tests[0]
    for test in tests[1:]:
        found = b.op(f"and i1 {found}, {test}")
    return found


def segment_table(b: Builder, args: Args, own: str) -> str:
    """The table of where rows of output pixels begin in a plane."""
    skip = args(FilterWord.SEGMENTS_OFFSET)
    return b.op(f"getelementptr i8, ptr {own}, i64 {skip}")


def _emit_copies(b: Builder, machine: Machine) -> None:
    """``filter_copies``: of some images, with `count` rows of outputs each."""
    vector, lanes = machine.vector, str(machine.tile.lanes)
    with b.function(
        "define internal void @filter_copies(ptr %args, ptr %planes, i64 %images, "
        "i64 %count, ptr %columns) " + COLD
    ):
        args = Args(b)
        out_x, how = args(ConvWord.OUT_X), f"align {machine.itemsize}"
        line = b.op(f"mul i64 {args(FilterWord.PHASE)}, {args(ConvWord.STRIDE_X)}")
        line = b.op(f"mul i64 {line}, {args(ConvWord.STRIDE_Y)}")
        column, image_size = args(FilterWord.A_STEP), args(FilterWord.IMAGE)
        # Behind the only group of rows.
        table = b.op(f"getelementptr i64, ptr {args.at(FilterWord.TABLE)}, i64 2")
        with b.loop("0", args(FilterWord.COLUMNS)) as number:
            entry = b.op(f"getelementptr i64, ptr {table}, i64 {number}")
            start = b.op(f"load i64, ptr {entry}, align 8")
            source = offset(b, machine, "%planes", start, "1")
            target = offset(b, machine, "%columns", number, column)
            with b.loop("0", "%images") as image, b.loop("0", "%count") as y:
                row = offset(b, machine, source, image, image_size)
                row = offset(b, machine, row, y, line)
                before = b.op(f"add i64 {b.op(f'mul i64 {image}, %count')}, {y}")
                place = offset(b, machine, target, before, out_x)
                # What is too much is behind it: of the next row, or of nothing.
                with b.loop("0", out_x, lanes) as x:
                    met = offset(b, machine, row, x, "1")
                    met = b.op(f"load {vector}, ptr {met}, {how}")
                    to = offset(b, machine, place, x, "1")
                    b(f"store {vector} {met}, ptr {to}, {how}")
        b("ret void")
