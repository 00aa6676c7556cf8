"""Short rows whose length is known: what is read, written and added where data say."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import treadle as td
import treadle.numpy as tnp
from tests.core.kernels.nests import Maker
from tests.core.kernels.walls import walled
from treadle.backends.cpu.emit import points, short
from treadle.fuse.lowering.launches import Launch

DTYPES: tuple[Any, ...] = (
    np.float32,
    np.float64,
    np.int8,
    bool,
    np.float16,
    ml_dtypes.bfloat16,
    np.complex64,
)
ROWS = 301
PLACES = np.random.default_rng(0).integers(-ROWS, ROWS, 203)


def _rows(columns: int, dtype: Any, count: int = ROWS) -> np.ndarray:
    numbers = np.arange(count * columns) % (2 if dtype is bool else 97)
    return numbers.reshape(count, columns).astype(dtype)


@pytest.mark.parametrize("dtype", DTYPES, ids=lambda t: np.dtype(t).name)
def test_rows_read_and_written_at_places(dtype: Any) -> None:
    @td.jit
    def both(x: Any, i: Any, j: Any, y: Any) -> Any:
        return x[i], x.at[j].set(y)

    once = np.random.default_rng(1).permutation(ROWS)[:99]
    for columns in (2, 3, 5, 7, 9, 12, 15, 16, 19):
        x, y = _rows(columns, dtype), _rows(columns, dtype, 99)[::-1]
        read, written = both(x, PLACES, once, y)
        np.testing.assert_array_equal(np.asarray(read), x[PLACES])
        wanted = x.copy()
        wanted[once] = y
        np.testing.assert_array_equal(np.asarray(written), wanted)


@pytest.mark.parametrize("dtype", [np.float32, np.int8, np.float64])
def test_rows_added_at_places(dtype: Any) -> None:
    add = td.jit(lambda x, i, y: x.at[i].add(y))
    for columns in (3, 6, 7, 11, 15):
        x, y = _rows(columns, dtype), _rows(columns, dtype, len(PLACES)) % 3
        wanted = x.copy()
        np.add.at(wanted, PLACES, y)
        got = add(x, PLACES, y.astype(dtype))
        np.testing.assert_array_equal(np.asarray(got), wanted)


def _copied(x: np.ndarray, end: np.ndarray) -> Maker:
    m = Maker(x.shape[:-1], x.shape[-1])
    m.store(end, m.op("add", m.load(x), m.load(x)))
    return m


def test_no_memory_beside_rows_is_touched() -> None:
    for columns in (3, 5, 7, 11, 13, 15):
        kept, x = walled(37 * columns, np.float32)
        also_kept, end = walled(37 * columns, np.float32)
        x, end = x.reshape(37, columns), end.reshape(37, columns)
        x[:] = _rows(columns, np.float32, 37)
        for tasks in (1, 3):
            end[:] = 0
            _copied(x, end).run(tasks=tasks, entry=f"few{columns}")
            np.testing.assert_array_equal(end, x + x)
        del kept, also_kept


def test_rows_of_other_lengths_are_done_all_the_same() -> None:
    x = _rows(5, np.float32)
    end = np.zeros_like(x)
    _copied(x, end).run(tasks=2, entry="few3")
    np.testing.assert_array_equal(end, x + x)


def test_whole_rows_do_not_go_by_points(monkeypatch: pytest.MonkeyPatch) -> None:
    found: list[tuple[str, str]] = []
    before = short.short_entry

    def seen(launch: Launch) -> str:
        found.append((points.points_entry(launch), before(launch)))
        return found[-1][1]

    monkeypatch.setattr("treadle.backends.cpu.sources.short_entry", seen)
    x, i = _rows(6, np.float32), np.arange(200) % 7
    np.testing.assert_array_equal(td.jit(lambda x, i: x[i])(x, i), x[i])
    assert ("", "few6") in found


def test_open_sizes_have_the_bits_of_known_ones() -> None:
    def lookup(x: Any, i: Any, j: Any) -> Any:
        return tnp.exp(x[i] - x[j] * 0.3)

    opened = td.jit(lookup, dynamic=True)
    for columns in (3, 7, 8, 13):
        x = np.random.default_rng(columns).normal(size=(ROWS, columns))
        args = x.astype(np.float32), PLACES, PLACES[::-1].copy()
        np.testing.assert_array_equal(opened(*args), td.jit(lookup)(*args))


def test_much_work_on_rows_that_are_read() -> None:
    @td.jit
    def work(x: Any, i: Any, w: Any) -> Any:
        return tnp.tanh(x[i] * w) * tnp.exp(-x[i])

    for dtype in (np.float32, np.float64):
        for columns in (2, 3, 4, 6, 8, 13, 16):
            x = np.random.default_rng(columns).normal(size=(ROWS, columns))
            w = np.arange(columns) / 7 - 0.5
            got = work(x.astype(dtype), PLACES, w.astype(dtype))
            seen = x.astype(dtype).astype(np.float64)[PLACES]
            wanted = np.tanh(seen * w.astype(dtype)) * np.exp(-seen)
            tight = 2e-6 if dtype == np.float32 else 1e-14
            np.testing.assert_allclose(got, wanted, rtol=tight, atol=tight)
