"""How a CPU runs the derivative of a convolution by its filter.

The sum runs over pixels, so each padded image is transposed to *planes*: one per
channel, in which the pixels that a tap visits in a row are contiguous (strided
convolutions keep every phase of x apart). A row of output pixels is then a segment of
the micro-kernel; their number depends on sizes, so a task makes their table itself.
But mostly images are read as they are padded: what a row of taps meets at a pixel is
side by side there, and makes the rows of a tile.

Images are divided among a number of partial sums that depends on the shape alone, and a
second launch adds those up: no bit depends on the number of threads. Words: A is the
input, B the derivative by the output (strides b, (unused), pixel, 1; a producer sees
images, 0, pixels and features), C the result (dy, dx, c, 1). The epilogue, given to the
second launch, sees dy, dx, channels and features.
"""

from __future__ import annotations

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
_FEW_CHANNELS = 16
_LINE_BYTES = 32  # at least, of 64
_PIXELS = 512  # that the micro-kernel should sum over, before it adds to memory
_PLANES_BYTES = 1 << 21  # what these many need may be no more than


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
    planes = words[FilterWord.PLANE] * itemsize
    if not _reads_rows(spec, words, tile):
        planes *= round_up(spec.channels, tile.lanes)
    planes = round_up(planes, 64)
    panel = at_once * slab_rows * spec.x.out + tile.lanes
    panel *= tile.columns * itemsize
    panel = round_up(panel, 64)
    segments = padded + planes + panel
    scratch = segments + round_up(16 * at_once * slab_rows, 64)
    start = round_up(partials * rows * spec.features * itemsize, 64)
    words[Word.TASKS] = tasks
    words[Word.KIND] = Kind.FILTER_GRADIENT
    words[Word.OWN_STRIDE] = scratch
    words[Word.PACK_B] = BUILT_IN
    # Here the output's derivative is an operand and the filter the result.
    b, c = slice(Word.B, Word.B + 5), slice(Word.C, Word.C + 5)
    words[b], words[c] = words[c], words[b]
    words[ConvWord.SLAB_ROWS], words[ConvWord.SLABS] = slab_rows, slabs
    words[ConvWord.GRID_UNITS], words[ConvWord.GRID_PANELS] = grid_units, grid_panels
    words[FilterWord.PARTIALS] = partials
    words[FilterWord.FEATURES] = spec.features
    words[FilterWord.PLANES_OFFSET] = padded
    words[FilterWord.PANEL_OFFSET] = padded + planes
    words[FilterWord.SEGMENTS_OFFSET] = segments
    words += steps
    first = Scheduled(tuple(map(int, words)), tasks, start)
    return [first, adding(words, spec, threads, start)]


def adding(words: list[int], spec: ConvSpec, threads: int, scratch: int) -> Scheduled:
    """The second launch, whose words are those of the first but for a few."""
    elements = spec.k * spec.features * words[FilterWord.PARTIALS]
    tasks = max(1, min(threads, elements // _SUM_ELEMENTS))
    words = list(words)
    words[Word.TASKS], words[Word.KIND] = tasks, Kind.SUM_PARTIALS
    words[Word.OWN_STRIDE] = 0
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
    rows are what a row of taps meets; or, of planes, channels, or, if those are few,
    the taps of one filter row.
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
    rows_of_taps = _reads_rows(spec, words, tile)

    def a_offset(dy: int, dx: int, c: int) -> int:
        quotient, remainder = divmod(dx * x.dilation, x.stride)
        return c * plane + dy * y.dilation * line + remainder * phase + quotient

    def c_offset(dy: int, dx: int, c: int) -> int:
        return ((dy * x.taps + dx) * channels + c) * spec.features

    if rows_of_taps:
        line = words[ConvWord.LINE]
        image = y.visited(slab_rows) * line
        # Rows are copied by whole vectors.
        plane = at_once * image + tile.lanes * (x.in_dilation * channels + 1)
        count, a_step, c_step = x.taps * channels, 1, spec.features
        starts = [(dy, 0, 0) for dy in range(y.taps)]
    elif by_taps:
        count, a_step, c_step = x.taps, x.dilation, channels * spec.features
        starts = [(dy, 0, c) for dy in range(y.taps) for c in range(channels)]
    else:
        count, a_step, c_step = channels, plane, spec.features
        starts = [(dy, dx, 0) for dy in range(y.taps) for dx in range(x.taps)]
    table = [f(*start) for start in starts for f in (a_offset, c_offset)]
    tiles = -(-count // tile.rows)
    words[ConvWord.TILES] = tiles
    words[ConvWord.TILE_LOW], words[ConvWord.TILE_EXTRA] = divmod(count, tiles)
    is_plane = words[ConvWord.PIXEL] == 1 and x.stride == 1
    words[FilterWord.PLANAR] = int(rows_of_taps or is_plane)
    words[FilterWord.ALONG] = x.stride * channels if rows_of_taps else 1
    words[FilterWord.NEXT_ROW] = y.stride * line
    words[FilterWord.AT_ONCE], words[FilterWord.IMAGE] = at_once, image
    words[FilterWord.PLANE] = plane
    words[FilterWord.PHASE] = phase
    words[FilterWord.A_STEP], words[FilterWord.C_STEP] = a_step, c_step
    words[FilterWord.STEPS] = len(starts)
    return table


def _reads_rows(spec: ConvSpec, words: list[int], tile: Tile) -> bool:
    """Whether padded images are not transposed: what a tile reads of a pixel then
    should be most of what the cache gets for it, or that little."""
    low = tile.rows * spec.dtype.itemsize < _LINE_BYTES
    return (
        spec.groups == 1
        and not (low and spec.channels > _FEW_CHANNELS)
        and words[ConvWord.PIXEL] == spec.channels
        and (spec.x.dilation == 1 or spec.x.taps == 1)
    )
