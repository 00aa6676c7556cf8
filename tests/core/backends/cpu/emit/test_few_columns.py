"""Sums down a few columns by vectors across rows: NumPy in float64 says what is right,
and rows that are too few for vectors which bits."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import treadle as td
import treadle.numpy as tnp
from treadle.backends.cpu.emit import few_columns


def _forces(np: Any, x: Any, y: Any, w: Any) -> Any:
    return ((x[:, None] - y[None]) * w[..., None]).sum(1)


def _forces_of_turned(np: Any, x: Any, y: Any, w: Any) -> Any:
    return ((x[:, None] - y[None]) * w.T[..., None]).sum(1)


def _with_work_after(np: Any, x: Any, y: Any, w: Any) -> Any:
    sums = ((x[:, None] - y[None]) * w[..., None] * w[..., None]).sum(1)
    return np.exp(-np.abs(sums)) + 0.1 * x


def _of_one(np: Any, x: Any, y: Any, w: Any) -> Any:
    return (y[None] * w[..., None]).sum(1) + (w[..., None] * x[:, None]).sum(1)


FUNCTIONS = (_forces, _forces_of_turned, _with_work_after, _of_one)


def _data(
    rows: int, others: int, columns: int, dtype: type, turned: bool
) -> tuple[Any, ...]:
    rng = np.random.default_rng(rows + others + columns)
    shape = (others, rows) if turned else (rows, others)
    return tuple(
        rng.normal(size=s).astype(dtype)
        for s in ((rows, columns), (others, columns), shape)
    )


@pytest.mark.parametrize("f", FUNCTIONS)
@pytest.mark.parametrize("columns", [2, 3, 4])
def test_sums_are_right_and_have_the_bits_of_single_rows(f: Any, columns: int) -> None:
    turned = f is _forces_of_turned
    step = td.jit(lambda *a: f(tnp, *a))
    for dtype in (np.float32, np.float64):
        for others in (6, 259):
            x, y, w = _data(83, others, columns, dtype, turned)
            found = np.asarray(step(x, y, w))
            wanted = f(np, *(a.astype(np.float64) for a in (x, y, w)))
            near = 1e-4 if dtype == np.float32 else 1e-11
            np.testing.assert_allclose(found, wanted, near, near)
            for at in (0, 75):
                part = slice(at, at + 8)
                some = w[:, part] if turned else w[part]
                alone = np.asarray(step(x[part], y, some))
                assert found[part].tobytes() == alone.tobytes()


def test_batches_and_open_sizes_have_the_same_bits() -> None:
    step = td.jit(lambda *a: _forces(tnp, *a))
    opened = td.jit(
        lambda x, y, w: _forces(tnp, x, y, w),
        dynamic={
            "x": ("rows", "columns"),
            "y": ("others", "columns"),
            "w": ("rows", "others"),
        },
    )
    several = td.jit(td.vmap(lambda *a: _forces(tnp, *a)))
    for rows, others, columns in ((83, 30, 3), (20, 300, 3), (7, 5, 2), (40, 9, 5)):
        x, y, w = _data(rows, others, columns, np.float32, turned=False)
        alone = np.asarray(step(x, y, w))
        assert np.asarray(opened(x, y, w)).tobytes() == alone.tobytes()
        batch = np.asarray(several(*(np.stack([a, a]) for a in (x, y, w))))
        assert batch[1].tobytes() == alone.tobytes()


def test_rows_are_written_where_they_were() -> None:
    def two(x: Any, w: Any) -> Any:
        return x + 0.1 * _forces(tnp, x, x, w)

    x, _, w = _data(203, 203, 3, np.float32, turned=False)
    w = w / 203
    wanted = np.asarray(two(tnp.asarray(x), tnp.asarray(w)))
    found = td.jit(two, donate=("x",))(tnp.asarray(x), w)
    np.testing.assert_allclose(found, wanted, 1e-5, 1e-5)


def test_only_launches_with_few_columns_and_near_rows_get_the_code() -> None:
    def entry(rows: int, columns: int, f: Any = _forces) -> str:
        data = _data(rows, 50, columns, np.float32, f is _forces_of_turned)
        plan = td.jit(lambda *a: f(tnp, *a)).lower(*data).plan
        return few_columns.few_columns_entry(plan.steps[-1].launch)

    assert entry(64, 3).startswith(few_columns.COLUMNS)
    assert entry(64, 3, _forces_of_turned) != entry(64, 3)
    assert not entry(4, 3)
    assert not entry(64, 9)
