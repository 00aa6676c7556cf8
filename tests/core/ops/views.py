"""Views of arrays: parameters for each op that only changes indices."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any

from treadle.ops.movement import broadcast_in_dim, reverse, transpose
from treadle.ops.shape import slice_
from treadle.trace.op import Op

Params = dict[str, Any]


def some_shape(r: random.Random) -> list[int]:
    return [r.choice([1, 2, 3, 5]) for _ in range(r.randrange(5))]


def broadcast_params(shape: Sequence[int], r: random.Random) -> Params:
    """New axes anywhere; longer ones in the place of some of length 1."""
    result = [r.choice([n, 4]) if n == 1 else n for n in shape]
    dims = list(range(len(shape)))
    for _ in range(r.randrange(3)):
        place = r.randrange(len(result) + 1)
        result.insert(place, r.choice([1, 2, 4]))
        dims = [d + (d >= place) for d in dims]
    return {"shape": tuple(result), "dims": tuple(dims)}


def transpose_params(shape: Sequence[int], r: random.Random) -> Params:
    return {"permutation": tuple(r.sample(range(len(shape)), len(shape)))}


def reverse_params(shape: Sequence[int], r: random.Random) -> Params:
    return {"axes": tuple(i for i in range(len(shape)) if r.random() < 0.5)}


def slice_params(shape: Sequence[int], r: random.Random) -> Params:
    starts = [r.randrange(n) for n in shape]
    limits = [r.randrange(s, n) + 1 for s, n in zip(starts, shape, strict=True)]
    steps = [r.randrange(1, 4) for _ in shape]
    return {"starts": tuple(starts), "limits": tuple(limits), "steps": tuple(steps)}


VIEWS: dict[Op, Callable[[Sequence[int], random.Random], Params]] = {
    broadcast_in_dim: broadcast_params,
    transpose: transpose_params,
    reverse: reverse_params,
    slice_: slice_params,
}
