"""Vectors from row to row: the elements that belong there, and no memory beside."""

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
from treadle.backends.cpu.emit import points
from treadle.backends.cpu.emit.lanes import host_lanes
from treadle.backends.cpu.target import host

F = np.dtype(np.float32)
pytestmark = pytest.mark.skipif(
    host().arch != "x86_64" or host().vector_bytes < 32,
    reason="no instruction that chooses among lanes",
)
LANES = host_lanes()


def _numbers(shape: tuple[int, ...], dtype: Any = F) -> np.ndarray:
    count = 2 if np.dtype(dtype) == bool else 120
    return (np.arange(np.prod(shape)) % count).reshape(shape).astype(dtype)


VIEWS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "elements backwards": lambda x: x[..., ::-1],
    "rows backwards": lambda x: x[::-1],
    "everything backwards": lambda x: x.ravel()[::-1].reshape(x.shape),
    "rows of a wider array": lambda x: np.repeat(x, 2, -1)[..., 1 : x.shape[-1] + 1],
    "every second element": lambda x: np.repeat(x, 2, axis=-1)[..., ::2],
    "one number a row": lambda x: np.broadcast_to(x[..., :1], x.shape),
    "one row": lambda x: np.broadcast_to(x[-1], x.shape),
    "one number": lambda x: np.broadcast_to(x.ravel()[3], x.shape),
    "columns first": lambda x: np.asfortranarray(x),
    "matrices transposed": lambda x: np.swapaxes(x, -1, -2).copy().swapaxes(-1, -2),
}


