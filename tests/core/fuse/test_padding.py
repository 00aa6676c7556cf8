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
