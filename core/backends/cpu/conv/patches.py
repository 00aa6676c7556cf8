"""Convolutions as products: packs what the taps of the filter meet.

A row of A is a pixel of the result, counted through all images; a row of B is a channel
of a tap. Small images fill the tiles of a product so, whatever their width, and a piece
of k at a time stays in the innermost cache. The producers' arguments are the words of
the convolution. Its epilogue sees image by image.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from treadle.backends.cpu.conv.arguments import ConvWord
from treadle.backends.cpu.conv.taps import image_met
from treadle.backends.cpu.emit.builder import Builder
from treadle.backends.cpu.gemm.arguments import Word
from treadle.backends.cpu.gemm.parts import (
    Args,
    call_epilogue,
    maximum,
    minimum,
    offset,
)
from treadle.backends.cpu.gemm.tile import Machine

_PRODUCER = (
    "ptr %args, i64 %b0, i64 %b1, i64 %i0, i64 %i1, i64 %j0, i64 %j1, ptr %block, "
    "i64 %stride"
)


def emit_patches(b: Builder, machine: Machine) -> None:
    """Defines the producers ``pack_patches`` and ``pack_filter``."""
    size = machine.itemsize
    b.declare("void @llvm.memset.p0.i64(ptr, i8, i64, i1)")
    b.declare("void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)")
    with b.function(f"define internal void @pack_patches({_PRODUCER})"):
        args = Args(b)
        out_x = args(ConvWord.OUT_X)
        pixels = b.op(f"mul i64 {args(ConvWord.OUT_Y)}, {out_x}")
        with b.loop("%i0", "%i1") as row:
            image = b.op(f"udiv i64 {row}, {pixels}")
            pixel = b.op(f"urem i64 {row}, {pixels}")
            y = b.op(f"udiv i64 {pixel}, {out_x}")
            x = b.op(f"urem i64 {pixel}, {out_x}")
            number = b.op(f"sub i64 {row}, %i0")
            line = offset(b, machine, "%block", number, "%stride")
            with _taps(b, args, "%j0", "%j1") as (rows, dx, c0, c1, done):
                dz, dy = (
                    b.op(f"{op} i64 {rows}, {args(ConvWord.TAPS_Y)}")
                    for op in ("udiv", "urem")
                )
                met, is_z = image_met(b, args, image, dz)
                at_y, no_y = _located(b, args, y, dy, (0, ConvWord.IN_Y))
                at_x, no_x = _located(b, args, x, dx, (1, ConvWord.IN_X))
                outside = b.op(f"or i1 {no_y}, {no_x}")
                outside = b.op(f"select i1 {is_z}, i1 {outside}, i1 true")
                target = offset(b, machine, line, done, "1")
                nbytes = b.op(f"mul i64 {b.op(f'sub i64 {c1}, {c0}')}, {size}")
                with b.when(outside):
                    b(
                        f"call void @llvm.memset.p0.i64(ptr {target}, i8 0, "
                        f"i64 {nbytes}, i1 false)"
                    )
                with b.when(b.op(f"xor i1 {outside}, true")):
                    given = args(Word.A, "ptr")
                    given = offset(b, machine, given, met, args(Word.A + 1))
                    given = offset(b, machine, given, at_y, args(Word.A + 2))
                    given = offset(b, machine, given, at_x, args(Word.A + 3))
                    given = offset(b, machine, given, c0, "1")
                    b(
                        f"call void @llvm.memcpy.p0.p0.i64(ptr {target}, "
                        f"ptr {given}, i64 {nbytes}, i1 false)"
                    )
        b("ret void")
    with b.function(f"define internal void @pack_filter({_PRODUCER})"):
        args = Args(b)
        with _taps(b, args, "%i0", "%i1") as (dy, dx, c0, c1, done):
            target = offset(b, machine, "%block", done, "%stride")
            b(
                f"call void @pack(ptr {args.at(Word.B)}, i64 {dy}, i64 {dx}, i64 {c0}, "
                f"i64 {c1}, i64 %j0, i64 %j1, ptr {target}, i64 %stride)"
            )
        b("ret void")


@contextmanager
def _taps(
    b: Builder, args: Args, first: str, stop: str
) -> Iterator[tuple[str, str, str, str, str]]:
    """Runs the body for each tap of a piece of k: its row among those of all z, its
    column, its channels, and how much of the piece was before."""
    channels, taps_x = args(ConvWord.CHANNELS), args(ConvWord.TAPS_X)
    with b.carrying(first, stop, "", []) as turn:
        tap = b.op(f"udiv i64 {turn.index}, {channels}")
        c0 = b.op(f"urem i64 {turn.index}, {channels}")
        left = b.op(f"sub i64 {stop}, {turn.index}")
        c1 = minimum(b, b.op(f"add i64 {c0}, {left}"), channels)
        dy, dx = (b.op(f"{op} i64 {tap}, {taps_x}") for op in ("udiv", "urem"))
        yield dy, dx, c0, c1, b.op(f"sub i64 {turn.index}, {first}")
        turn.step = b.op(f"sub i64 {c1}, {c0}")


_AXES = (
    (
        ConvWord.STRIDE_Y,
        ConvWord.DILATION_Y,
        ConvWord.PAD_Y,
        ConvWord.IN_DILATION_Y,
    ),
    (
        ConvWord.STRIDE_X,
        ConvWord.DILATION_X,
        ConvWord.PAD_X,
        ConvWord.IN_DILATION_X,
    ),
)


def _located(
    b: Builder, args: Args, out: str, tap: str, axis: tuple[int, ConvWord]
) -> tuple[str, str]:
    """Where in the input a tap of an output is, and whether nothing is there."""
    stride, dilation, pad, gaps = (args(word) for word in _AXES[axis[0]])
    position = b.op(f"mul i64 {out}, {stride}")
    position = b.op(f"add i64 {position}, {b.op(f'mul i64 {tap}, {dilation}')}")
    position = b.op(f"sub i64 {position}, {pad}")
    at = b.op(f"sdiv i64 {position}, {gaps}")
    gap = b.op(f"icmp ne i64 {b.op(f'srem i64 {position}, {gaps}')}, 0")
    before = b.op(f"icmp slt i64 {position}, 0")
    beyond = b.op(f"icmp sge i64 {at}, {args(axis[1])}")
    return at, b.op(f"or i1 {gap}, {b.op(f'or i1 {before}, {beyond}')}")


def call_image_epilogues(
    b: Builder, args: Args, block: tuple[str, str, str, str]
) -> None:
    """Calls the epilogue for the part of each image: block is the first row, the row
    after the last, the first column and the column after the last."""
    r0, r1, c0, c1 = block
    pixels = b.op(f"mul i64 {args(ConvWord.OUT_Y)}, {args(ConvWord.OUT_X)}")
    last = b.op(f"udiv i64 {b.op(f'sub i64 {r1}, 1')}, {pixels}")
    stop = b.op(f"add i64 {last}, 1")
    with b.loop(b.op(f"udiv i64 {r0}, {pixels}"), stop) as image:
        start = b.op(f"mul i64 {image}, {pixels}")
        first = maximum(b, b.op(f"sub i64 {r0}, {start}"), "0")
        end = minimum(b, b.op(f"sub i64 {r1}, {start}"), pixels)
        call_epilogue(b, args, "true", (image, "0", first, end, c0, c1))
