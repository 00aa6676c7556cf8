"""Which kernel runs a convolution of half floats."""

from __future__ import annotations

from treadle.backends.cpu.bfloat import kernel
from treadle.backends.cpu.conv import (
    on_tiles,
    on_tiles_schedule,
    pairs,
    pairs_schedule,
    winograd_halves,
    winograd_schedule,
)
from treadle.backends.cpu.gemm.arguments import Scheduled
from treadle.backends.cpu.run.native import Source
from treadle.kernels.convolve import ConvSpec


def schedule(spec: ConvSpec, filter_gradient: bool, threads: int) -> list[Scheduled]:
    """The launches of a convolution, or of its gradient by the filter."""
    if on_tiles_schedule.takes(spec, filter_gradient):
        speed = kernel.unit().speed
        return on_tiles_schedule.schedule(spec, filter_gradient, speed, threads)
    if winograd_schedule.takes_tiles(spec, filter_gradient):
        tile = winograd_halves.machine().tile
        return winograd_schedule.of_halves(spec, filter_gradient, tile, threads)
    tile = pairs.machine().tile
    return pairs_schedule.schedule(spec, filter_gradient, tile, threads)


def source(spec: ConvSpec, filter_gradient: bool) -> Source:
    """The module that has its kernel."""
    if on_tiles_schedule.takes(spec, filter_gradient):
        return on_tiles.source(spec, filter_gradient)
    if winograd_schedule.takes_tiles(spec, filter_gradient):
        return winograd_halves.source(spec, filter_gradient)
    return pairs.source(spec, filter_gradient)
