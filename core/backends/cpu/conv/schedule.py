"""How a CPU runs a convolution: the parts of images and filter that its caches hold.

The product runs over k = (dy, dx, c) without gathering: an image is copied into a
zero-padded scratch (or read in place, if nothing needs padding), in which k is a few
contiguous *segments* at fixed offsets from a pixel, and pixels of a row are at a fixed
step. Words: A is the input (strides b, y, x, c), B the filter (dy, dx, c, f), C the
output (b, unused, pixel, 1), where pixel counts y*width + x. Blocks that hooks see:

- epilogue: b0 is the image, b1 is 0, rows are pixels, columns are features;
- a producer of the input: b0 is the image, b1 is y, rows are x, columns are channels;
- a producer of the filter: b0 is dy, b1 is dx, rows are c, columns are features.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import fields, replace
from functools import lru_cache
from itertools import chain, islice
from typing import Any

from treadle.backends.cpu.conv.arguments import ConvWord
from treadle.backends.cpu.conv.together_schedule import images_together, lay_out
from treadle.backends.cpu.gemm.arguments import (
    BUILT_IN,
    Kind,
    Scheduled,
    Tile,
    Word,
)
from treadle.backends.cpu.gemm.schedule import (
    PIECE_BYTES,
    SET_BYTES,
    WAYS,
    round_up,
    task_count,
)
from treadle.backends.cpu.gemm.schedule import schedule as product_schedule
from treadle.dims import hint, is_dim, is_one, never_positive, one, settled
from treadle.ir.filled import sizes_in
from treadle.kernels.contract import Contraction, Strides
from treadle.kernels.convolve import FLAT, Axis, ConvSpec
from treadle.late import numbers

_FILTER_BYTES = 1 << 20  # of packed filter, to stay in the L2 cache
_SLAB_BYTES = 1 << 18  # of padded image
_EPILOGUE_WORK = 4096  # pixels * k between two calls of the epilogue


def schedule(spec: ConvSpec, tile: Tile, threads: int) -> Scheduled:
    """Chooses blocks and tasks, and writes the kernel's arguments."""
    (launch,) = launched(planned, (tile, threads, is_in_place(spec)), spec)
    return launch


def launched(
    plan: Callable[..., list[Scheduled]], how: tuple, spec: ConvSpec
) -> list[Scheduled]:
    """The launches ``plan(*how, spec)`` of a convolution, for all sizes: as many, of as
    many words, of which each is a number of its own.

    plan: a function of a module (see `treadle.late`).
    """
    if not any(map(is_dim, parts(spec))):
        return of_fixed(plan, how, spec)
    args = plan, how, *parts(spec)
    # Their table of steps has a row for each channel, if these are few.
    # So has one group, of whole pixels, fewer segments than several.
    counted = [spec.channels, spec.groups, spec.y.taps, spec.x.taps]
    if not sizes_in(spec.y.taps) and spec.y.taps == 1:  # a product has no segments
        counted += [spec.features, spec.input.row, spec.y.out]
        counted += [spec.y.padding, spec.x.padding]
    if sizes_in(tuple(counted)):
        is_one(spec.groups)
        settled(_word_count, args)
    rest = iter(numbers(_words, args))
    return [
        Scheduled(
            tasks=next(rest),
            scratch_bytes=next(rest),
            words=tuple(islice(rest, len(launch.words))),
        )
        for launch in plan(*how, from_parts(list(map(hint, parts(spec)))))
    ]


@lru_cache(maxsize=1024)
def of_fixed(
    plan: Callable[..., list[Scheduled]], how: tuple, spec: ConvSpec
) -> list[Scheduled]:
    """The launches of one of fixed sizes."""
    return plan(*how, spec)


_GROUPED = {"z": Axis, "y": Axis, "x": Axis} | dict.fromkeys(
    ("input", "filter", "output"), Strides
)

_FIELDS = [
    (f.name, _GROUPED.get(f.name), [g.name for g in fields(_GROUPED.get(f.name, Axis))])
    for f in fields(ConvSpec)
]


def parts(spec: ConvSpec) -> list[Any]:
    """What a convolution is made of: of parts with open sizes, one number behind the
    other."""
    out: list[Any] = []
    for name, kind, names in _FIELDS:
        value = getattr(spec, name)
        numbers = [getattr(value, n) for n in names] if kind else []
        out += numbers if any(map(is_dim, numbers)) else [value]
    return out


