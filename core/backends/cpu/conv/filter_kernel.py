"""The kernels that differentiate a convolution by its filter.

Their work is described in `filter_schedule`. A task owns some partial sums and some
panels of features::

    make a table of where the rows of output pixels begin in a plane
    for each partial sum, for each tap of z, for a few images at once, for each slab
        pad the slabs, and transpose them into planes, or not
        for each panel
            pack its features
            for each group of rows of the result, for each tile: micro-kernel

A second kernel adds the partial sums.
"""

from __future__ import annotations

from treadle.backends.cpu.conv.arguments import ConvWord, FilterWord
from treadle.backends.cpu.conv.pad import Fill, emit_pad
from treadle.backends.cpu.conv.taps import image_met
from treadle.backends.cpu.emit.builder import Builder
from treadle.backends.cpu.gemm.arguments import BUILT_IN, Word
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
from treadle.backends.cpu.gemm.sweep import Steps, Sweep
from treadle.backends.cpu.gemm.tile import (
    Machine,
    lane_mask,
    masked_load,
    masked_store,
)
from treadle.backends.cpu.run.divided import COLD


def emit_filter_gradient(
    b: Builder, machine: Machine, fill: Fill | None = None
) -> None:
    """Defines ``filter_gradient``, ``sum_partials`` and what they call; ``conv_pad``
    among them only with a `fill`."""
    if fill is not None:
        emit_pad(b, machine, fill)
    _emit_planes(b, machine)
    _emit_slab(b, machine)
    _emit_panel(b, machine)
    emit_sum(b, machine)
    with b.function(
        "define internal void @filter_gradient(ptr %args, i64 %task, i64 %slot) " + COLD
    ):
        args = Args(b)
        groups = args(ConvWord.GRID_PANELS)
        column = b.op(f"urem i64 %task, {groups}")
        row = b.op(f"udiv i64 %task, {groups}")
        p0, p1 = share(b, column, args(ConvWord.PANELS), groups)
        partials, images = args(FilterWord.PARTIALS), args(ConvWord.IMAGES)
        base = args(Word.SCRATCH, "ptr")
        own = own_scratch(b, args)
        _segments(b, machine, args, own)
        size = b.op(f"mul i64 {args(ConvWord.K)}, {args(FilterWord.FEATURES)}")
        part = b.op(f"udiv i64 {size}, {args(ConvWord.TAPS_Z)}")
        with (
            b.loop(*share(b, row, partials, args(ConvWord.GRID_UNITS))) as partial,
            b.loop("0", args(ConvWord.TAPS_Z)) as dz,
        ):
            sums = offset(b, machine, base, partial, size)
            sums = offset(b, machine, sums, dz, part)
            first, last = share(b, partial, images, partials)
            at_once = args(FilterWord.AT_ONCE)
            with b.loop(first, last, at_once) as image:
                stop = minimum(b, b.op(f"add i64 {image}, {at_once}"), last)
                met, inside = image_met(b, args, image, dz)
                # The first one writes, whether or not it meets anything.
                is_first = b.op(f"icmp eq i64 {image}, {first}")
                with (
                    b.when(b.op(f"or i1 {inside}, {is_first}")),
                    b.loop("0", args(ConvWord.SLABS)) as slab,
                ):
                    again = b.op(f"or i64 {b.op(f'sub i64 {image}, {first}')}, {slab}")
                    on = b.op(f"sub i64 {met}, {image}")
                    b(
                        f"call void @filter_slab(ptr %args, ptr {own}, ptr {sums}, "
                        f"i64 {image}, i64 {stop}, i64 {on}, i1 {inside}, "
                        f"i64 {slab}, i64 {p0}, i64 {p1}, i64 {again})"
                    )
        b("ret void")


