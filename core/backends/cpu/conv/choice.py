"""Which kernel runs a convolution."""

from __future__ import annotations

from treadle.backends.cpu.conv import depthwise_schedule, winograd_schedule
from treadle.backends.cpu.gemm.arguments import Scheduled, Tile
from treadle.kernels.convolve import ConvSpec


def schedule(
    spec: ConvSpec, filter_gradient: bool, tile: Tile, threads: int
) -> list[Scheduled]:
    """The launches of a convolution, or of its gradient by the filter."""
    if spec.depthwise:
        return depthwise_schedule.schedule(spec, tile, threads, filter_gradient)
    if filter_gradient:
        return winograd_schedule.filter_gradient(spec, tile, threads)
    return winograd_schedule.schedule(spec, tile, threads)