def from_parts(parts: Sequence[Any]) -> ConvSpec:
    made: list[Any] = []
    at = 0
    for _, kind, names in _FIELDS:
        if kind is None or type(parts[at]) is kind:
            made.append(parts[at])
            at += 1
        else:
            made.append(kind(*parts[at : at + len(names)]))
            at += len(names)
    return ConvSpec(*made)


def _words(
    plan: Callable[..., Sequence[Scheduled]], how: tuple, *parts: Any
) -> list[int]:
    return [
        n
        for launch in plan(*how, from_parts(parts))
        for n in (launch.tasks, launch.scratch_bytes, *launch.words)
    ]


def _word_count(
    plan: Callable[..., Sequence[Scheduled]], how: tuple, *parts: Any
) -> int:
    spec = from_parts(parts)
    if 0 in (spec.images, spec.y.out, spec.x.out):
        return 0  # nothing runs: another program
    return len(_words(plan, how, *parts))


def planned(
    tile: Tile, threads: int, in_place: bool, spec: ConvSpec
) -> list[Scheduled]:
    """The launches of one of fixed sizes."""
    if in_place and _is_product(spec, tile):
        return [product_schedule(_of_lines(spec), tile, threads, few=False)]
    together = images_together(spec, tile)
    if in_place:
        spec = _visited(spec)
    in_place = in_place and not together and not _collides(spec, spec.input.row, tile)
    return [of_images(spec, tile, threads, in_place, together)]


def _visited(spec: ConvSpec) -> ConvSpec:
    """The same of an input without the pixels between strides, if each tap is alone:
    if it must be copied, these need not be. Nothing else may read it."""
    y, x, given = spec.y, spec.x, spec.input
    if y.taps == 1 and y.padding == 0:
        given = replace(given, b1=given.b1 * y.stride)
        y = replace(y, stride=1, size=y.out)
    if x.taps == 1 and x.padding == 0:
        given = replace(given, row=given.row * x.stride)
        x = replace(x, stride=1, size=x.out)
    return replace(spec, y=y, x=x, input=given)


def _collides(spec: ConvSpec, pixel: int, tile: Tile) -> bool:
    """Whether the rows of a tile, of pixels so many elements apart, fall into so few
    sets of the L1 cache that it doesn't hold them."""
    step = spec.x.stride * pixel * spec.dtype.itemsize
    return step % SET_BYTES == 0 and tile.rows > WAYS