def _segments(b: Builder, machine: Machine, args: Args, own: str) -> None:
    """Writes the byte offsets of the rows of output pixels in a plane."""
    rows = args(ConvWord.SLAB_ROWS)
    line = args(FilterWord.NEXT_ROW)
    table = _segment_table(b, args, own)
    with b.loop("0", args(FilterWord.AT_ONCE)) as image, b.loop("0", rows) as y:
        start = b.op(f"mul i64 {image}, {args(FilterWord.IMAGE)}")
        start = b.op(f"add i64 {start}, {b.op(f'mul i64 {y}, {line}')}")
        start = b.op(f"mul i64 {start}, {machine.itemsize}")
        number = b.op(f"add i64 {b.op(f'mul i64 {image}, {rows}')}, {y}")
        entry = b.op(f"getelementptr [2 x i64], ptr {table}, i64 {number}")
        b(f"store i64 {start}, ptr {entry}, align 8")
        entry = b.op(f"getelementptr i64, ptr {entry}, i64 1")
        b(f"store i64 0, ptr {entry}, align 8")


def _emit_slab(b: Builder, machine: Machine) -> None:
    """``filter_slab``: what slabs of some images contribute; overwrites if not `again`.

    They are images i0..i1-1 of the output, panels p0..p1-1. Those of the input are `on`
    further on, or, if they don't exist, zeros.
    """
    with b.function(
        "define internal void @filter_slab(ptr %args, ptr %own, ptr %sums, i64 %i0, "
        "i64 %i1, i64 %on, i1 %exists, i64 %slab, i64 %p0, i64 %p1, i64 %again) " + COLD
    ):
        args = Args(b)
        rows = args(ConvWord.SLAB_ROWS)
        y0 = b.op(f"mul i64 %slab, {rows}")
        y1 = minimum(b, b.op(f"add i64 {y0}, {rows}"), args(ConvWord.OUT_Y))
        count = b.op(f"sub i64 {y1}, {y0}")
        skip = args(FilterWord.PLANES_OFFSET)
        planes = b.op(f"getelementptr i8, ptr %own, i64 {skip}")
        planar = b.op(f"icmp ne i64 {args(FilterWord.PLANAR)}, 0")
        with b.loop("%i0", "%i1") as image:
            number = b.op(f"sub i64 {image}, %i0")
            target = offset(b, machine, planes, number, args(FilterWord.IMAGE))
            padded = b.op(f"select i1 {planar}, ptr {target}, ptr %own")
            b(
                f"call void @conv_pad(ptr %args, i64 {b.op(f'add i64 {image}, %on')}, "
                f"i1 %exists, i64 {y0}, i64 {y1}, ptr {padded})"
            )
            with b.when(b.op(f"xor i1 {planar}, true")):
                b(
                    f"call void @filter_planes(ptr %args, ptr {padded}, i64 {count}, "
                    f"ptr {target})"
                )
        with b.loop("%p0", "%p1") as panel:
            b(
                f"call void @filter_panel(ptr %args, ptr %own, ptr {planes}, "
                f"ptr %sums, i64 %i0, i64 %i1, i64 {y0}, i64 {y1}, i64 {panel}, "
                f"i64 %again)"
            )
        b("ret void")


