"""How a CPU runs a depthwise convolution, and its gradient by the filter: the blocks of
outputs that share a table of pixels, and tasks (see `depthwise`).

Words: as of other convolutions (`schedule`, `filter_schedule`), with channels that lie
side by side in all three. The epilogue sees images, 0, pixels and channels.
"""

from __future__ import annotations

from typing import Any

from treadle.backends.cpu.conv.arguments import ConvWord, DepthwiseWord
from treadle.backends.cpu.conv.schedule import common_words, launched
from treadle.backends.cpu.gemm.arguments import Kind, Scheduled, Tile, Word
from treadle.backends.cpu.gemm.schedule import round_up, task_count
from treadle.kernels.convolve import ConvSpec

_OUTPUTS = 64  # of a block: its table, and a few channels of it, stay in the L1 cache
_MORE_OUTPUTS = 256  # where channels are not taken a few at a time, and tasks suffice
_UNITS = 4  # blocks that each thread should have
_MAX_PARTIALS = 16
_PARTIAL_BYTES = 1 << 21  # of all partial sums together
_PARTIAL_OUTPUTS = 256  # that each of them is worth
_FILTER_BYTES = 192 << 10  # of groups; of more, one vector of features at a time
_FEW = 4  # outputs of a line, for which all factors of the line are loaded once
_PAGE = 4096
_NEAR_BYTES = 1 << 21  # that blocks meet which share a copy
_ALL = 1 << 62
_SUM_ELEMENTS = 1 << 16  # per task of the launch that adds them up


def schedule(
    spec: ConvSpec, tile: Tile, threads: int, gradient: bool
) -> list[Scheduled]:
    """One launch; two for the gradient by the filter, on the same scratch."""
    return launched(_gradient if gradient else _forward, (tile, threads), spec)


def _forward(tile: Tile, threads: int, spec: ConvSpec) -> list[Scheduled]:
    outputs = spec.images * spec.y.out * spec.x.out // (_UNITS * threads)
    outputs = min(_MORE_OUTPUTS, max(_OUTPUTS, outputs))
    apart = _apart(spec)
    words = _words(spec, tile, _OUTPUTS if apart else outputs, apart)
    if not apart:
        words[DepthwiseWord.APART] = words[Word.B + 3]
        words[DepthwiseWord.FACTOR_Y] = words[Word.B + 1]
        words[DepthwiseWord.FACTOR_X] = words[Word.B + 2]
    tasks = min(_units(words), _tasks(spec, words, tile, threads))
    words[Word.TASKS], words[Word.KIND] = tasks, Kind.DEPTHWISE
    return [Scheduled(tuple(map(int, words)), tasks)]


