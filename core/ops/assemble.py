"""Arrays that are put together of blocks, which the compiler makes of joined ones."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from treadle.arraytype import ArrayType
from treadle.ops.movement import instantiate, move_axis, spread
from treadle.ops.shape import slice_
from treadle.trace.lowering import Join, Shape
from treadle.trace.op import Linear, Op

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


def _jvp(primals: Sequence[Any], tangents: Sequence[Any], **params: Any) -> Any:
    return assemble(*primals, **params), assemble(*map(instantiate, tangents), **params)


def _transpose(ct: Any, *args: Any, shape: Shape, starts: Starts) -> list[Any]:
    found: list[Any] = []
    for a, start in zip(args, starts, strict=True):
        if isinstance(a, Linear):
            limits = tuple([i + n for i, n in zip(start, a.shape, strict=True)])
            steps = (1,) * len(shape)
            found.append(slice_(ct, starts=start, limits=limits, steps=steps))
        else:
            found.append(None)
    return found


def _batch(size: int, args: Any, axes: Any, *, shape: Shape, starts: Starts) -> Any:
    lined = [
        spread(x, 0, size) if a is None else move_axis(x, a, 0)
        for x, a in zip(args, axes, strict=True)
    ]
    first = tuple([(0, *start) for start in starts])
    return assemble(*lined, shape=(size, *shape), starts=first), 0


assemble = Op(
    "assemble",
    _type,
    _run,
    jvp=_jvp,
    transpose=_transpose,
    batch=_batch,
    lowering=Join(_places),
)
"""An array of a shape, made of blocks that fill it: each begins at its `starts`."""
