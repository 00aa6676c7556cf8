"""How a CPU runs the derivative of a convolution by its filter.

The sum runs over pixels, so each padded image is transposed to *planes*: one per
channel, in which the pixels that a tap visits in a row are contiguous (strided
convolutions keep every phase of x apart). A row of output pixels is then a segment of
the micro-kernel; their number depends on sizes, so a task makes their table itself.
If a tile would have few rows, of few channels, what each row of the result meets is
copied, one row of output pixels behind the other: then tiles have all their rows.

Images are divided among a number of partial sums that depends on the shape alone, and a
second launch adds those up: no bit depends on the number of threads. Words: A is the
input, B the derivative by the output (strides b, (unused), pixel, 1; a producer sees
images, 0, pixels and features), C the result (dy, dx, c, 1). The epilogue, given to the
second launch, sees dy, dx, channels and features.
"""

from __future__ import annotations

import itertools

from treadle.backends.cpu.conv.arguments import ConvWord, FilterWord
from treadle.backends.cpu.conv.schedule import (
    common_words,
    launched,
    padded_bytes,
    slab_count,
)
from treadle.backends.cpu.gemm.arguments import BUILT_IN, Kind, Scheduled, Tile, Word
from treadle.backends.cpu.gemm.schedule import round_up, task_count
from treadle.kernels.convolve import FLAT, ConvSpec

_PARTIAL_BYTES = 1 << 21  # of all partial sums together
_MAX_PARTIALS = 16
_SUM_ELEMENTS = 1 << 16  # per task of the second launch
_PIXELS = 512  # that the micro-kernel should sum over, before it adds to memory
_PLANES_BYTES = 1 << 21  # what these many need may be no more than
_MOST_COLUMNS = 256  # copies of planes: more would not fit the cache
_CHUNK = 128  # pixels, of which the gradients of all features are packed
_GAIN = 0.9  # of the time without them, at most. Times are those of a tile's row:
_COPY = 0.5  # ... that a pixel's copy takes
_PACKING = 2  # ... and that a panel more takes to be packed alone
_MANY_PANELS = 8  # with fewer, that reads neighbouring cache lines
_BUSY = 28  # by a tile's rows: so many hide the latency of sums


def schedule(spec: ConvSpec, tile: Tile, threads: int) -> list[Scheduled]:
    """Two launches, to be run one after the other on the same scratch.

    spec: the convolution, with the strides of the result as its filter's and those of
    the derivative by the output as its output's.
    """
    return launched(planned, (tile, threads), spec)


