"""Padding that crops, and padding with computed numbers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import treadle as td
import treadle.numpy as tnp
from tests.core.fuse.native import runs_natively
from treadle.ops.shape import pad

PADDINGS = [
    ((-1, 2, 0), (0, -3, 0)),
    ((-2, -1, 1), (3, -2, 2)),
    ((-5, 7, 0), (-1, 0, 0)),
    ((0, 0, 0), (-7, 0, 0)),
]


@pytest.mark.parametrize("padding", PADDINGS)
def test_negative_padding_is_native(padding: Any) -> None:
    x = tnp.asarray(np.arange(28.0, dtype="float32").reshape(4, 7))
    runs_natively(lambda x: pad(tnp.sin(x), np.float32(9), padding=padding), x)
    runs_natively(lambda x: pad(x, np.float32(9), padding=padding) * 2, x)


def test_a_computed_number_fills_before_the_pieces_are_made() -> None:
    x = np.linspace(0.5, 1.5, 5, dtype=np.float32)

    def padded(x: Any) -> Any:
        m = tnp.sum(x * 2)
        m = tnp.sin(m) * tnp.cos(m) + tnp.exp(m * 0.001) + tnp.log(tnp.abs(m) + 3)
        return pad(tnp.exp(x), m, padding=((2, 3, 0),))

    m = np.sum(x * 2)
    m = np.sin(m) * np.cos(m) + np.exp(m * 0.001) + np.log(np.abs(m) + 3)
    wanted = np.pad(np.exp(x), (2, 3), constant_values=m)
    np.testing.assert_allclose(td.jit(padded)(x), wanted, rtol=1e-5)


def test_a_piece_that_its_filling_is_made_of_is_moved() -> None:
    x = np.linspace(0.5, 1.5, 5, dtype=np.float32)

    def padded(x: Any) -> Any:
        y = tnp.exp(x)
        return pad(y, tnp.sum(y), padding=((2, 3, 0),))

    y = np.exp(x)
    wanted = np.pad(y, (2, 3), constant_values=y.sum())
    np.testing.assert_allclose(td.jit(padded)(x), wanted, rtol=1e-5)


def test_a_piece_of_two_wholes_is_made_in_the_first_and_moved_to_the_second() -> None:
    x = np.linspace(-1, 1, 24, dtype=np.float32).reshape(4, 6)

    def joined(np_: Any, x: Any) -> Any:
        y = np_.exp(x)
        z, w = np_.sin(y) + x, y * x
        u = z * w
        first = np_.concatenate([y, z, w], -1)
        second = np_.concatenate([u, y, z], -1)
        return first, second

    def overwritten(x: Any) -> Any:
        first, second = joined(tnp, x)
        return first.at[1:3].set(0.5), second

    report = str(td.jit(lambda x: joined(tnp, x)).explain(x))
    assert report.count("concatenate") == 2  # y and z, into the second
    for a, b in zip(td.jit(lambda x: joined(tnp, x))(x), joined(np, x), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5)
    first, second = joined(np, x)
    first[1:3] = 0.5
    for a, b in zip(td.jit(overwritten)(x), (first, second), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5)


@pytest.mark.parametrize("dtype", ["float32", "float64", "bool", "uint8", "bfloat16"])
@pytest.mark.parametrize("n", [1, 15, 17, 300])
def test_reads_back_to_front(n: int, dtype: str) -> None:
    x = tnp.asarray(np.random.default_rng(0).integers(0, 2, (3, n))).astype(dtype)
    runs_natively(lambda x: (x[:, ::-1], x[::-1, ::-1], x == x[:, ::-1]), x)
