"""Squares of what is read across rows: every element, and no memory beside."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import treadle as td
import treadle.numpy as tnp
from tests.core.kernels.nests import Maker
from tests.core.kernels.walls import walled
from treadle.backends.cpu.emit import squares
from treadle.backends.cpu.emit.lanes import host_lanes
from treadle.backends.cpu.target import host

F = np.dtype(np.float32)
DTYPES = [bool, np.int8, np.float16, ml_dtypes.bfloat16, F, np.float64]
SHAPES = [(16, 16), (16, 3), (70, 5), (33, 40), (3, 17, 66), (2, 1), (1, 30), (130, 2)]


def _numbers(shape: tuple[int, ...], dtype: Any = F) -> np.ndarray:
    count = 2 if np.dtype(dtype) == bool else 120
    return (np.arange(np.prod(shape)) % count).reshape(shape).astype(dtype)


@pytest.mark.parametrize("lanes", [4, 8, 16])
@pytest.mark.parametrize("step", [1, 2])
@pytest.mark.parametrize("shape", SHAPES)
def test_any_shape(shape: tuple[int, ...], step: int, lanes: int) -> None:
    x = np.repeat(_numbers(shape), step, axis=-2)[..., ::step, :]
    y = np.repeat(_numbers((*shape[:-2], *shape[:-3:-1])), step, axis=-1)[..., ::step]
    end = np.zeros(shape, F)
    m = Maker(shape[:-1], shape[-1])
    turned, each = m.load(np.swapaxes(y, -1, -2)), m.load(x)
    scale = m.load(np.broadcast_to(x[..., :1], x.shape))
    m.store(end, m.op("add", m.op("mul", turned, scale), each))
    for tasks in (1, 3):
        end[:] = 0
        entry = {1: "squares", 2: "paired squares"}[step]
        m.run(tasks=tasks, lanes=lanes, entry=entry)
        wanted = np.swapaxes(y, -1, -2) * x[..., :1] + x
        np.testing.assert_array_equal(end, wanted)


@pytest.mark.parametrize("dtype", DTYPES)
def test_nothing_beside_the_arrays_is_touched(dtype: Any) -> None:
    for rows, columns in ((16, 16), (17, 5), (33, 18), (4, 4), (2, 40), (40, 1)):
        memory, flat = walled(rows * columns, dtype)
        flat[:] = _numbers(flat.shape, dtype)
        x, end = flat.reshape(columns, rows), np.zeros((rows, columns), dtype)
        m = Maker((rows,), columns)
        m.store(end, m.load(x.T))
        m.run(entry="squares")
        np.testing.assert_array_equal(end, x.T)
        m = Maker((columns,), rows)
        m.store(x, m.load(end.T))
        m.run(entry="squares")
        np.testing.assert_array_equal(x, end.T)
        del x, flat, memory


CALLS: dict[str, Callable[[Any, Any], Any]] = {
    "transposed": lambda np, x: np.transpose(x),
    "of several": lambda np, x: (x * 2).T + x.T[::-1],
    "beside what is not": lambda np, x: x.T * x.reshape(x.shape[1], x.shape[0]),
    "heads": lambda np, x: np.transpose(x.reshape(-1, 5, 8), (0, 2, 1)),
}


@pytest.mark.parametrize("name", CALLS)
@pytest.mark.parametrize("dtype", ["float32", "float64", "complex64"])
def test_programs_and_open_sizes_agree_with_numpy(name: str, dtype: str) -> None:
    def f(x: Any) -> Any:
        return CALLS[name](tnp, x)

    opened = td.jit(f, dynamic={"x": ("rows", None)})
    for rows in (80, 40, 3):
        x = _numbers((rows, 40)).astype(dtype)
        wanted = CALLS[name](np, x)
        np.testing.assert_array_equal(np.asarray(td.jit(f)(x)), wanted)
        np.testing.assert_array_equal(np.asarray(opened(x)), wanted)


def test_only_what_has_squares_gets_the_code() -> None:
    def entry(f: Callable[[Any], Any], *shape: int) -> str | None:
        (step,) = td.jit(f).lower(tnp.ones(shape)).plan.steps
        return squares.squares_entry(step.launch)

    if host().vector_bytes == 64:
        assert entry(lambda x: x.T, 300, 300) == "squares"
        assert entry(lambda x: x.T, host_lanes(), 1000) == "squares"
        assert entry(lambda x: x[:, ::2].T, 300, 300) == "paired squares"
        assert entry(lambda x: x.transpose(0, 2, 1), 20, 32, 32) == "squares"
    assert entry(lambda x: x[:, ::3].T, 300, 300) is None
    assert entry(lambda x: x.T, 1000, 2) is None
    assert entry(lambda x: x.T, host_lanes(), host_lanes()) is None
    assert entry(lambda x: x[:, ::-1], 300, 300) is None
