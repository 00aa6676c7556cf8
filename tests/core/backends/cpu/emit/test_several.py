"""Several short rows at once: the same bits as one after the other."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import treadle as td
import treadle.numpy as tnp
from tests.core.backends.cpu.emit.test_across import (
    VIEWS,
    _per_row,
    _values,
    places,
    softmax,
    squares,
)
from tests.core.kernels.nests import Maker
from treadle.backends.cpu.emit.several import entry_for

F = np.dtype(np.float32)
LENGTHS = (1, 16, 17, 31, 33, 63, 64, 65, 100, 255, 256, 257)


def normalised(x: np.ndarray, ends: list[np.ndarray]) -> Maker:
    """With a weight for each row, found by an index, and what is the same for all."""
    m = Maker(x.shape[:-1], x.shape[-1])
    rows = x.shape[0]
    index = np.arange(rows, dtype=np.int32)[::-1].copy()
    table = np.linspace(0.5, 2.0, rows, dtype=x.dtype)
    picked = m.load(_per_row(np.repeat(index[:, None], x.shape[-1], 1)))
    found = np.lib.stride_tricks.as_strided(
        table, (*x.shape, rows), (0, 0, table.itemsize)
    )
    weight, half = m.load(found, picked), m.const(0.5, x.dtype)
    value = m.load(x)
    centred = m.op("sub", value, m.op("mul", m.op("reduce_sum", value), half))
    total = m.op("reduce_sum", m.op("mul", m.op("mul", centred, centred), half))
    m.store(ends[0], m.op("mul", m.op("mul", centred, weight), m.op("rsqrt", total)))
    m.store(_per_row(ends[1]), total)
    return m


@pytest.mark.parametrize("lanes", [4, 8, 16])
@pytest.mark.parametrize("make", [softmax, squares, places, normalised])
@pytest.mark.filterwarnings("ignore:overflow")
def test_bits_are_those_of_rows_one_by_one(make: Callable, lanes: int) -> None:
    for columns in LENGTHS:
        found = set()
        for entry in ("task", "short", "open"):
            x = _values((2 * lanes + 3, columns), F)
            ends = [np.zeros(x.shape, F) for _ in range(3)]
            make(x, ends).run(tasks=2, lanes=lanes, entry=entry)
            found.add(tuple(e.tobytes() for e in ends))
        assert len(found) == 1, columns


@pytest.mark.parametrize("dtype", [np.float64, np.float16, ml_dtypes.bfloat16])
@pytest.mark.parametrize("columns", [17, 40, 70])
def test_bits_of_other_dtypes(dtype: Any, columns: int) -> None:
    found = set()
    for entry in ("task", "short"):
        x = _values((33, columns), dtype)
        ends = [np.zeros(x.shape, dtype) for _ in range(3)]
        softmax(x, ends).run(lanes=16, entry=entry)
        found.add(ends[0].tobytes())
    assert len(found) == 1


@pytest.mark.parametrize("view", VIEWS)
def test_any_steps(view: str) -> None:
    found = set()
    for entry in ("task", "short"):
        x = VIEWS[view](_values((35, 21), F))
        end = np.zeros(x.shape, F)
        if x.strides[0]:
            end = VIEWS[view](end)
        softmax(x, [end]).run(lanes=16, entry=entry)
        found.add(np.ascontiguousarray(end).tobytes())
    assert len(found) == 1


@pytest.mark.parametrize("dtype", [np.float32, np.int32, np.uint8])
@pytest.mark.parametrize("name", ["argmax", "argmin"])
def test_the_first_of_equal_ones_is_found(name: str, dtype: Any) -> None:
    rng = np.random.default_rng(3)
    for columns in (9, 20, 65, 200, 300):
        x = rng.integers(0, 4, (40, columns)).astype(dtype)
        if x.dtype == F:
            x[::3, columns // 2 :: 7] = np.nan
            x[5], x[7] = np.inf, -np.inf
        found = td.jit(lambda x: getattr(tnp, name)(x, axis=-1))(tnp.asarray(x))
        np.testing.assert_array_equal(np.asarray(found), getattr(np, name)(x, axis=-1))


def test_sizes_that_are_open_have_the_same_bits() -> None:
    def f(x: Any) -> Any:
        e = tnp.exp(x - tnp.max(x, axis=-1, keepdims=True))
        return e / tnp.sum(e, axis=-1, keepdims=True), tnp.argmax(x, axis=-1)

    opened = td.jit(f, dynamic={"x": ("rows", "columns")})
    for shape in ((40, 3), (35, 14), (33, 20), (47, 100), (20, 300), (3, 50)):
        x = tnp.asarray(_values(shape, F))
        for a, b in zip(opened(x), td.jit(f)(x), strict=True):
            assert np.asarray(a).tobytes() == np.asarray(b).tobytes()


def test_the_entry_suits_the_lengths() -> None:
    def entry(rows: int, columns: int) -> str:
        steps = td.jit(lambda x: tnp.sum(x, axis=-1)).lower(tnp.ones((rows, columns)))
        (step,) = steps.plan.steps
        return entry_for(step.launch)

    assert entry(100, 2) == "few"
    assert entry(100, 40) == "short"
    assert entry(100, 2000) == "task"
    assert entry(2, 40) == "task"
