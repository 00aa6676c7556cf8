"""Convolutions of bfloat16 on tile registers: products of patches.

A is packed from images as `treadle.backends.cpu.conv.patches` says, and all else is a
product (`treadle.backends.cpu.bfloat.kernel`): of the patches of some pixels and the
filter, or, for the gradient by the filter, of all pixels' patches and what comes back
from them. Each group of channels, and each line of pixels, is a batch element.
"""

from __future__ import annotations

from treadle.backends.cpu.bfloat import kernel
from treadle.backends.cpu.bfloat.unit import Dtypes, Unit
from treadle.backends.cpu.conv.arguments import PATCH_WORDS, PatchWord
from treadle.backends.cpu.conv.patches import (
    emit_filter_panels,
    emit_patches,
    emit_patches_turned,
)
from treadle.backends.cpu.emit.builder import Builder
from treadle.backends.cpu.gemm.arguments import Kind, ProductWord, Word
from treadle.backends.cpu.gemm.parts import (
    Args,
    call_epilogue,
    emit_dispatch,
    maximum,
    minimum,
)
from treadle.backends.cpu.run.divided import COLD
from treadle.backends.cpu.run.native import Source
from treadle.kernels.convolve import ConvSpec

_BLOCK = "i64 %r0, i64 %r1, i64 %n0, i64 %n1"


def source(spec: ConvSpec, gradient: bool) -> Source:
    """The kernel of a convolution, or of its gradient by the filter."""
    dtypes, unit = Dtypes(*spec.dtypes), kernel.unit()
    what = "filter" if gradient else "images"
    return Source(
        f"convolve_on_tiles/{unit.name}/{what}/{dtypes.c.name}",
        "convolve",
        lambda: emit_module(dtypes, unit, gradient),
        needs=(kernel.packing(dtypes, unit),),
    )


def emit_module(dtypes: Dtypes, unit: Unit, gradient: bool) -> str:
    """IR of everything that one of the two needs."""
    b = Builder()
    a, by, c = unit.operands(dtypes)
    kernel.declare_packers(b)
    unit.define(b, c)
    if gradient:
        emit_patches_turned(b, a)
        kernel.emit_pack_panels(b, by)
        _emit_taps_finished(b)
    else:
        emit_patches(b, a)
        emit_filter_panels(b)
        _emit_images_finished(b)
    kernel.emit_panels(b)
    kernel.emit_columns(b, unit, c)
    kernel.emit_tasks(b, unit, "images", _Lines(b, gradient, c.dtype.itemsize))
    kind = Kind.FILTER_GRADIENT if gradient else Kind.CONVOLUTION
    emit_dispatch(b, "convolve", {kind: "images", Kind.PANELS: "panels"})
    return b.text()


class _Lines:
    """A task's batch elements: its arguments are a copy, in which operands begin with
    the group and the line."""

    def __init__(self, b: Builder, gradient: bool, itemsize: int) -> None:
        self.b, self.gradient, self.itemsize = b, gradient, itemsize
        self.given = ""

    def enter(self, args: Args) -> None:
        b = self.b
        self.given = b.op(f"alloca [{PATCH_WORDS} x i64], align 64")
        b.declare("void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)")
        size = 8 * PATCH_WORDS
        b(
            f"call void @llvm.memcpy.p0.p0.i64(ptr {self.given}, ptr %args, "
            f"i64 {size}, i1 false)"
        )

    def begin(self, args: Args, batch: str) -> tuple[str, str, str]:
        b, groups, lines = self.b, args(PatchWord.GROUPS), args(PatchWord.LINES)
        group, rest = (b.op(f"{op} i64 {batch}, {groups}") for op in ("urem", "udiv"))
        line, image = (b.op(f"{op} i64 {rest}, {lines}") for op in ("urem", "udiv"))
        for word, value in (
            (PatchWord.GROUP, group),
            (PatchWord.LINE, line),
            (PatchWord.IMAGE, image),
        ):
            self._set(word, f"i64 {value}")
        skip = b.op(f"mul i64 {group}, {args(ProductWord.N)}")
        if self.gradient:
            by = b.op(f"getelementptr i16, ptr {args(Word.B, 'ptr')}, i64 {skip}")
            self._set(Word.B, f"ptr {by}")
        for index, step in ((image, Word.C + 1), (line, Word.C + 2)):
            skip = b.op(f"add i64 {skip}, {b.op(f'mul i64 {index}, {args(step)}')}")
        skip = b.op(f"mul i64 {skip}, {self.itemsize}")
        to = b.op(f"getelementptr i8, ptr {args(Word.C, 'ptr')}, i64 {skip}")
        self._set(Word.C, f"ptr {to}")
        return self.given, "0", "0"

    def _set(self, word: int, value: str) -> None:
        place = self.b.op(f"getelementptr i64, ptr {self.given}, i64 {int(word)}")
        self.b(f"store {value}, ptr {place}, align 8")

    def finish(self, args: Args, block: tuple[str, ...]) -> None:
        where = ", ".join(f"i64 {index}" for index in block[2:])
        self.b(f"call void @finished(ptr %args, ptr {self.given}, {where})")


