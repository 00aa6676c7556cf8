"""How a CPU runs a convolution of bfloat16: as one of floats, each of which is a pair
(`treadle.backends.cpu.conv.pairs`): of half as many channels, or, for the gradient by
the filter, of half as many images."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from treadle.backends.cpu.conv import filter_schedule
from treadle.backends.cpu.conv.arguments import ConvWord, PairWord
from treadle.backends.cpu.conv.schedule import is_in_place, launched, of_images
from treadle.backends.cpu.gemm.arguments import Scheduled, Tile
from treadle.kernels.contract import Strides
from treadle.kernels.convolve import ConvSpec

_PAIR = np.dtype(np.float32)


def schedule(
    spec: ConvSpec, filter_gradient: bool, tile: Tile, threads: int
) -> list[Scheduled]:
    """The launches of a convolution, or of its gradient by the filter. Channels lie
    side by side."""
    plan: Callable[..., list[Scheduled]]
    plan = _filter_gradient if filter_gradient else _convolution
    return launched(plan, (tile, threads), spec)


def _convolution(tile: Tile, threads: int, spec: ConvSpec) -> list[Scheduled]:
    each, given = spec.channels // spec.groups, spec.input
    even = each % 2 == 0
    lines = given.b0, given.b1, given.row
    in_place = even and not any(n % 2 for n in lines) and is_in_place(spec)
    if in_place:
        given = Strides(given.b0 // 2, given.b1 // 2, given.row // 2, 1)
    of_pairs = replace(
        spec,
        dtype=_PAIR,
        operands=None,
        channels=spec.groups * -(-each // 2),
        input=given,
    )
    found = of_images(of_pairs, tile, threads, in_place)
    # As many words for all sizes: there may be a segment for each tap.
    most = ConvWord.OFFSETS + 2 * spec.y.taps * spec.x.taps
    words = [*found.words, *[0] * (most - len(found.words))]
    run = even and given.row == spec.channels and spec.x.in_dilation == 1
    words[ConvWord.ROW_RUN] = int(run)
    words[PairWord.PAIRED] = each
    return [replace(found, words=tuple(words))]


def _filter_gradient(tile: Tile, threads: int, spec: ConvSpec) -> list[Scheduled]:
    of_pairs = replace(spec, dtype=_PAIR, operands=None, images=-(-spec.images // 2))
    launches = []
    for found in filter_schedule.planned(tile, threads, of_pairs):
        words = list(found.words)
        words[PairWord.PAIRED] = spec.images
        launches.append(replace(found, words=tuple(words)))
    return launches