def _sum_of(x: np.ndarray, view: np.ndarray, end: np.ndarray) -> Maker:
    """A view's elements, their numbers, and those of another array, added up."""
    m = Maker(x.shape[:-1], x.shape[-1])
    steps = tuple(s // x.itemsize for s in x.strides)
    number = m.iota(3, steps, np.int32)
    total = m.op("convert", m.load(number), dtype=F, attr=F)
    m.store(end, m.op("add", m.op("add", m.load(view), total), m.load(x)))
    return m


def _entries(m: Maker) -> list[str]:
    """For any arrays, and for operands of at most one window, or two: what has more, or
    is stored apart, is done by rows."""
    count = len(m.operands)
    return ["points", "points" + "1" * count, "points" + "2" * count]


@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize("shape", [(100,), (40, 4), (3, 70), (2, 40, 3)])
def test_any_steps(view: str, shape: tuple[int, ...]) -> None:
    for columns in (2, 3, 5, 8, LANES - 1, LANES + 3):
        x = _numbers((*shape, columns))
        seen, end = VIEWS[view](x), np.zeros(x.shape, F)
        m = _sum_of(x, seen, end)
        assert points.goes_by_points(m.nest())
        number = np.arange(x.size).reshape(x.shape) + 3
        for entry in _entries(m):
            end[:] = 0
            m.run(tasks=3, entry=entry)
            np.testing.assert_array_equal(end, seen + number.astype(F) + x)


@pytest.mark.parametrize(
    "dtype", [bool, np.int8, np.uint16, np.float16, ml_dtypes.bfloat16, np.float64]
)
def test_other_dtypes(dtype: Any) -> None:
    for columns in (2, 3, 7, 12):
        x = _numbers((70, columns), dtype)
        end = np.zeros(x.shape, dtype)
        m = Maker((70,), columns)
        m.store(end, m.load(x[:, ::-1]))
        if points.goes_by_points(m.nest()):
            for entry in _entries(m):
                end[:] = 0
                m.run(tasks=2, entry=entry)
                np.testing.assert_array_equal(end, x[:, ::-1])
        else:
            assert LANES < 16
            assert x.itemsize < 4


@pytest.mark.parametrize("dtype", [np.uint8, np.uint16, np.float32, np.float64])
def test_nothing_beside_the_arrays_is_touched(dtype: Any) -> None:
    for columns in (2, 3, 5, 9, 15):
        for rows in (1, 7, 16, 33):
            memory, flat = walled(rows * columns, dtype)
            beside, scale = walled(rows, dtype)
            flat[:], scale[:] = _numbers(flat.shape, dtype), _numbers((rows,), dtype)
            x, end = flat.reshape(rows, columns), np.zeros((rows, columns), dtype)
            # Fewer numbers than lanes belong to the last vector.
            each = np.broadcast_to(scale[:, None], x.shape)
            m = Maker((rows,), columns)
            m.store(end, m.op("add", m.load(x[:, ::-1]), m.load(each)))
            for entry in _entries(m):
                end[:] = 0
                m.run(entry=entry)
                np.testing.assert_array_equal(end, x[:, ::-1] + each)
            m = Maker((rows,), columns)
            m.store(x, m.load(end))
            m.run(entry="points")
            np.testing.assert_array_equal(x, end)
            del each, scale, beside
            del x, flat, memory


def test_arrays_may_be_written_over() -> None:
    x = _numbers((70, 3))
    wanted = x * x[:, :1]
    scale = np.broadcast_to(x[:, :1].copy(), x.shape)
    m = Maker((70,), 3)
    m.store(x, m.op("mul", m.load(x), m.load(scale)))
    m.run(tasks=3, entry="points")
    np.testing.assert_array_equal(x, wanted)


def test_what_is_too_far_is_done_row_by_row() -> None:
    x = _numbers((90, 40, 5)).transpose(2, 1, 0)
    end = np.zeros(x.shape, F)
    m = Maker(x.shape[:-1], x.shape[-1])
    m.store(end, m.load(x))
    m.run(entry="points")
    np.testing.assert_array_equal(end, x)


@pytest.mark.parametrize("dtype", [bool, np.uint16, np.float16, np.float32, np.float64])
@pytest.mark.parametrize("columns", [2, 3, 7])
def test_rows_that_are_stored_apart(columns: int, dtype: Any) -> None:
    for rows in (90, 33, 5):
        x = _numbers((rows, columns), dtype)
        memory, flat = walled(rows * (columns + 2), dtype)
        flat[:] = _numbers(flat.shape, dtype)
        end, before = flat.reshape(rows, columns + 2), flat.reshape(rows, -1).copy()
        beside = np.zeros(x.shape, dtype)
        m = Maker((rows,), columns)
        loaded = m.load(x[:, ::-1])
        m.store(end[:, 2:], loaded)
        m.store(beside, loaded)
        m.run(tasks=2, entry="points")
        np.testing.assert_array_equal(end[:, 2:], x[:, ::-1])
        np.testing.assert_array_equal(end[:, :2], before[:, :2])
        np.testing.assert_array_equal(beside, x[:, ::-1])
        del end, flat, memory


def test_stored_apart_in_three_dimensions_and_backwards() -> None:
    x, end = _numbers((60, 4, 2)), np.zeros((60, 5, 3), F)
    for place in (end[:, :4, :2], end[::-1, 1:, :2]):
        end[:] = 0
        m = Maker((60, 4), 2)
        m.store(place, m.load(x))
        for entry in _entries(m):
            end[:] = 0
            m.run(tasks=3, entry=entry)
            np.testing.assert_array_equal(place, x)
            assert np.count_nonzero(end) == np.count_nonzero(x)


CALLS: dict[str, tuple[Callable[..., Any], tuple[int, ...]]] = {
    "turned rows": (lambda np, x: x[:, ::-1], (200, 3)),
    "small matrices": (lambda np, x: x + np.swapaxes(x, 1, 2), (200, 4, 4)),
    "rows and their scales": (lambda np, x: x * x[:, :1] - x[7], (200, 5)),
    "rows in turns": (lambda np, x: np.tile(x, (1, 2)), (300, 3)),
    "differences": (lambda np, x: x[:, :, None] - x[:, None, ::-1], (200, 3)),
    "numbers of columns": (lambda np, x: x * (np.arange(3) == 1), (200, 3)),
    "many operands": (
        lambda np, x: sum(
            x[:, k : k + 2] * x[:, k : k + 1] + x[7, k] for k in range(8)
        ),
        (300, 9),
    ),
}


@pytest.mark.parametrize("name", CALLS)
def test_programs_and_open_sizes_agree_with_numpy(name: str) -> None:
    f, shape = CALLS[name]
    x = _numbers(shape)
    fixed = td.jit(lambda x: f(tnp, x))
    opened = td.jit(
        lambda x: f(tnp, x), dynamic={"x": ("rows", *[None] * (len(shape) - 1))}
    )
    (step,) = fixed.lower(x).plan.steps
    assert points.points_entry(step.launch)
    for rows in (200, 8, 131):
        wanted = f(np, x[:rows])
        np.testing.assert_array_equal(np.asarray(fixed(x[:rows])), wanted)
        np.testing.assert_array_equal(np.asarray(opened(x[:rows])), wanted)


def test_only_short_rows_that_are_near_get_the_code() -> None:
    def goes(f: Callable[[Any], Any], *shape: int) -> bool:
        (step,) = td.jit(f).lower(tnp.ones(shape)).plan.steps
        return points.points_entry(step.launch)

    def joined(width: int, terms: int) -> Callable[[Any], Any]:
        def f(x: Any) -> Any:
            pieces = [x[:, k : k + width] for k in range(terms)]
            return tnp.concatenate([sum(pieces), x[:, :1]], axis=1)

        return f

    def first(f: Callable[[Any], Any], *shape: int) -> bool:
        steps = td.jit(f).lower(tnp.ones(shape)).plan.steps
        return points.points_entry(steps[0].launch)

    # Rows that are stored apart have to be short, and to be made of much.
    assert first(joined(2, 8), 1000, 9)
    assert not first(joined(2, 4), 1000, 9)
    assert not first(joined(5, 8), 1000, 12)
    assert goes(lambda x: x[:, ::-1], 1000, 3)
    assert not goes(lambda x: x[:, ::-1], 10, 3)
    assert not goes(lambda x: x[:, ::-1], 1000, 100)
    assert not goes(lambda x: x.T, 3, 1000)
    assert not goes(lambda x: tnp.sum(x, axis=1), 1000, 3)
