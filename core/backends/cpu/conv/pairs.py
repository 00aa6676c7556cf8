"""Convolutions of bfloat16: what the kernels do besides where operands are pairs.

What they take for a float is two bfloat16, whose products are both added. Sums are in
float32, and are rounded once, where a result is stored as bfloat16::

    convolution          two channels of a pixel; of an odd number in a group, the last
                         has a zero beside it
    filter gradient      an element of two images, one behind the other; of an odd
                         number, the last has zeros beside it

So the padded image, the planes and the packed operands are made of pairs, and all else
is as for floats. Where images are read in place, strides are of pairs, too.
"""

from __future__ import annotations

import functools
from dataclasses import replace

import numpy as np

from treadle.backends.cpu.conv.arguments import ConvWord, PairWord
from treadle.backends.cpu.conv.filter_kernel import emit_filter_gradient
from treadle.backends.cpu.conv.kernel import emit_convolution
from treadle.backends.cpu.emit.builder import Builder
from treadle.backends.cpu.gemm.arguments import Kind, Tile, Word
from treadle.backends.cpu.gemm.kernel import machine_for
from treadle.backends.cpu.gemm.pack import emit_copies
from treadle.backends.cpu.gemm.parts import Args, emit_dispatch, offset
from treadle.backends.cpu.gemm.sweep import emit_sweep, emit_tiles
from treadle.backends.cpu.gemm.tile import (
    Machine,
    Stored,
    lane_mask,
)
from treadle.backends.cpu.run.native import Source
from treadle.backends.cpu.target import (
    AMX_MODEL,
    AVX512_BF16,
    AVX512_BF16_MODEL,
    bfloat_unit,
    host,
    llvm,
)
from treadle.kernels.convolve import ConvSpec

_HALF = Stored("i16", 2)
_LANES = 16


def machine(short: bool = False) -> Machine:
    """What multiplies pairs here: instructions, or a model of them.

    short: whether results are bfloat16.
    """
    found = machine_for(np.dtype(np.float32), host())
    found = replace(found, pairs=True, short=short)
    if bfloat_unit() in (AMX_MODEL, AVX512_BF16_MODEL):
        return replace(found, assembly="", tile=Tile(_LANES, 14))
    return found


def source(spec: ConvSpec, gradient: bool) -> Source:
    """The kernel of a convolution, or of its gradient by the filter."""
    return _source(gradient, spec.dtype.itemsize == 2, bfloat_unit())


@functools.cache
def _source(gradient: bool, short: bool, unit: str) -> Source:
    what = "filter" if gradient else "images"
    result = "bfloat16" if short else "float"

    return Source(
        f"convolve/{unit}/{what}/{result}",
        "convolve",
        lambda: emit_module(machine(short), gradient),
    )


def common() -> list[Source]:
    """The kernels of images of bfloat16, if this machine multiplies pairs of them."""
    unit = bfloat_unit()
    ways = (False, True) if unit == AVX512_BF16 else ()
    return [_source(gradient, True, unit) for gradient in ways]


def emit_module(machine: Machine, gradient: bool) -> str:
    """IR of everything that one of the two needs."""
    llvm().initialize_native_asmparser()  # for the assembly in the kernels
    b = Builder()
    tiles = replace(machine, short=False) if gradient else machine
    emit_tiles(b, tiles)
    emit_sweep(b, tiles)
    emit_copies(b, machine)
    _emit_join(b, machine)
    kinds = {Kind.CONVOLUTION: "convolution"}
    if gradient:
        emit_filter_gradient(b, machine, _fill_images)
        _emit_pair_panel(b, machine)
        kinds = {
            Kind.FILTER_GRADIENT: "filter_gradient",
            Kind.SUM_PARTIALS: "sum_partials",
        }
    else:
        emit_convolution(b, machine, _fill_channels)
        _emit_pair_odd(b, machine)
        _emit_pair_filter(b, machine)
    emit_dispatch(b, "convolve", kinds)
    return b.text()