def _emit_planes(b: Builder, machine: Machine) -> None:
    """``filter_planes``: transposes the padded rows of `count` output rows."""
    with b.function(
        "define internal void @filter_planes(ptr %args, ptr %padded, i64 %count, "
        "ptr %planes) " + COLD
    ):
        args = Args(b)
        last = b.op("sub i64 %count, 1")
        rows = b.op(f"mul i64 {last}, {args(ConvWord.STRIDE_Y)}")
        taps = b.op(f"sub i64 {args(ConvWord.TAPS_Y)}, 1")
        reach = b.op(f"mul i64 {taps}, {args(ConvWord.DILATION_Y)}")
        rows = b.op(f"add i64 {b.op(f'add i64 {rows}, {reach}')}, 1")
        width, pixel = args(ConvWord.PADDED_X), args(ConvWord.PIXEL)
        channels, plane = args(ConvWord.CHANNELS), args(FilterWord.PLANE)
        stride, phase = args(ConvWord.STRIDE_X), args(FilterWord.PHASE)
        whole = b.op(f"icmp eq i64 {stride}, 1")
        pixels = b.op(f"mul i64 {rows}, {width}")
        # Without phases the lines follow each other like the rows of the image.
        lines = b.op(f"select i1 {whole}, i64 1, i64 {rows}")
        length = b.op(f"select i1 {whole}, i64 {pixels}, i64 {width}")
        line = b.op(f"mul i64 {stride}, {phase}")
        step = b.op(f"mul i64 {stride}, {pixel}")
        with b.loop("0", lines) as y, b.loop("0", stride) as first:
            start = b.op(f"add i64 {b.op(f'mul i64 {y}, {width}')}, {first}")
            source = offset(b, machine, "%padded", start, pixel)
            target = offset(b, machine, "%planes", y, line)
            target = offset(b, machine, target, first, phase)
            count = b.op(f"sub i64 {length}, {first}")
            count = b.op(f"add i64 {count}, {b.op(f'sub i64 {stride}, 1')}")
            count = b.op(f"sdiv i64 {count}, {stride}")
            b(
                f"call void @pack_transpose(ptr {source}, i64 {step}, i64 {channels}, "
                f"i64 {count}, ptr {target}, i64 {plane})"
            )
        b("ret void")


def _emit_panel(b: Builder, machine: Machine) -> None:
    """``filter_panel``: all rows of the result for one panel of features."""
    width, size = machine.tile.columns, machine.itemsize
    with b.function(
        "define internal void @filter_panel(ptr %args, ptr %own, ptr %planes, "
        "ptr %sums, i64 %i0, i64 %i1, i64 %y0, i64 %y1, i64 %panel, i64 %again) " + COLD
    ):
        args = Args(b)
        group, f0, f1 = panel_features(b, machine, args, "%panel")
        columns = b.op(f"sub i64 {f1}, {f0}")
        out_x = args(ConvWord.OUT_X)
        r0, r1 = (b.op(f"mul i64 {y}, {out_x}") for y in ("%y0", "%y1"))
        skip = args(FilterWord.PANEL_OFFSET)
        packed = b.op(f"getelementptr i8, ptr %own, i64 {skip}")
        # Rows of the panel as they lie in memory would fall into a few cache sets.
        size_of_image = b.op(f"mul i64 {b.op(f'sub i64 {r1}, {r0}')}, {width}")
        in_place = _lies_packed(b, machine, args)
        given = offset(b, machine, args(Word.B, "ptr"), "%i0", args(Word.B + 1))
        given = offset(b, machine, given, r0, args(Word.B + 3))
        with (
            b.when(b.op(f"xor i1 {in_place}, true")),
            b.loop("%i0", "%i1") as image,
        ):
            number = b.op(f"sub i64 {image}, %i0")
            place = offset(b, machine, packed, number, size_of_image)
            where = f"i64 {r0}, i64 {r1}, i64 {f0}, i64 {f1}"
            _pack_pixels(b, machine, args, (image, where), place)
        packed = b.op(f"select i1 {in_place}, ptr {given}, ptr {packed}")
        channels = b.op(f"mul i64 {group}, {args(ConvWord.GROUP_CHANNELS)}")
        planes = offset(b, machine, "%planes", channels, args(FilterWord.PLANE))
        low, extra = args(ConvWord.TILE_LOW), args(ConvWord.TILE_EXTRA)
        a_row, along, c_row = (
            b.op(f"mul i64 {args(word)}, {size}")
            for word in (FilterWord.A_STEP, FilterWord.ALONG, FilterWord.C_STEP)
        )
        images = b.op("sub i64 %i1, %i0")
        count = b.op(f"mul i64 {images}, {b.op('sub i64 %y1, %y0')}")
        target = offset(b, machine, "%sums", f0, "1")
        table = args.at(FilterWord.TABLE)
        segments = _segment_table(b, args, "%own")
        with b.loop("0", args(FilterWord.STEPS)) as step:
            entry = b.op(f"getelementptr [2 x i64], ptr {table}, i64 {step}")
            a_start = b.op(f"load i64, ptr {entry}, align 8")
            entry = b.op(f"getelementptr i64, ptr {entry}, i64 1")
            c_start = b.op(f"load i64, ptr {entry}, align 8")
            Sweep(
                tiles=(low, extra, "0", args(ConvWord.TILES)),
                a=(offset(b, machine, planes, a_start, "1"), "0"),
                k=(segments, count, out_x),
                panel=(packed, str(width * size)),
                c=(offset(b, machine, target, c_start, "1"), c_row),
                columns=columns,
                accumulate="%again",
                lie=Steps(a_row, "0", a_row, along),
            ).call(b)
        b("ret void")


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
                (ConvWord.GROUP_FEATURES, width),
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


