"""Elements that lie a few apart: loaded with those between them, and none behind."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import treadle as td
import treadle.numpy as tnp
from tests.core.kernels.nests import Maker
from tests.core.kernels.walls import walled
from treadle.fuse.lowering.vectors import FEW

DTYPES = [bool, np.int8, np.float16, ml_dtypes.bfloat16, np.float32, np.float64]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("step", FEW)
def test_nothing_behind_the_last_is_touched(step: int, dtype: Any) -> None:
    for lanes in (4, 8, 16):
        for count in (1, lanes, 4 * lanes, 5 * lanes + 3):
            memory, flat = walled(step * (count - 1) + 1, dtype)
            flat[:] = (np.arange(flat.size) % (2 if dtype is bool else 101)).astype(
                dtype
            )
            end = np.zeros(count, dtype)
            m = Maker((), count)
            m.store(end, m.load(flat[::step]))
            m.operands[0] = m.operands[0]._replace(apart=step)
            m.run(lanes=lanes)
            np.testing.assert_array_equal(end, flat[::step])
            wanted = flat.copy()
            wanted[::step] = end[::-1]
            m = Maker((), count)
            m.store(flat[::step], m.load(end[::-1].copy()))
            m.operands[1] = m.operands[1]._replace(apart=step)
            m.run(lanes=lanes)
            np.testing.assert_array_equal(flat, wanted)
            del m, flat, memory


@pytest.mark.parametrize("columns", [3, 4])
def test_columns_of_programs(columns: int) -> None:
    def f(np: Any, x: Any) -> Any:
        return x[:, 0] * 2 + x[:, columns - 1] - x[:, 1]

    opened = td.jit(lambda x: f(tnp, x), dynamic={"x": ("rows", None)})
    for rows in (200, 33, 1):
        x = np.arange(rows * columns, dtype=np.float32).reshape(rows, columns)
        for program in (opened, td.jit(lambda x: f(tnp, x))):
            np.testing.assert_array_equal(np.asarray(program(x)), f(np, x))
