"""The convolution kernel for filters of 3 x 3, and of a row of 3: Winograd's, by tiles
of 4 x 4 outputs, or of 4 of a row.

Tasks are those of `kernel`, and so are units, a unit being a slab of some images. What
a task holds of one fits the L2 cache, or streams through it::

    for each chunk of panels
        transform the filter
        for each unit
            pad the slabs
            for each part of their tiles
                transform the tiles
                for each panel
                    for each piece of the channels
                        for each of 36, or 6, places: a product
                    transform the sums into the output
                    epilogue

If a task has only one unit, the filter is transformed piece by piece, where it is met.
Of a volume, the channels are those of all images that the filter meets. If taps are
apart, so are the rows and columns of a tile: a block of them has a tile for each of its
first pixels, one beside the other.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from functools import partial

from treadle.backends.cpu.conv.arguments import ConvWord, WinogradWord
from treadle.backends.cpu.conv.kernel import emit_tasks, images_and_rows
from treadle.backends.cpu.conv.taps import image_met
from treadle.backends.cpu.conv.winograd import (
    FILTER,
    IMAGE,
    OUT,
    RESULT,
    SIDE,
    TAPS,
    Form,
    buffer,
    emit_transform,
)
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
    as_stored,
    lane_mask,
    masked_store,
)
from treadle.backends.cpu.run.divided import COLD

_CHANNELS = 16
"""Of a filter, that are transformed at once: a square, where it lies transposed."""


def emit_winograd(b: Builder, machine: Machine, form: Form) -> None:
    """Defines ``winograd``, beside ``convolution``."""
    _emit_filter(b, machine, form)
    emit_tiles_of_row(b, machine, form)
    _emit_results(b, machine, form)
    _emit_panel(b, machine, form)
    with b.function(
        f"define internal void @{form.name}_chunk(ptr %args, i64 %p0, i64 %p1, "
        f"ptr %packed)" + COLD
    ):
        args = Args(b)
        step = b.op(f"mul i64 {args(WinogradWord.FILTER_PLANE)}, {form.places}")
        channels = all_channels(b, args)
        kept = b.op(f"icmp eq i64 {args(WinogradWord.STREAMS)}, 0")
        with b.when(kept), b.loop("%p0", "%p1") as panel:
            number = b.op(f"sub i64 {panel}, %p0")
            target = offset(b, machine, "%packed", number, step)
            b(
                f"call void @{form.name}_filter(ptr %args, i64 {panel}, i64 0, "
                f"i64 {channels}, ptr {target})"
            )
        b("ret void")
    unit = partial(_emit_unit, form)
    emit_tasks(b, machine, form.name, unit, f"{form.name}_chunk")


def _emit_filter(b: Builder, machine: Machine, form: Form) -> None:
    """``winograd_filter``: packs channels first..last-1 of a panel, place by place."""
    width, lanes, vector = machine.tile.columns, machine.tile.lanes, machine.vector
    with b.function(
        f"define internal void @{form.name}_filter(ptr %args, i64 %panel, i64 %first, "
        "i64 %last, ptr %packed)"
    ):
        args = Args(b)
        room = buffer(b, machine, form)
        step = (_CHANNELS + lanes) * width  # a producer may write a vector too much
        size = form.taps * TAPS * step
        taps = b.op(f"alloca [{size} x {machine.scalar}], align 64")
        place, channels = args(WinogradWord.FILTER_PLANE), args(ConvWord.CHANNELS)
        _, f0, f1 = panel_features(b, machine, args, "%panel")
        with b.loop("0", args(ConvWord.TAPS_Z)) as dz, contextlib.ExitStack() as inner:
            before = b.op(f"mul i64 {dz}, {channels}")
            low = maximum(b, b.op(f"sub i64 %first, {before}"), "0")
            high = minimum(b, b.op(f"sub i64 %last, {before}"), channels)
            c0 = inner.enter_context(b.loop(low, high, str(_CHANNELS)))
            c1 = minimum(b, b.op(f"add i64 {c0}, {_CHANNELS}"), high)
            with b.loop("0", str(form.taps)) as dy, b.loop("0", str(TAPS)) as dx:
                tap = b.op(f"add i64 {b.op(f'mul i64 {dy}, {TAPS}')}, {dx}")
                row = b.op(f"add i64 {b.op(f'mul i64 {dz}, {form.taps}')}, {dy}")
                where = f"i64 {row}, i64 {dx}, i64 {c0}, i64 {c1}, i64 {f0}, i64 {f1}"
                block = offset(b, machine, taps, tap, str(step))
                block = f"ptr {block}, i64 {width}"
                call_pack(b, args, Word.PACK_B, Word.B, where, block)
            with b.loop(c0, c1) as c, b.loop("0", str(width), str(lanes)) as f:
                within = b.op(f"mul i64 {b.op(f'sub i64 {c}, {c0}')}, {width}")
                source = b.op(f"add i64 {within}, {f}")
                source = offset(b, machine, taps, source, "1")
                start = offset(b, machine, "%packed", f, "1")
                number = b.op(f"sub i64 {b.op(f'add i64 {before}, {c}')}, %first")
                start = offset(b, machine, start, number, str(width))

                def load(row: int, column: str, source: str = source) -> str:
                    tap = b.op(f"add i64 {column}, {row * TAPS}")
                    at = offset(b, machine, source, tap, str(step))
                    return b.op(f"load {vector}, ptr {at}, align 4")

                store = storing(b, machine, start, place)
                emit_transform(b, machine, form, FILTER, room, load, store)
        b("ret void")


def storing(
    b: Builder, machine: Machine, start: str, place: str
) -> Callable[[str, list[str]], None]:
    """Writes rows of a square of places, which are so many elements apart."""

    def store(row: str, values: list[str]) -> None:
        first = b.op(f"mul i64 {row}, {SIDE}")
        at = offset(b, machine, start, first, place)
        for column, value in enumerate(values):
            if column:
                at = offset(b, machine, at, "1", place)
            b(f"store {machine.vector} {value}, ptr {at}, align 4")

    return store


def all_channels(b: Builder, args: Args) -> str:
    """Those of all images of a volume that the filter meets."""
    return b.op(f"mul i64 {args(ConvWord.TAPS_Z)}, {args(ConvWord.CHANNELS)}")


@contextlib.contextmanager
def tiles_of(
    b: Builder, count: str, apart: str, out: int = OUT
) -> Iterator[tuple[str, str]]:
    """A loop over `count` tiles of so many outputs that are so far apart: number and
    place."""
    size = b.op(f"mul i64 {apart}, {out}")
    with b.loop("0", count, apart) as first, b.loop("0", apart) as phase:
        block = b.op(f"mul i64 {b.op(f'udiv i64 {first}, {apart}')}, {size}")
        number = b.op(f"add i64 {first}, {phase}")
        yield number, b.op(f"add i64 {block}, {phase}")


def emit_tiles_of_row(b: Builder, machine: Machine, form: Form) -> None:
    """``winograd_tiles``: transforms tiles of padded rows, `count` side by side."""
    lanes, vector = machine.tile.lanes, machine.vector
    with b.function(
        f"define internal void @{form.name}_tiles(ptr %args, "
        "ptr noalias readonly %rows, i64 %count, ptr noalias %inputs)"
    ):
        args = Args(b)
        room = buffer(b, machine, form)
        pixel, line = args(ConvWord.PIXEL), args(ConvWord.LINE)
        pitch, place = args(WinogradWord.PITCH), args(WinogradWord.PLANE)
        apart = args(ConvWord.DILATION_X)
        next_pixel = b.op(f"mul i64 {pixel}, {apart}")
        next_line = b.op(f"mul i64 {line}, {args(ConvWord.DILATION_Y)}")
        channels = args(ConvWord.CHANNELS)
        with (
            tiles_of(b, "%count", apart) as (tile, x),
            b.loop("0", channels, str(lanes)) as c,
        ):
            source = offset(b, machine, "%rows", x, pixel)
            source = offset(b, machine, source, c, "1")
            target = offset(b, machine, "%inputs", tile, pitch)
            target = offset(b, machine, target, c, "1")

            def load(row: int, column: str, source: str = source) -> str:
                at = offset(b, machine, source, column, next_pixel)
                at = offset(b, machine, at, str(row), next_line)
                return b.op(f"load {vector}, ptr {at}, align 4")

            store = storing(b, machine, target, place)
            emit_transform(b, machine, form, IMAGE, room, load, store)
        b("ret void")


def _emit_results(b: Builder, machine: Machine, form: Form) -> None:
    """``winograd_results``: what the sums of tiles, `count` side by side, make of the
    output, from pixel (y, x) of an image on, for some features."""
    width, lanes, vector = machine.tile.columns, machine.tile.lanes, machine.vector
    with b.function(
        f"define internal void @{form.name}_results(ptr %args, "
        "ptr noalias readonly %sums, i64 %count, i64 %image, i64 %y, i64 %x, "
        "i64 %feature, i64 %columns)"
    ):
        args = Args(b)
        room, stored = buffer(b, machine, form), machine.result
        place = args(WinogradWord.SUMS_PLANE)
        out_y, out_x, pixel = (
            args(ConvWord.OUT_Y),
            args(ConvWord.OUT_X),
            args(Word.C + 3),
        )
        start = offset(b, stored, args(Word.C, "ptr"), "%image", args(Word.C + 1))
        start = offset(b, stored, start, "%feature", "1")
        below, apart = args(ConvWord.DILATION_Y), args(ConvWord.DILATION_X)
        next_line = args(Word.C + 2)
        line = b.op(f"mul i64 {next_line}, {below}")
        beside = b.op(f"mul i64 {pixel}, {apart}")
        # How many rows, or columns, of a tile there are, from its first one on.
        rows = _steps(b, b.op(f"sub i64 {out_y}, %y"), below)
        with (
            tiles_of(b, "%count", apart) as (tile, at),
            b.loop("0", "%columns", str(lanes)) as f,
        ):
            source = b.op(f"add i64 {b.op(f'mul i64 {tile}, {width}')}, {f}")
            source = offset(b, machine, "%sums", source, "1")
            x = b.op(f"add i64 %x, {at}")
            across = _steps(b, b.op(f"sub i64 {out_x}, {x}"), apart)
            corner = offset(b, stored, start, "%y", next_line)
            corner = offset(b, stored, corner, x, pixel)
            corner = offset(b, stored, corner, f, "1")
            left = b.op(f"sub i64 %columns, {f}")
            mask = lane_mask(b, machine, left)
            wide = b.op(f"icmp sge i64 {left}, {lanes}")
            whole = b.op(f"and i1 {wide}, {b.op(f'icmp sge i64 {across}, {OUT}')}")
            ragged = b.op(f"xor i1 {whole}, true")

            def load(row: int, column: str, source: str = source) -> str:
                number = b.op(f"add i64 {column}, {row * SIDE}")
                at = offset(b, machine, source, number, place)
                return b.op(f"load {vector}, ptr {at}, align 4")

            def store(
                row: str,
                values: list[str],
                corner: str = corner,
                mask: str = mask,
                across: str = across,
                whole: str = whole,
                ragged: str = ragged,
            ) -> None:
                first = offset(b, stored, corner, row, line)
                places = [offset(b, stored, first, str(i), beside) for i in range(OUT)]
                inside = b.op(f"icmp slt i64 {row}, {rows}")
                with b.when(b.op(f"and i1 {inside}, {whole}")):
                    for at, value in zip(places, values, strict=True):
                        result = as_stored(b, machine, value)
                        b(f"store {result}, ptr {at}, align {stored.itemsize}")
                with b.when(b.op(f"and i1 {inside}, {ragged}")):
                    for i, (at, value) in enumerate(zip(places, values, strict=True)):
                        with b.when(b.op(f"icmp sgt i64 {across}, {i}")):
                            masked_store(b, machine, value, at, mask)

            emit_transform(b, machine, form, RESULT, room, load, store)
        b("ret void")


def _steps(b: Builder, length: str, apart: str) -> str:
    """How many elements lie in a length, so far apart; less than 1: none."""
    more = b.op(f"add i64 {length}, {b.op(f'sub i64 {apart}, 1')}")
    return b.op(f"sdiv i64 {more}, {apart}")


def _emit_unit(
    form: Form,
    b: Builder,
    machine: Machine,
    args: Args,
    unit: str,
    panels: tuple[str, str],
    scratch: tuple[str, str],
) -> None:
    (i0, i1), (y0, y1) = images_and_rows(b, args, unit)
    part = args(WinogradWord.PART)
    tiles = args(WinogradWord.TILES_X)
    skip = args(WinogradWord.INPUTS_OFFSET)
    inputs = b.op(f"getelementptr i8, ptr {scratch[0]}, i64 {skip}")
    skip = args(WinogradWord.SUMS_OFFSET)
    sums = b.op(f"getelementptr i8, ptr {scratch[0]}, i64 {skip}")
    size = b.op(f"mul i64 {args(WinogradWord.FILTER_PLANE)}, {form.places}")
    with b.loop("0", tiles, part) as x0:
        x1 = minimum(b, b.op(f"add i64 {x0}, {part}"), tiles)
        across = b.op(f"sub i64 {x1}, {x0}")
        again = b.op(f"icmp ne i64 {x0}, 0")
        _, count = emit_inputs(
            b,
            machine,
            form,
            args,
            (i0, i1),
            (y0, y1),
            (x0, across),
            again,
            (scratch[0], inputs),
        )
        with b.loop(*panels) as panel:
            number = b.op(f"sub i64 {panel}, {panels[0]}")
            weights = offset(b, machine, scratch[1], number, size)
            streams = b.op(f"icmp ne i64 {args(WinogradWord.STREAMS)}, 0")
            weights = b.op(f"select i1 {streams}, ptr {scratch[1]}, ptr {weights}")
            b(
                f"call void @{form.name}_panel(ptr %args, i64 {i0}, i64 {i1}, "
                f"i64 {y0}, i64 {y1}, i64 {x0}, i64 {across}, i64 {count}, "
                f"i64 {panel}, ptr {inputs}, ptr {weights}, ptr {sums})"
            )


def _tiles(b: Builder, form: Form, args: Args, outputs: str) -> str:
    """How many rows of tiles so many rows of outputs are."""
    apart = args(ConvWord.DILATION_Y)
    size = b.op(f"mul i64 {apart}, {form.out}")
    return b.op(f"mul i64 {_steps(b, outputs, size)}, {apart}")


def emit_inputs(
    b: Builder,
    machine: Machine,
    form: Form,
    args: Args,
    images: tuple[str, str],
    rows: tuple[str, str],
    columns: tuple[str, str],
    again: str,
    scratch: tuple[str, str],
) -> tuple[str, str]:
    """Transforms the tiles of a part of a unit, one behind the other; gives how many
    rows of them an image has, and their number.

    columns: the first tile of a row, and how many. again: whether the unit, of one
    image then, has been padded. scratch: for the padded slab, and for what it becomes.
    """
    (i0, i1), (y0, y1), (x0, across) = images, rows, columns
    down = _tiles(b, form, args, b.op(f"sub i64 {y1}, {y0}"))
    bottom = b.op(f"add i64 {y0}, {b.op(f'mul i64 {down}, {form.out}')}")
    each = b.op(f"mul i64 {down}, {across}")
    line, pitch = args(ConvWord.LINE), args(WinogradWord.PITCH)
    start = b.op(f"mul i64 {x0}, {OUT}")
    taps, channels = args(ConvWord.TAPS_Z), args(ConvWord.CHANNELS)
    kept = b.op(f"and i1 {again}, {b.op(f'icmp eq i64 {taps}, 1')}")
    with b.loop(i0, i1) as image, b.loop("0", taps) as dz:
        with b.when(b.op(f"xor i1 {kept}, true")):
            met, exists = image_met(b, args, image, dz)
            b(
                f"call void @conv_pad(ptr %args, i64 {met}, i1 {exists}, i64 {y0}, "
                f"i64 {bottom}, ptr {scratch[0]})"
            )
        source = offset(b, machine, scratch[0], start, args(ConvWord.PIXEL))
        # What is too much of an image's channels is written over by the next one's.
        inputs = offset(b, machine, scratch[1], dz, channels)
        first = b.op(f"mul i64 {b.op(f'sub i64 {image}, {i0}')}, {each}")
        with tiles_of(b, down, args(ConvWord.DILATION_Y), form.out) as (t, y):
            number = b.op(f"add i64 {first}, {b.op(f'mul i64 {t}, {across}')}")
            target = offset(b, machine, inputs, number, pitch)
            b(
                f"call void @{form.name}_tiles(ptr %args, "
                f"ptr {offset(b, machine, source, y, line)}, i64 {across}, "
                f"ptr {target})"
            )
    return down, b.op(f"mul i64 {each}, {b.op(f'sub i64 {i1}, {i0}')}")


def _emit_panel(b: Builder, machine: Machine, form: Form) -> None:
    """``winograd_panel``: one panel of features of a part of a unit."""
    width, size, height = machine.tile.columns, machine.itemsize, machine.tile.rows
    with b.function(
        f"define internal void @{form.name}_panel(ptr %args, i64 %i0, i64 %i1, "
        "i64 %y0, i64 %y1, i64 %x0, i64 %across, i64 %count, i64 %panel, ptr %inputs, "
        "ptr %weights, ptr %sums) " + COLD
    ):
        args = Args(b)
        _, f0, f1 = panel_features(b, machine, args, "%panel")
        columns = b.op(f"sub i64 {f1}, {f0}")
        tiles = b.op(f"udiv i64 {b.op(f'add i64 %count, {height - 1}')}, {height}")
        low, extra = (b.op(f"{op} i64 %count, {tiles}") for op in ("udiv", "urem"))
        a_row = b.op(f"mul i64 {args(WinogradWord.PITCH)}, {size}")
        channels, piece = all_channels(b, args), args(WinogradWord.PIECE)
        streams = b.op(f"icmp ne i64 {args(WinogradWord.STREAMS)}, 0")
        with b.loop("0", channels, piece) as c0:
            c1 = minimum(b, b.op(f"add i64 {c0}, {piece}"), channels)
            with b.when(streams):
                b(
                    f"call void @{form.name}_filter(ptr %args, i64 %panel, i64 {c0}, "
                    f"i64 {c1}, ptr %weights)"
                )
            skipped = b.op(f"select i1 {streams}, i64 0, i64 {c0}")
            weights = offset(b, machine, "%weights", skipped, str(width))
            inputs = offset(b, machine, "%inputs", c0, "1")
            with b.loop("0", str(form.places)) as place:
                a, panel, c = (
                    offset(b, machine, base, place, args(word))
                    for base, word in (
                        (inputs, WinogradWord.PLANE),
                        (weights, WinogradWord.FILTER_PLANE),
                        ("%sums", WinogradWord.SUMS_PLANE),
                    )
                )
                Sweep(
                    tiles=(low, extra, "0", tiles),
                    a=(a, a_row),
                    k=("@one_segment", "1", b.op(f"sub i64 {c1}, {c0}")),
                    panel=(panel, str(width * size)),
                    c=(c, str(width * size)),
                    columns=columns,
                    accumulate=b.op(f"zext i1 {b.op(f'icmp ne i64 {c0}, 0')} to i64"),
                ).call(b)
        x = b.op(f"mul i64 %x0, {OUT}")
        step = b.op(f"mul i64 %across, {width}")
        down = _tiles(b, form, args, b.op("sub i64 %y1, %y0"))
        each = b.op(f"mul i64 {down}, {step}")
        whole = b.op(f"icmp eq i64 %across, {args(WinogradWord.TILES_X)}")
        parted = b.op(f"xor i1 {whole}, true")
        out_x = args(ConvWord.OUT_X)
        with b.loop("%i0", "%i1") as image:
            number = b.op(f"sub i64 {image}, %i0")
            first = offset(b, machine, "%sums", number, each)
            with tiles_of(b, down, args(ConvWord.DILATION_Y), form.out) as (t, at):
                source = offset(b, machine, first, t, step)
                y = b.op(f"add i64 %y0, {at}")
                b(
                    f"call void @{form.name}_results(ptr %args, ptr {source}, "
                    f"i64 %across, i64 {image}, i64 {y}, i64 {x}, i64 {f0}, "
                    f"i64 {columns})"
                )
            r0, r1 = (b.op(f"mul i64 {row}, {out_x}") for row in ("%y0", "%y1"))
            call_epilogue(b, args, whole, (image, "0", r0, r1, f0, f1))
            end = b.op(f"add i64 {x}, {b.op(f'mul i64 %across, {OUT}')}")
            end = minimum(b, end, out_x)
            with b.when(parted), b.loop("%y0", "%y1") as y:
                line = b.op(f"mul i64 {y}, {out_x}")
                r0, r1 = (b.op(f"add i64 {line}, {at}") for at in (x, end))
                call_epilogue(b, args, "true", (image, "0", r0, r1, f0, f1))
        b("ret void")
