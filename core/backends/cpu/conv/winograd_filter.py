"""The gradient by a filter of 3 x 3, or of a row of 3: Winograd's, by tiles of 4 x 4
outputs, or of 4 of a row.

As in `winograd_kernel`, a unit is a slab of some images. A task owns some partial sums
and some panels of features::

    for each partial sum
        for each chunk of panels whose sums for each channel may stay in memory
            for each unit, for each part of its tiles
                pad, and transform the tiles of the images
                transform those of the outputs' gradients, panel by panel
                for each panel, for each block of channels
                    for some tiles at once, for each of the places: a product over them
                    after the last unit: transform the sums into the partial sum

If there is one unit alone, a block's sums are transformed as soon as they are made. The
kernel that adds partial sums is that of `filter_kernel`.
"""

from __future__ import annotations

from treadle.backends.cpu.conv.arguments import ConvWord, FilterWord, WinogradWord
from treadle.backends.cpu.conv.winograd import (
    FILTER_GRADIENT,
    OUT,
    RESULT_GRADIENT,
    SIDE,
    TAPS,
    Form,
    buffer,
    emit_transform,
)
from treadle.backends.cpu.conv.winograd_kernel import (
    all_channels,
    emit_inputs,
    storing,
    tiles_of,
)
from treadle.backends.cpu.emit.builder import Builder
from treadle.backends.cpu.gemm.arguments import Word
from treadle.backends.cpu.gemm.parts import (
    Args,
    call_pack,
    minimum,
    offset,
    own_scratch,
    panel_features,
    share,
)
from treadle.backends.cpu.gemm.sweep import Sweep
from treadle.backends.cpu.gemm.tile import Machine, lane_mask, masked_store
from treadle.backends.cpu.run.divided import COLD


def emit_winograd_filter(b: Builder, machine: Machine, form: Form) -> None:
    """Defines ``winograd_gradient``, beside ``winograd`` and ``sum_partials``."""
    _emit_outputs(b, machine, form)
    _emit_sums(b, machine, form)
    _emit_block(b, machine, form)
    _emit_unit(b, machine, form)
    with b.function(
        f"define internal void @{form.name}_gradient(ptr %args, i64 %task, i64 %slot) "
        + COLD
    ):
        args = Args(b)
        groups = args(ConvWord.GRID_PANELS)
        column = b.op(f"urem i64 %task, {groups}")
        row = b.op(f"udiv i64 %task, {groups}")
        panels = share(b, column, args(ConvWord.PANELS), groups)
        partials, images = args(FilterWord.PARTIALS), args(ConvWord.IMAGES)
        base = args(Word.SCRATCH, "ptr")
        own = own_scratch(b, args)
        size = b.op(f"mul i64 {args(ConvWord.K)}, {args(FilterWord.FEATURES)}")
        together, chunk = args(ConvWord.TOGETHER), args(ConvWord.CHUNK_PANELS)
        out_y, rows = args(ConvWord.OUT_Y), args(ConvWord.SLAB_ROWS)
        tiles, part = args(WinogradWord.TILES_X), args(WinogradWord.PART)
        with (
            b.loop(*share(b, row, partials, args(ConvWord.GRID_UNITS))) as partial,
            b.loop(*panels, chunk) as p0,
        ):
            p1 = minimum(b, b.op(f"add i64 {p0}, {chunk}"), panels[1])
            result = offset(b, machine, base, partial, size)
            first, last = share(b, partial, images, partials)
            with (
                b.loop(first, last, together) as i0,
                b.loop("0", out_y, rows) as y0,
                b.loop("0", tiles, part) as x0,
            ):
                i1 = minimum(b, b.op(f"add i64 {i0}, {together}"), last)
                y1 = minimum(b, b.op(f"add i64 {y0}, {rows}"), out_y)
                x1 = minimum(b, b.op(f"add i64 {x0}, {part}"), tiles)
                before = b.op(f"or i64 {b.op(f'sub i64 {i0}, {first}')}, {y0}")
                before = b.op(f"or i64 {before}, {x0}")
                after = b.op(f"sub i64 {last}, {i1}")
                after = b.op(f"or i64 {after}, {b.op(f'sub i64 {out_y}, {y1}')}")
                after = b.op(f"or i64 {after}, {b.op(f'sub i64 {tiles}, {x1}')}")
                is_last = b.op(f"icmp eq i64 {after}, 0")
                b(
                    f"call void @{form.name}_slab(ptr %args, ptr {own}, ptr {result}, "
                    f"i64 {i0}, i64 {i1}, i64 {y0}, i64 {y1}, i64 {x0}, i64 {x1}, "
                    f"i64 {p0}, i64 {p1}, i64 {before}, i1 {is_last})"
                )
        b("ret void")