def _own(b: Builder, word: PatchWord) -> str:
    """What a task has written into its copy of the arguments."""
    place = b.op(f"getelementptr i64, ptr %given, i64 {int(word)}")
    return b.op(f"load i64, ptr {place}, align 8")


def _emit_images_finished(b: Builder) -> None:
    """``finished``: tells the epilogue of pixels of a line, image by image."""
    with b.function(
        f"define internal void @finished(ptr %args, ptr %given, {_BLOCK}) " + COLD
    ):
        args = Args(b)
        pixels = b.op(f"mul i64 {args(PatchWord.OUT_Y)}, {args(PatchWord.OUT_X)}")
        image = _own(b, PatchWord.IMAGE)
        start = b.op(f"mul i64 {_own(b, PatchWord.LINE)}, {args(PatchWord.OUT_X)}")
        first, stop = (b.op(f"add i64 {start}, {row}") for row in ("%r0", "%r1"))
        _emit_stretches(b, args, pixels, (first, stop), image, None)
        b("ret void")


def _emit_taps_finished(b: Builder) -> None:
    """``finished``: tells the epilogue of rows of the filter, tap by tap."""
    with b.function(
        f"define internal void @finished(ptr %args, ptr %given, {_BLOCK}) " + COLD
    ):
        args = Args(b)
        across = args(PatchWord.TAPS_X)
        _emit_stretches(b, args, args(PatchWord.CHANNELS), ("%r0", "%r1"), "0", across)
        b("ret void")


def _emit_stretches(
    b: Builder,
    args: Args,
    length: str,
    rows: tuple[str, str],
    first: str,
    across: str | None,
) -> None:
    """Calls the epilogue for each stretch of rows of some `length`: of images from the
    `first` one on, or of taps, of which there are so many `across`."""
    features = args(ProductWord.N)
    before = b.op(f"mul i64 {_own(b, PatchWord.GROUP)}, {features}")
    c0, c1 = (b.op(f"add i64 {before}, {n}") for n in ("%n0", "%n1"))
    last = b.op(f"udiv i64 {b.op(f'sub i64 {rows[1]}, 1')}, {length}")
    begin = b.op(f"udiv i64 {rows[0]}, {length}")
    with b.loop(begin, b.op(f"add i64 {last}, 1")) as number:
        start = b.op(f"mul i64 {number}, {length}")
        r0 = maximum(b, b.op(f"sub i64 {rows[0]}, {start}"), "0")
        r1 = minimum(b, b.op(f"sub i64 {rows[1]}, {start}"), length)
        if across is None:
            at = b.op(f"add i64 {number}, {first}"), "0"
        else:
            at = (
                b.op(f"udiv i64 {number}, {across}"),
                b.op(f"urem i64 {number}, {across}"),
            )
        call_epilogue(b, args, "true", (*at, r0, r1, c0, c1))
