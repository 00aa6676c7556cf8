"""Which kernel runs a convolution."""

from __future__ import annotations

from treadle.backends.cpu.bfloat import kernel
from treadle.backends.cpu.conv import (
    depthwise,
    depthwise_schedule,
    on_tiles,
    on_tiles_schedule,
    pairs,
    pairs_schedule,
    winograd_halves,
    winograd_schedule,
)
from treadle.backends.cpu.conv.depthwise_rows import row_of_groups
from treadle.backends.cpu.gemm.arguments import Scheduled, Tile
from treadle.backends.cpu.run.native import Source
from treadle.kernels.convolve import ConvSpec


def schedule(
    spec: ConvSpec, filter_gradient: bool, tile: Tile, threads: int
) -> list[Scheduled]:
    """The launches of a convolution, or of its gradient by the filter.

    tile: of what is summed.
    """
    if spec.depthwise or row_of_groups(spec) is not None:
        return depthwise_schedule.schedule(spec, tile, threads, filter_gradient)
    if on_tiles_schedule.takes(spec, filter_gradient):
        speed = kernel.unit().speed
        return on_tiles_schedule.schedule(spec, filter_gradient, speed, threads)
    if spec.half is not None:
        if winograd_schedule.takes_tiles(spec, filter_gradient):
            tile = winograd_halves.machine().tile
            return winograd_schedule.of_halves(spec, filter_gradient, tile, threads)
        tile = pairs.machine().tile
        return pairs_schedule.schedule(spec, filter_gradient, tile, threads)
    if filter_gradient:
        return winograd_schedule.filter_gradient(spec, tile, threads)
    return winograd_schedule.schedule(spec, tile, threads)


def own_source(spec: ConvSpec, filter_gradient: bool) -> Source | None:
    """The module that has the kernel of one of half floats, or of groups of few
    channels; None of others."""
    if spec.depthwise or row_of_groups(spec) is not None:
        return depthwise.source(spec)
    if spec.half is None:
        return None
    if on_tiles_schedule.takes(spec, filter_gradient):
        return on_tiles.source(spec, filter_gradient)
    if winograd_schedule.takes_tiles(spec, filter_gradient):
        return winograd_halves.source(spec, filter_gradient)
    return pairs.source(spec, filter_gradient)
