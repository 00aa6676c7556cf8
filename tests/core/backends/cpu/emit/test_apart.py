"""Rows that are written where they were read."""

from __future__ import annotations

import numpy as np
import pytest

from tests.core.kernels.nests import Maker
from treadle.backends.cpu.emit import apart
from treadle.backends.cpu.emit.nest import emit
from treadle.dtypes import bfloat16

LANES = 8


@pytest.fixture(autouse=True)
def mask_registers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(apart, "has_mask_registers", lambda: True)


def _sum(source: np.ndarray, bias: np.ndarray, end: np.ndarray) -> Maker:
    m = Maker(source.shape[:-1], source.shape[-1])
    term = m.load(np.broadcast_to(bias, source.shape))
    m.store(end, m.op("add", m.load(source), term))
    return m


def _numbers(dtype: np.dtype, *shape: int) -> np.ndarray:
    return (np.arange(np.prod(shape)) * 7 % 61).reshape(shape).astype(dtype)


@pytest.mark.parametrize("dtype", ["float32", "float64", "int8", bfloat16])
@pytest.mark.parametrize("entry", ["task", "few"])
def test_every_row_runs_once(dtype: np.dtype, entry: str) -> None:
    for rows in (1, 2, 3, 4, 5, 8, 11, 14):
        for columns in (1, 7, 8, 9, 21):
            x = _numbers(np.dtype(dtype), rows, columns)
            bias = _numbers(np.dtype(dtype), columns + 3)[3:]
            expected = x + bias
            _sum(x, bias, x).run(lanes=LANES, entry=entry)
            np.testing.assert_array_equal(x, expected)


def test_rows_of_two_dimensions_in_tasks() -> None:
    for rows in (1, 6, 9):
        x = _numbers(np.dtype("float32"), 3, rows, 21)[:, :, :19]
        bias = _numbers(np.dtype("float32"), 19)
        expected = x + bias
        _sum(x, bias, x).run(tasks=2, lanes=LANES)
        np.testing.assert_array_equal(x, expected)


def test_rows_are_read_twice_and_written() -> None:
    """Each row's largest element is found before the row is written over."""
    x = np.random.default_rng(0).normal(size=(9, 21)).astype(np.float32)
    expected = x - x.max(1, keepdims=True)
    m = Maker(x.shape[:1], 21)
    row = m.operand(x)
    most = m.op("reduce_max", m.load(row))
    m.store(row, m.op("sub", m.load(row), most))
    m.run(lanes=LANES)
    np.testing.assert_array_equal(x, expected)


def test_only_rows_that_may_be_written_over_have_rounds() -> None:
    def rounds(m: Maker) -> bool:
        return "icmp eq ptr" in emit(m.nest(), "f", lanes=LANES)

    x, bias = np.zeros((5, 7), np.float32), np.zeros(7, np.float32)
    assert rounds(_sum(x, bias, x))
    m = Maker((5,), 7)
    wide = m.op("convert", m.load(x.astype(np.float64)), dtype=np.float32)
    m.store(x, m.op("add", wide, m.const(1.0, np.float32)))
    assert not rounds(m)
    m = _sum(x, bias, x)
    m.serial = True
    assert not rounds(m)
