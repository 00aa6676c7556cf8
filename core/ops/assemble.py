"""Arrays that are put together of blocks, which the compiler makes of joined ones."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from treadle.arraytype import ArrayType
from treadle.trace.lowering import Join, Shape
from treadle.trace.op import Op

Starts = tuple[Shape, ...]


def _type(*blocks: ArrayType, shape: Shape, starts: Starts) -> ArrayType:
    """Blocks lie inside; that they fill the array is what the compiler sees to."""
    for t, start in zip(blocks, starts, strict=True):
        ends = [i + n for i, n in zip(start, t.shape, strict=True)]
        if any(end > n for end, n in zip(ends, shape, strict=True)):
            raise ValueError(f"assemble: {t} at {start} leaves {list(shape)}")
    return ArrayType(shape, blocks[0].dtype)


def _run(*blocks: Any, shape: Shape, starts: Starts) -> Any:
    whole = np.empty(shape, blocks[0].dtype)
    for block, start in zip(blocks, starts, strict=True):
        ends = zip(start, block.shape, strict=True)
        whole[tuple([slice(i, i + n) for i, n in ends])] = block
    return whole


def _places(
    types: Sequence[ArrayType], steps: Sequence[int], *, shape: Shape, starts: Starts
) -> list[tuple[int, tuple[int, ...]]]:
    return [
        (sum(i * s for i, s in zip(start, steps, strict=True)), tuple(steps))
        for start in starts
    ]


assemble = Op(
    "assemble",
    _type,
    _run,
    lowering=Join(_places),
    differentiable=False,
)
"""An array of a shape, made of blocks that fill it: each begins at its `starts`."""
