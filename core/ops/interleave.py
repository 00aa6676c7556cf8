"""Arrays whose elements take turns along some axes of a larger one."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from treadle.arraytype import ArrayType
from treadle.ops.movement import instantiate, move_axis, spread
from treadle.ops.shape import slice_
from treadle.trace.lowering import Join
from treadle.trace.op import Linear, Op
from treadle.trace.value import typeof


def _places(turns: Sequence[int]) -> Iterator[tuple[int, ...]]:
    """Where each piece begins: those of the last axis follow each other."""
    return itertools.product(*map(range, turns))


def _type(*types: ArrayType, turns: tuple[int, ...]) -> ArrayType:
    first = types[0]
    same = all(t.shape == first.shape and t.dtype == first.dtype for t in types)
    if not same or len(turns) != first.ndim or math.prod(turns) != len(types):
        raise ValueError(
            f"interleave takes equal arrays, as many as {turns} has turns; got "
            f"{', '.join(map(repr, types))}"
        )
    shape = tuple([n * by for n, by in zip(first.shape, turns, strict=True)])
    return ArrayType(shape, first.dtype)


def _run(*xs: Any, turns: tuple[int, ...]) -> Any:
    shape = [n * by for n, by in zip(xs[0].shape, turns, strict=True)]
    out = np.empty(shape, xs[0].dtype)
    for x, place in zip(xs, _places(turns), strict=True):
        out[_every(place, turns)] = x
    return out


def _every(place: Sequence[int], turns: Sequence[int]) -> tuple[slice, ...]:
    return tuple([slice(i, None, by) for i, by in zip(place, turns, strict=True)])


def _jvp(primals: Sequence[Any], tangents: Sequence[Any], **params: Any) -> Any:
    return interleave(*primals, **params), interleave(
        *map(instantiate, tangents), **params
    )


def _transpose(ct: Any, *args: Any, turns: tuple[int, ...]) -> list[Any]:
    limits = typeof(ct).shape
    return [
        slice_(ct, starts=place, limits=limits, steps=turns)
        if isinstance(a, Linear)
        else None
        for a, place in zip(args, _places(turns), strict=True)
    ]


def _batch(size: int, args: Any, axes: Any, *, turns: tuple[int, ...]) -> Any:
    lined = [
        spread(x, 0, size) if a is None else move_axis(x, a, 0)
        for x, a in zip(args, axes, strict=True)
    ]
    return interleave(*lined, turns=(1, *turns)), 0


def _pieces(
    types: Sequence[ArrayType], steps: Sequence[int], *, turns: tuple[int, ...]
) -> list[tuple[int, tuple[int, ...]]]:
    strides = tuple([step * by for step, by in zip(steps, turns, strict=True)])
    return [
        (sum([i * step for i, step in zip(place, steps, strict=True)]), strides)
        for place in _places(turns)
    ]


interleave = Op(
    "interleave",
    _type,
    _run,
    jvp=_jvp,
    transpose=_transpose,
    batch=_batch,
    lowering=Join(_pieces),
)
"""Of equal arrays one whose axis `i` has their elements by turns: those of `turns[i]`
of them. The last axis goes through them first."""
