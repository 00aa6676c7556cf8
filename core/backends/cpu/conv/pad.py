"""Copies a slab of an image into a zero-padded, dilated scratch."""

from __future__ import annotations

from collections.abc import Callable

from treadle.backends.cpu.conv.arguments import ConvWord
from treadle.backends.cpu.emit.builder import Builder
from treadle.backends.cpu.gemm.arguments import Word
from treadle.backends.cpu.gemm.parts import Args, call_pack, offset
from treadle.backends.cpu.gemm.tile import Machine
from treadle.backends.cpu.run.divided import COLD

Fill = Callable[[Builder, Machine, Args, str, str], None]
"""Writes the pixels of a row, of ``%image`` and ``%y``, from an address on, so many
elements apart."""


def emit_pad(b: Builder, machine: Machine, fill: Fill | None = None) -> None:
    """``conv_pad``: what output rows y0..y1-1 visit of an image: zeros if it is none.

    Producers may write a vector too much behind each row, so rows are written in
    ascending order and what lies behind a row is zeroed after it.
    """
    b.declare("void @llvm.memset.p0.i64(ptr, i8, i64, i1)")
    with b.function(
        "define internal void @conv_pad(ptr %args, i64 %image, i1 %exists, i64 %y0, "
        "i64 %y1, ptr %padded) " + COLD
    ):
        args = Args(b)
        line = args(ConvWord.LINE)
        stride = args(ConvWord.STRIDE_Y)
        start = b.op(f"mul i64 %y0, {stride}")
        start = b.op(f"sub i64 {start}, {args(ConvWord.PAD_Y)}")
        last = b.op(f"xor i64 {b.op('sub i64 %y0, %y1')}, -1")  # y1 - y0 - 1
        rows = b.op(f"mul i64 {last}, {stride}")
        taps = b.op(f"sub i64 {args(ConvWord.TAPS_Y)}, 1")
        reach = b.op(f"mul i64 {taps}, {args(ConvWord.DILATION_Y)}")
        rows = b.op(f"add i64 {b.op(f'add i64 {rows}, {reach}')}, 1")
        dilation = args(ConvWord.IN_DILATION_Y)
        size = args(ConvWord.IN_Y)
        with b.loop("0", rows) as row:
            target = offset(b, machine, "%padded", row, line)
            position = b.op(f"add i64 {start}, {row}")
            y = b.op(f"sdiv i64 {position}, {dilation}")
            gap = b.op(f"icmp ne i64 {b.op(f'srem i64 {position}, {dilation}')}, 0")
            before = b.op(f"icmp slt i64 {position}, 0")
            beyond = b.op(f"icmp sge i64 {y}, {size}")
            outside = b.op(f"or i1 {b.op(f'or i1 {before}, {beyond}')}, {gap}")
            outside = b.op(f"select i1 %exists, i1 {outside}, i1 true")
            inside = b.op(f"xor i1 {outside}, true")
            with b.when(outside):
                _zero(b, machine, target, line)
            with b.when(inside):
                b(
                    f"call void @conv_pad_row(ptr %args, i64 %image, i64 {y}, "
                    f"ptr {target})"
                )
        b("ret void")
    _emit_row(b, machine, fill or _fill)


def _zero(b: Builder, machine: Machine, address: str, elements: str) -> None:
    count = b.op(f"mul i64 {elements}, {machine.itemsize}")
    b(f"call void @llvm.memset.p0.i64(ptr {address}, i8 0, i64 {count}, i1 false)")


def _emit_row(b: Builder, machine: Machine, fill: Fill) -> None:
    """``conv_pad_row``: one row that exists in the input."""
    with b.function(
        "define internal void @conv_pad_row(ptr %args, i64 %image, i64 %y, ptr %row)"
    ):
        args = Args(b)
        line, pixel = args(ConvWord.LINE), args(ConvWord.PIXEL)
        step = args(ConvWord.IN_DILATION_X)
        with b.when(b.op(f"icmp ne i64 {step}, 1")):
            _zero(b, machine, "%row", line)
        left, end = args(ConvWord.ROW_START), args(ConvWord.ROW_END)
        target = offset(b, machine, "%row", left, "1")
        fill(b, machine, args, target, b.op(f"mul i64 {step}, {pixel}"))
        _zero(b, machine, "%row", left)
        rest = b.op(f"sub i64 {line}, {end}")
        _zero(b, machine, offset(b, machine, "%row", end, "1"), rest)
        b("ret void")


def _fill(b: Builder, machine: Machine, args: Args, target: str, spacing: str) -> None:
    first, stop = args(ConvWord.X_FIRST), args(ConvWord.X_STOP)
    channels = args(ConvWord.CHANNELS)
    run = b.op(f"icmp ne i64 {args(ConvWord.ROW_RUN)}, 0")
    with b.when(run):
        source = args(Word.A, "ptr")
        for i, index in enumerate(("%image", "%y", first), start=1):
            source = offset(b, machine.operand, source, index, args(Word.A + i))
        elements = b.op(f"mul i64 {b.op(f'sub i64 {stop}, {first}')}, {channels}")
        b(
            f"call void @pack_copy(ptr {source}, i64 0, i64 1, i64 {elements}, "
            f"ptr {target}, i64 0)"
        )
    with b.when(b.op(f"xor i1 {run}, true")):
        where = f"i64 %image, i64 %y, i64 {first}, i64 {stop}, i64 0, i64 {channels}"
        block = f"ptr {target}, i64 {spacing}"
        call_pack(b, args, Word.PACK_A, Word.A, where, block)