def planned(tile: Tile, threads: int, spec: ConvSpec) -> list[Scheduled]:
    """The launches of one of fixed sizes."""
    itemsize = spec.dtype.itemsize
    spec_y = spec.y
    words = common_words(spec, tile, in_place=False)
    slab_rows = _slab_rows(spec, words)
    slabs = -(-spec_y.out // slab_rows)
    rows = spec.k
    partials = partial_count(spec, rows * spec.features * itemsize)
    panels = words[ConvWord.PANELS]
    pixels = spec.images * spec_y.out * spec.x.out
    tasks = task_count(pixels * rows * panels * tile.vectors / 2, threads)
    grid_units = min(partials, tasks)
    grid_panels = min(panels, -(-tasks // grid_units))
    tasks = grid_units * grid_panels
    padded = padded_bytes(spec, words, slab_rows, tile)
    at_once = 1 if slabs > 1 or spec.z != FLAT else _at_once(spec, partials)
    steps = _planes(spec, words, (at_once, slab_rows), tile)
    planes = round_up(spec.channels, tile.lanes) * words[FilterWord.PLANE] * itemsize
    planes = round_up(planes, 64)
    panel = at_once * slab_rows * spec.x.out + tile.lanes
    if words[FilterWord.COLUMNS]:
        panel = -(-panels // grid_panels) * (_CHUNK + 8) + tile.lanes
    panel *= tile.columns * itemsize
    columns = words[FilterWord.COLUMNS] * words[FilterWord.A_STEP] * itemsize
    panel = round_up(panel, 64)
    segments = padded + planes + panel + round_up(columns, 64)
    scratch = segments + round_up(16 * at_once * slab_rows, 64)
    start = round_up(partials * rows * spec.features * itemsize, 64)
    words[Word.TASKS] = tasks
    words[Word.KIND] = Kind.FILTER_GRADIENT
    words[Word.SCRATCH_STRIDE] = scratch
    words[Word.PACK_B] = BUILT_IN
    # Here the output's derivative is an operand and the filter the result.
    b, c = slice(Word.B, Word.B + 5), slice(Word.C, Word.C + 5)
    words[b], words[c] = words[c], words[b]
    words[ConvWord.SLAB_ROWS], words[ConvWord.SLABS] = slab_rows, slabs
    words[ConvWord.GRID_UNITS], words[ConvWord.GRID_PANELS] = grid_units, grid_panels
    words[FilterWord.PARTIALS] = partials
    words[FilterWord.FEATURES] = spec.features
    words[FilterWord.TASK_OFFSET] = start
    words[FilterWord.PLANES_OFFSET] = padded
    words[FilterWord.PANEL_OFFSET] = padded + planes
    words[FilterWord.COLUMNS_OFFSET] = padded + planes + panel
    words[FilterWord.SEGMENTS_OFFSET] = segments
    words += steps
    total = start + scratch * tasks
    first = Scheduled(tuple(map(int, words)), tasks, total)
    return [first, adding(words, spec, threads, total)]


def adding(words: list[int], spec: ConvSpec, threads: int, scratch: int) -> Scheduled:
    """The second launch, whose words are those of the first but for a few."""
    elements = spec.k * spec.features * words[FilterWord.PARTIALS]
    tasks = max(1, min(threads, elements // _SUM_ELEMENTS))
    words = list(words)
    words[Word.TASKS], words[Word.KIND] = tasks, Kind.SUM_PARTIALS
    return Scheduled(tuple(map(int, words)), tasks, scratch)


def partial_count(spec: ConvSpec, filter_bytes: int) -> int:
    """A power of two, so that it divides well among threads."""
    most = min(_MAX_PARTIALS, spec.images, max(1, _PARTIAL_BYTES // filter_bytes))
    return 1 << (most.bit_length() - 1)


def _slab_rows(spec: ConvSpec, words: list[int]) -> int:
    """Output rows at once: that fit the cache, but enough pixels to sum over."""
    y = spec.y
    slabs = slab_count(spec, words, 1)
    line = words[ConvWord.LINE] * y.stride * spec.dtype.itemsize
    wanted = min(-(-_PIXELS // spec.x.out), _PLANES_BYTES // max(1, line))
    slabs = min(slabs, -(-y.out // max(1, wanted)))
    return -(-y.out // slabs)


def _at_once(spec: ConvSpec, partials: int) -> int:
    """How many images; their output gradients must follow each other like rows."""
    pixels = spec.y.out * spec.x.out
    if spec.output.b0 != pixels * spec.output.row:
        return 1
    image = spec.y.padded * spec.x.padded * spec.channels * spec.dtype.itemsize
    wanted = min(-(-_PIXELS // pixels), max(1, _PLANES_BYTES // image))
    return min(wanted, -(-spec.images // partials))


def _planes(
    spec: ConvSpec, words: list[int], sizes: tuple[int, int], tile: Tile
) -> list[int]:
    """Lays out planes and tiles; gives the offsets of the row groups.

    sizes: how many images lie in a plane, and how many output rows of each. A tile's
    rows are channels, or, if those are few, the taps of one filter row: all, or as many
    as there are phases.
    """
    at_once, slab_rows = sizes
    words += [0] * (FilterWord.TABLE - len(words))
    y, x, channels = spec.y, spec.x, spec.channels // spec.groups
    phase = -(-x.padded // x.stride)
    line = phase * x.stride
    # Distances that are multiples of a page would fall into the same L1 cache sets.
    image = y.visited(slab_rows) * line
    plane = round_up(at_once * image, tile.lanes) + tile.lanes
    by_taps = x.taps > channels and x.stride == 1
    by_phases = x.stride > channels and x.dilation == 1 and x.taps % x.stride == 0

    def a_offset(dy: int, dx: int, c: int) -> int:
        quotient, remainder = divmod(dx * x.dilation, x.stride)
        return c * plane + dy * y.dilation * line + remainder * phase + quotient

    def c_offset(dy: int, dx: int, c: int) -> int:
        return ((dy * x.taps + dx) * channels + c) * spec.features

    if by_taps:
        count, a_step, c_step = x.taps, x.dilation, channels * spec.features
        starts = [(dy, 0, c) for dy in range(y.taps) for c in range(channels)]
    elif by_phases:
        count, a_step, c_step = x.stride, phase, channels * spec.features
        firsts = range(0, x.taps, x.stride)
        starts = [
            (dy, dx, c)
            for dy in range(y.taps)
            for dx in firsts
            for c in range(channels)
        ]
    else:
        count, a_step, c_step = channels, plane, spec.features
        starts = [(dy, dx, 0) for dy in range(y.taps) for dx in range(x.taps)]
    rows = y.taps * x.taps * channels
    table = [f(*start) for start in starts for f in (a_offset, c_offset)]
    # As many words either way: there may be more features for other sizes.
    room = max(len(table), 2 + rows) if _may_have_columns(spec) else len(table)
    if _has_columns(spec, words[ConvWord.PANELS], tile, (len(starts), count)):
        count, c_step = rows, spec.features
        a_step = round_up(at_once * slab_rows * x.out, tile.lanes) + tile.lanes
        taps = itertools.product(range(y.taps), range(x.taps), range(channels))
        starts, table = starts[:1], [0, 0, *itertools.starmap(a_offset, taps)]
        words[FilterWord.COLUMNS], words[FilterWord.CHUNK] = rows, _CHUNK
    table += [0] * (room - len(table))
    tiles = -(-count // tile.rows)
    words[ConvWord.TILES] = tiles
    words[ConvWord.TILE_LOW], words[ConvWord.TILE_EXTRA] = divmod(count, tiles)
    words[FilterWord.PLANAR] = int(words[ConvWord.PIXEL] == 1 and x.stride == 1)
    words[FilterWord.AT_ONCE], words[FilterWord.IMAGE] = at_once, image
    words[FilterWord.PLANE] = plane
    words[FilterWord.PHASE] = phase
    words[FilterWord.A_STEP], words[FilterWord.C_STEP] = a_step, c_step
    words[FilterWord.STEPS] = len(starts)
    return table


def _may_have_columns(spec: ConvSpec) -> bool:
    rows = spec.y.taps * spec.x.taps * spec.channels
    return spec.groups == 1 and rows <= _MOST_COLUMNS


def _has_columns(spec: ConvSpec, panels: int, tile: Tile, low: tuple[int, int]) -> bool:
    """Whether copies of what each row of the result meets pay. low: how many groups of
    rows there are without, and the rows of one."""
    if not _may_have_columns(spec):
        return False
    groups, rows = low
    time = groups * max(rows, 2, _BUSY // tile.rows) * panels
    time += _PACKING * panels if panels >= _MANY_PANELS else 0
    copied = spec.y.taps * spec.x.taps * spec.channels
    return copied * (panels + _COPY) <= _GAIN * time
