"""The convolution kernel: the micro-kernel on zero-padded images.

It computes a `ConvSpec` as `schedule` says. A task owns some *units* (an image, or a
slab of its rows) and some panels of features::

    for each chunk of panels whose packed filter fits the L2 cache
        pack the filter
        for each unit
            for each image of a volume that it meets, or one
                copy the slab into a zero-padded scratch (unless it is read in place)
                for each panel
                    for each row of pixels, for each tile of the row: micro-kernel
                    every few rows, of the last image: epilogue
"""

from __future__ import annotations

from collections.abc import Callable

from treadle.backends.cpu.conv.arguments import ConvWord
from treadle.backends.cpu.conv.pad import Fill, emit_pad
from treadle.backends.cpu.conv.taps import Y, Z, image_met, taps_inside
from treadle.backends.cpu.emit.builder import Builder
from treadle.backends.cpu.gemm.arguments import Word
from treadle.backends.cpu.gemm.parts import (
    Args,
    call_epilogue,
    call_pack,
    minimum,
    offset,
    own_scratch,
    panel_features,
    share,
)
from treadle.backends.cpu.gemm.sweep import Sweep
from treadle.backends.cpu.gemm.tile import Machine
from treadle.backends.cpu.run.divided import COLD


def emit_convolution(b: Builder, machine: Machine, fill: Fill | None = None) -> None:
    """Defines ``convolution`` and what it calls.

    fill: for what isn't floats (as in `treadle.backends.cpu.conv.pairs`).
    """
    emit_pad(b, machine, fill)
    _emit_filter(b, machine)
    _emit_rows(b, machine)
    emit_tasks(b, machine, "convolution", _emit_unit)


Unit = Callable[[Builder, Machine, Args, str, tuple[str, str], tuple[str, str]], None]


def emit_tasks(
    b: Builder,
    machine: Machine,
    name: str,
    emit_unit: Unit,
    pack: str = "conv_filter",
) -> None:
    """Defines a kernel: its tasks, of which each unit is written by a function.

    pack: packs some panels of the filter.
    """
    with b.function(
        f"define internal void @{name}(ptr %args, i64 %task, i64 %slot) " + COLD
    ):
        args = Args(b)
        groups = args(ConvWord.GRID_PANELS)
        column = b.op(f"urem i64 %task, {groups}")
        row = b.op(f"udiv i64 %task, {groups}")
        panels = share(b, column, args(ConvWord.PANELS), groups)
        slabs = args(ConvWord.SLABS)
        together = args(ConvWord.TOGETHER)
        images = b.op(f"add i64 {args(ConvWord.IMAGES)}, {together}")
        images = b.op(f"udiv i64 {b.op(f'sub i64 {images}, 1')}, {together}")
        units = b.op(f"mul i64 {images}, {slabs}")
        units_bounds = share(b, row, units, args(ConvWord.GRID_UNITS))
        padded = own_scratch(b, args)
        skip = args(ConvWord.FILTER_OFFSET)
        packed = b.op(f"getelementptr i8, ptr {padded}, i64 {skip}")
        chunk = args(ConvWord.CHUNK_PANELS)
        with b.loop(*panels, chunk) as p0:
            p1 = minimum(b, b.op(f"add i64 {p0}, {chunk}"), panels[1])
            b(f"call void @{pack}(ptr %args, i64 {p0}, i64 {p1}, ptr {packed})")
            with b.loop(*units_bounds) as unit:
                emit_unit(b, machine, args, unit, (p0, p1), (padded, packed))
        b("ret void")


def images_and_rows(
    b: Builder, args: Args, unit: str
) -> tuple[tuple[str, str], tuple[str, str]]:
    """Of a unit of several images: the first and the one after the last, and so of the
    rows of each."""
    slabs, slab_rows = args(ConvWord.SLABS), args(ConvWord.SLAB_ROWS)
    together = args(ConvWord.TOGETHER)
    i0 = b.op(f"mul i64 {b.op(f'udiv i64 {unit}, {slabs}')}, {together}")
    i1 = minimum(b, b.op(f"add i64 {i0}, {together}"), args(ConvWord.IMAGES))
    y0 = b.op(f"mul i64 {b.op(f'urem i64 {unit}, {slabs}')}, {slab_rows}")
    y1 = minimum(b, b.op(f"add i64 {y0}, {slab_rows}"), args(ConvWord.OUT_Y))
    return (i0, i1), (y0, y1)


