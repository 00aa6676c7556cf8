"""Vectors across rows of few elements: the same bits, and no memory beside."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import treadle as td
import treadle.numpy as tnp
from tests.core.kernels.nests import Maker
from tests.core.kernels.walls import walled
from treadle.backends.cpu.emit import across, known, turn
from treadle.backends.cpu.emit.builder import Builder
from treadle.backends.cpu.emit.lanes import host_lanes
from treadle.backends.cpu.run import native

F = np.dtype(np.float32)


def softmax(x: np.ndarray, ends: list[np.ndarray]) -> Maker:
    m = Maker(x.shape[:-1], x.shape[-1])
    value = m.load(x)
    e = m.op("exp", m.op("sub", value, m.op("reduce_max", value)))
    m.store(ends[0], m.op("div", e, m.op("reduce_sum", e)))
    return m


def squares(x: np.ndarray, ends: list[np.ndarray]) -> Maker:
    """Sums of products, which are rounded once, and two results a row."""
    m = Maker(x.shape[:-1], x.shape[-1])
    value = m.load(x)
    square = m.op("multiply_add", value, value, m.const(0.0, x.dtype))
    total = m.op("reduce_sum", square)
    m.store(ends[0], m.op("mul", value, m.op("sqrt", total)))
    m.store(_per_row(ends[1]), total)
    m.store(_per_row(ends[2]), m.op("reduce_prod", value))
    return m


def places(x: np.ndarray, ends: list[np.ndarray]) -> Maker:
    m = Maker(x.shape[:-1], x.shape[-1])
    value = m.load(x)
    index = np.broadcast_to(np.zeros((), np.int32), x.shape).copy()
    m.store(_per_row(index), m.op("reduce_argmax", value, dtype=np.int32))
    m.store(ends[0], m.op("sub", value, m.op("reduce_min", value)))
    ends[1] = index
    return m


def _per_row(array: np.ndarray) -> np.ndarray:
    """One element for each row, the first, as a view of the full shape."""
    return np.broadcast_to(array[..., :1], array.shape)


def _values(shape: tuple[int, ...], dtype: Any) -> np.ndarray:
    """Numbers of many sizes, equal ones, zeros of both signs, NaN and infinity."""
    rng = np.random.default_rng(len(shape) + shape[-1])
    x = rng.standard_normal(shape) * 10.0 ** rng.integers(-3, 3, shape)
    x[0] = 0.0
    x[0, ..., 0] = -0.0
    x[1 % shape[0], ..., -1] = np.nan
    x[2 % shape[0], ..., 0] = -np.inf
    return x.astype(dtype)


@pytest.mark.parametrize("lanes", [4, 8, 16])
@pytest.mark.parametrize("make", [softmax, squares, places])
def test_bits_are_those_of_vectors_along_rows(make: Callable, lanes: int) -> None:
    for columns in (1, 2, 3, 4, 5, 8, 10, 16, 17, 24, 25):
        for rows in (1, lanes - 1, 2 * lanes + 3):
            found = []
            for entry in ("task", f"task{columns}", "few", "short", f"open{columns}"):
                x = _values((rows, columns), F)
                ends = [np.zeros(x.shape, F) for _ in range(3)]
                make(x, ends).run(tasks=2, lanes=lanes, entry=entry)
                found.append([e.tobytes() for e in ends])
            assert len({*map(tuple, found)}) == 1, (rows, columns)


@pytest.mark.parametrize("dtype", [np.float64, np.float16, ml_dtypes.bfloat16])
@pytest.mark.parametrize("columns", [3, 7, 16])
def test_bits_of_other_dtypes(dtype: Any, columns: int) -> None:
    found = []
    for entry in ("task", f"task{columns}", "few", "short", "open"):
        x = _values((33, columns), dtype)
        ends = [np.zeros(x.shape, dtype) for _ in range(3)]
        softmax(x, ends).run(lanes=16, entry=entry)
        found.append(ends[0].tobytes())
    assert len({*map(tuple, found)}) == 1


def parts(x: np.ndarray, ends: list[np.ndarray]) -> Maker:
    """Of complex numbers: both parts are summed, and the numbers turned by that."""
    m = Maker(x.shape[:-1], x.shape[-1] // 2)
    re, im = m.load(x[..., ::2]), m.load(x[..., 1::2])
    totals = [m.op("reduce_sum", part) for part in (re, im)]
    turned = m.op("mul", re, totals[1]), m.op("mul", im, totals[0])
    shape = x[..., ::2].shape
    for number, part in enumerate(turned):
        m.store(ends[0][..., number::2], part)
    for number, total in enumerate(totals):
        of_rows = ends[1][..., number : number + 1]
        m.store(np.broadcast_to(of_rows, shape), total)
    # The second part of each pair follows the first.
    m.operands = [o._replace(beside=k in (3, 5)) for k, o in enumerate(m.operands)]
    return m


@pytest.mark.parametrize("lanes", [4, 8, 16])
@pytest.mark.parametrize("columns", [2, 3, 4, 6, 7, 9, 12, 16])
def test_parts_of_complex_numbers_in_registers(columns: int, lanes: int) -> None:
    """The bits of vectors along rows, and nothing beside the array is read."""
    if columns < 5:
        assert known.knows(parts(*_parts_and_ends(1, columns)).nest(), columns, lanes)
    for rows in (lanes, 2 * lanes + 3):
        found = []
        for entry in ("task", f"task{columns}"):
            x, ends = _parts_and_ends(rows, columns)
            memory, array = walled(x.size, F)
            array = array.reshape(x.shape)
            array[...] = x
            parts(array, ends).run(tasks=2, lanes=lanes, entry=entry)
            found.append([end.tobytes() for end in ends])
            del array, memory
        assert found[0] == found[1], rows
        z = x.view(np.complex64)
        np.testing.assert_allclose(
            ends[1].view(np.complex64)[:, 0], z.sum(1), rtol=1e-4, atol=1e-5
        )


def _parts_and_ends(rows: int, columns: int) -> tuple[np.ndarray, list[np.ndarray]]:
    x = np.random.default_rng(columns).standard_normal((rows, 2 * columns)).astype(F)
    return x, [np.zeros(x.shape, F), np.zeros((rows, 2), F)]


VIEWS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "rows of a wider array": lambda x: np.repeat(x, 2, axis=-1)[:, : x.shape[-1]],
    "every second element": lambda x: np.repeat(x, 2, axis=-1)[:, ::2],
    "columns first": lambda x: np.asfortranarray(x),
    "one row again and again": lambda x: np.broadcast_to(x[3], x.shape),
    "rows backwards": lambda x: x[::-1].copy()[::-1],
    "elements backwards": lambda x: x[:, ::-1].copy()[:, ::-1],
}


@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize("columns", [1, 2, 3, 4, 9])
def test_any_steps(view: str, columns: int) -> None:
    found = []
    for entry in ("task", f"task{columns}", "few", "short", "open"):
        x = VIEWS[view](_values((35, columns), F))
        end = np.zeros(x.shape, F)
        if x.strides[0]:
            end = VIEWS[view](end)
        softmax(x, [end]).run(lanes=16, entry=entry)
        found.append(np.ascontiguousarray(end).tobytes())
    assert len({*map(tuple, found)}) == 1


@pytest.mark.parametrize("width", [8, 16, 32, 64])
@pytest.mark.parametrize("lanes", [4, 8, 16])
@pytest.mark.parametrize("step", [1, 2])
def test_blocks_are_turned_and_nothing_beside_them_is_touched(
    step: int, width: int, lanes: int
) -> None:
    b = Builder()
    for way in ("in", "out"):
        with b.function(f"define void @turn_{way}(ptr %p, i64 %d, i64 %n, ptr %at)"):
            move = getattr(turn, f"turned_{way}")
            move(b, width, lanes, "%p", ("%d", str(step)), "%n", "%at")
            b("ret void")
    text = b.text()
    names = [f"turn_{way}" for way in ("in", "out")]
    key = f"test of turned blocks {width} {lanes} {step} "
    found = native.load([native.Source(key + n, n, lambda: text) for n in names])
    kinds = ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64, ctypes.c_void_p
    fill, empty = (ctypes.CFUNCTYPE(None, *kinds)(found[key + n]) for n in names)
    dtype = np.dtype(f"u{width // 8}")
    for columns in range(1, 17):
        across = step * (columns - 1) + 1
        for down in (across, across + 1, across + 5):
            count = (lanes - 1) * down + across
            memory, array = walled(count, dtype)
            start = array.ctypes.data
            array[:] = np.arange(count) % 251
            before = array.copy()
            rows = np.lib.stride_tricks.as_strided(
                array, (lanes, columns), (down * dtype.itemsize, step * dtype.itemsize)
            )
            block = np.zeros((columns + 3, lanes), dtype)
            fill(start, down, columns, block.ctypes.data)
            np.testing.assert_array_equal(block[:columns].T, rows)
            block += 1
            empty(start, down, columns, block.ctypes.data)
            np.testing.assert_array_equal(block[:columns].T, rows)
            rows -= 1
            np.testing.assert_array_equal(array, before)
            del rows, array, memory


@pytest.mark.parametrize("columns", [2, 3, 9, 16, 20, 40])
@pytest.mark.parametrize("dtype", ["complex64", "complex128"])
def test_parts_of_complex_numbers(dtype: str, columns: int) -> None:
    f = td.jit(lambda z: (tnp.sum(z, 1), tnp.einsum("ij,ij->i", z, z)))
    x = np.random.default_rng(columns).standard_normal((2, 35, columns))
    z = (x[0] + 1j * x[1]).astype(dtype)
    found = [np.asarray(y) for y in f(z)]
    for y, wanted in zip(found, (z.sum(1), (z * z).sum(1)), strict=True):
        np.testing.assert_allclose(y, wanted, rtol=0, atol=1e-4)
    # Other rows are the last ones, which are not as many as lanes.
    for y, fewer in zip(found, f(z[:-16]), strict=True):
        assert y[:-16].tobytes() == np.asarray(fewer).tobytes()


def test_sizes_that_are_open_have_the_same_bits() -> None:
    def f(x: Any) -> Any:
        e = tnp.exp(x - tnp.max(x, axis=-1, keepdims=True))
        return e / tnp.sum(e, axis=-1, keepdims=True), tnp.sum(x * x, axis=(-2, -1))

    opened = td.jit(f, dynamic={"x": ("batch", "rows", "columns")})
    for shape in ((2, 40, 3), (3, 5, 16), (1, 33, 17), (4, 16, 8)):
        x = tnp.asarray(_values(shape, F))
        for a, b in zip(opened(x), td.jit(f)(x), strict=True):
            assert np.asarray(a).tobytes() == np.asarray(b).tobytes()


@pytest.mark.parametrize("columns", range(2, 9))
def test_sums_of_few_whole_numbers_and_conditions(columns: int) -> None:
    x = np.random.default_rng(columns).integers(-9, 9, (83, columns))
    functions: dict[str, Callable[[Any, Any], Any]] = {
        "sum": lambda np, x: np.sum(x, 1, dtype=x.dtype),
        "most": lambda np, x: np.max(x, 1),
        "places": lambda np, x: np.argmin(x, 1),
        "any": lambda np, x: np.any(x > 7, 1),
        "others": lambda np, x: x - np.min(x, 1, keepdims=True),
    }
    for name, f in functions.items():
        for dtype in (np.int8, np.int16, np.int32, np.int64):
            found = td.jit(lambda x, f=f: f(tnp, x))(x.astype(dtype))
            wanted = f(np, x.astype(dtype))
            np.testing.assert_array_equal(found, wanted, err_msg=f"{name} {dtype}")


@pytest.mark.parametrize("columns", [2, 3, 8, 9])
@pytest.mark.parametrize("name", ["argmin", "argmax"])
def test_places_in_rows_that_have_nothing_but_what_changes_nothing(
    name: str, columns: int
) -> None:
    for dtype in (np.float32, np.float64, np.int8, np.int64, np.bool_):
        least, most = (0, 1) if dtype == np.bool_ else (-np.inf, np.inf)
        if np.issubdtype(dtype, np.integer):
            least, most = np.iinfo(dtype).min, np.iinfo(dtype).max
        for value in (least, most):
            x = np.full((83, columns), value, dtype)
            x[::3, -1] = 1
            found = td.jit(lambda x: getattr(tnp, name)(x, 1))(x)
            np.testing.assert_array_equal(found, getattr(np, name)(x, 1))


def test_only_launches_that_may_have_short_rows_get_the_code() -> None:
    def launch(rows: int, columns: int) -> Any:
        steps = td.jit(lambda x: tnp.sum(x, axis=-1)).lower(tnp.ones((rows, columns)))
        (step,) = steps.plan.steps
        return step.launch

    def goes(rows: int, columns: int) -> bool:
        return across.may_go_across(launch(rows, columns))

    def columns_of(rows: int, columns: int) -> int:
        return known.known_rows(launch(rows, columns)).columns

    assert goes(100, 3)
    assert columns_of(100, 3) == 3
    assert columns_of(100, 9) == (9 if host_lanes() > 8 else 0)
    assert not columns_of(100, 11)
    assert not columns_of(2, 3)
    assert not goes(100, 40)
    assert not goes(2, 3)


@pytest.mark.parametrize("columns", [2, 3, 5, 8])
def test_rows_beside_one_that_stands_still(columns: int) -> None:
    def distances(np: Any, x: Any, y: Any, scale: Any) -> Any:
        apart = x[:, None] - y[None]
        return (apart * apart * scale[:, None, None]).sum(-1)

    def nearest(np: Any, x: Any, y: Any, scale: Any) -> Any:
        apart = abs(x[:, None] - y[None]) + 0 * scale[:, None, None]
        return apart.max(-1)

    rng = np.random.default_rng(columns)
    shapes = (7, columns), (37, columns), (7,)
    for dtype in (np.float32, np.float64, np.float16):
        data = [rng.normal(size=s).astype(dtype) for s in shapes]
        for f in (distances, nearest):
            g = td.jit(lambda *a, f=f: f(tnp, *a))
            found = np.asarray(g(*data))
            wanted = f(np, *(a.astype(np.float64) for a in data))
            near = 1e-5 if dtype != np.float16 else 1e-2
            np.testing.assert_allclose(found, wanted, near, near)
            few = np.asarray(g(data[0], data[1][:5], data[2]))
            assert found[:, :5].tobytes() == few.tobytes()
