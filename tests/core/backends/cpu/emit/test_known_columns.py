"""Rows of a few elements made of columns that lie apart: all of them, none beside."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import treadle as td
import treadle.numpy as tnp
from tests.core.kernels.nests import Maker
from tests.core.kernels.walls import walled
from treadle.backends.cpu import sources
from treadle.backends.cpu.emit import known
from treadle.backends.cpu.emit.known import TOGETHER, Known
from treadle.fuse.lowering import nests, vectors

F = np.dtype(np.float32)
DTYPES = [bool, np.uint16, ml_dtypes.bfloat16, F, np.float64]


def _numbers(shape: tuple[int, ...], dtype: Any = F) -> np.ndarray:
    count = 2 if np.dtype(dtype) == bool else 120
    return (np.arange(np.prod(shape)) % count).reshape(shape).astype(dtype)


@pytest.mark.parametrize("lanes", [4, 8, 16])
@pytest.mark.parametrize("columns", [2, 3, 5, 8])
def test_what_is_read_apart_beside_it_once_a_row_and_once_for_all(
    columns: int, lanes: int
) -> None:
    shape = (2, 37, columns)
    apart = _numbers((2, columns, 37))
    x, each = np.swapaxes(apart, 1, 2), _numbers(shape)
    scale = np.broadcast_to(_numbers((2, 37))[..., None], shape)
    means = np.broadcast_to(_numbers((columns,)), shape)
    end = np.zeros(shape, F)
    m = Maker(shape[:-1], columns)
    value = m.op("add", m.op("mul", m.load(x), m.load(scale)), m.load(each))
    m.store(end, m.op("sub", value, m.load(means)))
    for tasks in (1, 3, 50):
        for still in (8, 0, 9):  # the first alone suits
            end[:] = 0
            entry = TOGETHER + Known(columns, still).suffix
            m.run(tasks=tasks, lanes=lanes, entry=entry)
            np.testing.assert_array_equal(end, x * scale + each - means)


@pytest.mark.parametrize("dtype", DTYPES)
def test_nothing_beside_the_arrays_is_touched(dtype: Any) -> None:
    for rows, columns in ((131, 3), (17, 4)):
        memory, flat = walled(rows * columns, dtype)
        flat[:] = _numbers(flat.shape, dtype)
        x, end = flat.reshape(columns, rows), np.zeros((rows, columns), dtype)
        m = Maker((rows,), columns)
        m.store(end, m.load(x.T))
        for wide in ("", "wide "):
            end[:] = 0
            m.run(entry=f"{wide}{TOGETHER}{columns}")
            np.testing.assert_array_equal(end, x.T)
        more, flat = walled(rows * columns, dtype)
        into = flat.reshape(rows, columns)
        m = Maker((rows,), columns)
        m.store(into, m.load(x.T))
        m.run(entry=f"wide {TOGETHER}{columns}")
        np.testing.assert_array_equal(into, x.T)
        del memory, more


@pytest.fixture
def entries(monkeypatch: Any) -> list[str]:
    """The entries of the launches that are compiled."""
    found: list[str] = []
    plain = sources._entry_for

    def kept(launch: Any) -> str:
        found.append(plain(launch))
        return found[-1]

    monkeypatch.setattr(sources, "_entry_for", kept)
    return found


def test_programs_that_put_channels_last_use_it(entries: list[str]) -> None:
    images = (np.arange(2 * 3 * 40 * 50) % 251).reshape(2, 3, 40, 50).astype("uint8")
    mean = np.array([0.1, 0.2, 0.3], F)

    def last(x: Any, mean: Any) -> Any:
        return tnp.transpose(x, (0, 2, 3, 1)).astype("float32") / 255 - mean

    wanted = images.transpose(0, 2, 3, 1).astype(F) / F.type(255) - mean
    np.testing.assert_array_equal(td.jit(last)(images, mean), wanted)
    assert any(f"{TOGETHER}3" in entry for entry in entries)
    entries.clear()
    x = np.arange(5 * 301, dtype="int16").reshape(5, 301)
    np.testing.assert_array_equal(td.jit(lambda x: tnp.array(x.T))(x), x.T)
    assert any(f"{TOGETHER}5" in entry for entry in entries)


def test_open_rows_have_the_bits_of_fixed_ones() -> None:
    def last(x: Any, scale: Any) -> Any:
        return tnp.exp(x.T * 0.1) * scale + x[0][:, None]

    x, scale = np.random.default_rng(0).normal(size=(3, 64)).astype(F), np.ones(3, F)
    fixed, opened = td.jit(last), td.jit(last, dynamic={"x": (None, "n")})
    for n in (64, 50, 1):
        np.testing.assert_array_equal(
            opened(x[:, :n], scale), fixed(x[:, :n], scale), strict=True
        )


def test_few_columns_and_few_instructions() -> None:
    m = Maker((40,), 3)
    x, end = np.zeros((3, 40), F), np.zeros((40, 3), F)
    m.store(end, m.load(x.T))
    nest = m.nest()
    assert known.puts_together(nest)
    suit = [n for n in (1, 2, 8, 9) if known.knows(nest, n, 16)]
    assert suit == [2, 8]


N = 40
ROWS: dict[str, tuple[Any, tuple[int, ...]]] = {
    "scaled": (lambda x: x.T * 2 + x[0][:, None], (3, N)),
    "backwards": (lambda x: x[::-1].T * x.T, (5, N)),
    "some rows": (lambda x: x[1:-1].T - 1, (6, N)),
    "of batches": (lambda x: tnp.swapaxes(x, 1, 2) * tnp.arange(7), (2, 7, N)),
    "numbered": (lambda x: x.T + tnp.arange(N)[:, None], (4, N)),
    "of sums": (lambda x: x.sum(0).T, (4, 3, N)),
    "chosen": (lambda x: tnp.where(x.T > 5, x.T, 0), (2, N)),
    "beside others": (lambda x: x[:3].T * x[3:].reshape(N, 3), (6, N)),
    "added": (lambda x: tnp.ones((N, 3), x.dtype).at[:].add(x.T), (3, N)),
    "put": (lambda x: tnp.ones((N + 9, 3), x.dtype).at[9:].set(x.T), (3, N)),
    "beginnings": (lambda x: tnp.cumsum(x, 1).T * 2, (3, N)),
}


@pytest.mark.parametrize("dtype", ["int8", "float16", "float32", "complex64"])
def test_rows_that_are_chosen_for_it_have_code_for_it(
    dtype: str, monkeypatch: Any
) -> None:
    asked: list[bool] = []
    refused, taken = [], []
    makes_rows, assemble = vectors.makes_rows, nests.assemble

    def makes(*args: Any) -> bool:
        asked.append(makes_rows(*args))
        return asked[-1]

    def assembled(*args: Any) -> Any:
        launch = assemble(*args)
        if any(asked):
            (taken if known.known_rows(launch).columns else refused).append(name)
        asked.clear()
        return launch

    monkeypatch.setattr(vectors, "makes_rows", makes)
    monkeypatch.setattr(nests, "assemble", assembled)
    for name, (f, shape) in ROWS.items():
        if dtype != "complex64" or name != "chosen":
            x = _numbers(shape, "int8").astype(dtype)
            np.testing.assert_array_equal(td.jit(f)(x), f(tnp.asarray(x)))
    assert refused == []
    assert {"scaled", "backwards"} & {*taken} or dtype == "complex64"
