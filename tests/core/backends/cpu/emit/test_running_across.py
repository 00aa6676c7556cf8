"""Running reductions across short rows: the bits of rows one by one."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import treadle as td
import treadle.numpy as tnp
from tests.core.kernels.nests import Maker
from tests.core.kernels.walls import walled
from treadle import lax
from treadle.backends.cpu.emit import running_across
from treadle.backends.cpu.emit.lanes import host_lanes

F = np.dtype(np.float32)
NAMES = ["sum", "prod", "max", "min", "linear"]


def _values(shape: tuple[int, ...], dtype: Any) -> np.ndarray:
    """Numbers of many sizes, zeros of both signs and not-a-number among them."""
    rng = np.random.default_rng(shape[-1])
    x = rng.standard_normal(shape) * 10.0 ** rng.integers(-2, 3, shape)
    x[0], x[0, ..., 0], x[1, ..., -1] = 0.0, -0.0, np.nan
    with np.errstate(invalid="ignore"):
        return x.astype(dtype)


def _nest(name: str, x: np.ndarray, y: np.ndarray, end: np.ndarray) -> Maker:
    m = Maker(x.shape[:-1], x.shape[-1])
    args = [m.load(x), m.load(y)][-1 if name != "linear" else 0 :]
    m.store(end, m.op(f"running_{name}", *args))
    back = end.strides[-1] < 0
    m.operands[:] = [o._replace(back=back) for o in m.operands]
    return m


@pytest.mark.parametrize("dtype", [np.int32, np.float16, ml_dtypes.bfloat16, F, "f8"])
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("back", [False, True])
def test_bits_are_those_of_rows(name: str, dtype: Any, back: bool) -> None:
    for columns in (2, 3, 4, 7, 12, 13):
        shape = (5, 33, columns)
        x, y = _values(shape, dtype), _values(shape, dtype)[::-1].copy()
        wanted, end = np.zeros(shape, dtype), np.zeros(shape, dtype)
        way = slice(None, None, -1 if back else 1)
        m = _nest(name, x[..., way], y[..., way], wanted[..., way])
        assert running_across.runs_across(m.nest())
        m.run()
        _nest(name, x[..., way], y[..., way], end[..., way]).run(tasks=3, entry="few")
        np.testing.assert_array_equal(end.view(np.uint8), wanted.view(np.uint8))


@pytest.mark.parametrize("back", [False, True])
def test_nothing_beside_the_arrays_is_touched(back: bool) -> None:
    way = slice(None, None, -1 if back else 1)
    for columns in (2, 3, 5, 12):
        memory, flat = walled(33 * columns, F)
        x = flat.reshape(33, columns)
        x[:] = np.arange(33 * columns).reshape(x.shape)
        wanted = np.cumsum(x[:, way], 1)
        m = _nest("sum", x[:, way], x[:, way], x[:, way])
        m.run(entry="few")
        np.testing.assert_array_equal(x[:, way], wanted)
        del m, x, flat, memory


@pytest.mark.parametrize("columns", [2, 3, 8, 12, 40])
def test_programs_and_open_sizes_agree(columns: int) -> None:
    def f(x: Any) -> Any:
        return tnp.cumsum(x, axis=1), lax.cummax(x, axis=1, reverse=True)

    x = np.random.default_rng(0).standard_normal((200, columns)).astype("float32")
    opened = td.jit(f, dynamic={"x": ("rows", "columns")})
    for rows in (200, 40, 3):
        fixed, other = td.jit(f)(x[:rows]), opened(x[:rows])
        for a, b in zip(fixed, other, strict=True):
            np.testing.assert_array_equal(np.asarray(a), np.asarray(b))
        exact = np.cumsum(x[:rows].astype("float64"), axis=1)
        np.testing.assert_allclose(fixed[0], exact, rtol=1e-4, atol=1e-5)
        largest = np.maximum.accumulate(x[:rows, ::-1], axis=1)[:, ::-1]
        np.testing.assert_array_equal(fixed[1], largest)


def test_only_short_rows_get_the_code() -> None:
    def goes(*shape: int, axis: int = 1) -> bool:
        program = td.jit(lambda x: tnp.cumsum(x, axis=axis)).lower(tnp.ones(shape))
        (step,) = program.plan.steps
        return running_across.may_run_across(step.launch)

    assert goes(1000, 3)
    assert not goes(1000, host_lanes())
    assert not goes(3, 3)
    assert not goes(1000, 3, axis=0)
