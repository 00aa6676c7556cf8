"""Convolutions of several images at once: pixels at one place lie side by side.

A tile's rows are then images, and columns beside each other, all of which the same taps
meet, so that it leaves out the others: beside a border most tiles of small images are.
And it has as many rows as it has registers for, however narrow an image is. Tasks and
units are those of `kernel`, a unit being a slab of some images::

    copy the slab, whose elements (y, phase of x, x, image, channel) lie in this order
    for each panel
        for each row of pixels
            for each run of columns that the same taps meet
                write the table of segments that these make
                for each tile of the run: micro-kernel, into a row of results
            take the results of the images apart
        every few rows: epilogue, image by image
"""

from __future__ import annotations

from treadle.backends.cpu.conv.arguments import ConvWord
from treadle.backends.cpu.conv.kernel import emit_tasks, images_and_rows
from treadle.backends.cpu.conv.taps import X, Y, taps_inside
from treadle.backends.cpu.emit.builder import Builder
from treadle.backends.cpu.gemm.arguments import Word
from treadle.backends.cpu.gemm.parts import (
    Args,
    call_epilogue,
    call_pack,
    maximum,
    minimum,
    offset,
    panel_features,
)
from treadle.backends.cpu.gemm.sweep import Sweep
from treadle.backends.cpu.gemm.tile import (
    Machine,
    lane_mask,
    masked_load,
    masked_store,
)
from treadle.backends.cpu.run.divided import COLD


def emit_together(b: Builder, machine: Machine) -> None:
    """Defines ``together``, beside ``convolution``."""
    _emit_copies(b, machine)
    _emit_apart(b, machine)
    _emit_run(b, machine)
    _emit_rows(b, machine)
    emit_tasks(b, machine, "together", _emit_unit)


def _emit_unit(
    b: Builder,
    machine: Machine,
    args: Args,
    unit: str,
    panels: tuple[str, str],
    scratch: tuple[str, str],
) -> None:
    (i0, i1), (y0, y1) = images_and_rows(b, args, unit)
    where = f"i64 {i0}, i64 {i1}, i64 {y0}, i64 {y1}"
    b(f"call void @together_copies(ptr %args, {where}, ptr {scratch[0]})")
    size = b.op(f"mul i64 {args(ConvWord.K)}, {machine.tile.columns}")
    with b.loop(*panels) as panel:
        number = b.op(f"sub i64 {panel}, {panels[0]}")
        weights = offset(b, machine, scratch[1], number, size)
        b(
            f"call void @together_rows(ptr %args, {where}, i64 {panel}, "
            f"ptr {scratch[0]}, ptr {weights})"
        )


_WHERE = "i64 %i0, i64 %i1, i64 %y0, i64 %y1"
"""Images i0..i1-1, rows y0..y1-1 of the result."""


def _emit_copies(b: Builder, machine: Machine) -> None:
    """``together_copies``: the rows of the input that exist, side by side."""
    with b.function(
        f"define internal void @together_copies(ptr %args, {_WHERE}, ptr %slab) " + COLD
    ):
        args = Args(b)
        stride, step = args(ConvWord.STRIDE_Y), args(ConvWord.STRIDE_X)
        top = b.op(f"mul i64 %y0, {stride}")
        top = b.op(f"sub i64 {top}, {args(ConvWord.PAD_Y)}")
        taps = b.op(f"sub i64 {args(ConvWord.TAPS_Y)}, 1")
        reach = b.op(f"mul i64 {taps}, {args(ConvWord.DILATION_Y)}")
        end = b.op(f"mul i64 {b.op('sub i64 %y1, 1')}, {stride}")
        end = b.op(f"sub i64 {end}, {args(ConvWord.PAD_Y)}")
        end = b.op(f"add i64 {b.op(f'add i64 {end}, {reach}')}, 1")
        end = minimum(b, end, args(ConvWord.IN_Y))
        pixel = args(ConvWord.PIXEL)
        apart = b.op(f"mul i64 {args(ConvWord.TOGETHER)}, {pixel}")
        phase_size = b.op(f"mul i64 {args(ConvWord.PHASE)}, {apart}")
        width, channels = args(ConvWord.IN_X), args(ConvWord.CHANNELS)
        whole = b.op(f"icmp eq i64 {step}, 1")
        every = b.op(f"mul i64 {step}, {args(Word.A + 3)}")
        with (
            b.loop(maximum(b, top, "0"), end) as y,
            b.loop("0", step) as phase,
            b.loop("%i0", "%i1") as image,
        ):
            line = b.op(f"sub i64 {y}, {top}")
            target = offset(b, machine, "%slab", line, args(ConvWord.LINE))
            target = offset(b, machine, target, phase, phase_size)
            number = b.op(f"sub i64 {image}, %i0")
            target = offset(b, machine, target, number, pixel)
            block = f"ptr {target}, i64 {apart}"
            with b.when(whole):
                where = f"i64 {image}, i64 {y}, i64 0, i64 {width}, i64 0"
                where = f"{where}, i64 {channels}"
                call_pack(b, args, Word.PACK_A, Word.A, where, block)
            with b.when(b.op(f"xor i1 {whole}, true")):
                source = args(Word.A, "ptr")
                for i, index in enumerate((image, y, phase), start=1):
                    source = offset(b, machine, source, index, args(Word.A + i))
                count = b.op(f"add i64 {width}, {b.op(f'sub i64 {step}, 1')}")
                count = b.op(f"sub i64 {count}, {phase}")
                count = b.op(f"sdiv i64 {count}, {step}")
                b(
                    f"call void @pack_copy(ptr {source}, i64 {every}, i64 {count}, "
                    f"i64 {channels}, {block})"
                )
        b("ret void")