def _emit_join(b: Builder, machine: Machine) -> None:
    """``join``: elements of rows from two places as pairs, or of the first place and
    zeros, up to a vector of zeros too much in a row."""
    words = f"<{_LANES} x i32>"
    sixteen = ", ".join(["i32 16"] * _LANES)
    with b.function(
        "define internal void @join(ptr %first, ptr %second, i64 %step, i64 %rows, "
        "i64 %columns, i1 %both, ptr %to, i64 %to_step)"
    ):
        with b.loop("0", "%rows") as i, b.loop("0", "%columns", str(_LANES)) as j:
            count = b.op(f"sub i64 %columns, {j}")
            mask = _lanes_below(b, count)
            other = b.op(f"select i1 %both, i64 {count}, i64 0")
            low, high = (
                _halves(b, offset(b, _HALF, line, j, "1"), found)
                for line, found in (
                    (offset(b, _HALF, "%first", i, "%step"), mask),
                    (offset(b, _HALF, "%second", i, "%step"), _lanes_below(b, other)),
                )
            )
            high = b.op(f"shl {words} {high}, <{sixteen}>")
            pair = b.op(f"or {words} {low}, {high}")
            place = offset(b, machine, "%to", i, "%to_step")
            place = offset(b, machine, place, j, "1")
            b(f"store {words} {pair}, ptr {place}, align 4")
        b("ret void")


def _lanes_below(b: Builder, count: str) -> str:
    """Which of the first 16 elements there are."""
    model = Machine("float", Tile(_LANES, 1), "")
    return lane_mask(b, model, count)


def _halves(b: Builder, address: str, mask: str) -> str:
    """16 of them, as integers of 32 bits; those that the mask leaves out are zero."""
    words, kind = f"<{_LANES} x i16>", f"<{_LANES} x i1>"
    name = f"@llvm.masked.load.v{_LANES}i16.p0"
    b.declare(f"{words} {name}(ptr, {kind}, {words})")
    found = b.op(
        f"call {words} {name}(ptr align 2 {address}, {kind} {mask}, "
        f"{words} zeroinitializer)"
    )
    return b.op(f"zext {words} {found} to <{_LANES} x i32>")


def _fill_channels(
    b: Builder, machine: Machine, args: Args, target: str, spacing: str
) -> None:
    """The pixels of a row of the padded image, of a convolution."""
    first, stop = args(ConvWord.X_FIRST), args(ConvWord.X_STOP)
    source = args(Word.A, "ptr")
    for i, index in enumerate(("%image", "%y", first), start=1):
        source = offset(b, _HALF, source, index, args(Word.A + i))
    count, step = b.op(f"sub i64 {stop}, {first}"), args(Word.A + 3)
    pixel = args(ConvWord.CHANNELS)
    odd = b.op(f"trunc i64 {args(PairWord.PAIRED)} to i1")
    even = b.op(f"xor i1 {odd}, true")
    run = b.op(f"icmp ne i64 {args(ConvWord.ROW_RUN)}, 0")
    with b.when(run):
        elements = b.op(f"mul i64 {count}, {pixel}")
        b(
            f"call void @pack_copy(ptr {source}, i64 0, i64 1, i64 {elements}, "
            f"ptr {target}, i64 0)"
        )
    apart = b.op(f"and i1 {even}, {b.op(f'xor i1 {run}, true')}")
    with b.when(apart), b.loop("0", count) as x:
        line = offset(b, _HALF, source, x, step)
        place = offset(b, machine, target, x, spacing)
        b(
            f"call void @pack_copy(ptr {line}, i64 0, i64 1, i64 {pixel}, "
            f"ptr {place}, i64 0)"
        )
    with b.when(odd):
        b(
            f"call void @pair_odd(ptr %args, ptr {source}, i64 {count}, ptr {target}, "
            f"i64 {spacing})"
        )