def _gradient(tile: Tile, threads: int, spec: ConvSpec) -> list[Scheduled]:
    words = _words(spec, tile, _OUTPUTS, _apart(spec))
    b, c = slice(Word.B, Word.B + 5), slice(Word.C, Word.C + 5)
    words[b], words[c] = words[c], words[b]
    nbytes = spec.k * spec.channels * spec.sums.itemsize
    outputs = spec.images * spec.y.out * spec.x.out
    most = min(
        _MAX_PARTIALS,
        _units(words),
        -(-outputs // (_PARTIAL_OUTPUTS // (1 if spec.depthwise else 2))),
        max(1, _PARTIAL_BYTES // nbytes),
    )
    # A power of two, so that it divides well among threads.
    partials = 1 << (most.bit_length() - 1)
    start = round_up(partials * nbytes, 64)
    words[DepthwiseWord.PARTIALS] = partials
    words[DepthwiseWord.FEATURES] = spec.features
    tasks = min(partials, _tasks(spec, words, tile, threads))
    words[Word.TASKS], words[Word.KIND] = tasks, Kind.DEPTHWISE_FILTER
    first = Scheduled(tuple(map(int, words)), tasks, start)
    sums = spec.k * spec.features * partials // _SUM_ELEMENTS
    sums = max(1, min(threads, sums))
    words[Word.TASKS], words[Word.KIND] = sums, Kind.SUM_PARTIALS
    words[Word.OWN_STRIDE] = 0
    return [first, Scheduled(tuple(map(int, words)), sums, start)]


def _words(spec: ConvSpec, tile: Tile, outputs: int, apart: bool) -> list[int]:
    """What both have in common, with blocks of so many outputs."""
    y, x = spec.y, spec.x
    words = common_words(spec, tile, in_place=False)
    words += [0] * (DepthwiseWord.COUNT - len(words))
    # The outputs of a block follow each other: they are rows, or part of one.
    blocks_x = -(-x.out // outputs)
    block_x = -(-x.out // blocks_x)
    block_y = max(1, min(y.out, outputs // block_x)) if blocks_x == 1 else 1
    block_y = -(-y.out // -(-y.out // block_y))
    line = (block_x - 1) * x.stride + (x.taps - 1) * x.dilation + 1
    lines = (block_y - 1) * y.stride + (y.taps - 1) * y.dilation + 1
    zeros = round_up(spec.channels * spec.sums.itemsize, 64)
    outputs = zeros + 16 * spec.k
    met = outputs + 16 * block_y * block_x
    table = met + 16 * spec.k
    columns = round_up(table + 8 * lines * line, 64)
    each = spec.channels // spec.groups
    width = tile.lanes if apart else spec.channels
    vector = width * spec.sums.itemsize if apart else 0
    near = round_up(columns + spec.k * vector, 64)
    met_bytes = lines * line * spec.channels * spec.sums.itemsize
    values: dict[Any, int] = {
        Word.OWN_STRIDE: round_up(
            near + (lines * line + block_y * block_x) * vector, 64
        ),
        DepthwiseWord.COLUMNS: max(1, width),
        DepthwiseWord.COLUMNS_OFFSET: columns if apart else 0,
        DepthwiseWord.NEAR_OFFSET: near,
        DepthwiseWord.BLOCKS: max(1, _NEAR_BYTES // met_bytes) if apart else _ALL,
        DepthwiseWord.APART: width,
        DepthwiseWord.FACTOR_Y: x.taps * each * width,
        DepthwiseWord.FACTOR_X: each * width,
        DepthwiseWord.BLOCK_Y: block_y,
        DepthwiseWord.BLOCK_X: block_x,
        DepthwiseWord.BLOCKS_Y: -(-y.out // block_y),
        DepthwiseWord.BLOCKS_X: -(-x.out // block_x),
        DepthwiseWord.LINE: line,
        DepthwiseWord.TAPS_OFFSET: zeros,
        DepthwiseWord.OUTPUTS_OFFSET: outputs,
        DepthwiseWord.TABLE_OFFSET: table,
        DepthwiseWord.MET_OFFSET: met,
        DepthwiseWord.ASKED_Y: min(y.stride, y.taps),
        DepthwiseWord.ASKED_X: min(x.stride, x.taps),
    }
    for word, value in values.items():
        words[word] = value
    return words


def _apart(spec: ConvSpec) -> bool:
    """Whether a vector of features is copied (see `depthwise_columns`): no bits of
    results depend on it. Depthwise ones read a row of channels for each tap."""
    row, few = spec.features * spec.sums.itemsize, spec.x.out <= _FEW
    large = spec.k * row > _FILTER_BYTES and (few or row >= _PAGE)
    return large and not spec.depthwise


def _units(words: list[int]) -> int:
    blocks = words[DepthwiseWord.BLOCKS_Y] * words[DepthwiseWord.BLOCKS_X]
    return words[ConvWord.IMAGES] * blocks


def _tasks(spec: ConvSpec, words: list[int], tile: Tile, threads: int) -> int:
    vectors = -(-spec.channels // tile.lanes)
    outputs = spec.images * spec.y.out * spec.x.out
    return task_count(outputs * vectors * (spec.k + 3), threads)