def _emit_rows(b: Builder, machine: Machine) -> None:
    """``together_rows``: one panel of features."""
    with b.function(
        f"define internal void @together_rows(ptr %args, {_WHERE}, i64 %panel, "
        "ptr %slab, ptr %weights) " + COLD
    ):
        args = Args(b)
        group, f0, f1 = panel_features(b, machine, args, "%panel")
        slab = offset(b, machine, "%slab", group, args(ConvWord.GROUP_CHANNELS))
        line = b.op(f"mul i64 {args(ConvWord.STRIDE_Y)}, {args(ConvWord.LINE)}")
        columns = b.op(f"sub i64 {f1}, {f0}")
        out_x, step = args(ConvWord.OUT_X), args(ConvWord.EPILOGUE_ROWS)
        own = "ptr %slab"
        with b.loop("%y0", "%y1", step) as first:
            stop = minimum(b, b.op(f"add i64 {first}, {step}"), "%y1")
            with b.loop(first, stop) as y:
                within = b.op(f"sub i64 {y}, %y0")
                source = offset(b, machine, slab, within, line)
                dy = ", ".join(f"i64 {tap}" for tap in taps_inside(b, args, y, Y))
                with b.carrying("0", out_x, "", []) as turn:
                    x0, x1, dx = _run_from(b, args, turn.index, out_x)
                    b(
                        f"call void @together_run(ptr %args, {own}, i64 {x0}, "
                        f"i64 {x1}, {dy}, {dx}, ptr {source}, ptr %weights, "
                        f"i64 {columns})"
                    )
                    turn.step = b.op(f"sub i64 {x1}, {x0}")
                b(
                    f"call void @together_apart(ptr %args, {own}, i64 %i0, i64 %i1, "
                    f"i64 {y}, i64 {f0}, i64 {columns})"
                )
            r0, r1 = (b.op(f"mul i64 {y}, {out_x}") for y in (first, stop))
            with b.loop("%i0", "%i1") as image:
                call_epilogue(b, args, "true", (image, "0", r0, r1, f0, f1))
        b("ret void")


def _run_from(b: Builder, args: Args, x0: str, out_x: str) -> tuple[str, str, str]:
    """A run of columns: the first, the one after the last, and the taps that they meet
    (the first, and the one after the last)."""
    taps = taps_inside(b, args, x0, X)
    following = b.op(f"add i64 {x0}, 1")
    with b.carrying(following, out_x, "1", [("i64", "1"), ("i64", "1")]) as ahead:
        same, length = ahead.values
        found = taps_inside(b, args, ahead.index, X)
        for mine, other in zip(taps, found, strict=True):
            equal = b.op(f"zext i1 {b.op(f'icmp eq i64 {mine}, {other}')} to i64")
            same = b.op(f"and i64 {same}, {equal}")
        ahead.next = [same, b.op(f"add i64 {length}, {same}")]
    x1 = b.op(f"add i64 {x0}, {ahead.values[1]}")
    return x0, x1, ", ".join(f"i64 {tap}" for tap in taps)


