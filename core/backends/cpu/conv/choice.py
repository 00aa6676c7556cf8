"""Which kernel runs a convolution."""

from __future__ import annotations

from treadle.backends.cpu import families
from treadle.backends.cpu.conv import depthwise_schedule, winograd_schedule
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
    if spec.half is not None:
        return families.conv_halves.schedule(spec, filter_gradient, threads)
    if filter_gradient:
        return winograd_schedule.filter_gradient(spec, tile, threads)
    return winograd_schedule.schedule(spec, tile, threads)


def own_source(spec: ConvSpec, filter_gradient: bool) -> Source | None:
    """The module that has the kernel of one of half floats, or of groups of few
    channels; None of others."""
    if spec.depthwise or row_of_groups(spec) is not None:
        return families.conv_depthwise.source(spec)
    if spec.half is None:
        return None
    return families.conv_halves.source(spec, filter_gradient)