def _emit_pair_odd(b: Builder, machine: Machine) -> None:
    """``pair_odd``: pixels whose groups have an odd number of channels each."""
    words, kind = "<32 x i16>", "<32 x i1>"
    read, write = "@llvm.masked.load.v32i16.p0", "@llvm.masked.store.v32i16.p0"
    b.declare(f"{words} {read}(ptr, {kind}, {words})")
    b.declare(f"void {write}({words}, ptr, {kind})")
    with b.function(
        "define internal void @pair_odd(ptr %args, ptr %source, i64 %count, ptr %to, "
        "i64 %spacing)"
    ):
        args = Args(b)
        each, pairs = args(PairWord.PAIRED), args(ConvWord.GROUP_CHANNELS)
        pixel, step = args(ConvWord.CHANNELS), args(Word.A + 3)
        groups = b.op(f"udiv i64 {pixel}, {pairs}")
        filled = b.op(f"add i64 {each}, 1")
        with b.loop("0", groups) as group, b.loop("0", each, "32") as c:
            masks = [_below(b, b.op(f"sub i64 {size}, {c}")) for size in (each, filled)]
            source = offset(b, _HALF, "%source", group, each)
            source = offset(b, _HALF, source, c, "1")
            to = offset(b, machine, "%to", group, pairs)
            to = offset(b, _HALF, to, c, "1")
            with b.loop("0", "%count") as x:
                found = b.op(
                    f"call {words} {read}(ptr align 2 "
                    f"{offset(b, _HALF, source, x, step)}, {kind} {masks[0]}, "
                    f"{words} zeroinitializer)"
                )
                b(
                    f"call void {write}({words} {found}, ptr align 2 "
                    f"{offset(b, machine, to, x, '%spacing')}, {kind} {masks[1]})"
                )
        b("ret void")


def _below(b: Builder, count: str) -> str:
    """Which of the first 32 elements there are."""
    b.declare("i64 @llvm.smin.i64(i64, i64)")
    words = "<32 x i16>"
    limit = b.op(f"call i64 @llvm.smin.i64(i64 {count}, i64 32)")
    one = b.op(f"trunc i64 {limit} to i16")
    one = b.op(f"insertelement {words} poison, i16 {one}, i64 0")
    zeros = "<32 x i32> zeroinitializer"
    limits = b.op(f"shufflevector {words} {one}, {words} poison, {zeros}")
    numbers = ", ".join(f"i16 {i}" for i in range(32))
    return b.op(f"icmp slt {words} <{numbers}>, {limits}")


def _emit_pair_filter(b: Builder, machine: Machine) -> None:
    """``pair_filter``: a tap of the filter for features f0..f1-1, as pairs of rows."""
    width = machine.tile.columns
    with b.function(
        "define internal void @pair_filter(ptr %args, i64 %dy, i64 %dx, i64 %f0, "
        "i64 %f1, ptr %to)"
    ):
        args = Args(b)
        row, column = args(Word.B + 3), args(Word.B + 4)
        source = args(Word.B, "ptr")
        for index, word in (("%dy", 1), ("%dx", 2), ("%f0", 4)):
            source = offset(b, _HALF, source, index, args(Word.B + word))
        each = args(PairWord.PAIRED)
        features = b.op("sub i64 %f1, %f0")
        whole, odd = b.op(f"lshr i64 {each}, 1"), b.op(f"and i64 {each}, 1")
        is_odd = b.op(f"icmp ne i64 {odd}, 0")
        with b.when(b.op(f"icmp eq i64 {column}, 1")):
            second = offset(b, _HALF, source, row, "1")
            step = b.op(f"mul i64 {row}, 2")
            b(
                f"call void @join(ptr {source}, ptr {second}, i64 {step}, i64 {whole}, "
                f"i64 {features}, i1 true, ptr %to, i64 {width})"
            )
            last = offset(b, _HALF, source, whole, step)
            place = offset(b, machine, "%to", whole, str(width))
            b(
                f"call void @join(ptr {last}, ptr {last}, i64 0, i64 {odd}, "
                f"i64 {features}, i1 false, ptr {place}, i64 0)"
            )
            b("ret void")
            b.label(b.fresh_label("unreachable"))
        # Pairs that lie as wanted, a whole number of them apart.
        beside = b.op(f"icmp eq i64 {row}, 1")
        uneven = b.op(f"or i1 {is_odd}, {b.op(f'trunc i64 {column} to i1')}")
        with b.when(b.op(f"and i1 {beside}, {b.op(f'xor i1 {uneven}, true')}")):
            b(
                f"call void @pack_transpose(ptr {source}, "
                f"i64 {b.op(f'ashr i64 {column}, 1')}, i64 {whole}, i64 {features}, "
                f"ptr %to, i64 {width})"
            )
            b("ret void")
            b.label(b.fresh_label("unreachable"))
        with b.loop("0", each, "2") as c, b.loop("0", features) as f:
            line = offset(b, _HALF, offset(b, _HALF, source, c, row), f, column)
            later = b.op(f"add i64 {c}, 1")
            there = b.op(f"icmp slt i64 {later}, {each}")
            other = b.op(f"select i1 {there}, i64 {row}, i64 0")
            low, high = (
                b.op(f"load i16, ptr {offset(b, _HALF, line, skipped, '1')}, align 2")
                for skipped in ("0", other)
            )
            high = b.op(f"select i1 {there}, i16 {high}, i16 0")
            place = offset(b, machine, "%to", b.op(f"lshr i64 {c}, 1"), str(width))
            place = offset(b, machine, place, f, "1")
            b(f"store i16 {low}, ptr {place}, align 4")
            beyond = b.op(f"getelementptr i16, ptr {place}, i64 1")
            b(f"store i16 {high}, ptr {beyond}, align 2")
        b("ret void")


