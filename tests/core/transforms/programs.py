"""Random small programs for the tests of the transforms.

A program maps two 3x3 matrices to one. It is a list of steps; each takes two earlier
values (its number modulo how many there are) and gives a 3x3 matrix. All steps are
smooth where the tests evaluate them and keep values of moderate size.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from hypothesis import strategies as st

from treadle.ops.arithmetic import add, div, mul, sub
from treadle.ops.compare import gt, select
from treadle.ops.cumulative import cummax, cumprod, cumsum
from treadle.ops.dot import dot_general
from treadle.ops.dynamic import dynamic_slice, dynamic_update_slice
from treadle.ops.gather import take, take_along_axis
from treadle.ops.movement import broadcast_in_dim, reshape, restore_axes, transpose
from treadle.ops.reduce import reduce_max, reduce_sum
from treadle.ops.scatter import scatter_add
from treadle.ops.shape import concatenate, pad, slice_axis
from treadle.ops.sort import argsort, sort
from treadle.ops.unary import exp, log1p, logistic, sin, sqrt, tanh

SHAPE = (3, 3)
ROWS = np.int32([2, 0, 2])
MATMUL = {"contract": ((1,), (0,)), "batch": ((), ())}


def _softmax(x: Any) -> Any:
    e = exp(sub(x, restore_axes(reduce_max(x, axes=(1,)), SHAPE, (1,))))
    return div(e, restore_axes(reduce_sum(e, axes=(1,)), SHAPE, (1,)))


def _normalise(x: Any) -> Any:
    centred = sub(x, restore_axes(mul(reduce_sum(x, axes=(0,)), 1 / 3), SHAPE, (0,)))
    square = reduce_sum(mul(centred, centred), axes=(0,))
    return div(centred, restore_axes(sqrt(add(square, 1.0)), SHAPE, (0,)))


def _roll(x: Any) -> Any:
    return concatenate(slice_axis(x, 1, 1, 3), slice_axis(x, 1, 0, 1), axis=1)


def _cut_and_pad(x: Any) -> Any:
    corner = slice_axis(slice_axis(x, 0, 1, 3), 1, 0, 2)
    return pad(corner, x.dtype.type(0.5), padding=((0, 1, 0), (1, 0, 0)))


def _flat_sum(x: Any) -> Any:
    total = reduce_sum(tanh(reshape(x, shape=(9,))), axes=(0,))
    return broadcast_in_dim(total, shape=SHAPE, dims=())


def _corner_of(x: Any, y: Any) -> Any:
    zero = np.int32(0)
    corner = dynamic_slice(y, np.int32(1), zero, sizes=(2, 3))
    return dynamic_update_slice(x, corner, zero, zero)


def _scatter_rows(x: Any, y: Any) -> Any:
    params = {"axes": (0,), "sizes": (None,), "batch_dims": 0, "mode": "drop"}
    return scatter_add(x, tanh(y), ROWS, **params)


STEPS = {
    "add": add,
    "product": lambda x, y: tanh(mul(x, y)),
    "quotient": lambda x, y: div(x, add(mul(y, y), 1.0)),
    "matmul": lambda x, y: tanh(dot_general(x, y, **MATMUL)),
    "sine": lambda x, y: sin(sub(x, y)),
    "gate": lambda x, y: mul(x, logistic(y)),
    "choose": lambda x, y: select(gt(x, y), x, mul(y, 0.5)),
    "softmax": lambda x, y: _softmax(x),
    "normalise": lambda x, y: _normalise(x),
    "transpose": lambda x, y: transpose(x, permutation=(1, 0)),
    "roll": lambda x, y: _roll(x),
    "cut": lambda x, y: _cut_and_pad(x),
    "total": lambda x, y: _flat_sum(x),
    "logarithm": lambda x, y: log1p(mul(x, x)),
    "rows": lambda x, y: take(x, ROWS, 0),
    "order": lambda x, y: take_along_axis(x, argsort(y, 1), 1),
    "sorted": lambda x, y: sort(x, axis=0, num_keys=1)[0],
    "running": lambda x, y: tanh(cumsum(x, axis=1, reverse=True)),
    "growing": lambda x, y: tanh(cumprod(x, axis=0, reverse=False)),
    "highest": lambda x, y: cummax(x, axis=1, reverse=False),
    "corner": _corner_of,
    "scatter": _scatter_rows,
    "again": lambda x, y: add(add(x, x), mul(x, -1.5)),
}


class Program(NamedTuple):
    """Steps (name, first, second), run on two matrices."""

    steps: tuple[tuple[str, int, int], ...]

    def __call__(self, x: Any, y: Any) -> Any:
        values = [x, y]
        for name, first, second in self.steps:
            a, b = values[-1 - first % len(values)], values[second % len(values)]
            values.append(STEPS[name](a, b))
        return values[-1]


_step = st.tuples(st.sampled_from(sorted(STEPS)), st.integers(0, 3), st.integers(0, 5))
programs = st.lists(_step, min_size=1, max_size=6).map(lambda s: Program(tuple(s)))


def matrices(seed: int, count: int, *lead: int) -> list[np.ndarray]:
    """Matrices in double precision, no two elements equal."""
    rng = np.random.default_rng(seed)
    return [rng.normal(size=(*lead, *SHAPE)) for _ in range(count)]