def _emit_unit(
    b: Builder,
    machine: Machine,
    args: Args,
    unit: str,
    panels: tuple[str, str],
    scratch: tuple[str, str],
) -> None:
    """One slab: pads what it meets, then calls ``conv_rows`` for every panel."""
    slabs, slab_rows = args(ConvWord.SLABS), args(ConvWord.SLAB_ROWS)
    image = b.op(f"udiv i64 {unit}, {slabs}")
    y0 = b.op(f"mul i64 {b.op(f'urem i64 {unit}, {slabs}')}, {slab_rows}")
    y1 = minimum(b, b.op(f"add i64 {y0}, {slab_rows}"), args(ConvWord.OUT_Y))
    in_place = b.op(f"icmp ne i64 {args(ConvWord.IN_PLACE)}, 0")
    line = b.op(f"mul i64 {args(ConvWord.STRIDE_Y)}, {args(ConvWord.LINE)}")
    size = b.op(f"mul i64 {args(ConvWord.K)}, {machine.tile.columns}")
    rows = b.op(f"udiv i64 {size}, {args(ConvWord.TAPS_Z)}")
    z = b.op(f"urem i64 {image}, {args(ConvWord.OUT_Z)}")
    first, stop = taps_inside(b, args, z, Z)
    with b.loop(first, stop) as dz:
        met, inside = image_met(b, args, image, dz)
        with b.when(b.op(f"xor i1 {in_place}, true")):
            b(
                f"call void @conv_pad(ptr %args, i64 {met}, i1 {inside}, i64 {y0}, "
                f"i64 {y1}, ptr {scratch[0]})"
            )
        given = offset(b, machine, args(Word.A, "ptr"), met, args(Word.A + 1))
        given = offset(b, machine, given, "1", args(ConvWord.PLACE_OFFSET))
        given = offset(b, machine, given, y0, line)
        source = b.op(f"select i1 {in_place}, ptr {given}, ptr {scratch[0]}")
        following = b.op(f"add i64 {dz}, 1")
        last = b.op(f"icmp eq i64 {following}, {stop}")
        later = b.op(f"zext i1 {b.op(f'icmp ne i64 {dz}, {first}')} to i64")
        with b.loop(*panels) as panel:
            number = b.op(f"sub i64 {panel}, {panels[0]}")
            weights = offset(b, machine, scratch[1], number, size)
            weights = offset(b, machine, weights, dz, rows)
            b(
                f"call void @conv_rows(ptr %args, i64 {image}, i64 {y0}, i64 {y1}, "
                f"i64 {panel}, ptr {source}, ptr {weights}, i64 {later}, i1 {last})"
            )


def _width(machine: Machine) -> int:
    return machine.tile.columns


def _emit_filter(b: Builder, machine: Machine) -> None:
    """``conv_filter``: packs panels p0..p1-1, each as k rows, ordered as segments."""
    with b.function(
        "define internal void @conv_filter(ptr %args, i64 %p0, i64 %p1, ptr %packed) "
        + COLD
    ):
        args = Args(b)
        channels = args(ConvWord.GROUP_CHANNELS)
        step = b.op(f"mul i64 {channels}, {_width(machine)}")
        taps_x = args(ConvWord.TAPS_X)
        taps = b.op(f"mul i64 {args(ConvWord.TAPS_Y)}, {taps_x}")
        taps = b.op(f"mul i64 {args(ConvWord.TAPS_Z)}, {taps}")
        with b.loop("%p0", "%p1") as panel:
            _, f0, f1 = panel_features(b, machine, args, panel)
            number = b.op(f"sub i64 {panel}, %p0")
            line = b.op(f"mul i64 {number}, {taps}")
            with b.loop("0", taps) as tap:
                dy = b.op(f"udiv i64 {tap}, {taps_x}")
                dx = b.op(f"urem i64 {tap}, {taps_x}")
                at = b.op(f"add i64 {line}, {tap}")
                target = offset(b, machine, "%packed", at, step)
                where = f"i64 {dy}, i64 {dx}", f"i64 {f0}, i64 {f1}"
                _pack_tap(b, machine, args, where, target)
        b("ret void")


