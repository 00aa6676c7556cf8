"""How a CPU runs a convolution of several images at once (see `together`): how many,
and whether that is worth the copying.

Words: as of other convolutions (`schedule`); a producer of the input, or an epilogue,
sees what it sees there.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import groupby

from treadle.backends.cpu.conv.arguments import ConvWord
from treadle.backends.cpu.gemm.arguments import Kind, Tile, Word
from treadle.backends.cpu.gemm.schedule import round_up
from treadle.kernels.convolve import FLAT, Axis, ConvSpec

_MOST = 16  # images at once
_LOW_ROWS = 5  # of a tile that takes less time for a row than lower ones
_GAIN = 0.95  # of the time without, at most
_RESULT_BYTES = 1 << 15  # of a row of results, to stay in the L1 cache
_COLLIDING_BYTES = 1 << 10  # pixels so far apart fall into few sets of the L1 cache
_SHORT_SUM = 256  # shorter ones don't pay for the copying of what they add up


def images_together(spec: ConvSpec, tile: Tile) -> int:
    """How many images; 0 if one after the other, with zeros around each, is faster."""
    x, y = spec.x, spec.y
    if not (
        spec.z == FLAT
        and x.in_dilation == y.in_dilation == 1
        and spec.k >= _SHORT_SUM
        and (x.stride == 1 or (spec.input.column == 1 and not spec.fused_input))
        and _runs(y)
        and (runs := _runs(x))
    ):
        return 0
    alone = spec.images * x.taps * _tiles(x.out, tile)
    best, least = 0, _GAIN * alone
    most = _RESULT_BYTES // (x.out * tile.columns * spec.dtype.itemsize)
    seen = 0
    for wanted in range(1, min(_MOST, spec.images) + 1):
        groups = -(-spec.images // wanted)
        count = -(-spec.images // groups)
        if count > most:
            break
        if count > seen:
            seen = count
            cycles = groups * sum([t * _tiles(n * count, tile) for t, n in runs])
            if cycles < least:
                best, least = count, cycles
    return best


def _tiles(rows: int, tile: Tile) -> float:
    """The time that so many rows take, in that of one row of a high tile."""
    low, more = divmod(rows, -(-rows // tile.rows))
    tiles = -(-rows // tile.rows)
    return more * max(low + 1, _LOW_ROWS) + (tiles - more) * max(low, _LOW_ROWS)


def _taps_met(axis: Axis) -> Iterator[tuple[int, int]]:
    """The taps that each of the outputs meets: the first, and the one after the last
    (or no more than the first)."""
    for out in range(axis.out):
        start = out * axis.stride - axis.padding
        first = max(0, -(start // axis.dilation))
        last = (axis.size - 1 - start) // axis.dilation
        yield first, min(axis.taps, last + 1)


@lru_cache(maxsize=1024)
def _runs(axis: Axis) -> Sequence[tuple[int, int]]:
    """How many taps are met by how many outputs that follow each other and meet the
    same; none if some output meets no tap."""
    runs = [
        (stop - first, len(list(same)))
        for (first, stop), same in groupby(_taps_met(axis))
    ]
    return runs if all(taps > 0 for taps, _ in runs) else ()


def lay_out(spec: ConvSpec, tile: Tile, words: list[int], together: int) -> None:
    """Changes words of a convolution's geometry to those of so many images at once."""
    x, itemsize = spec.x, spec.dtype.itemsize
    pixel = round_up(spec.channels, tile.lanes)
    if pixel * itemsize % _COLLIDING_BYTES == 0:
        pixel += tile.lanes
    phase = -(-x.size // x.stride)
    words[Word.KIND] = Kind.TOGETHER
    words[ConvWord.TOGETHER], words[ConvWord.PHASE] = together, phase
    words[ConvWord.PIXEL] = pixel
    words[ConvWord.LINE] = x.stride * phase * together * pixel