def of_images(
    spec: ConvSpec, tile: Tile, threads: int, in_place: bool, together: int = 0
) -> Scheduled:
    """The launch of one of fixed sizes that is no product.

    together: how many images have their pixels side by side; 0: each is padded.
    """
    itemsize = spec.dtype.itemsize
    apart = tile.lanes * (not together and _collides(spec, spec.channels, tile))
    words = common_words(spec, tile, in_place, apart)
    words[Word.KIND] = Kind.CONVOLUTION
    segments = _segments(spec, words)  # as many words either way
    if together:
        lay_out(spec, tile, words, together)
    images = -(-spec.images // words[ConvWord.TOGETHER])
    panels, k = words[ConvWord.PANELS], spec.k
    work = spec.images * spec.y.out * spec.x.out * k * panels * tile.vectors // 2
    tasks = task_count(work, threads)
    slabs = slab_count(spec, words, -(-tasks // images))
    slab_rows = -(-spec.y.out // slabs)
    slabs = -(-spec.y.out // slab_rows)
    units = images * slabs
    grid_units = min(units, tasks)
    grid_panels = min(panels, max(1, tasks // grid_units))
    panel_bytes = k * tile.columns * itemsize
    group_panels = -(-panels // grid_panels)
    chunk = min(group_panels, max(1, _FILTER_BYTES // panel_bytes))
    image = 0 if in_place else padded_bytes(spec, words, slab_rows, tile)
    slack = tile.lanes * tile.columns * itemsize
    scratch = image + round_up(chunk * panel_bytes + slack, 64)
    if together:
        words[ConvWord.PLACES_OFFSET] = scratch
        scratch += round_up(16 * spec.y.taps * spec.x.taps, 64)
        words[ConvWord.RESULT_OFFSET] = scratch
        scratch += round_up(together * spec.x.out * tile.columns * itemsize, 64)
    tasks = grid_units * grid_panels
    words[Word.TASKS] = tasks
    words[Word.OWN_STRIDE] = scratch
    words[ConvWord.SLAB_ROWS], words[ConvWord.SLABS] = slab_rows, slabs
    tiles = -(-spec.x.out // tile.rows)
    words[ConvWord.TILES] = tiles
    words[ConvWord.TILE_LOW], words[ConvWord.TILE_EXTRA] = divmod(spec.x.out, tiles)
    words[ConvWord.CHUNK_PANELS] = chunk
    words[ConvWord.EPILOGUE_ROWS] = max(1, _EPILOGUE_WORK // (k * spec.x.out))
    words[ConvWord.GRID_UNITS], words[ConvWord.GRID_PANELS] = grid_units, grid_panels
    words[ConvWord.FILTER_OFFSET] = image
    words += segments
    return Scheduled(tuple(map(int, words)), tasks)


def _is_product(spec: ConvSpec, tile: Tile) -> bool:
    """Whether what the taps meet is contiguous, in lines that need no zeros, and a
    product, whose rows overlap then, is faster: as it packs rows that fall into one set
    of the cache, or writes whole rows of features, for a filter of a few kilobytes."""
    y, x, weights = spec.y, spec.x, spec.filter
    itemsize = spec.dtype.itemsize
    step = x.stride * spec.input.row * itemsize
    return (
        spec.z == FLAT
        and spec.groups == y.out == y.taps == 1
        and y.padding == x.padding == 0
        and (x.taps == 1 or (x.dilation == 1 and spec.input.row == spec.channels))
        and (x.taps == 1 or weights.b1 == spec.channels * weights.row)
        and (
            (step % SET_BYTES == 0 and tile.rows > WAYS)
            or spec.k * spec.features * itemsize <= PIECE_BYTES
        )
    )


def _of_lines(spec: ConvSpec) -> Contraction:
    """The product, with an image as a batch element. Its epilogue sees the same."""
    lines = Strides(spec.input.b0, 0, spec.x.stride * spec.input.row, 1)
    weights = Strides(0, 0, spec.filter.row, spec.filter.column)
    result = Strides(spec.output.b0, 0, spec.output.row, 1)
    sizes = spec.x.out, spec.features, spec.k
    return Contraction(spec.dtype, *sizes, lines, weights, result, spec.images)


def common_words(
    spec: ConvSpec, tile: Tile, in_place: bool, apart: int = 0
) -> list[int]:
    """What follows from the geometry alone. apart: elements between the channels of
    pixels of a padded image."""
    y, x = spec.y, spec.x
    words = [0] * ConvWord.RUN
    words[Word.PACK_A] = words[Word.PACK_B] = BUILT_IN
    for slot, strides in (
        (Word.A, spec.input),
        (Word.B, spec.filter),
        (Word.C, spec.output),
    ):
        given = (strides.b0, strides.b1, strides.row, strides.column)
        words[slot + 1 : slot + 5] = given
    group_features = spec.features // spec.groups
    group_panels = -(-group_features // tile.columns)
    first, stop = _columns(x)
    # A producer may write a vector too much: then pixels keep that distance.
    exact = spec.input.column == 1 and not spec.fused_input
    if spec.channels == spec.input.row == x.in_dilation == 1:
        exact = not spec.fused_input  # one channel has any step
    pixel = spec.channels if exact else round_up(spec.channels, tile.lanes)
    pixel += apart
    row_run = (
        exact and not apart and spec.input.row == spec.channels and x.in_dilation == 1
    )
    line = x.padded * pixel
    target = first * x.in_dilation + x.padding if stop > first else 0
    end = (stop - 1) * x.in_dilation + x.padding + 1 if stop > first else 0
    row_start, row_end = target * pixel, end * pixel
    if in_place:
        pixel, line = spec.input.row, spec.input.b1
    values = {
        ConvWord.IMAGES: spec.images,
        ConvWord.OUT_Y: y.out,
        ConvWord.OUT_X: x.out,
        ConvWord.IN_Y: y.size,
        ConvWord.CHANNELS: spec.channels,
        ConvWord.GROUP_CHANNELS: spec.channels // spec.groups,
        ConvWord.GROUP_FEATURES: group_features,
        ConvWord.GROUP_PANELS: group_panels,
        ConvWord.PANELS: group_panels * spec.groups,
        ConvWord.TAPS_Y: y.taps,
        ConvWord.TAPS_X: x.taps,
        ConvWord.STRIDE_Y: y.stride,
        ConvWord.STRIDE_X: x.stride,
        ConvWord.DILATION_Y: y.dilation,
        ConvWord.DILATION_X: x.dilation,
        ConvWord.PAD_Y: y.padding,
        ConvWord.IN_DILATION_Y: y.in_dilation,
        ConvWord.IN_DILATION_X: x.in_dilation,
        ConvWord.X_FIRST: first,
        ConvWord.X_STOP: stop,
        ConvWord.ROW_START: row_start,
        ConvWord.ROW_END: row_end,
        ConvWord.ROW_RUN: int(row_run),
        ConvWord.PADDED_X: x.padded,
        ConvWord.PIXEL: pixel,
        ConvWord.LINE: line,
        ConvWord.IN_PLACE: int(in_place),
        ConvWord.PLACE_OFFSET: -y.padding * spec.input.b1 - x.padding * spec.input.row,
        ConvWord.K: spec.k,
        ConvWord.IN_X: x.size,
        ConvWord.PAD_X: x.padding,
        ConvWord.IN_Z: spec.z.size,
        ConvWord.OUT_Z: spec.z.out,
        ConvWord.TAPS_Z: spec.z.taps,
        ConvWord.STRIDE_Z: spec.z.stride,
        ConvWord.DILATION_Z: spec.z.dilation,
        ConvWord.PAD_Z: spec.z.padding,
        ConvWord.TOGETHER: 1,
    }
    for word, value in values.items():
        words[word] = value
    return words


def _columns(x: Axis) -> tuple[int, int]:
    """The input columns that fall into the padded image."""
    step = x.in_dilation
    first = max(0, -(x.padding // step))
    return first, max(first, min(x.size, (x.padded - 1 - x.padding) // step + 1))


def is_in_place(spec: ConvSpec) -> bool:
    """Whether no position that the filter visits needs a zero. The kernel has other
    arguments then, and it has the same bits: where only some sizes need none, a copy
    with zeros around it is right for all."""
    axes = spec.z, spec.y, spec.x
    if spec.fused_input or any(axis.in_dilation != 1 for axis in axes):
        return False
    if spec.input.column != 1 and not one(spec.channels):
        return False
    beyond = [(a.padding, a.padded - a.padding - a.size) for a in axes]
    return all(map(never_positive, chain(*beyond)))


def _segments(spec: ConvSpec, words: list[int]) -> list[int]:
    """Run length and number of the segments of k, and of each its byte offset and a 0:
    the filter has them one behind the other."""
    pixel, line = words[ConvWord.PIXEL], words[ConvWord.LINE]
    size = spec.dtype.itemsize
    channels = spec.channels // spec.groups
    ys = [dy * spec.y.dilation * line for dy in range(spec.y.taps)]
    if channels == pixel and spec.x.dilation == 1:
        return [spec.x.taps * channels, len(ys), *_pairs(size * y for y in ys)]
    xs = [dx * spec.x.dilation * pixel for dx in range(spec.x.taps)]
    offsets = [size * (y + x) for y in ys for x in xs]
    return [channels, len(offsets), *_pairs(offsets)]


def _pairs(offsets: Iterable[int]) -> list[int]:
    return [n for offset in offsets for n in (offset, 0)]


def slab_count(spec: ConvSpec, words: list[int], least: int) -> int:
    """Into how many parts an image is cut, to fit the cache and to feed the tasks,
    which need at least so many."""
    line = max(1, abs(words[ConvWord.LINE]) * spec.dtype.itemsize)
    reach = (spec.y.taps - 1) * spec.y.dilation + 1
    # Of fewer rows than reach into the next slab, most are copied several times.
    rows = max(4, _SLAB_BYTES // line - reach, reach) // spec.y.stride
    rows = max(4, rows)
    return min(max(least, -(-spec.y.out // rows)), spec.y.out)


def padded_bytes(spec: ConvSpec, words: list[int], slab_rows: int, tile: Tile) -> int:
    rows = spec.y.visited(slab_rows)
    apart = words[ConvWord.TOGETHER] * words[ConvWord.PIXEL]
    # Producers may write one vector of rows and one of columns too much.
    slack = tile.lanes * (apart * spec.x.in_dilation + 1)
    elements = rows * words[ConvWord.LINE] + slack
    return round_up(elements * spec.dtype.itemsize, 64)