def _pack_tap(
    b: Builder, machine: Machine, args: Args, where: tuple[str, str], target: str
) -> None:
    """Packs what a tap, given by its two indices, has for some features."""
    tap, features = where
    if machine.pairs:
        b(f"call void @pair_filter(ptr %args, {tap}, {features}, ptr {target})")
        return
    rows = f"{tap}, i64 0, i64 {args(ConvWord.GROUP_CHANNELS)}, {features}"
    block = f"ptr {target}, i64 {_width(machine)}"
    call_pack(b, args, Word.PACK_B, Word.B, rows, block)


def _emit_rows(b: Builder, machine: Machine) -> None:
    """``conv_rows``: rows y0..y1-1 of an image, one panel of features."""
    size, result = machine.itemsize, machine.result
    with b.function(
        "define internal void @conv_rows(ptr %args, i64 %image, i64 %y0, i64 %y1, "
        "i64 %panel, ptr %source, ptr %weights, i64 %later, i1 %last)"
    ):
        args = Args(b)
        group, f0, f1 = panel_features(b, machine, args, "%panel")
        source = offset(b, machine, "%source", group, args(ConvWord.GROUP_CHANNELS))
        columns = b.op(f"sub i64 {f1}, {f0}")
        a_step = b.op(f"mul i64 {args(ConvWord.STRIDE_X)}, {args(ConvWord.PIXEL)}")
        a_row = b.op(f"mul i64 {a_step}, {size}")
        line = b.op(f"mul i64 {args(ConvWord.STRIDE_Y)}, {args(ConvWord.LINE)}")
        segments, taps = args.at(ConvWord.OFFSETS), args(ConvWord.TAPS_Y)
        count = b.op(f"udiv i64 {args(ConvWord.SEGMENTS)}, {taps}")  # of a row of taps
        low, extra = args(ConvWord.TILE_LOW), args(ConvWord.TILE_EXTRA)
        length = args(ConvWord.RUN)
        c_row = b.op(f"mul i64 {args(Word.C + 3)}, {result.itemsize}")
        target = offset(b, result, args(Word.C, "ptr"), "%image", args(Word.C + 1))
        target = offset(b, result, target, f0, "1")
        out_x, step = args(ConvWord.OUT_X), args(ConvWord.EPILOGUE_ROWS)
        with b.loop("%y0", "%y1", step) as first:
            stop = minimum(b, b.op(f"add i64 {first}, {step}"), "%y1")
            with b.loop(first, stop) as y:
                within = b.op(f"sub i64 {y}, %y0")
                a = offset(b, machine, source, within, line)
                first_tap, end = taps_inside(b, args, y, Y)
                taps = b.op(f"sub i64 {end}, {first_tap}")
                skipped = b.op(f"mul i64 {first_tap}, {count}")
                k0 = b.op(f"getelementptr [2 x i64], ptr {segments}, i64 {skipped}")
                skipped = b.op(f"mul i64 {skipped}, {length}")
                panel = offset(b, machine, "%weights", skipped, str(_width(machine)))
                Sweep(
                    tiles=(low, extra, "0", args(ConvWord.TILES)),
                    a=(a, a_row),
                    k=(k0, b.op(f"mul i64 {taps}, {count}"), length),
                    panel=(panel, str(_width(machine) * size)),
                    c=(offset(b, result, target, y, args(Word.C + 2)), c_row),
                    columns=columns,
                    accumulate="%later",
                ).call(b)
            r0, r1 = (b.op(f"mul i64 {y}, {out_x}") for y in (first, stop))
            call_epilogue(b, args, "%last", ("%image", "0", r0, r1, f0, f1))
        b("ret void")