def _emit_run(b: Builder, machine: Machine) -> None:
    """``together_run``: columns x0..x1-1 of a row of the result, which taps dx0..dx1-1
    of the rows dy0..dy1-1 meet."""
    size, width = machine.itemsize, machine.tile.columns
    with b.function(
        "define internal void @together_run(ptr %args, ptr %own, i64 %x0, i64 %x1, "
        "i64 %dy0, i64 %dy1, i64 %dx0, i64 %dx1, ptr %source, ptr %weights, "
        "i64 %columns) " + COLD
    ):
        args = Args(b)
        skip = args(ConvWord.PLACES_OFFSET)
        table = b.op(f"getelementptr i8, ptr %own, i64 {skip}")
        pixel, together = args(ConvWord.PIXEL), args(ConvWord.TOGETHER)
        apart = b.op(f"mul i64 {together}, {pixel}")
        step, taps_x = args(ConvWord.STRIDE_X), args(ConvWord.TAPS_X)
        across = b.op("sub i64 %dx1, %dx0")
        tap_bytes = b.op(f"mul i64 {args(ConvWord.GROUP_CHANNELS)}, {width * size}")
        first = b.op(f"mul i64 %x0, {step}")
        first = b.op(f"sub i64 {first}, {args(ConvWord.PAD_X)}")
        missed = b.op(f"sub i64 {taps_x}, {across}")
        before = b.op(f"mul i64 %dy0, {taps_x}")
        before = b.op(f"add i64 {before}, %dx0")
        with b.loop("%dy0", "%dy1") as dy, b.loop("%dx0", "%dx1") as dx:
            at = b.op(f"mul i64 {dx}, {args(ConvWord.DILATION_X)}")
            at = b.op(f"add i64 {first}, {at}")
            column, phase = (b.op(f"{op} i64 {at}, {step}") for op in ("udiv", "urem"))
            phase = b.op(f"mul i64 {phase}, {args(ConvWord.PHASE)}")
            place = b.op(f"mul i64 {b.op(f'add i64 {phase}, {column}')}, {apart}")
            line = b.op(f"mul i64 {dy}, {args(ConvWord.DILATION_Y)}")
            line = b.op(f"mul i64 {line}, {args(ConvWord.LINE)}")
            place = b.op(f"mul i64 {b.op(f'add i64 {line}, {place}')}, {size}")
            is_first = b.op(f"icmp eq i64 {dy}, %dy0")
            left_out = b.op(f"select i1 {is_first}, i64 {before}, i64 {missed}")
            is_first = b.op(f"icmp eq i64 {dx}, %dx0")
            left_out = b.op(f"select i1 {is_first}, i64 {left_out}, i64 0")
            left_out = b.op(f"mul i64 {left_out}, {tap_bytes}")
            number = b.op(f"mul i64 {b.op(f'sub i64 {dy}, %dy0')}, {across}")
            number = b.op(f"add i64 {number}, {b.op(f'sub i64 {dx}, %dx0')}")
            entry = b.op(f"getelementptr [2 x i64], ptr {table}, i64 {number}")
            b(f"store i64 {place}, ptr {entry}, align 8")
            entry = b.op(f"getelementptr i64, ptr {entry}, i64 1")
            b(f"store i64 {left_out}, ptr {entry}, align 8")
        count = b.op(f"mul i64 {b.op('sub i64 %dy1, %dy0')}, {across}")
        rows = b.op(f"mul i64 {b.op('sub i64 %x1, %x0')}, {together}")
        height = machine.tile.rows
        tiles = b.op(f"udiv i64 {b.op(f'add i64 {rows}, {height - 1}')}, {height}")
        low, extra = (b.op(f"{op} i64 {rows}, {tiles}") for op in ("udiv", "urem"))
        skip = args(ConvWord.RESULT_OFFSET)
        block = b.op(f"getelementptr i8, ptr %own, i64 {skip}")
        start = b.op(f"mul i64 %x0, {together}")
        Sweep(
            tiles=(low, extra, "0", tiles),
            a=("%source", b.op(f"mul i64 {pixel}, {size}")),
            k=(table, count, args(ConvWord.GROUP_CHANNELS)),
            panel=("%weights", str(width * size)),
            c=(offset(b, machine, block, start, str(width)), str(width * size)),
            columns="%columns",
            accumulate="0",
        ).call(b)
        b("ret void")


def _emit_apart(b: Builder, machine: Machine) -> None:
    """``together_apart``: writes the results of a row where each image has them."""
    width, lanes = machine.tile.columns, machine.tile.lanes
    with b.function(
        "define internal void @together_apart(ptr %args, ptr %own, i64 %i0, i64 %i1, "
        "i64 %y, i64 %feature, i64 %columns)"
    ):
        args = Args(b)
        skip = args(ConvWord.RESULT_OFFSET)
        block = b.op(f"getelementptr i8, ptr %own, i64 {skip}")
        out_x, pixel = args(ConvWord.OUT_X), args(Word.C + 3)
        apart = b.op(f"mul i64 {args(ConvWord.TOGETHER)}, {width}")
        masks = [lane_mask(b, machine, "%columns", j) for j in range(0, width, lanes)]
        full = b.op(f"icmp eq i64 %columns, {width}")
        ragged = b.op(f"xor i1 {full}, true")
        start = offset(b, machine, args(Word.C, "ptr"), "%feature", "1")
        start = offset(b, machine, start, "%y", args(Word.C + 2))
        with b.loop("%i0", "%i1") as image, b.loop("0", out_x) as x:
            number = b.op(f"sub i64 {image}, %i0")
            source = offset(b, machine, block, number, str(width))
            source = offset(b, machine, source, x, apart)
            target = offset(b, machine, start, image, args(Word.C + 1))
            target = offset(b, machine, target, x, pixel)
            places = [
                tuple(offset(b, machine, a, str(j), "1") for a in (source, target))
                for j in range(0, width, lanes)
            ]
            vector, align = machine.vector, machine.itemsize
            with b.when(full):
                for given, place in places:
                    value = b.op(f"load {vector}, ptr {given}, align {align}")
                    b(f"store {vector} {value}, ptr {place}, align {align}")
            with b.when(ragged):
                for (given, place), mask in zip(places, masks, strict=True):
                    value = masked_load(b, machine, given, mask)
                    masked_store(b, machine, value, place, mask)
        b("ret void")
