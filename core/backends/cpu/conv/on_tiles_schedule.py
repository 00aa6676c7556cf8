"""How a CPU with tile registers runs a convolution of bfloat16: as a product of patches
(`treadle.backends.cpu.conv.on_tiles`)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from treadle.backends.cpu.bfloat import kernel
from treadle.backends.cpu.bfloat.schedule import (
    CHOSEN,
    blocks,
    launches,
    present,
    steps_of,
)
from treadle.backends.cpu.bfloat.tile_block import TileUnit
from treadle.backends.cpu.bfloat.unit import SIDE, Speed
from treadle.backends.cpu.conv.arguments import PATCH_WORDS, PatchWord
from treadle.backends.cpu.conv.patches import MOST
from treadle.backends.cpu.conv.schedule import from_parts, launched, parts
from treadle.backends.cpu.gemm.arguments import (
    Kind,
    ProductWord,
    Scheduled,
    Word,
)
from treadle.backends.cpu.gemm.schedule import round_up
from treadle.dims import settled
from treadle.dtypes import bfloat16
from treadle.kernels.convolve import ConvSpec

_LANES = 16
_SEGMENT, _LINE, _TURN = 3, 2.5, 19
"""Cycles that a pixel takes for a segment of its patch, and for a line of 32 elements,
as it is or turned."""
_MULTIPLY = 2
"""And for the product of a line and 32 features."""
_PAIRS = {False: 8, True: 20}
"""Products that vectors of pairs make in a cycle, as measured on a CPU with tiles: of a
convolution, and of its gradient by the filter."""


def takes(spec: ConvSpec, gradient: bool) -> bool:
    """Whether a convolution, or its gradient by the filter, is done so. Another kernel
    has the others, so for open sizes it is a question like one of a user."""
    if spec.half != bfloat16 or spec.depthwise or spec.fused_input:
        return False
    if not isinstance(kernel.unit(), TileUnit):
        return False
    return bool(settled(_takes, (gradient, *parts(spec))))


def _takes(gradient: bool, *numbers: Any) -> int:
    spec = from_parts(numbers)
    return int(_is_possible(spec, gradient) and _is_faster(spec, gradient))


def _is_possible(spec: ConvSpec, gradient: bool) -> bool:
    out, given = spec.output, spec.filter
    if spec.x.in_dilation != 1 or spec.y.in_dilation != 1:
        return False
    if spec.channels // spec.groups > MOST:
        return False
    if not gradient:
        return True
    # Rows of the result have one step, and so have those of what comes back.
    channels = spec.channels // spec.groups
    follows = given.b1 == channels * given.row and given.b0 == spec.x.taps * given.b1
    pixels = spec.y.out * spec.x.out
    return follows and (spec.images == 1 or out.b0 == pixels * out.row)


def schedule(
    spec: ConvSpec, gradient: bool, speed: Speed, threads: int
) -> list[Scheduled]:
    """The launches of a convolution, or of its gradient by the filter."""
    return present(launched(_planned, (gradient, speed, threads), spec))


def _planned(
    gradient: bool, speed: Speed, threads: int, spec: ConvSpec
) -> list[Scheduled]:
    channels, features = spec.channels // spec.groups, spec.features // spec.groups
    pixels = spec.y.out * spec.x.out
    run = _run(spec, gradient)
    segments = spec.k // run
    if gradient:
        lines, m, n, k = 1, spec.k, features, spec.images * pixels
    else:
        lines, m = _lines(spec)
        n, k = features, segments * round_up(run, SIDE)
        speed = replace(speed, k_block=0)
    speed = replace(speed, turned_rows=0, few_rows=0)
    batches = lines * spec.groups
    chosen = blocks(speed, threads, spec.groups == 1, batches, m, n, k, 0, 0, 0)
    words = [0] * PATCH_WORDS
    for word, value in zip(CHOSEN, chosen, strict=False):
        words[word] = value
    words[Word.A + 1 : Word.A + 5] = steps_of(spec.input)
    words[Word.B + 1 : Word.B + 5] = steps_of(spec.filter)
    words[Word.C + 1 : Word.C + 5] = steps_of(spec.output)
    if gradient:
        words[Word.B + 1 : Word.B + 5] = 0, 0, spec.output.row, 1
        words[Word.C + 1 : Word.C + 5] = 0, 0, spec.filter.row, 1
    words[ProductWord.BATCH1] = 1
    words[ProductWord.BATCHES] = batches
    words[ProductWord.ROWS] = m
    words[ProductWord.N] = n
    words[ProductWord.K] = k
    for name, axis in (("Z", spec.z), ("Y", spec.y), ("X", spec.x)):
        words[PatchWord[f"IN_{name}"]] = axis.size
        words[PatchWord[f"OUT_{name}"]] = axis.out
        words[PatchWord[f"STRIDE_{name}"]] = axis.stride
        words[PatchWord[f"PAD_{name}"]] = axis.padding
        words[PatchWord[f"DILATION_{name}"]] = axis.dilation
    words[PatchWord.TAPS_Y], words[PatchWord.TAPS_X] = spec.y.taps, spec.x.taps
    words[PatchWord.CHANNELS], words[PatchWord.GROUPS] = channels, spec.groups
    words[PatchWord.RUN], words[PatchWord.SEGMENTS] = run, segments
    words[PatchWord.ACROSS] = channels * spec.x.taps // run
    words[PatchWord.LINES] = spec.y.out if m == spec.x.out and not gradient else 1
    words[Word.KIND] = Kind.FILTER_GRADIENT if gradient else Kind.CONVOLUTION
    return launches(words, chosen[-1])


def _lines(spec: ConvSpec) -> tuple[int, int]:
    """How many lines of pixels there are of which each lies a step behind the one
    before, and how many pixels in each."""
    out, pixels = spec.output, spec.y.out * spec.x.out
    if spec.y.out > 1 and out.b1 != spec.x.out * out.row:
        return spec.images * spec.y.out, spec.x.out
    if spec.images > 1 and out.b0 != pixels * out.row:
        return spec.images, pixels
    return 1, spec.images * pixels


def _run(spec: ConvSpec, gradient: bool) -> int:
    """Elements of a segment: the channels of a tap, or of a row of taps, if they lie
    side by side, and would fill a block's k badly."""
    channels = spec.channels // spec.groups
    together = spec.groups == 1 and spec.x.dilation == 1 and channels % SIDE != 0
    together = together and spec.input.row == channels
    if not gradient:
        together = together and spec.filter.b1 == channels * spec.filter.row
    return channels * spec.x.taps if together else channels


def _is_faster(spec: ConvSpec, gradient: bool) -> bool:
    """Whether blocks, which few channels or features fill badly, take fewer cycles than
    vectors of pairs, for each pixel."""
    channels, features = spec.channels // spec.groups, spec.features // spec.groups
    panels, taps = -(-features // SIDE), spec.k // channels
    if gradient:
        cycles = float(-(-spec.k // SIDE) * (_TURN + _MULTIPLY * panels))
    else:
        run = _run(spec, gradient)
        lines = -(-run // SIDE) * (_LINE + _MULTIPLY * panels)
        cycles = spec.k // run * (_SEGMENT + lines)
    width = 1 if features == 1 else round_up(features, _LANES)
    return cycles < taps * channels * width / _PAIRS[gradient]