def _fill_images(
    b: Builder, machine: Machine, args: Args, target: str, spacing: str
) -> None:
    """The pixels of a row of the padded images, of a gradient by the filter."""
    first, stop = args(ConvWord.X_FIRST), args(ConvWord.X_STOP)
    low, high, both = _two_images(b, args, Word.A)
    for i, index in ((2, "%y"), (3, first)):
        low, high = (
            offset(b, _HALF, image, index, args(Word.A + i)) for image in (low, high)
        )
    pixels, channels = b.op(f"sub i64 {stop}, {first}"), args(ConvWord.CHANNELS)
    run = b.op(f"icmp ne i64 {args(ConvWord.ROW_RUN)}, 0")
    elements = b.op(f"mul i64 {pixels}, {channels}")
    rows = b.op(f"select i1 {run}, i64 1, i64 {pixels}")
    columns = b.op(f"select i1 {run}, i64 {elements}, i64 {channels}")
    b(
        f"call void @join(ptr {low}, ptr {high}, i64 {args(Word.A + 3)}, i64 {rows}, "
        f"i64 {columns}, i1 {both}, ptr {target}, i64 {spacing})"
    )


def _two_images(b: Builder, args: Args, slot: Word) -> tuple[str, str, str]:
    """Where the two images of number `%image` are, and whether there is a second."""
    number, step = b.op("shl i64 %image, 1"), args(slot + 1)
    low = offset(b, _HALF, args(slot, "ptr"), number, step)
    following = b.op(f"add i64 {number}, 1")
    both = b.op(f"icmp slt i64 {following}, {args(PairWord.PAIRED)}")
    return low, offset(b, _HALF, low, "1", step), both


def _emit_pair_panel(b: Builder, machine: Machine) -> None:
    """``pair_panel``: pixels r0..r1-1 of two images' derivatives, for features
    f0..f1-1."""
    with b.function(
        "define internal void @pair_panel(ptr %args, i64 %image, i64 %r0, i64 %r1, "
        "i64 %f0, i64 %f1, ptr %to)"
    ):
        args = Args(b)
        low, high, both = _two_images(b, args, Word.B)
        step = args(Word.B + 3)
        low, high = (
            offset(b, _HALF, offset(b, _HALF, image, "%r0", step), "%f0", "1")
            for image in (low, high)
        )
        b(
            f"call void @join(ptr {low}, ptr {high}, i64 {step}, "
            f"i64 {b.op('sub i64 %r1, %r0')}, i64 {b.op('sub i64 %f1, %f0')}, "
            f"i1 {both}, ptr %to, i64 {machine.tile.columns})"
        )
        b("ret void")