def _emit_unit(b: Builder, machine: Machine, form: Form) -> None:
    """``winograd_slab``: a part of a unit, which starts the sums unless it comes
    `again`, and ends them if it is the last one."""
    with b.function(
        f"define internal void @{form.name}_slab(ptr %args, ptr %own, ptr %result, "
        "i64 %i0, i64 %i1, i64 %y0, i64 %y1, i64 %x0, i64 %x1, i64 %p0, i64 %p1, "
        "i64 %again, i1 %last) " + COLD
    ):
        args = Args(b)
        inputs, lines, outputs, sums = (
            b.op(f"getelementptr i8, ptr %own, i64 {args(word)}")
            for word in (
                WinogradWord.INPUTS_OFFSET,
                WinogradWord.LINES_OFFSET,
                WinogradWord.OUTPUTS_OFFSET,
                WinogradWord.SUMS_OFFSET,
            )
        )
        across = b.op("sub i64 %x1, %x0")
        images, rows = ("%i0", "%i1"), ("%y0", "%y1")
        padded = b.op("icmp ne i64 %x0, 0")
        where = ("%own", inputs)
        columns = ("%x0", across)
        down, count = emit_inputs(
            b, machine, form, args, images, rows, columns, padded, where
        )
        each = b.op(f"mul i64 {down}, {across}")
        channels, piece = all_channels(b, args), args(WinogradWord.PIECE)
        step = args(WinogradWord.SUMS_STEP)
        blocks = b.op(f"add i64 {channels}, {b.op(f'sub i64 {piece}, 1')}")
        blocks = b.op(f"udiv i64 {blocks}, {piece}")
        with b.loop("%p0", "%p1") as panel:
            with (
                b.loop("%i0", "%i1") as image,
                tiles_of(b, down, args(ConvWord.DILATION_Y), form.out) as (t, at),
            ):
                number = b.op(f"mul i64 {b.op(f'sub i64 {image}, %i0')}, {each}")
                number = b.op(f"add i64 {number}, {b.op(f'mul i64 {t}, {across}')}")
                target = offset(b, machine, outputs, number, str(machine.tile.columns))
                y = b.op(f"add i64 %y0, {at}")
                b(
                    f"call void @{form.name}_outputs(ptr %args, i64 {image}, i64 {y}, "
                    f"i64 %x0, i64 {across}, i64 {panel}, ptr {lines}, ptr {target})"
                )
            number = b.op(f"mul i64 {b.op(f'sub i64 {panel}, %p0')}, {blocks}")
            with b.loop("0", blocks) as block:
                at = b.op(f"add i64 {number}, {block}")
                c0 = b.op(f"mul i64 {block}, {piece}")
                c1 = minimum(b, b.op(f"add i64 {c0}, {piece}"), channels)
                b(
                    f"call void @{form.name}_block(ptr %args, i64 {panel}, i64 {c0}, "
                    f"i64 {c1}, i64 {count}, ptr {inputs}, ptr {outputs}, "
                    f"ptr {offset(b, machine, sums, at, step)}, ptr %result, "
                    f"i64 %again, i1 %last)"
                )
        b("ret void")


