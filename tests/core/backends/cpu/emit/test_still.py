"""Columns that are looked up: the elements that belong there, and no memory beside."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import treadle as td
import treadle.numpy as tnp
from tests.core.kernels.nests import Maker
from tests.core.kernels.walls import walled
from treadle.backends.cpu.emit import points, still
from treadle.backends.cpu.emit.lanes import host_lanes
from treadle.backends.cpu.target import host
from treadle.fuse.lowering.launches import Launch

DTYPES: tuple[Any, ...] = (
    np.float32,
    np.int8,
    bool,
    ml_dtypes.bfloat16,
    np.float64,
    np.complex64,
)
SHAPES = [(3, 2), (3, 3), (5, 4), (8, 2), (8, 7), (16, 2), (30, 3), (300, 5)]
"""Columns, and how many of them are looked up: in two windows, in more, and apart."""


@pytest.mark.parametrize("mode", ["clip", "fill"])
@pytest.mark.parametrize("dtype", DTYPES, ids=lambda t: np.dtype(t).name)
def test_some_columns_of_all_rows(dtype: Any, mode: str) -> None:
    take = td.jit(lambda x, i: tnp.take(x, i, axis=1, mode=mode))
    draws = np.random.default_rng(0)
    for columns, count in SHAPES:
        x = draws.integers(0, 2 if dtype is bool else 99, (203, columns)).astype(dtype)
        for high in (columns, min(columns, 2)):
            i = draws.integers(0, high, count)
            np.testing.assert_array_equal(np.asarray(take(x, i)), x[:, i])


def test_what_is_done_with_them() -> None:
    @td.jit
    def both(x: Any, y: Any, i: Any, j: Any, w: Any) -> Any:
        return x[:, i] * w - y[:, j] + tnp.arange(3)

    draws = np.random.default_rng(1)
    for columns in (3, 4, 9, 40):
        x, y = draws.integers(-9, 9, (2, 157, columns)).astype(np.float32)
        i, j = draws.integers(-columns, columns, (2, 3))
        w = np.array([2, 3, 5], np.float32)
        wanted = x[:, i] * w - y[:, j] + np.arange(3)
        np.testing.assert_array_equal(both(x, y, i, j, w), wanted)


@pytest.mark.parametrize("windows", [2, 8])
def test_no_memory_beside_the_array_is_read(windows: int) -> None:
    rows = 131
    for columns in (2, 3, 5, 8):
        kept, memory = walled(rows * columns, np.float32)
        x = memory.reshape(rows, columns)
        x[:] = np.arange(x.size).reshape(x.shape)
        for low, high in ((0, 0), (columns - 1, 0), (columns - 1, columns - 1)):
            places = np.array([low, high], np.int32)
            end = np.zeros((rows, 2), np.float32)
            m = Maker((rows,), 2)
            table = np.broadcast_to(x[:, None], (rows, 2, columns))
            at = m.load(np.broadcast_to(places, (rows, 2)))
            m.store(end, m.op("add", m.load(table, at), m.const(1.0, np.float32)))
            assert 1 in still.lookups(m.nest())
            for tasks in (1, 3):
                end[:] = 0
                m.run(tasks=tasks, entry=f"points1{windows}1")
                np.testing.assert_array_equal(end, x[:, places] + 1)
        del kept


def test_batches_of_rows_and_open_sizes() -> None:
    take = td.jit(lambda x, i: tnp.exp(x[..., i]), dynamic=True)
    for shape in ((50, 7, 4), (6, 90, 3), (2, 3, 4, 50, 5)):
        x = np.random.default_rng(2).normal(size=shape).astype(np.float32)
        i = np.array([2, 0])
        fixed = td.jit(lambda x, i: tnp.exp(x[..., i]), dynamic=False)(x, i)
        np.testing.assert_array_equal(take(x, i), fixed)
        np.testing.assert_allclose(fixed, np.exp(x[..., i]), rtol=1e-6)


@pytest.mark.skipif(
    host().arch != "x86_64" or host().vector_bytes < 32,
    reason="no instruction that chooses among lanes",
)
def test_only_what_stands_still_has_windows(monkeypatch: pytest.MonkeyPatch) -> None:
    found: list[str] = []
    before = points.points_entry

    def seen(launch: Launch) -> str:
        entry = before(launch)
        if still.lookups(launch.nest):
            found.append(entry)
        return entry

    monkeypatch.setattr("treadle.backends.cpu.sources.points_entry", seen)
    lookups = 2 if host_lanes() == 16 else host_lanes()
    x = np.arange(600.0, dtype=np.float32).reshape(200, 3)
    i = np.array([2, 0])
    np.testing.assert_array_equal(td.jit(lambda x, i: x[:, i])(x, i), x[:, i])
    assert found and found[-1].startswith("points")
    assert any(set(e.removeprefix("points")) & {"2", str(lookups)} for e in found)
    found.clear()
    rows = np.stack([i] * 200) + 0
    along = td.jit(lambda x, i: tnp.take_along_axis(x, i, 1))
    np.testing.assert_array_equal(along(x, rows), x[:, i])
    assert not any("2" in e for e in found)
