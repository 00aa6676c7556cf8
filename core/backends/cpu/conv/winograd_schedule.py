"""How a CPU runs a convolution by Winograd's tiles: whether, and how many at once.

Words: as of other convolutions (`schedule`), of images that are as large as their
tiles; a producer of the input, or an epilogue, sees what it sees there.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache
from typing import Any

import numpy as np

from treadle.backends.cpu.conv import filter_schedule
from treadle.backends.cpu.conv.arguments import ConvWord, FilterWord, WinogradWord
from treadle.backends.cpu.conv.schedule import (
    common_words,
    from_parts,
    is_in_place,
    launched,
    padded_bytes,
    parts,
    planned,
)
from treadle.backends.cpu.conv.winograd import LINES, OUT, SQUARES, TAPS, Form
from treadle.backends.cpu.gemm.arguments import (
    BUILT_IN,
    Scheduled,
    Tile,
    Word,
)
from treadle.backends.cpu.gemm.schedule import round_up, task_count
from treadle.dims import settled
from treadle.kernels.convolve import Axis, ConvSpec

_INPUT_BYTES = 1 << 19  # of tiles of inputs, to stay in the L2 cache
_STREAM_BYTES = 5 << 19  # of all tiles: then the filter is transformed on the way
_BLOCK_BYTES = 1 << 20  # of tiles in each other's gaps, at most: the L2 cache
_GRADIENT_BLOCK_BYTES = 1 << 23  # which saves more there
_LEAST_AT_ONCE = 28
_FILTER_BYTES = 1 << 22  # of the filter's transformed panels
_COLLIDING_BYTES = 1 << 10  # what lies so far apart falls into few sets of the L1 cache
_SUMS_BYTES = 5 << 16  # of a block of the filter's gradient, to stay there
_ALL_SUMS_BYTES = 10 << 20  # of what stays from one unit to the next
_LEAST_TILES = 28  # to sum over before adding to memory
_PIECE = 48  # channels summed at once: more lose more, fewer take longer
_TILES = 32  # ... and tiles
_LINE_PIECE = 128  # of lines, which lose half as much
_LINE_TILES = 128
_LANES = 16
_SQUARE_CYCLES = 190  # to transform a vector of a tile
_FILTER_CYCLES = 230  # and of a filter
_LINE_CYCLES = 20  # the same of lines
_LINE_FILTER_CYCLES = 40
_CALL_CYCLES = 4  # of the micro-kernel, for a row of it
_GAIN = 0.8
_HALF_GAIN = 0.52  # of the time that half floats take
_TASK_TILES = 64  # that are worth transforming the filter for


def form_of(spec: ConvSpec) -> Form | None:
    """Of which tiles it may be: if it is a sum over 3 x 3 pixels, or 3 of a row, that
    lie side by side, or taps apart. Half floats, of which two products are made at
    once, gain by squares alone."""
    if spec.groups != 1 or spec.exact or spec.sums != np.float32:
        return None
    if any((a.stride, a.in_dilation) != (1, 1) for a in (spec.y, spec.x)):
        return None
    forms = (SQUARES, LINES) if spec.half is None else (SQUARES,)
    found = [f for f in forms if (spec.y.taps, spec.x.taps) == (f.taps, TAPS)]
    return found[0] if found else None


def _chosen(spec: ConvSpec) -> Form:
    """The tiles of one that is done by them."""
    form = form_of(spec)
    assert form is not None
    return form


def _depth(spec: ConvSpec) -> int:
    """Channels of all images that the filter meets."""
    return spec.z.taps * spec.channels


def is_faster(spec: ConvSpec, filter_gradient: bool) -> bool:
    """Whether it takes less time than to multiply pixel by pixel, by far: it loses
    digits. Of few channels it doesn't, nor where tiles reach beyond small images, nor
    where the filter is larger than what it meets, nor, if taps are far apart, where the
    tiles in each other's gaps are too large for the cache.

    Half floats have no such digits, but two products of them are made at once: of two
    images, in gradients by filters, if there are so many.

    The same for any machine, and for any number of threads, as what is summed is not.
    """
    channels, features = (-(-n // _LANES) for n in (spec.channels, spec.features))
    form = form_of(spec)
    if form is None:
        return False
    y, x, z, depth = spec.y, spec.x, spec.z, _depth(spec)
    block = form.places * y.dilation * x.dilation * depth * spec.dtype.itemsize
    if block > (_GRADIENT_BLOCK_BYTES if filter_gradient else _BLOCK_BYTES):
        return False
    tiles = spec.images * (_whole(y, form.out).out // form.out)
    tiles *= _whole(x, OUT).out // OUT
    # Some of the launches of few pixels never read what lies beside an image.
    met = y.taps * TAPS * y.out * x.out if filter_gradient else _met(y) * _met(x)
    met *= spec.images // z.out * _met(z)
    products = met * spec.channels * features
    fewer = form.places * tiles * (depth * features + _CALL_CYCLES * features)
    vectors = tiles * (channels * z.taps + features)
    per_tile, per_filter = _SQUARE_CYCLES, _FILTER_CYCLES
    if form is LINES:
        per_tile, per_filter = _LINE_CYCLES, _LINE_FILTER_CYCLES
    per_filter *= depth * features
    if filter_gradient:
        size = spec.k * spec.features * spec.dtype.itemsize
        per_filter *= filter_schedule.partial_count(spec, size)
    gain = _GAIN
    if spec.half is not None:
        alone = spec.images % 2 if filter_gradient else 0
        gain = _HALF_GAIN * (spec.images + alone) / spec.images
    return fewer + per_tile * vectors + per_filter < gain * products


@lru_cache(maxsize=1024)
def _met(axis: Axis) -> int:
    """How often taps meet the input along an axis without gaps."""
    total = 0
    for tap in range(axis.taps):
        before = axis.padding - tap * axis.dilation
        first = max(0, -(-before // axis.stride))
        stop = min(axis.out, -(-(axis.size + before) // axis.stride))
        total += max(0, stop - first)
    return total


def tiled(spec: ConvSpec, form: Form) -> ConvSpec:
    """The same, of images as large as their tiles."""
    return replace(spec, y=_whole(spec.y, form.out), x=_whole(spec.x, OUT))


@lru_cache(maxsize=1024)
def _whole(axis: Axis, out: int) -> Axis:
    return replace(axis, out=round_up(axis.out, out * axis.dilation))


def _common_words(spec: ConvSpec, whole: ConvSpec, tile: Tile, count: int) -> list[int]:
    """What follows from the geometry alone, so many words."""
    words = common_words(whole, tile, in_place=False)
    words[ConvWord.OUT_Y], words[ConvWord.OUT_X] = spec.y.out, spec.x.out
    words[WinogradWord.TILES_X] = whole.x.out // OUT
    return words + [0] * (count - len(words))


def _pitch(spec: ConvSpec, tile: Tile) -> int:
    """Elements between tiles: whole vectors are written of the last image."""
    before = (spec.z.taps - 1) * spec.channels
    elements = before + round_up(spec.channels, tile.lanes)
    return apart(elements, tile, spec.dtype.itemsize)


def apart(elements: int, tile: Tile, itemsize: int) -> int:
    """So many elements, or a vector more, if they would fall into few sets."""
    elements = round_up(elements, tile.lanes)
    return elements + tile.lanes * (elements * itemsize % _COLLIDING_BYTES == 0)


def of_halves(
    spec: ConvSpec, filter_gradient: bool, tile: Tile, threads: int
) -> list[Scheduled]:
    """The launches of a convolution of half floats that is to be done by tiles, or of
    its gradient by the filter."""
    plan = _gradient_of_halves if filter_gradient else _halves
    return launched(plan, (tile, threads), spec)


def _halves(tile: Tile, threads: int, spec: ConvSpec) -> list[Scheduled]:
    return [of_tiles(_of_floats(spec), tile, threads)]


def _gradient_of_halves(tile: Tile, threads: int, spec: ConvSpec) -> list[Scheduled]:
    return gradient_of_tiles(_of_floats(spec), tile, threads)


def _of_floats(spec: ConvSpec) -> ConvSpec:
    """The same of floats, as which scratch has them."""
    return replace(spec, dtype=spec.sums, operands=None)


def takes_tiles(spec: ConvSpec, filter_gradient: bool) -> bool:
    """Whether a convolution of half floats is done by tiles. Another kernel has the
    others, so for open sizes it is a question like one of a user."""
    if spec.half is None or form_of(spec) is None:
        return False
    return bool(settled(_takes_tiles, (filter_gradient, *parts(spec))))


def _takes_tiles(filter_gradient: bool, *numbers: Any) -> int:
    spec = from_parts(numbers)
    if 0 in (spec.images, spec.y.out, spec.x.out):
        return 0
    return int(is_faster(spec, filter_gradient))


def schedule(spec: ConvSpec, tile: Tile, threads: int) -> list[Scheduled]:
    """The launch of a convolution, by tiles if that is faster. It is for open sizes as
    for the same ones given: what decides is asked when they are known."""
    return launched(_planned, (tile, threads, is_in_place(spec)), spec)


def _planned(
    tile: Tile, threads: int, in_place: bool, spec: ConvSpec
) -> list[Scheduled]:
    how = tile, threads, in_place
    if not is_faster(spec, filter_gradient=False):
        return _as_long(spec, planned(*how, spec), WinogradWord.COUNT)
    count = max(WinogradWord.COUNT, _word_count(planned, how, _single(spec)))
    return [of_tiles(spec, tile, threads, count)]


def _as_long(spec: ConvSpec, launches: list[Scheduled], count: int) -> list[Scheduled]:
    """Launches of at least so many words, where other sizes have those of tiles."""
    if form_of(spec) is None:
        return launches
    return [
        replace(launch, words=launch.words + (0,) * (count - len(launch.words)))
        for launch in launches
    ]


def _single(spec: ConvSpec) -> ConvSpec:
    """The same of one image, or volume."""
    return replace(spec, images=spec.z.out)


@lru_cache(maxsize=1024)
def _word_count(
    plan: Callable[..., list[Scheduled]], how: tuple, spec: ConvSpec
) -> int:
    """How many words the launch has without tiles. With them it is written in as many,
    since what is faster depends on sizes that may be open; but not on how many images
    there are."""
    return len(plan(*how, spec)[0].words)


def of_tiles(
    spec: ConvSpec, tile: Tile, threads: int, count: int = WinogradWord.COUNT
) -> Scheduled:
    """The launch of one of fixed sizes, of so many words."""
    form = _chosen(spec)
    itemsize, whole = spec.dtype.itemsize, tiled(spec, form)
    words = _common_words(spec, whole, tile, count)
    words[Word.KIND] = form.kind
    down, across = whole.y.out // form.out, whole.x.out // OUT
    pitch, depth = _pitch(spec, tile), _depth(spec)
    tile_bytes = form.places * pitch * itemsize
    panels = words[ConvWord.PANELS]
    tiles = spec.images * down * across
    streams = tiles * tile_bytes <= _STREAM_BYTES
    most = tiles if streams else max(_LEAST_AT_ONCE, _INPUT_BYTES // tile_bytes)
    work = tiles * form.places * depth * panels * tile.vectors // 2
    tasks = task_count(work, threads)
    parts = 1 if streams else tasks
    part = min(across, _blocks(most, spec.x))
    slab_tiles = min(most // across, -(-down * spec.images // parts))
    slab_tiles = min(down, _blocks(slab_tiles, whole.y))
    slabs = -(-down // slab_tiles)
    slab_tiles = _even(down, slabs, whole.y)
    together = 1
    if slabs == 1:
        together = min(spec.images, max(1, most // (down * across)))
        together = min(together, -(-spec.images // parts))
    units = -(-spec.images // together) * slabs
    grid_units = max(1, min(units, tasks, tiles // _TASK_TILES))
    if streams:
        grid_units, tasks = 1, min(tasks, threads)
    grid_panels = min(panels, -(-tasks // grid_units))
    tasks = grid_units * grid_panels
    at_once = together * slab_tiles * part
    plane = apart(at_once * pitch, tile, itemsize)
    sums_plane = apart(at_once * tile.columns, tile, itemsize)
    pieces = -(-depth // (_LINE_PIECE if form is LINES else _PIECE))
    piece = -(-depth // pieces)
    # A distance of a page would put all places into the same few sets of the cache.
    rows = piece if streams else depth
    filter_plane = rows * tile.columns + tile.lanes
    panel_bytes = filter_plane * form.places * itemsize
    chunk = group = -(-panels // grid_panels)
    if not streams:
        chunk = min(group, max(2, _FILTER_BYTES // panel_bytes))
    padded = padded_bytes(whole, words, slab_tiles * form.out, tile)
    inputs = round_up(form.places * plane * itemsize, 64)
    sums = round_up(form.places * sums_plane * itemsize, 64)
    slack = tile.lanes * tile.columns * itemsize
    offset = padded + inputs + sums
    held = 1 if streams else chunk
    scratch = offset + round_up(held * panel_bytes + slack, 64)
    values = {
        Word.TASKS: tasks,
        Word.OWN_STRIDE: scratch,
        ConvWord.TOGETHER: together,
        ConvWord.SLAB_ROWS: slab_tiles * form.out,
        ConvWord.SLABS: slabs,
        ConvWord.GRID_UNITS: grid_units,
        ConvWord.GRID_PANELS: grid_panels,
        ConvWord.CHUNK_PANELS: chunk,
        ConvWord.FILTER_OFFSET: offset,
        WinogradWord.PLANE: plane,
        WinogradWord.PITCH: pitch,
        WinogradWord.SUMS_PLANE: sums_plane,
        WinogradWord.PART: part,
        WinogradWord.INPUTS_OFFSET: padded,
        WinogradWord.SUMS_OFFSET: padded + inputs,
        WinogradWord.PIECE: piece,
        WinogradWord.FILTER_PLANE: filter_plane,
        WinogradWord.STREAMS: int(streams),
    }
    for word, value in values.items():
        words[word] = value
    return Scheduled(tuple(map(int, words)), tasks)


def _blocks(tiles: int, axis: Axis) -> int:
    """At most so many tiles along an axis, in whole blocks; or one."""
    return max(1, tiles // axis.dilation) * axis.dilation


def _even(tiles: int, parts: int, axis: Axis) -> int:
    """A part of so many tiles along an axis, if all have as many blocks."""
    return -(-tiles // axis.dilation // parts) * axis.dilation


def filter_gradient(spec: ConvSpec, tile: Tile, threads: int) -> list[Scheduled]:
    """Two launches, as of `filter_schedule`."""
    return launched(_gradient, (tile, threads), spec)


def _units(
    whole: ConvSpec, images: int, tiles: tuple[int, int], most: int
) -> tuple[int, int, int, int]:
    """Units of so many tiles at most: of how many images; or into how many slabs an
    image is cut, of how many rows of tiles, and how many of a row are done at once.

    tiles: of an image, down and across.
    """
    down, across = tiles
    part = min(across, _blocks(most, whole.x))
    slab_tiles = min(down, _blocks(most // part, whole.y))
    slabs = -(-down // slab_tiles)
    together = min(images, max(1, most // (down * part))) if slabs == 1 else 1
    together = -(-images // -(-images // together))
    return together, slabs, _even(down, slabs, whole.y), part


def _gradient(tile: Tile, threads: int, spec: ConvSpec) -> list[Scheduled]:
    how, other = (tile, threads), filter_schedule.planned
    if not is_faster(spec, filter_gradient=True):
        return _as_long(spec, other(*how, spec), WinogradWord.FILTER_COUNT)
    count = max(WinogradWord.FILTER_COUNT, _word_count(other, how, _single(spec)))
    return gradient_of_tiles(spec, *how, count)


def gradient_of_tiles(
    spec: ConvSpec, tile: Tile, threads: int, count: int = WinogradWord.FILTER_COUNT
) -> list[Scheduled]:
    """The launches of one of fixed sizes, of so many words."""
    form = _chosen(spec)
    itemsize, whole = spec.dtype.itemsize, tiled(spec, form)
    words = _common_words(spec, whole, tile, count)
    b, c = slice(Word.B, Word.B + 5), slice(Word.C, Word.C + 5)
    words[b], words[c] = words[c], words[b]
    words[Word.PACK_B] = BUILT_IN
    down, across = whole.y.out // form.out, whole.x.out // OUT
    pitch, depth = _pitch(spec, tile), _depth(spec)
    tile_bytes = form.places * pitch * itemsize
    panels = words[ConvWord.PANELS]
    result = spec.k * spec.features * itemsize
    partials = filter_schedule.partial_count(spec, result)
    images = -(-spec.images // partials)
    alone = images * down * across * tile_bytes <= _STREAM_BYTES
    most = images * down * across
    if not alone:
        most = min(most, max(_LEAST_TILES, _INPUT_BYTES // tile_bytes))
    tiled_as = _units(whole, images, (down, across), most)
    together, slabs, slab_tiles, part = tiled_as
    alone = slabs == 1 and part == across and together == images
    at_once = together * slab_tiles * part
    tiles = spec.images * down * across
    work = tiles * form.places * depth * panels * tile.vectors // 2
    tasks = min(task_count(work, threads), threads)
    grid_units = min(partials, tasks)
    grid_panels = min(panels, -(-tasks // grid_units))
    tasks = grid_units * grid_panels
    block = _SUMS_BYTES // (form.places * tile.columns * itemsize)
    blocks = -(-depth // block)
    block = -(-depth // blocks)
    sums_plane = apart(block * tile.columns, tile, itemsize)
    plane = apart(at_once * pitch, tile, itemsize)
    outputs_plane = apart(at_once * tile.columns, tile, itemsize)
    panel_bytes = form.places * sums_plane * blocks * itemsize
    chunk = -(-panels // grid_panels)
    if not alone:
        chunk = min(chunk, max(1, _ALL_SUMS_BYTES // panel_bytes))
    padded = padded_bytes(whole, words, slab_tiles * form.out, tile)
    lines = padded + round_up(form.places * plane * itemsize, 64)
    slack = tile.lanes * tile.columns * itemsize
    line_bytes = OUT * part * tile.columns * itemsize
    outputs = lines + round_up(form.out * line_bytes + slack, 64)
    sums = outputs + round_up(form.places * outputs_plane * itemsize, 64)
    held = panel_bytes // blocks if alone else chunk * panel_bytes
    scratch = sums + round_up(held, 64)
    start = round_up(partials * result, 64)
    most_tiles = _LINE_TILES if form is LINES else _TILES
    values = {
        Word.KIND: form.filter_kind,
        Word.TASKS: tasks,
        Word.OWN_STRIDE: scratch,
        ConvWord.TOGETHER: together,
        ConvWord.SLAB_ROWS: slab_tiles * form.out,
        ConvWord.SLABS: slabs,
        ConvWord.GRID_UNITS: grid_units,
        ConvWord.GRID_PANELS: grid_panels,
        ConvWord.CHUNK_PANELS: chunk,
        FilterWord.PARTIALS: partials,
        FilterWord.FEATURES: spec.features,
        WinogradWord.PART: part,
        WinogradWord.PLANE: plane,
        WinogradWord.PITCH: pitch,
        WinogradWord.FILTER_PLANE: outputs_plane,
        WinogradWord.SUMS_PLANE: sums_plane,
        WinogradWord.INPUTS_OFFSET: padded,
        WinogradWord.SUMS_OFFSET: sums,
        WinogradWord.PIECE: block,
        WinogradWord.LINES_OFFSET: lines,
        WinogradWord.OUTPUTS_OFFSET: outputs,
        WinogradWord.TILES: -(-at_once // -(-at_once // most_tiles)),
        WinogradWord.SUMS_STEP: 0 if alone else form.places * sums_plane,
    }
    for word, value in values.items():
        words[word] = value
    first = Scheduled(tuple(map(int, words)), tasks, start)
    return [first, filter_schedule.adding(words, spec, threads, start)]