def _emit_outputs(b: Builder, machine: Machine, form: Form) -> None:
    """``winograd_outputs``: transforms tiles of a panel, from (y, x) on, `count` side
    by side, by way of padded lines."""
    width, lanes, vector = machine.tile.columns, machine.tile.lanes, machine.vector
    b.declare("void @llvm.memset.p0.i64(ptr, i8, i64, i1)")
    with b.function(
        f"define internal void @{form.name}_outputs(ptr %args, i64 %image, i64 %y, "
        "i64 %x, i64 %count, i64 %panel, ptr %lines, ptr %outputs)"
    ):
        args = Args(b)
        room = buffer(b, machine, form)
        _, f0, f1 = panel_features(b, machine, args, "%panel")
        out_y, out_x = args(ConvWord.OUT_Y), args(ConvWord.OUT_X)
        place = args(WinogradWord.FILTER_PLANE)
        start = b.op(f"mul i64 %x, {OUT}")
        pixels = b.op(f"mul i64 %count, {OUT}")
        inside = minimum(b, b.op(f"sub i64 {out_x}, {start}"), pixels)
        line = b.op(f"mul i64 {pixels}, {width}")
        below, apart = args(ConvWord.DILATION_Y), args(ConvWord.DILATION_X)
        beside = b.op(f"mul i64 {apart}, {width}")
        with b.loop("0", str(form.out)) as row:
            y = b.op(f"add i64 %y, {b.op(f'mul i64 {row}, {below}')}")
            target = offset(b, machine, "%lines", row, line)
            exists = b.op(f"icmp slt i64 {y}, {out_y}")
            kept = b.op(f"select i1 {exists}, i64 {inside}, i64 0")
            with b.when(exists):
                r0 = b.op(f"add i64 {b.op(f'mul i64 {y}, {out_x}')}, {start}")
                r1 = b.op(f"add i64 {r0}, {inside}")
                where = f"i64 %image, i64 0, i64 {r0}, i64 {r1}, i64 {f0}, i64 {f1}"
                block = f"ptr {target}, i64 {width}"
                call_pack(b, args, Word.PACK_B, Word.B, where, block)
            rest = b.op(f"sub i64 {pixels}, {kept}")
            rest = b.op(f"mul i64 {rest}, {width * machine.itemsize}")
            end = offset(b, machine, target, kept, str(width))
            b(f"call void @llvm.memset.p0.i64(ptr {end}, i8 0, i64 {rest}, i1 false)")
        columns = b.op(f"sub i64 {f1}, {f0}")
        with (
            tiles_of(b, "%count", apart) as (tile, x),
            b.loop("0", columns, str(lanes)) as f,
        ):
            source = b.op(f"add i64 {b.op(f'mul i64 {x}, {width}')}, {f}")
            source = offset(b, machine, "%lines", source, "1")
            target = b.op(f"add i64 {b.op(f'mul i64 {tile}, {width}')}, {f}")
            target = offset(b, machine, "%outputs", target, "1")

            def load(row: int, column: str, source: str = source) -> str:
                at = offset(b, machine, source, column, beside)
                at = offset(b, machine, at, str(row), line)
                return b.op(f"load {vector}, ptr {at}, align 4")

            store = storing(b, machine, target, place)
            emit_transform(b, machine, form, RESULT_GRADIENT, room, load, store)
        b("ret void")