def _segment_table(b: Builder, args: Args, own: str) -> str:
    """The table of where rows of output pixels begin in a plane."""
    skip = args(FilterWord.SEGMENTS_OFFSET)
    return b.op(f"getelementptr i8, ptr {own}, i64 {skip}")


def _pack_pixels(
    b: Builder, machine: Machine, args: Args, where: tuple[str, str], place: str
) -> None:
    """Packs pixels of an image, or of two of them, for some features."""
    image, block = where
    if machine.pairs:
        b(f"call void @pair_panel(ptr %args, i64 {image}, {block}, ptr {place})")
        return
    rows = f"i64 {image}, i64 0, {block}"
    target = f"ptr {place}, i64 {machine.tile.columns}"
    call_pack(b, args, Word.PACK_B, Word.B, rows, target)


def emit_sum(b: Builder, machine: Machine) -> None:
    """``sum_partials``: a task owns some rows (dy, dx, c) of the result."""
    lanes = machine.tile.lanes
    with b.function(
        "define internal void @sum_partials(ptr %args, i64 %task, i64 %slot)"
    ):
        args = Args(b)
        features, rows = args(FilterWord.FEATURES), args(ConvWord.K)
        channels, taps_x = args(ConvWord.GROUP_CHANNELS), args(ConvWord.TAPS_X)
        size = b.op(f"mul i64 {rows}, {features}")
        base = args(Word.SCRATCH, "ptr")
        with b.loop(*share(b, "%task", rows, args(Word.TASKS))) as row:
            tap = b.op(f"udiv i64 {row}, {channels}")
            c = b.op(f"urem i64 {row}, {channels}")
            dy = b.op(f"udiv i64 {tap}, {taps_x}")
            dx = b.op(f"urem i64 {tap}, {taps_x}")
            target = args(Word.C, "ptr")
            for i, index in enumerate((dy, dx, c), start=1):
                target = offset(b, machine.result, target, index, args(Word.C + i))
            source = offset(b, machine, base, row, features)
            with b.loop("0", features, str(lanes)) as f:
                mask = lane_mask(b, machine, b.op(f"sub i64 {features}, {f}"))
                place = offset(b, machine.result, target, f, "1")
                _emit_sum_vector(
                    b,
                    machine,
                    args,
                    offset(b, machine, source, f, "1"),
                    size,
                    place,
                    mask,
                )
            following = b.op(f"add i64 {c}, 1")
            call_epilogue(b, args, "true", (dy, dx, c, following, "0", features))
        b("ret void")


def _emit_sum_vector(
    b: Builder,
    machine: Machine,
    args: Args,
    source: str,
    size: str,
    target: str,
    mask: str,
) -> None:
    """Adds one vector of every partial sum, in their order."""
    vector = machine.vector
    sums = [(vector, "zeroinitializer")]
    with b.carrying("0", args(FilterWord.PARTIALS), "1", sums) as turn:
        place = offset(b, machine, source, turn.index, size)
        value = masked_load(b, machine, place, mask)
        turn.next = [b.op(f"fadd {vector} {turn.values[0]}, {value}")]
    masked_store(b, machine, turn.values[0], target, mask)
