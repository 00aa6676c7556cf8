"""Vectors of as many narrow elements as fit: short rows, beside NumPy's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import treadle as td
import treadle.numpy as tnp
from tests.core.kernels.nests import Maker
from tests.core.kernels.walls import walled
from treadle.backends.cpu.emit.lanes import host_lanes
from treadle.backends.cpu.emit.points import POINTS, goes_by_points
from treadle.backends.cpu.emit.wide import WIDE, wide_lanes
from treadle.backends.cpu.sources import _entry

NARROW = [np.bool_, np.uint8, np.int8, np.int16]
POISON = 77


def _numbers(shape: tuple[int, ...], dtype: Any) -> np.ndarray:
    found = np.random.default_rng(len(shape)).integers(0, 100, shape)
    return (found > 50 if np.dtype(dtype) == bool else found).astype(dtype)


def _among_others(count: int, dtype: Any, offset: int) -> tuple[np.ndarray, np.ndarray]:
    """Memory full of poison, and a part of it."""
    whole = np.full(count + offset + 70, POISON, np.int16).astype(dtype)
    return whole, whole[offset : offset + count]


def _left_alone(whole: np.ndarray, count: int, offset: int) -> bool:
    poison = np.int16(POISON).astype(whole.dtype)
    around = (whole[:offset], whole[offset + count :])
    return all((part == poison).all() for part in around)


def _turned(x: np.ndarray, end: np.ndarray) -> Maker:
    """Rows backwards, beside the elements that they begin with."""
    m = Maker(x.shape[:-1], x.shape[-1])
    first, row = np.broadcast_to(x[..., :1], x.shape), np.broadcast_to(x[-1], x.shape)
    parts = [m.load(view) for view in (x[..., ::-1], first, row)]
    m.store(end, m.op("bitwise_xor", m.op("bitwise_or", *parts[:2]), parts[2]))
    return m


@pytest.mark.parametrize("dtype", NARROW)
def test_any_rows(dtype: Any) -> None:
    for columns in (2, 3, 5, 8, 15, 16, 20, 31, 33, 48, 63, 64, 65):
        for rows in (1, 2, 7, 33, 64, 67, 130):
            offset = (columns + rows) % 5
            x = _numbers((rows * columns + offset,), dtype)[offset:]
            x = x.reshape(rows, columns)
            whole, flat = _among_others(x.size, dtype, offset)
            end = flat.reshape(x.shape)
            _turned(x, end).run(tasks=1 + rows % 3, entry=WIDE + POINTS)
            np.testing.assert_array_equal(end, (x[:, ::-1] | x[:, :1]) ^ x[-1])
            assert _left_alone(whole, x.size, offset)


@pytest.mark.parametrize("dtype", NARROW)
def test_any_number_of_rows_up_to_200_elements(dtype: Any) -> None:
    for columns in (2, 3, 7):
        for rows in range(1, 200 // columns + 1):
            x = _numbers((rows, columns), dtype)
            whole, flat = _among_others(x.size, dtype, 3)
            _turned(x, flat.reshape(x.shape)).run(entry=WIDE + POINTS)
            wanted = ((x[:, ::-1] | x[:, :1]) ^ x[-1]).ravel()
            np.testing.assert_array_equal(flat, wanted)
            assert _left_alone(whole, x.size, 3)


@pytest.mark.parametrize("dtype", [np.uint8, np.int16])
def test_nothing_beside_the_arrays_is_read(dtype: Any) -> None:
    for columns in (2, 3, 8, 40):
        for rows in (1, 16, 65, 129):
            memory, flat = walled(rows * columns, dtype)
            flat[:] = _numbers(flat.shape, dtype)
            x, end = flat.reshape(rows, columns), np.zeros((rows, columns), dtype)
            _turned(x, end).run(entry=WIDE + POINTS)
            np.testing.assert_array_equal(end, (x[:, ::-1] | x[:, :1]) ^ x[-1])
            m = Maker((rows,), columns)
            m.store(x, m.load(end))
            m.run(entry=WIDE + POINTS)
            np.testing.assert_array_equal(x, end)
            del x, flat, memory


@pytest.mark.parametrize("dtype", NARROW)
def test_rows_stored_apart_and_in_three_dimensions(dtype: Any) -> None:
    for columns in (2, 3, 7, 20):
        x = _numbers((50, 2, columns), dtype)
        whole = np.full((50, 2, columns + 3), POISON, np.int16).astype(dtype)
        before, end = whole.copy(), whole[..., 2:-1]
        _turned(x, end).run(tasks=2, entry=WIDE + POINTS)
        before[..., 2:-1] = (x[..., ::-1] | x[..., :1]) ^ x[-1]
        np.testing.assert_array_equal(whole, before)


@pytest.mark.parametrize("dtype", [np.uint8, np.int16])
def test_elements_that_lie_apart(dtype: Any) -> None:
    for apart in range(2, 10):
        wide = np.random.default_rng(apart).integers(0, 127, (200, 3 * apart))
        x = wide.astype(dtype)[:, ::apart]
        end = np.zeros((200, 3), dtype)
        _turned(x, end).run(entry=WIDE + POINTS)
        np.testing.assert_array_equal(end, (x[:, ::-1] | x[:, :1]) ^ x[-1])


REDUCTIONS: dict[str, tuple[str, Callable[..., np.ndarray]]] = {
    "or": ("reduce_or", np.bitwise_or.reduce),
    "sum": ("reduce_sum", np.add.reduce),
    "max": ("reduce_max", np.maximum.reduce),
}


@pytest.mark.parametrize("dtype", [np.uint8, np.int8, np.int16])
@pytest.mark.parametrize("name", REDUCTIONS)
def test_rows_that_end_with_one_number(name: str, dtype: Any) -> None:
    op, numpy = REDUCTIONS[name]
    for columns in range(2, 9):
        for rows in (1, 15, 32, 63, 64, 65, 100, 131):
            memory, flat = walled(rows * columns, dtype)
            flat[:] = _numbers(flat.shape, dtype)
            x = flat.reshape(rows, columns)
            whole, end = _among_others(rows, dtype, columns)
            m = Maker((rows,), columns)
            total = m.op(op, m.load(x))
            m.store(np.broadcast_to(end[:, None], x.shape), total)
            m.run(tasks=1 + rows % 2, entry=f"{WIDE}task{columns}")
            np.testing.assert_array_equal(end, numpy(x, axis=1, dtype=dtype))
            assert _left_alone(whole, rows, columns)
            del x, flat, memory


CALLS: dict[str, Callable[[Any, Any], Any]] = {
    "turned": lambda np, x: x[:, ::-1],
    "tiled": lambda np, x: np.tile(x, (1, 2)),
    "of rows' first": lambda np, x: x * x[:, :1] + x[7],
    "largest": lambda np, x: x.max(1),
    "less the largest": lambda np, x: x.max(1, keepdims=True) - x,
    "any": lambda np, x: (x > 50).any(1),
}


@pytest.mark.parametrize("name", CALLS)
def test_programs_of_fixed_and_open_sizes(name: str) -> None:
    f = CALLS[name]
    x = _numbers((3000, 3), np.uint8)
    fixed = td.jit(lambda x: f(tnp, x))
    opened = td.jit(lambda x: f(tnp, x), dynamic={"x": ("n", None)})
    for rows in (3000, 8, 131):
        for call in (fixed, opened):
            np.testing.assert_array_equal(np.asarray(call(x[:rows])), f(np, x[:rows]))


def test_narrow_nests_alone_are_wide() -> None:
    def entry(f: Callable[[Any], Any], x: Any) -> str:
        (step,) = td.jit(f).lower(x).plan.steps
        nest = step.launch.nest
        assert _entry(step.launch).startswith(WIDE) <= (wide_lanes(nest) > host_lanes())
        if not goes_by_points(nest) or wide_lanes(nest) == host_lanes():
            pytest.skip("this machine chooses among fewer lanes")
        return _entry(step.launch)

    many = tnp.ones((3000, 3), np.uint8)
    assert entry(lambda x: x[:, ::-1], many).startswith(WIDE + POINTS)
    assert entry(lambda x: x[:, ::-1], many[:500]).startswith(POINTS)
    wide = [step.launch for step in td.jit(_halves).lower(many).plan.steps]
    assert not any(_entry(launch).startswith(WIDE) for launch in wide)


def _halves(x: Any) -> Any:
    return (x[:, ::-1].astype("float16") * 2).astype(np.uint8)


@pytest.mark.parametrize("order", ["big", "little"])
def test_bits_of_all_sizes(order: Any) -> None:
    """One program for all of them, and some of their own."""
    pack = td.jit(lambda x: tnp.packbits(x, bitorder=order), dynamic={"x": ("n",)})
    unpack = td.jit(lambda x: tnp.unpackbits(x, bitorder=order), dynamic={"x": ("n",)})
    x = _numbers((201,), bool)
    for n in range(1, 201):
        wanted = np.packbits(x[:n], bitorder=order)
        np.testing.assert_array_equal(np.asarray(pack(x[:n])), wanted)
        bits = np.unpackbits(wanted, bitorder=order)
        np.testing.assert_array_equal(np.asarray(unpack(wanted)), bits)
    for shape in ((0,), (8000,), (8005,), (3, 0), (40, 100), (2, 19, 70)):
        for axis in (None, *range(len(shape))):
            y = _numbers(shape, np.int16) * (_numbers(shape, bool))
            wanted = np.packbits(y != 0, axis=axis, bitorder=order)
            found = td.jit(lambda y, a=axis: tnp.packbits(y, a, order))(y)
            np.testing.assert_array_equal(np.asarray(found), wanted)
            # Of nothing, NumPy's further bits are whatever its memory holds.
            for count in (None, 5, -3, 900) if y.size else ():
                args = wanted, axis, count, order
                bits = np.unpackbits(wanted, axis, count, order)
                found = td.jit(lambda w, a=args: tnp.unpackbits(w, *a[1:]))(wanted)
                np.testing.assert_array_equal(np.asarray(found), bits)