def _emit_block(b: Builder, machine: Machine, form: Form) -> None:
    """``winograd_block``: products over tiles for some channels and a panel."""
    width, size, height = machine.tile.columns, machine.itemsize, machine.tile.rows
    with b.function(
        f"define internal void @{form.name}_block(ptr %args, i64 %panel, i64 %c0, "
        "i64 %c1, i64 %count, ptr %inputs, ptr %outputs, ptr %sums, ptr %result, "
        "i64 %again, i1 %last) " + COLD
    ):
        args = Args(b)
        _, f0, f1 = panel_features(b, machine, args, "%panel")
        columns = b.op(f"sub i64 {f1}, {f0}")
        rows = b.op("sub i64 %c1, %c0")
        tiles = b.op(f"udiv i64 {b.op(f'add i64 {rows}, {height - 1}')}, {height}")
        low, extra = (b.op(f"{op} i64 {rows}, {tiles}") for op in ("udiv", "urem"))
        inputs = offset(b, machine, "%inputs", "%c0", "1")
        step = b.op(f"mul i64 {args(WinogradWord.PITCH)}, {size}")
        most = args(WinogradWord.TILES)
        with b.loop("0", "%count", most) as t0, b.loop("0", str(form.places)) as place:
            t1 = minimum(b, b.op(f"add i64 {t0}, {most}"), "%count")
            later = b.op(f"icmp ne i64 {b.op(f'or i64 {t0}, %again')}, 0")
            a, panel, c = (
                offset(b, machine, base, place, args(word))
                for base, word in (
                    (inputs, WinogradWord.PLANE),
                    ("%outputs", WinogradWord.FILTER_PLANE),
                    ("%sums", WinogradWord.SUMS_PLANE),
                )
            )
            Sweep(
                tiles=(low, extra, "0", tiles),
                a=(offset(b, machine, a, t0, args(WinogradWord.PITCH)), step),
                k=("@one_segment", "1", b.op(f"sub i64 {t1}, {t0}")),
                panel=(offset(b, machine, panel, t0, str(width)), str(width * size)),
                c=(c, str(width * size)),
                columns=columns,
                accumulate=b.op(f"zext i1 {later} to i64"),
                turned=True,
            ).call(b)
        with b.when("%last"):
            target = offset(b, machine, "%result", f0, "1")
            b(
                f"call void @{form.name}_sums(ptr %args, ptr %sums, i64 %c0, i64 %c1, "
                f"i64 {columns}, ptr {target})"
            )
        b("ret void")


def _emit_sums(b: Builder, machine: Machine, form: Form) -> None:
    """``winograd_sums``: what sums of some channels make of the gradient."""
    width, lanes, vector = machine.tile.columns, machine.tile.lanes, machine.vector
    with b.function(
        f"define internal void @{form.name}_sums(ptr %args, "
        "ptr noalias readonly %sums, i64 %c0, i64 %c1, i64 %columns, "
        "ptr noalias %target)"
    ):
        args = Args(b)
        room = buffer(b, machine, form)
        place = args(WinogradWord.SUMS_PLANE)
        features = args(FilterWord.FEATURES)
        channels = args(ConvWord.CHANNELS)
        tap = b.op(f"mul i64 {channels}, {features}")
        with b.loop("%c0", "%c1") as c, b.loop("0", "%columns", str(lanes)) as f:
            source = b.op(f"mul i64 {b.op(f'sub i64 {c}, %c0')}, {width}")
            source = b.op(f"add i64 {source}, {f}")
            source = offset(b, machine, "%sums", source, "1")
            dz, c = (b.op(f"{op} i64 {c}, {channels}") for op in ("udiv", "urem"))
            target = b.op(f"mul i64 {dz}, {form.taps * TAPS}")
            target = offset(b, machine, "%target", target, tap)
            target = offset(b, machine, target, c, features)
            target = offset(b, machine, target, f, "1")
            mask = lane_mask(b, machine, b.op(f"sub i64 %columns, {f}"))

            def load(row: int, column: str, source: str = source) -> str:
                number = b.op(f"add i64 {column}, {row * SIDE}")
                at = offset(b, machine, source, number, place)
                return b.op(f"load {vector}, ptr {at}, align 4")

            def store(
                row: str, values: list[str], target: str = target, mask: str = mask
            ) -> None:
                at = offset(b, machine, target, b.op(f"mul i64 {row}, {TAPS}"), tap)
                for column, value in enumerate(values):
                    if column:
                        at = offset(b, machine, at, "1", tap)
                    masked_store(b, machine, value, at, mask)

            emit_transform(b, machine, form, FILTER_GRADIENT, room, load, store)
        b("ret void")
