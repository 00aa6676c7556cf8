"""Sorts, orders and the largest few as kernels."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import treadle as td
import treadle.numpy as tnp
from tests.core.fuse.native import runs_natively, shares_kernels
from treadle.ops.sort import argsort, sort, top_k

pytestmark = pytest.mark.usefixtures("checked_by_reference")

rng = np.random.default_rng(0)
DTYPES = ["float32", "float64", "float16", "bfloat16", "bool", "int8", "int32"]
DTYPES += ["uint8", "uint32", "int64", "uint64"]
LENGTHS = [1, 2, 3, 15, 16, 17, 100, 128, 129, 1000, 5000]


def draw(*shape: int, dtype: str = "float32", scale: float = 40) -> Any:
    # Rounded: there are ties.
    return tnp.asarray(np.round(rng.normal(size=shape) * scale)).astype(dtype)


def along(axis: int) -> Any:
    return lambda x: (sort(x, axis=axis, num_keys=1)[0], argsort(x, axis))


@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize("dtype", ["float32", "int64"])
def test_rows(dtype: str, length: int) -> None:
    runs_natively(along(1), draw(3, length, dtype=dtype, scale=1e4))
    runs_natively(along(0), draw(length, dtype=dtype))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("axis", [0, 1])
def test_dtypes_and_axes(axis: int, dtype: str) -> None:
    runs_natively(along(axis), draw(150, 140, dtype=dtype))
    runs_natively(lambda x: top_k(x, k=7), draw(20, 30, dtype=dtype))


@pytest.mark.parametrize("length", [20, 500])
def test_special_values(length: int) -> None:
    x = np.round(rng.normal(size=(30, length)), 1).astype("float32")
    for value in (np.nan, -np.nan, np.inf, -np.inf, 0.0, -0.0):
        x[rng.random(x.shape) < 0.1] = value
    runs_natively(along(1), tnp.asarray(x))
    runs_natively(lambda x: top_k(x, k=length // 2), tnp.asarray(x))
    np.testing.assert_array_equal(td.jit(along(1))(x)[0], np.sort(x))
    order = np.argsort(x, kind="stable")
    np.testing.assert_array_equal(td.jit(along(1))(x)[1], order)


@pytest.mark.parametrize("dtype", ["float32", "float64", "int8"])
@pytest.mark.parametrize("k", [0, 1, 5, 128, 129, 250, 251, 1000])
def test_the_largest_few(k: int, dtype: str) -> None:
    runs_natively(lambda x: top_k(x, k=k), draw(3, 1000, dtype=dtype))
    runs_natively(lambda x: top_k(x, k=k), tnp.zeros((2, 1003), dtype))


@pytest.mark.parametrize("dtype", ["float32", "int64"])
@pytest.mark.parametrize("length", [1000, 1003])
def test_the_largest_few_of_rows_with_structure(length: int, dtype: str) -> None:
    up = np.arange(length) * 3 % 4001
    bits = np.arange(length) // 7 % 2
    wave = np.arange(length) % 40
    # One in eight groups, or half of them, have all that is wanted.
    lumps = np.where(wave % 8 == 3, length + up, wave)
    halves = np.where(wave % 2 == 0, length + up, wave)
    x = np.stack([up, -up, bits, wave, lumps, halves]).astype(dtype)
    for k in (1, 7, 60, 100, length // 5, length // 4):
        values, places = td.jit(lambda x, k=k: top_k(x, k=k))(x)
        wanted = np.argsort(-x, axis=1, kind="stable")[:, :k]
        np.testing.assert_array_equal(places, wanted)
        np.testing.assert_array_equal(values, np.take_along_axis(x, wanted, 1))


@pytest.mark.parametrize("num_keys", [1, 2, 3])
def test_several_keys_and_what_goes_with_them(num_keys: int) -> None:
    args = draw(4, 200, scale=2), draw(4, 200, dtype="int8", scale=2), draw(4, 200)
    runs_natively(lambda *xs: sort(*xs, axis=1, num_keys=num_keys), *args)


@pytest.mark.parametrize("shape", [(0,), (3, 0), (0, 3), (1, 5), (5, 1)], ids=str)
def test_nothing_and_single_elements(shape: tuple[int, ...]) -> None:
    for axis in range(len(shape)):
        runs_natively(along(axis), draw(*shape))


def test_gradients_batches_and_loops() -> None:
    def loss(x: Any) -> Any:
        return tnp.sum(tnp.sort(x, axis=0) ** 2 * tnp.arange(40.0)[:, None])

    x = tnp.asarray(rng.normal(size=(40, 5)).astype("float32"))
    runs_natively(td.grad(loss), x)
    runs_natively(td.grad(lambda x: tnp.sum(top_k(x.T, k=3)[0] ** 2)), x)
    runs_natively(td.vmap(along(0), in_axes=1), x)
    runs_natively(lambda x: td.scan(lambda c, r: (c, tnp.sort(r + c)), x[0], x), x)


def test_quantiles() -> None:
    runs_natively(lambda x: tnp.median(x, axis=0), draw(33, 20))


def test_one_kernel_for_all_sizes() -> None:
    # Long rows are ordered otherwise than short ones.
    for few, many in ((20, 100), (200, 1000)):
        shares_kernels(along(1), [draw(4, few)], [draw(30, many)])
